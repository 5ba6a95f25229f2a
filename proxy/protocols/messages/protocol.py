"""Anthropic Messages, read and written, towards clients and towards backends.

`MessagesProtocol` is both halves (`base.ClientSide`, `base.ServerSide`); each method is one pure function or one small
state machine of a module beside this one, usable without the server (R4.6).

`blocks.py` content blocks · `request.py` requests in · `request_writer.py` requests out · `reply.py` whole answers and
shared words · `reader.py` streams in · `writer.py` streams out, with `streamed.py` for the blocks in them · `errors.py`
errors · `ids.py` ids and signatures · `changing_tools.py` tools that come and go in a conversation. What the protocol
cannot express stands in their docstrings; what goes where, in docs/adr/0030.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolwire.errors import GatewayError
from toolwire.formats.engine.toolset import note, note_of
from toolwire.model import ModelReply, ModelRequest, ToolSpec, Usage, fields_of
from toolwire.protocols.base import (
    Allowance,
    ClientSide,
    ListedModel,
    ServerSide,
    StreamReader,
    StreamWriter,
    WriteOptions,
)
from toolwire.protocols.messages.blocks import PART_FIELDS, PROTOCOL
from toolwire.protocols.messages.errors import read_refusal, status_of, write_error, write_limits
from toolwire.protocols.messages.ids import given_id
from toolwire.protocols.messages.mending import mended
from toolwire.protocols.messages.reader import MessagesReader
from toolwire.protocols.messages.reply import read_reply, read_usage, thinking_of, write_reply
from toolwire.protocols.messages.request import BETA, HEADERS, code_of, read_request
from toolwire.protocols.messages.request_writer import COUNTED, write_request
from toolwire.protocols.messages.streamed import frame
from toolwire.protocols.messages.writer import MessagesWriter
from toolwire.protocols.shared import openai
from toolwire.protocols.shared.mending import Mending
from toolwire.protocols.shared.noise import Note, in_messages, of_frame, unnoted
from toolwire.protocols.shared.numbers import MAX_CHOICES
from toolwire.protocols.shared.request_schema import RequestSchema
from toolwire.protocols.shared.wire import dump, load

EARLY: Final = "fine-grained-tool-streaming"
"""The beta that asks for input while it comes: what its name begins with."""
VERSION: Final = "2023-06-01"
"""Of the wire form that is written here."""

_STOPPED: Final = (b'"stop_reason":"', b'"stop_reason": "')


class MessagesProtocol(ClientSide, ServerSide):
    """The Messages wire form. Holds nothing but the compiled request schema, which is made on first use."""

    name = PROTOCOL
    path = "/messages"
    items_field = "messages"
    content_type = "text/event-stream; charset=utf-8"
    api = "toolwire.protocols:schemas/messages_api.json"
    example: Mapping[str, Any] = {
        "max_tokens": 16,
        "messages": [{"role": "user", "content": "Look."}],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": openai.PARAMETERS}],
        "stream": True,
    }
    instructs_anywhere = False
    tells_stop = True
    client_header = "anthropic-version"
    id_header = "request-id"
    field_headers = HEADERS
    count_path = "/messages/count_tokens"
    end_marks = (b"message_stop",)
    usual = b'"type":"content_block_'
    items_in = "content"
    marks_failed_results = True
    model_in = "message"
    bare_reasoning = True
    asks_opaque = True
    brings_reasoning = True
    opaque_fields = frozenset({"signature", "data"})
    images = True
    files = True
    most_temperature = 1.0
    efforts = ("low", "medium", "high", "xhigh", "max")
    limit_fields = ("max_tokens",)

    def __init__(self) -> None:
        self._shape = RequestSchema("messages_request", code_of)

    # --- towards clients --------------------------------------------------------------------------------------------

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """The request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R14.1)."""
        return read_request(body, raw, self._shape)

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """See `ClientSide.mended`."""
        return mended(body, mending)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """A writer for one streamed answer (R14.3)."""
        return MessagesWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """The body of a whole answer (R14.2)."""
        return write_reply(reply, options)

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """Anthropic's error envelope (R13.1)."""
        return write_error(error, request_id)

    def status_of(self, error: GatewayError) -> int:
        """529 says `overloaded` here (R17.9)."""
        return status_of(error)

    def write_limits(self, allowances: Sequence[Allowance], now: float) -> Mapping[str, str]:
        """Anthropic's headers: when all is there again they say as a time of day."""
        return write_limits(allowances, now)

    def read_counted(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Without a limit, which says nothing about what is counted."""
        return self.read_request({"max_tokens": 1, **body}, raw)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """Anthropic's list of models, on one page."""
        edges = {"first_id": models[0].name if models else None, "last_id": models[-1].name if models else None}
        return dump({"data": [_model(model) for model in models], "has_more": False, **edges})

    def write_model(self, model: ListedModel) -> bytes:
        """One entry of that list."""
        return dump(_model(model))

    def wants_arguments_early(self, request: ModelRequest) -> bool:
        """One of the tools says so, or a beta."""
        return EARLY in fields_of(request.protocol_fields, PROTOCOL).get(BETA, "") or _one_is_eager(request.tools)

    def given_id(self, call_id: str) -> str:
        """The gateway's own ids have this protocol's form on the wire, and keep it."""
        return given_id(call_id)

    def wants_opaque(self, request: ModelRequest) -> bool:
        """It wants thinking without its text."""
        return thinking_of(request).get("display") == "omitted"

    def may_reason(self, request: ModelRequest) -> bool:
        """It wants thinking."""
        return bool(request.sampling.reasoning_budget or thinking_of(request))

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """The signature of thinking, or what a redacted block holds."""
        return {"data" if "data" in fields else "signature": sealed}

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The version of the wire form, and the key."""
        return {"anthropic-version": VERSION, **({"x-api-key": api_key} if api_key else {})}

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object for a Messages backend."""
        return write_request(request)

    def write_counted(self, request: ModelRequest) -> dict[str, Any]:
        """What makes up the prompt: a server refuses anything beyond."""
        return {key: value for key, value in write_request(request).items() if key in COUNTED}

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those that the published interface has."""
        return {key: value for key, value in fields.items() if key in PART_FIELDS}

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
        """A whole answer. Raises `BackendFault`, or `ClientFault` if the body says so."""
        return read_reply(body, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = unnoted) -> StreamReader:
        """A reader for one streamed answer."""
        return MessagesReader(frame_bytes, note)

    def says_nothing(self, name: str | None, data: bytes) -> bool:
        """What announces a message."""
        return self.left_out(name, data) is not None or _type_of(name, data) in ("message_start", "ping")

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """See `ServerSide.left_out`."""
        return of_frame(in_messages, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """`message_stop`."""
        return _type_of(name, data) == "message_stop"

    def missing_end(self, tail: bytes) -> bytes | None:
        """A reason to stop says that all was said."""
        return frame("message_stop") if any(mark in tail for mark in _STOPPED) else None

    def read_usage(self, usage: Any) -> Usage | None:
        """Counts in this protocol's words."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """The message of Anthropic's error envelope, and of what servers write in its place."""
        return read_refusal(body)


def _one_is_eager(tools: tuple[ToolSpec, ...]) -> bool:
    """Whether a tool says so; of tools that come again it is known."""
    known: bool | None = note_of(tools, _one_is_eager)
    if known is None:
        eager = any(tool.received.get("eager_input_streaming") is True for tool in tools)
        known = note(tools, _one_is_eager, eager, 0)
    return known


def _model(model: ListedModel) -> dict[str, Any]:
    """An entry. `capabilities` is null: Anthropic's object speaks of features that only its own service has."""
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(model.created)),
        "lifecycle": "active",
        "max_input_tokens": model.context,
        "max_tokens": None,
        "capabilities": None,
    }


def _type_of(name: str | None, data: bytes) -> str | None:
    """The type of an event; none of what is no JSON object."""
    try:
        value = load(data)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    kind = value.get("type", name)
    return kind if isinstance(kind, str) else None
