"""Counts of tokens, for every server that counts in its own way. What a server does not give, or gives by half, is
estimated and marked, or unknown, and never 0 (R11.3). In streams of Chat (R7.7) no chunk has a `usage` key or empty
`choices` without `include_usage`; with it every chunk has one and the last one the counts. A request without tools is
passed on as it is, and its answer too (R1.6)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, function, gateway_before, post
from tests.e2e.meaning import CLIENTS, RESPONSES
from tests.e2e.test_cut_calls import asking
from tests.e2e.test_messages_backend import BODIES, JSON, SSE
from toolwire.events import BlockKind, Close, Delta, Finish, Open
from toolwire.middlewares.forwarding import TokenCounting
from toolwire.model import ModelRequest
from toolwire.testing import Answer, Asked, chunk, frame
from toolwire.upstream.servers.usage import Estimator

SAID = "Some words that are said here."
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
modes = pytest.mark.parametrize("mode", ["prompt", "native"])


def giving(usage: Any) -> Callable[[Asked], Answer]:
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


HALVES: list[tuple[Any, tuple[int | None, int | None]]] = [
    # what a server says, and what of it counts
    (None, (None, None)),
    ({}, (None, None)),
    ({"prompt_tokens": 1234}, (1234, None)),
    ({"completion_tokens": 77}, (None, 77)),
    ({"prompt_tokens": 1234, "completion_tokens": None}, (1234, None)),
    ({"prompt_tokens": 1234, "total_tokens": 1300}, (1234, 66)),
    ({"completion_tokens": 77, "total_tokens": 1300}, (1223, 77)),
    ({"prompt_tokens": 1234, "completion_tokens": 0, "total_tokens": 1234}, (1234, 0)),
]


@modes
async def test_a_server_that_counts_half_or_not_at_all(mode: str) -> None:
    script = [giving(usage) for usage, _ in HALVES for _ in range(2 * len(CLIENTS))]
    config = {"mode": mode}
    async with gateway_before(script, defaults=config) as (server, _):
        for (usage, given), path, stream in product(HALVES, CLIENTS, (False, True)):
            answer = await post(server, asking(path, stream), path=path)
            case = (usage, path, stream, answer.body)
            counts = counted(path, answer, stream)
            assert counts is not None, case
            for said, count in zip(given, counts, strict=True):
                assert count == said if said is not None else count > 0, case
            if not stream:
                source = "estimate" if None in given else "backend"
                assert answer.headers["x-usage-source"] == source, case
                tokenizers = ("o200k_base", "bytes") if source == "estimate" else (None,)
                assert answer.headers.get("x-usage-tokenizer") in tokenizers, case


@modes
async def test_unknown_is_said_where_nothing_may_be_estimated(mode: str) -> None:
    ways = list(product((None, {"prompt_tokens": 3}, {}), (CHAT, RESPONSES), (False, True)))
    config = {"mode": mode, "usage": {"source": "backend"}}
    script = [giving(usage) for usage, _, _ in ways]
    async with gateway_before(script, defaults=config) as (server, _):
        for usage, path, stream in ways:
            answer = await post(server, asking(path, stream), path=path)
            assert answer.status == 200
            assert counted(path, answer, stream) is None, (usage, path, stream)


@both
async def test_counts_add_up_over_attempts(stream: bool) -> None:
    """Half of one answer is estimated, so the sum is an estimate."""

    def nearly(asked: Asked) -> Answer:
        made = giving({"prompt_tokens": 100, "completion_tokens": 10})(asked)
        said = b'<tool_call>{\\"name\\":\\"read\\",\\"arguments\\":{\\"pth\\":1}}</tool_call>'
        steps = [step.replace(SAID.encode(), said) for step in made.steps if isinstance(step, bytes)]
        return Answer(steps, headers=made.headers, framing=made.framing)

    async with gateway_before([nearly, giving({"prompt_tokens": 200})], defaults={"mode": "native"}) as (server, up):
        answer = await post(server, asking(CHAT, stream))
    assert len(up.posts) == 2
    counts = counted(CHAT, answer, stream)
    assert counts is not None
    assert counts[0] == 300
    assert counts[1] > 10
    if not stream:
        assert answer.headers["x-usage-source"] == "estimate"


# --- streams of Chat ------------------------------------------------------------------------------------------------

COUNTS = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
WHEN = ("asked", "unasked", "null first", "in every chunk", "in every chunk if asked", "in the last chunk", "never")
BODY = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
WANTED = {"stream_options": {"include_usage": True}}
CHOICES: list[Any] = ["none", "auto", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}]
SETTINGS = [
    *product(("prompt", "native"), ("auto", "backend", "estimate")),
    *product(("auto", "hybrid"), ("auto",)),  # each becomes one of those
]


def counting(when: str) -> Callable[[Asked], Answer]:
    """A server that says "Hello you", and its counts as `when` says."""

    def answer(asked: Asked) -> Answer:
        wanted = bool((asked.json.get("stream_options") or {}).get("include_usage"))
        said = {"asked": wanted, "null first": wanted, "in every chunk if asked": wanted}.get(when, when != "never")
        every: dict[str, Any] = {"usage": COUNTS} if "every" in when and said else {}
        if when == "null first" and said:
            every = {"usage": None}
        steps = [frame({**chunk({"role": "assistant", "content": "Hello"}), **every})]
        steps += [frame({**chunk({"content": " you"}), **every})]
        steps.append(frame({**chunk({}, "stop"), **({"usage": COUNTS} if when == "in the last chunk" else every)}))
        if said and when != "in the last chunk":
            steps.append(frame({**chunk({}), "choices": [], "usage": COUNTS}))
        return Answer([*steps, frame("[DONE]")], headers=SSE)

    return answer


@pytest.mark.parametrize(("mode", "source"), SETTINGS)
async def test_what_a_stream_says_of_its_tokens(mode: str, source: str) -> None:
    defaults, now = {"mode": mode, "usage": {"source": source}}, WHEN[0]
    async with gateway_before([lambda asked: counting(now)(asked)], defaults=defaults) as (server, _):
        for number, (now, wanted) in enumerate(product(WHEN, (False, True))):
            choice = CHOICES[number % len(CHOICES)]
            body = {**BODY, "tools": [function("f")], "tool_choice": choice, **(WANTED if wanted else {})}
            frames = [one for one in (await post(server, body)).frames() if isinstance(one, dict)]
            case = (now, choice, wanted, frames)
            said = "".join(one["choices"][0]["delta"].get("content") or "" for one in frames if one["choices"])
            assert said == "Hello you", case
            if not wanted:
                assert not any("usage" in one or one["choices"] == [] for one in frames), case
                continue
            unknown = source == "backend" and now == "never"  # then no chunk has counts
            *earlier, last = [*frames, None] if unknown else frames
            assert all("usage" in one and one["usage"] is None and one["choices"] for one in earlier), case
            if not unknown:
                assert last["choices"] == [], case
                assert last["usage"]["completion_tokens"] > 0, case


async def test_without_tools_the_servers_bytes_pass() -> None:
    """The server was asked in the client's words, so its counts, or none, are an answer to those."""
    now = WHEN[0]
    async with gateway_before([lambda asked: counting(now)(asked)]) as (server, up):
        for now, options in product(WHEN, ({}, WANTED)):
            passed = (await post(server, {**BODY, **options})).body
            assert passed == b"".join(counting(now)(up.posts[-1]).steps), (now, options)
    async with gateway_before([giving(None)]) as (server, _):
        whole = await post(server, {"messages": BODIES[CHAT]["messages"]})
    assert b'"usage"' not in whole.body
    assert "x-usage-source" not in whole.headers


@every("label", [SSE, JSON])
async def test_an_answer_in_the_other_form_has_the_servers_counts_or_no_zeros(
    caplog: pytest.LogCaptureFixture, label: dict[str, str]
) -> None:
    caplog.set_level(logging.INFO, "toolwire.access")
    now: list[Any] = [None, False]

    def contrary(asked: Asked) -> Answer:
        usage, stream = now
        return Answer(giving(usage)(replace(asked, body=orjson.dumps({"stream": not stream}))).steps, headers=label)

    async with gateway_before([contrary]) as (server, _):
        for usage, stream, wanted in product((None, COUNTS), (False, True), (False, True)):
            now[:] = usage, stream
            body = {**BODY, "stream": stream, **(WANTED if stream and wanted else {})}
            answer = await post(server, body)
            said = [one["usage"] for one in (answer.frames()[:-1] if stream else [answer.json()]) if one.get("usage")]
            case = (usage, stream, wanted, answer.body)
            assert all(one["prompt_tokens"] > 0 for one in said), case
            if usage is not None:
                assert [one["total_tokens"] for one in said] == ([7] if wanted or not stream else []), case
                if label is JSON and stream:
                    assert caplog.records[-1].__dict__["fields"]["input_tokens"] == 3, case


async def test_the_name_of_a_call_is_generated_as_well() -> None:
    estimator = Estimator("bytes")
    counting = TokenCounting(estimator, ModelRequest("m", ()), always=False, server=None)
    counting.feed([Open(0, BlockKind.TOOL_CALL, name="a_long_name_of_a_tool", call_id="c"), Delta(0, "{}"), Close(0)])
    last = await counting.fill(Finish("tool_calls"))
    assert isinstance(last, Finish)
    assert last.usage is not None
    assert last.usage.output_tokens == await estimator.count("a_long_name_of_a_tool{}")
