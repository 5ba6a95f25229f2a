"""What a model wrote, as it came, and what became of each piece of it.

The answer of a server is read once more, without a model: by the reader of its protocol, the scanner that the route
would use, and a call policy that takes notes. So nothing has to be recorded while it is served but its bytes.

Places are characters of the text, times are seconds since the exchange began.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from toolwire.call_policy.assembly import assemble
from toolwire.call_policy.ids import CallIds
from toolwire.call_policy.policy import CallPolicy
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, text_block
from toolwire.extras.capture.files import Entry
from toolwire.extras.capture.redaction import Redaction
from toolwire.extras.inspector.arguments import settled
from toolwire.extras.inspector.asked import Asked
from toolwire.extras.inspector.bounds import READ_CHARS
from toolwire.extras.inspector.judgements import SECOND_CALL, Judgement, Notes, judgements_of
from toolwire.folding import unfold
from toolwire.formats.engine.keys import NAMES
from toolwire.model import ModelReply
from toolwire.pipeline.transforms.scanners import ScannerFactory
from toolwire.scan._grammar import AS_TEXT, SPACE, Block, BlockSyntax, Decision, Why, without_calls
from toolwire.scanner import build_scanner, reasoning_tags

CHOICE: Final = 0
"""The answer that is shown, where a server gave several."""

_BEHIND: Final = 1 << 32
"""The number of the first block behind a call of the server's own."""

COVER: Final = Redaction().text
"""What looks like a key has stars: in the capture each read has, but not what a model wrote piece by piece."""

_NAMED: Final = re.compile(rf'"(?:{"|".join(NAMES)})"\s{{0,8}}:\s{{0,8}}"([^\W\d][\w.-]{{0,63}})')
"""The name that an object gives which is no call."""

_PIECES: Final = re.compile(r"[\w ,.;:-]+|[^\w ,.;:-]")
"""In what the scanner is given a text: what it decides is about the end of what it has, then."""


@dataclass(slots=True)
class Span:
    """A piece of the raw text and what it is: `text`, `reasoning`, `call`, `refused`, `markup`, `dropped` or `open`,
    not decided yet. `call` is the number of the call that it became, `judgements` what was said of it."""

    begin: int
    end: int
    kind: str
    call: int | None = None
    judgements: Sequence[Judgement] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the answer came: at which time, up to where the text was there then, up to where it had gone on, and
    the scanner's state."""

    at: float
    upto: int
    released: int
    state: str


@dataclass(eq=False, slots=True)
class MadeCall:
    """A call in the answer. `n` counts from 1 in the whole exchange."""

    n: int
    name: str
    arguments: str = ""
    judgements: Sequence[Judgement] = ()


@dataclass(slots=True)
class Answer:
    """One answer of a server. `text` is all that the model wrote, thoughts and calls of the server's own among it;
    `reason` is why it ended, None if it did not."""

    text: str = ""
    reason: str | None = None
    spans: list[Span] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    calls: list[MadeCall] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)


@dataclass(slots=True)
class _Judged:
    """A block on which the policy has decided: where it stands, its judgements and those of its calls, and which of
    these is the next to be given out."""

    begin: int
    end: int
    kind: str
    judgements: list[Judgement]
    of_calls: list[list[Judgement]]
    given: int = 0


def read_answer(reads: Sequence[Entry], *, streamed: bool, whole: bool, asked: Asked, first_call: int) -> Answer:
    """The answer whose body came in `reads`; not `whole`: more of it may have come or come yet. `first_call` is the
    number of its first call."""
    reading = _Reading(asked, first_call)
    for at, events in _events(reads, streamed, whole, asked):
        reading.take(at, events)
    return reading.answer()


def read_text(text: str, asked: Asked) -> Answer:
    """The same of a text that was there at once."""
    reading = _Reading(asked, 1)
    reading.take(0.0, [*text_block(0, text), Finish()])
    return reading.answer()


def _events(reads: Sequence[Entry], streamed: bool, whole: bool, asked: Asked) -> Iterator[tuple[float, list[Event]]]:
    """What the server said, with the time at which it came. Nothing of a body that is no answer."""
    if not reads:
        return
    if streamed:
        reader = asked.server.reader(frame_bytes=asked.limits.frame_bytes)
        for read in reads:
            yield read.at, reader.feed(read.data)
        if whole:
            yield reads[-1].at, reader.finish()
        return
    try:
        reply: ModelReply = asked.server.read_reply(b"".join(read.data for read in reads))
    except Exception:  # it is none, or not all of it has come
        return
    yield reads[-1].at, unfold(reply)


class _NotingPolicy(CallPolicy):
    """Decides as ever, and says what it decided."""

    def __init__(self, asked: Asked, reading: _Reading) -> None:
        self._notes = notes = Notes(asked.names)
        self._reading = reading
        super().__init__(
            asked.offer.known,
            choice=asked.offer.choice,
            parallel=asked.offer.parallel,
            options=asked.options,
            limits=asked.limits,
            count=notes.count,
            label=notes.label,
            near=notes.near,
            refused=notes.refused,
            ids=CallIds(asked.history),
        )

    def block(self, block: Block) -> Decision:
        """See `CallPolicy`."""
        decision = super().block(block)
        if block.syntax.untaught and not decision.calls and not self._notes.said:
            self._look_closer(block)
        self._reading.judged(block.syntax, block.body, decision, self._notes.take())
        return decision

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        """See `CallPolicy`."""
        decision = super().unfinished(syntax, body, why)
        self._reading.judged(syntax, body, decision, self._notes.take())
        return decision

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        """See `CallPolicy`."""
        super().broken(syntax, begun)
        if not self._notes.said and (named := _NAMED.search(begun)) is not None:
            self._notes.not_offered(named[1])
        self._reading.judged(syntax, begun, AS_TEXT, self._notes.take())

    def _look_closer(self, block: Block) -> None:
        """A form that was not taught is passed over in silence if it names no tool on offer: say which one it names."""
        try:
            found = assemble(block, repair=True)
        except ValueError:
            return
        names = [written.name for written in found.calls if written.name]
        if names and all(name.isidentifier() for name in names):
            self._notes.not_offered(names[0])


class _Reading:
    """Puts the pieces of one answer together."""

    def __init__(self, asked: Asked, first_call: int) -> None:
        self._grammar = ScannerFactory(asked.offer, asked.options, asked.limits).grammar
        self._policy = _NotingPolicy(asked, self)
        self._scanner = build_scanner(self._grammar, self._policy, asked.options, asked.limits)
        self._asked = asked
        self._tags = reasoning_tags(self._grammar, asked.options.reasoning)
        self._next = first_call
        self._answer = Answer()
        self._pieces: list[str] = []
        self._place = 0  # all that has come
        self._settled = 0  # all that is decided
        self._open: list[str] = []  # the text between the two, in pieces
        self._kinds: dict[int, BlockKind] = {}  # of the server's blocks
        self._found: dict[int, BlockKind] = {}  # of the scanner's blocks
        self._made: dict[int, MadeCall] = {}  # by the scanner's block
        self._own: dict[int, MadeCall] = {}  # by the server's block
        self._unwanted: dict[int, Judgement] = {}  # as well
        self._judged: list[_Judged] = []  # and not settled
        self._ended = False
        self._passed_over = False

    def answer(self) -> Answer:
        """What it is by now."""
        answer = self._answer
        self._settle("open", self._place)
        if self._ended:
            self._finish_calls()
        answer.text = COVER("".join(self._pieces))
        answer.spans = _joined(answer.spans)
        return answer

    def take(self, at: float, events: Iterable[Event]) -> None:
        """The next events of the server's answer, which came at this time."""
        came = False
        for event in events:
            match event:
                case Open(kind=kind, choice=choice) if choice == CHOICE:
                    self._kinds[event.block] = kind
                    if kind is BlockKind.TOOL_CALL:
                        self._end_text()
                        self._begin_own(event)
                case Delta() if event.block in self._kinds:
                    came = True
                    room = max(0, READ_CHARS - self._place)
                    if text := event.text[:room]:
                        self._more(event.block, text)
                    if text := event.text[room:]:
                        self._pass_over(text)
                case Finish() | Fault() if not self._ended:
                    came = self._ended = True
                    self._finish(event)
                case _:
                    pass
        if came:
            self._answer.steps.append(Step(at, self._place, self._settled, self._scanner.state))

    def _more(self, block: int, text: str) -> None:
        kind = self._kinds[block]
        if kind is BlockKind.TEXT:
            for piece in _PIECES.findall(text):
                self._add(piece)
                self._said(self._scanner.feed(piece))
            return
        self._settle("markup", self._place)  # a server that sets thoughts or calls apart has ended its text
        self._add(text)
        if block in self._unwanted:
            self._settle("dropped", self._place, None, (self._unwanted[block],))
        elif kind is BlockKind.TOOL_CALL:
            self._own[block].arguments += text
            self._settle("call", self._place, self._own[block].n)
        else:
            self._settle("reasoning" if kind is BlockKind.REASONING else "text", self._place)

    def _pass_over(self, text: str) -> None:
        """Shows a text that is not searched for calls, and everything behind it."""
        if not self._passed_over:
            self._passed_over = True
            self._said(self._scanner.finish(truncated=True))
            self._pass_judged(self._place)
            self._settle("markup", self._place)
            self._answer.judgements.append(
                Judgement("cut", f"Searched for calls up to character {self._place}; the rest is shown as text")
            )
        self._add(text)
        self._settle("text", self._place)

    def _end_text(self) -> None:
        """A server that does tools has made a call: what comes behind it is searched only for thoughts."""
        if self._own or self._asked.format:
            return
        asked, inside = self._asked, self._scanner.state == "reasoning"
        self._policy.recognises = False
        self._said(self._scanner.finish())
        self._pass_judged(self._place)
        options = replace(asked.options, reasoning=replace(asked.options.reasoning, preopened=inside))
        self._scanner = build_scanner(
            without_calls(self._grammar), self._policy, options, asked.limits, first_block=_BEHIND
        )

    def _begin_own(self, event: Open) -> None:
        """A call of the server's own began. Where one is allowed, further ones vanish."""
        if self._answer.calls and not self._asked.offer.parallel:
            self._unwanted[event.block] = Judgement("dropped", SECOND_CALL)
            self._answer.judgements.append(self._unwanted[event.block])
        else:
            self._own[event.block] = self._call(event.name or "")

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._open.append(text)
        self._place += len(text)

    def _finish(self, event: Finish | Fault) -> None:
        cut = isinstance(event, Fault) or event.reason == "length"
        if isinstance(event, Finish):
            self._answer.reason = event.reason
        if not self._passed_over:
            self._said(self._scanner.finish(truncated=cut))
        self._pass_judged(self._place)
        self._settle("markup", self._place)

    def judged(self, syntax: BlockSyntax, body: str, decision: Decision, said: Sequence[tuple[str, str]]) -> None:
        """The policy has decided on a block: before the scanner gives out what it means."""
        judgements, of_calls = judgements_of(said, body, decision)
        if not (judgements or of_calls or syntax.loose):
            return
        text = "".join(self._open)
        if syntax.loose and self._read_again(text.rfind(body) + decision.before, as_call=bool(of_calls)):
            return
        if not (judgements or of_calls):
            return
        kind = "call" if of_calls else "dropped" if decision.drop else "refused"
        after = max((one.end for one in self._judged), default=self._settled) - self._settled
        at = text.rfind(body, after)
        begin, end = (after, len(text)) if at < 0 else (at, at + len(body))
        opener, closer = syntax.opener, syntax.closer
        if opener and text[:begin].endswith(opener):
            begin -= len(opener)
        if closer and text.startswith(closer, end):
            end += len(closer)
        self._judged.append(_Judged(self._settled + begin, self._settled + end, kind, judgements, of_calls))
        self._answer.judgements += [*judgements, *chain.from_iterable(of_calls)]

    def _read_again(self, at: int, *, as_call: bool) -> bool:
        """A text is judged that was refused in another form, if there was one: then what was said of that holds, unless
        it is a call now."""
        before = [one for one in self._judged if one.kind == "refused" and one.end > self._settled + at]
        if as_call:
            for one in before:
                self._judged.remove(one)
                for judgement in one.judgements:
                    self._answer.judgements.remove(judgement)
        return bool(before) and not as_call

    # --- what the scanner gives out -------------------------------------------------------------------------------

    def _said(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Open(kind=BlockKind.TOOL_CALL):
                    self._made[event.block] = self._call(event.name or "")
                    self._begin_call(self._made[event.block], event.extra.get("source") or "")
                case Open():
                    self._found[event.block] = event.kind
                    if event.kind is BlockKind.REASONING:
                        self._skip(opener for opener, _ in self._tags)
                case Close() if self._found.get(event.block) is BlockKind.REASONING:
                    self._skip(closer for _, closer in self._tags)
                case Delta() if event.block in self._made:
                    self._made[event.block].arguments += event.text
                case Delta():
                    kind = "reasoning" if self._found.get(event.block) is BlockKind.REASONING else "text"
                    self._let_go(event.text, kind)
                case Fault():
                    self._pass_judged(self._place)
                    self._settle("refused", self._place)
                case _:
                    pass

    def _finish_calls(self) -> None:
        """The calls are as the client gets them."""
        own = set(map(id, self._own.values()))
        for call in self._answer.calls:
            call.arguments, done = settled(call.name, call.arguments, self._asked, native=id(call) in own)
            for judgement in done:
                judgement.calls.append(call.n)
            call.judgements = [*call.judgements, *done]
            self._answer.judgements += done

    def _call(self, name: str) -> MadeCall:
        call = MadeCall(self._next, name)
        self._next += 1
        self._answer.calls.append(call)
        return call

    def _begin_call(self, call: MadeCall, source: str) -> None:
        """A call came out. What stands before its block vanished."""
        while self._judged and not self._judged[0].of_calls:
            self._pass_judged(self._judged[0].end)
        if not self._judged:
            return
        block = self._judged[0]
        if block.given < len(block.of_calls):
            call.judgements = block.of_calls[block.given]
            for judgement in call.judgements:
                judgement.calls.append(call.n)
        block.given += 1
        last = block.given >= len(block.of_calls)
        self._settle("markup", block.begin)
        begin, end = self._settled, block.end
        if not last:
            at = "".join(self._open).find(source) if source else -1
            end = begin if at < 0 else min(block.end, begin + at + len(source))
        self._settle("call", end, call.n, call.judgements)
        if last:
            self._judged.pop(0)

    def _let_go(self, text: str, kind: str) -> None:
        """`text` came out as text or as a thought. What stands before it vanished, unless it was put in the place of
        what the model wrote. A line end before it may have stood on the other side of a call."""
        at = self._where(text)
        if at < 0:
            text = text.lstrip(SPACE)
            at = self._where(text)
        if at < 0:
            self._pass_judged(self._place)
            return
        begin = self._settled + at
        self._pass_judged(begin, whole=False)
        self._settle("markup", begin)
        end = begin + len(text)
        while self._judged and self._judged[0].kind == "refused" and self._judged[0].end <= end:
            block = self._judged.pop(0)
            self._settle(kind, block.begin)
            self._settle("refused", block.end, None, block.judgements)
        self._settle(kind, end)

    def _where(self, text: str) -> int:
        """Where `text` stands in what is open: not in a block of which something else came."""
        rest = "".join(self._open)
        at = rest.find(text)
        for block in self._judged:
            begin, end = block.begin - self._settled, block.end - self._settled
            if at < 0 or at + len(text) <= begin:
                break
            if block.of_calls:
                return -1  # it comes out before the text behind it
            if block.kind != "refused" and at < end:
                at = rest.find(text, end)
        return at

    def _skip(self, tags: Iterable[str]) -> None:
        """One of these tags came, and is no text."""
        rest = "".join(self._open)
        places = [(at, tag) for tag in tags if (at := rest.find(tag)) >= 0]
        if places:
            at, tag = min(places)
            self._settle("markup", self._settled + at + len(tag))

    def _pass_judged(self, upto: int, *, whole: bool = True) -> None:
        """Blocks up to there left no trace in the answer."""
        while self._judged and self._judged[0].end <= upto:
            block = self._judged.pop(0)
            self._settle("markup", block.begin)
            self._settle(block.kind if not block.of_calls else "markup", block.end, None, block.judgements)
        if whole:
            self._judged = [block for block in self._judged if block.end > upto]

    def _settle(self, kind: str, upto: int, call: int | None = None, judgements: Sequence[Judgement] = ()) -> None:
        """What is open up to there is this."""
        if upto <= self._settled:
            return
        self._answer.spans.append(Span(self._settled, upto, kind, call, judgements))
        rest = "".join(self._open)[upto - self._settled :]
        self._open = [rest] if rest else []
        self._settled = upto


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Neighbours of one kind as one."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is None or (last.kind, last.call, last.judgements) != (span.kind, span.call, span.judgements):
            joined.append(span)
        else:
            last.end = span.end
    return joined
