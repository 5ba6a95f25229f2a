"""Responses that are made in the background (R28.7): polled, followed and cancelled at any gateway that shares the
store, also when the client has gone, and failed where the one who made them was killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from openai.types.responses import Response

from tests.e2e.conftest import Gateway, read_config, sdk, upstream_config
from tests.e2e.test_conversation import client
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.ingress.auth import owner_of
from toolwire.model import ModelRequest
from toolwire.pipeline.conversations import stored
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.pipeline.sending.background import BACKGROUND
from toolwire.record import AccessRecord, BackendObserver, ExchangeObserver, ReadRequest
from toolwire.testing import Answer, Refuse, Say, Upstream, chunk, frame

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


async def over(session: openai.AsyncOpenAI, ident: str) -> Response:
    """The response when it is no longer made."""
    async with asyncio.timeout(GUARD_S):
        while (response := await session.responses.retrieve(ident)).status in ("queued", "in_progress"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return response


async def become(session: openai.AsyncOpenAI, ident: str, status: str) -> None:
    async with asyncio.timeout(GUARD_S):
        while (await session.responses.retrieve(ident)).status != status:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def running(session: openai.AsyncOpenAI) -> str:
    """The id of a response that is being made."""
    made = await session.responses.create(model="m", input="hi", background=True)
    await become(session, made.id, "in_progress")
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
        await become(two, made.id, "in_progress")
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
            await become(one, made.id, "in_progress")
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


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_one_whose_process_is_gone_is_cancelled(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request to cancel stores the end itself, because no worker is left to read the mark."""
    monkeypatch.setattr(stored, "CANCEL_S", 0.1)
    async with stage.clients() as (one, two):
        ident = await running(one)
        for server in stage.servers:
            server.app[CONVERSATIONS].running.clear()
        assert (await two.responses.cancel(ident)).status == "cancelled"
        assert (await one.responses.retrieve(ident)).status == "cancelled"


@ONE_OR_TWO
async def test_one_that_fails(stage: Stage) -> None:
    stage.upstream.script = [Say("half an ans", cut=True), Refuse(500)]
    async with stage.clients() as (one, two):
        for _ in range(2):
            made = await one.responses.create(model="m", input="hi", background=True)
            failed = await over(two, made.id)
            assert (failed.status, failed.error and failed.error.code) == ("failed", "server_error")
            async with (
                client(stage.servers[1]) as session,
                session.get(f"{RESPONSES}/{made.id}?stream=true") as answer,
            ):
                wire = (await answer.read()).decode()
            assert json.loads(wire.split("data: ")[-1])["response"]["status"] == "failed"


@ONE_OR_TWO
async def test_deleted_while_it_runs(stage: Stage) -> None:
    async with stage.clients() as (one, two):
        ident = await running(one)
        await two.responses.delete(ident)
        await idle(stage.servers[0])
        for stream in (False, True):
            with pytest.raises(openai.NotFoundError):
                await one.responses.retrieve(ident, stream=stream)


@ONE_OR_TWO
async def test_somebody_elses(stage: Stage) -> None:
    stage.upstream.script = [Say("Hello.")]
    async with stage.clients() as (one, _), stage.clients("k2") as (_, other):
        made = await one.responses.create(model="m", input="hi", background=True)
        for look in (
            other.responses.retrieve(made.id),
            other.responses.retrieve(made.id, stream=True),
            other.responses.cancel(made.id),
            other.responses.delete(made.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await look
        assert (await over(one, made.id)).output_text == "Hello."


@ONE_OR_TWO
async def test_in_a_conversation(stage: Stage) -> None:
    stage.upstream.script = [Say("Hello.")]
    async with stage.clients() as (one, two):
        named = await one.conversations.create()
        made = await one.responses.create(model="m", input="hi", background=True, conversation=named.id)
        assert made.conversation is not None
        done = await over(two, made.id)
        listed = [item.id async for item in two.conversations.items.list(named.id)]
        assert len(listed) == 2
        assert listed[0] == done.output[0].id


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
    assert failed.status == "failed"
    assert failed.error is not None
    assert "background.max_s" in failed.error.message


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


async def test_many_events_are_all_there(gateway: Gateway) -> None:
    """In several entries of the store."""
    words = [f"word{number} " for number in range(1500)]
    async with Upstream([Say(*words)]) as upstream, sdk(await gateway(upstream_config(upstream.url))) as session:
        made = await session.responses.create(model="m", input="x", background=True)
        await over(session, made.id)
        events = [event async for event in await session.responses.retrieve(made.id, stream=True)]
        some = [event async for event in await session.responses.retrieve(made.id, stream=True, starting_after=1200)]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "".join(words)
    assert numbers(events) == [*range(len(events))]
    assert numbers(some) == [*range(1201, len(events))]


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


async def test_who_looks_on_sees_one_exchange(gateway: Gateway) -> None:
    """Also of one that is refused before it is queued."""
    seen: list[str] = []

    class Sees(ExchangeObserver):
        def __init__(self, request: web.Request, ident: str) -> None:
            self.output = lambda data: seen.append("output") if "output" not in seen else None
            seen.append("begun")

        def read(self, read: ReadRequest, record: AccessRecord) -> None:
            seen.append("read")

        def backend_call(self, backend: str, request: ModelRequest) -> BackendObserver:
            return BackendObserver()

        def ended(self, record: AccessRecord) -> None:
            seen.append(f"ended {record.status}")

    config = read_config({"backends": {"m": {"kind": "mock", "script": ["Hello."]}}})
    server = TestServer(create_app(config, observe=[Sees]))
    async with server, sdk(server) as session:
        made = await session.responses.create(model="m", input="hi", background=True)
        await over(session, made.id)
        await idle(server)
        assert seen == ["begun", "read", "output", "ended 200"]
        seen.clear()
        with pytest.raises(openai.NotFoundError):
            await session.responses.create(model="m", input="hi", background=True, conversation="conv_nope")
        assert seen == ["begun", "read", "output", "ended 404"]


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


async def test_where_nothing_is_kept(gateway: Gateway) -> None:
    """Without a store, and without the middleware."""
    mock = {"m": {"kind": "mock", "script": ["Hello."]}}
    chain = ["validation", "arguments", "transformation", "injection", "forwarding"]
    for sections in ({"store": {"kind": "none"}}, {"chain": chain}):
        async with sdk(await gateway(read_config({"backends": mock, **sections}))) as session:
            with pytest.raises(openai.BadRequestError) as refused:
                await session.responses.create(model="m", input="x", background=True)
        assert refused.value.param == "background"


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


async def test_the_end_of_the_application_ends_them(gateway: Gateway, tmp_path: Path) -> None:
    store = {"kind": "sqlite", "path": str(tmp_path / "r.sqlite3")}
    async with holding() as (upstream, _):
        config = upstream_config(upstream.url, store=store)
        first, second = await gateway(config), await gateway(config)
        async with sdk(first) as session:
            ident = await running(session)
        await first.close()
        async with sdk(second) as session:
            check_failed(await session.responses.retrieve(ident), "shutting_down")


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
