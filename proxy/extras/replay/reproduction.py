"""Runs a capture again: sends the recorded request through this gateway, with a backend that returns the recorded
responses.

Nothing is sent to any server. Ids and times differ from run to run and are not compared.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import orjson
from aiohttp import ClientError
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from ...config import DEFAULT_CHAIN, BackendConfig, LimitsConfig
from ...observability.redaction import Redaction
from ...registry import registries
from ..capture.files import CapturedExchange
from ..capture.masking import harmless_headers
from ..capture.recorded_backend import NOWHERE, RecordedBackend, replayable
from ..capture.recording import RecordingError

_IDS: Final = re.compile(rb"\b(?:chatcmpl-|[a-z]{2,5}_)[0-9A-Za-z]{16,}\b|\bfc_[0-9]{3,}\b")
"""Ids as the protocols make them: a short word that names the type, and random letters."""
_TIMES: Final = re.compile(rb'("(?:created|created_at|completed_at)": ?)[0-9.]+')
_COMMENT: Final = re.compile(rb"(?m)^: ?keep-alive\n\n")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The result of a replay. `recorded` and `again` are the bodies of both responses. `left_out`: middlewares outside
    of the default chain and server-side tools, which were not run."""

    recorded: bytes
    again: bytes
    status: int
    left_out: tuple[str, ...]
    cut_short: bool

    @property
    def same(self) -> bool:
        """True if the client would get the same response; if the client did not wait for the end, the same begin."""
        before, now = self._settled()
        return now.startswith(before) if self.cut_short else now == before

    @property
    def difference(self) -> tuple[int, bytes, bytes] | None:
        """The position of the first difference, and both texts there, with ids and times normalized; None if there is
        none."""
        before, now = self._settled()
        if self.same:
            return None
        at = next(
            (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
        return at, before[at : at + 80], now[at : at + 80]

    def _settled(self) -> tuple[bytes, bytes]:
        """Returns both bodies in normalized form; secrets were replaced in the recorded one."""
        return settled(self.recorded), settled(Redaction().data(self.again))


def settled(body: bytes) -> bytes:
    """Returns the body with ids numbered in order of appearance, times set to zero, and keep-alive comments removed."""
    known: dict[bytes, bytes] = {}

    def numbered(match: re.Match[bytes]) -> bytes:
        return known.setdefault(match[0], b"id-%d" % len(known))

    return _COMMENT.sub(b"", _TIMES.sub(rb"\g<1>0", _IDS.sub(numbered, body)))


def reproduce(captured: CapturedExchange) -> Reproduction:
    """Runs a capture again. Raises `RecordingError` if it is incomplete or contains too little."""
    return asyncio.run(reproduced(captured))


async def reproduced(captured: CapturedExchange) -> Reproduction:
    """Runs a capture again in the running event loop; see `reproduce`."""
    from ...app import create_app  # imported here, because programs that only read captures need no gateway

    body = captured.bytes_of("request")
    if not captured.complete:
        raise RecordingError(f"{captured.head['left_out_bytes']} bytes were left out; raise capture.exchange_bytes")
    if not body or "config" not in captured.head:
        raise RecordingError("the gateway refused the request, so the capture does not hold it")
    settings, backend = captured.head["config"], dict(captured.head.get("backend", {}))
    plugins = registries()
    endpoint = captured.head.get("endpoint")
    if endpoint is not None and endpoint not in {side.name for side in plugins.client_sides().sides}:
        raise RecordingError(f"the request was passed through unread at {captured.head.get('path')}")
    kind = backend.pop("kind", BackendConfig().kind)
    if kind not in plugins.backends.names():
        raise RecordingError(f"the kind of backend {kind!r} is not installed here")
    if kind not in plugins.servers.names():
        raise RecordingError(
            f"answers of a backend of the kind {kind!r} are not recorded as bytes, so they cannot be run again"
        )
    if _resumes(body):
        raise RecordingError("the request continues a stored response")
    calls = list(replayable(captured.calls))
    chain, left_out = _chain(settings["chain"])
    if any(entry.kind == "tool" for entry in captured.entries):
        left_out += ("server-side tools",)
    protocol = plugins.servers.get(kind)

    def replayed(name: str, config: BackendConfig, limits: LimitsConfig) -> RecordedBackend:
        return RecordedBackend(name, replace(config, kind=kind), limits, protocol(), calls)

    plugins.backends.register("replayed", replayed)
    app = create_app(
        {
            "backends": {"recorded": {**backend, "url": NOWHERE, "kind": "replayed", "identify_s": 0}},
            "limits": settings["limits"],
            "defaults": settings["defaults"],
            "chain": chain,
            "routes": [{"model": "*", "backend": "recorded", "upstream_model": settings["upstream_model"]}],
            "store": {"kind": "memory"},
        },
        plugins=plugins,
    )
    headers = {**harmless_headers(captured.head.get("headers", {})), "X-Request-Id": captured.head["request_id"]}
    for unwanted in ("content-encoding", "transfer-encoding"):
        headers.pop(unwanted, None)
    try:
        path = URL(captured.head["path"])
        if path.absolute or not path.path.startswith("/"):
            raise RecordingError(f"{captured.head['path']!r} is not a path")
        async with (
            TestClient(TestServer(app)) as client,
            client.post(path, data=body, headers=headers) as response,
        ):
            again = await response.read()
    except ClientError as error:
        raise RecordingError(f"the request cannot be sent: {error}") from error
    cut_short = captured.end.get("code") == "client_closed_request"
    return Reproduction(captured.bytes_of("output"), again, response.status, left_out, cut_short)


def _resumes(body: bytes) -> bool:
    """Returns True if a request needs the store."""
    try:
        request = orjson.loads(body)
        items = request.get("input")
        refers = isinstance(items, list) and any(item.get("type") == "item_reference" for item in items)
    except (ValueError, AttributeError):
        return False  # the gateway reports the mistake
    return refers or request.get("previous_response_id") is not None


def _chain(used: Iterable[str]) -> tuple[list[str], tuple[str, ...]]:
    known = [name for name in used if name in DEFAULT_CHAIN]
    return known, tuple(name for name in used if name not in DEFAULT_CHAIN)
