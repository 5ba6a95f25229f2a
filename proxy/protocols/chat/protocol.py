"""The protocol OpenAI Chat Completions, between clients and the gateway and between the gateway and model servers.

`ChatProtocol` is both halves (`base.ClientSide`, `base.ServerSide`). Each method is a pure function or a small state
machine from a module beside this one, usable without the server (R4.6):

    chat = ChatProtocol()
    request = chat.read_request(body, raw)      # ModelRequest; ClientFault if the form is wrong
    body = chat.write_request(request)          # JSON object for a chat backend
    reply = chat.read_reply(answer)             # ModelReply; BackendFault if it is invalid
    events = chat.reader(frame_bytes=1 << 20).feed(data)

`request.py` reads requests, `request_writer.py` writes them; `reply.py` reads and writes whole answers and holds what
whole and streamed answers share; `reader.py` reads streams, `writer.py` writes them. The docstrings of the last four
list what the protocol cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import GatewayError
from ...model import ModelReply, ModelRequest, Usage
from ..base import ClientSide, ListedModel, ServerSide
from ..shared import openai
from ..shared.mending import Mending
from ..shared.noise import Note, ignore_note, in_chat, of_frame, with_deltas
from ..shared.numbers import MAX_CHOICES
from ..shared.request_schema import RequestSchema
from ..shared.wire import load
from ..streams import StreamReader, StreamWriter, WriteOptions
from .mending import mended
from .opaque import OPAQUE, REASONING
from .reader import ChatReader
from .reply import read_reply, read_usage, write_reply
from .request import code_of, read_request
from .request_writer import write_request
from .writer import ChatWriter

DONE: Final = b"[DONE]"
_FINISHED: Final = re.compile(rb'"finish_reason": ?"')


class ChatProtocol(ClientSide, ServerSide):
    """The client side and server side of Chat Completions. Its only state is the compiled request schema, made on first
    use."""

    name = "chat"
    path = "/chat/completions"
    items_field = "messages"
    content_type = "text/event-stream; charset=utf-8"
    api = "toolwire.protocols:schemas/chat_api.json"
    example: Mapping[str, Any] = {
        "messages": [{"role": "user", "content": "Look."}],
        "tools": [openai.TOOL],
        "stream": True,
    }
    inline_thinking = True
    no_storage_message = (
        "This gateway does not store chat completions, so they cannot be listed, read, changed or deleted."
    )
    counts_on_demand = True
    opaque_on_calls = True
    opaque_fields = frozenset(OPAQUE)
    reasoning_names = REASONING
    end_marks = (DONE,)
    usual = b'"delta":{'
    stops = 4
    results_are_text = True
    time_header = openai.TIME_HEADER
    limit_fields = ("max_tokens", "max_completion_tokens")

    def __init__(self) -> None:
        self._shape = RequestSchema("chat_request", code_of)

    # --- towards clients --------------------------------------------------------------------------------------------

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Returns the request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R2, R3.1)."""
        return read_request(body, raw, self._shape)

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """Returns a refused body with its odd fields mended; see `ClientSide.mended`."""
        return mended(body, mending)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Returns a writer for one streamed answer (R7.5 to R7.10)."""
        return ChatWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """Returns the body of a whole answer (R7.1 to R7.4)."""
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

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns an entry of `reasoning_details` with the sealed text."""
        return {"reasoning_details": [{"type": "reasoning.encrypted", "data": sealed, "format": "unknown"}]}

    def carried_call(self, sealed: str) -> Mapping[str, Any]:
        """Returns the field of Gemini's signature with the sealed text."""
        return {"extra_content": {"google": {"thought_signature": sealed}}}

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Returns the key as a bearer token."""
        return openai.headers(api_key)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """Returns the JSON object for a chat backend, with tools in the nested form."""
        return write_request(request)

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns Gemini's signature of a call and `reasoning_details`, which servers require back."""
        return {key: value for key, value in fields.items() if key in OPAQUE}

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        """Returns the reply in a whole answer. Raises `BackendFault`, or `ClientFault` `context_length_exceeded` if the
        body says so."""
        return read_reply(body, choices, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = ignore_note) -> StreamReader:
        """Returns a reader for one streamed answer."""
        return ChatReader(frame_bytes, choices, note)

    def is_empty_frame(self, name: str | None, data: bytes) -> bool:
        """True for noise and for chunks with only a role or empty text."""
        return self.left_out(name, data) is not None or is_empty_frame(name, data)

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """Returns the kind of noise of a frame, or None; see `ServerSide.left_out`."""
        return of_frame(in_chat, name, data)

    def shown(self, data: bytes) -> bytes:
        """Returns the chunk with a `delta` in each choice."""
        return with_deltas(data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """True for `[DONE]`."""
        return data.strip() == DONE

    def missing_end(self, tail: bytes) -> bytes | None:
        """Returns `[DONE]` for a stream that ended after a finish reason, as some servers' do; otherwise None."""
        return missing_end(tail)

    def read_usage(self, usage: Any) -> Usage | None:
        """Returns the token counts in a `usage` object; None if it holds none."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """Returns message and code of OpenAI's error object, or of the forms that other servers use."""
        return openai.read_refusal(body)


def is_done(data: bytes) -> bool:
    """True if the data of a frame is the end marker `[DONE]`."""
    return data.strip() == DONE


def missing_end(tail: bytes) -> bytes | None:
    """Returns `[DONE]` for a stream whose last bytes have a finish reason; otherwise None."""
    return b"data: [DONE]\n\n" if _FINISHED.search(tail) is not None else None


def is_empty_frame(name: str | None, data: bytes) -> bool:
    """True if a frame is a chunk without text, calls, error and finish reason."""
    try:
        value = load(data)
    except ValueError:
        return False
    if name is not None or not isinstance(value, dict) or value.get("error") or value.get("object") == "error":
        return False
    choices = value.get("choices")
    return isinstance(choices, list) and all(map(_is_silent, choices))


def _is_silent(choice: Any) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("text"):
        return False
    delta = choice.get("delta") or {}
    return isinstance(delta, dict) and not any(value for key, value in delta.items() if key != "role")
