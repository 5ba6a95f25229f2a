"""What the gateway ran belongs to a conversation that it remembers (R15.8, R12.3): the model sees it again, no client
does."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

import toolwire.middlewares.execution
import toolwire.pipeline.exchange.tool_memory
from tests.chain.test_execution import ADD, LOOK, MODULE, prompt, told, turn
from tests.e2e.conftest import CHAT, USER
from tests.e2e.meaning import RESPONSES
from tests.options import in_sections
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.configuration.settings import load
from toolwire.model import ModelRequest
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.registry import registries
from toolwire.testing import ScriptedBackend, read_frames
from toolwire.upstream.servers.mock import MockSource

BIG = {"a": 70_000_000_000, "b": 1}
BIGGER = {"a": 80_000_000_000, "b": 1}
"""Their sums stand in no id."""
LOOK_TOOL = {"type": "function", **LOOK["function"]}


def without_ids(value: Any) -> str:
    """The JSON of a value without what is random in it, ids and what is encrypted: that may spell any short word."""
    return re.sub(r"[\w+/=-]{24,}", "", json.dumps(value))


class InOrder(ScriptedBackend):
    """Each answer once, whatever is asked."""

    async def open(self, request: ModelRequest, **more: Any) -> MockSource:
        if not self.requests:
            self.answers = list(self._turns)
        self._turns = self.answers[len(self.requests) :][:1]
        return await super().open(request, **more)


class Gate:
    """A gateway, what its model was asked, and what a client gets of it."""

    def __init__(self, client: TestClient[Any, Any], backend: ScriptedBackend) -> None:
        self.client = client
        self.backend = backend

    async def ask(self, *, status: int = 200, path: str = RESPONSES, **body: Any) -> Any:
        async with self.client.post(path, json={"model": "m", **body}) as response:
            answer = await response.read()
            assert response.status == status, answer
        return read_frames(answer)[-1]["response"] if body.get("stream") else json.loads(answer)

    async def get(self, path: str, status: int = 200) -> Any:
        async with self.client.get(f"{RESPONSES}/{path}") as response:
            assert response.status == status
            return await response.json()

    async def seen(self, ident: str) -> str:
        """All that a client can read of a response."""
        return without_ids([await self.get(ident), await self.get(f"{ident}/input_items?limit=100")])

    @property
    def shown(self) -> str:
        """What the model was asked last."""
        return prompt(self.backend.requests[-1])


@pytest.fixture
def gate(tmp_path: Path) -> Any:
    """`gate(script, mode=..., ...)`: a gateway with the tools of `test_execution`; the options are those of
    `defaults`."""

    @asynccontextmanager
    async def opened(
        script: Sequence[Any], *, store: str = "memory", sections: Any = None, **options: Any
    ) -> AsyncIterator[Gate]:
        folder = tmp_path / "tools"
        folder.mkdir(exist_ok=True)
        (folder / "maths.py").write_text(MODULE)
        backend = InOrder(script)
        plugins = registries()
        plugins.backends.register("scripted", lambda name, config, limits: backend)
        kept = {"kind": store, **({"path": str(tmp_path / "kept.sqlite3")} if store == "sqlite" else {})}
        config = load(
            None,
            env={},
            overrides={
                "tools": {"folder": str(folder), "timeout_s": GUARD_S, "watch_s": 0},
                "store": kept,
                "backends": {"m": {"kind": "mock"}},
                "defaults": in_sections(options),
                **(sections or {}),
            },
        )
        mock = dataclasses.replace(config.backends["m"], kind="scripted", script=None)
        async with TestClient(
            TestServer(create_app(dataclasses.replace(config, backends={"m": mock}), plugins=plugins))
        ) as client:
            yield Gate(client, backend)

    return opened


def places(text: str, *marks: str) -> None:
    """Each stands there once, in this order."""
    assert [text.count(mark) for mark in marks] == [1] * len(marks), text
    found = [text.index(mark) for mark in marks]
    assert found == sorted(found), text


@pytest.mark.parametrize(
    ("mode", "stream", "store", "ids"),  # each pair of values once
    [
        ("prompt", False, "memory", "random"),
        ("prompt", True, "sqlite", "sequential"),
        ("native", False, "sqlite", "sequential"),
        ("native", True, "memory", "sequential"),
        ("native", True, "sqlite", "random"),
    ],
)
async def test_the_model_sees_again_what_the_gateway_ran(
    gate: Any, mode: str, stream: bool, store: str, ids: str
) -> None:
    script = [
        turn(mode, "Let me see.", ADD),
        turn(mode, "", ("add", BIG), ("nothing", {})),
        "All known.",
        turn(mode, "", ("add", BIGGER)),
        "Yes.",
        "Good-bye.",
    ]
    results = [told(mode, text) for text in ("3", "70000000001", "Error: Unknown tool: nothing")]
    async with gate(script, mode=mode, store=store, responses={"ids": ids}) as g:
        first = await g.ask(input="Good morning.", stream=stream)
        assert [item["type"] for item in first["output"]] == ["message"]
        second = await g.ask(input="sure?", stream=stream, previous_response_id=first["id"])
        places(prompt(g.backend.requests[3]), "Good morning.", *results, "Let me see.", "All known.", "sure?")
        third = await g.ask(input="bye", stream=stream, previous_response_id=second["id"])
        places(g.shown, "Good morning.", *results, "All known.", "sure?", told(mode, "80000000001"), "Yes.", "bye")
        await g.ask(input="or else", previous_response_id=first["id"])  # another branch
        assert "80000000001" not in g.shown
        places(g.shown, "Good morning.", *results, "All known.", "or else")
        for ident in (first["id"], second["id"], third["id"]):
            seen = await g.seen(ident)
            assert not any(
                word in seen for word in ("add", "70000000001", "80000000001", "nothing", "function_call", "rounds")
            )
            await g.get(f"kept_{ident}", 404)


@pytest.mark.parametrize(("stream", "ids"), [(False, "random"), (True, "sequential")])
async def test_calls_of_both_sides_stand_there_once(gate: Any, stream: bool, ids: str) -> None:
    """Before and beside the client's call, and after its result."""
    script = [
        turn("prompt", "", ADD),
        turn("prompt", "Now you.", ("add", BIG), ("look", {"y": 1})),
        turn("prompt", "", ("add", BIGGER)),
        "Done.",
        "Good-bye.",
    ]
    async with gate(script, responses={"ids": ids}) as g:
        first = await g.ask(input="Good morning.", stream=stream, tools=[LOOK_TOOL])
        (call,) = [item for item in first["output"] if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a tree"}
        second = await g.ask(input=[result], stream=stream, tools=[LOOK_TOOL], previous_response_id=first["id"])
        three, forty, tree, last = (told("prompt", text) for text in ("3", "70000000001", "a tree", "80000000001"))
        places(prompt(g.backend.requests[2]), "Good morning.", three, forty, tree)
        await g.ask(input="bye", previous_response_id=second["id"])
        places(g.shown, "Good morning.", three, forty, tree, last, "Done.", "bye")
        for ident in (first["id"], second["id"]):
            seen = await g.seen(ident)
            assert not any(word in seen for word in ("add", "70000000001", "80000000001"))


@pytest.mark.parametrize(
    ("mode", "stream", "streaming"),
    [("prompt", False, "buffered"), ("prompt", True, 0), ("native", False, 0), ("native", True, "buffered")],
)
async def test_results_are_there_again_when_a_client_of_chat_goes_on(
    gate: Any, mode: str, stream: bool, streaming: Any
) -> None:
    """It echoes its own calls only, and the model gets every result once."""
    rounds = [("add", {"a": 20, "b": 20})], [ADD, ("look", {}), ("look", {"y": 2})]
    script = [turn(mode, f"Round {i}.", *made) for i, made in enumerate(rounds)]
    async with gate([*script, "The end."], mode=mode, argument_streaming=streaming) as g:
        body = {"model": "m", "messages": USER, "tools": [LOOK], "stream": stream}
        async with g.client.post(CHAT, json=body) as response:
            ids = re.findall(r'"id":"(call_\w+)"', await response.text())
        assert len(ids) == 2
        look = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
        calls = [{**look, "id": ident} for ident in ids]
        said = {"role": "assistant", "content": "Round 0.\n\nRound 1.", "tool_calls": calls}
        given_back = [{"role": "tool", "tool_call_id": ident, "content": "a tree"} for ident in ids]
        await g.ask(path=CHAT, messages=[*USER, said, *given_back], tools=[LOOK])
        places(g.shown, told(mode, "40"), told(mode, "3"))
        assert [g.shown.count(text) for text in ("Round 0.", "Round 1.", "a tree")] == [1, 1, 2]


@pytest.mark.parametrize("limit", [{"max_iterations": 2}, {"max_calls": 1}])
async def test_at_a_limit_what_was_run_is_kept(gate: Any, limit: Any) -> None:
    async with gate([turn("prompt", "One.", ADD), turn("prompt", "Two.", ADD), "Bye."], tool_loop=limit) as g:
        first = await g.ask(input="Good morning.")
        assert first["output"][0]["content"][0]["text"] == "One.\n\nTwo."
        await g.ask(input="bye", previous_response_id=first["id"])
        places(g.shown, told("prompt", "3"), "One.", "bye")


async def test_what_the_client_does_not_want_stored_is_not(gate: Any) -> None:
    script = [turn("prompt", "", ADD), "It is 3.", turn("prompt", "", ("add", BIG)), "Yes.", "Bye."]
    async with gate(script) as g:
        first = await g.ask(input="Good morning.")
        second = await g.ask(input="sure?", store=False, previous_response_id=first["id"])
        assert told("prompt", "3") in g.shown  # it goes on from what was
        await g.get(second["id"], 404)
        await g.ask(status=400, input="bye", previous_response_id=second["id"])


async def test_deleted_with_their_response(gate: Any) -> None:
    """Those under the id of a client's call as well, which it could echo."""
    script = [turn("prompt", "", ADD), turn("prompt", "Now you.", ("look", {})), "Done."]
    async with gate(script) as g:
        first = await g.ask(input="Good morning.", tools=[LOOK_TOOL])
        (call,) = [item for item in first["output"] if item["type"] == "function_call"]
        conversations = g.client.app[CONVERSATIONS]  # type: ignore[index]
        assert await conversations.get(f"kept_{call['call_id']}", "") is not None
        async with g.client.delete(f"{RESPONSES}/{first['id']}") as response:
            assert response.status == 200
        assert await conversations.get(f"kept_{call['call_id']}", "") is None
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a tree"}
        said = [{"role": "user", "content": "Good morning."}, *first["output"], result]
        await g.ask(input=said, tools=[LOOK_TOOL])
        assert told("prompt", "3") not in g.shown


async def test_a_summary_is_made_of_them_and_does_not_show_them(gate: Any) -> None:
    async with gate([turn("prompt", "", ADD), "It is 3.", "A summary."]) as g:
        first = await g.ask(input="Good morning.")
        compacted = await g.ask(path=f"{RESPONSES}/compact", previous_response_id=first["id"])
        assert told("prompt", "3") in g.shown
        assert "add" not in without_ids(compacted)


async def test_what_broke_off_cannot_be_gone_on_from(gate: Any) -> None:
    script = [turn("prompt", "One.", ADD), {"error": {"status": 500, "message": "away"}}, "Bye."]
    async with gate(script, retry={"attempts": 1}) as g:
        first = await g.ask(input="Good morning.", stream=True)
        assert first["status"] == "failed"
        await g.ask(status=400, input="bye", previous_response_id=first["id"])


@pytest.mark.parametrize("ids", ["random", "sequential"])
async def test_they_are_no_calls_of_the_client(gate: Any, ids: str) -> None:
    """Neither a loop nor beyond `limits.calls_per_conversation`, and they hide no loop of the client's."""
    look, add = ("look", {"at": "sky"}), ("add", {"a": 1, "b": 2})
    script = [turn("prompt", "", *made) for made in ([add], [look], [add], [look], [add], [look])]
    sections = {"limits": {"calls_per_conversation": 3}}
    options = {"loop_detect": {"repeats": 3, "policy": "fail"}, "responses": {"ids": ids}}
    async with gate(script, sections=sections, **options) as g:
        asked: dict[str, Any] = {"input": "Good morning."}
        for left in (2, 1, 0):
            answer = await g.ask(tools=[LOOK_TOOL], **asked)
            (call,) = [item for item in answer["output"] if item["type"] == "function_call"]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "grey"}
            asked = {"input": [result], "previous_response_id": answer["id"]}
            if not left:
                failed = await g.ask(status=400, tools=[LOOK_TOOL], **asked)
                assert failed["error"]["code"] == "tool_loop_detected"


@pytest.mark.parametrize("client", [False, True], ids=["in the turn", "under a call"])
async def test_the_latest_rounds_are_kept_as_far_as_there_is_room(
    gate: Any, client: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolwire.pipeline.exchange.tool_memory, "MAX_BYTES", 100)
    script = [
        *(turn("prompt", "", ("add", {"a": n, "b": 1000})) for n in (1, 2, 3)),
        turn("prompt", "Now you.", ("look", {})) if client else "So.",
        "Bye.",
    ]
    async with gate(script) as g:
        first = await g.ask(input="Good morning.", tools=[LOOK_TOOL])
        calls = [item for item in first["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": c["call_id"], "output": "x"} for c in calls]
        await g.ask(input=[*results, {"role": "user", "content": "bye"}], previous_response_id=first["id"])
        assert [told("prompt", str(1000 + n)) in g.shown for n in (1, 2, 3)] == [False, False, True]
        assert ["1000" in text for text in g.shown.split("1003")] == [True, False]  # no call without its result


async def test_tools_that_are_gone_are_history(gate: Any, tmp_path: Path) -> None:
    async with gate([turn("prompt", "", ADD), "It is 3."], store="sqlite") as g:
        first = await g.ask(input="Good morning.")
    async with gate(["Bye."], store="sqlite", sections={"tools": {"folder": None}}) as g:
        await g.ask(input="bye", previous_response_id=first["id"])
        places(g.shown, told("prompt", "3"), "It is 3.", "bye")
