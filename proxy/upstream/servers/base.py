"""The interface of a backend: it takes a `ModelRequest` and returns the answer, as wire bytes or as events.

Rules:

1. `open` returns only after the backend has accepted the request. A refused connection, an error status, or a timeout
   before the first byte is raised as `BackendFault` (or the mapped `ClientFault`, R10.8).
2. The caller of `open` must close the source. Closing early cancels the backend's work (R10.7).
3. Wire bytes are passed on as they arrive, one batch per read: the gateway neither waits to merge reads nor cuts them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from ...events import Event
from ...folding import Folding
from ...model import ModelReply, ModelRequest
from ...protocols.base import ServerSide
from ...protocols.shared.noise import Note, ignore_note
from ...record import BackendObserver
from ..client.connections import disconnected
from .private_data import NOTHING, PrivateData


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The features of a backend, and what it accepts in requests (R10.2)."""

    system_role: bool = True
    developer_role: bool = False
    late_system: bool | None = None
    """It accepts system messages after other messages; None: unknown."""
    user_after_tool: bool = True
    """It accepts a user message right after a result of a tool."""
    images: bool = False
    refuse_images: bool = False
    """A request with images is refused if the backend takes none; otherwise a note replaces them."""
    images_unknown: bool = False
    """Support for images is unknown, so they are sent."""
    files: bool | None = None
    """It accepts files such as PDF; None: as its protocol says."""
    merge_roles: bool = False
    stream_usage: bool = True
    constrain: str = "none"
    continuation: bool = False
    multiple_choices: bool = False
    extra_parameters: frozenset[str] = frozenset()
    response_format: frozenset[str] = frozenset({"json_object", "json_schema"})
    """The types of `response_format` that it accepts."""
    reasoning_effort: bool = False
    tool_types: frozenset[str] = frozenset({"function"})
    own_tools: bool = True
    """It knows hosted tools that were sent in its own protocol."""
    client_tools: bool = False
    """It knows the typed tools of its own protocol that clients run."""
    stop_sequences: int | None = None
    """Maximum number of `stop` sequences; None: as its protocol says."""
    names_stop: bool = False
    """Its answer tells which of the `stop` sequences ended it (R29.5)."""
    choice_objects: bool = True
    """`tool_choice` may be an object that names tools."""
    max_tokens_field: str | None = None
    """The field for the limit on an answer, if its protocol has several."""
    short_names: bool = False
    """Tool names may have at most 64 characters."""
    short_ids: bool = False
    """The ids of calls must have 9 letters or digits (Mistral)."""
    default_max_tokens: int | None = None
    """The limit on answers for clients that set none; None: no limit, or that of the protocol."""
    reasoning_history: str = "reasoning_content"
    """The field for reasoning text in earlier turns; `none`: it refuses such text."""
    special_tokens: bool = False
    """It can be told to leave special tokens in the text."""
    template_choice: Literal["none", "auto"] = "none"
    """The `tool_choice` with which it writes tools into the prompt but does not parse the answer's text (R31.1)."""


class EventSource(Protocol):
    """An answer being received, as events. Sufficient for backends whose answers are not HTTP.

    Subclasses implement `batches` and `close`. They may raise `GatewayError`; any other exception counts as an error of
    the gateway and ends the request.
    """

    @abstractmethod
    def batches(self) -> AsyncIterator[list[Event]]:
        """Yields a streamed answer as lists of events, one list per read: `Start`, blocks, and `Finish` at the end.

        A backend that fails in the middle yields a `Fault` as the last event or raises its `GatewayError`. If nothing
        was sent to the client yet and the error is `transient`, the request may be retried.
        """

    async def reply(self) -> ModelReply:
        """Returns a whole answer. Raises `GatewayError`."""
        return await fold_batches(self.batches())

    @abstractmethod
    async def close(self) -> None:
        """Closes the answer, so that the backend stops working. May be called twice."""


class WireSource(EventSource):
    """An answer being received as bytes of a protocol, which may be forwarded unread. The pipeline checks for this
    class with `isinstance`, so sources must inherit from it."""

    protocol: ServerSide
    """The protocol of the bytes."""
    private: PrivateData = NOTHING
    """Data that must not reach clients. The reader of the bytes has to remove it."""
    queued_s: float = 0.0
    """Seconds that the request waited for a free connection to the backend."""
    converts: bool = False
    """True if a stream came in place of a whole answer, or the reverse, so that the bytes have to be written anew."""
    note: Note = staticmethod(ignore_note)
    """Called with oddities of the answer."""

    @abstractmethod
    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Passes each read of a streamed answer to `sink`, from the event loop's read callback if the transport allows
        it, else from this task. Returns at the end of the body. An exception of `sink` ends the reading and is raised
        here. Raises `BackendFault`."""

    @abstractmethod
    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """Replaces the sink of `pump` for all following reads. Called from within that sink."""

    @abstractmethod
    def pause(self) -> None:
        """Stops reading (back-pressure). May be called from within the sink of `pump`. The idle timeout is
        suspended."""

    @abstractmethod
    def resume(self) -> None:
        """Continues reading."""

    @abstractmethod
    async def body(self) -> bytes:
        """Returns a whole answer. Raises `BackendFault`."""

    async def body_in_parts(self) -> AsyncGenerator[bytes, None]:
        """Yields a whole answer in parts as they arrive, read no faster than they are consumed. Raises
        `BackendFault`."""
        yield await self.body()


class Backend(Protocol):
    """One model server."""

    name: str
    capabilities: Capabilities
    protocol: ServerSide | None = None
    """The protocol of its answers if they come as bytes; then its sources are `WireSource`s. All servers of a route
    have the same."""

    async def start(self) -> None:
        """Acquires resources. Called once, before the first `open`."""

    async def close(self) -> None:
        """Releases all resources."""

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> EventSource:
        """Sends the request and returns the source of its answer.

        If `request.stream` is true, use `batches` or `pump` of the source, else `reply` or `body`. `body`, if not None,
        is `request` in this backend's protocol and is sent unchanged. `observer` gets the wire bytes; the caller
        reports events and the end to it. Raises `BackendFault` or `ClientFault`.
        """

    async def ready(self) -> bool:
        """True if it can be reached now. For `/ready`; must answer within two seconds."""

    async def models(self) -> list[str]:
        """Returns the names of its models; empty if it has no such list. Called for `/v1/models` and at the start. Must
        answer within two seconds; raises `GatewayError` if the server cannot be asked."""
        return []


@runtime_checkable
class TokenCounter(Protocol):
    """A backend that can count the tokens of a prompt."""

    async def count(self, request: ModelRequest) -> int | None:
        """Returns the number of tokens in the prompt of `request` as it would be sent; None if unknown (R11.6). Does
        not raise `GatewayError`."""

    async def count_text(self, model: str, text: str) -> int | None:
        """Returns the number of tokens in a text that `model` wrote; None if unknown."""


async def fold_batches(batches: AsyncIterator[list[Event]]) -> ModelReply:
    """Returns the whole reply of a stream, accumulated event by event. Raises the error of a `Fault`, and
    `BackendFault` if the stream ends without `Finish`."""
    folding = Folding()
    async for batch in batches:
        for event in batch:
            folding.feed(event)
    if folding.fault is not None:
        raise folding.fault.error
    if folding.finish is None:
        raise disconnected()
    return folding.reply()
