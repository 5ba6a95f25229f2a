"""What a backend is: a transport that takes a `ModelRequest` and gives the answer, as wire bytes or as events.

Rules:

1. `open` returns only when the backend has accepted: a refused connection, an error status or a time-out before the
   first byte is raised as `BackendFault` (or the mapped `ClientFault`, R10.8), never returned.
2. An open source must be closed exactly once by whoever holds it; closing early cancels the backend's work (R10.7).
3. Wire bytes are given as they come off the socket, one batch per read, never merged by waiting and never cut.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from toolwire.events import Event
from toolwire.folding import Folding
from toolwire.model import ModelReply, ModelRequest
from toolwire.protocols.base import ServerSide
from toolwire.protocols.shared.noise import Note, ignore_note
from toolwire.record import BackendObserver
from toolwire.upstream.client.connections import disconnected
from toolwire.upstream.servers.private import NOTHING, Private


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend takes (R10.2)."""

    system_role: bool = True
    developer_role: bool = False
    late_system: bool | None = None
    """It takes system messages behind others; None: nobody knows."""
    images: bool = False
    refuse_images: bool = False
    """A request with images is refused if it takes none, in place of a note."""
    images_unknown: bool = False
    """Support for images is unknown: they are sent."""
    files: bool | None = None
    """It takes files such as PDF; None: as its protocol has it."""
    merge_roles: bool = False
    stream_usage: bool = True
    constrain: str = "none"
    continuation: bool = False
    multiple_choices: bool = False
    extra_parameters: frozenset[str] = frozenset()
    response_format: frozenset[str] = frozenset({"json_object", "json_schema"})
    """The types of it that it takes."""
    reasoning_effort: bool = False
    tool_types: frozenset[str] = frozenset({"function"})
    own_tools: bool = True
    """Hosted tools that were sent in its own protocol are known to it."""
    client_tools: bool = False
    """Tools that clients run, and send by their types in its own protocol, are known to it."""
    stop_sequences: int | None = None
    """So many `stop` sequences at most; None: as its protocol has it."""
    names_stop: bool = False
    """Its answer says which of the `stop` sequences ended it (R29.5)."""
    choice_objects: bool = True
    """`tool_choice` may be an object, which names tools."""
    max_tokens_field: str | None = None
    """What it calls the limit on an answer, if its protocol has several names for it."""
    short_names: bool = False
    """It takes names of tools of at most 64 characters."""
    default_max_tokens: int | None = None
    """The limit on answers to clients that set none; None: none, or that of the protocol."""
    reasoning_history: str = "reasoning_content"
    """How it calls the text of reasoning in earlier turns; `none`: it refuses such text."""
    special_tokens: bool = False
    """It can be told to leave special tokens in the text."""
    template_choice: Literal["none", "auto"] = "none"
    """The `tool_choice` under which it writes tools into the prompt and leaves the text of the answer alone (R31.1)."""


class EventSource(Protocol):
    """An answer that is coming in, as events: all that a backend needs whose answers are not HTTP.

    `batches` and `close` are to be written; `reply` is there for who inherits from this class. What is raised besides
    `GatewayError` is the backend's own mistake, and ends the request as one of the gateway.
    """

    @abstractmethod
    def batches(self) -> AsyncIterator[list[Event]]:
        """A streamed answer as events, one list per read: `Start`, blocks, and `Finish` at the end. A backend that
        breaks off gives a `Fault` as the last event or raises its `GatewayError`: before anything was said another try
        may follow, if it is `transient`."""

    async def reply(self) -> ModelReply:
        """A whole answer. Raises `GatewayError`."""
        return await fold_batches(self.batches())

    @abstractmethod
    async def close(self) -> None:
        """Give up whatever is still open, so that the backend stops working. May be called twice."""


class WireSource(EventSource):
    """An answer that is coming in as bytes of a protocol, which may pass unread. Whoever can use bytes asks once
    whether an answer is of this class, so a source has to inherit from it."""

    protocol: ServerSide
    """The form of the bytes."""
    private: Private = NOTHING
    """What no client may see: whoever reads the bytes sees to it."""
    queued_s: float = 0.0
    """How long the request waited because all connections to the backend were in use."""
    note: Note = staticmethod(ignore_note)
    """Is told what is odd about the answer."""

    @abstractmethod
    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """A streamed answer: give each read to `sink`, from within the event loop's read callback where the transport
        allows, else from this task. Returns at the end of the body. What `sink` raises ends the reading and is raised
        here. Raises `BackendFault`."""

    @abstractmethod
    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """From within the `sink` of `pump`: what comes next goes to this one."""

    @abstractmethod
    def pause(self) -> None:
        """Stop reading (back-pressure); may be called from within the `sink` of `pump`. The limit for silence does not
        run meanwhile."""

    @abstractmethod
    def resume(self) -> None:
        """Go on reading."""

    @abstractmethod
    async def body(self) -> bytes:
        """A whole answer. Raises `BackendFault`."""

    async def body_in_parts(self) -> AsyncGenerator[bytes, None]:
        """A whole answer as it comes, read no faster than the parts are taken. Raises `BackendFault`."""
        yield await self.body()


class Backend(Protocol):
    """One model server."""

    name: str
    capabilities: Capabilities
    protocol: ServerSide | None = None
    """What it speaks, if its answers come as bytes: then they are `WireSource`s. All servers of a route speak the
    same."""

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
    ) -> EventSource:
        """Send the request. `request.stream` decides which methods of the source may be used: `batches` or `pump`, else
        `reply` or `body`. `body`, if given, is the wire form of `request` in this backend's protocol and is sent as it
        is: what nobody changed is not written anew. `observer`, if given, is told of the wire bytes; it is the caller
        who tells it of events and of the end."""

    async def ready(self) -> bool:
        """Can it be reached now? For `/ready`; must answer within two seconds."""

    async def models(self) -> list[str]:
        """The model names that it knows; empty if it has no such list. For `/v1/models`, and at the start. Raises
        `GatewayError` if it cannot be asked; must answer within two seconds."""
        return []


@runtime_checkable
class TokenCounter(Protocol):
    """A backend that can say how many tokens a prompt has."""

    async def count(self, request: ModelRequest) -> int | None:
        """The tokens of the prompt that `request`, as it would be sent, amounts to; None: it cannot say (R11.6). Does
        not raise `GatewayError`."""

    async def count_text(self, model: str, text: str) -> int | None:
        """The tokens of a text that `model` wrote; as `count`."""


async def fold_batches(batches: AsyncIterator[list[Event]]) -> ModelReply:
    """The whole reply that a stream amounts to, added up as it comes: of a million events none is kept. Raises the
    error of a `Fault`."""
    folding = Folding()
    async for batch in batches:
        for event in batch:
            folding.feed(event)
    if folding.fault is not None:
        raise folding.fault.error
    if folding.finish is None:
        raise disconnected()
    return folding.reply()
