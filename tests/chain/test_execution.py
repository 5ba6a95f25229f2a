"""Server-side tools through a whole gateway: what the client sees, what the model is asked, and who ends the loop
(R15.8 to R15.10)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases import examples
from tests.e2e.conftest import CHAT
from tests.e2e.meaning import ended, said
from tests.options import in_sections
from tests.waiting import GUARD_S
from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load
from toolwire.formats.engine.toolset import ToolSet
from toolwire.middlewares.execution import _with_tools
from toolwire.model import ModelRequest, Text, ToolResult, ToolSpec, ToolUse
from toolwire.pipeline.exchange.permission import NOTHING_FORBIDDEN
from toolwire.pipeline.exchange.tool_memory import is_marked
from toolwire.testing import WireAnswer, run_chain

MODULE = """
def _tool(name, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}

TOOLS = [_tool("add", a={"type": "integer"}, b={"type": "integer"}), _tool("fail")]

def handle_tool_call(tool_name, tool_input):
    if tool_name == "fail":
        raise ValueError("it does not work")
    return str(tool_input["a"] + tool_input["b"])
"""
USER: Sequence[Any] = [{"role": "user", "content": "hi"}]
LOOK: dict[str, Any] = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def block(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': json.dumps(arguments)})}</tool_call>"


def turn(mode: str, text: str = "", *calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """What the model answers, in the way of the mode."""
    if mode == "prompt":
        return {"text": text + "".join(block(name, **arguments) for name, arguments in calls), **more}
    return {"text": text, "calls": [{"name": name, "arguments": arguments} for name, arguments in calls], **more}


ADD = ("add", {"a": 1, "b": 2})


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """`config(mode=..., ...)`: a configuration with the tools above; the options are those of `defaults`."""
    (tmp_path / "maths.py").write_text(MODULE)

    def make(limits: Mapping[str, Any] | None = None, **options: Any) -> GatewayConfig:
        sections = {
            "tools": {"folder": str(tmp_path), "timeout_s": GUARD_S, "watch_s": 0},
            "store": {"kind": "memory"},
            "backends": {"m": {"kind": "mock"}},
            "defaults": in_sections(options),
            "limits": limits or {},
        }
        return load(None, env={}, overrides=sections)

    return make


async def ask(
    config: GatewayConfig, script: Sequence[Any], body: Mapping[str, Any] | None = None, **more: Any
) -> WireAnswer:
    return await run_chain(config, {"messages": USER, **(body or {})}, replies=script, **more)


def content(answer: WireAnswer) -> str:
    """The text of a Chat answer, streamed or not."""
    assert answer.status == 200, answer.body
    return said(CHAT, answer, _streamed(answer))[0]


def calls(answer: WireAnswer) -> list[tuple[str, Any]]:
    """Name and arguments of the client's calls in a Chat answer."""
    return said(CHAT, answer, _streamed(answer))[1]


def reason(answer: WireAnswer) -> str:
    return ended(CHAT, answer, _streamed(answer))


def _streamed(answer: WireAnswer) -> bool:
    return answer.headers["Content-Type"].startswith("text/event-stream")


def prompt(request: ModelRequest) -> str:
    """All that a model gets to read, calls and results included."""
    out = []
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text():
                    out.append(part.text)
                case ToolUse():
                    out.append(f"[call {part.call_id} {part.name} {part.arguments}]")
                case ToolResult():
                    out.append(f"[result {part.call_id} {''.join(p.text for p in part.parts if isinstance(p, Text))}]")
    return "\n".join(out)


def told(mode: str, result: str) -> str:
    """How a result stands in what a model gets to read."""
    return f"\n{result}\n</tool_response>" if mode == "prompt" else f" {result}]"


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
modes = pytest.mark.parametrize("mode", ["prompt", "native"])
in_turn = pytest.mark.parametrize(("mode", "stream"), [("prompt", True), ("native", False)])


@modes
@both
async def test_calls_are_run_and_the_model_asked_again(config: Any, mode: str, stream: bool) -> None:
    script = [
        turn(
            mode,
            "Let me see.",
            *(ADD, ("nothing", {}), ("add", {"a": 20, "b": 20}), ("fail", {})),
            usage={"input": 10, "output": 5},
        ),
        turn(mode, "", ("add", {"a": 300, "b": 300}), usage={"input": 20, "output": 7}),
        turn(mode, "It is 3.", usage={"input": 30, "output": 9}),
    ]
    body = {"stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
    answer = await ask(config(mode=mode), script, body)
    assert content(answer) == "Let me see.\n\nIt is 3."
    assert (calls(answer), reason(answer)) == ([], "stop")
    usage = answer.frames()[-2]["usage"] if stream else answer.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (60, 21, 81)
    first, _, last = answer.requests
    assert "add" in (prompt(first) if mode == "prompt" else first.tools[0].name)
    results = ("3", "Error: Unknown tool: nothing", "40", "Error: it does not work", "600")
    assert [prompt(last).count(told(mode, result)) for result in results] == [1] * len(results)
    order = [prompt(last).index(told(mode, result)) for result in results]
    assert order == sorted(order)
    assert "x-tool-loop" not in answer.headers


@modes
@both
async def test_calls_of_the_client_end_the_exchange(config: Any, mode: str, stream: bool) -> None:
    script = [turn(mode, "", ADD), turn(mode, "Now you.", ("look", {"x": 1}))]
    answer = await ask(config(mode=mode), script, {"stream": stream, "tools": [LOOK]})
    assert (content(answer), calls(answer), reason(answer)) == ("Now you.", [("look", {"x": 1})], "tool_calls")


# --- limits ---------------------------------------------------------------------------------------------------------

LIMITS: dict[str, tuple[dict[str, Any], int, int]] = {  # options, answers of the model, calls that are run
    "answers": ({"max_iterations": 3}, 3, 2),
    "one answer": ({"max_iterations": 1}, 1, 0),
    "calls": ({"max_calls": 2}, 3, 2),
    "no calls": ({"max_calls": 0}, 1, 0),
    "no time": ({"max_seconds": 0}, 1, 0),
    "the default": ({}, 8, 7),
}


@in_turn
@pytest.mark.parametrize(("limits", "answers", "runs"), LIMITS.values(), ids=LIMITS)
async def test_at_a_limit_the_answer_ends_as_it_stands(
    config: Any, mode: str, stream: bool, limits: dict[str, Any], answers: int, runs: int
) -> None:
    script = [turn(mode, f"ModelTurn {i}.", ADD) for i in range(10)]
    answer = await ask(config(mode=mode, tool_loop=limits), script, {"stream": stream})
    assert len(answer.requests) == answers
    assert content(answer) == "\n\n".join(f"ModelTurn {i}." for i in range(answers))
    assert (calls(answer), reason(answer)) == ([], "stop")
    assert ("x-tool-loop" in answer.headers) is (not stream)  # in a stream the headers left with the first text
    if answers > 1:
        assert prompt(answer.requests[-1]).count(told(mode, "3")) == runs


async def test_more_calls_in_one_answer_than_are_left_are_not_run(config: Any) -> None:
    script = [turn("prompt", "", ADD), turn("prompt", "So.", ADD, ADD)]
    answer = await ask(config(tool_loop={"max_calls": 2}), script)
    assert (content(answer), answer.headers["x-tool-loop"], len(answer.requests)) == ("So.", "limit", 2)


@pytest.mark.parametrize(
    ("mode", "stream", "allowed"),
    [("prompt", False, None), ("native", True, 1), ("prompt", True, 2), ("native", False, 3), ("prompt", False, 4)],
)
async def test_a_client_of_responses_says_how_many_calls_may_be_run(
    config: Any, mode: str, stream: bool, allowed: int | None
) -> None:
    """`max_tool_calls` counts over all rounds. What is beyond is ignored: the model is told, and goes on."""
    script = [turn(mode, "", ADD), turn(mode, "", ADD, ADD), turn(mode, "", ADD), turn(mode, "So.")]
    body = {"input": "hi", "max_tool_calls": allowed, "stream": stream}
    answer = await run_chain(config(mode=mode), body, replies=script, path="/v1/responses")
    response = answer.frames()[-1]["response"] if stream else answer.json()
    assert (response["status"], response["max_tool_calls"]) == ("completed", allowed)
    assert "".join(part["text"] for item in response["output"] for part in item["content"]) == "So."
    asked = [str(request.messages) for request in answer.requests]
    assert len(asked) == 4
    assert asked[-1].count("not run, no more calls") == 4 - (4 if allowed is None else allowed)
    assert "x-tool-loop" not in answer.headers


# --- choices --------------------------------------------------------------------------------------------------------


@modes
@pytest.mark.parametrize("refusal", ["I would rather not.", "a call of nothing"])
async def test_a_demand_holds_until_a_tool_was_called(config: Any, mode: str, refusal: str) -> None:
    unknown = refusal == "a call of nothing"
    first = turn(mode, "", ("nothing", {})) if unknown else refusal
    script = [first, turn(mode, "", ADD), turn(mode, "It is 3.")]
    answer = await ask(config(mode=mode, choice_miss="reask"), script, {"tool_choice": "required"})
    assert content(answer) == "It is 3."
    if mode == "native":
        demanded = [request.tool_choice.mode == "required" for request in answer.requests]
    else:
        demanded = ["You must call" in prompt(request) for request in answer.requests]
    assert demanded[:2] == [True, True]
    assert not any(demanded[2:])
    assert ["was not accepted" in prompt(request) for request in answer.requests].count(True) == (not unknown)


@modes
@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([], "none"),
        ([LOOK], "none"),
        ([LOOK], {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [LOOK]}}),
    ],
)
async def test_no_calls_means_no_calls(config: Any, mode: str, tools: list[Any], choice: Any) -> None:
    text = f"I do not {block('add', a=1, b=2)}"
    answer = await ask(config(mode=mode), [text], {"tools": tools, "tool_choice": choice})
    assert (content(answer), calls(answer), len(answer.requests)) == (text, [], 1)


# --- equal names ----------------------------------------------------------------------------------------------------

MINE = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@modes
async def test_equal_names_are_refused_or_one_of_them_wins(config: Any, mode: str) -> None:
    answer = await ask(config(mode=mode), ["x"], {"tools": [LOOK, MINE]})
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "duplicate_tool_name", "tools[1]")
    script = [turn(mode, "", ADD), turn(mode, "It is 3.")]
    answer = await ask(config(mode=mode, tool_conflict="client_wins"), script, {"tools": [MINE]})
    assert (len(calls(answer)), reason(answer), len(answer.requests)) == (1, "tool_calls", 1)
    answer = await ask(config(mode=mode, tool_conflict="server_wins"), script, {"tools": [MINE, LOOK]})
    assert (calls(answer), content(answer)) == ([], "It is 3.")


def test_one_list_is_merged_as_each_route_wants_it() -> None:
    """The merged list is kept with the client's, which requests to several routes may have in common."""
    request = ModelRequest("m", (), tools=ToolSet([ToolSpec("add", "the client's")]))
    tools: Any = type("Tools", (), {"specs": (ToolSpec("add", "the gateway's", server=True),)})()
    for policy, whose in (("client_wins", "the client's"), ("server_wins", "the gateway's")):
        options = SimpleNamespace(tool_loop=SimpleNamespace(tool_conflict=policy))
        exchange: Any = SimpleNamespace(route=SimpleNamespace(permission=NOTHING_FORBIDDEN, options=options), body={})
        assert [tool.description for tool in _with_tools(exchange, request, tools).tools] == [whose]


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "stream", "name", "streaming"),
    [
        ("prompt", True, "nothing", "buffered"),
        ("prompt", False, "ad", 0),
        ("prompt", True, "adds", 0),
        ("native", True, "nothing", 0),
        ("native", False, "x" * 3000, "buffered"),
    ],
)
async def test_without_tools_of_the_client_an_unknown_call_is_the_gateways(
    config: Any, mode: str, stream: bool, name: str, streaming: str
) -> None:
    """The client sees nothing of it, no answer is thrown away, and the model hears of it where it asked."""
    script = [turn(mode, "Let me see.", (name, {"a": 1}), usage={"input": 10, "output": 5}), turn(mode, "", ADD), "3."]
    answer = await ask(config(mode=mode, argument_streaming=streaming), script, {"stream": stream})
    assert (content(answer), calls(answer), reason(answer)) == ("Let me see.\n\n3.", [], "stop")
    shown = prompt(answer.requests[1])
    assert shown.count(told(mode, f"Error: Unknown tool: {name}"[:1000])) == 1
    assert "not accepted" not in shown
    assert told(mode, "3") in prompt(answer.requests[2])
    assert len(answer.requests) == 3


@both
async def test_who_sees_calls_sees_that_one_too(config: Any, stream: bool) -> None:
    """And its result."""
    body = {"input": "hi", "stream": stream, "store": False}
    script = [turn("prompt", "", ("nothing", {"x": 1})), "So."]
    answer = await run_chain(config(expose_server_tools=True), body, replies=script, path="/v1/responses")
    output = (answer.frames()[-1]["response"] if stream else answer.json())["output"]
    assert [item["type"] for item in output] == ["function_call", "function_call_output", "message"]
    assert (output[0]["name"], output[1]["output"]) == ("nothing", "Error: Unknown tool: nothing")


@modes
@pytest.mark.parametrize("choice", ["named", "allowed"])
async def test_what_may_not_be_called_is_not_run(config: Any, mode: str, choice: str) -> None:
    """A choice that leaves out a tool of the gateway leaves it out of the loop, whatever the model makes of it."""
    fail = {"type": "function", "function": {"name": "fail"}}
    asked: Any = fail
    if choice == "allowed":
        asked = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [fail]}}
    answer = await ask(config(mode=mode), [turn(mode, "", ADD), "So."], {"tool_choice": asked})
    assert content(answer) == "So."
    assert told(mode, "Error: Unknown tool: add") in prompt(answer.requests[1])
    assert answer.requests[1].tool_choice.mode == "auto" or choice == "named" or mode == "prompt"


@both
async def test_a_backend_that_fails_in_a_later_round(config: Any, stream: bool) -> None:
    script = [turn("prompt", "One.", ADD), {"error": {"status": 500, "message": "out of order"}}]
    answer = await ask(config(), script, {"stream": stream})
    if stream:
        assert content_until_error(answer) == ("One.", "upstream_error")
    else:
        assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_error")


def content_until_error(answer: WireAnswer) -> tuple[str, str]:
    *frames, error, done = answer.frames()
    assert done == "[DONE]"
    return "".join(f["choices"][0]["delta"].get("content") or "" for f in frames), error["error"]["code"]


async def test_a_call_that_was_cut_off_is_not_run(config: Any) -> None:
    cut = {"text": 'So: <tool_call>{"name":"add","argu', "finish": "length"}
    answer = await ask(config(), [cut])
    assert (content(answer), reason(answer), len(answer.requests)) == ("So:", "length", 1)


async def test_what_the_client_does_not_want_stored_is_not(config: Any) -> None:
    script = [turn("prompt", "", ADD), turn("prompt", "", ("look", {}))]
    plain = await ask(config(), script, {"tools": [LOOK], "store": False})
    kept = await ask(config(), script, {"tools": [LOOK]})
    ids = [answer.json()["choices"][0]["message"]["tool_calls"][0]["id"] for answer in (plain, kept)]
    assert [is_marked(ident) for ident in ids] == [False, True]


# --- laws -----------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *("Text. ", "\n", block("add", a=1, b=2), block("fail"), block("look", x=1), block("add", a=1), "<tool"),
        *(
            block("nothing", x=1),
            '<tool_call>{"name":"nothing","arguments":"{x"}</tool_call>',
            "<tool_call>hm</tool_call>",
        ),
    ]
)
SCRIPTS = st.lists(st.lists(PIECES, max_size=4).map("".join), min_size=1, max_size=4)


@given(SCRIPTS, st.sampled_from(["buffered", 0]), st.sampled_from([1, 3]), st.sampled_from([[LOOK], []]))
@settings(examples(0.3), suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_law_streamed_and_whole_answers_agree(
    config: Any, script: list[str], streaming: str, size: int, tools: list[Any]
) -> None:
    """R1.3, over any number of rounds with calls of both sides."""
    turns = [{"text": text, "chunk": size, "usage": {"input": 1, "output": 1}} for text in script]
    gateway = config(argument_streaming=streaming, tool_loop={"max_iterations": 3})
    whole = await ask(gateway, turns, {"tools": tools})
    options = {"stream": True, "stream_options": {"include_usage": True}}
    streamed = await ask(gateway, turns, {"tools": tools, **options})
    for read in (content, calls, reason):
        assert read(whole) == read(streamed)
    assert whole.json()["usage"] == streamed.frames()[-2]["usage"]
    assert [prompt(r) != "" for r in whole.requests] == [prompt(r) != "" for r in streamed.requests]
