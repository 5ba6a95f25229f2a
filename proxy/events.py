"""The event algebra: what happens while a model answers, in no protocol's words.

Rules of this module (guarded: a change here needs a decision record, see docs/adr/0001 and 0023):

1. A stream is `Start (Open Delta* Close)* Finish`, or it ends early with `Fault`. Blocks have ids and may overlap;
   every opened block is closed before `Finish`. `Opaque` may stand anywhere between `Start` and the end.
2. Chunking is never observable: two streams are the same when `normalise` makes them equal.
3. `fold` and `unfold` are inverse: a whole reply is a stream that arrived at once, so there is one path.
4. Events are immutable by convention. They are plain slotted classes because they are built once per token.
5. An `extra` is that of `proxy.model` (its rule 3): a writer looks at the fields of its own protocol and at no others.

Block edges exist because Responses and Messages need them; guessing them later is where arguments get lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum, Flag, auto
from typing import Any, ClassVar, Final, Literal

import orjson

from .errors import GatewayError
from .model import (
    COMMON,
    EMPTY,
    CallKind,
    Extra,
    FinishReason,
    ModelReply,
    Part,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolUse,
    Usage,
    merged,
)
from .model import Opaque as OpaquePart

BlockStatus = Literal["complete", "truncated"]

MAX_CHOICES = 128
"""Answers to one request (`n`): OpenAI's own limit."""


class BlockKind(Enum):
    """What a block holds."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    REFUSAL = "refusal"


class Kind(Flag):
    """Which events a middleware's `on_event` must see; see `proxy.pipeline.middleware`."""

    NONE = 0
    TEXT = auto()
    """`Open`, `Delta`, `Close` of visible text and refusals."""
    REASONING = auto()
    """`Open`, `Delta`, `Close` of reasoning."""
    CALL = auto()
    """`Open`, `Delta`, `Close` of calls, as they come."""
    FINISHED_CALL = auto()
    """One `Call` for each whole call, in place of its `Open`, `Delta`, `Close`."""
    EDGES = auto()
    """`Start`, `Finish` and `Fault`."""
    OPAQUE = auto()
    """`Opaque`."""
    ALL = TEXT | REASONING | CALL | EDGES | OPAQUE


class Event:
    """Base of all events: value equality and a readable form from `__slots__`."""

    __slots__: tuple[str, ...] = ()
    __hash__: ClassVar[None]  # type: ignore[assignment]  # events hold dicts; they are values, not keys

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, s) == getattr(other, s) for s in self.__slots__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{s}={getattr(self, s)!r}' for s in self.__slots__)})"


class Start(Event):
    """The answer begins. Exactly one, first. `created` is Unix seconds; `extra` holds unmodelled top-level fields. `usage` is what is known
    of it now, which is at most what was read: `Finish.usage` counts."""

    __slots__ = ("created", "extra", "model", "response_id", "usage")

    def __init__(
        self, response_id: str, model: str, created: int, extra: Extra = EMPTY, usage: Usage | None = None
    ) -> None:
        self.response_id = response_id
        self.model = model
        self.created = created
        self.extra = extra
        self.usage = usage


class Open(Event):
    """A block begins.

    `block` is unique in the stream. `name`, `call_id`, `call_kind` and `namespace` are those of a TOOL_CALL and None
    otherwise (`call_kind` "function"). `choice` is the index of the answer it belongs to. `extra` becomes that of the part; of a call that was
    found in text it also says where: `source`, or `live`, see `is_live`.
    """

    __slots__ = ("block", "call_id", "call_kind", "choice", "extra", "kind", "name", "namespace")

    def __init__(
        self,
        block: int,
        kind: BlockKind,
        *,
        name: str | None = None,
        call_id: str | None = None,
        choice: int = 0,
        call_kind: CallKind = "function",
        namespace: str | None = None,
        extra: Extra = EMPTY,
    ) -> None:
        self.block = block
        self.kind = kind
        self.name = name
        self.call_id = call_id
        self.choice = choice
        self.call_kind = call_kind
        self.namespace = namespace
        self.extra = extra


class Delta(Event):
    """More of a block. For a call, a fragment of its arguments exactly as produced. `extra` is per-token wire data."""

    __slots__ = ("block", "extra", "text")

    def __init__(self, block: int, text: str, extra: Extra | None = None) -> None:
        self.block = block
        self.text = text
        self.extra = extra


class Close(Event):
    """A block ends: whole, or cut off by a limit of length. `extra` is what was said of it after it began (the signature of thinking): the
    part has it together with that of `Open`."""

    __slots__ = ("block", "extra", "status")

    def __init__(self, block: int, status: BlockStatus = "complete", extra: Extra = EMPTY) -> None:
        self.block = block
        self.status = status
        self.extra = extra


class Finish(Event):
    """The answer ended. `reason` is the backend's word for choice 0 (`proxy.model.FinishReason`, or any other), `others` those of further
    choices; writers map them to their protocol and put `tool_calls` where a call was made (R7.4). `extra`: unmodelled top-level fields;
    `choices`: the `extra` of each answer, as in `ReplyChoice`, or nothing if none has any."""

    __slots__ = ("choices", "extra", "others", "reason", "usage")

    def __init__(
        self,
        reason: str = FinishReason.STOP,
        usage: Usage | None = None,
        others: tuple[str, ...] = (),
        extra: Extra = EMPTY,
        choices: tuple[Extra, ...] = (),
    ) -> None:
        self.reason = reason
        self.usage = usage
        self.others = others
        self.extra = extra
        self.choices = choices

    def ending(self, choice: int) -> Extra:
        """What else is known of the end of an answer."""
        return self.choices[choice] if choice < len(self.choices) else EMPTY

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended answer 0, where that is known."""
        return self.ending(0).get("stop_sequence")


class Fault(Event):
    """The answer broke off: the in-band form of an error. Last."""

    __slots__ = ("error",)

    def __init__(self, error: GatewayError) -> None:
        self.error = error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and repr(self.error) == repr(other.error)


class Opaque(Event):
    """A wire frame that is not modelled; written to the same protocol unchanged, counted otherwise."""

    __slots__ = ("payload", "protocol")

    def __init__(self, protocol: str, payload: Any) -> None:
        self.protocol = protocol
        self.payload = payload


class Call(Event):
    """A whole call as one value: what `Kind.FINISHED_CALL` asks for. Never part of a stream on its own.

    `source` is the text in which the model wrote it, empty if it was given out while it came, or None if the backend gave a
    structured call. `status` as in `Close`.
    """

    __slots__ = ("block", "choice", "source", "status", "use")

    def __init__(
        self, block: int, use: ToolUse, *, choice: int = 0, status: BlockStatus = "complete", source: str | None = None
    ) -> None:
        self.block = block
        self.use = use
        self.choice = choice
        self.status = status
        self.source = source

    def events(self) -> list[Event]:
        """The `Open`, `Delta`, `Close` that mean the same."""
        use = self.use
        extra = use.extra if self.source is None else {**use.extra, "source": self.source}
        out: list[Event] = [
            Open(
                self.block,
                BlockKind.TOOL_CALL,
                name=use.name,
                call_id=use.call_id,
                choice=self.choice,
                call_kind=use.kind,
                namespace=use.namespace,
                extra=extra,
            )
        ]
        if use.arguments:
            out.append(Delta(self.block, use.arguments))
        out.append(Close(self.block, self.status))
        return out


def is_live(opened: Open) -> bool:
    """Whether a call was found in text and is given out while it comes (R6.13): when it opens, nobody knows how it will end."""
    return opened.extra.get("live") is True


def changed(finish: Finish, *, usage: Usage | None) -> Finish:
    """The same end with other counts."""
    return Finish(finish.reason, usage, finish.others, finish.extra, finish.choices)


def extra_of(opened: Open, closed: Close | None = None) -> Extra:
    """The `extra` of the part that a block amounts to: what its beginning and its end say, without what is only of the stream."""
    extra = opened.extra
    if extra and not COMMON.isdisjoint(extra):
        extra = {key: value for key, value in extra.items() if key not in COMMON} or EMPTY
    return extra if closed is None else merged(extra, closed.extra)


def text_block(block: int, text: str, choice: int = 0) -> list[Event]:
    """A whole block of visible text."""
    return [Open(block, BlockKind.TEXT, choice=choice), Delta(block, text), Close(block)]


# --- whole replies --------------------------------------------------------------------------------------------------


class StreamGrammarError(ValueError):
    """A stream broke rule 1: a defect in whatever produced it."""


class StreamGrammar:
    """Checks rule 1 event by event. Used by tests and by `toolwire replay`; too slow for the hot path."""

    def __init__(self) -> None:
        self.open: dict[int, Open] = {}
        self._seen: set[int] = set()
        self._state: Literal["before", "inside", "after"] = "before"

    def feed(self, event: Event) -> None:
        """Take the next event. Raises `StreamGrammarError`."""
        if self._state == "after":
            raise StreamGrammarError(f"{event!r} after the end")
        if self._state == "before":
            if isinstance(event, Fault):
                self._state = "after"
                return
            if not isinstance(event, Start):
                raise StreamGrammarError(f"{event!r} before Start")
            self._state = "inside"
            return
        match event:
            case Open():
                if event.block in self._seen:
                    raise StreamGrammarError(f"block {event.block} opened twice")
                if (event.kind is BlockKind.TOOL_CALL) != (event.name is not None and event.call_id is not None):
                    raise StreamGrammarError(f"name and call_id belong to calls and only to calls: {event!r}")
                self._seen.add(event.block)
                self.open[event.block] = event
            case Delta():
                if event.block not in self.open:
                    raise StreamGrammarError(f"delta for block {event.block}, which is not open")
            case Close():
                if self.open.pop(event.block, None) is None:
                    raise StreamGrammarError(f"close of block {event.block}, which is not open")
            case Finish():
                if self.open:
                    raise StreamGrammarError(f"Finish while blocks {sorted(self.open)} are open")
                self._state = "after"
            case Fault():
                self._state = "after"
            case Opaque():
                pass
            case _:
                raise StreamGrammarError(f"{event!r} has no place in a stream here")

    def finish(self) -> None:
        """The stream is over. Raises `StreamGrammarError` if it just stopped."""
        if self._state != "after":
            raise StreamGrammarError("the stream stopped without Finish or Fault")


def check(events: Iterable[Event]) -> None:
    """Raise `StreamGrammarError` unless `events` is a whole stream by rule 1."""
    grammar = StreamGrammar()
    for event in events:
        grammar.feed(event)
    grammar.finish()


def _part(opened: Open, text: str, closed: Close | None) -> Part | None:
    extra = extra_of(opened, closed)
    match opened.kind:
        case BlockKind.TEXT:
            return Text(text, extra) if text or extra else None
        case BlockKind.REASONING:
            return Reasoning(text, extra) if text or extra else None
        case BlockKind.REFUSAL:
            return Refusal(text, extra) if text or extra else None
        case BlockKind.TOOL_CALL:
            name, call_id = opened.name or "", opened.call_id or ""
            return ToolUse(call_id, name, text, opened.call_kind, opened.namespace, extra=extra)


class Folding:
    """Adds up a stream as it goes by: keeps texts, not events. `reply` may be asked at any time."""

    def __init__(self) -> None:
        self.start: Start | None = None
        self.finish: Finish | None = None
        self.fault: Fault | None = None
        self._opened: dict[int, Open] = {}
        self._closed: dict[int, Close] = {}  # those that say something
        self._texts: dict[int, list[str]] = {}
        self._order: list[int | Opaque] = []

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case Delta():
                self._texts[event.block].append(event.text)
            case Open():
                self._opened[event.block] = event
                self._texts[event.block] = []
                self._order.append(event.block)
            case Close():
                if event.extra:
                    self._closed[event.block] = event
            case Start():
                self.start = event
            case Finish():
                self.finish = event
            case Fault():
                self.fault = event
            case Opaque():
                self._order.append(event)
            case _:
                pass

    def reply(self) -> ModelReply:
        """What the stream amounts to so far, blocks that are still open included. Raises `StreamGrammarError` before
        `Start`."""
        start, finish = self.start, self.finish or Finish()
        if start is None:
            raise StreamGrammarError("the stream has no Start")
        reasons = [finish.reason, *finish.others]
        choices = 1 + max((edge.choice for edge in self._opened.values()), default=0)
        if choices > MAX_CHOICES:
            raise StreamGrammarError(f"a block of choice {choices - 1}; the last there may be is {MAX_CHOICES - 1}")
        reasons += [FinishReason.STOP] * (choices - len(reasons))
        parts: list[list[Part]] = [[] for _ in reasons]
        for item in self._order:
            if isinstance(item, Opaque):
                parts[0].append(OpaquePart(item.protocol, item.payload))
                continue
            edge = self._opened[item]
            part = _part(edge, "".join(self._texts[item]), self._closed.get(item))
            if part is None:
                continue
            answer = parts[edge.choice]
            add_part(answer, part)
        answers = tuple(
            ReplyChoice(tuple(p), r, finish.ending(i)) for i, (p, r) in enumerate(zip(parts, reasons, strict=True))
        )
        usage = start.usage if finish.usage is None else finish.usage
        extra = merged(start.extra, finish.extra)
        return ModelReply(start.response_id, start.model, start.created, answers, usage, extra)


def add_part(parts: list[Part], part: Part) -> None:
    """Put a part of an answer behind others. Two neighbouring texts of which nothing else is said read as one."""
    last = parts[-1] if parts else None
    if type(part) is Text and type(last) is Text and not (part.extra or last.extra):
        parts[-1] = Text(last.text + part.text)
    else:
        parts.append(part)


def fold(events: Iterable[Event]) -> ModelReply:
    """The whole reply that a stream amounts to. Raises the error of a `Fault`."""
    folding = Folding()
    for event in events:
        folding.feed(event)
    if folding.fault is not None:
        raise folding.fault.error
    return folding.reply()


_KINDS: Final[Mapping[type, BlockKind]] = {
    Text: BlockKind.TEXT,
    Refusal: BlockKind.REFUSAL,
    Reasoning: BlockKind.REASONING,
}


def is_half(use: ToolUse) -> bool:
    """Whether the arguments of a call that may have been cut off are no JSON text; of free text nobody knows."""
    if use.kind == "custom":
        return False
    try:
        orjson.loads(use.arguments)
    except orjson.JSONDecodeError:
        return True
    return False


def unfold(reply: ModelReply) -> list[Event]:
    """The stream that arrives at once and folds back to `reply`. A call with half its arguments in an answer that a limit
    of length cut off is `truncated`, as it is in a stream (C18)."""
    usage = reply.usage
    read = None if usage is None else replace(usage, output_tokens=0, reasoning_tokens=0, extra=EMPTY)
    out: list[Event] = [Start(reply.id, reply.model, reply.created, reply.extra, read)]
    block = 0
    for index, choice in enumerate(reply.choices):
        for part in choice.parts:
            match part:
                case Text() | Refusal() | Reasoning():
                    out.append(Open(block, _KINDS[type(part)], choice=index, extra=part.extra))
                    out += [Delta(block, part.text), Close(block)]
                case ToolUse():
                    cut = choice.reason == "length" and is_half(part)
                    out += Call(block, part, choice=index, status="truncated" if cut else "complete").events()
                case OpaquePart():
                    out.append(Opaque(part.protocol, part.payload))
                case _:
                    raise TypeError(f"{type(part).__name__} has no place in a reply")
            block += 1
    reasons = [choice.reason for choice in reply.choices] or [FinishReason.STOP]
    ends = tuple(choice.extra for choice in reply.choices) if any(choice.extra for choice in reply.choices) else ()
    out.append(Finish(reasons[0], reply.usage, tuple(reasons[1:]), EMPTY, ends))
    return out


def numbered(opened: Open, block: int) -> Open:
    """The same beginning of a block, under the number `block`."""
    return Open(
        block,
        opened.kind,
        name=opened.name,
        call_id=opened.call_id,
        choice=opened.choice,
        call_kind=opened.call_kind,
        namespace=opened.namespace,
        extra=opened.extra,
    )


def _is_empty(last: Event, block: int) -> bool:
    """Whether `last` is the beginning of a block of text of which nothing was said."""
    return isinstance(last, Open) and last.block == block and last.kind is BlockKind.TEXT and not extra_of(last)


def normalise(events: Iterable[Event]) -> list[Event]:
    """The stream without the accidents of chunking: neighbouring deltas of a block merged, empty ones dropped, blocks
    numbered from 0 in order of appearance, per-token data left out, text blocks that held and said nothing removed."""
    number: dict[int, int] = {}
    out: list[Event] = []
    for event in events:
        match event:
            case Open():
                number[event.block] = len(number)
                out.append(numbered(event, number[event.block]))
            case Delta():
                if not event.text:
                    continue
                block = number[event.block]
                last = out[-1]
                if isinstance(last, Delta) and last.block == block:
                    out[-1] = Delta(block, last.text + event.text)
                else:
                    out.append(Delta(block, event.text))
            case Close():
                block = number[event.block]
                last = out[-1]
                if _is_empty(last, block) and not event.extra:
                    out.pop()
                else:
                    out.append(Close(block, event.status, event.extra))
            case _:
                out.append(event)
    return out
