"""Puts questions through the gateway as it would be served: one application, a route for each candidate, all to one
model server.

Rules of this module:

1. What is measured is what is served: the application comes from `create_app` with the default chain, and is asked over
   a socket.
2. It listens on the loopback interface, wants a key that nobody else has, and keeps nothing.
3. An answer that the model server owes is an `Answer` with a `fault`. A request that the gateway itself refuses is a
   mistake in the case, and a `ConfigError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp import web

from toolwire.app import create_app
from toolwire.config import (
    AuthConfig,
    BackendConfig,
    GatewayConfig,
    KeyConfig,
    LimitsConfig,
    RouteConfig,
    RouteOptions,
    ServerConfig,
    StoreConfig,
)
from toolwire.errors import GatewayError
from toolwire.extras.tune.cases import Case
from toolwire.extras.tune.scoring import Answer, Made
from toolwire.formats.model_families import format_for
from toolwire.registry import Registries
from toolwire.support.conversion import ConfigError
from toolwire.upstream.pool.pool import UpstreamServer
from toolwire.upstream.pool.template_probing import probe_template
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.http import HttpBackend
from toolwire.upstream.servers.identity import Identity, ServedModel
from toolwire.upstream.servers.presets import AUTO, preset_of

BACKEND: Final = "model"
GRACE_S: Final = 30.0
"""More than the backend's own limits: whoever runs into this one found a gateway that hangs."""

_OURS: Final = (400, 403, 404, 413, 415, 422)
"""Statuses with which the gateway refuses a request, unless the code says that the model server did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How all questions are asked. `choice` is the `tool_choice`: `auto`, `required`, or `named` for the expected
    tool."""

    choice: str = "auto"
    max_tokens: int = 256
    temperature: float | None = 0.0
    seed: int | None = 0
    timeout_s: float = 120.0


async def teaches(backend: BackendConfig, plugins: Registries, model: str) -> bool:
    """Whether `toolwire serve --backend URL` leaves the tools to the chat template of this model: its family is known,
    and a probe shows that it works (R31.2)."""
    family = format_for(model)
    made = plugins.backends.get(backend.kind)(BACKEND, backend, LimitsConfig())
    if family is None or made.protocol is None or not made.protocol.takes_tools:
        return False
    endpoint = UpstreamServer(BACKEND, made, backend)
    try:
        await made.start()
        found = await probe_template(endpoint, model, special_tokens=plugins.formats.get(family).special_tokens)
    except ValueError:  # of the HTTP client: an address that it cannot use
        return False
    finally:
        await made.close()
    return found.mode == "template"


async def look_at(
    backend: BackendConfig, plugins: Registries, model: str | None
) -> tuple[BackendConfig, Capabilities, str]:
    """A model server with the preset that it says is its own, if none is named; what it takes; and the model to ask
    for: `model`, else the only one that it has. Raises `ConfigError` if there is not just one."""
    made = plugins.backends.get(backend.kind)(BACKEND, backend, LimitsConfig())
    says = isinstance(made, HttpBackend) and backend.identify_s != 0
    if model is not None and (backend.preset != AUTO or not says):
        return backend, made.capabilities, model
    try:
        await made.start()
        if isinstance(made, HttpBackend) and says:
            said = await made.identify()
            made.learn(said)
            backend = replace(backend, preset=preset_of(backend, said))
        else:
            said = Identity(models=tuple(map(ServedModel, await made.models())))
    except ValueError as error:  # of the HTTP client: an address that it cannot use
        raise ConfigError(f"the model server cannot be asked: {error}") from error
    except GatewayError as error:
        if model is not None:
            return backend, made.capabilities, model
        place = without_password(backend.url or "")
        raise ConfigError(f"the model server at {place} does not answer: {error.message}") from error
    finally:
        await made.close()
    if model is None and said.sole is not None:
        model = said.sole.name
    if model is not None:
        return backend, made.capabilities, model
    if not said.models:
        raise ConfigError("the model server names no model: say which with --model")
    names = ", ".join(served.name for served in said.models)
    raise ConfigError(f"the model server has several models: say which with --model: {names}")


def without_password(url: str) -> str:
    """An address without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class Gateway:
    """A gateway with a route for each of these options, in their order. An asynchronous context manager."""

    def __init__(
        self,
        backend: BackendConfig,
        model: str,
        routes: Sequence[RouteOptions],
        ask: Ask,
        plugins: Registries,
    ) -> None:
        self._key = secrets.token_urlsafe(24)
        self._ask = ask
        self._plugins = plugins
        self._config = configuration(backend, model, routes, self._key)
        self._client: aiohttp.ClientSession | None = None
        self._closing = contextlib.AsyncExitStack()
        self._url = ""

    async def __aenter__(self) -> Gateway:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(quiet())
            self._url = await stack.enter_async_context(_served(create_app(self._config, plugins=self._plugins)))
            self._client = await stack.enter_async_context(
                aiohttp.ClientSession(
                    headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
                    timeout=aiohttp.ClientTimeout(total=self._ask.timeout_s + GRACE_S),
                    connector=aiohttp.TCPConnector(limit=0),
                )
            )
            self._closing = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def ask(self, route: int, case: Case) -> Answer:
        """The answer to a case by a route. Raises `ConfigError` for a case that the gateway refuses."""
        assert self._client is not None
        body = request_body(name_of(route), case, self._ask)
        started = time.perf_counter()
        try:
            async with self._client.post(f"{self._url}/v1/chat/completions", data=orjson.dumps(body)) as response:
                status, data = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return Answer(fault=f"{type(error).__name__}: {error}".rstrip(": "), seconds=time.perf_counter() - started)
        return read_answer(case, status, orjson.loads(data), time.perf_counter() - started)


def configuration(backend: BackendConfig, model: str, routes: Sequence[RouteOptions], key: str) -> GatewayConfig:
    """The configuration of the gateway that is asked."""
    return GatewayConfig(
        server=ServerConfig(port=0),
        auth=AuthConfig(keys=(KeyConfig(key=key, name="tune"),)),
        store=StoreConfig(kind="none"),
        backends={BACKEND: backend},
        routes=tuple(
            RouteConfig(model=name_of(number), backend=BACKEND, upstream_model=model, options=options)
            for number, options in enumerate(routes)
        ),
    )


def name_of(route: int) -> str:
    """The model name under which a route is asked."""
    return f"candidate-{route}"


def request_body(model: str, case: Case, ask: Ask) -> dict[str, Any]:
    """A case as a Chat request."""
    choice: Any = ask.choice
    if choice == "named":
        choice = {"type": "function", "function": {"name": case.calls[0].names[0]}}
    body: dict[str, Any] = {
        "model": model,
        "messages": case.messages,
        "tools": case.tools,
        "tool_choice": choice,
        "max_completion_tokens": ask.max_tokens,
    }
    chosen = {"temperature": ask.temperature, "seed": ask.seed}
    return body | {key: value for key, value in chosen.items() if value is not None}


def read_answer(case: Case, status: int, body: Mapping[str, Any], seconds: float) -> Answer:
    """What came back. Raises `ConfigError` if the gateway refused the case."""
    if status == 200:
        message = body["choices"][0]["message"]
        usage = body.get("usage") or {}
        calls = (call["function"] for call in message.get("tool_calls") or ())
        return Answer(
            calls=tuple(Made(call["name"], call["arguments"]) for call in calls),
            text=message.get("content") or "",
            input_tokens=usage.get("prompt_tokens", 0),
            output_tokens=usage.get("completion_tokens", 0),
            seconds=seconds,
        )
    error = body.get("error") or {}
    code, message = error.get("code") or "", error.get("message") or f"status {status}"
    if error.get("type") == "model_error":
        return Answer(failed=code, seconds=seconds)
    theirs = code.startswith("upstream_") or code in ("context_length_exceeded", "unsupported_parameter")
    if status in _OURS and not theirs:
        raise ConfigError(f"the case {case.id!r} cannot be asked: {message}")
    return Answer(fault=f"{status} {code}: {message}", seconds=seconds)


@contextlib.asynccontextmanager
async def _served(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the gateway's log lines, which would run through the table: what they say is in the figures."""
    loggers = [logging.getLogger(name) for name in ("toolwire", "aiohttp")]
    before = [(logger, logger.propagate) for logger in loggers]
    silence = logging.NullHandler()
    for logger in loggers:
        logger.addHandler(silence)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in before:
            logger.removeHandler(silence)
            logger.propagate = propagate


async def cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """End these tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
