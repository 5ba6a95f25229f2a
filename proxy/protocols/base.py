"""What a protocol is: one wire form of requests and answers, read and written in one place.

It has two halves, which meet in the model: `ClientSide` is how clients speak to the gateway, `ServerSide` how the
gateway speaks to model servers. A protocol may have one of them only. Both are found by name (`toolwire.registry`);
nothing outside of this folder knows one by its name (docs/adr/0024).

Rules:

1. A protocol never opens a socket, never imports aiohttp or asyncio, and keeps no state outside its readers and
   writers.
2. Readers are total: a wire frame they do not know becomes `Opaque`, never nothing. Bytes may be cut anywhere.
3. Law: writing then reading is identity for all that the protocol can express; what it cannot is listed in the
   docstring of its module.
4. One owner per counter: indices, sequence numbers and wire ids are allocated by the writer and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, Literal, Protocol, runtime_checkable

from toolwire.config import BackendConfig, ResponsesConfig
from toolwire.errors import GatewayError
from toolwire.events import BlockKind, Event
from toolwire.model import EMPTY, Message, ModelReply, ModelRequest, Opaque, ToolUse, Usage, dataclass
from toolwire.protocols.shared import openai
from toolwire.protocols.shared.conversation_form import ConversationForm
from toolwire.protocols.shared.mending import Mending
from toolwire.protocols.shared.noise import Note, unnoted
from toolwire.protocols.shared.numbers import MAX_CHOICES
from toolwire.protocols.shared.served import ServedForm
from toolwire.protocols.shared.turn import Turn
from toolwire.protocols.shared.wire import load

KEEPALIVE: Final = b": keep-alive\n\n"
"""A comment in a stream of server-sent events: it shows life and means nothing (R6.14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How answers are written for one exchange.

    `request` is the request as the client sent it (for echoes, `include_usage`, the model's name), `conversation` its
    messages with those that a store put before them (None: no store was asked); `created` is Unix seconds. `body` is
    the client's parsed JSON, for protocols that echo the request. `reasoning_tags` stand around reasoning under
    `reasoning_field="inline"`. `responses` says how the Responses protocol is written. `large`: see `for_long`.
    `made` is what was made
    of all this for the one answer, by the function that made it: whoever needs it again finds it there.
    """

    request: ModelRequest
    created: int
    conversation: tuple[Message, ...] | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    reasoning_field: str = "reasoning_content"
    named_stop: bool = False
    reasoning_tags: tuple[str, str] = ("<think>", "</think>")
    responses: ResponsesConfig = field(default_factory=ResponsesConfig)
    large: bool = False
    made: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def for_long(self) -> WriteOptions:
        """The same for a long answer: it is written in a thread, in pieces, so that others have their turn."""
        options = replace(self, large=True)
        object.__setattr__(options, "made", self.made)
        return options


class StreamReader(Protocol):
    """Wire bytes of a streamed answer to events."""

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes, cut anywhere. After a `Fault` was returned everything is ignored."""

    def finish(self) -> list[Event]:
        """The bytes are over. Gives the closing events; a stream that broke off gives a `Fault` (R10.8)."""


class StreamWriter(Protocol):
    """Events to wire bytes of a streamed answer."""

    def feed(self, events: Iterable[Event]) -> bytes:
        """The frames for these events, possibly none. A `Fault` gives the in-band error and the end marker."""

    def keepalive(self) -> bytes:
        """A frame that means nothing to the client but shows life."""


@dataclass(frozen=True, slots=True)
class TextFrame:
    """The bytes around the escaped text in a frame that holds more of one block: `head`, text, `tail`; or, in a
    protocol whose frames are numbered, `head`, the next `number`, `middle`, text, `tail`."""

    head: bytes
    tail: bytes
    number: int = -1
    middle: bytes = b""


@runtime_checkable
class TextWriter(StreamWriter, Protocol):
    """A `StreamWriter` that lets somebody else write the plain text of a block."""

    def text_frame(self, block: int) -> TextFrame | None:
        """How the next deltas of `block` look, as long as their text begins and ends with whole characters; None if
        that cannot be said. Holds until the next call of any other method."""

    def wrote(self, block: int, frames: int, text: str) -> None:
        """So many frames, with this text in all, were written by `text_frame`."""


class ProseReader(StreamReader, Protocol):
    """A `StreamReader` that lets somebody else read plain text: its frames of text are chat completion chunks, which
    `ChunkGate` knows."""

    @property
    def open_prose(self) -> tuple[int, BlockKind] | None:
        """The block, and its kind, to which a frame adds that holds nothing but text; None if such a frame would do
        more."""


class TurnForm(Protocol):
    """How a protocol whose clients leave their history to the server (R12) names the turns of a conversation, and shows
    them. What has a value here need not be said by who inherits.

    A turn is read in the model's words (`toolwire.protocols.shared.turn`), so whoever goes on from it may speak another
    protocol. What the protocol shows of a turn and messages do not say it keeps in the turn's `extra`; Responses keeps
    all in its own words (`said`). `body` is always a client's parsed JSON, an item one entry of what it said or got.
    """

    previous: str
    """The field of a request that names the turn before."""
    conversations: ConversationForm | None = None
    """Conversations with ids of their own, which a request may name."""

    def own(self, request: ModelRequest, body: Mapping[str, Any]) -> tuple[Message, ...]:
        """What the request says itself: its messages without those that each request says anew."""
        return request.messages

    def going_on(
        self, body: Mapping[str, Any], earlier: Sequence[Message], own: Sequence[Message]
    ) -> tuple[Message, ...]:
        """The conversation that a request stands for which says its `own` behind what was said `earlier`."""
        return (*earlier, *own)

    def with_tools(self, request: ModelRequest, body: Mapping[str, Any], earlier: Sequence[Turn]) -> ModelRequest:
        """`request` with the tools that stand in `earlier` turns (R28.1); the same object if there are none."""
        return request

    def asks_summary(self, body: Mapping[str, Any]) -> bool:
        """Returns True if the request asks for a summary of the conversation in place of an answer (R28.1)."""
        return False

    def summary_part(self, summary: str) -> Opaque:
        """The only part of the answer to that. Raises `BackendFault` if the summary is empty."""
        raise NotImplementedError  # whose requests can ask for it

    def references(self, body: Mapping[str, Any]) -> Sequence[str]:
        """The ids of items in whose place the request has only their ids."""
        return ()

    def turn_of(self, item_id: str) -> str | None:
        """The id of the turn in which an item is; None if its id does not lead there."""
        return None

    def items(self, turn: Turn) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """The items of a turn, each with its id."""
        return ()

    def put_in(
        self, body: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], said: Container[str]
    ) -> tuple[Mapping[str, Any], tuple[Message, ...]]:
        """`body` with items in the place of references, but for those that were `said` before; and what it says itself
        then."""
        raise NotImplementedError  # whose requests have references

    def new_id(self) -> str:
        """A fresh id for a turn."""

    def begun(self, turn: Turn, options: WriteOptions) -> Turn:
        """`turn`, which is being answered, with what is to be shown of it."""
        return turn

    def finished(self, turn: Turn, reply: ModelReply, options: WriteOptions) -> Turn:
        """`turn` with its answer. It may have `begun` or not: that of a stream has."""

    def broken_off(
        self,
        turn: Turn,
        reply: ModelReply,
        options: WriteOptions,
        status: Literal["failed", "cancelled"],
        error: GatewayError | None = None,
    ) -> Turn:
        """`turn` with an answer that got no further than `reply`."""

    def queued(self, turn: Turn, options: WriteOptions) -> tuple[Turn, bytes]:
        """`turn`, which waits to be answered in the background, with what is to be shown of it; and the frames that say
        so, with which a stream of it begins. What is behind them is numbered on."""
        raise NotImplementedError  # whose answers are made in the background

    def ended(self, turn: Turn, status: Literal["failed", "cancelled"], error: GatewayError | None) -> Turn:
        """`turn`, which was read, as it is when nobody goes on with its answer."""
        raise NotImplementedError

    def last_frame(self, turn: Turn, number: int) -> bytes:
        """The frame, with this number, that ends a stream of a turn that is over."""
        raise NotImplementedError

    def is_last_frame(self, frame: str) -> bool:
        """Whether a stream ends with this frame."""
        raise NotImplementedError

    def shown(self, turn: Turn) -> dict[str, Any]:
        """What a client gets to see of a turn."""

    def listed(self, turn: Turn) -> Sequence[Mapping[str, Any]]:
        """The items of the request that began it."""


@dataclass(frozen=True, slots=True)
class Route:
    """A further path of a protocol, below the base URL: `GET`, `/responses/{id}`. `handler` is the dotted path of an
    aiohttp handler, `package.module:function`: protocols know nothing of aiohttp."""

    method: str
    path: str
    handler: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a client may still use in a minute, for the head of its answers: `left` of `most`, and all of it again in
    `reset_s` seconds."""

    kind: Literal["requests", "tokens"]
    most: int
    left: int
    reset_s: float


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model in the list of models. `created`: seconds since 1970; `context`: the size of its context window in
    tokens. None: unknown."""

    name: str
    created: int
    context: int | None = None
    images: bool | None = None


class ClientSide(Protocol):
    """A protocol towards clients: requests in, answers out. What has a value here need not be said by who inherits."""

    name: str
    """Short name, `chat`. A server side of the same name has the same wire form: between the two bytes may pass as they
    are."""
    path: str
    """Where requests are posted, below the base URL: `/chat/completions`. Errors at this path and below it have this
    envelope."""
    content_type: str
    """Of a streamed answer."""
    items_field: str | None = None
    """The field of a request that holds its conversation, to which each turn adds items; None: there is none."""
    example: Mapping[str, Any]
    """A request for a stream, as a client sends it but for `model`, with one tool: `look`, which takes a text `at`."""
    whole_history: bool = True
    """A request holds its whole conversation, so a result without its call is a mistake (R2.8; not so R8.4)."""
    name_chars: int = 128
    """Longest name of a tool (R3.2)."""
    inline_thinking: bool = False
    """Its clients know thoughts in the middle of text, as models write them."""
    instructs_anywhere: bool = True
    """Its clients know that servers take system messages behind others, as OpenAI's do."""
    tells_stop: bool = False
    """Its answers say which stop sequence ended them."""
    counts_on_demand: bool = False
    """A stream says how many tokens it has only if the client asked for it, and then in every chunk that they come
    last (R7.7). So what a server says of them, asked by the gateway, may not pass as it is."""
    client_header: str | None = None
    """A header that no other clients send, in small letters: says whose words they get where no path says it."""
    id_header: str | None = None
    """A further header in which its clients look for the request id."""
    time_header: str | None = None
    """A header that says how many milliseconds the gateway had a request before its answer began."""
    binding_fields: tuple[tuple[str, str], ...] = ()
    """Fields in `protocol_fields` without which an answer would be one to something else, so a server of another
    protocol cannot be asked; and what a client may do instead."""
    field_headers: tuple[str, ...] = ()
    """Headers of a request that say something to its server, in small letters: each is a field of `protocol_fields`
    under its name."""
    routes: tuple[Route, ...] = ()
    """Further paths that it serves."""
    count_path: str | None = None
    """Where requests are posted whose tokens are to be counted only, below the base URL."""
    compact_path: str | None = None
    """Where conversations are posted that are to be made short, below the base URL."""
    unkept: str | None = None
    """Why nothing can be read of what was answered before, where its clients may ask for that below its `path`."""
    turns: TurnForm | None = None
    """Its conversations, if it leaves them to the server."""
    served: ServedForm | None = None
    """Servers of tools that a request may name, if it has words for them."""
    asks_opaque: bool = False
    """Its clients can ask for reasoning as an opaque text (`wants_opaque`)."""
    brings_reasoning: bool = False
    """Its clients bring the text of reasoning back beside what is opaque of it, block by block."""
    opaque_on_calls: bool = False
    """A call has a place for an opaque text (`carried_call`); else reasoning stands before it that holds one."""
    api: str | None = None
    """Its part of `/openapi.json`, a file: `package:folder/file.json` (`toolwire.openapi.parts`). Without one its paths
    are in the document, but not what is sent there."""

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """The request in `body`, the parsed JSON of `raw`. Checks the shape; raises `ClientFault` with `param`."""

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """A body that `read_request` refuses with what is odd in it mended; `mending` is told of it."""
        return body

    def writer(self, options: WriteOptions) -> StreamWriter:
        """A writer for one streamed answer."""

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """The body of a whole answer."""

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
        """What such a body says: a middleware may have put another one in its place. Raises `GatewayError` if it is
        none."""

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """The body of an HTTP error answer."""

    def status_of(self, error: GatewayError) -> int:
        """The HTTP status of an error answer."""
        return error.status

    def write_limits(self, allowances: Sequence[Allowance], now: float) -> Mapping[str, str]:
        """The headers that say them; at most one of each kind. `now` is Unix seconds."""
        return openai.write_limits(allowances)

    def read_counted(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """As `read_request`, for what was posted to `count_path`."""
        return self.read_request(body, raw)

    def write_count(self, tokens: int) -> bytes:
        """The body of the answer to that."""
        return b'{"input_tokens":%d}' % tokens

    def compacting(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body of an ordinary request for a summary of what was posted to `compact_path`."""
        raise TypeError(f"{self.name} has no such path")

    def write_compacted(self, reply: ModelReply, messages: Sequence[Message]) -> bytes:
        """The body of the answer: what takes the place of `messages`, the last of which asked for the summary that
        `reply` is. Raises `BackendFault` if it is none."""
        raise TypeError(f"{self.name} has no such path")

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """The body of the list of models. `for_codex`: Codex asks, which looks for a list `models` of its own form."""

    def write_model(self, model: ListedModel) -> bytes:
        """The body of one model."""

    def keeps_call_ids(self, options: WriteOptions) -> bool:
        """Whether what a client gives a call back with leads to the id that it was given here (`given_id`)."""
        return True

    def given_id(self, call_id: str) -> str:
        """The id that a call was given here, if the gateway named it, of the one that a client gives it back with."""
        return call_id

    def wants_arguments_early(self, request: ModelRequest) -> bool:
        """Whether a client asks that arguments of calls are streamed while they come, whatever the route says
        (R6.13)."""
        return False

    def most_server_calls(self, request: ModelRequest) -> int | None:
        """How many calls of the gateway's own tools a client allows for an answer; None: it does not say."""
        return None

    def secrets(self, request: ModelRequest) -> Sequence[str]:
        """What of a request lets somebody in elsewhere: nothing that is kept or logged says it."""
        return ()

    def wants_opaque(self, request: ModelRequest) -> bool:
        """Whether a client asks for reasoning as an opaque text, which it brings back in the place of the reasoning."""
        return False

    def may_reason(self, request: ModelRequest) -> bool:
        """Whether an answer of a server of the same protocol may hold what is opaque to a client."""
        return self.wants_opaque(request)

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of reasoning, of this protocol, by which a client brings `sealed` back, which stands for the
        opaque `fields` of a server."""
        raise TypeError(f"{self.name} has no place for an opaque text")

    def carried_call(self, sealed: str) -> Mapping[str, Any]:
        """The same of a call."""
        raise TypeError(f"{self.name} has no place for an opaque text beside a call")

    @property
    def show_result(self) -> Callable[[ToolUse, str], Event] | None:
        """Makes the event by which an answer shows the result, a text, of a call that the gateway ran; None if it has
        no place for it."""
        return None


class ServerSide(Protocol):
    """A protocol towards model servers: requests out, answers in. What has a value here need not be said by who
    inherits."""

    name: str
    """See `ClientSide.name`."""
    path: str
    """Where requests are posted, below the server's base URL: `/chat/completions`."""
    items_field: str | None = None
    """The field of a request that holds the conversation as a list; None: there is none."""
    end_marks: tuple[bytes, ...]
    """Each last frame of a stream has one of these in its bytes, and few others have: only these are shown to
    `is_end`."""
    results_are_text: bool = False
    """A result of a tool has a place for text only, with most of its servers: images in one stand behind it."""
    most_temperature: float = 2.0
    """The highest temperature that its servers take."""
    efforts: tuple[str, ...] = ()
    """The words for the effort of reasoning that its servers know; empty: that depends on the server."""
    files: bool = False
    """Files such as PDF are a part of the protocol that every server knows, as far as its model does."""
    images: bool | None = None
    """True: images are a part of the protocol that every server knows, as far as its model does; None: a request has a
    place for them; False: it has none."""
    stops: int | None = None
    """A request has room for so many stop sequences, as it is published: a server may take more; None: for any number,
    0: for none."""
    takes_tools: bool = True
    """A request has a place for tools."""
    takes_websocket: bool = False
    """Its servers may offer a WebSocket on which streams come, an event in each frame."""
    takes_template: bool = False
    """The configuration may say by which chat template a conversation becomes one text."""
    usual: bytes = b""
    """What stands in nearly every frame of an answer, and never where it is no part of one: frames that pass are looked
    at if it is missing (`left_out`, `shown`)."""
    items_in: str = ""
    """The key under which a whole answer lists its items, of which servers add some that are none (`noise.of_item`);
    empty: it has no such list."""
    turn_markers: frozenset[str] = frozenset()
    """What begins or ends a turn where a conversation is one text: no message may say it."""
    own_stops: tuple[str, ...] = ()
    """Sequences that end an answer in any case. `write_request` adds them to those of the client, if there is room for
    all."""
    limit_fields: tuple[str, ...] = ()
    """How the limit on an answer may be called in a request, the usual name first; the first one that is there
    counts."""
    model_in: str | None = None
    """The key of the object, in a frame of a stream, that names the model; None: the frame itself does."""
    marks_failed_results: bool = False
    """A request has a field that says that a tool failed (`ToolResult.is_error`); elsewhere its text says so."""
    bare_reasoning: bool = False
    """A request has a place for reasoning without text, of which only its server knows what it means."""
    opaque_fields: frozenset[str] = frozenset()
    """Fields beside reasoning and calls that mean something to the server that wrote them, and to no other."""
    reasoning_names: tuple[str, ...] = ()
    """How the reasoning in a message of a request may be called, the usual name first."""
    field_headers: tuple[str, ...] = ()
    """See `ClientSide.field_headers`: the other way, these fields are headers."""
    count_path: str | None = None
    """Where a server counts tokens, below its base URL."""
    reasoning_effort: bool = False
    """Every server knows how much effort reasoning is to take."""

    def configured(self, config: BackendConfig) -> ServerSide:
        """The same, for a backend with this configuration. Raises `ValueError` for one that it cannot use."""
        return self

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """What every request carries; the key among it, if there is one."""

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object that asks for the same. `extra` fields are included as they are. Raises `ClientFault` for
        what it cannot say and must not leave out."""

    def write_counted(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object that asks at `count_path` what the prompt of `request` has."""
        return self.write_request(request)

    def read_count(self, answer: Any) -> int | None:
        """The number of tokens in the parsed answer to that; None if it says none."""
        said = answer.get("input_tokens") if isinstance(answer, dict) else None
        return said if isinstance(said, int) and said > 0 else None

    def own_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The JSON object of a client of the same protocol, which nobody has changed, as the server gets it; the same
        object if nothing is to be done: then its bytes go there."""
        return body

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of the fields that a part has beside in this protocol (`Extra`), those that all its servers know: they are
        sent whatever is listed (C4)."""
        return EMPTY

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = unnoted) -> StreamReader:
        """A reader for one streamed answer. A frame beyond `frame_bytes` is a `Fault`, and so are more than so many
        `choices`. `note` is told what was odd."""

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
        """A whole answer. Raises `BackendFault` `upstream_invalid_response`, also for more than so many `choices`, or
        the error that the body holds."""

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Writes a stream that `reader` reads: for a server that gives a whole answer in place of one."""

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """A body that `read_reply` reads: for a server that streams what was not to be."""

    def says_nothing(self, name: str | None, data: bytes) -> bool:
        """Whether a frame with this event name and data has nothing of an answer, and no error. Servers send such
        before they have computed anything, so another one may still be asked."""

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """The kind (`noise.KINDS`) of a frame with this event name and data that is neither a part of an answer nor an
        error; None if it is one."""

    def shown(self, data: bytes) -> bytes:
        """The data of a frame that is not the last one, as strict clients want them where bytes pass. Raises
        `ValueError` if they are no JSON."""
        load(data)
        return data

    def is_end(self, name: str | None, data: bytes) -> bool:
        """Whether a frame with this event name and data is the last one of a stream: nothing behind it counts."""

    def missing_end(self, tail: bytes) -> bytes | None:
        """The bytes of a stream are over, without an end. What is to be added to them if all was said, as `tail`, the
        last of them, shows; None if it broke off."""

    def read_usage(self, usage: Any) -> Usage | None:
        """The counts of tokens in its own words; None if they say nothing."""
        return None

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """The message in the body of an error, empty if there is none, and its code (of `errors.CODES`) if it says more
        than the status does: `context_length_exceeded`, `model_not_found`."""
