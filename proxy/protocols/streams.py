"""Interfaces of readers and writers of streamed answers, and the options of writers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Final, Protocol, runtime_checkable

from ..config import ResponsesConfig
from ..events import BlockKind, Event
from ..model import Message, ModelRequest, dataclass

KEEPALIVE: Final = b": keep-alive\n\n"
"""Comment in a stream of server-sent events that keeps the connection alive (R6.14)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options for writing the answers of one exchange.

    `request` is the request as the client sent it (for echoes, `include_usage`, the model's name). `conversation` is
    its messages with the stored ones before them; None if no store was asked. `created` is Unix seconds. `body` is the
    client's parsed JSON, for protocols that echo the request. `reasoning_tags` enclose reasoning under
    `reasoning_field="inline"`. `responses` configures the Responses protocol. `large`: see `for_large_answer`.
    `made` caches values derived from these options for this answer, by the function that computed them.
    """

    request: ModelRequest
    created: int
    conversation: tuple[Message, ...] | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    reasoning_field: str = "reasoning_content"
    named_stop: bool = False
    reasoning_tags: tuple[str, str] = ("<think>", "</think>")
    responses: ResponsesConfig = field(default_factory=ResponsesConfig)
    large: bool = False
    made: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def for_large_answer(self) -> WriteOptions:
        """Returns the options for writing a large answer: in a thread, in pieces, so that other requests can run in
        between."""
        options = replace(self, large=True)
        object.__setattr__(options, "made", self.made)
        return options


class StreamReader(Protocol):
    """Converts the wire bytes of a streamed answer to events."""

    def feed(self, data: bytes) -> list[Event]:
        """Returns the events of the next bytes, which may be cut anywhere. Everything after a `Fault` is ignored."""

    def finish(self) -> list[Event]:
        """Returns the closing events at the end of the bytes; a `Fault` if the stream broke off (R10.8)."""


class StreamWriter(Protocol):
    """Converts events to the wire bytes of a streamed answer."""

    def feed(self, events: Iterable[Event]) -> bytes:
        """Returns the frames of these events, possibly none. A `Fault` becomes the in-band error and the end marker."""

    def keepalive(self) -> bytes:
        """Returns a frame that keeps the connection alive and that clients ignore."""

    def close(self) -> None:
        """Drops the reference cycles of an answer that did not finish. Nothing is called afterwards."""


@dataclass(frozen=True, slots=True)
class TextFrame:
    """A frame with text of one block, as the bytes around the escaped text: the frame is `head`, text, `tail`. In a
    protocol with numbered frames it is `head`, `number`, `middle`, text, `tail`."""

    head: bytes
    tail: bytes
    number: int = -1
    middle: bytes = b""


@runtime_checkable
class TextWriter(StreamWriter, Protocol):
    """A `StreamWriter` whose frames with plain text may be written by other code (the fast path)."""

    def text_frame(self, block: int) -> TextFrame | None:
        """Returns the frame around the next deltas of `block`, for text that begins and ends with whole characters;
        None if such frames cannot be written from a fixed frame. Valid until the next call of any other method."""

    def wrote(self, block: int, frames: int, text: str) -> None:
        """Tells the writer that this many frames with this text in total were written with `text_frame`."""


class ProseReader(StreamReader, Protocol):
    """A `StreamReader` whose frames with plain text may be read by other code (the fast path): they are chat completion
    chunks, which `ChunkGate` can read."""

    @property
    def open_prose(self) -> tuple[int, BlockKind] | None:
        """The block, and its kind, that the next frame with nothing but text continues; None if such a frame would
        produce other events as well."""
