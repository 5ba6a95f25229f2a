"""The protocol OpenAI Responses, between clients and the gateway and between the gateway and model servers.

`ResponsesProtocol` is both halves (`base.ClientSide`, `base.ServerSide`). Each method is a pure function or a small
state machine from a module beside this one, usable without the server (R4.6).

`request.py` reads requests, `request_writer.py` writes them; `items.py` and `item_writer.py` convert items of a
conversation; `tools_in_input.py` reads tools among them, `settings_in_input.py` settings; `client_tools.py` has the
tools that the client runs, and their items; `resource.py` the response object; `reply.py` whole answers and their
items; `reader.py` reads streams, `writer.py` writes them, with `output.py` for their items; `turns.py` stored
conversations; `compaction.py` compaction, with `summaries.py`; `tool_servers.py` tool servers that the client names,
with `tool_server_items.py`; `conversations.py` conversations with ids of their own. Their docstrings list what the
protocol cannot express.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import GatewayError
from ...events import Opaque
from ...model import ModelReply, ModelRequest, ToolUse, fields_of
from ..base import ClientSide, ProtocolPath, ServerSide
from ..shared import openai
from ..shared.noise import Note, ignore_note, in_responses
from ..shared.numbers import MAX_CHOICES
from ..shared.wire import frame_type, type_of
from ..streams import WriteOptions
from .compaction import asking, write_compacted
from .items import PROTOCOL, known_fields
from .reader import ResponsesReader
from .reply import read_reply, write_reply
from .request import mended, read_request
from .request_writer import COUNTED, ENCRYPTED, own_body, write_request
from .resource import read_usage
from .tool_servers import ResponsesToolServers, tool_server_secrets
from .turns import ResponsesTurns
from .writer import ResponsesWriter

ENDS: Final = tuple(f"response.{how}" for how in ("completed", "incomplete", "failed", "cancelled", "done"))
"""Types of the frames that end a stream."""

_ANNOUNCED: Final = frozenset({"response.created", "response.in_progress", "response.queued"})


class ResponsesProtocol(ClientSide, ServerSide):
    """The client side and server side of Responses."""

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
        ProtocolPath("GET", "/responses/{id}", "toolwire.pipeline.handlers.responses:read"),
        ProtocolPath("DELETE", "/responses/{id}", "toolwire.pipeline.handlers.responses:delete"),
        ProtocolPath("GET", "/responses/{id}/input_items", "toolwire.pipeline.handlers.responses:list_input"),
        ProtocolPath("POST", "/responses/{id}/cancel", "toolwire.pipeline.handlers.responses:cancel"),
        ProtocolPath("POST", "/conversations", "toolwire.pipeline.handlers.conversations:create"),
        ProtocolPath("GET", "/conversations/{id}", "toolwire.pipeline.handlers.conversations:read"),
        ProtocolPath("POST", "/conversations/{id}", "toolwire.pipeline.handlers.conversations:update"),
        ProtocolPath("DELETE", "/conversations/{id}", "toolwire.pipeline.handlers.conversations:delete"),
        ProtocolPath("GET", "/conversations/{id}/items", "toolwire.pipeline.handlers.conversations:list_items"),
        ProtocolPath("POST", "/conversations/{id}/items", "toolwire.pipeline.handlers.conversations:add_items"),
        ProtocolPath("GET", "/conversations/{id}/items/{item}", "toolwire.pipeline.handlers.conversations:read_item"),
        ProtocolPath(
            "DELETE", "/conversations/{id}/items/{item}", "toolwire.pipeline.handlers.conversations:delete_item"
        ),
    )
    count_path = "/responses/input_tokens"
    compact_path = "/responses/compact"
    served = ResponsesToolServers()
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
    no_images_of = frozenset({"assistant"})
    files = True
    efforts = ("none", "minimal", "low", "medium", "high", "xhigh")
    reasoning_effort = True
    stops = 0
    time_header = openai.TIME_HEADER
    counted_fields = COUNTED
    limit_fields = ("max_output_tokens",)
    noise_of = staticmethod(in_responses)

    # --- towards clients --------------------------------------------------------------------------------------------

    read_request = staticmethod(read_request)
    mended = staticmethod(mended)
    writer = staticmethod(ResponsesWriter)
    write_reply = staticmethod(write_reply)
    compacting = staticmethod(asking)
    write_compacted = staticmethod(write_compacted)

    def keeps_call_ids(self, options: WriteOptions) -> bool:
        """False if ids on the wire are sequential: the gateway's ids cannot be computed from those."""
        return options.responses.ids == "random"

    def write_count(self, tokens: int) -> bytes:
        return b'{"object":"response.input_tokens","input_tokens":%d}' % tokens

    def most_server_calls(self, request: ModelRequest) -> int | None:
        most = fields_of(request.protocol_fields, PROTOCOL).get("max_tool_calls")
        return None if most is None else int(most)

    def fails_within_stream(self, error: GatewayError, headers: Mapping[str, str]) -> bool:
        """Returns True for a context overflow of Codex, which alone sends `originator`. All versions compact the
        conversation after `response.failed`, which OpenAI sends; 0.163, its SDK's, never does after a 400."""
        return error.code == "context_length_exceeded" and "originator" in headers

    def wants_opaque(self, request: ModelRequest) -> bool:
        included = fields_of(request.protocol_fields, PROTOCOL).get("include")
        return isinstance(included, list) and ENCRYPTED in included

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"encrypted_content": sealed}

    def secrets(self, request: ModelRequest) -> Sequence[str]:
        return tool_server_secrets(request.tools)

    def show_result(self, use: ToolUse, text: str) -> Opaque:
        item = {"type": "function_call_output", "call_id": use.call_id, "output": text, "status": "completed"}
        return Opaque(PROTOCOL, item)

    # --- towards servers --------------------------------------------------------------------------------------------

    write_request = staticmethod(write_request)
    own_body = staticmethod(own_body)
    known_fields = staticmethod(known_fields)
    reader = staticmethod(ResponsesReader)
    read_usage = staticmethod(read_usage)

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        return read_reply(body, note)

    def is_silent(self, name: str | None, value: Mapping[str, Any]) -> bool:
        """True for the events that announce a response."""
        return type_of(name, value) in _ANNOUNCED

    def is_end(self, name: str | None, data: bytes) -> bool:
        return frame_type(name, data) in ENDS
