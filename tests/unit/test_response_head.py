"""The short way to write a whole answer gives what aiohttp gives, and is left when somebody takes part."""

from __future__ import annotations

import asyncio
import re

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e.conftest import CHAT, mock_config, read_config
from toolwire.app import create_app
from toolwire.pipeline.chain.middleware import Handler
from toolwire.pipeline.exchange import response_head
from toolwire.registry import registries

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'


def request(version: str = "1.1", *fields: str) -> bytes:
    lines = [f"POST {CHAT} HTTP/{version}", "Host: h", "Content-Type: application/json", "X-Request-Id: mine", *fields]
    return "\r\n".join([*lines, f"Content-Length: {len(BODY)}", "", ""]).encode() + BODY


async def exchange(app: web.Application, sent: bytes, answers: int = 1) -> tuple[list[str], bytes, bool]:
    """The last answer's head in lines and its body, both without what differs each time, and whether the connection was
    closed."""
    async with TestServer(app) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        for _ in range(answers):
            writer.write(sent)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            length = next(int(line.partition(":")[2]) for line in head if line.startswith("Content-Length"))
            body = await reader.readexactly(length)
        writer.write(sent)
        try:
            closed = await reader.read(1) == b""
        except ConnectionError:
            closed = True
        writer.close()
    lines = [re.sub(r"(-processing-ms: )\d+$", r"\1MS", line) for line in head if not line.startswith("Date")]
    return lines, body[body.index(b'"model"') :], closed


@pytest.mark.parametrize("options", [{}, {"usage": {"source": "estimate"}}], ids=["plain", "with a usage source"])
async def test_the_short_way_gives_what_the_usual_way_gives(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = mock_config(["hello"], **options)
    short = await exchange(create_app(config), request(), answers=2)
    with monkeypatch.context() as patched:
        patched.setattr(response_head, "_is_usual", lambda request: False)
        usual = await exchange(create_app(config), request(), answers=2)
    assert sorted(short[0]) == sorted(usual[0])
    assert {"X-Request-Id: mine", "openai-processing-ms: MS"} <= set(short[0])
    assert short[1:] == usual[1:]


async def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def prepare(reply: web.StreamResponse, request: web.Request) -> None:
        assert reply.prepared, "aiohttp was to prepare the answer"

    monkeypatch.setattr("toolwire.pipeline.answers.reply.Reply.prepare", prepare)
    assert "HTTP/1.1 200 OK" in (await exchange(create_app(mock_config(["hello"])), request()))[0]


@every(("version", "field"), [("1.0", "X-Nothing: 0"), ("1.1", "Connection: close")])
async def test_a_connection_that_does_not_go_on_is_closed(version: str, field: str) -> None:
    head, body, closed = await exchange(create_app(mock_config(["hello"])), request(version, field))
    assert closed
    assert b"hello" in body
    assert head[0].startswith("HTTP/")


async def test_a_signal_takes_part() -> None:
    async def signed(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Signed"] = "yes"

    app = create_app(mock_config(["hello"]))
    app.on_response_prepare.append(signed)
    assert "X-Signed: yes" in (await exchange(app, request()))[0]


@every(
    ("change", "line"),
    [
        (lambda reply: reply.headers.update({"X-More": "1"}), "X-More: 1"),
        (lambda reply: reply.set_cookie("a", "b"), "Set-Cookie: a=b; Path=/"),
        (lambda reply: reply.set_status(203), "HTTP/1.1 203 Non-Authoritative Information"),
        (lambda reply: reply.set_status(200, "Fine"), "HTTP/1.1 200 Fine"),
        (lambda reply: reply.force_close(), "Connection: close"),
    ],
)
async def test_a_middleware_takes_part(change: object, line: str) -> None:
    @web.middleware
    async def change_it(request: web.Request, handler: Handler) -> web.StreamResponse:
        reply = await handler(request)
        assert callable(change)
        change(reply)
        return reply

    plugins = registries()
    plugins.middlewares.register("change_it", change_it)
    chain = [{"use": "change_it"}, {"use": "forwarding"}]
    config = read_config({"backends": {"mock": {"kind": "mock", "script": ["hello"]}}, "chain": chain})
    assert line in (await exchange(create_app(config, plugins=plugins), request()))[0]
