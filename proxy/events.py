"""The event algebra: what happens while a model answers, in no protocol's words.

Rules of this module (guarded: a change here needs a decision record, see docs/adr/0001 and 0023):

1. A stream is `Start (Open Delta* Close)* Finish`, or it ends early with `Fault`. Blocks have ids and may overlap;
   every opened block is closed before `Finish`. `Opaque` may stand anywhere between `Start` and the end
   (`stream_grammar.check`).
2. Chunking is never observable: two streams are the same when `stream_grammar.normalise` makes them equal.
3. `folding.fold` and `folding.unfold` are inverse: a whole reply is a stream that arrived at once, so there is one
   path.
4. Events are immutable by convention. They are plain slotted classes because they are built once per token.
5. An `extra` is that of `toolwire.model` (its rule 3): a writer looks at the fields of its own protocol and at no
   others.

Block edges exist because Responses and Messages need them; guessing them later is where arguments get lost.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from typing import Any, ClassVar, Literal

from toolwire.errors import GatewayError
from toolwire.model import EMPTY, CallKind, Extra, FinishReason, ToolUse, Usage, lasting, merged

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
    """Which events a middleware's `on_event` must see; see `toolwire.pipeline.chain.middleware`."""

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
    """The answer begins. Exactly one, first. `created` is Unix seconds; `extra` holds unmodelled top-level fields.
    `usage` is what is known of it now, which is at most what was read: `Finish.usage` counts."""

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
    otherwise (`call_kind` "function"). `choice` is the index of the answer it belongs to. `extra` becomes that of the
    part; of a call that was found in text it also says where: `source`, or `live`, see `is_live`.
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
    """A block ends: whole, or cut off by a limit of length. `extra` is what was said of it after it began (the
    signature of thinking): the part has it together with that of `Open`."""

    __slots__ = ("block", "extra", "status")

    def __init__(self, block: int, status: BlockStatus = "complete", extra: Extra = EMPTY) -> None:
        self.block = block
        self.status = status
        self.extra = extra


class Finish(Event):
    """The answer ended. `reason` is the backend's word for choice 0 (`toolwire.model.FinishReason`, or any other),
    `others` those of further choices; writers map them to their protocol and put `tool_calls` where a call was made
    (R7.4). `extra`: unmodelled top-level fields; `choices`: the `extra` of each answer, as in `ReplyChoice`, or nothing
    if none has any."""

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

    `source` is the text in which the model wrote it, empty if it was given out while it came, or None if the backend
    gave a structured call. `status` as in `Close`.
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
    """Whether a call was found in text and is given out while it comes (R6.13): when it opens, nobody knows how it will
    end."""
    return opened.extra.get("live") is True


def changed(finish: Finish, *, usage: Usage | None) -> Finish:
    """The same end with other counts."""
    return Finish(finish.reason, usage, finish.others, finish.extra, finish.choices)


def extra_of(opened: Open, closed: Close | None = None) -> Extra:
    """The `extra` of the part that a block amounts to: what its beginning and its end say, without what is only of the
    stream."""
    extra = lasting(opened.extra)
    return extra if closed is None else merged(extra, closed.extra)


def text_block(block: int, text: str, choice: int = 0) -> list[Event]:
    """A whole block of visible text."""
    return [Open(block, BlockKind.TEXT, choice=choice), Delta(block, text), Close(block)]


class StreamGrammarError(ValueError):
    """A stream broke rule 1: a defect in whatever produced it."""


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
