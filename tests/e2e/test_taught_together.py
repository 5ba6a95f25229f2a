"""Facts that a server's refusal teaches: requests that were under way together each learn it for themselves,
and one client's refusal says nothing to others (R24.1, R33.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.cases import every
from tests.e2e.conftest import function, post, read_config, serving
from tests.e2e.meaning import says
from tests.e2e.test_tool_mode import NAMED, NO_OBJECT, REFUSALS, SSE, WRITTEN, refusing, tools_shown
from tests.waiting import until
from toolwire.config import GatewayConfig
from toolwire.model import ToolUse
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream, WireAnswer

TOGETHER: Final = 8
KEYS: Final = [f"key-{number}" for number in range(TOGETHER)]
READ = function("read", path="string")
WRITE = function("write", path="string")
PARSE: Final = "Failed to initialize samplers: failed to parse grammar"

CALLS = says("openai_chat", ToolUse("call_1", "read", '{"path":"a"}'))
TAUGHT = Say(WRITTEN)

Script = Callable[[Asked], Answer]


class Barrier:
    """A server that answers none of its first `TOGETHER` clients before all have asked."""

    def __init__(self, script: Script) -> None:
        self.gate = asyncio.Event()
        self._script = script
        self._arrived = 0

    def __call__(self, asked: Asked) -> Answer:
        answer = self._script(asked)
        if self.gate.is_set() or b"report_ready" in asked.body:
            return answer
        self._arrived += 1
        if self._arrived == TOGETHER:
            self.gate.set()
        return replace(answer, wait=self.gate)


def in_band(message: str) -> Answer:
    frame = b'data: {"error":{"code":400,"message":"%s","type":"invalid_request_error"}}\n\n' % message.encode()
    return Answer([frame], headers=SSE)


def no_objects(asked: Asked) -> Answer:
    return refusing(body=NO_OBJECT) if isinstance(asked.json.get("tool_choice"), dict) else CALLS(asked)


def no_tools(asked: Asked) -> Answer:
    return refusing() if "tools" in asked.json else TAUGHT(asked)


def no_tools_in_band(asked: Asked) -> Answer:
    if "tools" not in asked.json:
        return TAUGHT(asked)
    return in_band("m does not support tools") if asked.json.get("stream") else refusing()


def no_grammars(asked: Asked) -> Answer:
    return Refuse(400, PARSE) if "grammar" in asked.json else TAUGHT(asked)


def no_grammars_in_band(asked: Asked) -> Answer:
    if "grammar" not in asked.json:
        return TAUGHT(asked)
    return in_band(PARSE) if asked.json.get("stream") else Refuse(400, PARSE)


def none_at_all(asked: Asked) -> Answer:
    """Refuses `tools`, and grammars as well."""
    if "tools" in asked.json:
        return refusing(*REFUSALS["vllm auto"])
    return no_grammars(asked)


FACTS: dict[str, tuple[Script, dict[str, Any], str, Any]] = {
    # what the server does, its configuration, the route's mode, `tool_choice`
    "choice in words": (no_objects, {"preset": "generic"}, "native", NAMED),
    "choice in words, allowed tools": (
        no_objects,
        {"preset": "generic"},
        "native",
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
    ),
    "tools": (no_tools, {"preset": "generic"}, "hybrid", "auto"),
    "tools, in band": (no_tools_in_band, {"preset": "generic"}, "hybrid", "auto"),
    "constraint": (no_grammars, {"preset": "llamacpp"}, "prompt", "required"),
    "constraint, in band": (no_grammars_in_band, {"preset": "llamacpp"}, "prompt", "required"),
    "tools and constraint": (none_at_all, {"preset": "llamacpp"}, "hybrid", "required"),
}


def behind(up: Upstream, backend: dict[str, Any], mode: str, *keys: str) -> GatewayConfig:
    config: dict[str, Any] = {
        "backends": {"up": {"url": up.url, **backend}},
        "defaults": {"mode": mode, "bad_answers": {"choice_miss": "pass"}},
    }
    return read_config(config | ({"auth": {"keys": list(keys)}} if keys else {}))


def asks(choice: Any, *tools: Any, stream: bool = False, text: str = "hi") -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "tools": [*(tools or (READ,))], "tool_choice": choice, "stream": stream}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def called(answer: WireAnswer) -> bool:
    return answer.status == 200 and b'"name":"read"' in answer.body.replace(b" ", b"") and b"error" not in answer.body


@every(
    ("fact", "keyed", "stream"),
    [(fact, number % 2 > 0, number % 4 > 1 or "in band" in fact) for number, fact in enumerate(FACTS)],
)
async def test_each_of_several_first_requests_is_sent_in_the_new_form(fact: str, keyed: bool, stream: bool) -> None:
    script, backend, mode, choice = FACTS[fact]
    keys = KEYS if keyed else []
    async with Upstream([Barrier(script)]) as up, serving(behind(up, backend, mode, *keys)) as server:
        headers = [bearer(key) for key in keys] or [{}] * TOGETHER
        body = asks(choice, stream=stream)
        answers = await asyncio.gather(*(post(server, body, headers=one) for one in headers))
        assert [called(answer) for answer in answers] == [True] * TOGETHER, [answer.body for answer in answers]
        for one in headers:
            assert called(await post(server, body, headers=one))


async def test_a_refusal_in_a_stream_is_seen_although_another_request_was_taken_meanwhile() -> None:
    """That the server takes one constraint was not known when this request was sent."""
    taken = asyncio.Event()

    def script(asked: Asked) -> Answer:
        if "write" in asked.json.get("grammar", ""):
            return replace(in_band(PARSE), wait=taken)
        return TAUGHT(asked)

    async with Upstream([script]) as up, serving(behind(up, {"preset": "llamacpp"}, "prompt")) as server:
        other = asyncio.create_task(post(server, asks("required", WRITE, stream=True)))
        await up.next_request()
        assert called(await post(server, asks("required", READ, stream=True)))
        taken.set()
        answer = await other
    assert answer.status == 200
    assert b"error" not in answer.body
    assert len(up.posts) == 3


# --- one client's refusal -------------------------------------------------------------------------------------------


def repeats(asked: Asked) -> Answer | None:
    """A server that takes tools, and repeats what it refuses."""
    if b"poison" in asked.body and "tools" in asked.json:
        return refusing(body={"error": {"message": "this model does not support tools, says the client"}})
    return None


def takes_tools(asked: Asked) -> Answer:
    if (refusal := repeats(asked)) is not None:
        return refusal
    name = asked.json["tools"][0]["function"]["name"] if "tools" in asked.json else None
    if name == "report_ready":
        return says("openai_chat", ToolUse("call_1", name, '{"ready":true}'))(asked)
    return CALLS(asked) if name else TAUGHT(asked)


async def probed(up: Upstream, times: int) -> None:
    """Wait until the gateway's own probe was answered."""
    await until(lambda: sum(b"report_ready" in asked.body for asked in up.posts) >= times, 0)


@every("mode, keys", [("hybrid", ["one", "two"]), ("auto", [])])
async def test_one_keys_refusal_does_not_change_the_mode_of_others(mode: str, keys: list[str]) -> None:
    mine, theirs = [bearer(key) for key in keys] or ({}, {})
    first = 1 if mode == "auto" else 0
    async with Upstream([takes_tools]) as up, serving(behind(up, {"preset": "generic"}, mode, *keys)) as server:
        assert called(await post(server, asks("auto"), headers=theirs))
        for _ in range(3):
            assert called(await post(server, asks("auto", text="poison"), headers=mine)), "it goes over by itself"
            await probed(up, first + 1)
            assert called(await post(server, asks("auto"), headers=theirs))
            assert (await tools_shown(server))["up"]["m"]["mode"] == "native"
    clients = [(b"poison" in one.body, "tools" in one.json) for one in up.posts if b"report_ready" not in one.body]
    assert clients == [(False, True), *[(True, True), (True, False), (False, True)] * 3]
    assert len(up.posts) - len(clients) == first + 1, "it is not probed for each"


async def test_one_keys_near_miss_does_not_change_the_mode_of_others() -> None:
    near = '<tool_call>{"name":"read","arguments":{"pth":"a"}}</tool_call>'

    def script(asked: Asked) -> Answer:
        return Say(near)(asked) if b"poison" in asked.body and "tools" in asked.json else takes_tools(asked)

    async with Upstream([script]) as up, serving(behind(up, {"preset": "generic"}, "hybrid", "one", "two")) as server:
        assert called(await post(server, asks("auto", text="poison"), headers=bearer("one")))
        await probed(up, 1)
        assert called(await post(server, asks("auto"), headers=bearer("two")))
        assert (await tools_shown(server))["up"]["m"]["mode"] == "native"
    assert "tools" in up.posts[-1].json
