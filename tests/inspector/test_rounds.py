"""Exchanges with several calls of servers, with errors, and such that run: of real ones, by what the server sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from tests.cases import every
from tests.e2e.conftest import CHAT, read_config
from tests.inspector.inspected import CALL, WEATHER, answering, asked, inspecting, lane, raw, seen, told
from tests.waiting import GUARD_S
from toolwire.testing import Refuse, Say, Upstream


async def test_a_second_server_after_the_first_failed() -> None:
    async with Upstream([Refuse(500, "out of order")]) as bad, Upstream([Say(CALL)]) as good:
        config = {
            "backends": {"bad": {"url": bad.url}, "good": {"url": good.url}},
            "routes": [{"backend": "bad", "fallback": ["good"]}],
            "inspect": True,
        }
        async with inspecting(read_config(config)) as gateway:
            _, view = await gateway.ask(asked(CHAT, WEATHER, stream=True))
    assert [(one["number"], one["backend"], one["status"]) for one in view["rounds"]] == [
        (1, "bad", 500),
        (2, "good", 200),
    ]
    assert [(judgement["kind"], judgement["round"]) for judgement in view["judgements"]] == [
        ("failed", 1),
        ("retried", 1),
    ]
    assert lane(view, 1) == []
    assert b"out of order" in b"".join(read["data"].encode() for read in view["rounds"][0]["frames"])
    assert lane(view, 2) == [("call", CALL)]
    assert view["calls"][0]["round"] == 2
    assert view["head"]["backend"] == "good"


async def test_a_near_miss_and_the_question_after_it() -> None:
    miss = CALL.replace("weather", "wether")
    async with answering(Say(miss), Say(CALL)) as (gateway, upstream):
        got, view = await gateway.ask(asked(CHAT, WEATHER, stream=True))
    assert b"Paris" in got.body
    assert len(upstream.posts) == 2
    assert [one["number"] for one in view["rounds"]] == [1, 2]
    assert lane(view, 1) == [("refused", miss)]
    assert lane(view, 2) == [("call", CALL)]
    assert [(judgement["kind"], judgement["round"]) for judgement in view["judgements"]] == [
        ("refused", 1),
        ("retried", 1),
    ]
    assert '"wether"' in view["judgements"][0]["words"]
    assert told(view) == [1]


MODULE = """
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": SCHEMA}}]


def handle_tool_call(name, parameters):
    return "rain in " + parameters["city"]
"""


async def test_tools_that_the_gateway_runs(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(MODULE)
    tools = {"folder": str(tmp_path), "timeout_s": GUARD_S, "watch_s": 0, "wait_s": GUARD_S, "load_timeout_s": GUARD_S}
    async with answering(Say(CALL), Say("It rains."), tools=tools) as (gateway, _):
        _, view = await gateway.ask(asked(stream=True))
    assert lane(view, 1) == [("call", CALL)]
    assert lane(view, 2) == [("text", "It rains.")]
    (run,) = view["tools"]
    assert (run["name"], run["state"], run["result"]) == ("weather", "TOOL_COMPLETED", "rain in Paris")
    assert orjson.loads(run["arguments"]) == {"city": "Paris"}
    assert view["rounds"][0]["at"] <= run["from"] <= run["to"] <= view["rounds"][1]["at"]
    assert told(view) == []  # the client was not told of it
    pieces = [
        (message["role"], span["kind"], span["text"])
        for message in view["rounds"][1]["prompt"]["messages"]
        for span in message["spans"]
    ]
    assert any("rain in Paris" in text and kind == "history" for _, kind, text in pieces), pieces


async def test_calls_are_numbered_across_all_rounds(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(MODULE)
    tools = {"folder": str(tmp_path), "timeout_s": GUARD_S, "watch_s": 0, "wait_s": GUARD_S, "load_timeout_s": GUARD_S}
    answers = [Say(CALL.replace("Paris", city)) for city in ("Rome", "Oslo", "Bonn")]
    async with answering(*answers, Say("It rains."), tools=tools) as (gateway, _):
        _, view = await gateway.ask(asked(stream=True))
    assert [(call["n"], call["round"]) for call in view["calls"]] == [(1, 1), (2, 2), (3, 3)]


async def test_errors_of_the_request_have_no_round() -> None:
    async with answering(Say("x")) as (gateway, _):
        got, view = await gateway.ask({"model": "m", "messages": "no list"})
        assert got.status == 400
        assert (view["status"], view["code"]) == (400, got.json()["error"]["code"])
        assert view["rounds"] == []
        assert view["client"]["events"][0]["data"] == got.body.decode()
        call = {"id": "nobody", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        got, view = await gateway.ask(asked(messages=[{"role": "assistant", "tool_calls": [call, call]}]))
        assert got.status == 400
        assert view["rounds"] == []
        assert "nobody" in view["request"]["text"]


async def test_a_server_that_breaks_off() -> None:
    got, view = await seen(Say("half an ", "answer", cut=True), WEATHER)
    assert view["code"] == "upstream_disconnected"
    assert lane(view) == [("text", "half an answer")]
    (failed,) = [judgement for judgement in view["judgements"] if judgement["kind"] == "failed"]
    assert "upstream_disconnected" in failed["words"]
    assert b"half an" in got.body


async def test_a_client_that_leaves() -> None:
    more = asyncio.Event()
    async with answering(Say("one ", more, "two")) as (gateway, _), asyncio.timeout(GUARD_S):
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                gateway.server.make_url(CHAT), json=asked(stream=True), headers={"X-Request-Id": "left"}
            ) as response,
        ):
            await response.content.readuntil(b"one")
        view = await gateway.ended("left")
    assert (view["status"], view["code"]) == (499, "client_closed_request")
    assert "two" not in raw(view)["text"]


async def test_an_exchange_that_runs() -> None:
    """What is not decided yet is open; nothing is said of it that may turn out wrong."""
    more = asyncio.Event()
    begun = "Well. <tool_call>{"
    async with answering(Say(begun, more, CALL[12:])) as (gateway, _), asyncio.timeout(GUARD_S):
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                gateway.server.make_url(CHAT), json=asked(CHAT, WEATHER, stream=True), headers={"X-Request-Id": "runs"}
            ) as response,
        ):
            await response.content.readuntil(b"Well.")
            view = (await gateway.get("exchanges/runs"))[1]
            assert view["running"] is True
            assert lane(view)[0] == ("text", "Well.")
            assert lane(view)[-1][0] == "open"
            assert lane(view)[-1][1].endswith("<tool_call>{")
            assert (view["judgements"], view["calls"]) == ([], [])
            step = raw(view)["steps"][-1]
            assert step["held"] > 0
            assert step["state"] not in ("done", "text")
            more.set()
            await response.read()
        view = await gateway.ended("runs")
    assert lane(view) == [("text", "Well."), ("markup", " "), ("call", CALL)]


async def test_a_capture_that_had_no_room() -> None:
    """The begin is there, nothing is made up for the rest, and it is said how much is missing."""
    text = "word " * 2000
    async with answering(Say("Well.", text, CALL), capture={"exchange_bytes": 4000}) as (gateway, _):
        got, view = await gateway.ask(asked(CHAT, WEATHER, stream=True))
    assert view["left_out_bytes"] > len(text)
    assert view["judgements"] == [], "what was not recorded was not cut"
    assert got.body.count(b"Paris") == 1


@every("reply", ["hello", {"text": f"So. {CALL}", "chunk": 5}, {"reasoning": "Hm.", "text": "Yes."}])
@every("stream", [True, False])
async def test_a_backend_without_bytes(reply: Any, stream: bool) -> None:
    config = {"inspect": True, "backends": {"mock": {"kind": "mock", "script": [reply]}}}
    async with inspecting(read_config(config)) as gateway:
        _, view = await gateway.ask(asked(CHAT, WEATHER, stream=stream))
    text = reply if isinstance(reply, str) else reply["text"]
    assert raw(view)["text"].endswith(text)
    assert lane(view)[-1][0] == ("call" if "Paris" in text else "text")
    assert view["rounds"][0]["prompt"]["messages"][-1]["spans"][-1] == {"text": "hi", "kind": "client", "tools": []}
    assert view["rounds"][0]["backend"] == "mock"
    if not isinstance(reply, str) and "reasoning" in reply:
        assert lane(view)[0] == ("reasoning", "Hm.")
