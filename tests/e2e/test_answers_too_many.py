"""Model servers of each kind that send an answer too many, behind clients of each protocol: each client gets its own
answer, and the gateway says what it saw (R33.6)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import post, serving, upstream_config
from tests.e2e.meaning import CLIENTS, RESPONSES, asking, meant
from tests.e2e.speaking import OPTIONS
from toolwire.folding import unfold
from toolwire.model import ModelReply, ReplyChoice, Text, Usage
from toolwire.pipeline.handlers.status import METRICS
from toolwire.protocols.base import ServerSide
from toolwire.registry import SERVER_PROTOCOLS, load_attribute
from toolwire.testing import TAKING
from toolwire.upstream.client import wire_client

ASKING = 4
ROUNDS = 4

KINDS = ("openai_chat", "openai_responses", "anthropic_messages", "openai_completions")


def asked(path: str, text: str, stream: bool) -> dict[str, Any]:
    """A client's request; nothing is looked for in its answer."""
    said = {"input": text} if path == RESPONSES else {"messages": [{"role": "user", "content": text}]}
    return {**asking(path, stream), **said, "tools": []}


def written(kind: str, text: str, stream: bool) -> bytes:
    """An answer of a server of this kind, with its head."""
    if kind == "openai_completions":
        choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        body = orjson.dumps({"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})
        body = b"data: " + body + b"\n\ndata: [DONE]\n\n" if stream else body
    else:
        wire: ServerSide = load_attribute(SERVER_PROTOCOLS[kind])()
        reply = ModelReply("up_1", "m", 1, (ReplyChoice((Text(text),), "stop"),), Usage(9, 4))
        body = wire.writer(OPTIONS).feed(unfold(reply)) if stream else wire.write_reply(reply, OPTIONS)
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


def counted(server: TestServer) -> float:
    """Answers that nobody asked for, by the metrics."""
    page, _ = server.app[METRICS].page()  # type: ignore[union-attr]  # there is one
    found = re.search(rb'toolwire_backend_errors_total{backend="up",code="out_of_step"} (\S+)', page)
    return float(found[1]) if found else 0


@pytest.mark.parametrize(("row", "kind"), list(enumerate(KINDS)))
async def test_each_client_gets_its_own_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, row: int, kind: str
) -> None:
    monkeypatch.setattr(wire_client, "SETTLE_S", 3600.0)  # so that however slow this machine is, it has not settled
    caplog.set_level(logging.WARNING, "toolwire.backends")
    backend = {"kind": kind, "preset": "generic"}
    async with two_for_one(kind) as url, serving(upstream_config(url, backend=backend)) as server:
        for column, path in enumerate(CLIENTS):
            stream, before = (row + column) % 2 == 0, counted(server)
            for turn in range(ROUNDS):
                words = [f"{turn * ASKING + number:03d}" for number in range(ASKING)]
                requests = (post(server, asked(path, f"question-{word}", stream), path=path) for word in words)
                for word, answer in zip(words, await asyncio.gather(*requests), strict=True):
                    assert (answer.status, meant(path, answer, stream)[0]) == (200, f"answer-{word}"), path
            assert counted(server) > before, path
    assert len([record for record in caplog.records if "no request asked for" in record.getMessage()]) == 1
