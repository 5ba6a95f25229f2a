"""Runs a capture again: the recorded request through this gateway, in front of a model server that answers what was
recorded.

Nothing is sent anywhere. What differs from run to run, ids and times, is not compared.
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

from ..capture.files import Captured
from ..capture.recorded_backend import NOWHERE, RecordedBackend, replayable
from ..capture.recorder import harmless
from ..capture.recording import RecordingError
from ..capture.redaction import Redaction
from ..config import DEFAULT_CHAIN, BackendConfig, LimitsConfig
from ..registry import registries

_IDS: Final = re.compile(rb"\b(?:chatcmpl-|(?:call|fc|ctc|msg|rs|resp|req)_)[0-9A-Za-z]{16,}\b|\bfc_[0-9]{3,}\b")
_TIMES: Final = re.compile(rb'("(?:created|created_at|completed_at)": ?)[0-9.]+')
_COMMENT: Final = re.compile(rb"(?m)^: ?keep-alive\n\n")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came of it. `recorded` and `again` are the bodies of both answers. `left_out`: what was not run again:
    middlewares that are not of the default chain, server-side tools."""

    recorded: bytes
    again: bytes
    status: int
    left_out: tuple[str, ...]
    cut_short: bool

    @property
    def same(self) -> bool:
        """The client got the same; of an answer that the client did not wait for, as far as it went."""
        before, now = self._settled()
        return now.startswith(before) if self.cut_short else now == before

    @property
    def difference(self) -> tuple[int, bytes, bytes] | None:
        """Where the two differ first, and what stands there, once ids and times are made equal."""
        before, now = self._settled()
        if self.same:
            return None
        at = next(
            (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
        return at, before[at : at + 80], now[at : at + 80]

    def _settled(self) -> tuple[bytes, bytes]:
        """Both in the form in which they are compared: what looks secret was covered in the recorded one."""
        return settled(self.recorded), settled(Redaction().data(self.again))


def settled(body: bytes) -> bytes:
    """The same with ids numbered in order of appearance, times at zero, and without signs of life."""
    known: dict[bytes, bytes] = {}

    def numbered(found: re.Match[bytes]) -> bytes:
        return known.setdefault(found[0], b"id-%d" % len(known))

    return _COMMENT.sub(b"", _TIMES.sub(rb"\g<1>0", _IDS.sub(numbered, body)))


def reproduce(captured: Captured) -> Reproduction:
    """Run it again. Raises `RecordingError` if it cannot be: it is not whole, or says too little."""
    return asyncio.run(reproduced(captured))


async def reproduced(captured: Captured) -> Reproduction:
    """See `reproduce`."""
    from ..app import create_app  # here: whoever only reads captures needs no gateway

    body = captured.bytes_of("request")
    if not captured.complete:
        raise RecordingError(f"{captured.head['left_out_bytes']} bytes were left out; raise capture.exchange_bytes")
    if not body or "config" not in captured.head:
        raise RecordingError("the request was refused before it was read")
    settings, backend = captured.head["config"], dict(captured.head.get("backend", {}))
    plugins = registries()
    kind = backend.pop("kind", BackendConfig().kind)
    if kind not in plugins.servers.names():
        raise RecordingError(f"answers of a backend of the kind {kind!r} have no bytes to run again")
    if _resumes(body):
        raise RecordingError("the request goes on from a stored response")
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
            "backends": {"recorded": {**backend, "url": NOWHERE, "kind": "replayed"}},
            "limits": settings["limits"],
            "defaults": settings["defaults"],
            "chain": chain,
            "routes": [{"model": "*", "backend": "recorded", "upstream_model": settings["upstream_model"]}],
            "store": {"kind": "memory"},
        },
        plugins=plugins,
    )
    headers = {**harmless(captured.head.get("headers", {})), "X-Request-Id": captured.head["request_id"]}
    for unwanted in ("content-encoding", "transfer-encoding"):
        headers.pop(unwanted, None)
    try:
        path = URL(captured.head["path"])
        if path.absolute or not path.path.startswith("/"):
            raise RecordingError(f"{captured.head['path']!r} is no path")
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
    """Whether the store is needed to understand a request."""
    try:
        request = orjson.loads(body)
        items = request.get("input")
        refers = isinstance(items, list) and any(item.get("type") == "item_reference" for item in items)
    except (ValueError, AttributeError):
        return False  # the gateway will say what is wrong with it
    return refers or request.get("previous_response_id") is not None


def _chain(used: Iterable[str]) -> tuple[list[str], tuple[str, ...]]:
    known = [name for name in used if name in DEFAULT_CHAIN]
    return known, tuple(name for name in used if name not in DEFAULT_CHAIN)
