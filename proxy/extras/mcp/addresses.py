"""The HTTP client with which a server is asked that has an address. Runs in the host.

1. Certificates are checked, by what the system trusts; proxies are those of the environment only with `trust_env`.
2. Redirects never carry headers elsewhere: the SDK follows those that stay with the same scheme, host and port.
3. A body is bounded while it is read, and must not be compressed, so that no small answer becomes a large one.
4. An answer that stands still for five minutes ends the connection; the stream of events that a server may keep open
   for ever does not.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Final

import httpx2

from toolwire import __version__
from toolwire.extras.mcp.pipes import MAX_MESSAGE_BYTES

CONNECT_S: Final = 30.0
SILENCE_S: Final = 300.0


class BoundedBody(httpx2.AsyncByteStream):
    """A body of at most so many bytes. Raises `httpx2.DecodingError` for a larger one."""

    def __init__(self, body: httpx2.AsyncByteStream, most: int) -> None:
        self._body = body
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for piece in self._body:
            left -= len(piece)
            if left < 0:
                raise httpx2.DecodingError(f"the answer has more than {self._most} bytes")
            yield piece

    async def aclose(self) -> None:
        """See `httpx2.AsyncByteStream`."""
        await self._body.aclose()


def http_client(headers: Mapping[str, str], *, trust_env: bool) -> httpx2.AsyncClient:
    """A client for one server."""

    async def asked(request: httpx2.Request) -> None:
        if request.method == "GET":
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}

    async def answered(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the answer is compressed, which was not asked for")
        events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not events and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = BoundedBody(response.stream, MAX_MESSAGE_BYTES)

    said = httpx2.Headers({"User-Agent": f"toolwire/{__version__}"})
    said.update(headers)  # each once, in whatever letters it is given
    said["Accept-Encoding"] = "identity"
    return httpx2.AsyncClient(
        headers=said,
        timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S),
        verify=ssl.create_default_context(),
        trust_env=trust_env,
        event_hooks={"request": [asked], "response": [answered]},
    )
