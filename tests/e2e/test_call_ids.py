"""Models and servers whose ids begin anew in every turn: no id is given out twice in a conversation (C1, R2.7), and the
model sees ids of its own form.

The clients here do what every client does: they send back what they got, ids included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

from aiohttp.test_utils import TestServer

from tests.cases import every, first_and_in_turn
from tests.e2e.conftest import USER, Gateway, function, gateway_before, post, upstream_config
from tests.e2e.meaning import CLIENTS, asking, history, says
from toolwire.model import ToolUse
from toolwire.testing import Asked, Say, Upstream

TURNS = 4
READ = function("read_file", path="string")
FLAT = {"type": "function", "strict": False, **READ["function"]}

WAYS = [(False, "buffered"), (True, "buffered"), (True, 0)]


def kimi(*numbers: int) -> str:
    calls = "".join(
        f'<|tool_call_begin|>functions.read_file:{n}<|tool_call_argument_begin|>{{"path":"{n}.txt"}}<|tool_call_end|>'
        for n in numbers
    )
    return f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"


def mistral(*ids: str) -> str:
    return "".join(f'[TOOL_CALLS]read_file[CALL_ID]{id}[ARGS]{{"path":"a"}}' for id in ids)


MODELS = {
    "kimi_k2": (kimi(0), ["functions.read_file:0"]),
    "kimi_k2 twice": (kimi(0, 1), ["functions.read_file:0", "functions.read_file:1"]),
    "kimi_k2 the same": (kimi(0, 0), ["functions.read_file:0"]),
    "mistral": (mistral("abc123def"), ["abc123def"]),
    "mistral twice": (mistral("abc123def", "xyz"), ["abc123def", "xyz"]),
}
"""What the model says in every turn, and which of its ids a client gets, in the first one."""


async def chat(server: TestServer, messages: list[Any], stream: bool) -> list[str]:
    """One turn of a Chat client, which runs what was called. Gives the ids."""
    answer = await post(server, {"messages": messages, "tools": [READ], "stream": stream})
    assert answer.status == 200, answer.body
    if stream:
        deltas = [frame["choices"][0]["delta"] for frame in answer.frames()[:-1]]
        calls: list[Any] = []
        for call in (call for delta in deltas for call in delta.get("tool_calls", ())):
            if call["index"] == len(calls):
                calls.append({**call, "function": dict(call["function"])})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    else:
        calls = answer.json()["choices"][0]["message"]["tool_calls"]
    messages.append({"role": "assistant", "content": None, "tool_calls": calls})
    ids = [call["id"] for call in calls]
    messages += [{"role": "tool", "tool_call_id": id, "content": f"result {len(messages)}"} for id in ids]
    return ids


class Items:
    """A Responses client. `stored`: the gateway remembers what was said."""

    def __init__(self, server: TestServer, stored: bool, stream: bool) -> None:
        self.server = server
        self.stored = stored
        self.stream = stream
        self.items: list[Any] = [{"role": "user", "content": "hi"}]
        self.previous: str | None = None

    async def turn(self) -> list[str]:
        body = {"input": self.items, "tools": [FLAT], "previous_response_id": self.previous, "stream": self.stream}
        answer = await post(self.server, body, path="/v1/responses")
        assert answer.status == 200, answer.body
        resource = answer.frames()[-1]["response"] if self.stream else answer.json()
        assert resource["status"] == "completed"
        calls = [item for item in resource["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in calls]
        if self.stored:
            self.previous, self.items = resource["id"], results
        else:
            self.items = [*self.items, *resource["output"], *results]
        return [call["call_id"] for call in calls]


def check(turns: Sequence[Sequence[str]], first: Sequence[str]) -> None:
    """The first answer has the model's own ids where they differ, no other one has an id that was there before."""
    assert [id for id in turns[0] if not id.startswith("call_")] == list(first)
    every = [id for ids in turns for id in ids]
    assert len(set(every)) == len(every)
    assert all(re.fullmatch(r"call_[0-9a-f]{32}", id) for ids in turns[1:] for id in ids)


@every("model, way", first_and_in_turn(MODELS, WAYS))
async def test_no_id_is_given_out_twice(gateway: Gateway, model: str, way: tuple[bool, Any]) -> None:
    """To clients of Chat and of Responses, which echo the conversation or name the turn before."""
    said, first = MODELS[model]
    stream, streaming = way
    server = await gateway(script=[said], format=model.split()[0], argument_streaming=streaming)
    messages = list(USER)
    check([await chat(server, messages, stream) for _ in range(TURNS)], first)
    for stored in (False, True):
        client = Items(server, stored, stream)
        check([await client.turn() for _ in range(TURNS)], first)


# --- what the model sees --------------------------------------------------------------------------------------------


CALLED = r"<\|tool_call_begin\|>functions\.read_file:(\d+)<"
RETURNED = r"## Return of (\S+)\n"


def text_of(asked: Asked) -> str:
    return "\n".join(message["content"] for message in asked.json["messages"] if message["role"] != "system")


@every("stream", [False, True])
async def test_the_history_counts_on(stream: bool) -> None:
    """Kimi's numbers count the calls of a conversation, whatever the clients call them; results have the number of
    their call."""
    async with gateway_before([Say(kimi(0))], defaults={"format": "kimi_k2"}) as (server, upstream):
        messages = list(USER)
        for _ in range(TURNS):
            await chat(server, messages, stream)
    shown = text_of(upstream.requests[-1])
    assert re.findall(CALLED, shown) == [str(n) for n in range(TURNS - 1)]
    assert re.findall(RETURNED, shown) == [f"functions.read_file:{n}" for n in range(TURNS - 1)]
    results = [message["content"] for message in messages if message["role"] == "tool"][:-1]
    assert re.findall(r"result \d+", shown) == results


# --- ids that the gateway counts ------------------------------------------------------------------------------------


@every("stored", [True, False])
async def test_sequential_ids_never_repeat_in_a_conversation(gateway: Gateway, stored: bool) -> None:
    """Calls side by side, answers without a call between them, streams and whole answers in turn."""
    texts = [kimi(0, 1), kimi(0), "No call.", kimi(0, 1), kimi(0)]
    async with Upstream([Say(text) for text in texts]) as upstream:
        defaults = {"format": "kimi_k2", "responses": {"ids": "sequential"}}
        client = Items(await gateway(upstream_config(upstream.url, defaults=defaults)), stored, False)
        given: list[str] = []
        for number in range(len(texts)):
            client.stream = number % 2 == 1
            ids = await client.turn()
            given += ids
            if not ids:
                client.items = [*client.items, {"role": "user", "content": "more"}]
    assert given == [f"fc_{number:03}" for number in range(1, 7)]


# --- a server that gives every call the same id (R28.6) -------------------------------------------------------------

IDS = ("call_0", "functions.read:0", "Ab1Cd2Ef3")


def ident_in(body: str) -> str:
    """The id of the call in an answer of any protocol, streamed or not."""
    lines = [body] if body.startswith("{") else [line[6:] for line in body.splitlines() if line.startswith("data: {")]

    def search(value: Any) -> str | None:
        if isinstance(value, dict):
            if value.get("type") in ("function", "tool_use") and isinstance(value.get("id"), str):
                return str(value["id"])
            if value.get("type") == "function_call":
                return str(value["call_id"])
            value = list(value.values())
        found = map(search, value) if isinstance(value, list) else ()
        return next(filter(None, found), None)

    found = search([json.loads(line) for line in lines])
    assert found is not None, body
    return found


async def test_each_call_has_an_id_of_its_own_and_the_server_gets_its_own_form(gateway: Gateway) -> None:
    now = IDS[0]
    async with Upstream([lambda asked: says("openai_chat", ToolUse(now, "read", '{"path":"a"}'))(asked)]) as up:
        server = await gateway(upstream_config(up.url, backend={"preset": "generic"}, defaults={"mode": "native"}))
        for now, path, stream in product(IDS, CLIENTS, (False, True)):
            turns: list[str] = []
            for _ in range(4):
                told = history(path, *([(ident, "read", {}, "x")] for ident in turns))
                answer = await post(server, {**asking(path, stream), **told}, path=path)
                assert answer.status == 200, answer.body
                turns.append(ident_in(answer.body.decode()))
            case = (now, path, stream)
            assert len(set(turns)) == 4, case
            last = up.posts[-1].json["messages"]
            assert [call["id"] for one in last for call in one.get("tool_calls") or ()] == [now] * 3, case
            assert [one["tool_call_id"] for one in last if one["role"] == "tool"] == [now] * 3, case
