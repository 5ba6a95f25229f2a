"""Requests that reach the backend: the client's own bytes or an adapted request (R1.6), and token counts (R11.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.backends.conftest import Connect
from tests.options import route_options
from toolwire.config import LimitsConfig, RouteConfig
from toolwire.errors import ClientFault, GatewayError
from toolwire.events import Delta, Finish
from toolwire.folding import fold
from toolwire.formats.families import sentinel
from toolwire.middlewares.forwarding import Forwarding
from toolwire.model import Message, Text, Usage
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.exchange.request_state import EXCHANGE, Exchange
from toolwire.pipeline.exchange.routing import Route
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.record import AccessRecord
from toolwire.testing import Say, ScriptedBackend, Upstream
from toolwire.upstream.pool.server_pool import ServerPool
from toolwire.upstream.servers.usage import count_bytes

CHAT = ChatProtocol()


@pytest.fixture(autouse=True)
def no_encoding_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


async def never(request: web.Request) -> web.StreamResponse:
    raise AssertionError("forwarding calls nobody")


def exchange_for(backend: Any, raw: bytes, *, upstream_model: str | None = None, **options: Any) -> Exchange:
    body = orjson.loads(raw)
    received = CHAT.read_request(body, raw)
    route = Route(
        config=RouteConfig(upstream_model=upstream_model),
        options=route_options(**options),
        pool=ServerPool.of(backend),
        format=sentinel.FORMAT,
        limits=LimitsConfig(),
        chains={},
    )
    return Exchange("req_1", CHAT, route, received, received, body, AccessRecord())


async def forward(exchange: Exchange) -> Reply:
    request = make_mocked_request("POST", "/v1/chat/completions")
    request[EXCHANGE] = exchange
    reply = await Forwarding()(request, never)
    assert isinstance(reply, Reply)
    return reply


RAW = b'{ "model":"m", "messages":[{"role":"developer","content":"d"}], "stream":true, "top_k": 1.0, "wild":[ ] }'


async def test_an_untouched_request_goes_out_byte_for_byte(server: Upstream, connect: Connect) -> None:
    """Also under the model's name that the route has."""
    server.script = [Say("ok")]
    for upstream_model in (None, "m"):
        reply = await forward(exchange_for(await connect(), RAW, upstream_model=upstream_model))
        await reply.close()
        assert server.requests[-1].body == RAW
        assert server.requests[-1].headers["x-request-id"] == "req_1"
        assert reply.stages == []
        assert reply.streamed


async def test_another_model_name_changes_nothing_else(server: Upstream, connect: Connect) -> None:
    server.script = [Say("ok")]
    reply = await forward(exchange_for(await connect(), RAW, upstream_model="big"))
    await reply.close()
    assert server.requests[0].json == {**orjson.loads(RAW), "model": "big"}
    assert reply.stages == []


async def test_a_touched_request_is_made_fit(server: Upstream, connect: Connect) -> None:
    server.script = [Say("ok")]
    exchange = exchange_for(await connect(preset="vllm"), RAW)
    more = Message("user", (Text("u"),))
    exchange.request = replace(exchange.received, messages=(*exchange.received.messages, more))
    await (await forward(exchange)).close()
    sent = server.requests[0].json
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    assert sent["stream_options"] == {"include_usage": True}
    assert "top_k" in sent
    assert "wild" not in sent


async def test_errors_of_the_backend_are_counted() -> None:
    exchange = exchange_for(ScriptedBackend([{"error": {"status": 503}}]), RAW)
    with pytest.raises(GatewayError):
        await forward(exchange)
    assert exchange.record.counts["backend_errors"] == 2, "each of the two tries"


async def test_a_refused_image_is_named_by_the_clients_own_index() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": [picture]}]})
    exchange = exchange_for(ScriptedBackend(["ok"], images="error"), raw)
    system = Message("system", (Text("injected"),))
    exchange.request = replace(exchange.received, messages=(system, *exchange.received.messages))
    with pytest.raises(ClientFault) as caught:
        await forward(exchange)
    assert (caught.value.code, caught.value.param) == ("unsupported_content", "messages[0].content")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("source", "given", "estimated"),
    [("auto", None, True), ("auto", {"input": 3, "output": 4}, False), ("estimate", {"input": 3, "output": 4}, True)],
)
async def test_token_counts(source: str, given: Any, estimated: bool, stream: bool) -> None:
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hello there"}], "stream": stream})
    turn = {"text": "<tool_call>what the model wrote</tool_call>", "chunk": 7, "usage": given}
    reply = await forward(exchange_for(ScriptedBackend([turn]), raw, usage={"source": source}))
    answer = fold([event async for batch in reply.events() for event in batch])
    if estimated:
        written = count_bytes(turn["text"])
        assert answer.usage == Usage(2 * 3 + count_bytes("user\nhello there"), written, estimated=True)
    else:
        assert answer.usage == Usage(3, 4)


async def test_only_the_backend_counts_if_the_route_says_so() -> None:
    reply = await forward(exchange_for(ScriptedBackend(["x"]), RAW, usage={"source": "backend"}))
    assert reply.stages == []


async def test_estimates_keep_all_else(server: Upstream, connect: Connect) -> None:
    server.script = [Say("a", "b", finish="length")]
    exchange = exchange_for(await connect(), RAW, usage={"source": "estimate"})
    reply = await forward(exchange)
    events = [event async for batch in reply.events() for event in batch]
    await reply.close()
    assert [event.text for event in events if isinstance(event, Delta)] == ["a", "b"]
    assert isinstance(events[-1], Finish)
    assert (events[-1].reason, events[-1].usage and events[-1].usage.estimated) == ("length", True)
