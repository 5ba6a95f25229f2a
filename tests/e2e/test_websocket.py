"""Responses over WebSocket (R28.2): what is said on a connection, and what it remembers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import aiohttp
from aiohttp import web

from tests.cases import every
from tests.e2e.conftest import Gateway, gateway_before, get, post, read_config, sdk, serving, upstream_config
from tests.e2e.responses_answers import read_events
from tests.e2e.sockets import PATH, Socket, connected, handshake, said, talking
from tests.waiting import GUARD_S
from toolwire.config import DEFAULT_CHAIN
from toolwire.pipeline.websocket.sockets import SOCKETS
from toolwire.testing import Answer, Say, Upstream, chunk, frame

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
CALL = '<tool_call>{"name":"look","arguments":{}}</tool_call>'


def without_ids(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(event["type"], event["sequence_number"], event.get("delta")) for event in events]


@every("path, text", [("/v1/responses", f"I look. {CALL}"), ("/responses", "Hello there.")])
async def test_the_events_are_those_of_the_stream(gateway: Gateway, path: str, text: str) -> None:
    """R8.15. One frame each, without SSE around them and without a mark at the end."""
    server = await gateway(script=[{"text": text}, {"text": text}], responses={"done_marker": True})
    body = {"input": "hi", "tools": [TOOL]}
    over_http = read_events((await post(server, {**body, "stream": True}, path=path)).body, marker=True)
    async with aiohttp.ClientSession() as session, session.ws_connect(server.make_url(path)) as raw:
        socket = Socket(raw)
        await socket.create(**body)
        events = await socket.events()
    assert without_ids(events) == without_ids(over_http)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


@every("store", [True, False])
async def test_a_response_is_continued(store: bool) -> None:
    """With `store: false` only on its connection."""
    async with gateway_before([Say("One."), Say("Two."), Say("Three.")]) as (server, upstream):
        async with connected(server) as socket:
            first = await socket.respond(input="hi", store=store)
            second = await socket.respond(input="and?", previous_response_id=first["id"], store=store)
            assert [said(first), said(second)] == ["One.", "Two."]
            assert (first["store"], second["previous_response_id"]) == (store, first["id"])
        asked = [message["content"] for message in upstream.requests[1].json["messages"]]
        assert asked == ["hi", "One.", "and?"]
        async with connected(server) as other:
            third = await other.ask(input="more", previous_response_id=second["id"])
    assert third["type"] == ("response.completed" if store else "error")
    if not store:
        assert third["status"] == 400
        assert third["error"]["code"] == "previous_response_not_found"
        assert third["error"]["param"] == "previous_response_id"


async def test_only_the_latest_is_remembered_and_all_before_it(gateway: Gateway) -> None:
    server = await gateway(script=["1", "2", "3", "4", "5"])
    async with connected(server) as socket:
        first = await socket.respond(input="a", store=False)
        second = await socket.respond(input="b", store=False, previous_response_id=first["id"])
        third = await socket.respond(input="c", store=False, previous_response_id=second["id"])
        assert said(third) == "3"
        missing = await socket.ask(input="d", store=False, previous_response_id=second["id"])
        assert missing["error"]["code"] == "previous_response_not_found"
        assert (await socket.respond(input="d", store=False, previous_response_id=third["id"]))["output"]
        assert server.app[SOCKETS].memory._turns == 4
        await socket.respond(input="a new beginning", store=False)
        assert server.app[SOCKETS].memory._turns == 1


async def test_without_a_store_it_is_remembered_as_well() -> None:
    config = read_config({"backends": {"m": {"kind": "mock", "script": ["1", "2"]}}, "store": {"kind": "none"}})
    async with serving(config) as server, connected(server) as socket:
        first = await socket.respond(input="a")
        assert first["store"] is False
        assert said(await socket.respond(input="b", previous_response_id=first["id"])) == "2"


@every("bad, ends", [({"input": "b"}, "response.failed"), ({"input": 7}, "error")])
async def test_a_turn_that_failed_forgets_what_it_continued(gateway: Gateway, bad: dict[str, Any], ends: str) -> None:
    """Also one that was refused."""
    error = {"text": "I begin, and", "error": {"message": "it fell over", "after": 8}}
    server = await gateway(script=["1", error, "3"])
    async with connected(server) as socket:
        first = await socket.respond(input="a", store=False)
        failed = await socket.ask(**bad, store=False, previous_response_id=first["id"])
        assert failed["type"] == ends
        again = await socket.ask(input="b", store=False, previous_response_id=first["id"])
        assert again["error"]["code"] == "previous_response_not_found"


@every("store", [True, False])
async def test_nothing_is_generated(store: bool) -> None:
    """`generate: false`: no server is asked, and what was said is there for the next turn."""
    async with gateway_before([Say("One.")]) as (server, upstream):
        async with connected(server) as socket:
            await socket.create(input="hi", instructions="Be brief.", tools=[TOOL], store=store, generate=False)
            events = await socket.events()
            assert [event["type"] for event in events][:: len(events) - 1] == ["response.created", "response.completed"]
            response = events[-1]["response"]
            assert (response["output"], response["status"]) == ([], "completed")
            assert upstream.requests == []
            second = await socket.respond(input="go", previous_response_id=response["id"], store=store)
            assert said(second) == "One."
        sent = upstream.requests[0].json
    assert [message["content"] for message in sent["messages"]] == ["hi", "go"]
    assert not {"generate", "type", "stream_id"} & sent.keys()


async def test_lanes_answer_side_by_side() -> None:
    gate = asyncio.Event()

    def turn(asked: Any) -> Any:
        words = str(asked.json["messages"][-1]["content"])
        return (Say("Slow", gate, " one.") if "slow" in words else Say(f"Answer to {words}."))(asked)

    async with talking([turn]) as (_, socket):
        await socket.create(input="slow", stream_id="a")
        await socket.create(input="second", stream_id="a")
        await socket.create(input="quick", stream_id="b")
        quick: list[dict[str, Any]] = []
        while not quick or quick[-1]["type"] != "response.completed":
            event = await socket.event()
            assert event["type"] != "response.completed" or event["stream_id"] == "b"
            if event["stream_id"] == "b":
                quick.append(event)
        assert said(quick[-1]["response"]) == "Answer to quick."
        assert [event["sequence_number"] for event in quick] == list(range(len(quick)))
        gate.set()
        ends = []
        while len(ends) < 2:
            event = await socket.event()
            assert event["stream_id"] == "a"
            if event["type"] == "response.completed":
                ends.append(said(event["response"]))
    assert ends == ["Slow one.", "Answer to second."]


async def test_a_lane_continues_its_own_and_another_one(gateway: Gateway) -> None:
    server = await gateway(script=["1", "2", "3", "4"])
    async with connected(server) as socket:
        first = await socket.respond(input="a", store=False, stream_id="main")
        aside = await socket.respond(input="b", store=False, stream_id="side", previous_response_id=first["id"])
        second = await socket.respond(input="c", store=False, stream_id="main", previous_response_id=first["id"])
        third = await socket.respond(input="d", store=False, stream_id="side", previous_response_id=aside["id"])
        assert [said(each) for each in (first, aside, second, third)] == ["1", "2", "2", "3"]  # by turn


@web.middleware
async def marking(request: web.Request, handler: Any) -> web.StreamResponse:
    """A plain aiohttp middleware: it sees a request as any other."""
    SEEN.append((request.method, request.path, (await request.json())["input"]))
    return cast("web.StreamResponse", await handler(request))


SEEN: list[Any] = []


async def test_it_is_counted_captured_and_seen_as_over_http() -> None:
    backends = {"m": {"kind": "mock", "script": ["1"]}}
    chain = [{"use": f"{__name__}:marking"}, *DEFAULT_CHAIN]
    config = read_config({"backends": backends, "capture": {"keep": 5}, "inspect": {"on": True}, "chain": chain})
    SEEN.clear()
    async with serving(config) as server:
        async with connected(server) as socket:
            await socket.respond(input="a")
            refused = await socket.ask(input="a", model=7)
            assert refused["error"]["code"] == "invalid_type"
        lines = (await get(server, "/metrics")).body.decode().splitlines()
        async with asyncio.timeout(GUARD_S):  # they are written in a thread
            while len((await get(server, "/admin/captures")).json()["data"]) < 2:
                pass
    counted = [line for line in lines if line.startswith("toolwire_requests_total") and '"responses"' in line]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == 2, counted
    assert SEEN == [("POST", PATH, "a")]


async def test_where_it_is_off_the_answer_is_426() -> None:
    backends = {"m": {"kind": "mock", "script": ["1"]}}
    async with serving(read_config({"backends": backends, "websocket": {"on": False}})) as server:
        assert await handshake(server) == 426


SHAKE = {
    "Sec-WebSocket-Key": "A" * 22 + "==",
    "Sec-WebSocket-Version": "13",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
}


async def test_half_a_handshake_is_an_error(gateway: Gateway) -> None:
    """Behind a proxy that drops the wish, as nginx does unless it is told otherwise, it is 426."""
    server = await gateway(script=["1"])
    for missing in ("Connection", "Sec-WebSocket-Key", "Sec-WebSocket-Version"):
        answer = await get(server, PATH, headers={name: SHAKE[name] for name in SHAKE if name != missing})
        assert (answer.status, answer.json()["error"]["code"]) == (400, "malformed_request"), missing
    dropped = await get(server, PATH, headers={name: SHAKE[name] for name in SHAKE if name.startswith("Sec-")})
    assert dropped.status == 426
    plain = await get(server, PATH)
    assert (plain.status, plain.headers["Allow"]) == (405, "POST"), "a plain GET is no method of it"


ITEM = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}


@every("store, denied", [(False, False), (True, False), (False, True)])
async def test_tools_of_the_turns_before_are_on_offer(store: bool, denied: bool) -> None:
    """R28.1. Codex sends them once, when it prepares the first turn. What is denied is so there as well."""
    chain = [{"use": "tool_filter", "options": {"deny": ["look"]}}, *DEFAULT_CHAIN] if denied else [*DEFAULT_CHAIN]
    async with Upstream([Say(CALL), Say("Done.")]) as upstream:
        config = upstream_config(upstream.url, chain=chain)
        async with serving(config) as server, connected(server) as socket:
            first = await socket.respond(input=[ITEM], store=store, generate=False)
            second = await socket.respond(input="go", previous_response_id=first["id"], store=store)
            calls = [item for item in second["output"] if item["type"] == "function_call"]
            assert [call["name"] for call in calls] == ([] if denied else ["look"])
            result = [{"type": "function_call_output", "call_id": call["call_id"], "output": "seen"} for call in calls]
            third = await socket.respond(input=result or "go", previous_response_id=second["id"], store=store)
            assert said(third) == "Done."
    assert [("look" in str(asked.json["messages"][0])) for asked in upstream.requests] == [not denied] * 2


# --- in the background (R28.7) --------------------------------------------------------------------------------------


async def test_a_response_in_the_background_outlives_its_connection() -> None:
    more = asyncio.Event()
    end = [frame(chunk({"content": " again."})), frame(chunk({}, "stop")), b"data: [DONE]\n\n"]
    answer = Answer([frame(chunk({"content": "Hello"})), more, *end])
    async with gateway_before([answer]) as (server, _):
        async with connected(server) as socket:
            await socket.create(input="hi", background=True)
            event = await socket.event()
            assert event["type"] == "response.created"
            ident = event["response"]["id"]
            while event["type"] != "response.output_text.delta":
                event = await socket.event()
        more.set()
        async with sdk(server) as session, asyncio.timeout(GUARD_S):
            while (kept := await session.responses.retrieve(ident)).status in ("queued", "in_progress"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (kept.status, kept.output_text) == ("completed", "Hello again.")
