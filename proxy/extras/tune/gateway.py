"""Sends questions through a gateway as users run it: one application, a route for each candidate, one model server.

Rules:

1. The measured gateway is the real one: it comes from `create_app` with the default chain, and gets requests over a
   socket.
2. It listens on the loopback interface, requires a random key, and stores nothing.
3. An error of the model server is a `ClientAnswer` with a `fault`. A request that the gateway refuses is a mistake in
   the case, and a `ConfigError`.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from ...app import create_app
from ...config import (
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
from ...errors import GatewayError
from ...formats.model_families import format_for
from ...registry import Registries
from ...server.sockets import served
from ...support.conversion import ConfigError
from ...upstream.pool.server import UpstreamServer
from ...upstream.pool.template_probing import probe_template
from ...upstream.servers.base import Capabilities
from ...upstream.servers.http import HttpBackend
from ...upstream.servers.identity import Identity, ServedModel
from ...upstream.servers.presets import AUTO, preset_of
from .cases import Case
from .scoring import ClientAnswer, ClientCall

BACKEND: Final = "model"
GRACE_S: Final = 30.0
"""Added to the backend's own time limits: only a gateway that hangs exceeds it."""

_OURS: Final = (400, 403, 404, 413, 415, 422)
"""Statuses with which the gateway refuses a request, unless the code shows that the model server did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSettings:
    """The settings of all questions. `choice` is the `tool_choice`: `auto`, `required`, or `named` for the expected
    tool."""

    choice: str = "auto"
    max_tokens: int = 256
    temperature: float | None = 0.0
    seed: int | None = 0
    timeout_s: float = 120.0


async def uses_template(backend: BackendConfig, plugins: Registries, model: str) -> bool:
    """Returns True if `toolwire serve --backend URL` would let the model's chat template describe the tools: its family
    is known and a test shows that it works (R31.2)."""
    family = format_for(model)
    made = plugins.backends.get(backend.kind)(BACKEND, backend, LimitsConfig())
    if family is None or made.protocol is None or not made.protocol.takes_tools:
        return False
    endpoint = UpstreamServer(BACKEND, made, backend)
    try:
        await made.start()
        result = await probe_template(endpoint, model, special_tokens=plugins.formats.get(family).special_tokens)
    except ValueError:  # raised by the HTTP client for an invalid address
        return False
    finally:
        await made.close()
    return result.mode == "template"


async def identify_server(
    backend: BackendConfig, plugins: Registries, model: str | None
) -> tuple[BackendConfig, Capabilities, str]:
    """Returns the backend with its preset (detected if none is set), its capabilities, and the model to use: `model`,
    else the only one that the server has. Raises `ConfigError` if it has none or several."""
    made = plugins.backends.get(backend.kind)(BACKEND, backend, LimitsConfig())
    says = isinstance(made, HttpBackend) and backend.identify_s != 0
    if model is not None and (backend.preset != AUTO or not says):
        return backend, made.capabilities, model
    try:
        await made.start()
        if isinstance(made, HttpBackend) and says:
            identity = await made.identify()
            made.learn(identity)
            backend = replace(backend, preset=preset_of(backend, identity))
        else:
            identity = Identity(models=tuple(map(ServedModel, await made.models())))
    except ValueError as error:  # raised by the HTTP client for an invalid address
        raise ConfigError(f"the model server cannot be reached: {error}") from error
    except GatewayError as error:
        if model is not None:
            return backend, made.capabilities, model
        place = without_password(backend.url or "")
        raise ConfigError(f"the model server at {place} does not answer: {error.message}") from error
    finally:
        await made.close()
    if model is None and identity.sole is not None:
        model = identity.sole.name
    if model is not None:
        return backend, made.capabilities, model
    if not identity.models:
        raise ConfigError("the model server lists no models: name one with --model")
    names = ", ".join(served.name for served in identity.models)
    raise ConfigError(f"the model server has several models: choose one with --model: {names}")


def without_password(url: str) -> str:
    """Returns an address without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


@contextlib.asynccontextmanager
async def tuning_gateway(
    backend: BackendConfig, model: str, routes: Sequence[RouteOptions], ask: QuestionSettings, plugins: Registries
) -> AsyncIterator[Callable[[int, Case], Awaitable[ClientAnswer]]]:
    """Runs a gateway with a route for each of these options, in their order, while the context lasts. Yields a function
    that returns the answer of a route to a case, and raises `ConfigError` for a case that the gateway refuses."""
    key = secrets.token_urlsafe(24)
    with quiet():
        async with (
            served(create_app(configuration(backend, model, routes, key), plugins=plugins)) as url,
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=ask.timeout_s + GRACE_S),
                connector=aiohttp.TCPConnector(limit=0),
            ) as client,
        ):

            async def answer(route: int, case: Case) -> ClientAnswer:
                body = orjson.dumps(request_body(name_of(route), case, ask))
                started = time.perf_counter()
                try:
                    async with client.post(f"{url}/v1/chat/completions", data=body) as response:
                        status, data = response.status, await response.read()
                except (aiohttp.ClientError, TimeoutError) as error:
                    fault = f"{type(error).__name__}: {error}".rstrip(": ")
                    return ClientAnswer(fault=fault, seconds=time.perf_counter() - started)
                return read_answer(case, status, orjson.loads(data), time.perf_counter() - started)

            yield answer


def configuration(backend: BackendConfig, model: str, routes: Sequence[RouteOptions], key: str) -> GatewayConfig:
    """Returns the configuration of the gateway."""
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
    """Returns the model name of a route."""
    return f"candidate-{route}"


def request_body(model: str, case: Case, ask: QuestionSettings) -> dict[str, Any]:
    """Returns a case as a Chat request."""
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


def read_answer(case: Case, status: int, body: Mapping[str, Any], seconds: float) -> ClientAnswer:
    """Returns the answer in a response. Raises `ConfigError` if the gateway refused the case."""
    if status == 200:
        message = body["choices"][0]["message"]
        usage = body.get("usage") or {}
        calls = (call["function"] for call in message.get("tool_calls") or ())
        return ClientAnswer(
            calls=tuple(ClientCall(call["name"], call["arguments"]) for call in calls),
            text=message.get("content") or "",
            input_tokens=usage.get("prompt_tokens", 0),
            output_tokens=usage.get("completion_tokens", 0),
            seconds=seconds,
        )
    error = body.get("error") or {}
    code, message = error.get("code") or "", error.get("message") or f"status {status}"
    if error.get("type") == "model_error":
        return ClientAnswer(failed=code, seconds=seconds)
    theirs = code.startswith("upstream_") or code in ("context_length_exceeded", "unsupported_parameter")
    if status in _OURS and not theirs:
        raise ConfigError(f"the case {case.id!r} cannot be asked: {message}")
    return ClientAnswer(fault=f"{status} {code}: {message}", seconds=seconds)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context without the gateway's log lines, which would disturb the table; the figures contain their
    information."""
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
