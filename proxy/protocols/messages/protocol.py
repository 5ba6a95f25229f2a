"""The protocol Anthropic Messages, between clients and the gateway and between the gateway and model servers.

`MessagesProtocol` is both halves (`base.ClientSide`, `base.ServerSide`). Each method is a pure function or a small
state machine from a module beside this one, usable without the server (R4.6).

`blocks.py` converts content blocks; `request.py` reads requests, `request_writer.py` writes them; `reply.py` reads and
writes whole answers and holds what whole and streamed answers share; `reader.py` reads streams, `writer.py` writes
them, with `streamed.py` for their blocks; `errors.py` errors; `ids.py` ids and signatures; `changing_tools.py` tools
that come and go in a conversation. Their docstrings list what the protocol cannot express; docs/adr/0030 explains the
mapping.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import GatewayError
from ...model import ModelReply, ModelRequest, Usage
from ..base import Allowance, ClientSide, ListedModel, ServerSide
from ..shared import openai
from ..shared.mending import Mending
from ..shared.noise import Note, ignore_note, in_messages, of_frame
from ..shared.numbers import MAX_CHOICES
from ..shared.request_schema import RequestSchema
from ..shared.wire import dump, load
from ..streams import StreamReader, StreamWriter, WriteOptions
from .blocks import PART_FIELDS, PROTOCOL
from .errors import read_refusal, status_of, write_error, write_limits
from .ids import gateway_call_id
from .mending import mended
from .reader import MessagesReader
from .reply import read_reply, read_usage, thinking_of, write_reply
from .request import HEADERS, code_of, read_request
from .request_writer import COUNTED, write_request
from .streamed import frame
from .writer import MessagesWriter

VERSION: Final = "2023-06-01"
"""Version of the wire form that is written here."""

_STOPPED: Final = (b'"stop_reason":"', b'"stop_reason": "')


class MessagesProtocol(ClientSide, ServerSide):
    """The client side and server side of Messages. Its only state is the compiled request schema, made on first use."""

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
    reports_stop_sequence = True
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
        """Returns the request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R14.1)."""
        return read_request(body, raw, self._shape)

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """Returns a refused body with its odd fields mended; see `ClientSide.mended`."""
        return mended(body, mending)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Returns a writer for one streamed answer (R14.3)."""
        return MessagesWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """Returns the body of a whole answer (R14.2)."""
        return write_reply(reply, options)

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """Returns Anthropic's error object (R13.1)."""
        return write_error(error, request_id)

    def status_of(self, error: GatewayError) -> int:
        """Returns the status of an error; that of `overloaded` is 529 (R17.9)."""
        return status_of(error)

    def write_limits(self, allowances: Sequence[Allowance], now: float) -> Mapping[str, str]:
        """Returns Anthropic's headers, with the time of day at which everything is available again."""
        return write_limits(allowances, now)

    def read_counted(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Returns the request in a body posted to `count_path`, which needs no `max_tokens`."""
        return self.read_request({"max_tokens": 1, **body}, raw)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """Returns Anthropic's list of models, on one page."""
        edges = {"first_id": models[0].name if models else None, "last_id": models[-1].name if models else None}
        return dump({"data": [_model(model) for model in models], "has_more": False, **edges})

    def write_model(self, model: ListedModel) -> bytes:
        """Returns one entry of that list."""
        return dump(_model(model))

    def gateway_call_id(self, call_id: str) -> str:
        """Returns the gateway's id of a call, whose form differs in this protocol."""
        return gateway_call_id(call_id)

    def wants_opaque(self, request: ModelRequest) -> bool:
        """True if the client asks for thinking without its text."""
        return thinking_of(request).get("display") == "omitted"

    def may_reason(self, request: ModelRequest) -> bool:
        """True if the client asks for thinking."""
        return bool(request.sampling.reasoning_budget or thinking_of(request))

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the field of a signature, or the data of a redacted block, with the sealed text."""
        return {"data" if "data" in fields else "signature": sealed}

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Returns the version of the wire form, and the key."""
        return {"anthropic-version": VERSION, **({"x-api-key": api_key} if api_key else {})}

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """Returns the JSON object for a Messages backend."""
        return write_request(request)

    def write_counted(self, request: ModelRequest) -> dict[str, Any]:
        """Returns only the fields that make up the prompt: servers refuse others when counting tokens."""
        return {key: value for key, value in write_request(request).items() if key in COUNTED}

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the fields of the published API."""
        return {key: value for key, value in fields.items() if key in PART_FIELDS}

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        """Returns the reply in a whole answer. Raises `BackendFault`, or `ClientFault` if the body says so."""
        return read_reply(body, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = ignore_note) -> StreamReader:
        """Returns a reader for one streamed answer."""
        return MessagesReader(frame_bytes, note)

    def is_empty_frame(self, name: str | None, data: bytes) -> bool:
        """True for noise and for `message_start` and `ping`, which come before any content."""
        return self.left_out(name, data) is not None or _type_of(name, data) in ("message_start", "ping")

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """Returns the kind of noise of a frame, or None; see `ServerSide.left_out`."""
        return of_frame(in_messages, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """True for `message_stop`."""
        return _type_of(name, data) == "message_stop"

    def missing_end(self, tail: bytes) -> bytes | None:
        """Returns `message_stop` for a stream that ended after a stop reason; otherwise None."""
        return frame("message_stop") if any(mark in tail for mark in _STOPPED) else None

    def read_usage(self, usage: Any) -> Usage | None:
        """Returns the token counts in a `usage` object; None if it holds none."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """Returns message and code of Anthropic's error object, or of the forms that other servers use."""
        return read_refusal(body)


def _model(model: ListedModel) -> dict[str, Any]:
    """Returns the object of one model. `capabilities` is null: Anthropic's object lists features that only its own
    service has."""
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
    """Returns the type of an event; None if the data is not a JSON object."""
    try:
        value = load(data)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    kind = value.get("type", name)
    return kind if isinstance(kind, str) else None
