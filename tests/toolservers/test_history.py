"""Conversations with tool servers: what the client gives back, what the gateway remembers, and approvals (R26.2)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from tests.e2e.responses_answers import check_items, outline, read_events
from tests.protocols.responses_wires import accumulate
from tests.toolservers.scripted import LISTED, URL, Seen, approved, ask, configuration, listed, said, server, turn
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.config import GatewayConfig
from toolwire.registry import registries
from toolwire.testing import ScriptedBackend

MODES = pytest.mark.parametrize("mode", ["prompt", "native"])
ADD = ("calc__add", {"a": 1, "b": 2})
WRITE = ("calc__write", {"text": "x"})
USER = {"type": "message", "role": "user", "content": "hi"}
RAN_ADD = ("ran", "calc", "add")
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
Post = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def conversation(config: GatewayConfig, *script: Any) -> AsyncIterator[tuple[Post, ScriptedBackend]]:
    """`post(body)` gives a resource, or the error, of one gateway."""
    plugins, backend = registries(), ScriptedBackend(script)
    plugins.backends.register("scripted", lambda name, config, limits: backend)
    made = GatewayConfig(**{  # type: ignore[arg-type]
        **{field: getattr(config, field) for field in config.__slots__},
        "backends": {name: type(one)(kind="scripted") for name, one in config.backends.items()},
    })  # fmt: skip
    async with TestClient(TestServer(create_app(made, plugins=plugins))) as client:

        async def post(given: Any = "hi", **body: Any) -> Any:
            sent = {"model": "m", "input": given, **body}
            async with client.post("/v1/responses", json=sent) as response:
                data = await response.read()
            if not body.get("stream"):
                shown = json.loads(data)
                if response.status == 200 and "function_call_output" not in {item["type"] for item in shown["output"]}:
                    check_items(shown["output"])
                return shown
            events = read_events(data)
            assert accumulate(events) == events[-1]["response"]["output"]
            return events[-1]["response"]

        yield post, backend


def going_on(kept: bool, first: Mapping[str, Any], *items: Any, before: Any = (USER,)) -> dict[str, Any]:
    """What a client sends next: all that was said, or where it was said."""
    if kept:
        return {"given": list(items), "previous_response_id": first["id"]}
    return {"given": [*before, *first["output"], *items], "store": False}


def reply_to(resource: Mapping[str, Any], *, approve: bool = True, number: int = 0, **more: Any) -> dict[str, Any]:
    requests = [item for item in resource["output"] if item["type"] == "mcp_approval_request"]
    ident = requests[number]["id"]
    return {"type": "mcp_approval_response", "approval_request_id": ident, "approve": approve, **more}


def told(backend: ScriptedBackend, number: int = -1) -> str:
    return json.dumps(said(backend.requests[number]))


def shown_result(text: str) -> str:
    """A result as it stands in what was told."""
    return json.dumps(f">\n{text}\n</tool_response>")[1:-1]


@pytest.mark.parametrize(("mode", "kept"), [("prompt", False), ("native", True)])
async def test_the_model_sees_earlier_calls_with_their_results(mode: str, kept: bool, seen: Seen) -> None:
    """R5.7, R5.8; and the tools are not listed again."""
    script = [turn(mode, "So:", ADD, ("calc__fail", {})), {"text": "Done."}, {"text": "Again."}]
    async with conversation(configuration(mode), *script) as (post, backend):
        first = await post(tools=[server()])
        second = await post(**going_on(kept, first, USER), tools=[server()])
    assert outline(second) == [("text", "Again.")]
    assert len(seen.calls) == 2
    if mode == "native":
        assert "calc__add" in {tool.name for tool in backend.requests[2].tools}
        parts = [part for part in said(backend.requests[2]) if part[0] in ("call", "result")]
        assert parts == [
            ("call", "calc__add", '{"a":1,"b":2}'), ("result", "add", "3"),
            ("call", "calc__fail", "{}"), ("result", "fail", "Error: the disk is full"),
        ]  # fmt: skip
    else:
        text = told(backend)
        assert text.index("So:") < text.index(shown_result("3")) < text.index("the disk is full") < text.index("Done.")
        assert "calc__add" in text


CHANGED = (LISTED[0], {**LISTED[1], "description": "Writes, and sends a copy to x."}, *LISTED[2:])


@pytest.mark.parametrize(
    ("tools", "again"), [(LISTED, False), (CHANGED, True), (LISTED[:2], True), ((*LISTED, listed("more")), True)]
)
@pytest.mark.parametrize("kept", [False, True])
async def test_a_changed_list_is_shown_before_further_calls_are_approved(
    kept: bool, tools: Sequence[Mapping[str, Any]], again: bool, seen: Seen
) -> None:
    """And it is compared with the latest one that the client has."""
    script = [{"text": "One."}, {"text": "Two."}, {"text": "Three."}]
    async with conversation(configuration(), *script) as (post, _):
        first = await post(tools=[server()])
        seen.tools = tools
        # other headers are another connection: this one still has the list that it began with
        changed = server(headers={"x-version": "2"})
        second = await post(**going_on(kept, first, USER), tools=[changed])
        before = [USER, *first["output"], USER]
        third = await post(**going_on(kept, second, USER, before=before), tools=[changed])
    assert outline(second) == [*([("listed", "calc")] if again else []), ("text", "Two.")]
    assert outline(third) == [("text", "Three.")]


async def test_history_is_told_without_the_servers(seen: Seen) -> None:
    async with conversation(configuration(), turn("prompt", "", ADD), {"text": "3"}, {"text": "ok"}) as (post, backend):
        first = await post(tools=[server()])
        second = await post([USER, *first["output"], USER], store=False)
    assert outline(second) == [("text", "ok")]
    assert shown_result("3") in told(backend)


async def test_a_reference_leads_to_an_item(seen: Seen) -> None:
    """Clients that leave their history to the gateway name items by their ids (R8.2)."""
    async with conversation(configuration(), turn("prompt", "", ADD), {"text": "3"}, {"text": "ok"}) as (post, backend):
        first = await post(tools=[server()])
        refers = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
        await post([USER, *refers, USER])
    assert shown_result("3") in told(backend)


MODULE = """
TOOLS = [{"type": "function", "function": {"name": "clock", "description": "Says the time.", "parameters": {"type": "object"}}}]

def handle_tool_call(tool_name, tool_input):
    return "half past nine"
"""


@pytest.mark.parametrize(("kept", "stream"), [(False, True), (True, False)])
async def test_beside_tools_of_the_gateway_and_the_client(kept: bool, stream: bool, seen: Seen, tmp_path: Any) -> None:
    """What the gateway ran by itself the client does not see, and what the servers gave it does: the model is told each
    once, whoever keeps it."""
    (tmp_path / "clocks.py").write_text(MODULE)
    both = {
        "mcp_from_clients": ["https://tools.example/*"],
        "folder": str(tmp_path),
        "timeout_s": GUARD_S,
        "watch_s": 0,
    }
    script = [
        turn("prompt", "First.", ("clock", {}), ADD),
        turn("prompt", "", ADD, ("clock", {}), ("look", {"at": "here"})),
        {"text": "Done."},
    ]
    async with conversation(configuration(tools=both), *script) as (post, backend):
        first = await post(tools=[server(), LOOK], stream=stream)
        assert [line[:3] for line in outline(first)] == [
            ("listed", "calc"), ("text", "First."), RAN_ADD, RAN_ADD, ("call", "look", '{"at": "here"}'),
        ]  # fmt: skip
        result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "a tree"}
        before = going_on(kept, first, result)
        before.pop("store", None)
        second = await post(**before, tools=[server(), LOOK], stream=stream)
    assert outline(second) == [("text", "Done.")]
    text = told(backend)
    assert text.count("half past nine") == 2
    assert text.count(shown_result("3")) == 2
    assert text.count("a tree") == 1


# --- approvals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "stream", "kept"), [("prompt", True, True), ("native", False, False), ("prompt", False, False)]
)
async def test_an_approved_call_is_run_and_the_model_asked(mode: str, stream: bool, kept: bool, seen: Seen) -> None:
    script = [turn(mode, "May I?", WRITE), {"text": "Written."}, {"text": "Later."}]
    async with conversation(configuration(mode), *script) as (post, backend):
        first = await post(tools=[server(approve=None)], stream=stream)
        assert outline(first)[:2] == [("listed", "calc"), ("text", "May I?")]
        kind, label, name, arguments = outline(first)[2]
        assert (kind, label, name, json.loads(arguments)) == ("asks", "calc", "write", {"text": "x"})
        assert first["status"] == "completed"
        assert seen.calls == []
        answer = reply_to(first)
        second = await post(**going_on(kept, first, answer), tools=[server(approve=None)], stream=stream)
        assert outline(second) == [("ran", "calc", "write", 'write: {"text": "x"}'), ("text", "Written.")]
        assert second["output"][0]["approval_request_id"] == answer["approval_request_id"]
        assert seen.calls == [(URL, "write", {"text": "x"})]
        before = [USER, *first["output"], answer]
        third = await post(**going_on(kept, second, USER, before=before), tools=[server(approve=None)], stream=stream)
    assert outline(third) == [("text", "Later.")]
    assert len(seen.calls) == 1, "an approval holds for one call"
    for number in (1, 2):
        assert told(backend, number).count("write: {") == 1


async def test_a_refused_call_is_told_with_its_reason(seen: Seen) -> None:
    async with conversation(configuration(), turn("prompt", "", WRITE), {"text": "Then not."}, {"text": "ok"}) as (
        post,
        backend,
    ):
        first = await post(tools=[server(approve="always")])
        answer = reply_to(first, approve=False, reason="Not on a Friday.")
        second = await post(**going_on(True, first, answer), tools=[server(approve="always")])
        await post(**going_on(True, second, USER), tools=[server(approve="always")])
    assert outline(second) == [("text", "Then not.")]
    assert seen.calls == []
    assert "Not on a Friday." in told(backend, 1)
    assert told(backend, 2).count("Not on a Friday.") == 1


async def test_some_calls_are_run_and_some_are_asked_for(seen: Seen) -> None:
    approve = {"never": {"tool_names": ["add"]}}
    script = [turn("prompt", "", ADD, WRITE, ("look", {"at": "here"})), {"text": "Done."}]
    async with conversation(configuration(), *script) as (post, backend):
        first = await post(tools=[server(approve=approve), LOOK])
        assert [line[:3] for line in outline(first)] == [
            ("listed", "calc"), ("ran", "calc", "add"), ("asks", "calc", "write"), ("call", "look", '{"at": "here"}'),
        ]  # fmt: skip
        assert [name for _, name, _ in seen.calls] == ["add"]
        call_id = first["output"][3]["call_id"]
        result = {"type": "function_call_output", "call_id": call_id, "output": "a tree"}
        second = await post(
            [result, reply_to(first)], previous_response_id=first["id"], tools=[server(approve=approve), LOOK]
        )
    assert [line[:3] for line in outline(second)] == [("ran", "calc", "write"), ("text", "Done.")]
    text = told(backend)
    assert text.count(shown_result("3")) == 1
    assert text.count("a tree") == 1
    assert text.count("write: {") == 1


FILTERS: list[tuple[Any, tuple[str, ...]]] = [
    (None, ("add", "write")),
    ("always", ("add", "write")),
    ("never", ()),
    ({"never": {"read_only": True}}, ("write",)),
    ({"always": {"tool_names": ["add"]}, "never": {"tool_names": ["add", "write"]}}, ("add",)),
    ({"always": {"tool_names": ["add"]}}, ("add", "write")),
    ({}, ("add", "write")),
    ({"never": {}}, ("add", "write")),
    ({"never": {"tool_names": None}}, ("add", "write")),
    ({"never": {"tool_names": []}}, ("add", "write")),
]


@pytest.mark.parametrize(("approve", "asked"), FILTERS, ids=lambda value: str(value))
async def test_which_calls_are_asked_for(approve: Any, asked: tuple[str, ...], seen: Seen) -> None:
    async with conversation(configuration(), turn("prompt", "", ADD, WRITE), {"text": "ok"}) as (post, _):
        first = await post(tools=[server(approve=approve)])
    assert {line[2] for line in outline(first) if line[0] == "asks"} == set(asked)
    assert {name for _, name, _ in seen.calls} == {"add", "write"} - set(asked)


async def test_an_approval_that_is_known_twice_holds_once(seen: Seen) -> None:
    """A client that names the answer before and gives its items back besides."""
    async with conversation(configuration(), turn("prompt", "", WRITE), {"text": "ok"}) as (post, _):
        first = await post(tools=[server(approve="always")])
        again = [*first["output"], reply_to(first), reply_to(first)]
        second = await post(again, previous_response_id=first["id"], tools=[server(approve="always")])
    assert [line[:3] for line in outline(second)] == [("ran", "calc", "write"), ("text", "ok")]
    assert len(seen.calls) == 1


async def test_approved_calls_beyond_the_limit_are_not_run(seen: Seen) -> None:
    asked = [item for number in range(4) for item in approved(arguments='{"text": "x"}', ident=f"mcpr_{number}")]
    config = configuration(defaults={"mode": "prompt", "tool_loop": {"max_calls": 2}})
    async with conversation(config, {"text": "ok"}) as (post, backend):
        got = await post([USER, *asked], tools=[server(approve="always")])
    made = [item for item in got["output"] if item["type"] == "mcp_call"]
    assert [item["status"] for item in made] == ["completed"] * 2 + ["failed"] * 2
    assert [item["approval_request_id"] for item in made] == [f"mcpr_{number}" for number in range(4)]
    assert len(seen.calls) == 2
    assert told(backend).count("limit on server-side tools") == 2


async def test_a_call_that_nobody_answered_is_told_as_not_run(seen: Seen) -> None:
    async with conversation(configuration(), turn("prompt", "", WRITE), {"text": "ok"}) as (post, backend):
        first = await post(tools=[server(approve="always")])
        second = await post([USER], previous_response_id=first["id"], tools=[server(approve="always")])
    assert outline(second) == [("text", "ok")]
    assert "has not approved" in told(backend)
    assert seen.calls == []


async def test_an_approval_of_nothing(seen: Seen) -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_unknown", "approve": True}
    for bad, field in (
        (answer, "approval_request_id"),
        ({**answer, "approval_request_id": 5}, "approval_request_id"),
        ({**answer, "approve": "yes"}, "approve"),
    ):
        async with conversation(configuration(), {"text": "ok"}) as (post, backend):
            got = await post([USER, bad], tools=[server()])
        assert got["error"]["param"] == f"input[1].{field}"
        assert backend.requests == []


async def test_an_approval_without_its_server(seen: Seen) -> None:
    async with conversation(configuration(), turn("prompt", "", WRITE), {"text": "ok"}) as (post, _):
        first = await post(tools=[server(approve="always")])
        got = await post([reply_to(first)], previous_response_id=first["id"])
    assert got["error"]["param"] == "tools"
    assert seen.calls == []


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [("nothing", "{}", "Unknown tool"), ("write", '{"text": 5}', "Invalid parameters"), ("add", "{}", "Unknown tool")],
)
async def test_what_was_approved_is_checked_as_any_call(name: str, arguments: str, says: str, seen: Seen) -> None:
    """A client may send back a request that nobody made: it is no more than a call of its own."""
    async with conversation(configuration(), {"text": "ok"}) as (post, _):
        got = await post([USER, *approved(name, arguments)], tools=[server(allowed_tools=["write"])])
    kind, _, _, text = outline(got)[1]
    assert kind == "failed"
    assert says in text
    assert seen.calls == []


async def test_an_approved_call_of_which_nothing_is_known_any_more_is_not_run_again(seen: Seen) -> None:
    """A client that gives back the approval and what the model said then, without the call."""
    spoken = {"type": "message", "role": "assistant", "content": "Done."}
    async with conversation(configuration(), {"text": "ok"}) as (post, backend):
        got = await post([USER, *approved(), spoken, USER], tools=[server()])
    assert outline(got)[1:] == [("text", "ok")]
    assert seen.calls == []
    assert "not known any more" in told(backend)


async def test_tokens_are_counted_without_running_anything(seen: Seen) -> None:
    async with TestClient(TestServer(create_app(configuration()))) as client:
        body = {"model": "m", "input": [USER, *approved(arguments='{"text": "x"}')], "tools": [server()]}
        async with client.post("/v1/responses/input_tokens", json=body) as response:
            counted = await response.json()
        assert response.status == 200, counted
        assert counted["input_tokens"] > 20
    assert seen.calls == []


@pytest.mark.parametrize(("approve", "stream"), [("always", False), ("never", False), ("never", True)])
async def test_clients_are_told_not_to_ask_again_where_a_call_was_run(stream: bool, approve: str, seen: Seen) -> None:
    """The official SDKs do so by themselves after an error, and the call would be run again."""
    down = {"error": {"status": 503}}
    script = [down] if approve == "always" else [turn("prompt", "", WRITE), down]
    given = [USER, *approved(arguments='{"text": "x"}')] if approve == "always" else [USER]
    config = configuration(defaults={"mode": "prompt", "retry": {"attempts": 1}})
    got = await ask(config, script, given=given, stream=stream, tools=[server(approve=approve)])
    assert [name for _, name, _ in seen.calls] == ["write"]
    if stream and approve == "never":
        assert b"response.failed" in got.body
    else:
        assert got.status == 502
        assert got.headers["x-should-retry"] == "false"


async def test_errors_before_any_call_say_nothing_of_asking_again(seen: Seen) -> None:
    config = configuration(defaults={"mode": "prompt", "retry": {"attempts": 1}})
    got = await ask(config, [{"error": {"status": 503}}], tools=[server()])
    assert (got.status, got.headers.get("x-should-retry")) == (502, None)
