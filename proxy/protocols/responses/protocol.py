"""OpenAI Responses, read and written, towards clients and towards backends.

`ResponsesProtocol` is both halves (`base.ClientSide`, `base.ServerSide`); each method is one pure function or one small
state machine of a module beside this one, usable without the server (R4.6).

`request.py` requests in · `request_writer.py` requests out · `items.py` items of a conversation · `tools_in_input.py`
tools that stand among them · `client_tools.py` tools that the client runs, and their items · `resource.py` the response
object · `reply.py` whole answers and their items · `reader.py` streams in · `writer.py` streams out, with `output.py`
for the items in them · `turns.py` conversations that the gateway remembers · `compaction.py` conversations made short,
with `summaries.py` · `served.py` tool servers that the client names, with `served_items.py` · `conversations.py`
conversations with ids of their own. What the protocol cannot express stands in their docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolwire.errors import GatewayError
from toolwire.events import Opaque
from toolwire.model import Message, ModelReply, ModelRequest, ToolUse, Usage, fields_of
from toolwire.protocols.base import ClientSide, ListedModel, Route, ServerSide, StreamReader, StreamWriter, WriteOptions
from toolwire.protocols.responses.compaction import asking, write_compacted
from toolwire.protocols.responses.items import PROTOCOL, known_fields
from toolwire.protocols.responses.mending import mended
from toolwire.protocols.responses.reader import ResponsesReader
from toolwire.protocols.responses.reply import read_reply, write_reply
from toolwire.protocols.responses.request import read_request
from toolwire.protocols.responses.request_writer import COUNTED, ENCRYPTED, own_body, write_request
from toolwire.protocols.responses.resource import read_usage
from toolwire.protocols.responses.served import ResponsesServed, secrets
from toolwire.protocols.responses.turns import ResponsesTurns
from toolwire.protocols.responses.writer import ResponsesWriter
from toolwire.protocols.shared import openai
from toolwire.protocols.shared.mending import Mending
from toolwire.protocols.shared.noise import Note, in_responses, of_frame, unnoted
from toolwire.protocols.shared.numbers import MAX_CHOICES
from toolwire.protocols.shared.wire import load

ENDS: Final = tuple(f"response.{how}" for how in ("completed", "incomplete", "failed", "cancelled", "done"))
"""The types of frames that end a stream."""

_ANNOUNCED: Final = frozenset({"response.created", "response.in_progress", "response.queued"})


class ResponsesProtocol(ClientSide, ServerSide):
    """The Responses wire form. Holds nothing but the compiled request schema, which is made on first use."""

    name = PROTOCOL
    path = "/responses"
    items_field = "input"
    content_type = "text/event-stream; charset=utf-8"
    api = "toolwire.protocols:schemas/responses_api.json"
    example: Mapping[str, Any] = {"input": "Look.", "tools": [openai.TOOL], "stream": True}
    whole_history = False
    turns = ResponsesTurns()
    routes = (
        Route("GET", "/responses", "toolwire.pipeline.websocket.sockets:connect"),
        Route("GET", "/responses/{id}", "toolwire.pipeline.conversations.responses:read"),
        Route("DELETE", "/responses/{id}", "toolwire.pipeline.conversations.responses:delete"),
        Route("GET", "/responses/{id}/input_items", "toolwire.pipeline.conversations.responses:list_input"),
        Route("POST", "/responses/{id}/cancel", "toolwire.pipeline.conversations.responses:cancel"),
        Route("POST", "/conversations", "toolwire.pipeline.conversations.conversations:create"),
        Route("GET", "/conversations/{id}", "toolwire.pipeline.conversations.conversations:read"),
        Route("POST", "/conversations/{id}", "toolwire.pipeline.conversations.conversations:update"),
        Route("DELETE", "/conversations/{id}", "toolwire.pipeline.conversations.conversations:delete"),
        Route("GET", "/conversations/{id}/items", "toolwire.pipeline.conversations.conversations:list_items"),
        Route("POST", "/conversations/{id}/items", "toolwire.pipeline.conversations.conversations:add_items"),
        Route("GET", "/conversations/{id}/items/{item}", "toolwire.pipeline.conversations.conversations:read_item"),
        Route(
            "DELETE", "/conversations/{id}/items/{item}", "toolwire.pipeline.conversations.conversations:delete_item"
        ),
    )
    count_path = "/responses/input_tokens"
    compact_path = "/responses/compact"
    served = ResponsesServed()
    binding_fields = (("prompt", "Send its text as 'instructions' and 'input'."),)
    end_marks = tuple(end.encode() for end in ENDS)
    usual = b'"output_index":'
    items_in = "output"
    model_in = "response"
    asks_opaque = True
    bare_reasoning = True
    takes_websocket = True
    opaque_fields = frozenset({"encrypted_content", "id"})
    images = True
    files = True
    efforts = ("none", "minimal", "low", "medium", "high", "xhigh")
    reasoning_effort = True
    stops = 0
    time_header = openai.TIME_HEADER
    limit_fields = ("max_output_tokens",)

    # --- towards clients --------------------------------------------------------------------------------------------

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """The request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R8.1 to R8.4)."""
        return read_request(body, raw)

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """See `ClientSide.mended`."""
        return mended(body, mending)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """A writer for one streamed answer (R8.7 to R8.12)."""
        return ResponsesWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """The body of a whole answer (R8.5)."""
        return write_reply(reply, options)

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """OpenAI's error envelope (R13.1)."""
        return openai.write_error(error)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """OpenAI's list of models."""
        return openai.write_models(models, for_codex=for_codex)

    def write_model(self, model: ListedModel) -> bytes:
        """One entry of that list."""
        return openai.write_model(model)

    def keeps_call_ids(self, options: WriteOptions) -> bool:
        """Not where the ids on the wire are sequential."""
        return options.responses.ids == "random"

    def write_count(self, tokens: int) -> bytes:
        """The object that says how many there are (R8.15)."""
        return b'{"object":"response.input_tokens","input_tokens":%d}' % tokens

    def compacting(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A request for a summary."""
        return asking(body)

    def write_compacted(self, reply: ModelReply, messages: Sequence[Message]) -> bytes:
        """What the user said, and an item with the summary."""
        return write_compacted(reply, messages)

    def most_server_calls(self, request: ModelRequest) -> int | None:
        """`max_tool_calls`, which is about the tools that the other side runs."""
        most = fields_of(request.protocol_fields, PROTOCOL).get("max_tool_calls")
        return None if most is None else int(most)

    def wants_opaque(self, request: ModelRequest) -> bool:
        """`include` names it."""
        included = fields_of(request.protocol_fields, PROTOCOL).get("include")
        return isinstance(included, list) and ENCRYPTED in included

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """`encrypted_content`."""
        return {"encrypted_content": sealed}

    def secrets(self, request: ModelRequest) -> Sequence[str]:
        """What goes to the tool servers that it names."""
        return secrets(request.tools)

    def show_result(self, use: ToolUse, text: str) -> Opaque:
        """The item of a call's result."""
        item = {"type": "function_call_output", "call_id": use.call_id, "output": text, "status": "completed"}
        return Opaque(PROTOCOL, item)

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The key as bearer token."""
        return openai.headers(api_key)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object for a Responses backend."""
        return write_request(request)

    def write_counted(self, request: ModelRequest) -> dict[str, Any]:
        """What makes up the prompt: a server refuses anything beyond."""
        return {key: value for key, value in write_request(request).items() if key in COUNTED}

    def own_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The server keeps nothing: the gateway does."""
        return own_body(body)

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those that the published interface has."""
        return known_fields(fields)

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
        """A whole answer. Raises `BackendFault`, or `ClientFault` `context_length_exceeded` if the body says so."""
        return read_reply(body, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = unnoted) -> StreamReader:
        """A reader for one streamed answer."""
        return ResponsesReader(frame_bytes, note)

    def says_nothing(self, name: str | None, data: bytes) -> bool:
        """What announces a response."""
        return self.left_out(name, data) is not None or _type_of(name, data) in _ANNOUNCED

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """See `ServerSide.left_out`."""
        return of_frame(in_responses, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """The event that holds the whole response, however it ended."""
        return _type_of(name, data) in ENDS

    def missing_end(self, tail: bytes) -> bytes | None:
        """Nothing else says that all was said."""
        return None

    def read_usage(self, usage: Any) -> Usage | None:
        """Counts in this protocol's words."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """OpenAI's error envelope, and what servers write in its place."""
        return openai.read_refusal(body)


def _type_of(name: str | None, data: bytes) -> str | None:
    """The type of a frame; none of one that is an error, or no JSON object."""
    try:
        value = load(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("error"):
        return None
    kind = value.get("type", name)
    return kind if isinstance(kind, str) else None
