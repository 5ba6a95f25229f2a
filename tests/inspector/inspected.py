"""A gateway with the inspector on real sockets, exchanges through it, and what the inspector says of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import aiohttp
import orjson
from aiohttp.test_utils import TestServer
from yarl import URL

from tests.e2e.conftest import CHAT, function, post, read_config, serving
from tests.waiting import GUARD_S
from toolwire.config import GatewayConfig
from toolwire.testing import Answer, Script, Upstream, WireAnswer, chunk, frame

RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
WEATHER = function("weather", city="string")
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'

View = dict[str, Any]


def call(name: str, arguments: Any) -> str:
    """A call as the sentinel format has it."""
    return f"<tool_call>{orjson.dumps({'name': name, 'arguments': arguments}).decode()}</tool_call>"


def asked(path: str = CHAT, *tools: Mapping[str, Any], text: str = "hi", **more: Any) -> dict[str, Any]:
    """A request with these tools, in the words of the path's protocol."""
    inner = [tool["function"] for tool in tools]
    if path == RESPONSES:
        listed = [{"type": "function", **one} for one in inner]
        return {"model": "m", "input": text, **({"tools": listed} if tools else {}), **more}
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": text}]}
    if path == MESSAGES:
        body["max_tokens"] = 1000
        listed = [{"name": one["name"], "input_schema": one["parameters"]} for one in inner]
    else:
        listed = list(tools)
    return {**body, **({"tools": listed} if tools else {}), **more}


def streamed(*deltas: Mapping[str, Any] | str, finish: str = "stop", **fields: Any) -> Answer:
    """A stream of these deltas."""
    made = [chunk({"content": delta} if isinstance(delta, str) else delta, **fields) for delta in deltas]
    frames = [*map(frame, made), frame(chunk({}, finish)), frame("[DONE]")]
    return Answer(frames, headers={"Content-Type": "text/event-stream"})


def whole(*messages: Mapping[str, Any], finish: str = "stop") -> Answer:
    """A whole answer with these messages, one for each choice."""
    choices = [
        {"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish}
        for index, message in enumerate(messages)
    ]
    said = {"id": "chatcmpl-up", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    return Answer([orjson.dumps(said)], headers={"Content-Type": "application/json"}, framing="length")


class Inspected:
    """A gateway with an inspector."""

    def __init__(self, server: TestServer) -> None:
        self.server = server
        self._number = 0

    @property
    def url(self) -> str:
        """Its address, without a slash."""
        return str(self.server.make_url("/")).rstrip("/")

    async def ask(self, body: Mapping[str, Any], path: str = CHAT, **headers: str) -> tuple[WireAnswer, View]:
        """What the client got and what the inspector says of it."""
        self._number += 1
        ident = f"r{self._number}"
        got = await post(self.server, body, path=path, headers={"X-Request-Id": ident, **headers})
        return got, await self.ended(ident)

    async def get(self, place: str, **headers: str) -> tuple[int, Any]:
        """Status and JSON of what is asked under `/inspect/api/`."""
        got = await self.fetch("GET", f"/inspect/api/{place}", headers=headers)
        return got.status, json.loads(got.body)  # half a character is JSON, too

    async def rows(self, **headers: str) -> list[dict[str, Any]]:
        """The rows of the list, as they are now."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/inspect/api/feed", headers=headers) as response,
        ):
            while not (line := await response.content.readline()).startswith(b'data: {"rows"'):
                pass
        return list(orjson.loads(line[6:])["rows"])

    async def fetch(self, method: str, path: str, **options: Any) -> WireAnswer:
        """Any answer of the gateway. The path goes out as it is."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, URL(f"{self.url}{path}", encoded=True), **options) as r,
        ):
            return WireAnswer(status=r.status, headers=r.headers.copy(), body=await r.read())

    async def ended(self, ident: str, **headers: str) -> View:
        """The view of an exchange, as soon as it has ended: its client has the answer a little earlier."""
        async with asyncio.timeout(GUARD_S):
            while True:
                status, seen = await self.get(f"exchanges/{ident}", **headers)
                if status == 200 and not seen["running"]:
                    return dict(seen)
                await asyncio.sleep(0.005)


@asynccontextmanager
async def inspecting(config: GatewayConfig) -> AsyncIterator[Inspected]:
    async with serving(config) as server:
        yield Inspected(server)


@asynccontextmanager
async def answering(
    *turns: Script, backend: Mapping[str, Any] | None = None, **sections: Any
) -> AsyncIterator[tuple[Inspected, Upstream]]:
    """A gateway in front of a server that says this."""
    async with Upstream(turns) as upstream:
        config = {"inspect": True, "backends": {"up": {"url": upstream.url, **(backend or {})}}, **sections}
        async with inspecting(read_config(config)) as gateway:
            yield gateway, upstream


async def seen(
    turn: Script, *tools: Mapping[str, Any], path: str = CHAT, body: Mapping[str, Any] | None = None, **sections: Any
) -> tuple[WireAnswer, View]:
    """One streamed exchange with this answer of the server."""
    async with answering(turn, **sections) as (gateway, _):
        return await gateway.ask(asked(path, *tools, **{"stream": True, **(body or {})}), path)


# --- what a view says -----------------------------------------------------------------------------------------------


def units(text: str) -> int:
    """The length in JavaScript."""
    return len(text.encode("utf-16-le", errors="surrogatepass")) // 2


def part(text: str, begin: int, end: int) -> str:
    """`text.slice(begin, end)` of JavaScript."""
    return text.encode("utf-16-le", errors="surrogatepass")[2 * begin : 2 * end].decode("utf-16-le")


def raw(view: View, number: int = 1) -> View:
    return dict(view["rounds"][number - 1]["raw"])


def lane(view: View, number: int = 1) -> list[tuple[str, str]]:
    """Kind and text of each span of what the model wrote. They cover it, in order."""
    answer = raw(view, number)
    covers(answer)
    return [(span["kind"], part(answer["text"], span["from"], span["to"])) for span in answer["spans"]]


def covers(answer: View) -> None:
    """The laws that hold for every answer."""
    spans, steps, end = answer["spans"], answer["steps"], units(answer["text"])
    places = [0, *(span["to"] for span in spans)]
    assert [span["from"] for span in spans] == places[:-1]
    assert places[-1] == end
    assert all(span["from"] < span["to"] for span in spans)
    for one, after in pairwise(steps):
        assert one["at"] <= after["at"]
        assert one["upto"] <= after["upto"]
        assert one["released"] <= after["released"]
    for step in steps:
        assert step["released"] + step["held"] == step["upto"]
        assert step["held"] >= 0
    assert (steps[-1]["upto"] if steps else 0) == end


def said(view: View) -> list[tuple[str, str]]:
    """Kind and words of each judgement."""
    return [(judgement["kind"], judgement["words"]) for judgement in view["judgements"]]


def kinds(view: View) -> list[str]:
    return [kind for kind, _ in said(view)]


def calls(view: View) -> list[tuple[str, Any]]:
    """Name and arguments of each call."""
    return [(one["name"], orjson.loads(one["arguments"])) for one in view["calls"]]


def told(view: View) -> list[int]:
    """The calls that the client's events are about, each once, in order."""
    numbers = [number for event in view["client"]["events"] for number in event["calls"]]
    return list(dict.fromkeys(numbers))
