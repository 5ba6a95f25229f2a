"""Results of calls as the model sees them: every text of R15.5, and the values that a handler gets (R15.6)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import examples
from tests.servertools.conftest import Start, call, module, tool
from toolwire.model import ToolUse
from toolwire.servertools.definition import BadArguments, Parameters
from toolwire.servertools.folder import CallProgress

SEARCH = tool(
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "limit": {"type": "integer", "default": 5},
        },
        "required": ["query"],
    }
)


def answering(expression: str, *, asynchronous: bool = False) -> str:
    """A module whose handler gives the value of an expression."""
    kind = "async def" if asynchronous else "def"
    return module(SEARCH, handler=f"{kind} handle_tool_call(tool_name, tool_input):\n    return {expression}\n")


ARGUMENTS = [
    ("other", "{}", "Error: Unknown tool: other"),
    ("one", "{", "Error: Invalid JSON arguments - unexpected end of data: line 1 column 2 (char 1)"),
    ("one", "[]", "Error: Invalid JSON arguments - expected an object, not an array"),
    ("one", "null", "Error: Invalid JSON arguments - expected an object, not null"),
    ("one", '"a"', "Error: Invalid JSON arguments - expected an object, not a string"),
    (
        "one",
        '{"query":"' + "x" * 2048 + '"}',
        "Error: Invalid JSON arguments - 2060 bytes, the most is 2048",
    ),
    ("one", "{}", "Error: Invalid parameters - Missing required parameter: query"),
    ("one", "", "Error: Invalid parameters - Missing required parameter: query"),
    ("one", '{"query":7}', 'Error: Invalid parameters - `$.query`: 7 is not of type "string".'),
    ("one", '{"query":"x","unit":"k"}', 'Error: Invalid parameters - `$.unit`: "k" is not one of "c" or "f".'),
    ("one", '{"query":"x"}', "{'limit': 5, 'query': 'x'}"),
    ("one", '{"query":"x","limit":9,"unit":"f"}', "{'limit': 9, 'query': 'x', 'unit': 'f'}"),
    ("one", '{"query":"x","more":1}', "{'limit': 5, 'query': 'x'}"),
    ("one", '{"query":"' + "x" * 2036 + '"}', "{'limit': 5, 'query': '" + "x" * 977),
]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_what_comes_of_arguments(start: Start, asynchronous: bool) -> None:
    tools = await start({"a.py": answering("repr(dict(sorted(tool_input.items())))", asynchronous=asynchronous)})
    for name, arguments, content in ARGUMENTS:
        assert await call(tools, name, arguments) == content


ANSWERS = [
    ("'fine'", "fine"),
    ("''", ""),
    ("'x' * 1000", "x" * 1000),
    ("'x' * 1001", "x" * 1000),
    ("'x' * 100_000_000", "x" * 1000),
    ("None", "Error: Tool must return string"),
    ("7", "Error: Tool must return string"),
    ("b'text'", "Error: Tool must return string"),
    ("['text']", "Error: Tool must return string"),
    ("(_ for _ in ()).throw(ValueError('no such city'))", "Error: no such city"),
    ("(_ for _ in ()).throw(ValueError())", "Error: ValueError"),
    ("(_ for _ in ()).throw(SystemExit(3))", "Error: 3"),
    ("(_ for _ in ()).throw(KeyboardInterrupt)", "Error: KeyboardInterrupt"),
    ("(_ for _ in ()).throw(ValueError('x' * 5000))", "Error: " + "x" * 993),
    ("'\\ud800'", "\ufffd"),
    ("'\\ud83d\\ude00'", "\U0001f600"),
    ("type('S', (str,), {'__len__': lambda s: 1, '__getitem__': lambda s, i: 7})('text')", "text"),
    ("tool_name", "one"),
]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_what_comes_of_what_a_handler_gives(start: Start, asynchronous: bool) -> None:
    """And of its values, of which none changes its type on the way."""
    number = tool(parameters={"type": "object", "properties": {"n": {}}, "required": ["n"]})
    kind = "async def" if asynchronous else "def"
    text = f"{kind} handle_tool_call(tool_name, tool_input):\n    return eval({[e for e, _ in ANSWERS]!r}[tool_input['n']])\n"
    same = f"{kind} handle_tool_call(tool_name, tool_input):\n    return repr(tool_input)\n"
    tools = await start(
        {
            "a.py": module(number, handler=text),
            "b.py": module({**SEARCH, "function": {**SEARCH["function"], "name": "same"}}, handler=same),
        }
    )
    assert [await call(tools, arguments=f'{{"n":{n}}}') for n in range(len(ANSWERS))] == [said for _, said in ANSWERS]
    arguments = '{"query":"\\ud83d\\ude00 \\u0000","more":1}'
    assert await call(tools, "same", arguments) == repr({"limit": 5, "query": "\U0001f600 \0"})
    assert tools.shown()["calls"]["processes"]["started"] == 1


async def test_a_long_result_may_be_an_error(start: Start) -> None:
    tools = await start({"a.py": answering("'x' * tool_input['limit']")}, on_oversize="error")
    assert await call(tools, arguments='{"query":"x","limit":1000}') == "x" * 1000
    told = "Error: Tool result has 1001 characters, the most is 1000"
    assert await call(tools, arguments='{"query":"x","limit":1001}') == told


WAITING = "import asyncio, time\n{} handle_tool_call(tool_name, tool_input):\n    {}(3600)\n"


@pytest.mark.parametrize(
    ("handler", "of_tools", "of_request"),
    [
        (WAITING.format("def", "time.sleep"), 0.01, 60.0),
        (WAITING.format("async def", "await asyncio.sleep"), 0.01, 60.0),
        (WAITING.format("async def", "await asyncio.sleep"), 3600.0, 0.01),
    ],
    ids=["sync", "async", "of the request"],
)
async def test_time_limits(start: Start, handler: str, of_tools: float, of_request: float) -> None:
    tools = await start({"a.py": module(tool(), handler=handler)}, timeout_s=of_tools)
    assert await call(tools, limit_s=of_request) == "Error: Tool execution timed out"


async def test_states_are_counted_and_logged(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    tools = await start({"a.py": module(SEARCH)})
    counted: list[str] = []

    async def run(arguments: str) -> None:
        use = ToolUse("call_1", "one", arguments)
        await tools.tools.run(use, 60, CallProgress(use, "req_1", counted.append).enter)

    with caplog.at_level(logging.INFO, "toolwire.tools"):
        await run('{"query":"x"}')
    begin, end = ["TOOL_CALL_INITIATED", "VALIDATING_PARAMETERS"], ["EXECUTING_TOOL", "TOOL_COMPLETED"]
    assert counted == begin + end
    fields: list[Any] = [record.__dict__["fields"] for record in caplog.records]
    assert [entry["from"] for entry in fields] == ["IDLE", *counted[:-1]]
    assert [entry["state"] for entry in fields] == counted
    assert {(entry["tool"], entry["call_id"], entry["request_id"]) for entry in fields} == {("one", "call_1", "req_1")}
    counted.clear()
    await run("[]")
    assert counted == [*begin, "EXECUTION_FAILED"]


def test_undeclared_arguments_are_for_tools_that_speak_of_them() -> None:
    shut = Parameters({"type": "object", "properties": {}, "additionalProperties": False})
    with pytest.raises(BadArguments, match="Invalid parameters"):
        shut.values('{"a":1}')
    numbers = Parameters({"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}})
    assert numbers.values('{"a":1}') == {"a": 1}
    with pytest.raises(BadArguments, match="Invalid parameters"):
        numbers.values('{"a":"x"}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@examples(0.4)
@given(st.text() | JSON.map(repr) | JSON.map(json.dumps))
def test_no_arguments_get_past_the_check(arguments: str) -> None:
    """Whatever a model writes: a handler gets what fits the schema, or the model is told."""
    parameters = Parameters(SEARCH["function"]["parameters"])
    values, told = None, ""
    try:
        values = parameters.values(arguments)
    except BadArguments as error:
        told = str(error)
    if values is None:
        assert told.startswith(("Invalid JSON arguments - ", "Invalid parameters - "))
    else:
        assert isinstance(values["query"], str)
        assert isinstance(values["limit"], int | float)
        assert values.keys() <= {"query", "unit", "limit"}


async def test_a_tool_that_is_gone_is_unknown(start: Start) -> None:
    tools = await start({"a.py": module(tool())})
    before = tools.tools
    (tools.folder / "a.py").unlink()
    assert await tools.refresh()
    assert await call(tools) == "Error: Unknown tool: one"
    result = await before.run(ToolUse("c", "one", "{}"), 60, lambda state: None)
    assert result.text == "('one', {})"  # a request that began before keeps what it was offered
