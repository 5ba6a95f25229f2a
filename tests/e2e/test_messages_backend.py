"""Servers that speak Messages, behind clients of each protocol: native, taught, and with bytes that pass; and what
clients have recorded. Ids: `tests/protocols/test_messages_ids.py`; images and files: `tests/backends/test_adapt.py`;
thoughts: `test_reasoning_returns.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

from tests.cases import every
from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, gateway_before, post, serving, upstream_config
from tests.e2e.meaning import BODIES, asking, meant
from tests.e2e.meaning import MESSAGES as PATH
from tests.e2e.speaking import JSON, SSE
from tests.e2e.speaking import speaking as speaking_of
from tests.protocols.messages_wires import MESSAGES, accumulate, captured_requests
from toolwire.config import GatewayConfig
from toolwire.model import EMPTY, ModelReply, ModelRequest, Reasoning, ReplyChoice, Text, ToolUse, Usage, scoped
from toolwire.protocols.streams import WriteOptions
from toolwire.testing import Answer, Asked, Say, Upstream

__all__ = ["BODIES", "JSON", "SSE"]

OPTIONS = WriteOptions(request=ModelRequest("claude", ()), created=1)
THOUGHT = Reasoning("hm", scoped("messages", {"signature": "c2ln"}))
CALL = ToolUse("toolu_01D7", "read", '{"path":"a"}')
CALLING = ModelReply(
    "msg_1", "claude", 1, (ReplyChoice((THOUGHT, Text("Reading."), CALL), "tool_calls"),), Usage(9, 4, 2)
)
TEXT = ModelReply("msg_1", "claude", 1, (ReplyChoice((Text("Hello."),), "stop", EMPTY),), Usage(9, 4))

both = every("stream", [False, True])


def speaking(reply: ModelReply, *, contrary: bool = False) -> Callable[[Asked], Answer]:
    """A Messages server."""
    return speaking_of(MESSAGES, reply, options=OPTIONS, contrary=contrary)


def behind(up: Upstream, mode: str = "native", facts: dict[str, Any] | None = None, **defaults: Any) -> GatewayConfig:
    """A gateway before such a server, of which `facts` are known."""
    backend = {"kind": "anthropic_messages", "api_key": "k1", **(facts or {})}
    return upstream_config(up.url, backend=backend, defaults={"mode": mode, **defaults})


@both
@every("contrary", [False, True])
@every("path", BODIES)
async def test_a_native_server_means_the_same_to_each_client(path: str, contrary: bool, stream: bool) -> None:
    body = asking(path, stream)
    async with Upstream([speaking(CALLING, contrary=contrary)]) as up, serving(behind(up)) as server:
        answer = await post(server, body, path=path)
    (asked,) = up.requests
    assert (asked.path, asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (PATH, "k1", "2023-06-01")
    assert "authorization" not in asked.headers
    sent = asked.json
    assert (sent["messages"], sent["tools"][0]["name"]) == ([{"role": "user", "content": "hi"}], "read")
    assert sent["max_tokens"] == body.get("max_tokens", 4096)
    if path == CHAT:
        assert (sent["temperature"], sent["stop_sequences"]) == (1, ["###"])
    if path == PATH:
        assert (sent["odd"], sent["thinking"]) == (1, {"type": "adaptive"})
    assert meant(path, answer, stream) == ("Reading.", [("read", {"path": "a"})], "hm", 9)


async def test_betas_reach_a_server_that_knows_them() -> None:
    """They switch on what the body asks for: without its header a field of a beta is refused."""
    own = {"Anthropic-Beta": "own-1"}
    async with Upstream([speaking(TEXT)]) as up, serving(behind(up, facts={"headers": own})) as server:
        for tools, stream in product((True, False), (False, True)):  # without tools bytes pass
            body = {key: value for key, value in asking(PATH, stream).items() if tools or key != "tools"}
            for given, sent in (
                (
                    {"anthropic-beta": "context-management-2025-06-27,some-2"},
                    "own-1,context-management-2025-06-27,some-2",
                ),
                ({}, "own-1"),
            ):
                await post(server, body, path=PATH, headers=given)
                assert up.requests[-1].headers["anthropic-beta"] == sent, (tools, stream)
                assert "anthropic-beta" not in up.requests[-1].json
    async with gateway_before([Say("Hello.")]) as (server, up):  # of another protocol
        await post(server, BODIES[PATH], path=PATH, headers={"anthropic-beta": "some-2"})
    assert "anthropic-beta" not in up.requests[0].headers


@every("asked", [json.loads(path.read_bytes()) for path in captured_requests()])
async def test_recorded_requests_are_served(asked: dict[str, Any]) -> None:
    """In front of a text model, streamed and not, as their clients do when a stream fails (SC-004)."""
    counting = "max_tokens" not in asked
    async with gateway_before([Say("Hello.")]) as (server, up):
        for stream in (False, True):
            target = f"{PATH}/count_tokens" if counting else f"{PATH}?beta=true"
            answer = await post(server, asked if counting else {**asked, "stream": stream}, path=target)
            if (asked.get("thread") or {}).get("type") == "continue":  # its client sends it again with all before
                assert answer.status == 404
                assert answer.json()["error"]["details"] == {"error_code": "thread_not_found"}
                continue
            assert answer.status == 200, answer.body
            if not counting:
                message = accumulate(answer.body) if stream else answer.json()
                assert message["content"] == [{"type": "text", "text": "Hello."}]
                texts = json.dumps(up.requests[-1].json["messages"])
                for result in results_of(asked):
                    assert json.dumps(result)[1:-1] in texts
    assert not (counting and up.requests)


def results_of(asked: dict[str, Any]) -> list[str]:
    """The first line of each text that a tool gave back."""
    found = []
    for message in asked["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "tool_result":
                content = part.get("content") or ""
                blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
                found += [one["text"].split("\n")[0] for one in blocks if one["type"] == "text"]
    return found


TEXTS = {
    "prose": "Hello.\n\n- a\n- b",
    "thoughts": "<think>hm</think>\n\nHello.",
    "a call": block("read", {"path": "ü"}),
    "text around calls": f"One. {block('read', {'path': 'a'})} Two.\n{block('read', {'path': 'b'})}\n",
    "thoughts and calls": f"<think>{block('read', {'path': 'no'})}</think>{block('read', {'path': 'a'})}",
    "a call in a form that nobody taught": '```json\n{"name": "read", "arguments": {"path": "a"}}\n```',
    "no call": '<tool_call>{"name":"other","arguments":"{}"}</tool_call>',
    "half a call": '<tool_call>{"name":"read","arguments":"{\\"pa',
    "nothing but white space": " \n",
}


@every("name", TEXTS)
async def test_one_text_means_the_same_to_each_client(name: str) -> None:
    """Streamed and whole (R1.2, R1.3)."""
    got = []
    async with gateway_before([Say(*TEXTS[name], usage=(9, 4))]) as (server, _):
        for path, stream in product(BODIES, (False, True)):
            answer = await post(server, asking(path, stream), path=path)
            assert answer.status == 200, answer.body
            text, *rest = meant(path, answer, stream)
            got.append(["".join(text.split()), *rest])
    assert got == [got[0]] * len(got)
    assert got[0][3] in (9, 18)  # one that nearly called is asked again
