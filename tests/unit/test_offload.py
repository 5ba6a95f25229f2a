"""Large requests: what grows with them happens in threads, and nothing there keeps the interpreter for long."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.e2e.conftest import CHAT, function, gateway_before, post
from toolwire.errors import ClientFault
from toolwire.events import BlockKind, Close, Delta, Event, Finish, Open, Start
from toolwire.model import Message, ModelRequest, Origin, Text
from toolwire.protocols.shared import wire
from toolwire.protocols.shared.request_schema import RequestSchema
from toolwire.protocols.shared.wire import PIECE_CHARS, dump, dump_in_pieces, dump_request
from toolwire.support.garbage_collection import HUGE_VALUES, RARELY, CollectorThresholds
from toolwire.support.offload import OFFLOAD_BYTES, OFFLOAD_MESSAGES, in_thread, is_large, is_long
from toolwire.testing import Say
from toolwire.upstream.servers.base import fold_batches
from toolwire.upstream.servers.usage import Estimator

# --- JSON in pieces -------------------------------------------------------------------------------------------------

LEAVES = [st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)]
VALUES = st.recursive(
    st.one_of(*LEAVES, st.text(max_size=30)),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5) | st.tuples(inner, inner)
    ),
    max_leaves=30,
)
FIELDS = st.dictionaries(st.text(max_size=6) | st.sampled_from(["messages", "tools"]), VALUES, max_size=6)


@examples(0.5)
@given(value=VALUES, body=FIELDS)
def test_law_the_pieces_are_what_would_be_written_at_once(value: Any, body: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for size in (1, 7, 30):
            patch.setattr(wire, "PIECE_CHARS", size)
            assert dump_in_pieces(value) == orjson.dumps(value)
            assert dump_request(body, "messages", None) == orjson.dumps(body)


@pytest.mark.parametrize("half", [0xD83D, 0xDE00, None])
def test_halves_of_characters(half: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a text is cut, the two halves of a character stay together, and single ones become what they always
    do."""
    text = "xxx" + (chr(0xD83D) + chr(0xDE00) if half is None else chr(half)) + "yyy"
    for size in range(1, 6):
        monkeypatch.setattr(wire, "PIECE_CHARS", size)
        assert orjson.loads(dump_in_pieces({"a": text})) == orjson.loads(dump({"a": text}))


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [{"role": "user", "content": "\\" * 3_000_000}]},
        {"messages": [{"role": "user", "content": "short"}] * 20_000},
        {str(number): "x" for number in range(50_000)},
        [[["<" * 200_000]] * 5, "a" * 200_000],
    ],
    ids=["one text", "messages", "keys", "nested"],
)
def test_no_call_writes_more_than_a_piece(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    real = orjson.dumps

    def watched(piece: Any) -> bytes:
        nonlocal longest
        written = real(piece)
        longest = max(longest, len(written))
        return written

    monkeypatch.setattr(wire.orjson, "dumps", watched)
    assert dump_in_pieces(value) == real(value)
    if isinstance(value, dict):
        assert dump_request(value, "messages", None) == real(value)
    assert longest <= 2 * PIECE_CHARS + 10_000


# --- what is large --------------------------------------------------------------------------------------------------


def request_of(messages: int, size: int) -> ModelRequest:
    said = tuple(Message("user", (Text("hello there"),)) for _ in range(messages))
    return ModelRequest("m", said, origin=Origin("chat", b" " * size))


@every(
    ("messages", "size", "large"),
    [
        *((1, OFFLOAD_BYTES, False), (1, OFFLOAD_BYTES + 1, True)),
        *((OFFLOAD_MESSAGES, 10, False), (OFFLOAD_MESSAGES + 1, 10, True)),
    ],
)
def test_large_are_long_bodies_and_long_conversations(messages: int, size: int, large: bool) -> None:
    assert is_large(request_of(messages, size)) is large


def test_long_values() -> None:
    assert not is_long({"a": ["b" * 1000] * 10, "c": None})
    assert is_long({"a": ["b" * 1000] * 100})
    assert is_long([{}] * 100_000)
    assert is_long([Text("a")] * 1_100)
    assert is_long({"a": {"b": ({"c": "d" * OFFLOAD_BYTES},)}, "e": "f" * 100})


# --- where it happens -----------------------------------------------------------------------------------------------


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Of every step that looks at all of a request: whether it happened in the thread of the event loop."""
    seen: dict[str, bool] = {}
    loop = threading.current_thread()

    def watch(place: str) -> None:
        name = place.rpartition(".")[2]
        real: Callable[..., Any] = resolve_name(place)

        def watched(*args: Any, **kwargs: Any) -> Any:
            seen[name] = seen.get(name, False) or threading.current_thread() is loop
            return real(*args, **kwargs)

        monkeypatch.setattr(place, watched)

    for place in (
        "toolwire.ingress.bodies.loads",
        "toolwire.protocols.chat.request._read_more",
        "toolwire.middlewares.validation._check_messages",
        "toolwire.middlewares.injection.inject",
        "toolwire.middlewares.forwarding.adapt",
        "toolwire.upstream.servers.http.dump_request",
        "toolwire.upstream.servers.usage._text_pieces",
        "toolwire.protocols.responses.turns.own_items",
        "toolwire.store.memory.encoded",
        "toolwire.store.encoding.dump_in_pieces",
    ):
        watch(place)
    return seen


MANY = [{"role": "user" if number % 2 == 0 else "assistant", "content": f"number {number}"} for number in range(3000)]


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
async def test_a_large_request_is_worked_on_in_threads(threads: dict[str, bool], path: str) -> None:
    tool = function("look", at="string")
    chat = {"messages": MANY, "tools": [tool]}
    responses = {"input": MANY, "tools": [{"type": "function", **tool["function"]}]}
    async with gateway_before([Say("Hello.")]) as (server, _):
        assert (await post(server, chat if path == CHAT else responses, path=path)).status == 200
    threads.pop("encoded", None)  # asks whether it is large
    wanted = {"loads", "_check_messages", "inject", "adapt", "dump_request", "_text_pieces"}
    wanted |= {"_read_more"} if path == CHAT else {"own_items"}
    assert set(threads) == wanted
    assert not any(threads.values()), threads


async def test_a_small_one_is_not(threads: dict[str, bool]) -> None:
    async with gateway_before([Say("Hello.")]) as (server, _):
        assert (await post(server, {"messages": MANY[:5]})).status == 200
    assert all(threads.values())


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages", "/v1/conversations"])
async def test_the_mistake_in_a_body_of_many_objects_is_named_in_a_thread(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 parts and one that is none are 56 kB, and it takes 0.2 s to find out which."""
    loop = threading.current_thread()
    where: list[bool] = []
    real = RequestSchema._fault

    def watched(self: RequestSchema, error: Any) -> ClientFault:
        where.append(threading.current_thread() is loop)
        return real(self, error)

    monkeypatch.setattr(RequestSchema, "_fault", watched)
    parts: list[Any] = [*[{"type": "x"}] * 4000, 1]
    said = [{"role": "user", "content": parts}]
    body = {"items": said} if path == "/v1/conversations" else {"messages": said, "input": said, "max_tokens": 1}
    async with gateway_before([Say("Hello.")]) as (server, _):
        answer = await post(server, body, path=path)
        assert answer.status == 400
        assert b"content[4000]" in answer.body
    assert where
    assert not any(where)


async def test_another_models_name_in_a_large_body(threads: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own body, but for one word: it is written anew."""
    routes = [{"model": "*", "backend": "up", "upstream_model": "real"}]
    async with gateway_before([Say("Hello.")], routes=routes) as (server, up):
        assert (await post(server, {"messages": MANY})).status == 200
        assert up.requests[0].json == {"model": "real", "messages": MANY}


async def test_estimates_do_not_depend_on_where_they_are_made() -> None:
    small = ModelRequest("m", tuple(Message("user", (Text("word " * 3),)) for _ in range(400)))
    large = ModelRequest("m", small.messages * 4)
    estimator = Estimator("none")
    one = await estimator.count_request(small)
    assert is_large(large)
    assert abs(await estimator.count_request(large) - 4 * one) <= 20


# --- what comes in very many pieces ---------------------------------------------------------------------------------


async def test_of_very_many_events_none_is_kept() -> None:
    class Noted(Delta):
        alive = 0

        def __init__(self) -> None:
            super().__init__(0, "a")
            Noted.alive += 1

        def __del__(self) -> None:
            Noted.alive -= 1

    most = 0

    async def batches() -> Any:
        nonlocal most
        yield [Start("r", "m", 1), Open(0, BlockKind.TEXT)]
        for _ in range(50):
            batch: list[Event] = [Noted() for _ in range(100)]
            yield batch
            del batch
            most = max(most, Noted.alive)
        yield [Close(0), Finish("stop")]

    reply = await fold_batches(batches())
    assert reply.choices[0].parts == (Text("a" * 5000),)
    assert most <= 200


# --- the collector --------------------------------------------------------------------------------------------------


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(10_000, 3, 7)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_full_collections_are_rare_while_huge_requests_run() -> None:
    collecting = CollectorThresholds()
    huge = [make_mocked_request("POST", "/") for _ in range(2)]
    small = make_mocked_request("POST", "/")
    collecting.hold(small, HUGE_VALUES - 1)
    assert gc.get_threshold() == (10_000, 3, 7)
    for request in huge:
        collecting.hold(request, HUGE_VALUES)
    assert gc.get_threshold() == (10_000, 3, RARELY)
    collecting.release(small)
    collecting.release(huge[0])
    assert gc.get_threshold() == (10_000, 3, RARELY)
    collecting.release(huge[1])
    assert gc.get_threshold() == (10_000, 3, 7)
    assert collecting.requests == 0


@pytest.mark.usefixtures("thresholds")
async def test_it_is_as_before_when_they_are_over() -> None:
    async with gateway_before([Say("Hello.")]) as (server, _):
        whole = {"model": "m", "messages": MANY * 2}
        half = json.dumps({**whole, "user": "half of an emoji: \ud83d"}).encode()
        for body in (whole, {**whole, "n": "x"}, half):
            await post(server, body)
    assert gc.get_threshold() == (10_000, 3, 7)


async def test_who_is_cancelled_waits_for_the_thread() -> None:
    began, may_go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_go.wait()
        ended.set()

    task = asyncio.create_task(in_thread(work))
    while not began.is_set():  # noqa: ASYNC110  # another thread says so
        await asyncio.sleep(0)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
