"""Answers under an enforced choice that repeat a call (R30.8): the client gets it once, the server is told to stop, and
different calls stay."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

import toolwire.scanner
from tests.e2e.conftest import CHAT, USER, Gateway, function, post, read_config
from tests.waiting import GUARD_S
from toolwire import fastparse
from toolwire.config import GatewayConfig
from toolwire.scan import _pyparse
from toolwire.testing import Answer, Say, Upstream, chunk, frame

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
READ = function("read_file", path="string")
PATHS = pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def block(path: str) -> str:
    return f'<tool_call>\n{{"name":"read_file","arguments":"{{\\"path\\":\\"{path}\\"}}"}}\n</tool_call>\n'


def config(url: str, **options: Any) -> GatewayConfig:
    backend = {"url": url, **options.pop("backend", {"preset": "llamacpp"})}
    defaults = {"retry": {"attempts": 1}, **options}
    return read_config({"backends": {"s": backend}, "routes": [{"model": "m", "backend": "s"}], "defaults": defaults})


def body(path: str, *, stream: bool, choice: str = "required") -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "m", "stream": stream}
    if path == CHAT:
        more = {"stream_options": {"include_usage": True}} if stream else {}
        return {**asked, "messages": USER, "tools": [READ], "tool_choice": choice, **more}
    if path == RESPONSES:
        return {**asked, "input": "hi", "tools": [{"type": "function", **READ["function"]}], "tool_choice": choice}
    tools = [{"name": "read_file", "input_schema": READ["function"]["parameters"]}]
    wanted = {"type": "any" if choice == "required" else choice}
    return {**asked, "max_tokens": 99, "messages": USER, "tools": tools, "tool_choice": wanted}


def files(sent: bytes) -> list[str]:
    """The files that the calls of an answer name, each once."""
    return [name for name in ("a.txt", "b.txt", "c.txt") if name.encode() in sent]


@pytest.fixture(params=["compiled", "python"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    python = request.param == "python"
    monkeypatch.setattr(toolwire.scanner, "CallScanner", _pyparse.CallScanner if python else fastparse.CallScanner)


@pytest.mark.parametrize(
    ("path", "choice", "early"),
    [
        (path, choice, ("buffered", 0)[(row + column) % 2])
        for row, path in enumerate((CHAT, RESPONSES, MESSAGES))
        for column, choice in enumerate(("required", "auto"))
    ],
)
@pytest.mark.usefixtures("twin")
async def test_a_server_that_goes_on_is_told_to_stop(gateway: Gateway, path: str, choice: str, early: str) -> None:
    pieces = [block("a.txt"), block("b.txt"), block("a.txt"), block("c.txt")]
    async with asyncio.timeout(GUARD_S), Upstream([Say(*pieces, hang=True)]) as upstream:
        server = await gateway(config(upstream.url, argument_streaming=early))
        answer = await post(server, body(path, stream=True, choice=choice), path=path)
        await upstream.posts[0].dropped.wait()
    assert files(answer.body) == ["a.txt", "b.txt"]
    assert calls_of(answer, path) == ["a.txt", "b.txt"]
    assert reason_of(answer, path) in ("tool_calls", "tool_use", "completed")


@PATHS
@WAYS
@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_a_whole_answer(gateway: Gateway, path: str, stream: bool, finish: str) -> None:
    text = block("a.txt") * 3 + block("b.txt")[:-30]
    async with Upstream([Say(text, finish=finish, usage=(10, 40))]) as upstream:
        server = await gateway(config(upstream.url))
        answer = await post(server, body(path, stream=stream), path=path)
    assert files(answer.body) == ["a.txt"]
    if stream:
        assert calls_of(answer, path) == ["a.txt"]
        assert reason_of(answer, path) in ("tool_calls", "tool_use", "completed")
    elif path == CHAT:
        (choice,) = answer.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert len(choice["message"]["tool_calls"]) == 1


@WAYS
async def test_what_nobody_enforces_stays(gateway: Gateway, stream: bool) -> None:
    """The same call twice may be meant."""
    async with Upstream([Say(block("a.txt") * 2)]) as upstream:
        server = await gateway(config(upstream.url, backend={"constrain": "none"}, mode="prompt"))
        answer = await post(server, body(CHAT, stream=stream, choice="auto"))
    assert answer.body.count(b'"name":"read_file"') == 2


def native(stream: bool, *paths: str) -> Answer:
    made = [
        {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": "read_file", "arguments": orjson.dumps({"path": path}).decode()},
        }
        for index, path in enumerate(paths)
    ]
    if stream:
        frames = [frame(chunk({"role": "assistant", "tool_calls": [call]})) for call in made]
        frames += [frame(chunk({}, "length")), frame("[DONE]")]
        return Answer(frames, headers={"Content-Type": "text/event-stream"})
    message = {"role": "assistant", "content": None, "tool_calls": made}
    choices = [{"index": 0, "message": message, "finish_reason": "length"}]
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    return Answer([orjson.dumps(whole)], headers={"Content-Type": "application/json"}, framing="length")


@PATHS
@WAYS
@pytest.mark.parametrize("recognise", ["any", "taught"])
async def test_a_server_that_makes_calls_itself(gateway: Gateway, path: str, stream: bool, recognise: str) -> None:
    async with Upstream([native(stream, "a.txt", "b.txt", "b.txt", "c.txt")]) as upstream:
        server = await gateway(config(upstream.url, backend={}, mode="native", recognise=recognise))
        answer = await post(server, body(path, stream=stream), path=path)
    assert files(answer.body) == ["a.txt", "b.txt"]


@pytest.mark.parametrize("dedupe", [False, True])
async def test_it_is_counted(gateway: Gateway, dedupe: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "toolwire.access")
    async with Upstream([Say(block("a.txt") * 2, block("c.txt"))]) as upstream:
        server = await gateway(config(upstream.url, dedupe_calls=dedupe))
        answer = await post(server, body(CHAT, stream=True))
    assert files(answer.body) == ["a.txt"]
    (line,) = [record for record in caplog.records if record.name == "toolwire.access"]
    fields = vars(line)["fields"]
    assert fields["calls"] == 1
    assert fields["deduped"] in (1, 2), "one behind it may have come with it"
    assert fields["output_tokens"] > 0


def frames_of(answer: Any) -> list[Any]:
    return [frame for frame in answer.frames() if isinstance(frame, dict)]


def calls_of(answer: Any, path: str) -> list[str]:
    """What the calls of a stream name, each from its pieces."""
    texts: dict[Any, str] = {}
    for one in frames_of(answer):
        if path == CHAT:
            for choice in one.get("choices", ()):
                for call in choice["delta"].get("tool_calls", ()):
                    texts[call["index"]] = texts.get(call["index"], "") + call["function"].get("arguments", "")
        elif one["type"] == "response.function_call_arguments.delta":
            texts[one["item_id"]] = texts.get(one["item_id"], "") + one["delta"]
        elif one["type"] == "content_block_delta" and one["delta"]["type"] == "input_json_delta":
            texts[one["index"]] = texts.get(one["index"], "") + one["delta"]["partial_json"]
    return [orjson.loads(text)["path"] for text in texts.values()]


def reason_of(answer: Any, path: str) -> str | None:
    frames = frames_of(answer)
    if path == CHAT:
        return next(c["finish_reason"] for f in frames for c in f["choices"] if c.get("finish_reason"))
    if path == RESPONSES:
        return str(frames[-1]["response"]["status"])
    return next(one["delta"]["stop_reason"] for one in frames if one["type"] == "message_delta")
