"""The client's stop sequences, applied to visible text where the server would not say which one matched (R24.5).

Rules:

1. The sequence that is complete first ends the answer, however the text was cut. It is no part of the answer, and named
   at its end.
2. Only text is looked at: thoughts, refusals and arguments of calls are not.
3. Held back is only what may still become a sequence.
4. What the model would have said behind it is not waited for. Then nobody has counted, and the counts are by bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ..backends.usage import BYTES_PER_TOKEN
from ..events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from ..model import FinishReason, ModelReply, Text, Usage
from .stages import Stage


class StopStage(Stage):
    """Ends an answer at the first of `sequences`, none of which is empty. `size` is that of the request, in bytes."""

    def __init__(self, sequences: Sequence[str], size: int) -> None:
        self._sequences = tuple(dict.fromkeys(sequences))
        self._matchers: dict[int, list[_Matcher]] = {}
        self._size = size
        self._held: dict[int, str] = {}  # of the open blocks of text
        self._open: dict[int, None] = {}
        self._read: Usage | None = None
        self._written = 0
        self._over = False

    def leaves(self, reply: ModelReply) -> bool:
        """See `proxy.pipeline.stages.Stage`."""
        texts = [part.text for choice in reply.choices for part in choice.parts if isinstance(part, Text)]
        return not any(sequence in text for text in texts for sequence in self._sequences)

    def feed(self, events: list[Event]) -> list[Event]:
        """See `proxy.pipeline.stages.Stage`."""
        out: list[Event] = []
        for event in events:
            if self._over:
                break
            match event:
                case Delta():
                    self._written += len(event.text.encode("utf-8", "surrogatepass"))
                    if event.block in self._held:
                        out += self._text(event.block, event.text, event, events[-1])
                    else:
                        out.append(event)
                case Open():
                    self._open[event.block] = None
                    if event.kind is BlockKind.TEXT and event.choice == 0:
                        self._held[event.block] = ""
                        self._matchers[event.block] = [_Matcher(sequence) for sequence in self._sequences]
                    out.append(event)
                case Close():
                    self._open.pop(event.block, None)
                    if rest := self._held.pop(event.block, ""):
                        out.append(Delta(event.block, rest))
                    out.append(event)
                case Fault():
                    out += [Delta(block, rest) for block, rest in self._held.items() if rest]
                    out.append(event)
                case Start():
                    self._read = event.usage
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def _text(self, block: int, text: str, event: Delta, last: Event) -> list[Event]:
        """What of more text goes on; the end of the answer if a sequence is complete. `last` is the last event that is
        known."""
        held = self._held[block]
        matchers = self._matchers[block]
        ends = [(end, -len(one.sequence), one.sequence) for one in matchers if (end := one.feed(text)) >= 0]
        if ends:
            end, _, sequence = min(ends)
            return self._end(block, (held + text)[: len(held) + end - len(sequence)], sequence, last)
        keep = max(one.matched for one in matchers)
        if not held and not keep:
            return [event]
        text = held + text
        self._held[block] = text[len(text) - keep :]
        shown = text[: len(text) - keep]
        return [Delta(block, shown)] if shown else []

    def _end(self, block: int, text: str, sequence: str, last: Event) -> list[Event]:
        self._over = True
        usage = last.usage if isinstance(last, Finish) else None
        if usage is None:
            read = self._read.input_tokens if self._read is not None else max(1, self._size // BYTES_PER_TOKEN)
            usage = Usage(read, max(1, self._written // BYTES_PER_TOKEN), estimated=True)
        shown: list[Event] = [Delta(block, text)] if text else []
        closed: list[Event] = [Close(one) for one in self._open]
        return [*shown, *closed, Finish(FinishReason.STOP, usage, choices=({"stop_sequence": sequence},))]


class _Matcher:
    """Finds one sequence in a text that comes in pieces, in one pass. `matched`: so much of it stands at the end of
    what has come."""

    __slots__ = ("_back", "matched", "sequence")

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence
        self.matched = 0
        self._back = _fallbacks(sequence)

    def feed(self, text: str) -> int:
        """The place in `text` behind the sequence; -1 if it is not complete."""
        sequence, matched, at = self.sequence, self.matched, 0
        while at < len(text):
            if not matched:
                at = text.find(sequence[0], at)
                if at < 0:
                    break
            sign = text[at]
            while matched and sequence[matched] != sign:
                matched = self._back[matched]
            matched += sequence[matched] == sign
            at += 1
            if matched == len(sequence):
                return at
        self.matched = matched
        return -1


@lru_cache(maxsize=64)
def _fallbacks(sequence: str) -> tuple[int, ...]:
    """For each length of a beginning: the longest shorter one that it ends with (Knuth, Morris and Pratt)."""
    back = [0, 0]
    for sign in sequence[1:]:
        length = back[-1]
        while length and sequence[length] != sign:
            length = back[length]
        back.append(length + (sequence[length] == sign))
    return tuple(back)
