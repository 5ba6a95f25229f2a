"""OpenAI Chat Completions, read and written, towards clients and towards backends.

`ChatProtocol` is both halves (`base.ClientSide`, `base.ServerSide`); each method is one pure function or one small
state machine of a module beside this one, usable without the server (R4.6):

    from toolwire.protocols.chat.protocol import ChatProtocol
    chat = ChatProtocol()
    request = chat.read_request(body, raw)      # ModelRequest; ClientFault if the shape is wrong
    body = chat.write_request(request)          # JSON object for a chat backend
    reply = chat.read_reply(answer)             # ModelReply; BackendFault if it is none
    events = chat.reader(frame_bytes=1 << 20).feed(data)

`request.py` requests in · `request_writer.py` requests out · `reply.py` whole answers and shared words · `reader.py`
streams in · `writer.py` streams out. What the protocol cannot express stands in the docstrings of those four.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolwire.errors import GatewayError
from toolwire.model import ModelReply, ModelRequest, Usage
from toolwire.protocols.base import ClientSide, ListedModel, ServerSide, StreamReader, StreamWriter, WriteOptions
from toolwire.protocols.chat.mending import mended
from toolwire.protocols.chat.opaque import OPAQUE, REASONING
from toolwire.protocols.chat.reader import ChatReader
from toolwire.protocols.chat.reply import read_reply, read_usage, write_reply
from toolwire.protocols.chat.request import code_of, read_request
from toolwire.protocols.chat.request_writer import write_request
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.shared import openai
from toolwire.protocols.shared.mending import Mending
from toolwire.protocols.shared.noise import Note, in_chat, of_frame, unnoted, with_deltas
from toolwire.protocols.shared.numbers import MAX_CHOICES
from toolwire.protocols.shared.request_schema import RequestSchema
from toolwire.protocols.shared.wire import load

DONE: Final = b"[DONE]"
_FINISHED: Final = re.compile(rb'"finish_reason": ?"')


class ChatProtocol(ClientSide, ServerSide):
    """The chat wire form. Holds nothing but the compiled request schema, which is made on first use."""

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
    unkept = "Chat completions are not kept here, so none can be listed, read, changed or deleted."
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
        """The request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R2, R3.1)."""
        return read_request(body, raw, self._shape)

    def mended(self, body: Mapping[str, Any], mending: Mending) -> Mapping[str, Any]:
        """See `ClientSide.mended`."""
        return mended(body, mending)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """A writer for one streamed answer (R7.5 to R7.10)."""
        return ChatWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """The body of a whole answer (R7.1 to R7.4)."""
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

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """An entry of `reasoning_details`."""
        return {"reasoning_details": [{"type": "reasoning.encrypted", "data": sealed, "format": "unknown"}]}

    def carried_call(self, sealed: str) -> Mapping[str, Any]:
        """Where Gemini's signature stands."""
        return {"extra_content": {"google": {"thought_signature": sealed}}}

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The key as bearer token."""
        return openai.headers(api_key)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object for a chat backend, tools in the nested shape."""
        return write_request(request)

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Gemini's signature of a call, which its server demands back."""
        return {key: value for key, value in fields.items() if key in OPAQUE}

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
        """A whole answer. Raises `BackendFault`, or `ClientFault` `context_length_exceeded` if the body says so."""
        return read_reply(body, choices, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = unnoted) -> StreamReader:
        """A reader for one streamed answer."""
        return ChatReader(frame_bytes, choices, note)

    def says_nothing(self, name: str | None, data: bytes) -> bool:
        """A role, or empty text."""
        return self.left_out(name, data) is not None or says_nothing(name, data)

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """See `ServerSide.left_out`."""
        return of_frame(in_chat, name, data)

    def shown(self, data: bytes) -> bytes:
        """With a delta in each choice."""
        return with_deltas(data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """`[DONE]`."""
        return data.strip() == DONE

    def missing_end(self, tail: bytes) -> bytes | None:
        """Some servers leave out `[DONE]`: a finish reason says as much."""
        return missing_end(tail)

    def read_usage(self, usage: Any) -> Usage | None:
        """Counts in this protocol's words."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """OpenAI's error envelope, and what servers write in its place."""
        return openai.read_refusal(body)


def is_done(data: bytes) -> bool:
    """Whether the data of a frame are the end marker."""
    return data.strip() == DONE


def missing_end(tail: bytes) -> bytes | None:
    """See `ServerSide.missing_end`."""
    return b"data: [DONE]\n\n" if _FINISHED.search(tail) is not None else None


def says_nothing(name: str | None, data: bytes) -> bool:
    """See `ServerSide.says_nothing`."""
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
