"""The document says of answers what is really sent: whatever a model does, and however it fails.

Answers are open: what a model server says beside goes through, so a schema says what is always there and of which type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given

from tests.cases import every, examples
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, function, post, read_config, serving, upstream_config
from tests.e2e.meaning import PATHS
from tests.openapi.documents import ERRORS, EVENTS, WHOLE, conforms, validator
from tests.protocols import messages_wires, responses_wires, wires
from tests.protocols.published import SHARED
from tests.strategies import streams
from toolwire.errors import CODES, GatewayError
from toolwire.events import Event
from toolwire.folding import fold
from toolwire.registry import registries
from toolwire.testing import Refuse, Upstream, WireAnswer

GOLDEN = Path(__file__).parents[1] / "golden"
OPTIONS = {"chat": wires.options, "responses": responses_wires.options, "messages": messages_wires.options}
SAY = {
    "chat": {"messages": [{"role": "user", "content": "Read a.txt."}]},
    "responses": {"input": "Read a.txt."},
    "messages": {"messages": [{"role": "user", "content": "Read a.txt."}], "max_tokens": 100},
}
TOOL = function("read_file", path="string")
TOOLS = {
    "chat": [TOOL],
    "responses": [{"type": "function", **TOOL["function"]}],
    "messages": [{"name": "read_file", "input_schema": TOOL["function"]["parameters"]}],
}
CALL = "I look. " + block("read_file", {"path": "a.txt"})
protocols = pytest.mark.parametrize("protocol", PATHS)


def payloads(stream: bytes) -> Iterator[Any]:
    """The data of events but for the mark at the end."""
    for line in stream.decode().split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def fits(protocol: str, values: Iterable[Any]) -> int:
    """Assert that these are events of a protocol; how many they are."""
    count = 0
    for count, value in enumerate(values, 1):  # noqa: B007
        conforms(EVENTS[protocol], value)
    return count


# --- what is written, whatever happens ------------------------------------------------------------------------------


@protocols
@examples(0.4)
@given(events=streams())
def test_any_stream(protocol: str, events: list[Event]) -> None:
    side = registries().clients.get(protocol)()
    fits(protocol, payloads(side.writer(OPTIONS[protocol]()).feed(events)))


@protocols
@examples(0.4)
@given(events=streams())
def test_any_whole_answer(protocol: str, events: list[Event]) -> None:
    side = registries().clients.get(protocol)()
    try:
        reply = fold(events)
    except GatewayError as error:
        conforms(ERRORS[protocol], json.loads(side.write_error(error, "r")))
    else:
        conforms(WHOLE[protocol], json.loads(side.write_reply(reply, OPTIONS[protocol]())))


@every("code", CODES)
@every("protocol", PATHS)
def test_any_error(protocol: str, code: str) -> None:
    side = registries().clients.get(protocol)()
    error = GatewayError("It is wrong.", code=code, param="tools[0]")
    conforms(ERRORS[protocol], json.loads(side.write_error(error, "r")))


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.sse")))
def test_golden_transcripts(name: str) -> None:
    assert fits(name.partition("-")[0], payloads((GOLDEN / name).read_bytes()))


# --- what a gateway sends -------------------------------------------------------------------------------------------


@protocols
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("script", ["Just text.", CALL, "<think>Hm.</think>So."], ids=["text", "call", "thought"])
async def test_answers(gateway: Gateway, protocol: str, stream: bool, script: str) -> None:
    server = await gateway(script=[script])
    body = {**SAY[protocol], "tools": TOOLS[protocol], "stream": stream}
    answer = await post(server, body, path=PATHS[protocol])
    assert answer.status == 200
    if stream:
        assert fits(protocol, payloads(answer.body)) > 1
    else:
        conforms(WHOLE[protocol], answer.json())
    assert ("read_file" in answer.body.decode()) is (script == CALL or protocol == "responses")


@protocols
@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
async def test_failures(protocol: str, status: int) -> None:
    async with Upstream([Refuse(status)]) as up, serving(upstream_config(up.url)) as server:
        answer = await post(server, SAY[protocol], path=PATHS[protocol])
        assert answer.status >= 400
        conforms(ERRORS[protocol], answer.json())


@protocols
async def test_mistakes(gateway: Gateway, protocol: str) -> None:
    server = await gateway(script=["hello"])
    for body in (b"{", b"[]", b'{"model": 1}', b'{"model": "m", "messages": 1, "input": 1, "tools": [1]}'):
        answer: WireAnswer = await post(server, body, path=PATHS[protocol])
        assert answer.status == 400
        conforms(ERRORS[protocol], answer.json())


async def test_a_stream_that_fails(gateway: Gateway) -> None:
    strict = function("read_file", strict=True, path="string")
    tools = {"chat": [strict], "responses": [{"type": "function", **strict["function"]}]}
    for protocol, offered in tools.items():
        server = await gateway(script=['Hm. <tool_call>{"name" "read_file"}</tool_call>'])
        body = {**SAY[protocol], "tools": offered, "stream": True}
        answer = await post(server, body, path=PATHS[protocol])
        assert b"malformed_tool_arguments" in answer.body
        fits(protocol, payloads(answer.body))


async def test_what_else_is_asked(gateway: Gateway) -> None:
    server = await gateway(read_config({"backends": {"m": {"kind": "mock", "script": ["Yes."] * 3}}}))
    first = (await post(server, SAY["responses"], path=PATHS["responses"])).json()
    asked: dict[str, Any] = {
        "MessagesTokenCount": await post(server, SAY["messages"], path="/v1/messages/count_tokens"),
        "ResponseTokenCount": await post(server, SAY["responses"], path="/v1/responses/input_tokens"),
        "CompactedConversation": await post(server, SAY["responses"], path="/v1/responses/compact"),
    }
    for name, answer in asked.items():
        assert answer.status == 200, name
        conforms(name, answer.json())
    ident = first["id"]
    async with aiohttp.ClientSession(str(server.make_url("/"))) as session:
        item = {"role": "user", "content": "x", "id": "msg_1"}
        async with session.post("/v1/conversations", json={"items": [item], "metadata": {"a": "b"}}) as got:
            conforms("Conversation", await got.json())
            made = f"/v1/conversations/{(await got.json())['id']}"
        async with session.post("/v1/responses", json={"model": "m", "input": "x", "background": True}) as got:
            conforms("ResponseResource", await got.json())
            background = (await got.json())["id"]
        async with session.get(f"/v1/responses/{background}?stream=true") as got:
            fits("responses", payloads(await got.read()))
        for name, method, path in (
            ("ResponseResource", "GET", f"/v1/responses/{ident}"),
            ("ResponseResource", "POST", f"/v1/responses/{ident}/cancel"),
            ("InputItemList", "GET", f"/v1/responses/{ident}/input_items"),
            ("DeletedResponse", "DELETE", f"/v1/responses/{ident}"),
            ("Conversation", "GET", made),
            ("ConversationItemList", "GET", f"{made}/items"),
            ("ConversationItem", "GET", f"{made}/items/msg_1"),
            ("Error", "GET", f"{made}/items/nothing"),
            ("Conversation", "DELETE", f"{made}/items/msg_1"),
            ("ConversationItemList", "GET", f"{made}/items"),
            ("DeletedConversation", "DELETE", made),
            ("Error", "GET", made),
            ("Error", "GET", f"/v1/responses/{ident}"),
            ("ModelList", "GET", "/v1/models"),
            ("Health", "GET", "/livez"),
            ("Readiness", "GET", "/readyz"),
            ("Version", "GET", "/version"),
            ("ToolFolder", "GET", "/admin/tools"),
            ("Error", "GET", "/v1/nothing"),
        ):
            async with session.request(method, path) as got:
                conforms(name, await got.json())
        async with session.get("/v1/models", headers={"anthropic-version": "2023-06-01"}) as got:
            conforms("MessagesModelList", await got.json())


# --- what others have recorded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chat-text", "responses-incomplete", "responses-context-exceeded"])
def test_the_live_services_events_fit(name: str) -> None:
    """Those that were recorded since its responses have all fields that ours have."""
    path = SHARED / f"spec/data/observed-openai/{name}-stream.events.jsonl"
    if not path.exists():
        pytest.skip(f"no recorded answers at {path}; set TOOLWIRE_SHARED")
    lines = [line for line in path.read_text("utf-8").splitlines() if line and line != "[DONE]"]
    assert fits(name.partition("-")[0], map(json.loads, lines)) == len(lines) > 2


# --- the schemas can say no -----------------------------------------------------------------------------------------


@every(
    ("name", "value"),
    [
        ("ChatEvent", {"object": "chat.completion.chunk", "choices": []}),
        ("ChatFunctionCall", {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}),
        ("ResponseEvent", {"type": "response.output_text.delta", "sequence_number": 1, "delta": 1}),
        ("ResponseEvent", {"type": "response.completed", "sequence_number": 1, "response": {}}),
        ("OutputItem", {"type": "function_call", "id": "fc_1"}),
        ("MessagesEvent", {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
        ("MessagesEvent", {"type": "message_end"}),
        ("Error", {"error": "it failed"}),
        ("Error", {"type": "error", "error": {"type": "api_error", "message": "m"}, "request_id": "r"}),
        ("MessagesError", {"error": {"message": "m", "type": "t", "param": None, "code": "c"}}),
        ("ModelList", {"object": "list", "data": [{"id": "m"}]}),
        ("Readiness", {"status": "ok"}),
    ],
)
def test_what_is_none_of_it_is_refused(name: str, value: Any) -> None:
    assert not validator(name).is_valid(value)
