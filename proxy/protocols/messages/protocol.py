"""The protocol Anthropic Messages, between clients and the gateway and between the gateway and model servers.

`MessagesProtocol` is both halves (`base.ClientSide`, `base.ServerSide`). Each method is a pure function or a small
state machine from a module beside this one, usable without the server (R4.6).

`blocks.py` converts content blocks; `request.py` reads requests, `request_writer.py` writes them; `reply.py` reads and
writes whole answers and holds what whole and streamed answers share; `reader.py` reads streams, `writer.py` writes
them, with `block_streams.py` for their blocks; `errors.py` errors; `ids.py` ids and signatures. Their docstrings list
what the protocol cannot express; reasons: docs/adr/0030.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...model import ModelReply, ModelRequest
from ..base import ClientSide, ListedModel, ServerSide
from ..shared import openai
from ..shared.noise import Note, ignore_note, in_messages
from ..shared.numbers import MAX_CHOICES
from ..shared.wire import dump, frame_type, type_of
from .block_streams import frame
from .blocks import PART_FIELDS, PROTOCOL
from .errors import status_of, write_error, write_limits
from .ids import gateway_call_id
from .reader import MessagesReader
from .reply import read_reply, read_usage, thinking_of, write_reply
from .request import HEADERS, item_of, mended, read_request
from .request_writer import COUNTED, write_request
from .writer import MessagesWriter

VERSION: Final = "2023-06-01"
"""Version of the wire form that is written here."""

_STOPPED: Final = re.compile(rb'"stop_reason": ?"[^"]')


class MessagesProtocol(ClientSide, ServerSide):
    """The client side and server side of Messages."""

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
    system_anywhere = False
    strict_requires_all = False
    binding_fields = (("compaction", "Ask for a summary in a message."),)
    reports_stop_sequence = True
    client_header = "anthropic-version"
    id_header = "request-id"
    field_headers = HEADERS
    count_path = "/messages/count_tokens"
    end_marks = (b"message_stop",)
    usual = b'"type":"content_block_'
    named_frames = True
    items_in = "content"
    marks_failed_results = True
    model_in = "message"
    bare_reasoning = True
    asks_opaque = True
    brings_reasoning = True
    opaque_fields = frozenset({"signature", "data"})
    images = True
    no_images_of = frozenset({"system", "developer"})
    files = True
    most_temperature = 1.0
    warms_cache = True
    efforts = ("low", "medium", "high", "xhigh", "max")
    counted_fields = COUNTED
    limit_fields = ("max_tokens",)

    noise_of = staticmethod(in_messages)

    # --- towards clients --------------------------------------------------------------------------------------------

    read_request = staticmethod(read_request)
    item_of = staticmethod(item_of)
    mended = staticmethod(mended)
    writer = staticmethod(MessagesWriter)
    write_reply = staticmethod(write_reply)
    write_error = staticmethod(write_error)
    status_of = staticmethod(status_of)
    write_limits = staticmethod(write_limits)
    gateway_call_id = staticmethod(gateway_call_id)

    def read_counted(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Returns the request in a body posted to `count_path`, which needs no `max_tokens`."""
        return self.read_request({"max_tokens": 1, **body, "compaction": None}, raw)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        edges = {"first_id": models[0].name if models else None, "last_id": models[-1].name if models else None}
        return dump({"data": [_model(model) for model in models], "has_more": False, **edges})

    def write_model(self, model: ListedModel) -> bytes:
        return dump(_model(model))

    def wants_opaque(self, request: ModelRequest) -> bool:
        """True if the client asks for thinking without its text."""
        return thinking_of(request).get("display") == "omitted"

    def may_hold_opaque(self, request: ModelRequest) -> bool:
        return bool(request.sampling.reasoning_budget or thinking_of(request))

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"data" if "data" in fields else "signature": sealed}

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": api_key} if api_key else {})}

    write_request = staticmethod(write_request)
    reader = staticmethod(MessagesReader)
    read_usage = staticmethod(read_usage)

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {key: value for key, value in fields.items() if key in PART_FIELDS}

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        return read_reply(body, note)

    def is_silent(self, name: str | None, value: Mapping[str, Any]) -> bool:
        """True for `message_start` and `ping`, which come before any content."""
        return type_of(name, value) in ("message_start", "ping")

    def is_end(self, name: str | None, data: bytes) -> bool:
        return frame_type(name, data) == "message_stop"

    def missing_end(self, tail: bytes) -> bytes | None:
        """Returns `message_stop` for a stream that ended after a stop reason; otherwise None."""
        return frame("message_stop") if _STOPPED.search(tail) is not None else None


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
