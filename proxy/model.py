"""The one request and the one reply that every protocol, format, backend and middleware speaks.

Rules of this module (guarded: a change here needs a decision record, see docs/adr/0001 and 0023):

1. Everything is immutable: the type checker and the tests see to it, at run time nobody pays for it (docs/adr/0018). A
   change is `replace`, so "nobody touched it" is an identity test: `exchange.request is exchange.received`. Only the
   bytes that a request was read from can be let go (`Origin`).
2. Nothing is lost. What a protocol carries and this model does not know stays in `extra` (fields) or `Opaque` (parts).
3. Nothing leaks. An `extra` is `{protocol: fields}`: a protocol writes what it has read itself, and never looks at the
   fields of another. Beside the names of protocols stand only the words of `COMMON`, which mean the same in all of
   them. The one exception is `ModelRequest.extra`, parameters of the server, which has a filter of its own.
4. JSON texts stay texts: `ToolUse.arguments` is what the model or the client wrote, never loaded and dumped.
5. No imports from the rest of the package.

Mappings inside frozen values are immutable by convention: never write into one, build a new one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn
from weakref import ref

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def dataclass(*, frozen: Literal[True], slots: Literal[True], **more: bool) -> Callable[[type], type]:
        """What is frozen for the type checker is a plain dataclass that can be hashed: it is made in a third of the
        time (ADR 18)."""

        def made(cls: type) -> type:
            cls = dataclasses.dataclass(slots=True, unsafe_hash=True, **more)(cls)
            if cls.__match_args__:
                cls._values = attrgetter(*cls.__match_args__)  # for `replace`
            return cls

        return made

    def replace(value, /, **changes):
        """The `dataclasses.replace` of the values of this module, in a fifth of its steps."""
        kind = type(value)
        return kind(**{**dict(zip(kind.__match_args__, kind._values(value), strict=True)), **changes})


Role = Literal["system", "developer", "user", "assistant", "tool"]
CallKind = Literal["function", "custom"]
ToolKind = Literal["function", "custom", "hosted"]
ChoiceMode = Literal["auto", "none", "required", "named"]
Extra = Mapping[str, Any]
"""Fields that are not modelled, by the name of the protocol that they were read from, and words of `COMMON`."""


class FinishReason:
    """Why an answer ended: the words that are known. A `reason` may be any other, as a server said it: whoever knows no
    better takes it for `STOP`."""

    STOP: Final = "stop"
    """The model had no more to say, or said a stop sequence (`ReplyChoice.stop_sequence`)."""
    LENGTH: Final = "length"
    """A limit of length; what it cut off is not whole."""
    TOOL_CALLS: Final = "tool_calls"
    """Calls wait for their results."""
    CONTENT_FILTER: Final = "content_filter"
    """The model or its server declined."""
    PAUSED: Final = "pause_turn"
    """The server wants to be asked to go on."""
    COMPACTED: Final = "compaction"
    """The server made the conversation short."""
    WHOLE: Final = frozenset({STOP, TOOL_CALLS, "end_turn", "tool_use", "stop_sequence", COMPACTED})
    """The ends that no call is cut off by. Any other may come in the middle of one: a call that is not whole then is no
    call (C18, R29.3)."""


class _NoFields(dict[str, Any]):
    """An object without fields, for ever. It has a hash, so it may be the default of a field; a factory would be called
    for every value."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # it never changes
        return 0

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("nothing is ever written into `EMPTY`")

    __setitem__ = __ior__ = setdefault = update = _refuse


EMPTY: Final[Mapping[str, Any]] = _NoFields()
"""No fields. Compare with `not mapping`, not with identity."""

_OF_STREAM: Final = frozenset({"logprobs", "stop_sequence", "completed_at", "source", "live"})
COMMON: Final = _OF_STREAM | {"server", "call"}
"""Words that may stand in an `extra` beside the names of protocols: `logprobs` (of an answer or a delta, in Chat's
form), `stop_sequence` (of an answer), `completed_at` (of a reply, Unix seconds), `source` and `live` (of a call that
was found in text, see `toolwire.events.Open`), `server` (of reasoning and calls: the only server to which their opaque
fields may go back) and `call` (of reasoning: the `extra` of the call that follows), see
`toolwire.protocols.shared.opaque`."""


def fields_of(extra: Extra, protocol: str) -> Mapping[str, Any]:
    """What `protocol` has read and this model does not know."""
    return extra.get(protocol) or EMPTY if extra else EMPTY


def scoped(protocol: str, fields: Mapping[str, Any]) -> Extra:
    """The `extra` that says it."""
    return {protocol: fields} if fields else EMPTY


def lasting(extra: Extra) -> Extra:
    """The `extra` of a part without the fields that belong to a stream only."""
    if not extra or _OF_STREAM.isdisjoint(extra):
        return extra
    return {key: value for key, value in extra.items() if key not in _OF_STREAM} or EMPTY


def merged(first: Extra, second: Extra) -> Extra:
    """Both, field by field for each protocol; the second counts where both know a field."""
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
    """Visible text. `extra`, here and in every other part: what a protocol says of it beside (`cache_control`,
    annotations, ids)."""

    text: str
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class Attempt(Text):
    """What a model wrote in an answer that the client did not get, with markers that are its own. It is shown to the
    model as it was written: a form that nobody reads would be imitated."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Text with which a model declined."""

    text: str
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class Image:
    """An image by URL (`https:` or `data:`). `detail` as the client gave it."""

    url: str
    detail: str | None = None
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking text. `extra` keeps what its server wants to see again (ids, signatures, encrypted content)."""

    text: str
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call that an assistant made.

    `arguments` is JSON text for a `function`, free text for a `custom` tool. `item_id` is the wire id of the item that
    holds the call where a protocol has one (Responses); `namespace` the group its tool came from.
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
    """What a tool gave back for the call `call_id`. `name` is filled in when the call is known."""

    call_id: str
    parts: tuple[Part, ...]
    name: str | None = None
    is_error: bool = False
    kind: CallKind = "function"
    extra: Extra = field(default=EMPTY, hash=False)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A content part or item of `protocol` that is not modelled; written back to the same protocol unchanged."""

    protocol: str
    payload: Any


Part = Text | Refusal | Image | Reasoning | ToolUse | ToolResult | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `extra` keeps unknown fields of the message object."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def text(self) -> str:
        """All text parts joined, in order, with nothing between."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class PlainMessages(tuple[Message, ...]):
    """Messages as those of most conversations: each is a system's, a developer's, a user's or an assistant's and holds
    one text, or nothing, and of neither message nor text is anything else said. Who looks for more need not look."""

    __slots__ = ()

    def texts(self, but: Container[str] = ()) -> list[str]:
        """What each says, but those in these roles."""
        return [message.parts[0].text if message.parts else "" for message in self if message.role not in but]  # type: ignore[union-attr]


def are_plain(messages: Iterable[Message]) -> bool:
    """Whether each holds one text without further fields, or nothing."""
    if type(messages) is PlainMessages:
        return True
    for message in messages:
        parts = message.parts
        if parts and (len(parts) > 1 or type(part := parts[0]) is not Text or part.extra):
            return False
    return True


# --- tools ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool on offer.

    `parameters` is a JSON Schema whose root is an object, or None for "no parameters". `strict` is what the client
    sent: True, False, or None for unset; only True enforces (R3.5). `kind` is `hosted` for types that the gateway does
    not simulate (`web_search`, ...): never injected, echoed from `extra`. `extra` holds the tool object as its protocol
    received it. `server` tools are run by the gateway: no client sees their calls, and of a mistake in one the model is
    told (R15). `namespace` is the group that it belongs to (R8.16), `namespace_description` what the client says of
    that.
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

    @property
    def received(self) -> Mapping[str, Any]:
        """The tool object, whatever protocol it came in; nothing if the client did not send it."""
        return next((item for item in self.extra.values() if isinstance(item, Mapping)), EMPTY)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools may or must be called.

    `name` is set exactly when `mode` is `named`. `allowed` (names) narrows the offer without changing what is sent as
    `tools`; None means all.
    """

    mode: ChoiceMode = "auto"
    name: str | None = None
    allowed: tuple[str, ...] | None = None
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def forces(self) -> bool:
        """A call is demanded, not only permitted."""
        return self.mode in ("required", "named")

    @property
    def names(self) -> tuple[str, ...] | None:
        """The tools that it names; None if it names none, and so is a word on the wire."""
        if self.mode == "named" and self.name is not None:
            return (self.name,)
        return None if self.mode == "none" else self.allowed


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the next answer must look like, for backends that can enforce it while decoding (R10.10).

    `gbnf` is a grammar of the whole answer in llama.cpp's notation; `tags` the same as a structural tag, if one was
    made; `calls` are the tools of which one must be called, for backends whose own feature starts from schemas. A
    backend uses what its profile lists and ignores the rest. `free`: text may stand in place of calls (R23.2), so a
    feature that makes the whole answer a call is of no use. `binding`: an answer that is not constrained is worth
    nothing, so a backend that refuses the constraint is not asked without it.
    """

    gbnf: str
    calls: tuple[ToolSpec, ...]
    tags: Mapping[str, Any] | None = None
    free: bool = False
    binding: bool = False


# --- request --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to decode. None means "as the backend likes". `reasoning_budget` is how many tokens may be thought; 0:
    none."""

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
"""Nothing is said of it."""


class Origin:
    """Where a request came from: the protocol's name and the body exactly as it was received. It is let go, and empty,
    when a streamed answer has begun; its `size` stays known. `past`: what earlier requests of its conversation have
    left for it (`toolwire.known.past`), from then on a weak reference to that; `new`: how many bytes came with this
    one."""

    __slots__ = ("body", "new", "past", "protocol", "size")

    def __init__(self, protocol: str, body: bytes, past: Any = None) -> None:
        self.protocol = protocol
        self.body = body
        self.size = len(body)
        self.past = past
        self.new: int = self.size if past is None else past.new

    def let_go(self) -> None:
        """No server is asked with these bytes any more."""
        self.body = b""
        if self.past is not None and type(self.past) is not ref:
            self.past = ref(self.past)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin) and (self.protocol, self.body) == (other.protocol, other.body)

    def __hash__(self) -> int:
        return hash((self.protocol, self.size))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a client asks of a model, in no protocol's words.

    `tool_choice` is never None: readers fill in the default (`auto` with tools, `none` without). `response_format` is
    OpenAI Chat's object or None. `extra` holds parameters that are not modelled, under their wire names: they are for
    the model's server, whatever protocol it speaks, and which of them it is sent says its list (`extra_parameters`,
    `forward_unknown`). `protocol_fields` is an `Extra`: what is for the protocol itself and means nothing to another
    (`metadata`, `include`). `special_tokens`: the answer's text has to show the model's special tokens, which servers
    leave out unless they are told. `guarded`: what messages say holds nothing that begins or ends a turn in the
    server's protocol (`ServerSide.turn_markers`), but for what the gateway wrote itself. `grown` is about how many
    bytes of messages and tools were put in since it was read from `origin`: earlier turns, items in place of
    references, rounds of tools, attempts. `enforced_choice`: the server is held to this choice in place of
    `tool_choice`, of which the prompt speaks. A retry that demands a call keeps the prompt that the server has cached.
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

    @property
    def size(self) -> int:
        """About how many bytes it has now: what the client sent, and what was put in since."""
        return self.grown if self.origin is None else self.origin.size + self.grown

    @property
    def past(self) -> Any:
        """See `Origin`; None once it was let go and nothing else keeps it."""
        past = None if self.origin is None else self.origin.past
        return past() if type(past) is ref else past

    @property
    def callable_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that a call may name now, in the client's order: none under `none`, one under `named`, the listed
        ones under `allowed_tools`, and never a hosted one."""
        choice = self.tool_choice
        if choice.mode == "none":
            return ()
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
    """Token counts. `total` is always the sum (R11.1). `estimated` marks counts that the backend did not give, or not
    all of them; `tokenizer` is with what they were estimated: the name of an encoding, or `bytes`. `missing`: which of
    the two nobody has given; it counts as 0. `both`: it is known that nobody will, and a protocol that can says so."""

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
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ReplyChoice:
    """One answer: its parts in order of appearance and why it ended (`FinishReason`, or a server's own word)."""

    parts: tuple[Part, ...]
    reason: str = FinishReason.STOP
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def stop_sequence(self) -> str | None:
        """The stop sequence that ended it, where that is known."""
        return self.extra.get("stop_sequence")


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A finished answer. Usually one choice; several only when `n` was allowed (R2.21)."""

    id: str
    model: str
    created: int
    choices: tuple[ReplyChoice, ...]
    usage: Usage | None = None
    extra: Extra = field(default=EMPTY, hash=False)

    @property
    def calls(self) -> tuple[ToolUse, ...]:
        """All calls, in order."""
        return tuple(part for choice in self.choices for part in choice.parts if isinstance(part, ToolUse))

    @property
    def text(self) -> str:
        """All visible text of the first choice."""
        return "".join(part.text for part in self.choices[0].parts if isinstance(part, Text)) if self.choices else ""
