"""Stop sequences, applied to visible text where the server does not take them, takes fewer, or would not say which one
matched (R24.5).

Rules:

1. The sequence that is complete first ends the answer, however the text was cut. It is no part of the answer, and named
   at its end if it is the client's.
2. Only text is looked at: thoughts, refusals and arguments of calls are not.
3. Held back is only what may still become a sequence.
4. What the model would have said behind it is not waited for, once all answers to the request have ended. Then nobody
   has counted, and the counts are by bytes.
5. A client's sequence is never left out for one of the gateway's own (`ServerSide.own_stops`): if there is no room for
   both, it is the gateway's that the gateway applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..backends.base import Capabilities
from ..backends.presets import ANY_NUMBER
from ..backends.usage import by_bytes
from ..events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from ..model import FinishReason, ModelReply, Text, Usage
from ..protocols.base import ServerSide
from .stages import Stage


class Stops(NamedTuple):
    """Who applies which sequences: those of the client that the `server` gets, those that are the gateway's business,
    and those of them that are its `own`, so that no client hears of them."""

    server: tuple[str, ...]
    gateway: tuple[str, ...]
    own: tuple[str, ...]


def divided(asked: tuple[str, ...], takes: Capabilities, wire: ServerSide | None, *, unsaid: bool) -> Stops:
    """The client's sequences, for a server that `takes` this and speaks `wire`. `unsaid`: the client wants to know
    which one matched, and the server would not say."""
    room = ANY_NUMBER if wire is None or wire.stops is None else wire.stops
    most = room if takes.stop_sequences is None or not room else takes.stop_sequences
    server = () if unsaid else asked if len(asked) <= most else tuple(dict.fromkeys(asked))[:most]
    gateway = tuple(sequence for sequence in asked if sequence and sequence not in server)
    own = () if wire is None else tuple(sequence for sequence in wire.own_stops if sequence not in asked)
    return Stops(server, gateway, own if len(server) + len(own) > min(room, most) else ())


class ForeignStops(Stage):
    """Leaves unsaid which sequence ended an answer, if it is none of those that the client `asked` for: one of the
    gateway's own, or one that the server has for the model."""

    passes_text = True
    only_rewritten = True
    changes = False

    def __init__(self, asked: Sequence[str]) -> None:
        self._known = (None, *asked)

    def leaves(self, reply: ModelReply) -> bool:
        """See `proxy.pipeline.stages.Stage`."""
        return all(choice.stop_sequence in self._known for choice in reply.choices)

    def feed(self, events: list[Event]) -> list[Event]:
        """See `proxy.pipeline.stages.Stage`."""
        end = events[-1] if events else None
        if not isinstance(end, Finish) or all(one.get("stop_sequence") in self._known for one in end.choices):
            return events
        named = tuple(
            one
            if one.get("stop_sequence") in self._known
            else {key: value for key, value in one.items() if key != "stop_sequence"}
            for one in end.choices
        )
        return [*events[:-1], Finish(end.reason, end.usage, end.others, end.extra, named)]


class StopStage(Stage):
    """Ends each of the answers to a request (`choices`) at the first of `sequences`, none of which is empty; those that
    are `own` are not named. `size` is that of the request, in bytes."""

    def __init__(self, sequences: Sequence[str], size: int, *, own: Sequence[str] = (), choices: int = 1) -> None:
        self._sequences = tuple(dict.fromkeys((*sequences, *own)))
        self._own = frozenset(own).difference(sequences)
        self._choices = choices
        self._size = size
        self._matchers: dict[int, list[_Matcher]] = {}
        self._held: dict[int, str] = {}  # of the open blocks of text
        self._open: dict[int, int] = {}  # blocks, and whose they are
        self._ended: dict[int, str] = {}  # the answers that are over, and by which sequence
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
                    elif event.block in self._open:
                        out.append(event)
                case Open():
                    if event.choice not in self._ended:
                        self._open[event.block] = event.choice
                        if event.kind is BlockKind.TEXT:
                            self._held[event.block] = ""
                            self._matchers[event.block] = [_Matcher(sequence) for sequence in self._sequences]
                        out.append(event)
                case Close():
                    if self._open.pop(event.block, None) is not None:
                        if rest := self._held.pop(event.block, ""):
                            out.append(Delta(event.block, rest))
                        out.append(event)
                case Fault():
                    out += [Delta(block, rest) for block, rest in self._held.items() if rest]
                    out.append(event)
                case Finish():
                    out.append(self._finish(event) if self._ended else event)
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
        """An answer is over: the last of its text, and the end of all if it was the last one."""
        choice = self._open[block]
        self._ended[choice] = sequence
        shown: list[Event] = [Delta(block, text)] if text else []
        for one in [one for one, whose in self._open.items() if whose == choice]:
            del self._open[one]
            rest = self._held.pop(one, "")
            if rest and one != block:
                shown.append(Delta(one, rest))
            shown.append(Close(one))
        if len(self._ended) < self._choices:
            return shown
        self._over = True
        usage = last.usage if isinstance(last, Finish) else None
        if usage is None:
            usage = by_bytes(self._read, self._size, self._written)
        others = (FinishReason.STOP,) * (self._choices - 1)
        return [*shown, self._finish(Finish(FinishReason.STOP, usage, others))]

    def _finish(self, finish: Finish) -> Finish:
        """The end, with what ended the answers that are over."""
        number = max(len(finish.others), len(finish.choices) - 1, *self._ended) + 1
        reasons = [finish.reason, *finish.others]
        reasons += [finish.reason] * (number - len(reasons))
        said = [dict(finish.ending(choice)) for choice in range(number)]
        for choice, sequence in self._ended.items():
            reasons[choice] = FinishReason.STOP
            said[choice].pop("logprobs", None)  # of words that nobody gets
            if sequence not in self._own:
                said[choice]["stop_sequence"] = sequence
        named = tuple(said) if any(said) else ()
        return Finish(reasons[0], finish.usage, tuple(reasons[1:]), finish.extra, named)


class _Matcher:
    """Finds one sequence in a text that comes in pieces, in one pass. `matched`: so much of it stands at the end of
    what has come."""

    __slots__ = ("_back", "matched", "sequence")

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence
        self.matched = 0
        self._back = [0, 0]

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
                matched = self._fallback(matched)
            matched += sequence[matched] == sign
            at += 1
            if matched == len(sequence):
                return at
        self.matched = matched
        return -1

    def _fallback(self, matched: int) -> int:
        """The longest shorter beginning with which the first `matched` signs end (Knuth, Morris and Pratt). Worked out
        as far as a text has matched: a client's sequence may be of any length."""
        sequence, back = self.sequence, self._back
        while len(back) <= matched:
            sign, length = sequence[len(back) - 1], back[-1]
            while length and sequence[length] != sign:
                length = back[length]
            back.append(length + (sequence[length] == sign))
        return back[matched]
