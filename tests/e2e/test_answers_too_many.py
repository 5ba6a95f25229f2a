"""Model servers of each kind that send an answer too many, behind clients of each protocol: each client gets its own
answer, and the gateway says what it saw (R33.6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestServer

from proxy.backends import wire_client
from proxy.folding import unfold
from proxy.model import ModelReply, ModelRequest, ReplyChoice, Text, Usage
from proxy.protocols.base import ServerSide, WriteOptions
from proxy.registry import SERVER_PROTOCOLS, load_attribute
from proxy.testing import TAKING
from tests.e2e.conftest import CHAT, post, serving, upstream_config
from tests.e2e.meaning import MESSAGES, RESPONSES, meant

ASKING = 4
ROUNDS = 4

KINDS = ("openai_chat", "openai_responses", "anthropic_messages", "openai_completions")


def asked(path: str, text: str, stream: bool) -> dict[str, Any]:
    """A client's request."""
    if path == RESPONSES:
        return {"input": text, "stream": stream}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "stream": stream}
    if path == CHAT and stream:
        body["stream_options"] = {"include_usage": True}
    return {**body, "max_tokens": 5} if path == MESSAGES else body


def written(kind: str, text: str, stream: bool) -> bytes:
    """An answer of a server of this kind, with its head."""
    if kind == "openai_completions":
        choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        body = orjson.dumps({"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})
        body = b"data: " + body + b"\n\ndata: [DONE]\n\n" if stream else body
    else:
        wire: ServerSide = load_attribute(SERVER_PROTOCOLS[kind])()
        options = WriteOptions(request=ModelRequest("m", (), stream=stream, include_usage=stream), created=1)
        reply = ModelReply("up_1", "m", 1, (ReplyChoice((Text(text),), "stop"),), Usage(9, 4))
        body = wire.writer(options).feed(unfold(reply)) if stream else wire.write_reply(reply, options)
    type_ = "text/event-stream" if stream else "application/json"
    return f"HTTP/1.1 200 OK\r\nContent-Type: {type_}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def two_for_one(kind: str) -> AsyncIterator[str]:
    """A server that sends each answer once more when the next request has come, on whichever connection."""
    late: list[tuple[asyncio.StreamWriter, bytes]] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).lower():
                if head.startswith(b"get"):
                    listed = b'{"data":[{"id":"m"}]}'
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(listed) + listed)
                    continue
                body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                for other, extra in late:
                    other.write(extra)
                late.clear()
                word = body.partition(b"question-")[2][:3].decode()
                answer = written(kind, f"answer-{word}", orjson.loads(body).get("stream", False))
                writer.write(answer)
                late.append((writer, answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(lambda _: writer.close())

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for _ in range(TAKING):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def metrics(server: TestServer) -> str:
    async with aiohttp.ClientSession() as session, session.get(server.make_url("/metrics")) as got:
        return await got.text()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_client_gets_its_own_answer(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    path: str,
    stream: bool,
) -> None:
    monkeypatch.setattr(wire_client, "SETTLE_S", 3600.0)  # so that however slow this machine is, it has not settled
    caplog.set_level(logging.WARNING, "toolwire.backends")
    async with two_for_one(kind) as url:
        config = upstream_config(url, backend={"kind": kind, "preset": "generic"})
        async with serving(config) as server:
            for turn in range(ROUNDS):
                words = [f"{turn * ASKING + number:03d}" for number in range(ASKING)]
                answers = await asyncio.gather(
                    *(post(server, asked(path, f"question-{word}", stream), path=path) for word in words)
                )
                for word, answer in zip(words, answers, strict=True):
                    assert (answer.status, meant(path, answer, stream)[0]) == (200, f"answer-{word}")
            page = await metrics(server)
    counted = 'toolwire_backend_errors_total{backend="up",code="out_of_step"}' in page
    logged = [record for record in caplog.records if "no request asked for" in record.getMessage()]
    assert (counted, len(logged)) == (True, 1)
