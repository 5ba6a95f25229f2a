"""The situations in which an engine is killed and started again. They are played last."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import aiohttp
import orjson

from tests.engines.asking import COUNT, HELLO, PATHS, PROTOCOLS, Ask, Protocol, Seen, read
from tests.engines.suite import Broken, Missing, Run, expect, situation
from toolwire.testing import WireAnswer

FIRST_TOKEN: Final = {"chat": b'"content":"1', "messages": b"text_delta", "responses": b"output_text.delta"}
PAUSE_S: Final = 1.0


def must_restart(run: Run) -> None:
    if run.server.kill is None or run.server.start is None:
        raise Missing("the engine was started by somebody else (`--at`)")


async def _streamed(run: Run, protocol: Protocol, begun: asyncio.Event) -> WireAnswer:
    """A long answer; `begun` is set as soon as something of it has come."""
    body = orjson.dumps(Ask(COUNT, protocol, "direct", tokens=400, stream=True).body())
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(
            run.gateway.url + PATHS[protocol], data=body, headers={"Content-Type": "application/json"}
        ) as answer,
    ):
        received = bytearray()
        async for piece in answer.content.iter_any():
            received += piece
            if FIRST_TOKEN[protocol] in received:
                begun.set()
        return WireAnswer(status=answer.status, headers=answer.headers.copy(), body=bytes(received))


def _named_error(protocol: Protocol, answer: WireAnswer) -> Seen:
    try:
        seen = read(protocol, answer)
    except AssertionError as error:
        raise Broken(f"{protocol}: an answer in its form, not {str(error)[:120]}") from error
    expect(seen.error is not None, f"{protocol}: a named error, not {seen}")
    return seen


@situation("restarts/killed", "Killed during answers to three protocols")
async def killed(run: Run) -> str:
    must_restart(run)
    assert run.server.kill is not None
    begun = asyncio.Event()
    streams = [asyncio.create_task(_streamed(run, protocol, begun)) for protocol in PROTOCOLS]
    await begun.wait()
    await run.server.kill()
    answers = await asyncio.gather(*streams)
    seen = [_named_error(protocol, answer) for protocol, answer in zip(PROTOCOLS, answers, strict=True)]
    return "; ".join(f"{protocol}: {one}" for protocol, one in zip(PROTOCOLS, seen, strict=True))


@situation("restarts/down", "A request while it is down")
async def down(run: Run) -> str:
    must_restart(run)
    seen = [await run.ask(Ask(HELLO, protocol, "direct")) for protocol in PROTOCOLS]
    for one in seen:
        expect(one.error is not None and one.status in (502, 503), f"502 or 503 and a named error, not {one}")
    return "; ".join(f"{protocol}: {one}" for protocol, one in zip(PROTOCOLS, seen, strict=True))


@situation("restarts/under-load", "Restarted under load: each client gets a whole answer or a named error")  # fmt: skip
async def under_load(run: Run) -> str:
    must_restart(run)
    assert run.server.start is not None
    counted: Counter[str] = Counter()

    async def client(protocol: Protocol) -> None:
        whole = 0
        while whole < 2:
            seen = await run.ask(Ask(HELLO, protocol, "direct", stream=whole == 0))
            whole += seen.error is None
            counted["whole" if seen.error is None else f"`{seen.error.code or seen.error.type}`"] += 1
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(run.server.start(), *map(client, PROTOCOLS))
    ready = (await run.get("/ready")).json()["backends"]
    return f"{', '.join(f'{count} {what}' for what, count in counted.most_common())}; `/ready` says {ready['direct']}"
