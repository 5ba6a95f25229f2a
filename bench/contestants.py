"""The measured programs, each in its own process: `python -m bench.contestants NAME [UPSTREAM]`.

`upstream` is the model server behind the others, `relay` a plain aiohttp relay, `relay-uvloop` the same on uvloop,
`gateway` the installed toolwire (on uvloop, if that is installed). Each prints its port as the first line. Then it
answers every line of its standard input with the CPU seconds used so far (all threads, system time included), and the
bytes of memory in use. It ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from functools import cache
from typing import Final

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

from bench import corpus

STAMP_US: Final = 1_000_000
"""Units of a time stamp: the content of a paced frame is its sending time on the monotonic clock."""

_WORK: Final = re.compile(rb"frames=(\d+) pace_us=(\d+) call=(\d)")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CALL: Final = corpus.call_text("get_weather", {"city": "Oslo", "unit": "celsius", "days": 3})


def answer_accounts() -> None:
    """Answers lines of standard input from now on; ends this process when it closes."""

    def answer() -> None:
        if os.read(sys.stdin.fileno(), 64):
            print(time.process_time(), resident(), flush=True)
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin)
            signal.raise_signal(signal.SIGTERM)

    asyncio.get_running_loop().add_reader(sys.stdin, answer)


def resident() -> int:
    """Returns the resident bytes of this process, shared libraries included."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- the model server
# ---------------------------------------------------------------------------------------------------


class Upstream(asyncio.Protocol):
    """Answers chat requests. The last message contains the settings: `frames=N pace_us=N call=0|1`.

    Paced: one frame every `pace_us`, each in a separate write, with the time of the write as its content. Not paced:
    all frames at once. `call=1`: the last frames are a tool call. A request that is not streamed gets the same text at
    once.
    """

    def __init__(self) -> None:
        self._received = b""
        self._streams: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not blank or len(body) < size:
            return
        self._received = body[size:]
        self._answer(body[:size])

    def connection_lost(self, error: Exception | None) -> None:
        for stream in self._streams:
            stream.cancel()

    def _answer(self, body: bytes) -> None:
        work = _WORK.search(body)
        frames, pace_us, call = map(int, work.groups()) if work else (0, 0, 0)
        if b'"stream":true' not in body:
            self._transport.write(whole_answer(call))
            return
        stream = asyncio.get_running_loop().create_task(self._stream(frames, pace_us, call))
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)

    async def _stream(self, frames: int, pace_us: int, call: int) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        loop = asyncio.get_running_loop()
        tail = corpus.cut(CALL) if call else []
        before, _, after = corpus.frame("@").partition(b"@")
        if not pace_us:
            self._transport.write(_burst(frames, call))
        else:
            start = loop.time()
            for number in range(frames):
                await asyncio.sleep(start + number * pace_us / STAMP_US - loop.time())
                if number < frames - len(tail):
                    text = b" %014d" % (time.monotonic() * STAMP_US)
                else:
                    text = json.dumps(tail[number - frames + len(tail)]).encode()[1:-1]
                self._transport.write(chunk(before + text + after))
        self._transport.write(chunk(corpus.closing_frames()) + b"0\r\n\r\n")


@cache
def whole_answer(call: int) -> bytes:
    answer = json.loads(corpus.frame("").removeprefix(b"data: "))
    message = {"role": "assistant", "content": "".join(corpus.prose(100)) + (CALL if call else "")}
    answer["object"] = "chat.completion"
    answer["choices"] = [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200}
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@cache
def _burst(frames: int, call: int) -> bytes:
    tail = corpus.cut(CALL) if call else []
    texts = [*corpus.prose(frames - len(tail)), *tail]
    return b"".join(chunk(corpus.frame(text)) for text in texts)


def chunk(frame: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(frame), frame)


async def serve_upstream() -> None:
    """Serves until standard input closes."""
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=1024)
    await _serve_until_terminated(server.sockets[0].getsockname()[1])
    server.close()


# --- the relay
# ----------------------------------------------------------------------------------------------------------


def relay_app(upstream: str) -> web.Application:
    """Returns the smallest aiohttp program between a client and a server: forwards bytes, with one write per read."""
    session_key = web.AppKey("session", ClientSession)

    async def session(app: web.Application) -> AsyncIterator[None]:
        unlimited = TCPConnector(limit=0)
        timeout = ClientTimeout(total=None)
        async with ClientSession(connector=unlimited, timeout=timeout, auto_decompress=False) as app[session_key]:
            yield

    async def relay(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {"Content-Type": "application/json"}
        async with request.app[session_key].post(f"{upstream}{request.path}", data=body, headers=headers) as answer:
            headers = {"Content-Type": answer.headers["Content-Type"]}
            if answer.content_length is not None:
                return web.Response(body=await answer.read(), status=answer.status, headers=headers)
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    app = web.Application()
    app.cleanup_ctx.append(session)
    app.router.add_post("/v1/chat/completions", relay)
    return app


async def serve_relay(upstream: str) -> None:
    """Serves until standard input closes."""
    runner = web.AppRunner(relay_app(upstream), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    await _serve_until_terminated(runner.addresses[0][1])
    await runner.cleanup()


async def _serve_until_terminated(port: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print(port, flush=True)
    answer_accounts()
    await ended.wait()


# --- the gateway
# --------------------------------------------------------------------------------------------------------


def serve_gateway(upstream: str) -> int:
    """Runs the gateway like `toolwire serve --backend UPSTREAM`, access log included, and returns the exit status.
    Responses are stored in a file, as by default, but not in the user's."""
    from toolwire.app import create_app
    from toolwire.config import GatewayConfig
    from toolwire.configuration.settings import load
    from toolwire.observability.telemetry import Metrics
    from toolwire.server.serving import serve

    def create(config: GatewayConfig, metrics: Metrics, before: web.Application | None) -> web.Application:
        app = create_app(config, metrics=metrics, before=before)

        async def account(app: web.Application) -> None:
            answer_accounts()

        app.on_startup.append(account)
        return app

    def announce(line: str) -> None:
        print(line.rpartition(":")[2].split("/")[0], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        overrides = {
            "backends": {"default": {"url": upstream, "pool": {"connections": 0}}},  # as many as there are streams
            "server": {"port": 0},
            "store": {"path": f"{folder}/responses.sqlite3"},
        }
        config = load(None, env={}, overrides=overrides)
        return serve(config, create=create, announce=announce)


def main(name: str, upstream: str = "") -> int:
    """Runs a contestant and returns its exit status."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(KeyboardInterrupt):
        match name:
            case "upstream":
                asyncio.run(serve_upstream())
            case "relay":
                asyncio.run(serve_relay(upstream))
            case "relay-uvloop":
                import uvloop  # the others do not need it

                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(serve_relay(upstream))
            case "gateway":
                return serve_gateway(upstream)
            case _:
                raise SystemExit(f"no contestant is called {name!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
