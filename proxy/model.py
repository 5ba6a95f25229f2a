"""The protocol-independent model: one request (`ModelRequest`) and one reply (`ModelReply`) for all protocols, formats,
backends and middlewares.

Rules of this module (a change here needs a decision record, see docs/adr/0023):

1. Everything is immutable. The type checker and the tests enforce it, so it costs nothing at run time (docs/adr/0018).
   Use `replace` to change a value; an unchanged request is the same object: `exchange.request is exchange.received`.
   Only the received bytes may be released (`Origin`).
2. Nothing is lost. Fields that this model does not know stay in `extra`, unknown parts in `OpaquePart`.
3. Nothing leaks. An `extra` is `{protocol: fields}`: a protocol writes the fields that it has read itself and never
   looks at those of another. The other keys are the words of `COMMON`, which mean the same in all protocols. The
   exception is `ModelRequest.extra`: parameters of the server, with a filter of their own.
4. JSON texts stay texts: `ToolUse.arguments` is what the model or the client wrote, never loaded and dumped.
5. No imports from the rest of the package.

Mappings inside frozen values are immutable by convention: build a new one instead of writing into one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn
from weakref import ref

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def dataclass(*, frozen: Literal[True], slots: Literal[True], **more: bool) -> Callable[[type], type]:
        """Returns a class decorator that makes a plain dataclass with a hash. Its instances are created in a third of
        the time of a frozen dataclass (ADR 18); the type checker still sees a frozen one."""

        def made(cls: type) -> type:
            cls = dataclasses.dataclass(slots=True, unsafe_hash=True, **more)(cls)
            if cls.__match_args__:
                cls._values = attrgetter(*cls.__match_args__)  # for `replace`
            return cls

        return made

    def replace(value, /, **changes):
        """Returns a copy of `value` with these fields changed, like `dataclasses.replace`, in a fifth of the time."""
        kind = type(value)
        return kind(**{**dict(zip(kind.__match_args__, kind._values(value), strict=True)), **changes})


_KIND: Final = attrgetter("kind")

Role = Literal["system", "developer", "user", "assistant", "tool"]
CallKind = Literal["function", "custom"]
ToolKind = Literal["function", "custom", "hosted"]
ChoiceMode = Literal["auto", "none", "required", "named"]
Extra = Mapping[str, Any]
"""Fields that are not modelled, by the name of the protocol that they were read from, and the words of `COMMON`."""


class FinishReason:
    """Reasons for the end of an answer. Servers may send other words; unknown words are treated as `STOP`."""

    STOP: Final = "stop"
    """The model finished, or wrote a stop sequence (`ReplyChoice.stop_sequence`)."""
    LENGTH: Final = "length"
    """A length limit was reached; the last part may be incomplete."""
    TOOL_CALLS: Final = "tool_calls"
    """The model made calls and waits for their results."""
    CONTENT_FILTER: Final = "content_filter"
    """The model or its server declined."""
    PAUSED: Final = "pause_turn"
    """The server paused and wants another request to continue."""
    COMPACTED: Final = "compaction"
    """The server compacted the conversation."""
    WHOLE: Final = frozenset({STOP, TOOL_CALLS, "end_turn", "tool_use", "stop_sequence", COMPACTED})
    """Reasons after which every call is complete. After any other reason the last call may be cut off; an incomplete
    call is dropped (C18, R29.3)."""


class _NoFields(dict[str, Any]):
    """An immutable empty dict. It is hashable, so a field's default needs no factory call for each instance."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # the content never changes
        return 0

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("nothing is ever written into `EMPTY`")

    __setitem__ = __ior__ = setdefault = update = _refuse


EMPTY: Final[Mapping[str, Any]] = _NoFields()
"""The shared empty mapping. Test with `not mapping`, not by identity."""

_OF_STREAM: Final = frozenset({"logprobs", "stop_sequence", "completed_at", "source", "live"})
COMMON: Final = _OF_STREAM | {"server", "call"}
"""Keys that may stand in an `extra` beside the names of protocols: `logprobs` (of an answer or a delta, in Chat's
form), `stop_sequence` (of an answer), `completed_at` (of a reply, Unix seconds), `source` and `live` (of a call found
in text, see `toolwire.events.Open`), `server` (of reasoning and calls: the only server that may get their opaque fields
back) and `call` (of reasoning: the `extra` of the call that follows), see
`toolwire.protocols.shared.opaque_reasoning`."""


def fields_of(extra: Extra, protocol: str) -> Mapping[str, Any]:
    """Returns the fields of `protocol` in an `extra`, empty if there are none."""
    return extra.get(protocol) or EMPTY if extra else EMPTY


def scoped(protocol: str, fields: Mapping[str, Any]) -> Extra:
    """Returns the `extra` that holds these fields for `protocol`, or `EMPTY` if there are no fields."""
    return {protocol: fields} if fields else EMPTY


def lasting(extra: Extra) -> Extra:
    """Returns the `extra` of a part without the keys that only matter while it is streamed."""
    if not extra or _OF_STREAM.isdisjoint(extra):
        return extra
    return {key: value for key, value in extra.items() if key not in _OF_STREAM} or EMPTY


def merged(first: Extra, second: Extra) -> Extra:
    """Returns both extras merged, field by field for each protocol; the second one wins."""
    if not first or not second:
        return first or second
    both = dict(first)
    for key, value in second.items():
        known = both.get(key)
        both[key] = {**known, **value} if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return both


# --- parts of a message ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text. `extra` of any part holds further fields of a protocol (`cache_control`, annotations, ids)."""

    text: str
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class Attempt(Text):
    """The model's text of a failed answer that the client did not get, shown to the model for a retry. Markers in it
    are the model's own and are not escaped: the model would imitate the escaped form, which the scanner does not
    read."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Text with which a model declined."""

    text: str
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class Image:
    """An image by URL (`https:` or `data:`). `detail` is copied from the client."""

    url: str
    detail: str | None = None
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning text. `extra` holds the fields that its server needs back (ids, signatures, encrypted content)."""

    text: str
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of an assistant.

    `arguments` is JSON text for a `function`, free text for a `custom` tool. `item_id` is the wire id of the item that
    holds the call, in protocols with items (Responses); `namespace` is the tool's group.
    """

    call_id: str
    name: str
    arguments: str
    kind: CallKind = "function"
    namespace: str | None = None
    item_id: str | None = None
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the call `call_id`. `name` is the tool's, filled in when the call is known."""

    call_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    is_error: bool = False
    kind: CallKind = "function"
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class OpaquePart:
    """A content part or item of `protocol` that is not modelled; written back to the same protocol unchanged."""

    protocol: str
    payload: Any


Part = Text | Refusal | Image | Reasoning | ToolUse | ToolResult | OpaquePart


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `extra` holds unknown fields of the message object."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def text(self) -> str:
        """All text parts joined in order, without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


# --- tools ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool on offer.

    `parameters` is a JSON Schema whose root is an object, or None for "no parameters". `strict` is what the client
    sent: True, False, or None for unset; only True is enforced (R3.5). `kind` is `hosted` for types that the gateway
    does not simulate (`web_search`, ...): they are never put into a prompt and are echoed from `extra`. `extra` holds
    the tool object as its protocol received it. `server` tools are run by the gateway: clients do not see their calls,
    and mistakes in them are reported to the model (R15). `namespace` is the tool's group (R8.16),
    `namespace_description` the client's description of the group. `buffered`: the client wants a call's
    arguments in one piece.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None
    kind: ToolKind = "function"
    namespace: str | None = None
    extra: Extra = field(default=EMPTY, hash=False)
    server: bool = False
    namespace_description: str | None = None
    buffered: bool = False

    @property
    def received(self) -> Mapping[str, Any]:
        """The tool object as the client sent it, in any protocol; empty if the client did not send the tool."""
        for item in self.extra.values():
            if type(item) is dict or isinstance(item, Mapping):
                return item
        return EMPTY


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The choice of tools that may or must be called.

    `name` is set exactly when `mode` is `named`. `allowed` (names) limits the tools that may be called without changing
    what is sent as `tools`; None means all.
    """

    mode: ChoiceMode = "auto"
    name: str | None = None
    allowed: tuple[str, ...] | None = None
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def forces(self) -> bool:
        """True if the model must call a tool."""
        return self.mode in ("required", "named")

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the allowed tools, or None if the choice names no tools (a plain word on the wire)."""
        if self.mode == "named" and self.name is not None:
            return (self.name,)
        return None if self.mode == "none" else self.allowed


@dataclass(frozen=True, slots=True)
class Constraint:
    """The required form of the next answer, for backends that enforce it while decoding (R10.10).

    `gbnf` is a grammar of the whole answer in llama.cpp's notation; `tags` is the same as a structural tag, if there is
    one; `calls` are the tools of which one must be called, for backends that start from schemas. A backend uses the
    fields that its profile lists and ignores the rest. `free`: text may stand in place of calls (R23.2), so a feature
    that makes the whole answer a call cannot be used. `binding`: an unconstrained answer is useless, so a backend that
    refuses the constraint gets no second request without it.
    """

    gbnf: str
    calls: tuple[ToolSpec, ...]
    tags: Mapping[str, Any] | None = None
    free: bool = False
    binding: bool = False


# --- request --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. None: the backend's default. `reasoning_budget`: most reasoning tokens; 0 disables it."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    n: int = 1
    reasoning_effort: str | None = None
    top_k: int | None = None
    reasoning_budget: int | None = None


LIKE_SERVER: Final = Sampling()
"""Sampling with the backend's defaults."""


class Origin:
    """The source of a request: the protocol's name and the received body. `past`: results that were computed for the
    conversation's earlier messages and can be reused, or None (`toolwire.known.past`). `new`: the number of bytes that
    came for the first time. When a streamed answer has begun, `body` is emptied and `past` becomes a weak reference, to
    free memory; `size` stays. If the request names the response that it continues, `size`, `past` and `new` include the
    earlier turns."""

    __slots__ = ("body", "new", "past", "protocol", "size")

    def __init__(self, protocol: str, body: bytes, past: Any = None) -> None:
        self.protocol = protocol
        self.body = body
        self.size = len(body)
        self.past = past
        self.new: int = self.size if past is None else past.new

    def after(self, size: int, past: Any) -> Origin:
        """Returns the source of a request that continues earlier turns of `size` bytes, with the reusable results
        `past`."""
        origin = Origin(self.protocol, self.body, past)
        origin.size += size
        return origin

    def free(self) -> None:
        """Frees the memory of the body and of `past`, because no server is asked with them any more."""
        self.body = b""
        if self.past is not None and type(self.past) is not ref:
            self.past = ref(self.past)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and (self.protocol, self.body) == (other.protocol, other.body)

    def __hash__(self) -> int:
        return hash((self.protocol, self.size))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A client's request to a model, independent of protocols.

    `tool_choice` is never None: readers fill in the default (`auto` with tools, `none` without).
    `extra` holds parameters that are not modelled, under their wire names. They are meant for the model server; its
    configuration says which of them it gets (`extra_parameters`, `forward_unknown`).
    `protocol_fields` is an `Extra` of fields that only the client's protocol needs (`metadata`, `include`).
    `special_tokens`: the answer's text must include the model's special tokens, which servers omit by default.
    `guarded`: the messages contain no text that begins or ends a turn in the server's protocol
    (`ServerSide.turn_markers`), except what the gateway wrote.
    `grown` is the approximate number of bytes of messages and tools that were added after reading `origin`: earlier
    turns, resolved references, tool rounds, attempts. `response_format` is OpenAI Chat's object or None.
    `enforced_choice` is sent to the server in place of `tool_choice`, while the prompt still follows `tool_choice`: a
    retry keeps the cached prompt. `server_headers` are sent to the server besides those of its configuration.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    sampling: Sampling = LIKE_SERVER
    response_format: Mapping[str, Any] | None = None
    stream: bool = False
    include_usage: bool = False
    constraint: Constraint | None = None
    special_tokens: bool = False
    guarded: bool = False
    extra: Mapping[str, Any] = field(default=EMPTY, hash=False)
    origin: Origin | None = None
    protocol_fields: Extra = field(default=EMPTY, hash=False)
    grown: int = field(default=0, compare=False)
    enforced_choice: ToolChoice | None = None
    server_headers: Mapping[str, str] = field(default=EMPTY, hash=False)

    @property
    def size(self) -> int:
        """Approximate size in bytes: the received body plus what was added since."""
        return self.grown if self.origin is None else self.origin.size + self.grown

    @property
    def past(self) -> Any:
        """Reusable results for the conversation's earlier messages, see `Origin`; None if there are none, or none in
        memory."""
        past = None if self.origin is None else self.origin.past
        return past() if type(past) is ref else past

    @property
    def callable_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that a call may name, in the client's order: none under `none`, one under `named`, the listed ones
        under `allowed_tools`. Hosted tools are not included."""
        choice = self.tool_choice
        if choice.mode == "none":
            return ()
        if choice.mode != "named" and choice.allowed is None and "hosted" not in map(_KIND, self.tools):
            return self.tools
        return tuple(
            tool
            for tool in self.tools
            if tool.kind != "hosted"
            and (choice.mode != "named" or tool.name == choice.name)
            and (choice.allowed is None or tool.name in choice.allowed)
        )


# --- reply ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. `total_tokens` is always the sum (R11.1). `estimated`: the backend did not report all counts;
    `tokenizer` then names what they were estimated with: an encoding, or `bytes`. `missing` says which counts are still
    unknown and 0; `both` means that they never will be known, which some protocols can express."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    extra: Extra = field(default=EMPTY, hash=False)
    tokenizer: str | None = field(default=None, compare=False)
    missing: Literal["input", "output", "both"] | None = None

    @property
    def total_tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """One answer: its parts in order, and the reason for its end (`FinishReason`, or a server's own word)."""

    parts: tuple[Part, ...]
    reason: str = FinishReason.STOP
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended the answer, if known."""
        return self.extra.get("stop_sequence")


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A complete reply. Usually it has one choice; several only when `n` was allowed (R2.21)."""

    id: str
    model: str
    created: int
    choices: tuple[ReplyChoice, ...]
    usage: Usage | None = None
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def calls(self) -> tuple[ToolUse, ...]:
        """All calls of all choices, in order."""
        return tuple(part for choice in self.choices for part in choice.parts if isinstance(part, ToolUse))

    @property
    def text(self) -> str:
        """All visible text of the first choice."""
        return "".join(part.text for part in self.choices[0].parts if isinstance(part, Text)) if self.choices else ""
