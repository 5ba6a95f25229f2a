"""Stop sequences that the gateway applies to visible text, if the server does not take them, takes fewer, or would not
say which one matched (R24.5).

Rules:

1. The sequence that is complete first ends the answer, however the text was cut. It is not part of the answer. The end
   of the answer names it if the client asked for it.
2. Only text is searched, not reasoning, refusals or arguments of calls.
3. Only text that may still become a sequence is held back.
4. When all answers to the request have ended, the gateway does not wait for the model. Then token counts are estimated
   from bytes.
5. A client's sequence is never dropped for one of the gateway's own (`ServerSide.own_stops`). If the server has no room
   for both, the gateway applies its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from ...model import FinishReason, ModelReply, Text, Usage
from ...protocols.base import ServerSide
from ...upstream.servers.base import Capabilities
from ...upstream.servers.presets import ANY_NUMBER
from ...upstream.servers.usage import by_bytes
from ..answers.stages import Stage


class Stops(NamedTuple):
    """Stop sequences for the `server`, those that the gateway applies, and the gateway's `own` ones, which clients
    never see."""

    server: tuple[str, ...]
    gateway: tuple[str, ...]
    own: tuple[str, ...]


def divide_stops(asked: tuple[str, ...], takes: Capabilities, wire: ServerSide | None, *, unreported: bool) -> Stops:
    """Divides the client's sequences between gateway and server. `takes` and `wire` are the server's capabilities and
    protocol. `unreported`: the client wants to know which sequence matched, and the server would not tell."""
    room = ANY_NUMBER if wire is None or wire.stops is None else wire.stops
    most = room if takes.stop_sequences is None or not room else takes.stop_sequences
    server = () if unreported else asked if len(asked) <= most else tuple(dict.fromkeys(asked))[:most]
    gateway = tuple(sequence for sequence in asked if sequence and sequence not in server)
    own = () if wire is None else tuple(sequence for sequence in wire.own_stops if sequence not in asked)
    return Stops(server, gateway, own if len(server) + len(own) > min(room, most) else ())


class ForeignStops(Stage):
    """Hides the sequence that ended an answer if the client did not ask for it (`asked`): it is one of the gateway's
    own, or one that the server sets for the model."""

    ignores_text = True
    only_rewritten = True
    changes = False

    def __init__(self, asked: Sequence[str]) -> None:
        self._known = (None, *asked)

    def whole(self, reply: ModelReply) -> ModelReply | None:
        return reply if all(choice.stop_sequence in self._known for choice in reply.choices) else None

    def feed(self, events: list[Event]) -> list[Event]:
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
    """Ends each of the answers to a request (`choices`) at the first of `sequences`, none of which is empty. The `own`
    sequences are not named to the client. `size` is the size of the request in bytes."""

    def __init__(self, sequences: Sequence[str], size: int, *, own: Sequence[str] = (), choices: int = 1) -> None:
        self._sequences = tuple(dict.fromkeys((*sequences, *own)))
        self._own = frozenset(own).difference(sequences)
        self._choices = choices
        self._size = size
        self._matchers: dict[int, list[_Matcher]] = {}
        self._held: dict[int, str] = {}  # held text of open text blocks
        self._open: dict[int, int] = {}  # open blocks, and their answers
        self._ended: dict[int, str] = {}  # ended answers, and the sequences that ended them
        self._read: Usage | None = None
        self._written = 0
        self._over = False

    def whole(self, reply: ModelReply) -> ModelReply | None:
        texts = [part.text for choice in reply.choices for part in choice.parts if isinstance(part, Text)]
        return None if any(sequence in text for text in texts for sequence in self._sequences) else reply

    def feed(self, events: list[Event]) -> list[Event]:
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
        """Takes more text and returns the events to send: text, or the end of the answer if a sequence is complete.
        `last` is the last event received so far."""
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
        """Returns the last text of an answer, and the end of all answers if it was the last one."""
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
        """Returns the last event, with the sequences that ended the answers."""
        number = max(len(finish.others), len(finish.choices) - 1, *self._ended) + 1
        reasons = [finish.reason, *finish.others]
        reasons += [finish.reason] * (number - len(reasons))
        extras = [dict(finish.ending(choice)) for choice in range(number)]
        for choice, sequence in self._ended.items():
            reasons[choice] = FinishReason.STOP
            extras[choice].pop("logprobs", None)  # they include tokens that the client does not get
            if sequence not in self._own:
                extras[choice]["stop_sequence"] = sequence
        named = tuple(extras) if any(extras) else ()
        return Finish(reasons[0], finish.usage, tuple(reasons[1:]), finish.extra, named)


class _Matcher:
    """Finds one sequence in a text that comes in pieces, in one pass. `matched` is the number of its characters at the
    end of the text so far."""

    __slots__ = ("_back", "matched", "sequence")

    def __init__(self, sequence: str) -> None:
        self.sequence = sequence
        self.matched = 0
        self._back = [0, 0]

    def feed(self, text: str) -> int:
        """Returns the position in `text` after the sequence; -1 if it is not complete."""
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
        """Returns the length of the longest shorter prefix with which the first `matched` characters end (Knuth, Morris
        and Pratt). Computed only as far as a text has matched, because a client's sequence may have any length."""
        sequence, back = self.sequence, self._back
        while len(back) <= matched:
            sign, length = sequence[len(back) - 1], back[-1]
            while length and sequence[length] != sign:
                length = back[length]
            back.append(length + (sequence[length] == sign))
        return back[matched]
