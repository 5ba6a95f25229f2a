"""OpenAI Chat Completions, read and written, towards clients and towards backends.

`ChatProtocol` is the `WireProtocol`; each method is one pure function or one small state machine of a module beside this
one, usable without the server (R4.6):

    from proxy.protocols.chat import ChatProtocol
    chat = ChatProtocol()
    request = chat.read_request(body, raw)      # ModelRequest; ClientFault if the shape is wrong
    body = chat.write_request(request)          # JSON object for a chat backend
    reply = chat.read_reply(answer)             # ModelReply; BackendFault if it is none
    events = chat.reader(frame_bytes=1 << 20).feed(data)

`chat_request.py` requests · `chat_reply.py` whole answers and shared words · `chat_reader.py` streams in ·
`chat_writer.py` streams out. What the protocol cannot express stands in the docstrings of those four.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import GatewayError
from ..model import ModelReply, ModelRequest
from .base import StreamReader, StreamWriter, WriteOptions
from .chat_reader import ChatReader
from .chat_reply import read_reply, write_reply
from .chat_request import code_of, read_request, write_request
from .chat_writer import ChatWriter
from .numbers import MAX_CHOICES
from .shape import Shape
from .wire import dump


class ChatProtocol:
    """The chat wire form. Holds nothing but the compiled request schema, which is made on first use."""

    name = "chat"
    path = "/chat/completions"
    content_type = "text/event-stream; charset=utf-8"
    whole_history = True

    def __init__(self) -> None:
        self._shape = Shape("chat_request", code_of)

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """The request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R2, R3.1)."""
        return read_request(body, raw, self._shape)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object for a chat backend, tools in the nested shape."""
        return write_request(request)

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES) -> ModelReply:
        """A whole answer. Raises `BackendFault`, or `ClientFault` `context_length_exceeded` if the body says so."""
        return read_reply(body, choices)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """The body of a whole answer (R7.1 to R7.4)."""
        return write_reply(reply, options)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES) -> StreamReader:
        """A reader for one streamed answer."""
        return ChatReader(frame_bytes, choices)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """A writer for one streamed answer (R7.5 to R7.10)."""
        return ChatWriter(options)

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """OpenAI's error envelope (R13.1). The request id is in the headers only."""
        return dump(error.envelope())
