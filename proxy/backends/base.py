"""What a backend is: a transport that takes a `ModelRequest` and gives the answer, as wire bytes or as events.

Rules:

1. `open` returns only when the backend has accepted: a refused connection, an error status or a time-out before the first
   byte is raised as `BackendFault` (or the mapped `ClientFault`, R10.8), never returned.
2. An open source must be closed exactly once by whoever holds it; closing early cancels the backend's work (R10.7).
3. Wire bytes are given as they come off the socket, one batch per read, never merged by waiting and never cut.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from ..events import Event, Folding
from ..model import ModelReply, ModelRequest
from ..protocols.base import ServerSide
from ..record import BackendObserver
from .private import Private


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend takes (R10.2)."""

    system_role: bool = True
    developer_role: bool = False
    images: bool = False
    drop_images: bool = False
    images_unknown: bool = False
    """Nobody has said whether it takes images."""
    merge_roles: bool = False
    stream_usage: bool = True
    constrain: str = "none"
    continuation: bool = False
    multiple_choices: bool = False
    extra_parameters: frozenset[str] = frozenset()
    response_format: bool = True
    reasoning_effort: bool = False
    tool_types: frozenset[str] = frozenset({"function"})
    special_tokens: bool = False
    """It can be told to leave special tokens in the text."""


class Source(Protocol):
    """An answer that is coming in."""

    protocol: ServerSide | None
    """Form of the wire bytes; None if there are none (in-process backends)."""
    private: Private
    """What no client may see: whoever reads the wire bytes sees to it."""
    queued_s: float
    """How long the request waited because all connections to the backend were in use."""

    def chunks(self) -> AsyncIterator[bytes]:
        """A streamed answer as wire bytes, one item per read. Only if `protocol` is not None. Raises `BackendFault`."""

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """A streamed answer as wire bytes: give each read to `sink`, from within the event loop's read callback where the
        transport allows, else from this task. Returns at the end of the body. What `sink` raises ends the reading and is
        raised here. Only if `protocol` is not None. Raises `BackendFault`."""

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """From within the `sink` of `pump`: what comes next goes to this one."""

    def pause(self) -> None:
        """Stop reading (back-pressure); may be called from within the `sink` of `pump`. The limit for silence does not run
        meanwhile."""

    def resume(self) -> None:
        """Go on reading."""

    def batches(self) -> AsyncIterator[list[Event]]:
        """A streamed answer as events, one list per read. Never raises for a broken backend: the last event is a
        `Fault` then."""

    async def body(self) -> bytes:
        """A whole answer as wire bytes. Only if `protocol` is not None. Raises `BackendFault`."""

    async def reply(self) -> ModelReply:
        """A whole answer. Raises `BackendFault`."""

    async def close(self) -> None:
        """Give up whatever is still open. May be called twice."""


class Backend(Protocol):
    """One model server."""

    name: str
    capabilities: Capabilities
    protocol: ServerSide | None

    async def start(self) -> None:
        """Acquire resources. Called once, before the first `open`."""

    async def close(self) -> None:
        """Release them."""

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> Source:
        """Send the request. `request.stream` decides which methods of the `Source` may be used. `body`, if given, is the
        wire form of `request` in this backend's protocol and is sent as it is (R1.6). `observer`, if given, is told of the
        wire bytes; it is the caller who tells it of events and of the end."""

    async def ready(self) -> bool:
        """Can it be reached now? For `/ready`; must answer within two seconds."""

    async def models(self) -> list[str]:
        """The model names that it knows; empty if it has no such list. For `/v1/models`, and at the start. Raises `GatewayError` if it
        cannot be asked; must answer within two seconds."""


async def fold_batches(batches: AsyncIterator[list[Event]]) -> ModelReply:
    """The whole reply that a stream amounts to, added up as it comes: of a million events none is kept. Raises the error of a
    `Fault`."""
    folding = Folding()
    async for batch in batches:
        for event in batch:
            folding.feed(event)
    if folding.fault is not None:
        raise folding.fault.error
    return folding.reply()
