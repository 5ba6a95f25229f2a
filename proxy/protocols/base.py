"""Interfaces of a protocol: one wire form of requests and answers, read and written in one place.

A protocol has up to two halves, which meet in `toolwire.model`: `ClientSide` between clients and the gateway,
`ServerSide` between the gateway and model servers. Both are found by name (`toolwire.registry`); no code outside of
this package depends on a particular protocol (docs/adr/0024).

Rules:

1. A protocol never opens a socket, never imports aiohttp or asyncio, and keeps no state outside its readers and
   writers.
2. Readers accept everything: an unknown wire frame becomes `Opaque` instead of being dropped. Bytes may be cut
   anywhere.
3. Law: reading what was written gives back the same value, for everything that the protocol can express. The docstring
   of a protocol's module lists what it cannot express.
4. Each counter has one owner: indices, sequence numbers and wire ids are allocated by the writer only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from ..config import BackendConfig
from ..errors import GatewayError
from ..events import Event
from ..model import EMPTY, Message, ModelReply, ModelRequest, ToolUse, Usage, dataclass
from .shared import openai
from .shared.mending import Mending
from .shared.noise import NoiseTest, Note, ignore_note, in_any, of_text
from .shared.numbers import MAX_CHOICES
from .shared.tool_servers import ToolServerForm
from .shared.wire import dump, load
from .streams import StreamReader, StreamWriter, WriteOptions
from .turn_form import TurnForm


@dataclass(frozen=True, slots=True)
class ProtocolPath:
    """An additional path of a protocol, below the base URL: `GET`, `/responses/{id}`. `handler` is the dotted path of
    an aiohttp handler, `package.module:function`, because protocols do not import aiohttp."""

    method: str
    path: str
    handler: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """The remaining allowance of a client, for response headers: `left` of `most`, all available again in `reset_s`
    seconds."""

    kind: Literal["requests", "tokens"]
    most: int
    left: int
    reset_s: float


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One model in the list of models. `created` is Unix seconds, `context` the size of its context window in tokens,
    `images` whether it takes images. None means unknown."""

    name: str
    created: int
    context: int | None = None
    images: bool | None = None

    def in_openai_form(self) -> dict[str, object]:
        """Returns OpenAI's fields, the context length under the names of vLLM and OpenRouter, and capabilities. `tools`
        is always true, because the gateway adds them to every model."""
        written: dict[str, object] = {"id": self.name, "object": "model", "created": self.created}
        written["owned_by"] = "toolwire"
        if self.context is not None:
            written |= {"context_length": self.context, "max_model_len": self.context}
        vision = {} if self.images is None else {"vision": self.images}
        written["capabilities"] = {"tools": True, **vision}
        return written


class ClientSide(Protocol):
    """The half of a protocol that faces clients: reads requests, writes answers. Attributes and methods with a default
    may be left out by subclasses."""

    name: str
    """Short name, such as `chat`. A server side with the same name has the same wire form, so bytes can be passed
    through between the two."""
    path: str
    """Path for posting requests, below the base URL: `/chat/completions`. Errors at this path and below it use this
    protocol's error object."""
    content_type: str
    """Content type of a streamed answer."""
    items_field: str | None = None
    """Name of the request field that holds the conversation, a list that grows with each turn; None if there is
    none."""
    example: Mapping[str, Any]
    """Example of a streaming request without `model`, with one tool: `look`, which takes a text `at`."""
    strict_requires_all: bool = True
    """True if a strict tool must list all its properties in `required` (R3.6), as at OpenAI."""
    whole_history: bool = True
    """True if a request holds its whole conversation, so a result without its call is a mistake (R2.8; R8.4 for the
    others)."""
    name_chars: int = 128
    """Maximum length of a tool's name (R3.2)."""
    inline_thinking: bool = False
    """True if its clients understand reasoning inside of text, as models write it."""
    system_anywhere: bool = True
    """True if servers of this protocol take system messages anywhere in a conversation, as OpenAI's do."""
    reports_stop_sequence: bool = False
    """True if its answers report which stop sequence ended them."""
    counts_on_demand: bool = False
    """True if a stream reports token counts only on the client's request (R7.7). Then a server's counts that the
    gateway asked for cannot be passed through unchanged."""
    client_header: str | None = None
    """A request header, in lower case, that only clients of this protocol send. It selects the form of errors on paths
    of no protocol."""
    id_header: str | None = None
    """An additional response header in which its clients look for the request id."""
    time_header: str | None = None
    """A response header with the milliseconds between request and answer."""
    binding_fields: tuple[tuple[str, str], ...] = ()
    """Fields in `protocol_fields` that change the meaning of a request, so a server of another protocol cannot answer
    it; each with the advice for the client."""
    field_headers: tuple[str, ...] = ()
    """Request headers, in lower case, that are meant for the server: each is stored in `protocol_fields` under its
    name."""
    routes: tuple[ProtocolPath, ...] = ()
    """Additional paths that it serves."""
    count_path: str | None = None
    """Path for counting the tokens of a request, below the base URL."""
    compact_path: str | None = None
    """Path for compacting conversations, below the base URL."""
    no_storage_message: str | None = None
    """Error text for reading earlier answers below its `path`, in a protocol that does not store them."""
    turns: TurnForm | None = None
    """Stored conversations, if the protocol has them."""
    served: ToolServerForm | None = None
    """MCP servers in requests, if the protocol can express them."""
    asks_opaque: bool = False
    """True if its clients can ask for reasoning as an encrypted text (`wants_opaque`)."""
    brings_reasoning: bool = False
    """True if its clients send the text of reasoning back next to its opaque fields, block by block."""
    opaque_on_calls: bool = False
    """True if a call can carry an opaque text (`carried_call`); otherwise the reasoning before the call carries it."""
    api: str | None = None
    """File of its part of `/openapi.json`: `package:folder/file.json` (`toolwire.openapi.parts`). Without it the
    document lists its paths without their fields."""

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Returns the request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` if it has a wrong
        form."""

    def item_of(self, body: Mapping[str, Any], index: int) -> int:
        """Returns the index, in the `items_field` of a body, of the item that holds message `index` of its request. The
        default is the same index."""
        return index

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """Returns a body that `read_request` refuses with its odd fields mended, and notes each in `mending`."""
        return body

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Returns a writer for one streamed answer."""

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """Returns the body of a whole answer."""

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        """Returns the reply in a body of the form of `write_reply`, for answers that a middleware replaced. Raises
        `GatewayError` if it cannot be read."""

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """Returns the body of an HTTP error answer. The default is OpenAI's error object."""
        return dump(error.envelope())

    def status_of(self, error: GatewayError) -> int:
        """Returns the HTTP status of an error answer."""
        return error.status

    def fails_within_stream(self, error: GatewayError, headers: Mapping[str, str]) -> bool:
        """Returns True if a client with these request headers has to get this error as an event of a stream, not as a
        status, even if nothing has been sent. The default is False."""
        return False

    def write_limits(self, allowances: Sequence[Allowance], now: float) -> Mapping[str, str]:
        """Returns the headers for these allowances, at most one of each kind. `now` is Unix seconds. The default are
        OpenAI's `x-ratelimit-*`."""
        return {
            f"x-ratelimit-{what}-{allowance.kind}": value
            for allowance in allowances
            for what, value in (
                ("limit", str(allowance.most)),
                ("remaining", str(allowance.left)),
                ("reset", openai.duration(allowance.reset_s)),
            )
        }

    def read_counted(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Returns the request in a body posted to `count_path`; see `read_request`."""
        return self.read_request(body, raw)

    def write_count(self, tokens: int) -> bytes:
        """Returns the body of the answer to a request for a token count."""
        return b'{"input_tokens":%d}' % tokens

    def compacting(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the body of an ordinary request for a summary of a conversation that was posted to `compact_path`.
        Raises `TypeError` in a protocol without that path."""
        raise TypeError(f"{self.name} has no such path")

    def write_compacted(self, reply: ModelReply, messages: Sequence[Message]) -> bytes:
        """Returns the body of the answer to a request for compaction: the summary `reply` in place of `messages`, of
        which the last one asked for it. Raises `BackendFault` if the summary is empty, `TypeError` in a protocol
        without that path."""
        raise TypeError(f"{self.name} has no such path")

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """Returns the body of the list of models. `for_codex`: the client is Codex, which expects a list `models` of
        its own form. The default is OpenAI's list. The entries of Codex's list would replace Codex's own system prompt,
        so it is empty and Codex uses its defaults."""
        listed: dict[str, object] = {"object": "list", "data": [model.in_openai_form() for model in models]}
        return dump(listed | {"models": []} if for_codex else listed)

    def write_model(self, model: ListedModel) -> bytes:
        """Returns the body of one model. The default is OpenAI's object."""
        return dump(model.in_openai_form())

    def keeps_call_ids(self, options: WriteOptions) -> bool:
        """True if `gateway_call_id` can compute the gateway's call id from the id that a client sends back."""
        return True

    def gateway_call_id(self, call_id: str) -> str:
        """Returns the gateway's id of a call from the id that a client sends back."""
        return call_id

    def most_server_calls(self, request: ModelRequest) -> int | None:
        """Returns the client's maximum number of server-side calls for an answer; None if it sets none."""
        return None

    def secrets(self, request: ModelRequest) -> Sequence[str]:
        """Returns the request's credentials for other servers. They must not be stored or logged."""
        return ()

    def wants_opaque(self, request: ModelRequest) -> bool:
        """True if the client asks for reasoning as an encrypted text, which it sends back in place of the reasoning."""
        return False

    def may_hold_opaque(self, request: ModelRequest) -> bool:
        """True if an answer from a server of the same protocol may contain content that is opaque to the client."""
        return self.wants_opaque(request)

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the fields of reasoning, in this protocol, with which a client sends `sealed` back; `fields` are the
        server's opaque fields that `sealed` contains. Raises `TypeError` if the protocol has no such fields."""
        raise TypeError(f"{self.name} has no place for an opaque text")

    def carried_call(self, sealed: str) -> Mapping[str, Any]:
        """Returns the fields of a call, in this protocol, with which a client sends `sealed` back. Raises `TypeError`
        if the protocol has no such fields."""
        raise TypeError(f"{self.name} has no place for an opaque text beside a call")

    @property
    def show_result(self) -> Callable[[ToolUse, str], Event] | None:
        """Function that makes the event showing the result (a text) of a server-side call; None if answers cannot show
        results."""
        return None


class ServerSide(Protocol):
    """The half of a protocol that faces model servers: writes requests, reads answers. Attributes and methods with a
    default may be left out by subclasses."""

    name: str
    """Short name, such as `chat`; see `ClientSide.name`."""
    path: str
    """Path for posting requests, below the server's base URL: `/chat/completions`."""
    items_field: str | None = None
    """Name of the request field that holds the conversation as a list; None if there is none."""
    end_marks: tuple[bytes, ...]
    """Byte strings of which every last frame of a stream contains one, and few others do. Only frames with one of them
    are passed to `is_end`."""
    strict_requires_all: bool = True
    """See `ClientSide.strict_requires_all`."""
    no_images_of: frozenset[str] = frozenset()
    """Roles whose messages cannot hold images; results can."""
    results_are_text: bool = False
    """True if most servers take only text in tool results; images are then moved behind the result."""
    most_temperature: float = 2.0
    """The highest temperature that its servers accept."""
    warms_cache: bool = False
    """True if a limit of 0 tokens asks for no answer, only for a prompt in the server's cache."""
    efforts: tuple[str, ...] = ()
    """Levels of reasoning effort that its servers know; empty if they differ between servers."""
    files: bool = False
    """True if files such as PDF are part of the protocol and every server takes them, as far as its model does."""
    images: bool | None = None
    """True: every server takes images, as far as its model does; None: a request can hold images; False: it cannot."""
    stops: int | None = None
    """Maximum number of stop sequences in the published protocol (servers may take more); None: unlimited, 0: none."""
    takes_tools: bool = True
    """True if a request can hold tools."""
    takes_websocket: bool = False
    """True if its servers may offer a WebSocket for streams, with one event per frame."""
    takes_template: bool = False
    """True if the configuration may name the chat template that turns a conversation into text."""
    usual: bytes = b""
    """Bytes that nearly every frame of an answer contains, and no frame of another kind. On the pass-through path only
    frames without them are inspected (`noise_of`, `shown`)."""
    named_frames: bool = False
    """True if strict clients read a frame only if it has the name of its event, which is its `type`."""
    any_frames: bool = False
    """True if the frames of a stream may be any JSON; else only objects."""
    items_in: str = ""
    """Key of the list of items in a whole answer, to which some servers add entries that are no items
    (`noise.of_item`); empty if there is no such list."""
    turn_markers: frozenset[str] = frozenset()
    """Texts that begin or end a turn where a conversation is one text. They must not occur in messages."""
    own_stops: tuple[str, ...] = ()
    """Stop sequences that are always needed. `write_request` adds them to the client's if there is room for all."""
    limit_fields: tuple[str, ...] = ()
    """Possible names of the limit on the answer's length in a request, the usual name first; the first one present
    counts."""
    model_in: str | None = None
    """Key of the object that names the model in a frame of a stream; None if it stands in the frame itself."""
    marks_failed_results: bool = False
    """True if a request has a field for failed tools (`ToolResult.is_error`); otherwise only the result's text shows
    it."""
    shows_refusals: bool = True
    """True if a model sees the refusal in an earlier answer. Chat has a field for it that most templates ignore."""
    bare_reasoning: bool = False
    """True if a request can hold reasoning without text that only its server understands."""
    opaque_fields: frozenset[str] = frozenset()
    """Fields of reasoning and calls that only the server which wrote them understands."""
    reasoning_names: tuple[str, ...] = ()
    """Possible names of the reasoning in a request's message, the usual name first."""
    field_headers: tuple[str, ...] = ()
    """Request headers for the server, from fields of `protocol_fields`; see `ClientSide.field_headers`."""
    count_path: str | None = None
    """Path on which a server counts tokens, below its base URL."""
    counted_fields: frozenset[str] = frozenset()
    """Fields of a request that make up the prompt. Servers refuse others when counting tokens."""
    reasoning_effort: bool = False
    """True if every server takes a level of reasoning effort."""
    noise_of: NoiseTest = staticmethod(in_any)
    """Returns the kind (`noise.KINDS`) of a frame that is neither part of an answer nor an error, such as a keep-alive,
    given its event name and JSON object; None for other frames."""

    def configured(self, config: BackendConfig) -> ServerSide:
        """Returns the protocol for a backend with this configuration. Raises `ValueError` if it is invalid."""
        return self

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Returns the headers of every request, including the key, if there is one. The default is a bearer token."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """Returns the JSON object of a request. Fields of `extra` are included unchanged. Raises `ClientFault` for
        content that it cannot express and must not drop."""

    def write_counted(self, request: ModelRequest) -> dict[str, Any]:
        """Returns the JSON object of a request to `count_path` for counting the prompt's tokens, with `counted_fields`
        only."""
        return {key: value for key, value in self.write_request(request).items() if key in self.counted_fields}

    def read_count(self, answer: Any) -> int | None:
        """Returns the number of tokens in a server's parsed answer to a request for a token count; None if it has
        none."""
        count = answer.get("input_tokens") if isinstance(answer, dict) else None
        return count if isinstance(count, int) and count > 0 else None

    def own_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the body of a client of the same protocol as the server should get it; the same object if nothing has
        to change, so its bytes can be sent."""
        return body

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns those of a part's additional fields (`Extra`) that every server of this protocol knows. They are sent
        without being listed in the configuration (C4)."""
        return EMPTY

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = ignore_note) -> StreamReader:
        """Returns a reader for one streamed answer. A frame longer than `frame_bytes`, or more than `choices` choices,
        is a `Fault`. `note` is called with oddities."""

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        """Returns the reply in the body of a whole answer. Raises `BackendFault` `upstream_invalid_response` if it
        cannot be read or has more than `choices` choices, or the error that the body holds."""

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Returns a writer of streams that `reader` can read, for a server that sends a whole answer instead of a
        stream."""

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """Returns a body that `read_reply` can read, for a server that sends a stream instead of a whole answer."""

    def is_empty_frame(self, name: str | None, data: bytes) -> bool:
        """True if a frame with this event name and data holds neither part of an answer nor an error. Servers send such
        frames before they compute anything, so a retry on another server is still possible."""
        try:
            value = load(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            return not data.lstrip().startswith(b"{") and of_text(data, name) is not None
        return self.noise_of(name, value) is not None or self.is_silent(name, value)

    def is_silent(self, name: str | None, value: Mapping[str, Any]) -> bool:
        """True if a frame with this event name and content only announces an answer, such as a role without text. Part
        of `is_empty_frame`, which asks `noise_of` for all other empty frames."""
        return False

    def shown(self, chunk: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the object of a frame, except the last one, in the form that strict clients need on the pass-through
        path; the same object if it has that form."""
        return chunk

    def is_end(self, name: str | None, data: bytes) -> bool:
        """True if a frame with this event name and data is the last one of a stream; everything after it is ignored."""

    def missing_end(self, tail: bytes) -> bytes | None:
        """Returns the bytes to append to a stream that ended without its last frame, if `tail`, its last bytes, show
        that the answer is complete; None if the stream broke off, or possibly did."""
        return None

    def missing_finish(self, tail: bytes, ends: bytes) -> bytes:
        """Returns the frames to send before the last one of a stream in which an answer has no end, because strict
        clients need it. `tail` are the last bytes, `ends` the frames that show an end (`missing_end`). Nothing by
        default."""
        return b""

    def read_usage(self, usage: Any) -> Usage | None:
        """Returns the token counts in this protocol's object; None if it holds none."""
        return None

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """Returns the message in the body of an error ("" if there is none), and its code in `errors.CODES` if it is
        more specific than the status: `context_length_exceeded`, `model_not_found`. The default reads OpenAI's error
        object, and the forms that other servers use."""
        return openai.read_refusal(body)


# --- the protocols of an application ----------------------------------------------------------------------------------


def owns(side: ClientSide, place: str) -> bool:
    """True if a path below the base URL belongs to this protocol: its path for requests, one of its additional paths,
    or a path below them."""
    paths = (side.path, *(route.path.partition("/{")[0] for route in side.routes))
    return any(place == path or place.startswith(path + "/") for path in paths)


class ClientSides:
    """The client sides of an application. The first one is used where a client's protocol is unknown.

    Raises `ValueError` if there is none, or if two have the same name or path.
    """

    def __init__(self, sides: Sequence[ClientSide]) -> None:
        if not sides:
            raise ValueError("no client protocol is installed")
        for what in ("name", "path"):
            values = [getattr(side, what) for side in sides]
            if len(set(values)) < len(values):
                raise ValueError(f"two client protocols have the same {what}: {', '.join(map(repr, values))}")
        self.sides = tuple(sides)
        self.keeps = any(side.turns is not None and side.path == "/responses" for side in sides)
        """True if answers over Responses are stored."""

    def of(self, path: str, headers: Mapping[str, str]) -> ClientSide:
        """Returns the protocol in which errors are written for a request that no protocol's handler took: by its path,
        by a header of its clients, or else the first protocol."""
        place = path.removeprefix("/v1")
        for side in self.sides:
            if owns(side, place):
                return side
        for side in self.sides:
            if side.client_header is not None and side.client_header in headers:
                return side
        return self.sides[0]
