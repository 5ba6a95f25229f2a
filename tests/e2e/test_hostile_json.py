"""JSON of model servers that would hold the event loop or fill memory, over real sockets: whole and streamed, for every
protocol, whether bytes pass or answers are written anew. Counted: what the parser gets at once, in which thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.cases import every, first_and_in_turn
from tests.e2e.conftest import CHAT, gateway_before, post, serving, upstream_config
from tests.e2e.meaning import BODIES, MESSAGES, RESPONSES, asking
from tests.e2e.speaking import JSON, SSE
from toolwire.errors import BackendFault
from toolwire.protocols.shared.wire import MAX_ANSWER_CONTAINERS, MAX_ANSWER_VALUES
from toolwire.support.bounded_json import PIECE_BYTES
from toolwire.support.offload import OFFLOAD_BYTES
from toolwire.testing import Answer, Upstream, WireAnswer, frame
from toolwire.upstream.servers.server_queries import MOST_MODELS, read_model_list

BOMBS = {
    "arrays": b"[" + b"[]," * 250_000 + b"0]",
    "objects": b"[" + b'{"":0},' * 250_000 + b"0]",
    "numbers": b"[" + b"1," * 1_100_000 + b"0]",
    "nesting": b"[" * 100_000 + b"]" * 100_000,
}
BOUND = {
    "arrays": f"more than {MAX_ANSWER_CONTAINERS} JSON arrays and objects",
    "objects": f"more than {MAX_ANSWER_CONTAINERS} JSON arrays and objects",
    "numbers": f"more than {MAX_ANSWER_VALUES} JSON values",
    "nesting": "nested more than 200 levels",
}
FINE = orjson.dumps([{"token": "ab", "top": [{"token": "ab", "bytes": [97, 98]}] * 20} for _ in range(700)])
"""Many values, but not too many."""
WORDS = 60_000
"""A text of 300 kB: more than the loop may parse at once, and several pieces of what the parser gets elsewhere."""


class Parser:
    """The largest input of `orjson.loads`, in bytes: in the loop's thread, and in others."""

    def __init__(self) -> None:
        self.on_loop = self.elsewhere = 0
        self._loads = orjson.loads

    def loads(self, text: bytes | str) -> Any:
        if threading.current_thread() is threading.main_thread():
            self.on_loop = max(self.on_loop, len(text))
        else:
            self.elsewhere = max(self.elsewhere, len(text))
        return self._loads(text)


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parser]:
    watched = Parser()
    monkeypatch.setattr(orjson, "loads", watched.loads)
    yield watched
    assert watched.on_loop <= 3 * OFFLOAD_BYTES
    assert watched.elsewhere <= 2 * PIECE_BYTES


def pieces(body: bytes) -> list[bytes]:
    return [body[at : at + 60_000] for at in range(0, len(body), 60_000)]


def whole_of(path: str, value: bytes, text: bytes = b'"hi"') -> bytes:
    """A whole answer of a server that speaks the protocol of `path`, with `value` beside."""
    if path == MESSAGES:
        return b'{"id":"x","type":"message","role":"assistant","content":[{"type":"text","text":%b}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1},"x":%b}' % (text, value)  # fmt: skip
    if path == RESPONSES:
        return b'{"id":"x","object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%b}]}],"x":%b}' % (text, value)  # fmt: skip
    return b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":%b},"finish_reason":"stop"}],"x":%b}' % (text, value)  # fmt: skip


async def ask(
    path: str, said: list[bytes], *, stream: bool = False, tools: bool = False, protocol: str = "openai_chat"
) -> WireAnswer:
    body = {**asking(path, stream), **({} if tools else {"tools": []})}
    answer = Answer(said, headers=SSE if stream else JSON)
    async with gateway_before([answer], backend={"kind": protocol}) as (server, _):
        return await post(server, body, path=path)


PROTOCOLS = {"openai_chat": CHAT, "anthropic_messages": MESSAGES, "openai_responses": RESPONSES}


WAYS = [(CHAT, True), (MESSAGES, False), (RESPONSES, False), (CHAT, False)]


@every(
    "protocol, path, tools, bomb",
    [
        (protocol, *way, list(BOMBS)[(n + m) % len(BOMBS)])
        for n, protocol in enumerate(PROTOCOLS)
        for m, way in enumerate(WAYS)
    ],
)
async def test_whole_answers_beyond_the_bounds_are_the_servers_fault(
    path: str, tools: bool, protocol: str, bomb: str, parser: Parser
) -> None:
    answer = await ask(path, pieces(whole_of(PROTOCOLS[protocol], BOMBS[bomb])), tools=tools, protocol=protocol)
    assert answer.status == 502
    assert BOUND[bomb].encode() in answer.body
    assert b"The model server's answer" in answer.body


@every("way, protocol", first_and_in_turn(WAYS, PROTOCOLS))
async def test_large_whole_answers_within_the_bounds_come(way: tuple[str, bool], protocol: str, parser: Parser) -> None:
    path, tools = way
    text = orjson.dumps("word " * WORDS)
    said = whole_of(PROTOCOLS[protocol], FINE, text)
    answer = await ask(path, pieces(said), tools=tools, protocol=protocol)
    assert answer.status == 200
    assert answer.body.count(b"word ") == WORDS
    if PROTOCOLS[protocol] == path != RESPONSES and not tools:  # a response is kept, so it is written anew
        assert answer.body == said


def chat_stream(value: bytes) -> list[bytes]:
    first = frame({"id": "x", "choices": [{"index": 0, "delta": {"content": "hi"}}]})
    large = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"ho"}}],"x":%b}\n\n' % value
    last = frame({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [first, *pieces(large), last, frame("[DONE]")]


@every("way, bomb", first_and_in_turn(WAYS[:3], BOMBS))
async def test_a_frame_beyond_the_bounds_ends_the_stream(way: tuple[str, bool], bomb: str, parser: Parser) -> None:
    path, tools = way
    answer = await ask(path, chat_stream(BOMBS[bomb]), stream=True, tools=tools)
    assert answer.status == 200
    assert b"hi" in answer.body
    assert BOUND[bomb].encode() in answer.body
    assert b"The model server sent a frame that" in answer.body


@every("path, tools", WAYS)
async def test_a_large_frame_within_the_bounds_comes_in_its_place(path: str, tools: bool, parser: Parser) -> None:
    answer = await ask(path, chat_stream(FINE), stream=True, tools=tools)
    assert answer.status == 200
    assert b"upstream_" not in answer.body
    assert 0 < answer.body.index(b'"hi"') < answer.body.index(b'"ho"')


async def test_a_large_frame_passes_if_nobody_looks_at_it(parser: Parser) -> None:
    said = chat_stream(BOMBS["arrays"])
    answer = await ask(CHAT, said, stream=True)
    assert answer.body == b"".join(said)


@every("bomb", BOMBS)
async def test_a_list_of_models_beyond_the_bounds_is_none(bomb: str, parser: Parser) -> None:
    async with Upstream([Answer([whole_of(CHAT, b"0")], headers=JSON)]) as up:
        up.listing = Answer(pieces(b'{"data":' + BOMBS[bomb] + b"}"), headers=JSON)
        async with serving(upstream_config(up.url)) as server:
            assert (await post(server, BODIES[CHAT])).status == 200
    with pytest.raises(BackendFault, match="no list of models"):
        read_model_list(200, b'{"data":' + BOMBS[bomb] + b"}")


def test_a_list_of_too_many_models() -> None:
    listed = [{"id": f"m{number}"} for number in range(MOST_MODELS + 1)]
    assert len(read_model_list(200, orjson.dumps(listed[1:]))) == MOST_MODELS
    with pytest.raises(BackendFault, match=f"more than {MOST_MODELS} models"):
        read_model_list(200, orjson.dumps(listed))


async def test_a_key_that_a_judged_answer_has_twice_reaches_the_client_once() -> None:
    said = whole_of(CHAT, b"0").replace(b'"content":"hi"', b'"content":"wrong","con\\u0074ent":"hi"')
    answer = await ask(CHAT, [said], tools=True)
    assert answer.json()["choices"][0]["message"]["content"] == "hi"
    assert b"wrong" not in answer.body
    assert (await ask(CHAT, [said])).body == said  # judged by nobody: nothing of it is touched
