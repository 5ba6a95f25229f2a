"""The interface of a client for model servers, and the errors of connections.

`wire_client` implements it for HTTP; `socket_client` for WebSockets, with HTTP for everything else.

Rules for both:

1. Every wait has a limit (R10.3), and the error names the one that was exceeded: connecting, first byte, idle, total.
2. A connection is reused only if its last answer ended without error and was read completely, and nothing arrived after
   it.
3. Error texts contain no addresses.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol

from ...config import Timeouts
from ...errors import BackendFault, GatewayError

CONNECTING: Final = "connecting"
"""Phase of a timeout while the connection is opened: the server has not seen the request."""


OUT_OF_STEP_S: Final = 600.0
"""Time after an unrequested answer during which no connection to that server is reused."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

VERSIONS: Final = frozenset({"1.0", "1.1"})
"""HTTP versions that are accepted in an answer; the parsers accept more."""


class UpstreamAnswer(Protocol):
    """An answer whose head has arrived. Read it with one of `reads`, `read` and `pump`, which raise `BackendFault`."""

    @property
    def status(self) -> int:
        """HTTP status, 200 or above."""

    @property
    def content_type(self) -> str:
        """Media type in lower case, without parameters; empty if the server names none."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields; names are case-insensitive."""

    @property
    def queued_s(self) -> float:
        """Seconds that the request waited for a free connection."""

    @property
    def ended(self) -> bool:
        """True if the answer has ended or failed."""

    def reads(self) -> AsyncIterator[bytes]:
        """Yields the body as it arrives. Data that arrived since the last item is one item."""

    async def read(self, limit: int) -> bytes:
        """Returns the whole body. Raises `BackendFault` if it has more than `limit` bytes."""

    async def pump(self, sink: Callable[[bytes], None]) -> None:
        """Passes each read of a streamed answer to `sink`."""

    def redirect(self, sink: Callable[[bytes], None]) -> None:
        """Replaces the sink of `pump` for all following reads."""

    def pause(self) -> None:
        """Stops reading (back-pressure)."""

    def resume(self) -> None:
        """Continues reading."""

    async def close(self, *, linger_s: float = 0.0) -> None:
        """Keeps the connection for reuse if the answer has ended, or ends within `linger_s`; else closes it. May be
        called twice."""


class UpstreamClient(Protocol):
    """The connections to one model server."""

    async def post(
        self, body: bytes, *, stream: bool, request_id: str, headers: Mapping[str, str] | None = None
    ) -> UpstreamAnswer:
        """Sends a request, with `headers` in addition to the usual ones, and returns the answer after its head. Raises
        `BackendFault`."""

    async def close(self) -> None:
        """Closes all connections. Pending reads fail."""


def shortest(timeouts: Timeouts) -> tuple[float | None, str]:
    """Returns the shorter of the limits for the first byte and in total, in seconds, and the phase that it limits;
    (None, "") if there is none."""
    limits = [(timeouts.first_byte_s, "waiting for the first byte"), (timeouts.total_s, "total")]
    return min(((s, name) for s, name in limits if s is not None), default=(None, ""))


def timed_out(phase: str, seconds: float | None) -> BackendFault:
    """Returns the error for an exceeded limit."""
    return BackendFault(
        f"The model server took too long ({phase}: more than {seconds:g} s).",
        code="upstream_timeout",
        transient=phase == CONNECTING,  # in other phases the server may still be working
    )


def unreachable() -> BackendFault:
    """Returns the error for a failed connection."""
    return BackendFault("The model server cannot be reached.", code="upstream_disconnected", transient=True)


def disconnected() -> BackendFault:
    """Returns the error for a connection that closed before the answer ended."""
    return BackendFault("The model server closed the connection.", code="upstream_disconnected", transient=True)


def is_cut(error: GatewayError) -> bool:
    """True if the server did not send the rest of its stream. The answer may be complete all the same."""
    return error.code in ("upstream_disconnected", "upstream_timeout")


def not_http() -> BackendFault:
    """Returns the error for an answer that is not valid HTTP/1.1."""
    return BackendFault("The model server's answer is not valid HTTP.", code="upstream_invalid_response")


def redirected(status: int) -> BackendFault:
    """Returns the error for a redirect, which is not followed because the backend's key must not be sent elsewhere."""
    return BackendFault(
        f"The model server answered with a redirect (status {status}), which is not followed.",
        hint="Check the backend's `url`.",
    )


def undecodable() -> BackendFault:
    """Returns the error for an answer with an unknown or broken compression."""
    return BackendFault("The model server's answer cannot be decoded.", code="upstream_invalid_response")


def too_large(limit: int) -> BackendFault:
    """Returns the error for an answer with more than `limit` bytes."""
    return BackendFault(f"The model server's answer is larger than {limit} bytes.", code="upstream_invalid_response")


def check_header(name: str, value: str) -> None:
    """Raises `ValueError` for a header field that cannot be sent. Its message does not contain the value."""
    if not _TOKEN.fullmatch(name) or _CONTROL.search(value):
        raise ValueError(f"not an HTTP header: {name!r} (is there a line end in its value?)")
