"""The scripted backend: its rule for choosing a turn, its script language, its built-in answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest

from toolwire.config import BackendConfig, LimitsConfig
from toolwire.errors import GatewayError
from toolwire.events import Delta, Event, Fault
from toolwire.folding import fold
from toolwire.model import Message, ModelRequest, Reasoning, Role, Text, ToolResult, ToolSpec, ToolUse, Usage
from toolwire.stream_grammar import check
from toolwire.upstream.servers.mock import MockBackend, example_value, read_script


def mock(script: Any = None, **config: Any) -> MockBackend:
    return MockBackend("mock", BackendConfig(kind="mock", script=script, **config), LimitsConfig())


def ask(*texts: str, **more: Any) -> ModelRequest:
    """A conversation: user, assistant, user, ..."""
    roles = ("user", "assistant")
    return ModelRequest("m", tuple(Message(roles[i % 2], (Text(t),)) for i, t in enumerate(texts)), stream=True, **more)


async def events_of(backend: MockBackend, request: ModelRequest) -> list[Event]:
    source = await backend.open(request, request_id="r")
    events = [event async for batch in source.batches() for event in batch]
    check(events)
    return events


async def text_of(backend: MockBackend, request: ModelRequest) -> str:
    return fold(await events_of(backend, request)).text


async def test_a_matching_when_wins() -> None:
    backend = mock(["one", {"when": "rain", "text": "wet"}])
    assert await text_of(backend, ask("will it rain?")) == "wet"
    assert await text_of(backend, ask("rain", "yes", "sun")) == "one"
    result = ModelRequest("m", (Message("tool", (ToolResult("c", (Text("rain"),)),)),))
    assert await text_of(backend, result) == "wet"


@pytest.mark.parametrize(("role", "text"), [("user", "wet"), ("system", "one"), ("developer", "one")])
async def test_a_reminder_may_stand_behind_what_is_awaited(role: Role, text: str) -> None:
    backend = mock(["one", {"when": "rain", "text": "wet"}])
    told = Message(role, (Text("it may rain"),))
    assert await text_of(backend, ModelRequest("m", (told, Message("user", (Text("Go on."),))))) == text


@pytest.mark.parametrize(
    ("turn", "deltas"),
    [
        ({"text": "abcdefg", "chunk": 3}, ["abc", "def", "g"]),
        ({"chunk": ["a", "", "bc"]}, ["a", "", "bc"]),
        ("abcdef", ["abcd", "ef"]),
        ("", []),
    ],
)
async def test_pieces(turn: Any, deltas: list[str]) -> None:
    events = await events_of(mock([turn]), ask("x"))
    assert [event.text for event in events if isinstance(event, Delta)] == deltas


async def test_all_a_turn_can_say() -> None:
    turn = {
        "text": "hi",
        "reasoning": "let me think",
        "calls": [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": "{}"}],
        "usage": {"input": 3, "output": 4},
    }
    reply = fold(await events_of(mock([turn]), ask("x")))
    [choice] = reply.choices
    assert choice.parts[:2] == (Reasoning("let me think"), Text("hi"))
    assert [(c.name, c.arguments) for c in reply.calls] == [("f", '{"x":1}'), ("g", "{}")]
    assert len({c.call_id for c in reply.calls}) == 2
    assert (choice.reason, reply.usage) == ("tool_calls", Usage(3, 4))
    assert fold(await events_of(mock([{"text": "x", "finish": "length"}]), ask("x"))).choices[0].reason == "length"


async def test_errors_before_and_inside_the_answer() -> None:
    backend = mock([{"error": {"status": 429, "message": "slow down"}}])
    with pytest.raises(GatewayError, match="slow down") as caught:
        await backend.open(ask("x"), request_id="r")
    assert caught.value.status == 429
    events = await events_of(mock([{"text": "abcdef", "error": {"status": 500, "after": 5}}]), ask("x"))
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "abcde"
    assert isinstance(events[-1], Fault)
    assert events[-1].error.status == 502


async def test_a_script_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text("- one\n- text: two\n  chunk: 1\n")
    backend = mock(str(path))
    await backend.start()
    assert await text_of(backend, ask("a", "b", "c")) == "two"
    path.write_bytes(orjson.dumps(["json"]))
    await backend.start()
    assert await text_of(backend, ask("a")) == "json"


@pytest.mark.parametrize(
    ("script", "where"),
    [
        ([{"txt": "x"}], r"script\[0\].*txt"),
        (["a", 3], r"script\[1\]"),
        ([{"text": "a", "chunk": 0}], r"script\[0\].chunk"),
        ([{"calls": [{"arguments": {}}]}], r"script\[0\].calls\[0\]"),
        ([{"error": {"stat": 1}}], r"script\[0\].error.*stat"),
        ([{"usage": {"prompt": 1}}], r"script\[0\].usage.*prompt"),
    ],
)
def test_a_wrong_script_says_where(script: Any, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        read_script(script)


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 9},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "integer", "minimum": 3},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "deep": {"$ref": "#/$defs/deep"},
        "maybe": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "short": {"type": "string", "maxLength": 2},
    },
    "required": ["city", "unit", "days", "tags", "deep", "maybe", "short"],
    "$defs": {"deep": {"type": "object", "properties": {"on": {"type": "boolean"}}}},
}


def test_example_values_fit_their_schema() -> None:
    jsonschema.validate(example_value(SCHEMA, SCHEMA), SCHEMA)


def test_example_values_end_for_cyclic_schemas() -> None:
    cyclic = {"$ref": "#"}
    looped = {"type": "object", "properties": {"next": {"$ref": "#/properties/next"}}}
    assert example_value(cyclic, cyclic) == "example"
    assert example_value(looped, looped) == {"next": None}


async def test_the_built_in_answer_calls_a_native_tool_once() -> None:
    request = ask("weather?", tools=(ToolSpec("weather", parameters=SCHEMA),))
    [call] = fold(await events_of(mock(), request)).calls
    assert call.name == "weather"
    jsonschema.validate(orjson.loads(call.arguments), SCHEMA)
    after = ModelRequest(
        "m",
        (
            *request.messages,
            Message("assistant", (ToolUse("c", "weather", "{}"),)),
            Message("tool", (ToolResult("c", (Text("sunny"),)),)),
        ),
        tools=request.tools,
    )
    assert await text_of(mock(), after) == "You said: sunny"


async def test_the_built_in_answer_calls_a_tool_that_the_prompt_teaches() -> None:
    tool = orjson.dumps({"name": "weather", "description": "d", "parameters": SCHEMA}).decode()
    system = Message("system", (Text(f"Call tools as <tool_call>...</tool_call>.\n- {tool}\n"),))
    request = ModelRequest("m", (system, Message("user", (Text("hi"),))))
    text = await text_of(mock(), request)
    body = text.partition("<tool_call>")[2].removesuffix("</tool_call>")
    call = orjson.loads(body)
    assert call["name"] == "weather"
    jsonschema.validate(orjson.loads(call["arguments"]), SCHEMA)


async def test_the_built_in_answer_without_tools_is_an_echo() -> None:
    backend = mock()
    assert await text_of(backend, ask("hi")) == "You said: hi"
    assert await text_of(backend, ask("")) == "Hello."
    assert (await backend.ready(), await backend.models()) == (True, [])


async def test_an_answer_that_is_given_up_stops() -> None:
    config = BackendConfig(kind="mock", script=[{"text": "abcdef", "chunk": 2}])
    source = await MockBackend("m", config, LimitsConfig()).open(ask("hi"), request_id="r")
    batches = source.batches()
    await anext(batches)
    await source.close()
    last = (await anext(batches))[-1]
    assert isinstance(last, Fault)
    assert [batch async for batch in batches] == []
