"""The suite of `make engines`, without engines: it keeps faults of an engine and of the gateway apart (R32.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.e2e.conftest import serving, upstream_config
from tests.engines import results
from tests.engines.asking import HELLO, HISTORY, PROTOCOLS, QUESTION, TOOLS, Ask, Protocol
from tests.engines.suite import SITUATIONS, EngineBroken, Missing, Run, Server, Situation, configuration, expect, play
from tests.engines.tap import Tap
from tests.protocols.wires import chunk
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream

ONE_CALL = '<tool_call>{"name":"get_weather","arguments":{"city":"Paris"}}</tool_call>'
JSON = {"Content-Type": "application/json"}


@asynccontextmanager
async def run_over(script: Any, gateway: str | None = None) -> AsyncIterator[Run]:
    """A run over a scripted engine, through a gateway in this process, or through what is at `gateway`."""
    async with Upstream([script]) as engine, Tap(engine.url).serving() as tap:
        server = Server("vllm", engine.url, "m")
        if gateway is not None:
            yield Run(server, SimpleNamespace(url=gateway), tap)  # type: ignore[arg-type]
            return
        async with serving(upstream_config(tap.url, backend={"preset": "vllm"})) as running:
            yield Run(server, SimpleNamespace(url=str(running.make_url("/")).rstrip("/")), tap)  # type: ignore[arg-type]


def one(work: Any) -> Situation:
    return Situation("facts/x", "x", work)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_answers_are_read_in_one_form(protocol: Protocol, stream: bool) -> None:
    def script(asked: Asked) -> Answer:
        told = "17 degrees" in asked.body.decode()
        return (Say("Hello", " you", usage=(9, 2)) if told else Say(ONE_CALL, usage=(9, 9)))(asked)

    async with run_over(script) as run:
        said = await run.answered(Ask(HISTORY, protocol, tools=TOOLS, stream=stream))
        called = await run.answered(Ask(QUESTION, protocol, tools=TOOLS, choice="get_weather", stream=stream))
        refused = await run.refused(Ask((("king", "x"),), protocol, stream=stream), 400)
    assert (said.text, said.calls, said.end) == ("Hello you", (), "stop")
    assert (called.text.strip(), called.end) == ("", "calls")
    assert [(call.name, orjson.loads(call.arguments)) for call in called.calls] == [("get_weather", {"city": "Paris"})]
    assert said.usage is not None
    assert refused.error is not None
    assert [exchange.error for exchange in run.tap.exchanges] == [None, None]


async def test_a_broken_promise_is_the_gateways() -> None:
    """Answers that no gateway may give."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}

    def whole(message: Any, reason: Any, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": reason, "logprobs": None}  # fmt: skip
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        return {**head, "choices": [choice], "usage": usage, **more}

    def called(name: str, arguments: str) -> dict[str, Any]:
        return {"tool_calls": [{"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}}]}

    wrong: dict[str, Any] = {
        "not on offer": whole(called("rm", "{}"), "tool_calls"),
        "no JSON": whole(called("get_time", '{"ci'), "tool_calls"),
        "no object": whole(called("get_time", "[]"), "tool_calls"),
        "does not end with calls": whole({"content": "x"}, "tool_calls"),
        "form of chat": {"choices": []},
    }
    for words, body in wrong.items():
        async with Upstream([Answer([orjson.dumps(body)], headers=JSON)]) as bad, run_over(Say("x"), bad.url) as run:

            async def ask(run: Run) -> str:
                return str(await run.ask(Ask(QUESTION, tools=TOOLS)))

            outcome = await play(run, one(ask))
        assert outcome.gateway is not None, words
        assert words in outcome.gateway


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (Refuse(500, "image input is not supported"), "answers 500 to what the client did wrong"),
        (Answer([b'data: {"error":{"message":"Invalid grammar","code":400}}\n\ndata: [DONE]\n\n'], headers={"Content-Type": "text/event-stream"}), "in a stream with status 200"),
        (Answer([chunk({"content": "x"}), b"data: [DONE]\n\n"], headers={"Content-Type": "text/event-stream"}), "without a finish reason"),
        (Answer([], headers=JSON, framing="length"), "an empty answer"),
    ],
    ids=["500", "in-band", "no end", "empty"],
)  # fmt: skip
async def test_a_mistake_of_the_engine_is_its_own(answer: Answer, mistake: str) -> None:
    async with run_over(answer) as run:

        async def ask(run: Run) -> str:
            return str(await run.ask(Ask(HELLO, "messages", stream=True)))

        outcome = await play(run, one(ask))
        again = await play(run, one(lambda run: asyncio.sleep(0, "nothing")))
    assert outcome.gateway is None
    assert any(mistake in said for said in outcome.engine), outcome.engine
    assert again.engine == ()  # the next situation begins anew


async def test_probes_of_the_gateway_are_none_of_the_situations_exchanges() -> None:
    async with run_over(Say("x", usage=(1, 1))) as run:

        async def ask(run: Run) -> str:
            seen = await run.ask(Ask(HELLO))
            await run.post("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "a probe"}]})
            return f"{seen}, {len(run.tapped)} of {len(run.tap.exchanges)}"

        assert (await play(run, one(ask))).seen == "200, text, end `stop`, 1 of 2"


async def test_what_a_situation_says_of_itself() -> None:
    async def missing(run: Run) -> str:
        raise Missing("the engine takes no grammar")

    async def broken(run: Run) -> str:
        raise EngineBroken("takes any name")

    async def late(run: Run) -> str:
        await asyncio.Event().wait()
        return ""

    async def wrong(run: Run) -> str:
        expect(False, "what was promised")
        return ""

    async with run_over(Say("x")) as run:
        assert (await play(run, one(missing))).skipped == "the engine takes no grammar"
        outcome = await play(run, one(broken))
        assert (outcome.gateway, outcome.engine) == (None, ("takes any name",))
        assert (await play(run, one(wrong))).gateway == "what was promised"
        assert "no answer" in ((await play(run, one(late), patience=0.01)).gateway or "")


def test_every_situation_has_a_heading_and_the_gateways_configuration_is_one() -> None:
    assert 60 <= len(SITUATIONS) <= 100
    assert [one.name for one in results.ordered()][-3:] == [name for name in SITUATIONS if name.startswith("restarts/")]
    assert {one.group for one in SITUATIONS.values()} == set(results.GROUPS)
    assert len({one.title for one in SITUATIONS.values()}) == len(SITUATIONS)
    names = [route["model"] for route in configuration(Server("x", "http://a", "m"), "http://b")["routes"]]
    assert len(set(names)) == len(names)
