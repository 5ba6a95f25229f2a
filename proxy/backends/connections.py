"""The interface of a client for model servers, and what its failures are called.

`wire_client` speaks HTTP; `socket_client` speaks over WebSockets and leaves the rest to it.

Rules for both:

1. Every wait has a limit (R10.3), and the error says which one was passed: connecting, first byte, idle, total.
2. No request is sent on a connection whose last answer is not over, not wholly taken, or failed, or on which a byte
   came after it.
3. An error says nothing of addresses.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol

from ..config import Timeouts
from ..errors import BackendFault

CONNECTING: Final = "connecting"
"""The phase of a time limit in which the server knows nothing of the request."""


OUT_OF_STEP_S: Final = 600.0
"""For so long after an answer that no request asked for, no connection to that server is used twice."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

VERSIONS: Final = frozenset({"1.0", "1.1"})
"""Of HTTP, that an answer may have: the parsers take others as well."""


class Answer(Protocol):
    """One answer whose headers have come. It is read with one of `reads`, `read` and `pump`, which raise
    `BackendFault`."""

    @property
    def status(self) -> int:
        """HTTP status, 200 or above."""

    @property
    def content_type(self) -> str:
        """Media type in lower case, without parameters; empty if the server names none."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields; names are looked up without regard to case."""

    @property
    def queued_s(self) -> float:
        """How long the request waited because all connections were in use."""

    @property
    def ended(self) -> bool:
        """Whether the last byte has come, or nothing more will."""

    def reads(self) -> AsyncIterator[bytes]:
        """The body as it comes; what came while nobody asked is one item."""

    async def read(self, limit: int) -> bytes:
        """The whole body. One of more than `limit` bytes is a fault."""

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """As `WireSource.pump`."""

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """As `WireSource.redirect`."""

    def pause(self) -> None:
        """As `WireSource.pause`."""

    def resume(self) -> None:
        """As `WireSource.resume`."""

    async def close(self, *, linger_s: float = 0.0) -> None:
        """Keep the connection if the answer ended, or ends within `linger_s`; else close it. May be called twice."""


class Client(Protocol):
    """The connections to one model server."""

    async def post(
        self, body: bytes, *, stream: bool, request_id: str, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request, with these header fields besides the usual ones, and wait for the answer's headers. Raises
        `BackendFault`."""

    async def close(self) -> None:
        """Close all connections; whoever reads finds its own closed."""


def shortest(timeouts: Timeouts) -> tuple[float | None, str]:
    """The limit until the headers, and its name."""
    limits = [(timeouts.first_byte_s, "waiting for the first byte"), (timeouts.total_s, "total")]
    return min(((s, name) for s, name in limits if s is not None), default=(None, ""))


def timed_out(phase: str, seconds: float | None) -> BackendFault:
    """The error for a limit that was passed."""
    return BackendFault(
        f"The model server took too long ({phase}: more than {seconds:g} s).",
        code="upstream_timeout",
        transient=phase == CONNECTING,  # else it may still be at work
    )


def unreachable() -> BackendFault:
    """No connection."""
    return BackendFault("The model server cannot be reached.", code="upstream_disconnected", transient=True)


def untrusted() -> BackendFault:
    """No TLS connection."""
    return BackendFault("The model server's certificate is not trusted.", code="upstream_disconnected", transient=True)


def disconnected() -> BackendFault:
    """The connection ended before the answer did."""
    return BackendFault("The model server closed the connection.", code="upstream_disconnected", transient=True)


def not_http() -> BackendFault:
    """The answer breaks the rules of HTTP/1.1."""
    return BackendFault("The model server's answer is not valid HTTP.", code="upstream_invalid_response")


def undecodable() -> BackendFault:
    """The answer's compression is broken or not known."""
    return BackendFault("The model server's answer cannot be decoded.", code="upstream_invalid_response")


def too_large(limit: int) -> BackendFault:
    """A whole answer has more than `limit` bytes."""
    return BackendFault(f"The model server's answer is larger than {limit} bytes.", code="upstream_invalid_response")


def check_header(name: str, value: str) -> None:
    """Raise `ValueError`, which says nothing of the value, for a header field that cannot be sent."""
    if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
        raise ValueError(f"not an HTTP header: {name!r} (is there a line end in its value?)")
