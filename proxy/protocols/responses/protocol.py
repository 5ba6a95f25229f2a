"""The protocol OpenAI Responses, between clients and the gateway and between the gateway and model servers.

`ResponsesProtocol` is both halves (`base.ClientSide`, `base.ServerSide`). Each method is a pure function or a small
state machine from a module beside this one, usable without the server (R4.6).

`request.py` reads requests, `request_writer.py` writes them; `items.py` and `item_writer.py` convert items of a
conversation; `tools_in_input.py` reads tools among them; `client_tools.py` has the tools that the client runs, and
their items; `resource.py` the response object; `reply.py` whole answers and their items; `reader.py` reads streams,
`writer.py` writes them, with `output.py` for their items; `turns.py` stored conversations; `compaction.py` compaction,
with `summaries.py`; `served.py` tool servers that the client names, with `served_items.py`; `conversations.py`
conversations with ids of their own. Their docstrings list what the protocol cannot express.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import GatewayError
from ...events import Opaque
from ...model import Message, ModelReply, ModelRequest, ToolUse, Usage, fields_of
from ..base import ClientSide, ListedModel, ProtocolPath, ServerSide
from ..shared import openai
from ..shared.mending import Mending
from ..shared.noise import Note, ignore_note, in_responses, of_frame
from ..shared.numbers import MAX_CHOICES
from ..shared.wire import load
from ..streams import StreamReader, StreamWriter, WriteOptions
from .compaction import asking, write_compacted
from .items import PROTOCOL, known_fields
from .mending import mended
from .reader import ResponsesReader
from .reply import read_reply, write_reply
from .request import read_request
from .request_writer import COUNTED, ENCRYPTED, own_body, write_request
from .resource import read_usage
from .served import ResponsesServed, secrets
from .turns import ResponsesTurns
from .writer import ResponsesWriter

ENDS: Final = tuple(f"response.{how}" for how in ("completed", "incomplete", "failed", "cancelled", "done"))
"""Types of the frames that end a stream."""

_ANNOUNCED: Final = frozenset({"response.created", "response.in_progress", "response.queued"})


class ResponsesProtocol(ClientSide, ServerSide):
    """The client side and server side of Responses. Its only state is the compiled request schema, made on first
    use."""

    name = PROTOCOL
    path = "/responses"
    items_field = "input"
    content_type = "text/event-stream; charset=utf-8"
    api = "toolwire.protocols:schemas/responses_api.json"
    example: Mapping[str, Any] = {"input": "Look.", "tools": [openai.TOOL], "stream": True}
    whole_history = False
    turns = ResponsesTurns()
    routes = (
        ProtocolPath("GET", "/responses", "toolwire.pipeline.websocket.sockets:connect"),
        ProtocolPath("GET", "/responses/{id}", "toolwire.pipeline.conversations.responses:read"),
        ProtocolPath("DELETE", "/responses/{id}", "toolwire.pipeline.conversations.responses:delete"),
        ProtocolPath("GET", "/responses/{id}/input_items", "toolwire.pipeline.conversations.responses:list_input"),
        ProtocolPath("POST", "/responses/{id}/cancel", "toolwire.pipeline.conversations.responses:cancel"),
        ProtocolPath("POST", "/conversations", "toolwire.pipeline.conversations.conversations:create"),
        ProtocolPath("GET", "/conversations/{id}", "toolwire.pipeline.conversations.conversations:read"),
        ProtocolPath("POST", "/conversations/{id}", "toolwire.pipeline.conversations.conversations:update"),
        ProtocolPath("DELETE", "/conversations/{id}", "toolwire.pipeline.conversations.conversations:delete"),
        ProtocolPath("GET", "/conversations/{id}/items", "toolwire.pipeline.conversations.conversations:list_items"),
        ProtocolPath("POST", "/conversations/{id}/items", "toolwire.pipeline.conversations.conversations:add_items"),
        ProtocolPath(
            "GET", "/conversations/{id}/items/{item}", "toolwire.pipeline.conversations.conversations:read_item"
        ),
        ProtocolPath(
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
        """Returns the request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R8.1 to R8.4)."""
        return read_request(body, raw)

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """Returns a refused body with its odd fields mended; see `ClientSide.mended`."""
        return mended(body, mending)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Returns a writer for one streamed answer (R8.7 to R8.12)."""
        return ResponsesWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """Returns the body of a whole answer (R8.5)."""
        return write_reply(reply, options)

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """Returns OpenAI's error object (R13.1)."""
        return openai.write_error(error)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """Returns OpenAI's list of models."""
        return openai.write_models(models, for_codex=for_codex)

    def write_model(self, model: ListedModel) -> bytes:
        """Returns one entry of that list."""
        return openai.write_model(model)

    def keeps_call_ids(self, options: WriteOptions) -> bool:
        """False if ids on the wire are sequential: the gateway's ids cannot be computed from those."""
        return options.responses.ids == "random"

    def write_count(self, tokens: int) -> bytes:
        """Returns the object with the number of tokens (R8.15)."""
        return b'{"object":"response.input_tokens","input_tokens":%d}' % tokens

    def compacting(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the body of a request for a summary."""
        return asking(body)

    def write_compacted(self, reply: ModelReply, messages: Sequence[Message]) -> bytes:
        """Returns the body with the user's messages and an item with the summary."""
        return write_compacted(reply, messages)

    def most_server_calls(self, request: ModelRequest) -> int | None:
        """Returns `max_tool_calls`, the limit on calls that the gateway runs; None if it is not set."""
        most = fields_of(request.protocol_fields, PROTOCOL).get("max_tool_calls")
        return None if most is None else int(most)

    def wants_opaque(self, request: ModelRequest) -> bool:
        """True if `include` names encrypted reasoning."""
        included = fields_of(request.protocol_fields, PROTOCOL).get("include")
        return isinstance(included, list) and ENCRYPTED in included

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns `encrypted_content` with the sealed text."""
        return {"encrypted_content": sealed}

    def secrets(self, request: ModelRequest) -> Sequence[str]:
        """Returns the credentials for tool servers in the request."""
        return secrets(request.tools)

    def show_result(self, use: ToolUse, text: str) -> Opaque:
        """Returns the item of a call's result."""
        item = {"type": "function_call_output", "call_id": use.call_id, "output": text, "status": "completed"}
        return Opaque(PROTOCOL, item)

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Returns the key as a bearer token."""
        return openai.headers(api_key)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """Returns the JSON object for a Responses backend."""
        return write_request(request)

    def write_counted(self, request: ModelRequest) -> dict[str, Any]:
        """Returns only the fields that make up the prompt: servers refuse others when counting tokens."""
        return {key: value for key, value in write_request(request).items() if key in COUNTED}

    def own_body(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the client's body with storing at the server disabled: the gateway stores responses."""
        return own_body(body)

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the fields of the published API."""
        return known_fields(fields)

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        """Returns the reply in a whole answer. Raises `BackendFault`, or `ClientFault` `context_length_exceeded` if the
        body says so."""
        return read_reply(body, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = ignore_note) -> StreamReader:
        """Returns a reader for one streamed answer."""
        return ResponsesReader(frame_bytes, note)

    def is_empty_frame(self, name: str | None, data: bytes) -> bool:
        """True for noise and for the events that announce a response."""
        return self.left_out(name, data) is not None or _type_of(name, data) in _ANNOUNCED

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """Returns the kind of noise of a frame, or None; see `ServerSide.left_out`."""
        return of_frame(in_responses, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """True for the event that holds the complete response, however it ended."""
        return _type_of(name, data) in ENDS

    def missing_end(self, tail: bytes) -> bytes | None:
        """Returns None: no other event shows that an answer is complete."""
        return None

    def read_usage(self, usage: Any) -> Usage | None:
        """Returns the token counts in a `usage` object; None if it holds none."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """Returns message and code of OpenAI's error object, or of the forms that other servers use."""
        return openai.read_refusal(body)


def _type_of(name: str | None, data: bytes) -> str | None:
    """Returns the type of a frame; None for an error or data that is not a JSON object."""
    try:
        value = load(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("error"):
        return None
    kind = value.get("type", name)
    return kind if isinstance(kind, str) else None
