"""The gateway's own queries to a model server: readiness, list of models, identity (docs/adr/0021), and token counts.

Rules:

1. Queries go only to the configured address; redirects are not followed, because the key must not reach another server.
2. Every answer is bounded in bytes, and in the total time that it takes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final, TypeVar

import aiohttp
from yarl import URL

from ...config import BackendConfig
from ...errors import BackendFault, GatewayError
from ...model import EMPTY, ModelRequest
from ...protocols.base import ServerSide
from ...protocols.shared.wire import BOUNDS, dumper
from ...support.bounded_json import loads
from ...support.offload import OFFLOAD_BYTES, is_large, is_long, offload
from ..client.sessions import BodyInPieces, connection_fault
from .hops import HEADER, HOPS, loop_fault
from .identity import Identity, Probe, is_stranger, probes_for, read_listed
from .presets import OPENAI_HOST
from .private_data import PrivateData
from .tokenizing import Ask

T = TypeVar("T")

PROBE_S: Final = 2.0
"""Time limit for each query."""

PROBE_BYTES: Final = 1024 * 1024
"""Maximum size of an answer about the server itself."""

COUNT_S: Final = 10.0
"""Time limit for counting the tokens of a prompt."""

_SILENCE: Final = object()

API_VERSION: Final = re.compile(r"v\d+[a-z0-9]*")
"""The segment of a path that is the version of an API."""


class ServerQueries:
    """Queries to the server whose API is at `base`, sent with `headers` through `session`. Its model list may have
    `list_bytes`. Values that contain secrets of `private` are dropped from the results."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base: URL,
        headers: Mapping[str, str],
        config: BackendConfig,
        *,
        list_bytes: int,
        private: PrivateData,
    ) -> None:
        self._session = session
        self._base = base
        self._config = config
        self._list_bytes = list_bytes
        self._private = private
        self._hop = headers.get(HEADER)
        self._unknown: Identity | None = None
        """Identity, by its model list, of a server of no known engine. While the list stays the same, no other path is
        queried."""
        self._complete: tuple[Identity, Identity] | None = None
        """The last identity for which every probe was answered: by the model list alone, and by all probes."""

    async def ready(self) -> bool:
        """Implements `Backend.ready`: True for any answer below 500 on the health path, or on the model list."""
        path = self._config.health_path
        url = self._base.joinpath("models") if path is None else self._base.join(URL(path))
        try:
            async with asyncio.timeout(PROBE_S), self._get(url) as response:
                return response.status < 500
        except (aiohttp.ClientError, OSError):
            return False

    async def models(self) -> list[str]:
        """Implements `Backend.models`."""
        return [name for name in model_names(await self._list()) if self._may_be_shown(name)]

    async def identify(self) -> Identity:
        """Returns the identity that the server reports in its model list and on the paths of its engine, within
        `PROBE_S` in total. Raises `BackendFault` if it cannot be reached or is no model server."""
        deadline = asyncio.get_running_loop().time() + PROBE_S
        listed: Any = None
        fault: BackendFault | None = None
        try:
            listed = await self._list()
        except BackendFault as error:
            if error.upstream_status != 404 and error.code != "upstream_invalid_response":
                raise
            fault = error  # old versions of TGI have no model list
        identity = read_listed(listed)
        if identity != self._unknown and not is_stranger(listed) and self._base.host != OPENAI_HOST:
            identity = await self._of_engine(identity, deadline)
        if fault is not None and identity.engine is None:
            raise fault
        return self._without_secrets(identity)

    async def count(self, wire: ServerSide, request: ModelRequest, headers: Mapping[str, str]) -> int | None:
        """Returns the tokens of a prompt by the counting path of the server's protocol, with further `headers`; None if
        unknown."""
        assert wire.count_path is not None
        url = self._base.joinpath(wire.count_path.lstrip("/"))

        async def ask() -> Any:
            body = await offload(is_large(request), wire.write_counted, request)
            return await self._post(url, body, headers)

        return await self._counted(ask, wire.read_count)

    async def of_engine(self, query: Callable[[Ask], Awaitable[T | None]], seconds: float = COUNT_S) -> T | None:
        """Returns the result of `query`, which is given a function that posts to the engine's own paths; None on any
        failure, and after `seconds`."""
        return await self._counted(lambda: query(self._ask_engine), lambda result: result, seconds)

    async def _counted(
        self, ask: Callable[[], Awaitable[Any]], read: Callable[[Any], T | None], seconds: float = COUNT_S
    ) -> T | None:
        try:
            async with asyncio.timeout(seconds):
                return read(await ask())
        except (aiohttp.ClientError, OSError, ValueError, GatewayError):
            return None

    async def _ask_engine(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._post(engine_url(self._base).joinpath(path), body)

    async def _post(self, url: URL, body: Mapping[str, Any], further: Mapping[str, str] = EMPTY) -> Any:
        """Returns the parsed answer; None for a status other than 200, or an answer longer than `list_bytes`."""
        headers = {**further, **(self._hop_header() or {}), "Content-Type": "application/json"}
        large = is_long(body)
        sent = BodyInPieces(await offload(large, dumper(large), body))
        received = bytearray()
        async with self._session.post(url, data=sent, allow_redirects=False, headers=headers) as response:
            async for data in response.content.iter_any():
                received += data
                if len(received) > self._list_bytes:
                    return None
        return await _value(bytes(received)) if response.status == 200 else None

    async def _of_engine(self, listed: Identity, deadline: float) -> Identity:
        """Returns the identity by the model list and the engine's own paths. If the server was too busy to answer all
        of them and the list is unchanged, returns the last complete identity."""
        probes = probes_for(listed)
        answers = await asyncio.gather(*(self._probe(probe, deadline) for probe in probes))
        if _SILENCE in answers and self._complete is not None and self._complete[0] == listed:
            return self._complete[1]
        identity = listed
        for probe, answer in zip(probes, answers, strict=True):
            if identity.engine in (listed.engine, probe.engine):  # the first recognised engine counts
                identity = probe.read(answer, identity) or identity
        if _SILENCE not in answers:
            self._complete = listed, identity
        in_time = asyncio.get_running_loop().time() < deadline
        self._unknown = listed if identity.engine is None and in_time else None
        return identity

    async def _list(self) -> list[Any]:
        """Returns the entries of the model list. Raises `BackendFault`."""
        try:
            async with asyncio.timeout(PROBE_S):
                status, body = await self._read(self._base.joinpath("models"), self._list_bytes)
        except TimeoutError:
            message = f"The model server did not give its list of models within {PROBE_S:g} s."
            raise BackendFault(message, code="upstream_disconnected", transient=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise connection_fault(error) from error
        if status == 404 and self._config.health_path is not None:
            return []  # a configured `health_path` means that it has no list
        if body is None:
            raise no_list()
        return await offload(len(body) > OFFLOAD_BYTES, read_model_list, status, body)

    async def _probe(self, probe: Probe, deadline: float) -> Any:
        """Returns the value at a path of an engine; None if the server has none there; `_SILENCE` if it did not
        answer."""
        try:
            async with asyncio.timeout_at(deadline):
                status, body = await self._read(engine_url(self._base).joinpath(probe.path), PROBE_BYTES)
            return await _value(body) if status == 200 and body is not None else None
        except ValueError:
            return None
        except (aiohttp.ClientError, OSError):
            return _SILENCE

    async def _read(self, url: URL, most: int) -> tuple[int, bytes | None]:
        """Returns status and body of an answer; None as the body if it exceeds `most` bytes."""
        body = bytearray()
        async with self._get(url) as response:
            async for data in response.content.iter_any():
                body += data
                if len(body) > most:
                    return response.status, None
            return response.status, bytes(body)

    def _get(self, url: URL) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.get(url, allow_redirects=False, headers=self._hop_header())

    def _hop_header(self) -> dict[str, str] | None:
        hops = HOPS.get()
        return {HEADER: f"{hops}, {self._hop}"} if hops and self._hop else None

    def _without_secrets(self, identity: Identity) -> Identity:
        version = identity.version if identity.version is not None and self._may_be_shown(identity.version) else None
        models = (
            replace(served, names=tuple(filter(self._may_be_shown, served.names)))
            for served in identity.models
            if self._may_be_shown(served.name)
        )
        return replace(identity, version=version, models=tuple(models))

    def _may_be_shown(self, name: str) -> bool:
        return not self._private.occurs_in(name.encode(errors="replace"))


async def _value(body: bytes) -> Any:
    """Parses the body of an answer. Raises `ValueError`."""
    return await offload(len(body) > OFFLOAD_BYTES, loads, body, BOUNDS)


def engine_url(base: URL) -> URL:
    """Returns the base URL of the engine's own paths, which are siblings of the API version (`/v1`)."""
    segments = base.path.split("/")
    number = next((i for i, segment in enumerate(segments) if API_VERSION.fullmatch(segment)), len(segments))
    return base.with_path("/".join(segments[:number]) or "/")


# --- the model list of a server ---------------------------------------------------------------------------------------


MOST_MODELS: Final = 10_000
"""Maximum number of models in one list. All are read whenever a client asks for the models."""

HINT: Final = "Check the backend's `url`: is that a model server with OpenAI's protocol?"


def read_model_list(status: int, body: bytes) -> list[Any]:
    """Returns the entries of the list. Accepts `{"data": [...]}`, or the list alone; null is an empty one. Raises
    `BackendFault` for anything else."""
    if status in (401, 403):
        raise BackendFault(
            f"The model server refused the gateway's key (status {status}).",
            code="upstream_auth",
            hint="Check the backend's `api_key`.",
        )
    if status == 508:
        raise loop_fault()
    if status != 200:
        message = f"The model server answered {status} when it was asked for its models."
        raise BackendFault(message, hint=HINT, upstream_status=status)
    try:
        listed = loads(body, BOUNDS)
    except ValueError:
        raise no_list() from None
    if isinstance(listed, dict) and "data" in listed:
        listed = listed["data"] or []
    if not isinstance(listed, list):
        raise no_list()
    if len(listed) > MOST_MODELS:
        raise BackendFault(
            f"The model server gave a list of more than {MOST_MODELS} models.", code="upstream_invalid_response"
        )
    return listed


def model_names(listed: list[Any]) -> list[str]:
    """Returns the model names in the entries of a list."""
    return [entry["id"] for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def no_list() -> BackendFault:
    """Returns the error for an answer that is no model list."""
    return BackendFault("The model server gave no list of models.", code="upstream_invalid_response", hint=HINT)
