"""The HTTP client for MCP servers that have a URL. Runs in the host.

1. Certificates are checked against those that the system trusts. Proxies of the environment are used only with
   `trust_env`.
2. Redirects never send headers to another server: the SDK follows only those with the same scheme, host and port. Those
   of a server that a client has named must also stay in the operator's list; a slash at the end may be added.
3. A body is limited while it is read, and compressed bodies are refused, so that a small response cannot become a large
   one.
4. A response that sends nothing for five minutes ends the connection. The event stream that a server may keep open has
   no such limit.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from ... import __version__
from ...support.locations import AllowList
from .frames import HostSettings
from .pipes import MAX_MESSAGE_BYTES, ConnectionFailed

CONNECT_S: Final = 30.0
SILENCE_S: Final = 300.0


class BoundedBody(httpx2.AsyncByteStream):
    """A body of at most `most` bytes. Raises `httpx2.DecodingError` if it is larger."""

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
        """Closes the wrapped body."""
        await self._body.aclose()


def http_client(settings: HostSettings) -> httpx2.AsyncClient:
    """Returns the client for the server of these settings, whose headers are sent with each request."""
    permitted, own = AllowList(settings.permitted), str(httpx2.URL(settings.url or "")).removesuffix("/")

    async def asked(request: httpx2.Request) -> None:
        url = str(request.url)
        if settings.permitted and url.removesuffix("/") != own and permitted.refusal(url) is not None:
            raise ConnectionFailed(f"it redirects to a URL that is not permitted: {url}")
        if request.method == "GET":
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}

    async def answered(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.DecodingError("the answer is compressed, which was not asked for")
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            # The session is forgotten. The SDK knows that only if it does not read the error in the body.
            response.headers.pop("content-type", None)
        events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        if not events and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = BoundedBody(response.stream, MAX_MESSAGE_BYTES)

    all_headers = httpx2.Headers({"User-Agent": f"toolwire/{__version__}"})
    all_headers.update(settings.headers)  # replaces equal names, in any letter case
    all_headers["Accept-Encoding"] = "identity"
    return httpx2.AsyncClient(
        headers=all_headers,
        timeout=httpx2.Timeout(CONNECT_S, read=SILENCE_S),
        verify=ssl.create_default_context(),
        trust_env=settings.trust_env,
        event_hooks={"request": [asked], "response": [answered]},
    )
