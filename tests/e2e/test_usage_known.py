"""Counts of tokens that a server does not give, or of which it gives half: they are estimated and marked, or unknown,
and never 0 (R11.3)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.e2e.conftest import CHAT, post, serving, upstream_config
from tests.e2e.test_messages_backend import BODIES, JSON, SSE
from toolwire.testing import Answer, Asked, Upstream, chunk, frame

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
SAID = "Some words that are said here."
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
paths = pytest.mark.parametrize("path", BODIES)
modes = pytest.mark.parametrize("mode", ["prompt", "native"])


def giving(usage: Any) -> Any:
    """A server that says this of its tokens."""

    def answer(asked: Asked) -> Answer:
        if not asked.json.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": SAID}, "finish_reason": "stop"}
            body = {"id": "x", "model": "m", "choices": [choice], **({} if usage is None else {"usage": usage})}
            return Answer([orjson.dumps(body)], headers=JSON, framing="length")
        steps = [frame(chunk({"role": "assistant", "content": SAID})), frame(chunk({}, "stop"))]
        if usage is not None:
            steps.append(frame({**chunk({}), "choices": [], "usage": usage}))
        return Answer([*steps, frame("[DONE]")], headers=SSE)

    return answer


def counted(path: str, answer: Any, stream: bool) -> tuple[int, int] | None:
    """Tokens of the prompt and of the answer, as a client gets them."""
    if path == CHAT:
        shown = (answer.frames()[-2] if stream else answer.json()).get("usage")
        return None if shown is None else (shown["prompt_tokens"], shown["completion_tokens"])
    if path == RESPONSES:
        shown = (answer.frames()[-1]["response"] if stream else answer.json())["usage"]
        return None if shown is None else (shown["input_tokens"], shown["output_tokens"])
    frames = {one["type"]: one for one in answer.frames()} if stream else {}
    shown = frames["message_delta"]["usage"] if stream else answer.json()["usage"]
    return shown.get("input_tokens", 0), shown["output_tokens"]


async def ask(says: Any, path: str, *, stream: bool, mode: str, tools: bool = True, **options: Any) -> Any:
    body = {**BODIES[path], "stream": stream}
    if not tools:
        del body["tools"]
    if path == CHAT and stream:
        body["stream_options"] = {"include_usage": True}
    async with (
        Upstream([giving(says)]) as up,
        serving(upstream_config(up.url, defaults={"mode": mode, **options})) as server,
    ):
        answer = await post(server, body, path=path)
    assert answer.status == 200
    return answer


@both
@modes
@paths
async def test_a_server_that_does_not_count(path: str, mode: str, stream: bool) -> None:
    answer = await ask(None, path, stream=stream, mode=mode)
    counts = counted(path, answer, stream)
    assert counts is not None
    assert min(counts) > 0
    if not stream:
        assert answer.headers["x-usage-source"] == "estimate"
        assert answer.headers["x-usage-tokenizer"] in ("o200k_base", "bytes")


@both
@modes
@paths
@pytest.mark.parametrize(
    ("usage", "given"),
    [
        ({"prompt_tokens": 1234}, (1234, None)),
        ({"completion_tokens": 77}, (None, 77)),
        ({"prompt_tokens": 1234, "completion_tokens": None}, (1234, None)),
        ({"prompt_tokens": 1234, "total_tokens": 1300}, (1234, 66)),
        ({"completion_tokens": 77, "total_tokens": 1300}, (1223, 77)),
        ({"prompt_tokens": 1234, "completion_tokens": 0, "total_tokens": 1234}, (1234, 0)),
        ({}, (None, None)),
    ],
    ids=["prompt", "answer", "null", "sum", "sum of the other", "nothing was said", "nothing"],
)
async def test_a_server_that_counts_half(
    path: str, mode: str, stream: bool, usage: Any, given: tuple[int | None, int | None]
) -> None:
    answer = await ask(usage, path, stream=stream, mode=mode)
    counts = counted(path, answer, stream)
    assert counts is not None
    for said, count in zip(given, counts, strict=True):
        assert count == said if said is not None else count > 0
    if not stream:
        estimated = None in given
        assert answer.headers["x-usage-source"] == ("estimate" if estimated else "backend")
        assert ("x-usage-tokenizer" in answer.headers) is estimated


@both
@modes
@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("says", [None, {"prompt_tokens": 3}, {}])
async def test_unknown_is_said_where_nothing_may_be_estimated(path: str, mode: str, stream: bool, says: Any) -> None:
    answer = await ask(says, path, stream=stream, mode=mode, usage={"source": "backend"})
    assert counted(path, answer, stream) is None


@both
async def test_what_passes_unread_says_what_its_server_said(stream: bool) -> None:
    answer = await ask(None, CHAT, stream=stream, mode="prompt", tools=False)
    assert b'"usage"' not in answer.body
    assert "x-usage-source" not in answer.headers


@both
async def test_counts_add_up_over_attempts(stream: bool) -> None:
    """Half of one answer is estimated, so the sum is an estimate."""

    def nearly(asked: Asked) -> Answer:
        made = giving({"prompt_tokens": 100, "completion_tokens": 10})(asked)
        said = b'<tool_call>{\\"name\\":\\"read\\",\\"arguments\\":{\\"pth\\":1}}</tool_call>'
        steps = [step.replace(SAID.encode(), said) for step in made.steps if isinstance(step, bytes)]
        return Answer(steps, headers=made.headers, framing=made.framing)

    body = {**BODIES[CHAT], "stream": stream, "stream_options": {"include_usage": True} if stream else None}
    async with (
        Upstream([nearly, giving({"prompt_tokens": 200})]) as up,
        serving(upstream_config(up.url, defaults={"mode": "native"})) as server,
    ):
        answer = await post(server, body)
    assert len(up.posts) == 2
    counts = counted(CHAT, answer, stream)
    assert counts is not None
    assert counts[0] == 300
    assert counts[1] > 10
    if not stream:
        assert answer.headers["x-usage-source"] == "estimate"
