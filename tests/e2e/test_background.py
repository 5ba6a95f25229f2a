"""Responses that are made in the background (R28.7): polled, followed and cancelled at any gateway that shares the
store, also when the client has gone, and failed where the one who made them was killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp.test_utils import TestServer
from openai.types.responses import Response

from tests.e2e.conftest import Gateway, sdk, upstream_config
from tests.e2e.test_conversation import client
from tests.waiting import GUARD_S
from toolwire.ingress.auth import owner_of
from toolwire.pipeline.conversations import stored
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.pipeline.sending.background import BACKGROUND
from toolwire.testing import Answer, Say, Upstream, chunk, frame

RESPONSES = "/v1/responses"
END = [frame(chunk({}, "stop")), b"data: [DONE]\n\n"]


def word(text: str) -> bytes:
    return frame(chunk({"content": text}))


@asynccontextmanager
async def holding() -> AsyncIterator[tuple[Upstream, asyncio.Event]]:
    """A server that says a half, and the rest when it may."""
    gate = asyncio.Event()
    async with Upstream([Answer([word("Half"), gate, *END])]) as upstream:
        yield upstream, gate


async def idle(server: TestServer) -> None:
    """Wait until nothing is made any more."""
    async with asyncio.timeout(GUARD_S):
        await server.app[BACKGROUND].idle()


class Stage:
    """Two gateways that share a store, the same one twice where that is in its memory, and the server behind them."""

    def __init__(self, servers: Sequence[TestServer], upstream: Upstream, gate: asyncio.Event) -> None:
        self.servers = servers
        self.upstream = upstream
        self.gate = gate

    @asynccontextmanager
    async def clients(self, key: str = "k1") -> AsyncIterator[tuple[openai.AsyncOpenAI, openai.AsyncOpenAI]]:
        async with sdk(self.servers[0], api_key=key) as one, sdk(self.servers[1], api_key=key) as two:
            yield one, two


@pytest.fixture
async def stage(store: dict[str, Any], gateway: Gateway) -> AsyncIterator[Stage]:
    """The server says a half, unless the test gives it another script."""
    async with holding() as (upstream, gate):
        config = upstream_config(upstream.url, store=store, auth={"keys": ["k1", "k2"]})
        one = await gateway(config)
        yield Stage((one, one if store["kind"] == "memory" else await gateway(config)), upstream, gate)


ONE_OR_TWO = pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
"""One gateway, or two with a store between them; which kind it is makes no difference."""
ON_DISK = pytest.mark.parametrize("store", ["sqlite"], indirect=True)


async def over(session: openai.AsyncOpenAI, ident: str, before: Sequence[str] = ("queued", "in_progress")) -> Response:
    """The response when it is no longer made, or no longer in one of these states."""
    async with asyncio.timeout(GUARD_S):
        while (response := await session.responses.retrieve(ident)).status in before:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return response


async def running(session: openai.AsyncOpenAI) -> str:
    """The id of a response that is being made."""
    made = await session.responses.create(model="m", input="hi", background=True)
    assert (await over(session, made.id, ["queued"])).status == "in_progress"
    return made.id


def check_failed(response: Response, code: str) -> None:
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.message.startswith(f"{code}: ")


def numbers(events: Sequence[Any]) -> list[int]:
    return [event.sequence_number for event in events]


@ONE_OR_TWO
async def test_polled_until_it_is_there(stage: Stage) -> None:
    gate = asyncio.Event()
    stage.upstream.script = [Answer([word("Hel"), gate, word("lo."), *END])]
    async with stage.clients() as (one, two):
        made = await one.responses.create(model="m", input="hi", background=True, metadata={"a": "b"})
        assert (made.status, made.background, made.output, made.metadata) == ("queued", True, [], {"a": "b"})
        assert (await over(two, made.id, ["queued"])).status == "in_progress"
        gate.set()
        done = await over(two, made.id)
        assert (done.status, done.output_text, done.background) == ("completed", "Hello.", True)
        assert done.usage is not None
        after = [event async for event in await two.responses.retrieve(made.id, stream=True)]
        assert [event.type for event in after[:3]] == [
            "response.created", "response.queued", "response.in_progress",
        ]  # fmt: skip
        assert after[-1].type == "response.completed"
        assert after[-1].response.output == done.output
        assert numbers(after) == [*range(len(after))]
        stage.upstream.script = [Say("Again.")]
        on = await two.responses.create(model="m", input="and?", previous_response_id=made.id)
        assert on.output_text == "Again."
    asked = stage.upstream.requests[0].json
    assert asked["stream"] is True
    assert "background" not in asked


async def test_events_while_it_runs_and_after(stage: Stage) -> None:
    """The client leaves in the middle; it and others go on from the number of their last event."""
    gate, end = asyncio.Event(), asyncio.Event()
    stage.upstream.script = [Answer([word("One "), gate, word("two "), end, word("three."), *END])]
    async with stage.clients() as (one, two):
        stream = await one.responses.create(model="m", input="hi", background=True, stream=True)
        first = []
        async for event in stream:
            first.append(event)
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        ident = first[0].response.id
        assert [event.response.status for event in first[:3]] == ["queued", "queued", "in_progress"]
        gate.set()
        live = await two.responses.retrieve(ident, stream=True, starting_after=first[-1].sequence_number)
        rest = []
        async for event in live:
            rest.append(event)
            if event.type == "response.output_text.delta":
                end.set()
        assert numbers(first + rest) == [*range(len(first) + len(rest))]
        deltas = [event.delta for event in first + rest if event.type == "response.output_text.delta"]
        assert "".join(deltas) == "One two three."
        assert rest[-1].type == "response.completed"
        again = [event async for event in await one.responses.retrieve(ident, stream=True)]
        assert [event.model_dump() for event in again] == [event.model_dump() for event in first + rest]
        none = await one.responses.retrieve(ident, stream=True, starting_after=again[-1].sequence_number)
        assert [event async for event in none] == []
        assert (await over(one, ident)).output_text == "One two three."


@ONE_OR_TWO
@pytest.mark.parametrize("begun", [False, True])
async def test_cancelled_from_anywhere(stage: Stage, begun: bool) -> None:
    if not begun:
        stage.upstream.script = [Answer([stage.gate, *END])]
    async with stage.clients() as (one, two):
        made = await one.responses.create(model="m", input="hi", background=True)
        if begun:
            await over(one, made.id, ["queued"])
        cancelled = await two.responses.cancel(made.id)
        assert (cancelled.id, cancelled.status, cancelled.error) == (made.id, "cancelled", None)
        assert (await one.responses.retrieve(made.id)).status == "cancelled"
        assert (await two.responses.cancel(made.id)).status == "cancelled"
        events = [event async for event in await two.responses.retrieve(made.id, stream=True)]
        assert (events[-1].type, events[-1].response.status) == ("response.incomplete", "cancelled")
        assert numbers(events) == [*range(len(events))]
    await idle(stage.servers[0])
    mark = (f"cancel_{made.id}", owner_of("k1"))
    assert await stage.servers[1].app[CONVERSATIONS].present([mark]) == set()


@ON_DISK
async def test_one_whose_process_is_gone_is_cancelled(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request to cancel stores the end itself, because no worker is left to read the mark."""
    monkeypatch.setattr(stored, "CANCEL_S", 0.1)
    async with stage.clients() as (one, two):
        ident = await running(one)
        for server in stage.servers:
            server.app[CONVERSATIONS].running.clear()
        assert (await two.responses.cancel(ident)).status == "cancelled"
        assert (await one.responses.retrieve(ident)).status == "cancelled"


@ON_DISK
async def test_deleted_while_it_runs(stage: Stage) -> None:
    async with stage.clients() as (one, two):
        ident = await running(one)
        await two.responses.delete(ident)
        await idle(stage.servers[0])
        for stream in (False, True):
            with pytest.raises(openai.NotFoundError):
                await one.responses.retrieve(ident, stream=stream)


async def test_limits(gateway: Gateway, tmp_path: Path) -> None:
    """Over all gateways that share the store, for one key and in all."""
    async with holding() as (upstream, gate):
        config = upstream_config(
            upstream.url,
            store={"kind": "sqlite", "path": str(tmp_path / "r.sqlite3")},
            auth={"keys": ["k1", "k2", "k3"]},
            background={"per_key": 2, "total": 3},
        )
        servers = [await gateway(config) for _ in range(2)]
        asked: dict[str, Any] = {"model": "m", "input": "x", "background": True}
        async with (
            sdk(servers[0], api_key="k1") as one,
            sdk(servers[1], api_key="k1") as two,
            sdk(servers[0], api_key="k2") as other,
            sdk(servers[1], api_key="k3") as last,
        ):
            made = [await session.responses.create(**asked) for session in (one, two)]
            for session in (one, two):
                with pytest.raises(openai.RateLimitError, match=r"background\.per_key"):
                    await session.responses.create(**asked)
            await other.responses.create(**asked)
            for _ in range(2):  # each gives back the place that it had for its key
                with pytest.raises(openai.RateLimitError, match=r"background\.total"):
                    await last.responses.create(**asked)
            gate.set()
            for response in made:
                assert (await over(one, response.id)).status == "completed"
            for server in servers:
                await idle(server)
            await last.responses.create(**asked)


async def test_how_long_one_may_take(gateway: Gateway) -> None:
    async with holding() as (upstream, _):
        server = await gateway(upstream_config(upstream.url, background={"max_s": 0.3}))
        async with sdk(server) as session:
            made = await session.responses.create(model="m", input="x", background=True)
            failed = await over(session, made.id)
    check_failed(failed, "upstream_timeout")
    assert "background.max_s" in str(failed.error)


async def test_how_much_is_kept(gateway: Gateway) -> None:
    """Beyond, only the last event follows."""
    async with Upstream([Say(*("word " * 400).split(" "))]) as upstream:
        config = upstream_config(upstream.url, background={"event_bytes": 10_000})
        async with sdk(await gateway(config)) as session:
            made = await session.responses.create(model="m", input="x", background=True)
            done = await over(session, made.id)
            events = [event async for event in await session.responses.retrieve(made.id, stream=True)]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output == done.output
    assert numbers(events) == [*range(len(events))]
    assert sum(len(event.model_dump_json()) for event in events[:-1]) < 20_000


@ON_DISK
async def test_what_was_said_to_have_failed_stays_so(stage: Stage) -> None:
    """Whose sign of life is gone has failed, whatever comes of it later, and takes no place from others."""
    async with stage.clients() as (one, two):
        ident = await running(one)
        owner = next(iter(stage.servers[0].app[CONVERSATIONS].running))[1]
        await stage.servers[1].app[CONVERSATIONS].delete(f"lease_{ident}", owner)
        failed = await two.responses.retrieve(ident)
        check_failed(failed, "response_lost")
        stage.gate.set()
        await idle(stage.servers[0])
        assert await one.responses.retrieve(ident) == failed


async def test_who_is_lost_takes_no_place(gateway: Gateway) -> None:
    async with holding() as (upstream, _):
        server = await gateway(upstream_config(upstream.url, background={"per_key": 1, "total": 1}))
        async with sdk(server) as session:
            made = await session.responses.create(model="m", input="hi", background=True)
            with pytest.raises(openai.RateLimitError):
                await session.responses.create(model="m", input="hi", background=True)
            await server.app[CONVERSATIONS].delete(f"lease_{made.id}", "")
            await session.responses.create(model="m", input="hi", background=True)


async def test_refused_at_once(gateway: Gateway) -> None:
    server = await gateway(script=["Hello."])
    async with client(server) as session:
        for stream, (more, status, param) in product((False, True), (
            ({"store": False}, 400, "background"),
            ({"conversation": "conv_nope"}, 404, "conversation"),
            ({"input": 3}, 400, "input"),
            ({"previous_response_id": "resp_nope"}, 400, "previous_response_id"),
        )):  # fmt: skip
            body = {"model": "m", "input": "x", "background": True, "stream": stream, **more}
            async with session.post(RESPONSES, json=body) as answer:
                assert (answer.status, (await answer.json())["error"]["param"]) == (status, param), more
    assert server.app[BACKGROUND].number == 0


async def test_events_of_others_are_not_kept(gateway: Gateway) -> None:
    server = await gateway(script=["Hello."])
    async with sdk(server) as session, client(server) as plain:
        made = await session.responses.create(model="m", input="x")
        with pytest.raises(openai.BadRequestError) as refused:
            await session.responses.retrieve(made.id, stream=True)
        assert refused.value.param == "stream"
        for query, param in (("stream=maybe", "stream"), ("stream=true&starting_after=-1", "starting_after")):
            async with plain.get(f"{RESPONSES}/{made.id}?{query}") as answer:
                assert (answer.status, (await answer.json())["error"]["param"]) == (400, param)


async def test_it_is_counted_once_when_it_is_over(gateway: Gateway) -> None:
    """One request in the metrics, with the status of the answer. It takes none of the places of its key, which has one
    for asking what has become of it."""
    async with holding() as (upstream, gate):
        server = await gateway(upstream_config(upstream.url, rate_limits={"per_key": {"concurrent": 1}}))
        async with sdk(server) as session:
            ident = await running(session)
            gate.set()
            await idle(server)
            assert (await session.responses.retrieve(ident)).status == "completed"
        async with aiohttp.ClientSession(server.make_url("/")) as plain, plain.get("/metrics") as answer:
            page = await answer.text()
    counted = [line for line in page.splitlines() if line.startswith("toolwire_requests_total") and "200" in line]
    assert [line.rpartition(" ")[2] for line in counted] == ["1.0"], counted
