"""Memory of an open stream: it keeps neither the body nor the prompt of a large request (R34.3). A connection that
waits for its next request holds nothing of the last one, though aiohttp's loop keeps its request and its answer."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache
from itertools import chain
from typing import Any

import orjson
import pytest

from bench import corpus
from bench.load import Ask
from tests.cases import first_and_in_turn
from tests.e2e import edge
from tests.e2e.known import PATHS
from tests.waiting import until
from toolwire.configuration.settings import load
from toolwire.ingress.known_conversations import KnownConversation
from toolwire.known.past import Past
from toolwire.model import Message, Text
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.server.process import gateway
from toolwire.server.simulated import SimulatedGateway

BEGIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = 50_000
"""No text of a message, and nothing that is made of one, has so many bytes. The body and the prompt have more."""
WAYS = first_and_in_turn(PATHS, ("prompt", "native", "template"))


def chunk(text: str) -> bytes:
    """A frame of the model server's answer, which does not end."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    frame = b"data: %b\n\n" % json.dumps(event).encode()
    return b"%x\r\n%b\r\n" % (len(frame), frame)


@asynccontextmanager
async def streams(api: str, mode: str, count: int, cache_bytes: int) -> AsyncIterator[None]:
    """Begun streams of one conversation, of the given number."""
    begun = []

    def answer(request: bytes) -> list[bytes]:
        begun.append(len(request))
        return [BEGIN, *map(chunk, ["Well, ", *["let me see. "] * 20])]

    overrides: dict[str, Any] = {
        "backends": {"default": {"url": "http://127.0.0.1:9", "identify_s": 0}},
        "limits": {"cache_bytes": cache_bytes},
        "defaults": {"mode": mode},
    }
    played = SimulatedGateway(gateway, load(None, env={}, overrides=overrides), answer)
    async with played:
        asking = []
        for number in range(count):
            body = Ask(PATHS[api], corpus.agent_body(10, 150 + number, api=api, store=False)).raw
            asking.append(asyncio.ensure_future(played.client()(body)))
            await until(lambda number=number: len(begun) > number)  # type: ignore[misc]
            for _ in range(60):  # each turn of the loop brings a frame
                await asyncio.sleep(0)
        del body
        yield
        for one in asking:
            one.cancel()
            with suppress(asyncio.CancelledError):
                await one


def only_what_is_new() -> None:
    """Nothing is found any more of what other tests have left: to look at all of it takes seconds."""
    gc.collect()
    gc.freeze()


def alive(kind: type) -> int:
    """How many new values of a class there are."""
    return sum(type(one) is kind for one in gc.get_objects())


def large_values() -> Iterator[bytes]:
    """Large byte strings that something new of the gateway keeps, or a module; not what a client or a connection
    holds."""
    modules = [vars(module) for name, module in list(sys.modules.items()) if name.startswith("toolwire")]
    for one in chain(gc.get_objects(), *(names.values() for names in modules)):
        if str(type(one).__module__).startswith("toolwire.") or type(one) in (dict, tuple, list):
            for value in gc.get_referents(one):
                if type(value) is bytes and len(value) > LARGE and not value.startswith(b"POST "):
                    yield value


@pytest.mark.parametrize(("api", "mode"), WAYS)
async def test_neither_body_nor_prompt_are_kept_nor_what_stages_made(api: str, mode: str) -> None:
    """The texts of messages are there once, without the UTF-8 form that some libraries leave in them."""
    only_what_is_new()
    async with streams(api, mode, 1, cache_bytes=0):
        gc.collect()
        assert alive(Past) == 0
        assert [value[:60] for value in large_values()] == []
        for message in [one for one in gc.get_objects() if type(one) is Message and one.role != "system"]:
            texts = [part.text for part in message.parts if isinstance(part, Text)]
            assert all(sys.getsizeof(text) <= sys.getsizeof(text[:1] + text[1:]) for text in texts), message


@pytest.mark.parametrize(("api", "mode"), WAYS)
async def test_streams_of_one_conversation_share_its_messages(api: str, mode: str) -> None:
    """And the text that it is known by is there once."""
    held = []
    for count in (1, 4):
        only_what_is_new()
        async with streams(api, mode, count, cache_bytes=64 * 1024 * 1024):
            gc.collect()
            assert alive(KnownConversation) == 1
            held.append(alive(Message))
    assert held[1] < held[0] + 3 * 20, "few messages for each further turn"


# --- connections that wait ------------------------------------------------------------------------------------------

LONG = 300_000
CONNECTIONS = 5


def held() -> list[str]:
    """The kinds of objects that hold a text as long as a body, and of exchanges; of those that are not frozen."""
    found = []
    for item in gc.get_objects():
        if isinstance(item, Exchange):
            found.append("Exchange")
        elif not isinstance(item, type):
            values = (_value(item, name) for name in _names(type(item)))
            if any(isinstance(value, bytes | str) and len(value) >= LONG for value in values):
                found.append(type(item).__name__)
    return found


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The slots of a class."""
    of_each = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
    return tuple(name for slots in of_each for name in ((slots,) if isinstance(slots, str) else slots))


def _value(item: Any, name: str) -> object:
    try:
        return object.__getattribute__(item, name)
    except AttributeError:
        return None


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_an_idle_connection_holds_nothing_of_its_last_request(path: str) -> None:
    messages = {"messages": [{"role": "user", "content": "x" * LONG}]}
    body = orjson.dumps({"model": "m", **(messages if path.endswith("completions") else {"input": "x" * LONG})})
    only_what_is_new()
    async with edge.starting() as start, AsyncExitStack() as stack:
        server = await start(script=("Hello.",) * CONNECTIONS, store={"kind": "none"})
        for _ in range(CONNECTIONS):
            reader, writer = await stack.enter_async_context(server.connection())
            writer.write(edge.head(len(body), path=path) + body)
            assert await edge.answered(reader) == 200
        gc.collect()
        left = held()
        assert len(left) < CONNECTIONS, left
