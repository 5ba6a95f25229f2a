"""What a protocol is: one wire form of requests and answers, read and written in one place.

Rules:

1. A protocol never opens a socket, never imports aiohttp or asyncio, and keeps no state outside its readers and writers.
2. Readers are total: a wire frame they do not know becomes `Opaque`, never nothing. Bytes may be cut anywhere.
3. Law: writing then reading is identity for all that the protocol can express; what it cannot is listed in the docstring
   of its module.
4. One owner per counter: indices, sequence numbers and wire ids are allocated by the writer and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from ..config import ResponsesConfig
from ..errors import GatewayError
from ..events import Event
from ..model import Message, ModelReply, ModelRequest
from .numbers import MAX_CHOICES

KEEPALIVE: Final = b": keep-alive\n\n"
"""A comment in a stream of server-sent events: it shows life and means nothing (R6.14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How answers are written for one exchange.

    `request` is the request as the client sent it (for echoes, `include_usage`, the model's name), `conversation` its messages with
    those that a store put before them (None: no store was asked); `created` is Unix seconds. `body` is the client's parsed JSON, for protocols that echo the request. `reasoning_tags` stand around reasoning
    under `reasoning_field="inline"`. `responses` says how the Responses protocol is written.
    """

    request: ModelRequest
    created: int
    conversation: tuple[Message, ...] | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    reasoning_field: str = "reasoning_content"
    named_stop: bool = False
    reasoning_tags: tuple[str, str] = ("<think>", "</think>")
    responses: ResponsesConfig = field(default_factory=ResponsesConfig)


class StreamReader(Protocol):
    """Wire bytes of a streamed answer to events."""

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes, cut anywhere. After a `Fault` was returned everything is ignored."""

    def finish(self) -> list[Event]:
        """The bytes are over. Gives the closing events; a stream that broke off gives a `Fault` (R10.8)."""


class StreamWriter(Protocol):
    """Events to wire bytes of a streamed answer."""

    def feed(self, events: Iterable[Event]) -> bytes:
        """The frames for these events, possibly none. A `Fault` gives the in-band error and the end marker."""

    def keepalive(self) -> bytes:
        """A frame that means nothing to the client but shows life."""


@dataclass(frozen=True, slots=True)
class TextFrame:
    """The bytes around the escaped text in a frame that holds more of one block: `head`, text, `tail`; or, in a protocol whose
    frames are numbered, `head`, the next `number`, `middle`, text, `tail`."""

    head: bytes
    tail: bytes
    number: int = -1
    middle: bytes = b""


@runtime_checkable
class TextWriter(StreamWriter, Protocol):
    """A `StreamWriter` that lets somebody else write the plain text of a block."""

    def text_frame(self, block: int) -> TextFrame | None:
        """How the next deltas of `block` look, as long as their text begins and ends with whole characters; None if that
        cannot be said. Holds until the next call of any other method."""

    def wrote(self, block: int, frames: int, text: str) -> None:
        """So many frames, with this text in all, were written by `text_frame`."""


class WireProtocol(Protocol):
    """One wire form."""

    name: str
    """Short name, `chat`."""
    path: str
    """Path below the base URL, `/chat/completions`."""
    content_type: str
    """Of a streamed answer."""
    whole_history: bool
    """A request holds its whole conversation, so a result without its call is a mistake (R2.8; not so R8.4)."""

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """The request in `body`, the parsed JSON of `raw`. Checks the shape; raises `ClientFault` with `param`."""

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object that asks for the same. `extra` fields are included as they are."""

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES) -> ModelReply:
        """A whole answer. Raises `BackendFault` `upstream_invalid_response`, also for more than so many `choices`, or the error
        that the body holds."""

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """The body of a whole answer."""

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES) -> StreamReader:
        """A reader for one streamed answer. A frame beyond `frame_bytes` is a `Fault`, and so are more than so many `choices`."""

    def writer(self, options: WriteOptions) -> StreamWriter:
        """A writer for one streamed answer."""

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """The body of an HTTP error answer."""
