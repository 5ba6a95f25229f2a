"""Server-side tools over real sockets: the real client over Responses, streamed and not; clients that leave;
keys. Rounds, limits, names and native servers: `tests/chain/test_execution.py`, `tests/chain/test_kept_rounds.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, function, get, post, sdk, serving, upstream_config
from tests.waiting import GUARD_S, until
from toolwire.pipeline.handlers.status import SERVER_TOOLS
from toolwire.testing import Say, Upstream

MODULE = """
import pathlib, time
_HERE = pathlib.Path(__file__).parent
_EMPTY = {"type": "object", "properties": {}}
_NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}

def _tool(name, parameters=_EMPTY):
    return {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}

TOOLS = [_tool("add", _NUMBERS), _tool("wait")]

def handle_tool_call(tool_name, tool_input):
    if tool_name == "wait":
        (_HERE / "begun").touch()
        while not (_HERE / "go").exists():
            time.sleep(0.005)
        return "waited"
    return str(tool_input["a"] + tool_input["b"])
"""


ADD = block("add", {"a": 1, "b": 2})
WAIT = block("wait", {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "maths.py").write_text(MODULE)
    return tmp_path


@asynccontextmanager
async def before(
    folder: Path, upstream: Upstream, *, options: Any = None, **sections: Any
) -> AsyncIterator[TestServer]:
    """A gateway with the tools above."""
    tools = {"folder": str(folder), "timeout_s": GUARD_S, "watch_s": 0, "wait_s": GUARD_S, "load_timeout_s": GUARD_S}
    sections = {"tools": tools, "store": {"kind": "memory"}, "defaults": options or {}, **sections}
    async with serving(upstream_config(upstream.url, **sections)) as server:
        yield server


def texts(request: Any) -> str:
    """What the model server was sent."""
    return json.dumps(request.json["messages"])


@pytest.mark.parametrize(("exposed", "ids"), [(False, "random"), (True, "sequential")])
async def test_responses_with_the_real_client(folder: Path, exposed: bool, ids: str) -> None:
    options = {"expose_server_tools": exposed, "responses": {"ids": ids}}
    script = [Say("Let me see.", ADD), Say("It is 3."), Say("Still 3.")]
    async with Upstream(script) as upstream, before(folder, upstream, options=options) as server, sdk(server) as client:
        answer = await client.responses.create(model="m", input="hi")
        kinds = ["message", "function_call", "function_call_output", "message"] if exposed else ["message"]
        assert [item.type for item in answer.output] == kinds
        assert answer.status == "completed"
        if exposed:
            call, output = answer.output[1].to_dict(), answer.output[2].to_dict()
            assert (call["call_id"], call["name"], output["output"]) == (output["call_id"], "add", "3")
        else:
            assert answer.output_text == "Let me see.\n\nIt is 3."
        assert (await client.responses.retrieve(answer.id)).to_dict() == answer.to_dict()
        again = await client.responses.create(model="m", input="again", previous_response_id=answer.id)
        assert again.output_text == "Still 3."
        shown = texts(upstream.requests[2])
        assert shown.count("\\n3\\n</tool_response>") == 1
        assert shown.count("It is 3.") == 1


@pytest.mark.parametrize("exposed", [False, True])
async def test_streamed_responses_with_the_real_client(folder: Path, exposed: bool) -> None:
    script = [Say("Let me see.", ADD, WAIT), Say("It is 3."), Say("The end.")]
    async with (
        Upstream(script) as upstream,
        before(folder, upstream, options={"expose_server_tools": exposed}) as server,
        sdk(server) as client,
    ):
        (folder / "go").touch()
        events: list[Any] = []
        async with client.responses.stream(model="m", input="hi") as stream:
            async for event in stream:
                events.append(event)
            final = await stream.get_final_response()
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert [event.type for event in events].count("response.created") == 1
        assert events[-1].type == "response.completed"
        added = [event.output_index for event in events if event.type == "response.output_item.added"]
        assert added == list(range(len(final.output)))
        outputs = [item.to_dict() for item in final.output if item.type == "function_call_output"]
        assert [item["output"] for item in outputs] == (["3", "waited"] if exposed else [])
        stored = await client.responses.retrieve(final.id)
        (completed,) = (event for event in events if event.type == "response.completed")
        assert [item.id for item in stored.output] == [item.id for item in completed.response.output]
        assert [item.type for item in stored.output] == [item.type for item in final.output]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_a_tool_runs(folder: Path, stream: bool) -> None:
    async with Upstream([Say("One.", WAIT), Say("Two.")]) as upstream, before(folder, upstream) as server:

        async def ask() -> None:
            async with aiohttp.ClientSession() as session:
                body = {"model": "m", "messages": USER, "stream": stream}
                async with session.post(server.make_url(CHAT), json=body) as response:
                    await response.read()

        asking = asyncio.create_task(ask())
        await until((folder / "begun").exists)
        asking.cancel()
        await asyncio.wait({asking})
        tools = server.app[SERVER_TOOLS]  # type: ignore[union-attr]
        await until(lambda: tools.shown()["calls"]["processes"]["killed"] == 1)
        await until(lambda: tools.shown()["calls"]["processes"]["running"] == 0)
        assert len(upstream.requests) == 1


async def test_a_response_that_is_cancelled_in_a_later_round(folder: Path) -> None:
    script = [Say("One.", ADD), Say("Two.", asyncio.Event())]
    async with Upstream(script) as upstream, before(folder, upstream) as server, sdk(server) as client:
        stream = await client.responses.create(model="m", input="hi", stream=True)
        ident, last = "", None
        async for event in stream:
            last = event
            if event.type == "response.created":
                ident = event.response.id
            if event.type == "response.output_text.delta" and "Two." in event.delta:
                await client.responses.cancel(ident)
        assert last is not None
        assert last.type == "response.incomplete"
        assert last.response.status == "cancelled"
        async with asyncio.timeout(GUARD_S):
            await upstream.requests[1].dropped.wait()
        stored = await client.responses.retrieve(ident)
        assert stored == last.response


async def test_signs_of_life_while_a_tool_runs(folder: Path) -> None:
    async with (
        Upstream([Say("One.", WAIT), Say("Two.")]) as upstream,
        before(folder, upstream, server={"keepalive_s": 0.01}) as server,
        aiohttp.ClientSession() as session,
        session.post(server.make_url(CHAT), json={"model": "m", "messages": USER, "stream": True}) as response,
    ):
        lines: list[bytes] = []
        async with asyncio.timeout(GUARD_S):
            while b": keep-alive\n" not in lines:
                lines.append(await response.content.readline())
        (folder / "go").touch()
        lines += [line async for line in response.content]
        text = b"".join(lines)
        assert text.index(b"One.") < text.index(b": keep-alive") < text.index(b"Two.")
        assert text.endswith(b"data: [DONE]\n\n")


async def test_where_the_modules_stand_is_shown_to_those_with_a_key(folder: Path) -> None:
    (folder / "broken.py").write_text("TOOLS = 7")
    async with Upstream([Say("x")]) as upstream, before(folder, upstream, auth={"keys": ["secret"]}) as server:
        assert (await get(server, "/admin/tools")).status == 401
        shown = (await get(server, "/admin/tools", headers={"x-api-key": "secret"})).json()
        assert shown["folder"] == str(folder)
        broken, maths = shown["modules"]
        assert (broken["module"], broken["state"], broken["tools"]) == ("broken", "FAILED_VALIDATION", [])
        assert broken["error"] == {"kind": "TypeError", "message": "TOOLS must be a list or None, not int."}
        assert (maths["state"], [tool["name"] for tool in maths["tools"]]) == ("LOADED_WITH_TOOLS", ["add", "wait"])


async def test_a_tool_of_the_clients_group_with_the_name_of_ours_is_the_clients(folder: Path) -> None:
    inner = {"type": "function", **function("add", x="integer")["function"]}
    group = {"type": "namespace", "name": "mine", "description": "x", "tools": [inner]}
    async with Upstream([Say(block("mine__add", {"x": 1}))]) as upstream, before(folder, upstream) as server:
        answer = (await post(server, {"input": "hi", "tools": [group]}, path="/v1/responses")).json()
    (call,) = answer["output"]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "mine", "add")
