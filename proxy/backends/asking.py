"""What the gateway itself asks a model server: whether it is up, which models it has, what it is (docs/adr/0021), and
how many tokens a prompt has.

Rules:

1. Only the server itself is asked, under its own address: whoever else it leads to must not see the key.
2. Every answer is bounded in bytes and, with all that it takes to get it, in time.
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

from ..config import BackendConfig
from ..errors import BackendFault, GatewayError
from ..model import EMPTY, ModelRequest
from ..protocols.base import ServerSide
from ..protocols.wire import BOUNDS, dumper
from ..support.bounded_json import loads
from ..support.offload import OFFLOAD_BYTES, is_large, is_long, offload
from .hops import HEADER, HOPS
from .identity import Identity, Probe, is_stranger, probes_for, read_listed
from .model_list import model_names, no_list, read_model_list
from .presets import OPENAI_HOST
from .private import Private
from .sessions import BodyInPieces, broken
from .tokenizing import Ask

T = TypeVar("T")

PROBE_S: Final = 2.0
"""Limit for each of the questions."""

PROBE_BYTES: Final = 1024 * 1024
"""So much a server may say about itself at one path."""

COUNT_S: Final = 10.0
"""Limit for the count of a prompt's tokens."""

_SILENCE: Final = object()

API_VERSION: Final = re.compile(r"v\d+[a-z0-9]*")
"""The segment of a path that is the version of an API."""


class Asking:
    """Questions to the server whose API is at `base`, asked with `headers` through `session`. Its list of models has at
    most `list_bytes`; what is `private` is in no answer."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base: URL,
        headers: Mapping[str, str],
        config: BackendConfig,
        *,
        list_bytes: int,
        private: Private,
    ) -> None:
        self._session = session
        self._base = base
        self._config = config
        self._list_bytes = list_bytes
        self._private = private
        self._hop = headers.get(HEADER)
        self._unknown: Identity | None = None
        """What the list said of a server that is of no known engine: while it says the same nothing else is asked."""
        self._complete: tuple[Identity, Identity] | None = None
        """The identity by the list, and the one by all probes, of the last time that every probe was answered."""

    async def ready(self) -> bool:
        """See `Backend.ready`: any answer below 500 on the health path, or on the model list."""
        path = self._config.health_path
        url = self._base.joinpath("models") if path is None else self._base.join(URL(path))
        try:
            async with asyncio.timeout(PROBE_S), self._get(url) as response:
                return response.status < 500
        except (aiohttp.ClientError, OSError):
            return False

    async def models(self) -> list[str]:
        """See `Backend.models`."""
        return [name for name in model_names(await self._list()) if self._may_be_shown(name)]

    async def identify(self) -> Identity:
        """What the server says it is: the list of its models, and what its engine's own paths say, in `PROBE_S`
        altogether. Raises `BackendFault` if it cannot be reached, or is no model server."""
        deadline = asyncio.get_running_loop().time() + PROBE_S
        listed: Any = None
        fault: BackendFault | None = None
        try:
            listed = await self._list()
        except BackendFault as error:
            if error.upstream_status != 404 and error.code != "upstream_invalid_response":
                raise
            fault = error  # TGI of old has no such list
        said = read_listed(listed)
        if said != self._unknown and not is_stranger(listed) and self._base.host != OPENAI_HOST:
            said = await self._of_engine(said, deadline)
        if fault is not None and said.engine is None:
            raise fault
        return self._without_secrets(said)

    async def count(self, wire: ServerSide, request: ModelRequest, headers: Mapping[str, str]) -> int | None:
        """The tokens of a prompt, by the path that the server's protocol has for that, asked with these further
        `headers`; None: it cannot say."""
        assert wire.count_path is not None
        url = self._base.joinpath(wire.count_path.lstrip("/"))

        async def ask() -> Any:
            body = await offload(is_large(request), wire.write_counted, request)
            return await self._post(url, body, headers)

        return await self._counted(ask, wire.read_count)

    async def of_engine(self, way: Callable[[Ask], Awaitable[T | None]], seconds: float = COUNT_S) -> T | None:
        """The answer of the engine's own paths about a prompt, within `seconds`; None: they have none."""
        return await self._counted(lambda: way(self._ask_engine), lambda said: said, seconds)

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
        """The parsed answer; None for any other status than 200, and for more bytes than a list may have."""
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
        """The identity of a server, by its list and its engine's own paths. A server that is too busy to answer all of
        them, and whose list says the same, is what it was."""
        probes = probes_for(listed)
        answers = await asyncio.gather(*(self._probe(probe, deadline) for probe in probes))
        if _SILENCE in answers and self._complete is not None and self._complete[0] == listed:
            return self._complete[1]
        said = listed
        for probe, answer in zip(probes, answers, strict=True):
            if said.engine in (listed.engine, probe.engine):  # the first that is recognised is the one
                said = probe.read(answer, said) or said
        if _SILENCE not in answers:
            self._complete = listed, said
        in_time = asyncio.get_running_loop().time() < deadline
        self._unknown = listed if said.engine is None and in_time else None
        return said

    async def _list(self) -> list[Any]:
        """The list of models."""
        try:
            async with asyncio.timeout(PROBE_S):
                status, body = await self._read(self._base.joinpath("models"), self._list_bytes)
        except TimeoutError:
            message = f"The model server did not give its list of models within {PROBE_S:g} s."
            raise BackendFault(message, code="upstream_disconnected", transient=True) from None
        except (aiohttp.ClientError, OSError) as error:
            raise broken(error) from error
        if status == 404 and self._config.health_path is not None:
            return []  # it has no list, which the operator knows
        if body is None:
            raise no_list()
        return await offload(len(body) > OFFLOAD_BYTES, read_model_list, status, body)

    async def _probe(self, probe: Probe, deadline: float) -> Any:
        """The value at a path of an engine; None if the server has none there, `_SILENCE` if it did not answer."""
        try:
            async with asyncio.timeout_at(deadline):
                status, body = await self._read(engine_url(self._base).joinpath(probe.path), PROBE_BYTES)
            return await _value(body) if status == 200 and body is not None else None
        except ValueError:
            return None
        except (aiohttp.ClientError, OSError):
            return _SILENCE

    async def _read(self, url: URL, most: int) -> tuple[int, bytes | None]:
        """Status and body of what the server has there; no body if it is larger than that."""
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

    def _without_secrets(self, said: Identity) -> Identity:
        version = said.version if said.version is not None and self._may_be_shown(said.version) else None
        models = (
            replace(served, names=tuple(filter(self._may_be_shown, served.names)))
            for served in said.models
            if self._may_be_shown(served.name)
        )
        return replace(said, version=version, models=tuple(models))

    def _may_be_shown(self, name: str) -> bool:
        return not self._private.stands_in(name.encode(errors="replace"))


async def _value(body: bytes) -> Any:
    """The value of an answer. Raises `ValueError`."""
    return await offload(len(body) > OFFLOAD_BYTES, loads, body, BOUNDS)


def engine_url(base: URL) -> URL:
    """Where the paths of the engine itself are: beside that of the API's version, on the same server."""
    segments = base.path.split("/")
    number = next((i for i, segment in enumerate(segments) if API_VERSION.fullmatch(segment)), len(segments))
    return base.with_path("/".join(segments[:number]) or "/")
