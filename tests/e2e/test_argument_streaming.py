"""`argument_streaming` (R6.13) through the whole gateway."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.agent import block
from tests.e2e.conftest import CHAT as PATH
from tests.e2e.conftest import USER, Gateway, function, post, read_config, sdk
from tests.e2e.meaning import RESPONSES, ended, said
from tests.e2e.responses_answers import of_stream
from tests.e2e.test_messages_sdk import sdk as messages_sdk
from tests.e2e.test_responses_faults import check_failed, stored
from toolwire.config import DEFAULT_CHAIN, CallsConfig, GatewayConfig
from toolwire.errors import ModelFault
from toolwire.events import Call, Event, Kind
from toolwire.model import ToolUse
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.registry import registries
from toolwire.testing import Say, Upstream, WireAnswer

WRITE = function("write", path="string", text="string")
STRICT = function("note", strict=True, text="string")
TOOLS = [WRITE, STRICT]
FLAT = [{"type": "function", "strict": False, **WRITE["function"]}]
CHAT: dict[str, Any] = {"messages": USER, "tools": TOOLS, "stream": True}
ASKED: dict[str, Any] = {"input": "hi", "tools": FLAT, "stream": True}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "messages": USER,
    "tools": [{"name": "write", "input_schema": WRITE["function"]["parameters"]}],
}
LONG = {"path": "a.txt", "text": 'some "longer" text, {with} brackets\n' * 40}
ARGUMENTS = {"path": "a.txt", "text": "b, {c}"}
WHOLE = block("write", ARGUMENTS)
BAD = WHOLE.replace("}<", "]<")
MANY = 200
"""Of fragments: nothing is held back in a long call."""
DEFAULT: dict[str, Any] = {"argument_streaming": CallsConfig().argument_streaming}


def config(script: Any, *outer: str, url: str | None = None, **options: Any) -> GatewayConfig:
    backend = {"kind": "mock", "script": script} if url is None else {"url": url}
    defaults = {"argument_streaming": 0, **options}
    return read_config({"backends": {"b": backend}, "defaults": defaults, "chain": [*outer, *DEFAULT_CHAIN]})


def in_pieces(text: str) -> list[str]:
    """Deltas of 1 to 8 characters."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        pieces.append(text[at : at + 1 + len(pieces) * 5 % 8])
        at += len(pieces[-1])
    return pieces


def turn(text: str, finish: str = "stop") -> dict[str, Any]:
    return {"chunk": in_pieces(text), "finish": finish}


def fragments(frames: list[Any], of: str = "function", key: str = "arguments") -> list[str]:
    """The arguments of the calls in the frames of a Chat stream."""
    return [
        call[of][key]
        for frame in frames
        if "choices" in frame
        for choice in frame["choices"]
        for call in choice["delta"].get("tool_calls", ())
        if "id" not in call
    ]


def reason(frames: list[Any]) -> Any:
    return next(frame["choices"][0]["finish_reason"] for frame in reversed(frames) if "choices" in frame)


async def test_a_long_call_comes_in_many_fragments(gateway: Gateway) -> None:
    """In every format: `tests/parse/test_incremental.py`, `tests/parse/test_live.py`."""
    server = await gateway(config([turn(f"So. {block('write', LONG)}")], **DEFAULT))
    *chunks, done = (await post(server, CHAT)).frames()
    found = fragments(chunks)
    assert (len(found) > MANY, done, reason(chunks)) == (True, "[DONE]", "tool_calls")
    assert json.loads("".join(found)) == LONG
    async with sdk(server) as client, client.chat.completions.stream(model="m", messages=USER, tools=[WRITE]) as stream:
        choice = (await stream.get_final_completion()).choices[0]
    assert choice.message.content == "So."
    (call,) = choice.message.tool_calls or ()
    assert json.loads(call.function.arguments) == LONG
    async with sdk(server) as client, client.responses.stream(model="m", input="hi", tools=FLAT) as events:
        deltas = [event.delta async for event in events if event.type == "response.function_call_arguments.delta"]
        response = await events.get_final_response()
    assert len(deltas) > MANY
    assert json.loads("".join(deltas)) == LONG
    assert json.loads(response.output[-1].arguments) == LONG
    async with messages_sdk(server) as anthropic, anthropic.messages.stream(**MESSAGES) as told:
        pieces = [event.partial_json async for event in told if event.type == "input_json"]
        message = await told.get_final_message()
    assert len(pieces) > MANY
    assert json.loads("".join(pieces)) == message.content[-1].input == LONG  # type: ignore[union-attr]


async def test_the_first_fragment_leaves_before_the_call_is_whole(gateway: Gateway) -> None:
    """The model server hangs in the middle of the call."""
    async with Upstream([Say('<tool_call>{"name":"write","arguments":"{\\"path\\":\\"a.', hang=True)]) as upstream:
        server = await gateway(config(None, url=upstream.url))
        async with sdk(server) as client:
            async for chunk in await client.chat.completions.create(model="m", messages=USER, tools=TOOLS, stream=True):
                call = (chunk.choices[0].delta.tool_calls or [None])[0]
                if call is not None and call.function.arguments:
                    assert call.function.arguments == '{"path":"a.'
                    break
            async for event in await client.responses.create(model="m", input="hi", tools=FLAT, stream=True):
                if event.type == "response.function_call_arguments.delta":
                    assert event.delta == '{"path":"a.'
                    break


# --- calls that do not end well ---------------------------------------------------------------------------------------


@every("before, finish, status", [("So. ", "length", "incomplete"), (WHOLE, "tool_calls", "completed")])
async def test_a_call_that_was_cut_off_cannot_be_read(gateway: Gateway, before: str, finish: str, status: str) -> None:
    """C18. A whole call before it counts."""
    server = await gateway(config([turn(before + WHOLE[:-30], "length")]))
    answer = await post(server, CHAT)
    assert ended(PATH, answer, True) == finish
    with pytest.raises(ValueError):
        said(PATH, answer, True)
    got = of_stream(await post(server, ASKED, path=RESPONSES))
    assert got.resource["status"] == status
    assert [item["status"] for item in got.resource["output"]] == ["completed", "incomplete"]
    assert await stored(server, got.resource["id"]) == got.resource


@every("text", [BAD + " More.", WHOLE[:-20]])
async def test_a_call_that_turns_out_to_be_none_ends_the_answer(gateway: Gateway, text: str) -> None:
    """What was sent is not taken back (R9.6). Whole answers are as when calls are held: it is text."""
    server = await gateway(config([turn(text)]))
    asked = {**CHAT, "tools": [WRITE]}
    *chunks, error, done = (await post(server, asked)).frames()
    assert (error["error"]["code"], done) == ("malformed_tool_arguments", "[DONE]")
    assert fragments(chunks)
    assert reason(chunks) is None
    got = check_failed(await post(server, ASKED, path=RESPONSES), "malformed_tool_arguments")
    assert got.resource["output"] == []
    assert "output_item.done" not in got.kinds
    assert await stored(server, got.resource["id"]) == got.resource
    whole = (await post(server, {**asked, "stream": False})).json()["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == (text, "stop")


# --- custom tools ---------------------------------------------------------------------------------------------------

PATCH = {"type": "custom", "name": "patch"}
FREE_CHAT: dict[str, Any] = {**CHAT, "tools": [{"type": "custom", "custom": {"name": "patch"}}]}
FREE: dict[str, Any] = {**ASKED, "tools": [PATCH]}
FREE_TEXT = '*** "quoted" \\ lines é \U0001f680, </tool_call> {with} [brackets]\n' * 40


def patch(format: str = "sentinel", text: str = FREE_TEXT) -> str:
    """A call of the custom tool as a model of that format writes it."""
    use = ToolUse("call_1", "patch", json.dumps({"input": text}))
    return registries().formats.get(format).render_call(use)


def free_fragments(frames: list[Any]) -> list[str]:
    """The same of a custom tool: its text."""
    return fragments(frames, "custom", "input")


@every("format", ["sentinel", "pythonic"])  # all: tests/parse/test_live.py
async def test_the_text_of_a_custom_tool_is_streamed(gateway: Gateway, format: str) -> None:
    text = FREE_TEXT.replace("</tool_call>", "")
    server = await gateway(config([turn(patch(format, text))], format=format, **DEFAULT))
    *chunks, _ = (await post(server, FREE_CHAT)).frames()
    found = free_fragments(chunks)
    assert ("".join(found), len(found) > MANY, reason(chunks)) == (text, True, "tool_calls")
    got = of_stream(await post(server, FREE, path=RESPONSES))
    deltas = [event["delta"] for event in got.events if event["type"] == "response.custom_tool_call_input.delta"]
    assert ("".join(deltas), len(deltas) > MANY) == (text, True)
    assert (got.resource["status"], got.resource["output"][-1]["input"]) == ("completed", text)
    assert await stored(server, got.resource["id"]) == got.resource


@every(
    "case, script",
    [
        ("cut off", turn(patch()[:-200], "length")),
        ("unfinished", turn(patch()[:-200])),
        ("malformed", turn(patch().replace("}<", "]<"))),
        ("cut off behind a whole one", turn(patch(text="a") + patch()[:-200], "length")),
    ],
)
async def test_half_a_text_is_no_call(gateway: Gateway, case: str, script: Any) -> None:
    """Half a text looks like a whole one, and Codex would run it: the answer fails, and its item never ends."""
    server = await gateway(config([script], **DEFAULT))
    *chunks, error, done = (await post(server, FREE_CHAT)).frames()
    assert (error["error"]["code"], done) == ("malformed_tool_arguments", "[DONE]")
    assert (len(free_fragments(chunks)) > MANY, reason(chunks)) == (True, None)
    got = check_failed(await post(server, FREE, path=RESPONSES), "malformed_tool_arguments")
    done_items = [event["item"]["input"] for event in got.events if event["type"] == "response.output_item.done"]
    assert done_items == [item["input"] for item in got.resource["output"]] == ["a"] * len(done_items)
    assert "custom_tool_call_input.delta" in got.kinds
    assert await stored(server, got.resource["id"]) == got.resource


# --- who sees what ----------------------------------------------------------------------------------------------------


async def test_the_call_of_a_strict_tool_is_held(gateway: Gateway) -> None:
    server = await gateway(config([turn(block("note", {"text": "a"}))]))
    assert fragments((await post(server, CHAT)).frames()[:-1]) == ['{"text": "a"}']
    server = await gateway(config([turn(block("note", {"other": "a"}))]))
    answer = await post(server, CHAT)
    assert (answer.status, answer.json()["error"]["code"]) == (500, "invalid_tool_arguments")


async def test_what_is_counted(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolwire.access")
    text = WHOLE + block("write", {"path": 1}) + WHOLE[:-30]
    server = await gateway(config([turn(text, "length"), turn(BAD)]))
    required = {**CHAT, "tool_choice": "required", "tools": [WRITE]}
    chunks = (await post(server, required)).frames()[:-1]
    assert reason(chunks) == "tool_calls"
    second = [*USER, {"role": "assistant", "content": "So."}, *USER]
    await post(server, {**CHAT, "messages": second, "tools": [WRITE]})
    await server.close()
    first, last = (record.__dict__["fields"] for record in caplog.records if record.name == "toolwire.access")
    counters = ("calls", "schema_warnings", "truncated_calls", "choice_missed", "parse_failures", "withdrawn_calls")
    assert [first.get(name, 0) for name in counters] == [2, 1, 1, 0, 0, 0]
    assert [last.get(name, 0) for name in counters] == [0, 0, 0, 0, 1, 1]


class Careful(Middleware):
    """Refuses one path and changes another; wants whole calls."""

    wants = Kind.FINISHED_CALL

    def on_event(self, exchange: Exchange, event: Event) -> Event | None:
        assert isinstance(event, Call)
        assert event.source, "found in text, and not streamed"
        arguments = json.loads(event.use.arguments)
        if arguments["path"] == "secret":
            return None
        if arguments["path"] == "poison":
            raise ModelFault("No.", code="invalid_tool_arguments")
        return event


async def test_a_middleware_that_may_refuse_calls_holds_them(gateway: Gateway) -> None:
    """It gets them as without streaming, so a block that is no call is text, however long it is."""
    plugins = registries()
    plugins.middlewares.register("careful", Careful)

    async def answered(*calls: str) -> WireAnswer:
        text = f"So. {' '.join(calls)} Then."
        server = await gateway(config([turn(text)], "careful"), plugins=plugins)
        return await post(server, {**CHAT, "tools": [WRITE]})

    long = block("write", LONG)
    for calls, made, end in (
        ([long], [("write", LONG)], "tool_calls"),
        ([block("write", {**LONG, "path": "secret"})], [], "stop"),
        ([long, long.replace("}<", "]<")], [("write", LONG)], "tool_calls"),
    ):
        answer = await answered(*calls)
        assert (said(PATH, answer, True)[1], ended(PATH, answer, True)) == (made, end)
        assert len(fragments(answer.frames()[:-1])) == len(made)
    assert said(PATH, answer, True)[0].endswith("</tool_call> Then.")
    *chunks, error, _ = (await answered(block("write", {"path": "poison"}))).frames()
    assert (fragments(chunks), error["error"]["code"]) == ([], "invalid_tool_arguments")
