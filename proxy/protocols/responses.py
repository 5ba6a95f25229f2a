"""OpenAI Responses, read and written, towards clients and towards backends.

`ResponsesProtocol` is the `WireProtocol`; each method is one pure function or one small state machine of a module beside this
one, usable without the server (R4.6).

`responses_request.py` requests · `responses_items.py` items of a conversation · `responses_resource.py` the response object ·
`responses_reply.py` whole answers and their items · `responses_reader.py` streams in · `responses_writer.py` streams out, with
`responses_output.py` for the items in them. What the protocol cannot express stands in their docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import GatewayError
from ..model import ModelReply, ModelRequest
from .base import StreamReader, StreamWriter, WriteOptions
from .numbers import MAX_CHOICES
from .responses_reader import ResponsesReader
from .responses_reply import read_reply, write_reply
from .responses_request import code_of, read_request, write_request
from .responses_writer import ResponsesWriter
from .shape import Shape
from .wire import dump


class ResponsesProtocol:
    """The Responses wire form. Holds nothing but the compiled request schema, which is made on first use."""

    name = "responses"
    path = "/responses"
    content_type = "text/event-stream; charset=utf-8"
    whole_history = False

    def __init__(self) -> None:
        self._shape = Shape("responses_request", code_of)

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """The request in `body`, the parsed JSON of `raw`. Raises `ClientFault` with `param` (R8.1 to R8.4)."""
        return read_request(body, raw, self._shape)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object for a Responses backend."""
        return write_request(request)

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES) -> ModelReply:
        """A whole answer. Raises `BackendFault`, or `ClientFault` `context_length_exceeded` if the body says so."""
        return read_reply(body)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """The body of a whole answer (R8.5)."""
        return write_reply(reply, options)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES) -> StreamReader:
        """A reader for one streamed answer."""
        return ResponsesReader(frame_bytes)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """A writer for one streamed answer (R8.7 to R8.12)."""
        return ResponsesWriter(options)

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """OpenAI's error envelope (R13.1). The request id is in the headers only."""
        return dump(error.envelope())
