"""The events of an answer, independent of protocols.

Rules of this module (a change here needs a decision record, see docs/adr/0023):

1. A stream is `Start (Open Delta* Close)* Finish`, or it ends early with `Fault`. Blocks have ids and may overlap;
   every opened block is closed before `Finish`. `Opaque` may stand anywhere between `Start` and the end
   (`stream_grammar.check`).
2. Chunking is never observable: two streams are the same when `stream_grammar.normalise` makes them equal.
3. `folding.fold` and `folding.unfold` are inverse: a whole reply is a stream that arrived at once, so there is one code
   path.
4. Events are immutable by convention: change one with `dataclasses.replace`. They are not frozen, because they are
   built once per token and a frozen dataclass takes twice as long.
5. An `extra` is that of `toolwire.model` (its rule 3): a writer looks only at the fields of its own protocol.

Blocks have explicit edges because Responses and Messages need them; guessing them later loses arguments.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Enum, Flag, auto
from typing import Any, Literal

from .errors import GatewayError
from .model import EMPTY, CallKind, Extra, FinishReason, ToolUse, Usage, lasting, merged

BlockStatus = Literal["complete", "truncated"]


MAX_CHOICES = 128
"""Maximum number of answers to one request (`n`): OpenAI's own limit."""


class BlockKind(Enum):
    """Kind of a block's content."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    REFUSAL = "refusal"


class Kind(Flag):
    """Kinds of events that a middleware's `on_event` can ask for; see `toolwire.pipeline.chain.middleware`."""

    NONE = 0
    TEXT = auto()
    """`Open`, `Delta`, `Close` of visible text and refusals."""
    REASONING = auto()
    """`Open`, `Delta`, `Close` of reasoning."""
    CALL = auto()
    """`Open`, `Delta`, `Close` of calls, as they arrive."""
    FINISHED_CALL = auto()
    """One `Call` for each complete call, in place of its `Open`, `Delta`, `Close`."""
    EDGES = auto()
    """`Start`, `Finish` and `Fault`."""
    OPAQUE = auto()
    """`Opaque`."""
    ALL = TEXT | REASONING | CALL | EDGES | OPAQUE


class Event:
    """Base class of all events. They are dataclasses: compared and shown by their fields."""

    __slots__: tuple[str, ...] = ()


@dataclass(slots=True)
class Start(Event):
    """Start of the answer: exactly one, first. `created` is Unix seconds; `extra` holds unmodelled top-level fields.
    `usage` holds the counts known so far, usually of the input only; `Finish.usage` is the final one."""

    response_id: str
    model: str
    created: int
    extra: Extra = EMPTY
    usage: Usage | None = None


@dataclass(slots=True)
class Open(Event):
    """Start of a block.

    `block` is unique in the stream. `name`, `call_id`, `call_kind` and `namespace` describe a TOOL_CALL; for other
    kinds they are None (`call_kind` "function"). `choice` is the index of the answer it belongs to. `extra` becomes
    that of the part; for a call found in text it also holds the text (`source`) or `live`, see `is_live`.
    """

    block: int
    kind: BlockKind
    _: KW_ONLY
    name: str | None = None
    call_id: str | None = None
    choice: int = 0
    call_kind: CallKind = "function"
    namespace: str | None = None
    extra: Extra = EMPTY


@dataclass(slots=True)
class Delta(Event):
    """The next piece of a block. For a call, a fragment of its arguments exactly as produced. `extra` holds per-token
    wire data."""

    block: int
    text: str
    extra: Extra | None = None


@dataclass(slots=True)
class Close(Event):
    """End of a block: complete, or truncated by a length limit. `extra` holds fields that arrived after the block began
    (such as a signature of reasoning); the part gets them together with those of `Open`."""

    block: int
    status: BlockStatus = "complete"
    extra: Extra = EMPTY


@dataclass(slots=True)
class Finish(Event):
    """Regular end of the answer. `reason` is the backend's word for choice 0 (`toolwire.model.FinishReason`, or any
    other), `others` are those of further choices. Writers map them to their protocol and write `tool_calls` if a call
    was made (R7.4). `extra` holds unmodelled top-level fields; `choices` the `extra` of each choice, as in
    `ReplyChoice`, or nothing if all are empty."""

    reason: str = FinishReason.STOP
    usage: Usage | None = None
    others: tuple[str, ...] = ()
    extra: Extra = EMPTY
    choices: tuple[Extra, ...] = ()

    def ending(self, choice: int) -> Extra:
        """Returns the `extra` of a choice; empty if there is none."""
        return self.choices[choice] if choice < len(self.choices) else EMPTY

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended choice 0, if known."""
        return self.ending(0).get("stop_sequence")


@dataclass(slots=True, eq=False)
class Fault(Event):
    """End of a stream by an error; always the last event."""

    error: GatewayError

    __hash__ = None  # type: ignore[assignment]  # a value like all events

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and repr(self.error) == repr(other.error)


@dataclass(slots=True)
class Opaque(Event):
    """A wire frame that is not modelled: written unchanged to the same protocol, only counted in others."""

    protocol: str
    payload: Any


@dataclass(slots=True)
class Call(Event):
    """A complete call as one value, for middlewares that ask for `Kind.FINISHED_CALL`. Never part of a stream.

    `source` is the text in which the model wrote the call, empty if the call was streamed while it arrived, None if the
    backend sent a structured call. `status` is that of `Close`.
    """

    block: int
    use: ToolUse
    _: KW_ONLY
    choice: int = 0
    status: BlockStatus = "complete"
    source: str | None = None

    def events(self) -> list[Event]:
        """Returns the equivalent `Open`, `Delta` and `Close`."""
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
    """True if a call was found in text and its arguments are streamed while they arrive (R6.13). Its end, and whether
    it is valid, are unknown when it opens."""
    return opened.extra.get("live") is True


def extra_of(opened: Open, closed: Close | None = None) -> Extra:
    """Returns the `extra` of the part that a block becomes: that of `Open` merged with that of `Close`, without the
    keys that only matter while it is streamed."""
    extra = lasting(opened.extra)
    return extra if closed is None else merged(extra, closed.extra)


def text_block(block: int, text: str, choice: int = 0) -> list[Event]:
    """Returns the events of a complete block of visible text."""
    return [Open(block, BlockKind.TEXT, choice=choice), Delta(block, text), Close(block)]


class StreamGrammarError(ValueError):
    """An invalid sequence of events (rule 1): a bug in the code that produced the stream."""
