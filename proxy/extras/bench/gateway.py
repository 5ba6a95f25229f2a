"""`toolwire bench gateway`: measures the time that the gateway adds to a request and to a streamed frame (R17.1).

Everything runs in this process on the loopback interface: a scripted model server, the configured gateway in front of
it, and a client that sends requests alternately to both, one at a time. The overhead is the difference between the
times of two neighbouring requests, one through the gateway and one direct. Disturbances of either are included, so
figures are shown with a confidence interval, and only as an upper bound if they cannot be distinguished from zero.
`bench/` measures separate processes under load, and compares with other programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiohttp import ClientSession

from ...app import create_app
from ...config import AuthConfig, GatewayConfig, RouteConfig, StoreConfig
from ...configuration.checks import effective_routes
from ...registry import registries
from ...server.sockets import served
from ...support.conversion import ConfigError
from ..capture.recording import SEED
from .corpus import TOOLS, large_call, prose, rendered
from .report import described, environment, table
from .timing import Estimate, estimate, percentile

TEXT_CHARS: Final = 2_000
"""The length of each answer: about 500 frames."""

FRAME_CHARS: Final = 4
WARM_UP: Final = 5
_CALL: Final = "write a file"


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of request. With `tools`, three tools are on offer and the answer calls one of them."""

    title: str
    tools: bool
    stream: bool


WORKS: Final = (
    Work("whole answer", tools=False, stream=False),
    Work("whole answer, a call", tools=True, stream=False),
    Work("stream", tools=False, stream=True),
    Work("stream, a call", tools=True, stream=True),
)


@dataclass(slots=True)
class Side:
    """The measurements of one path: nanoseconds of wall time and of CPU time (of the whole process) for each
    request."""

    wall: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one kind of request, direct and through the gateway. `frames`: the number of frames of one
    answer of the model server."""

    work: Work
    frames: int
    direct: Side
    gateway: Side

    def overhead(self, percent: float) -> Estimate:
        """Returns the overhead in nanoseconds, as a percentile of the differences between neighbouring requests. A
        difference of two percentiles would compare different moments, and count disturbances of one side for the
        other."""
        return estimate(_differences(self.gateway.wall, self.direct.wall), percent)

    @property
    def cpu(self) -> Estimate:
        """The CPU time in nanoseconds that the gateway adds to a request: the median of the differences."""
        return estimate(_differences(self.gateway.cpu, self.direct.cpu), 50)


def _differences(through: Sequence[int], directly: Sequence[int]) -> list[int]:
    return [a - b for a, b in zip(through, directly, strict=True)]


def measure(config: GatewayConfig, requests: int) -> list[Measured]:
    """Measures the first route of a configuration with this many requests of each kind. Its backends are replaced by
    the scripted model server and its store by memory; no key is required.

    Raises `ConfigError` for an invalid configuration, and if the gateway's answer is wrong.
    """
    return asyncio.run(_measure(config, requests))


async def _measure(config: GatewayConfig, requests: int) -> list[Measured]:
    route = effective_routes(config)[0]
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(served(create_app(_model_server(route))))
        gateway = await stack.enter_async_context(served(create_app(_pointed_at(config, f"{upstream}/v1"))))
        client = await stack.enter_async_context(ClientSession())
        ways = (f"{upstream}/v1", f"{gateway}/v1")
        return [await _ask(client, work, ways, _model(route), requests) for work in WORKS]


def _model_server(route: RouteConfig) -> Mapping[str, Any]:
    """Returns the configuration of a gateway that only serves as a scripted model server."""
    rng = random.Random(SEED)
    call = large_call(rng, TEXT_CHARS)
    if route.options.mode == "native":
        turn: dict[str, Any] = {"calls": [{"name": call.name, "arguments": call.arguments}]}
    else:
        turn = {"text": rendered(registries().formats.get(route.options.format), [call])}
    script = [{"when": _CALL, "chunk": FRAME_CHARS, **turn}, {"text": prose(rng, TEXT_CHARS), "chunk": FRAME_CHARS}]
    return {
        "backends": {"script": {"kind": "mock", "script": script}},
        "chain": [{"use": "forwarding"}],
        "store": {"kind": "none"},
    }


def _pointed_at(config: GatewayConfig, url: str) -> GatewayConfig:
    backends = {
        name: replace(each, kind="openai_chat", url=url, api_key=None, headers={}, script=None, options={})
        for name, each in config.backends.items()
    }
    return replace(config, backends=backends, auth=AuthConfig(), store=StoreConfig(kind="memory"))


def _model(route: RouteConfig) -> str:
    """Returns a model name that matches the route."""
    return route.model.replace("*", "bench").replace("?", "x")


async def _ask(client: ClientSession, work: Work, ways: tuple[str, str], model: str, requests: int) -> Measured:
    """Sends requests to both alternately; which is first alternates too."""
    sides = (Side(), Side())
    frames = 0
    for number in range(WARM_UP + requests):
        for way in (0, 1) if number % 2 else (1, 0):
            body = _body(work, model, through_gateway=way == 1)
            cpu, wall = time.process_time_ns(), time.perf_counter_ns()
            async with client.post(f"{ways[way]}/chat/completions", json=body) as answer:
                data = await answer.read()
            spent = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
            _check(work, answer.status, data, through_gateway=way == 1)
            if number >= WARM_UP:
                sides[way].wall.append(spent[0])
                sides[way].cpu.append(spent[1])
            if way == 0:
                frames = data.count(b"data: ")
    return Measured(work, frames, *sides)


def _body(work: Work, model: str, *, through_gateway: bool) -> dict[str, Any]:
    """Returns the request body. The model server gets no tools: its script depends on the message only."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": _CALL if work.tools else "tell me"}],
        "stream": work.stream,
    }
    return {**body, "tools": list(TOOLS)} if work.tools and through_gateway else body


def _check(work: Work, status: int, data: bytes, *, through_gateway: bool) -> None:
    good = status == 200 and (not work.stream or data.endswith(b"data: [DONE]\n\n"))
    if good and through_gateway and work.tools:
        good = b'"tool_calls":[{' in data and b'"name":"write_file"' in data
    if not good:
        shown_data = data[:300].decode(errors="replace")
        raise ConfigError(
            f"the {'gateway' if through_gateway else 'model server'} gives a wrong answer ({work.title}): {status} {shown_data}"
        )


# --- output ----------------------------------------------------------------------------------------------------------


def as_text(results: Sequence[Measured]) -> Iterator[str]:
    """Yields the results as aligned Markdown."""
    yield described(environment())
    yield "Microseconds; one request at a time, client, gateway and model server in one process on the loopback interface."
    yield ""
    head = ["", "frames", "direct p50", "gateway p50", *(f"added {name}" for name in _SHOWN)]
    yield from table(head, [_row(each) for each in results])
    yield ""
    yield (
        "added: time and CPU time that the gateway adds to a request, compared with a direct one next to it; in brackets the"
        " 95 % confidence interval. `< x`: less than x, and not distinguishable from zero."
        " `?`: too few requests (p99 needs 368)."
    )


_SHOWN: Final = ("p50", "p99", "CPU p50", "p50 per frame", "CPU per frame")


def _row(each: Measured) -> list[str]:
    direct, gateway = (percentile(sorted(side.wall), 50) for side in (each.direct, each.gateway))
    added, rare, cpu = each.overhead(50), each.overhead(99), each.cpu
    single = [shown(added, each.frames), shown(cpu, each.frames)] if each.frames else ["", ""]
    return [
        each.work.title,
        str(each.frames or ""),
        *(f"{time / 1e3:,.0f}" for time in (direct, gateway)),
        *map(shown, (added, rare, cpu)),
        *single,
    ]


def shown(time: Estimate, parts: int = 0) -> str:
    """Returns a time in microseconds, divided by `parts` if given: the figure if it is surely above zero, else its
    upper bound."""

    def text(value: int) -> str:
        return f"{value / 1e3 / parts:,.2f}" if parts else f"{value / 1e3:,.0f}"

    if time.high is None:
        return "?"
    if time.low is not None and time.low > 0:
        return f"{text(time.value)} [{text(time.low)}, {text(time.high)}]"
    return f"< {text(time.high)}" if time.high > 0 else "none"


def as_json(results: Sequence[Measured]) -> dict[str, Any]:
    """Returns all figures in nanoseconds. An overhead may be negative if noise is larger; then `low` is
    negative too."""
    return {
        "environment": environment(),
        "requests": len(results[0].direct.wall),
        "work": [
            {
                "title": each.work.title,
                "tools": each.work.tools,
                "stream": each.work.stream,
                "frames": each.frames,
                "direct_ns": {"wall": each.direct.wall, "cpu": each.direct.cpu},
                "gateway_ns": {"wall": each.gateway.wall, "cpu": each.gateway.cpu},
                "overhead_ns": {
                    name: {"value": figure.value, "low": figure.low, "high": figure.high}
                    for name, figure in (("p50", each.overhead(50)), ("p99", each.overhead(99)), ("cpu", each.cpu))
                },
            }
            for each in results
        ],
    }
