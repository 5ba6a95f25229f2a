"""How many functions the first request of a process runs, against a later one: `python tests/unit/first_request.py`
prints the ratio for each kind of request after a rehearsal, as JSON, and for one kind without.

`test_rehearsal.py` runs it in a process of its own, which imports and rehearses once and forks for each kind.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final

import orjson

from tests.waiting import GUARD_S
from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load
from toolwire.pipeline.sending.delivery import CLIENTS
from toolwire.server import rehearsal
from toolwire.server.process import gateway
from toolwire.server.simulated import SimulatedGateway

LATER: Final = 5
USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


@dataclass(frozen=True)
class Kind:
    """Of requests: what one says besides the example of its protocol. `counted`: the model server counts tokens.
    `new_tools`: each brings a tool that nobody has seen."""

    client: str
    body: Mapping[str, Any]
    counted: bool = True
    new_tools: bool = False


ROUTES: Final = {"routes": [{"model": "m"}, {"model": "x", "options": {"format": "qwen3_coder"}}]}
KINDS: Final = {
    "stream": Kind("chat", {"stream": True}),
    "stream, not counted": Kind("chat", {"stream": True}, counted=False),
    "stream, another format": Kind("chat", {"stream": True, "model": "x"}),
    "stream, Messages": Kind("messages", {"stream": True}),
    "stream, kept": Kind("responses", {"stream": True}),
    "whole": Kind("chat", {"stream": False}, new_tools=True),
    "whole, not counted": Kind("chat", {"stream": False}, counted=False, new_tools=True),
}


def configured(overrides: Mapping[str, Any], folder: str) -> GatewayConfig:
    """With one model server, that nobody has, and a store in this folder."""
    backends = {"default": {"url": "http://127.0.0.1:9", "identify_s": 0}}
    return load(None, env={}, overrides={"backends": backends, "store": {"path": f"{folder}/store"}, **overrides})


def answers(*, counted: bool) -> Callable[[bytes], Sequence[bytes]]:
    """Prose from a server of Chat, streamed or not."""

    def answer(request: bytes) -> list[bytes]:
        said = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        used = {"usage": USAGE} if counted else {}
        if b'"stream":true' not in request:
            choice = {"index": 0, "message": {"role": "assistant", "content": "So be it."}, "finish_reason": "stop"}
            whole = orjson.dumps({**said, "object": "chat.completion", "choices": [choice], **used})
            return [
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole
            ]
        deltas = [{"role": "assistant", "content": ""}, {"content": "So "}, {"content": "be "}, {"content": "it."}, {}]
        chunks: list[dict[str, Any]] = [
            {**said, "choices": [{"index": 0, "delta": delta, "finish_reason": None if delta else "stop"}]}
            for delta in deltas
        ]
        if counted:
            chunks.append({**said, "choices": [], **used})
        frames = [b"data: %s\n\n" % orjson.dumps(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        return [head % sum(map(len, frames)), *frames]

    return answer


def asked(path: str, body: dict[str, Any]) -> bytes:
    """A request."""
    sent = orjson.dumps(body)
    head = b"POST /v1%s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (path.encode(), len(sent)) + sent


async def counts(kind: Kind) -> list[int]:
    """Of each request, from the first."""
    calls = 0

    def count(frame: FrameType, what: str, argument: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    found = []
    with TemporaryDirectory() as folder:
        async with SimulatedGateway(gateway, configured(ROUTES, folder), answers(counted=kind.counted)) as played:
            ask = played.client()
            client = next(client for client in played.app[CLIENTS].sides if client.name == kind.client)
            request = asked(client.path, {**client.example, "model": "m", **kind.body})
            for number in range(2 * LATER):
                sent = request.replace(b'"look"', b'"l%03d"' % number) if kind.new_tools else request
                calls = 0
                sys.setprofile(count)
                answer = await ask(sent)
                sys.setprofile(None)
                assert answer.startswith(b"HTTP/1.1 200 "), answer
                found.append(calls)
    return found


def ratios(kinds: Sequence[str]) -> list[float]:
    """Of each kind, in a fork of this process."""
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as processes:
        return processes.map(ratio, kinds, chunksize=1)


def ratio(kind: str) -> float:
    first, *later = asyncio.run(counts(KINDS[kind]))
    return first / sorted(later)[LATER]


async def rehearse() -> None:
    """The rehearsal, however long it takes: the machine may pause."""
    rehearsal.MOST_S = GUARD_S  # type: ignore[misc]
    with TemporaryDirectory() as folder:
        await rehearsal.rehearse(gateway, configured(ROUTES, folder))


if __name__ == "__main__":
    (cold,) = ratios(["stream"])
    asyncio.run(rehearse())
    print(json.dumps({"cold": cold, **dict(zip(KINDS, ratios([*KINDS]), strict=True))}))
