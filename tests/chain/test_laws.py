"""Laws of the whole chain, in-process: streamed or not is the same answer (R1.3), and what is not a call is text
(R1.7)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import event, given
from hypothesis import strategies as st

from tests.cases import examples
from tests.e2e.conftest import CHAT, USER, function
from tests.strategies import cuts
from toolwire.app import create_app
from toolwire.configuration.settings import load
from toolwire.model import ModelRequest
from toolwire.registry import registries
from toolwire.testing import ScriptedBackend, WireAnswer
from toolwire.upstream.servers.mock import ScriptedTurn

TOOLS = [function("read_file", path="string"), function("list_files"), function("odd-Name_1", a="integer")]
STRICT = [function("read_file", strict=True, path="string"), *TOOLS[1:]]

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "hermes": {"format": "hermes"},
    "fenced_json": {"format": "fenced_json"},
    "bare_json": {"format": "bare_json"},
    "no trim": {"calls": {"trim": "none"}},
    "no repair": {"calls": {"repair": "off", "unclosed": "text"}},
    "unclosed is an error": {"calls": {"unclosed": "error"}},
    "thinking first": {"reasoning": {"preopened": True}},
    "calls in thinking": {"reasoning": {"scan_calls": True}},
    "thinking is text": {"reasoning": {"field": "inline"}},
    "no thinking": {"reasoning": {"tags": None}},
    "rejected as text": {"bad_answers": {"strict_failure": "assistant_message"}},
    "no repeats": {"calls": {"dedupe_calls": True}},
    "strings only": {"calls": {"sentinel_arguments": "string"}},
    "a miss is an error": {"bad_answers": {"choice_miss": "error"}},
}
"""Route options under which the laws hold; each is a route whose model has this name."""


class OneTurn(ScriptedBackend):
    """Says `turn`, whatever it is asked."""

    turn = ScriptedTurn()

    def choose(self, request: ModelRequest, number: int) -> ScriptedTurn:
        return self.turn


class Ask:
    """One gateway for a whole module: sends a request, to which the model answers with a turn."""

    def __init__(self, path: str, routes: Sequence[Mapping[str, Any]], **sections: Any) -> None:
        self._path = path
        self._backend = OneTurn()
        self._runner = asyncio.Runner()
        plugins = registries()
        plugins.backends.register("one-turn", lambda name, config, limits: self._backend)
        named = [{"backend": "one", **route} for route in routes]
        config = load(None, env={}, overrides={"backends": {"one": {"kind": "one-turn"}}, "routes": named, **sections})

        async def start() -> TestClient[Any, Any]:
            client: TestClient[Any, Any] = TestClient(TestServer(create_app(config, plugins=plugins)))
            await client.start_server()
            return client

        self._client = self._runner.run(start())

    def __call__(self, turn: ScriptedTurn, body: dict[str, Any]) -> WireAnswer:
        self._backend.turn = turn
        asked = {"model": "default", **({"messages": USER} if self._path == CHAT else {"input": "hi"}), **body}

        async def send() -> WireAnswer:
            async with self._client.post(self._path, json=asked) as response:
                return WireAnswer(status=response.status, headers=response.headers.copy(), body=await response.read())

        return self._runner.run(send())

    def get(self, ident: str) -> Any:
        """A stored response."""

        async def send() -> Any:
            async with self._client.get(f"{self._path}/{ident}") as response:
                assert response.status == 200
                return await response.json()

        return self._runner.run(send())

    def close(self) -> None:
        """Stop it."""
        self._runner.run(self._client.close())
        self._runner.close()


@contextmanager
def asking(path: str, routes: Sequence[Mapping[str, Any]], **sections: Any) -> Iterator[Ask]:
    """A gateway without its log: thousands of warnings would hide what failed."""
    logger = logging.getLogger("toolwire")
    logger.setLevel(logging.CRITICAL)
    ask = Ask(path, routes, **sections)
    yield ask
    ask.close()
    logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    routes = [{"model": name, "options": options} for name, options in OPTIONS.items()]
    # these routes learn nothing from one example for the next
    with asking(CHAT, routes, defaults={"reasoning": {"preopened": False}}) as asked:
        yield asked


@dataclass(frozen=True)
class Outcome:
    """What a client has at the end, ids excepted. Of an error only its code: what came before it stays where it is."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    reason: str | None = None
    error: str | None = None


def of_whole(answer: WireAnswer) -> Outcome:
    body = answer.json()
    if "error" in body:
        assert answer.status == 500
        return Outcome(error=body["error"]["code"])
    (choice,) = body["choices"]
    message = choice["message"]
    calls = message.get("tool_calls", [])
    assert calls or "tool_calls" not in message
    assert (message["content"] is None) == (bool(calls) and not message["content"])
    for call in calls:
        json.loads(call["function"]["arguments"])
    return Outcome(
        message["content"] or "",
        message.get("reasoning_content", ""),
        tuple((call["function"]["name"], call["function"]["arguments"]) for call in calls),
        choice["finish_reason"],
    )


def of_stream(answer: WireAnswer) -> Outcome:
    if answer.status != 200:
        return Outcome(error=answer.json()["error"]["code"])
    *chunks, done = answer.frames()
    assert done == "[DONE]"
    if "error" in chunks[-1]:
        assert all(choice["finish_reason"] is None for chunk in chunks[:-1] for choice in chunk["choices"])
        return Outcome(error=chunks[-1]["error"]["code"])
    choices = [chunk["choices"][0] for chunk in chunks]
    deltas = [choice["delta"] for choice in choices]
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append((call["function"]["name"], ""))
            name, arguments = calls[call["index"]]
            calls[call["index"]] = (name, arguments + call["function"]["arguments"])
    assert deltas[0]["role"] == "assistant"
    assert [choice["finish_reason"] is None for choice in choices] == [True] * (len(choices) - 1) + [False]
    return Outcome(
        "".join(delta.get("content") or "" for delta in deltas),
        "".join(delta.get("reasoning_content") or "" for delta in deltas),
        tuple(calls),
        choices[-1]["finish_reason"],
    )


# --- texts that a model might write ---------------------------------------------------------------------------------

NAMES = st.sampled_from(["read_file"] * 4 + ["list_files", "odd-Name_1", "unknown", ""])
ARGUMENTS = st.sampled_from(
    [
        *("{}", '{"path": "a"}', '{"path": "b"}', '{"path":"</tool_call>"}', '{"path":"<tool_call>","n":1e-07}'),
        *('{"path": "\\u00fc 日本 🚀 \\"q\\" \\\\"}', '{"a":1,"a":2}', '{"path": "a",}', "{'path': 'a'}"),
        *('{"path": ', "[1]", "", "no json"),
    ]
)
SPACE = st.sampled_from(["", " ", "\n", "\n\n  ", "\t"])


@st.composite
def blocks(draw: st.DrawFn) -> str:
    """A call as some format teaches it, or nearly."""
    name, arguments, pad = draw(NAMES), draw(ARGUMENTS), draw(SPACE)
    value = json.dumps(arguments) if draw(st.booleans()) else arguments or "null"
    inner = draw(
        st.sampled_from(
            [
                f'{{"name": {json.dumps(name)}, "arguments": {value}}}',
                f'{{"arguments":{value},"name":{json.dumps(name)},"extra":[1,{{}}]}}',
                f'{{"tool_calls":[{{"name":{json.dumps(name)},"arguments":{value}}}]}}',
                f'{{"name":{json.dumps(name)}}}',
                f'```json\n{{"name":{json.dumps(name)},"arguments":{value}}}\n```',
            ]
        )
    )
    before, after = draw(
        st.sampled_from(
            [("<tool_call>", "</tool_call>")] * 3
            + [("```json\n", "\n```"), ("", ""), ("<tool_call>", ""), ("", "</tool_call>")]
        )
    )
    return before + pad + inner + pad + after


FRAGMENTS = st.one_of(
    blocks(),
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", "<think>", "</think>", "<", "<tool_", "</", "{", "}", '"', "\\"),
            *("```", "```json\n"),
        ]
    ),
    SPACE,
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["Hello, ", "world", "ü", "🚀", "\r\n", "\x00", "\u2028"]),
)
TEXTS = st.lists(FRAGMENTS, max_size=7).map("".join)


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, list[str], list[str]]:
    """A text and two ways of cutting it: anywhere, and into small pieces of one size."""
    text = draw(TEXTS)
    size = draw(st.integers(1, 9))
    return text, draw(cuts(text)), [text[i : i + size] for i in range(0, len(text), size)]


@examples(0.3)
@given(
    answer=answers(),
    options=st.sampled_from(list(OPTIONS)),
    tools=st.sampled_from([TOOLS, TOOLS, STRICT]),
    choice=st.sampled_from([None, "auto", "required", {"type": "function", "function": {"name": "read_file"}}]),
    parallel=st.booleans(),
    reason=st.sampled_from(["stop", "length", "content_filter"]),
)
def test_streamed_or_not_is_the_same_answer(
    ask: Ask,
    answer: tuple[str, list[str], list[str]],
    options: str,
    tools: list[Any],
    choice: Any,
    parallel: bool,
    reason: str,
) -> None:
    """R1.3: same visible text, calls, order, argument bytes and finish reason, for any split."""
    text, somewhere, small = answer
    body = {"model": options, "tools": tools, "tool_choice": choice, "parallel_tool_calls": parallel}
    whole = of_whole(ask(ScriptedTurn(text=text, finish=reason), body))
    event(f"{options}: {whole.error or (whole.reason, len(whole.calls) > 0)}")
    for pieces in (somewhere, small):
        streamed = of_stream(ask(ScriptedTurn(text=text, chunk=tuple(pieces), finish=reason), {**body, "stream": True}))
        assert streamed == whole
    if not parallel:
        assert len(whole.calls) <= 1


@examples(0.3)
@given(
    answer=answers(),
    without=st.sampled_from([{}, {"tools": []}, {"tools": None}, {"tools": TOOLS, "tool_choice": "none"}]),
    stream=st.booleans(),
)
def test_without_a_tool_to_call_everything_is_text(
    ask: Ask, answer: tuple[str, list[str], list[str]], without: dict[str, Any], stream: bool
) -> None:
    """R1.7, whatever it looks like, thinking included: no scanner runs."""
    text, pieces, _ = answer
    got = ask(ScriptedTurn(text=text, chunk=tuple(pieces)), {**without, "stream": stream})
    assert (of_stream(got) if stream else of_whole(got)) == Outcome(text=text, reason="stop")


def test_the_wire_bytes_of_a_whole_answer_are_json(ask: Ask) -> None:
    got = ask(ScriptedTurn(text="\x00\u2028\ud800"), {"tools": TOOLS})
    assert orjson.loads(got.body)["choices"][0]["message"]["content"] == "\x00\u2028\ufffd"
