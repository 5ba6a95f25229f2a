"""Calls in forms that nobody taught, through the whole gateway (R23.1): read in every mode, over both APIs, streamed
and not; counted by form; and what fails the test is text, byte for byte."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import pytest

from tests.e2e.conftest import CHAT, USER, Gateway, function, get, mock_config, post, read_config, upstream_config
from tests.e2e.meaning import RESPONSES, ended, meant
from tests.e2e.test_capture import captured_of
from tests.e2e.test_copying import in_pieces
from toolwire.config import GatewayConfig
from toolwire.extras.capture.files import read_capture
from toolwire.testing import Answer, Upstream, chunk, frame

ADD = function("add", a="integer", b="integer")
FLAT_ADD = {"type": "function", **ADD["function"], "strict": False}
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
WANTED = ("add", {"a": 1, "b": 2})
MODES: list[dict[str, Any]] = [{"format": "fenced_json"}, {"format": "mistral"}, {"mode": "native"}]


class Got(NamedTuple):
    """What a client has got."""

    calls: list[tuple[str, Any]]
    text: str
    reason: str


def config(text: str, *, calls: Any = (), **options: Any) -> GatewayConfig:
    turn = {"text": text, "chunk": 3, **({"calls": calls} if calls else {"finish": "stop"})}
    return mock_config([turn], **options)


async def said(gateway: Gateway, config: GatewayConfig, path: str, body: dict[str, Any]) -> Got:
    """The same whether or not it is streamed."""
    server = await gateway(config)
    found = []
    for stream in (False, True):
        counts = {"stream_options": {"include_usage": True}} if path == CHAT and stream else {}
        answer = await post(server, {**body, **counts, "stream": stream}, path=path)
        text, calls, *_ = meant(path, answer, stream)
        found.append(Got(calls, text, ended(path, answer, stream)))
    assert found[0] == found[1]
    return found[0]


async def chat(gateway: Gateway, config: GatewayConfig, *, tool: Any = ADD, **asked: Any) -> Got:
    return await said(gateway, config, CHAT, {"messages": USER, "tools": [tool], **asked})


async def responses(gateway: Gateway, config: GatewayConfig) -> Got:
    return await said(gateway, config, RESPONSES, {"input": "hi", "tools": [FLAT_ADD]})


@pytest.mark.parametrize("options", MODES, ids=str)
async def test_a_call_in_a_form_that_nobody_taught(gateway: Gateway, options: dict[str, Any]) -> None:
    assert await chat(gateway, config(CALL, **options)) == Got([WANTED], "", "tool_calls")
    assert await chat(gateway, config(f"I add.\n\n{CALL}", **options)) == Got([WANTED], "I add.", "tool_calls")
    assert await responses(gateway, config(f"I add.\n\n{CALL}", **options)) == Got([WANTED], "I add.", "tool_calls")


FAILING = [
    CALL.replace("add", "subtract"),
    CALL.replace("1", '"one"'),
    CALL.replace('"a"', '"c"'),
    "<tool_call>\n\nadd(1, 2)</tool_call>",
    f"So: {CALL[:30]}",
]


@pytest.mark.parametrize(
    ("text", "options", "strict"),
    [
        (text, options, True if (row + column) % 2 else None)
        for row, text in enumerate(FAILING)
        for column, options in enumerate(MODES)
    ],
)
async def test_what_fails_is_text_byte_for_byte(
    gateway: Gateway, text: str, options: dict[str, Any], strict: bool | None
) -> None:
    tool = {"type": "function", "function": {**ADD["function"], "strict": strict}}
    text = f"  It says {text} \n"
    assert await chat(gateway, config(text, **options), tool=tool) == Got([], text, "stop")


@pytest.mark.parametrize("options", MODES, ids=str)
async def test_only_if_the_route_wants_it_and_a_tool_may_be_called(gateway: Gateway, options: dict[str, Any]) -> None:
    taught = config(CALL, recognise="taught", **options)
    assert await chat(gateway, taught) == Got([], CALL, "stop")
    assert await chat(gateway, config(CALL, **options), tool_choice="none") == Got([], CALL, "stop")


async def test_types_are_mended_first(gateway: Gateway) -> None:
    text = CALL.replace("1", '"1"')
    assert (await chat(gateway, config(text, mode="native"))).calls == [WANTED]
    assert (await chat(gateway, config(text, mode="native", coerce="off"))).text == text


async def test_a_server_that_called_meant_nothing_by_its_text(gateway: Gateway) -> None:
    """Under `mode: native`: no call is made twice, and none that the server's own parser left."""
    other = {"name": "add", "arguments": '{"a": 3, "b": 4}'}
    for text in (CALL, f"As in {CALL} before.", f"Twice: {CALL} {CALL}"):
        got = await chat(gateway, config(text, calls=[other], mode="native"))
        assert got.calls == [("add", {"a": 3, "b": 4})]
        assert "".join(got.text.split()) == "".join(text.split())
        assert (await responses(gateway, config(text, calls=[other], mode="native"))).calls == got.calls


async def test_one_call_if_only_one_is_wanted(gateway: Gateway) -> None:
    got = await chat(gateway, config(f"{CALL}\n{CALL}", mode="native"), parallel_tool_calls=False)
    assert got.calls == [WANTED]


async def test_it_is_counted_by_form(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolwire.access")
    server = await gateway(config(f"{CALL} {CALL.replace('add', 'sub')} {CALL.replace('1', 'true')}", mode="native"))
    await post(server, {"messages": USER, "tools": [ADD]})
    (line,) = [record.fields for record in caplog.records if record.name == "toolwire.access"]  # type: ignore[attr-defined]
    assert (line["calls"], line["recognised"], line["form"], line["unrecognised"]) == (1, 1, "hermes", 1)
    assert not line.keys() & {"parse_failures", "unknown_names", "schema_warnings", "strict_failures"}
    page = (await get(server, "/metrics")).body.decode()
    assert 'toolwire_tool_calls_recognised_total{form="hermes"} 1.0\n' in page
    assert 'toolwire_tool_calls_unrecognised_total{reason="schema"} 1.0\n' in page


async def test_what_does_not_count_is_not_counted(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolwire.access")
    other = {"name": "add", "arguments": '{"a": 3, "b": 4}'}
    server = await gateway(config(CALL, calls=[other], mode="native"))
    await post(server, {"messages": USER, "tools": [ADD]})
    (line,) = [record.fields for record in caplog.records if record.name == "toolwire.access"]  # type: ignore[attr-defined]
    assert line["calls"] == 1
    assert not line.keys() & {"recognised", "form"}


@pytest.mark.parametrize("options", MODES, ids=str)
async def test_the_conversation_goes_on_from_it(gateway: Gateway, options: dict[str, Any]) -> None:
    script = [{"text": CALL, "finish": "stop"}, {"text": "3", "finish": "stop"}]
    server = await gateway(mock_config(script, **options))
    first = (await post(server, {"input": "1 + 2?", "tools": [FLAT_ADD]}, path=RESPONSES)).json()
    (call,) = first["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
    body = {"previous_response_id": first["id"], "input": [result], "tools": [FLAT_ADD]}
    second = (await post(server, body, path=RESPONSES)).json()
    assert [item["type"] for item in second["output"]] == ["message"]


async def test_a_capture_says_the_form(gateway: Gateway) -> None:
    script = [{"text": CALL, "finish": "stop"}]
    sections = {"backends": {"mock": {"kind": "mock", "script": script}}, "defaults": {"mode": "native"}}
    server = await gateway(read_config({**sections, "capture": {"keep": 1}}))
    answer = await post(server, {"messages": USER, "tools": [ADD]})
    end = read_capture(await captured_of(server, answer.headers["X-Request-Id"])).end
    assert (end["recognised"], end["form"]) == (1, "hermes")


@pytest.mark.parametrize("own", [False, True])
async def test_over_the_wire_of_a_native_server(gateway: Gateway, own: bool) -> None:
    """Frames of a real server, whose prose passes as bytes: what waits, and what goes on behind it, comes in order."""
    said = f"I look.\n{CALL}\nThen I go on, and on, {CALL} and end."
    other = {"index": 0, "id": "call_x", "type": "function", "function": {"name": "add", "arguments": '{"a":3,"b":4}'}}
    deltas = [{"content": piece} for piece in in_pieces(said, 5)] + ([{"tool_calls": [other]}] if own else [])
    frames = [frame(chunk(delta)) for delta in deltas] + [frame(chunk({}, "tool_calls" if own else "stop"))]
    answer = Answer([*frames, frame("[DONE]")], headers={"Content-Type": "text/event-stream"})
    async with Upstream([answer]) as upstream:
        server = await gateway(upstream_config(upstream.url, defaults={"mode": "native"}))
        *chunks, done = (await post(server, {"messages": USER, "tools": [ADD], "stream": True})).frames()
    assert done == "[DONE]"
    written: list[str] = []
    for delta in (got["choices"][0]["delta"] for got in chunks):
        if delta.get("content"):
            written.append(delta["content"])
        written += [f"<{call['id'] == 'call_x'}>" for call in delta.get("tool_calls", ()) if call.get("id")]
    text = "".join(written)
    if own:
        assert text.endswith("<True>")
        assert "".join(text.removesuffix("<True>").split()) == "".join(said.split())
    else:
        assert text == "I look.<False>\nThen I go on, and on,<False> and end."
    assert [got["choices"][0]["finish_reason"] for got in chunks if got["choices"][0]["finish_reason"]] == [
        "tool_calls"
    ]
