"""Models and servers whose ids begin anew in every turn: no id is given out twice in a conversation (C1, R2.7), and the
model sees ids of its own form.

The clients here do what every client does: they send back what they got, ids included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, cycle, islice, product
from typing import Any

from aiohttp.test_utils import TestServer

from tests.cases import every, first_and_in_turn
from tests.e2e.conftest import CHAT, Gateway, function, post, upstream_config
from tests.e2e.meaning import CLIENTS, RESPONSES, asking, history, says
from toolwire.model import ToolUse
from toolwire.testing import Say, Upstream

READ = function("read_file", path="string")
TOOLS = {CHAT: [READ], RESPONSES: [{"type": "function", "strict": False, **READ["function"]}]}

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


def idents_in(body: str) -> list[str]:
    """The ids of the calls in an answer of any protocol, streamed or not."""
    lines = [body] if body.startswith("{") else [line[6:] for line in body.splitlines() if line.startswith("data: {")]

    def search(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if value.get("type") in ("function", "tool_use") and isinstance(value.get("id"), str):
                yield value["id"]
            if value.get("type") == "function_call":
                yield value["call_id"]
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            yield from search(item)

    return list(dict.fromkeys(ident for line in lines for ident in search(json.loads(line))))


def going_on(path: str, turns: Sequence[Sequence[str]], previous: str | None = None) -> dict[str, Any]:
    """Returns what a client sends after calls with these ids: all of it, or what is new since the answer `previous`."""
    made = [[(ident, "read_file", {}, "x") for ident in ids] for ids in turns]
    if previous is None:
        return {**history(path, *made), "tools": TOOLS[path]}
    results = history(path, made[-1])["input"][-len(made[-1]) :]
    return {"input": results, "previous_response_id": previous, "tools": TOOLS[path]}


async def talk(server: TestServer, path: str, number: int, streams: Sequence[bool], *, stored: bool) -> list[list[str]]:
    """The ids of the calls in so many answers, streamed or not in turn. `stored`: the gateway remembers the turns."""
    turns: list[list[str]] = []
    previous: str | None = None
    for stream in islice(cycle(streams), number):
        body = {**going_on(path, turns, previous if stored else None), "stream": stream}
        answer = await post(server, body, path=path)
        assert answer.status == 200, answer.body
        turns.append(idents_in(answer.body.decode()))
        previous = (answer.frames()[-1]["response"] if stream else answer.json())["id"] if path == RESPONSES else None
    return turns


@every("model, way", first_and_in_turn(MODELS, WAYS))
async def test_no_id_is_given_out_twice(gateway: Gateway, model: str, way: tuple[bool, Any]) -> None:
    """To clients of Chat and of Responses, which echo the conversation or name the turn before. The first answer has
    the model's own ids where they differ."""
    said, first = MODELS[model]
    stream, streaming = way
    server = await gateway(script=[said], format=model.split()[0], argument_streaming=streaming)
    for path, stored in ((CHAT, False), (RESPONSES, False), (RESPONSES, True)):
        turns = await talk(server, path, 4, [stream], stored=stored)
        assert [ident for ident in turns[0] if not ident.startswith("call_")] == first
        given = list(chain.from_iterable(turns))
        assert len(set(given)) == 4 * said.count("read_file")
        assert all(re.fullmatch(r"call_[0-9a-f]{32}", ident) for ident in given[len(turns[0]) :])


@every("stored", [True, False])
async def test_sequential_ids_never_repeat_in_a_conversation(gateway: Gateway, stored: bool) -> None:
    """Calls side by side, answers without a call between them, streams and whole answers in turn."""
    texts = [kimi(0, 1), kimi(0), "No call.", kimi(0, 1), kimi(0)]
    async with Upstream([Say(text) for text in texts]) as upstream:
        defaults = {"format": "kimi_k2", "responses": {"ids": "sequential"}}
        server = await gateway(upstream_config(upstream.url, defaults=defaults))
        turns = await talk(server, RESPONSES, len(texts), [False, True], stored=stored)
    assert list(chain.from_iterable(turns)) == [f"fc_{number:03}" for number in range(1, 7)]


# --- a server that gives every call the same id (R28.6) -------------------------------------------------------------

IDS = ("call_0", "functions.read:0", "Ab1Cd2Ef3")


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
                turns += idents_in(answer.body.decode())
            case = (now, path, stream)
            assert len(set(turns)) == 4, case
            last = up.posts[-1].json["messages"]
            assert [call["id"] for one in last for call in one.get("tool_calls") or ()] == [now] * 3, case
            assert [one["tool_call_id"] for one in last if one["role"] == "tool"] == [now] * 3, case
