"""The test kit: a chain on a scripted backend, in-process, and a real model server that misbehaves on command (R16.5).

A chain, asserted on its wire output:

    answer = await run_chain(["my_package:MyMiddleware"], {"messages": [...]}, replies=["Hello"])
    assert answer.status == 200 and answer.json()["choices"][0]["message"]["content"] == "HELLO"

`run_chain` puts the names (or the middleware objects themselves) in front of `forwarding`; pass a `GatewayConfig` to
run anything else. `toolwire.upstream.servers.mock` describes the script language.

A server, for everything that needs real sockets:

    async with Upstream([Say("Hel", "lo"), Say("par", cut=True), Refuse(429, headers={"Retry-After": "7"})]) as server:
        ...  # a gateway or a client that sends requests to server.url
        assert server.requests[0].json["messages"] == [...]

The gateway does not import this module.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
from aiohttp.test_utils import TestClient, TestServer

from .config import (
    BackendConfig,
    GatewayConfig,
    LimitsConfig,
    MiddlewareConfig,
    RetryConfig,
    RouteOptions,
    StoreConfig,
)
from .model import ModelRequest
from .record import BackendObserver
from .registry import Registries, registries
from .support.tasks import cancel_all
from .upstream.servers.mock import MockBackend, MockSource

TAKING: Final = 5
"""Iterations of the event loop after which a connection that asyncio has accepted has surely reached its server."""

# --- a chain in-process ---------------------------------------------------------------------------------------------


class ScriptedBackend(MockBackend):
    """A `MockBackend` that stores the requests it gets. `replies` are turns; see `toolwire.upstream.servers.mock`."""

    def __init__(self, replies: Sequence[Any] = (), *, name: str = "scripted", **capabilities: Any) -> None:
        super().__init__(name, BackendConfig(kind="mock", script=list(replies), **capabilities), LimitsConfig())
        self.requests: list[ModelRequest] = []
        self.sources: list[MockSource] = []

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> MockSource:
        """Opens an answer as `MockBackend.open` does, and stores request and source."""
        self.requests.append(request)
        source = await super().open(request, request_id=request_id, body=body)
        self.sources.append(source)
        return source


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer:
    """The client's view of an answer: `body` is the wire bytes. `requests` are the requests that the backend got."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    requests: tuple[ModelRequest, ...] = ()

    def json(self) -> Any:
        """Returns the parsed body of an answer that is not streamed."""
        return orjson.loads(self.body)

    def frames(self) -> list[Any]:
        """Returns the parsed `data:` payloads of a stream, in order; `[DONE]` stays a string."""
        return read_frames(self.body)


def read_frames(body: bytes) -> list[Any]:
    """Returns the parsed `data:` payloads of a stream of one-line frames; `[DONE]` stays a string."""
    # `splitlines` would also split at characters inside a frame, such as U+2028.
    payloads = [line[5:].strip() for line in body.split(b"\n") if line.startswith(b"data:")]
    return ["[DONE]" if payload == b"[DONE]" else orjson.loads(payload) for payload in payloads]


async def run_chain(
    chain: GatewayConfig | Sequence[Any],
    body: Mapping[str, Any] | bytes,
    *,
    replies: Sequence[Any] = (),
    backend: ScriptedBackend | None = None,
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
    options: RouteOptions | None = None,
    plugins: Registries | None = None,
) -> WireAnswer:
    """Sends one request through a gateway in this process and returns the answer that the client gets.

    `chain` is a configuration, whose backends are all replaced by `backend`, or a list of middlewares, outermost first,
    each a name, a dotted path, a `MiddlewareConfig`, or a middleware object; `forwarding` is added. `replies` are the
    model's, each a text or a mapping (`toolwire.upstream.servers.mock`). `body` without `model` gets one. `options` are
    the route's, for a list; by default nothing is retried.
    """
    from .app import create_app  # only here: the server below is of use to programs without a gateway, too

    scripted = backend if backend is not None else ScriptedBackend(replies)
    plugins = plugins if plugins is not None else registries()
    plugins.backends.register("scripted", lambda name, config, limits: scripted)
    if isinstance(chain, GatewayConfig):
        config = chain
    else:
        entries = [_entry(item, index, plugins) for index, item in enumerate(chain)]
        if not entries or entries[-1].use != "forwarding":
            entries.append(MiddlewareConfig(use="forwarding"))
        config = GatewayConfig(
            store=StoreConfig(kind="memory"),
            chain=tuple(entries),
            defaults=options or RouteOptions(retry=RetryConfig(attempts=1)),
            backends={"default": _SCRIPTED},
        )
    config = replace(config, backends=dict.fromkeys(config.backends or ("default",), _SCRIPTED))
    if isinstance(body, Mapping):
        body = orjson.dumps({"model": "scripted", **body})
    async with TestClient(TestServer(create_app(config, plugins=plugins))) as client:
        sent = {"Content-Type": "application/json", **(headers or {})}
        async with client.post(path, data=body, headers=sent) as response:
            return WireAnswer(
                status=response.status,
                headers=response.headers,
                body=await response.read(),
                requests=tuple(scripted.requests),
            )


_SCRIPTED = BackendConfig(kind="scripted")


def _entry(item: Any, index: int, plugins: Registries) -> MiddlewareConfig:
    if isinstance(item, MiddlewareConfig):
        return item
    if isinstance(item, str):
        return MiddlewareConfig(use=item)
    name = f"middleware_{index}"
    plugins.middlewares.register(name, item)
    return MiddlewareConfig(use=name)


# --- a real server --------------------------------------------------------------------------------------------------


def chunk(delta: Mapping[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Returns one chat completion chunk."""
    return {
        "id": "chatcmpl-up",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}],
        **fields,
    }


def frame(payload: Mapping[str, Any] | str) -> bytes:
    """Returns one SSE frame."""
    return b"data: " + (payload.encode() if isinstance(payload, str) else orjson.dumps(payload)) + b"\n\n"


Step = bytes | asyncio.Event
"""Step of a streamed turn: write these bytes as one HTTP chunk, or wait for the event."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer: status, headers, and steps.

    `framing` is how the end of the body is marked: `chunked`, `length`, `close`. `cut`: after the steps the connection
    is closed with the answer unfinished. `wait` is awaited before the status line. `raw` bytes are written in place of
    everything.
    """

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: str = "chunked"
    cut: bool = False
    wait: asyncio.Event | None = None
    raw: Sequence[Step] | None = None
    hang: bool = False
    """After all steps, keep the connection open and silent until the client closes it."""
    reset: bool = False
    """Closes the connection with a TCP reset instead of a regular end; with `cut` or `raw`."""


def Say(  # noqa: N802  # reads as a turn of a script
    *pieces: str | asyncio.Event,
    finish: str = "stop",
    usage: tuple[int, int] | None = None,
    cut: bool = False,
    hang: bool = False,
    done: bool = True,
    compressed: bool = False,
) -> Callable[[Asked], Answer]:
    """Returns a function that makes a well-formed chat answer with this text: streamed with one chunk per piece, or
    whole, as the request asks. An event among the pieces holds the stream until it is set. `cut` breaks the stream off
    after the pieces, `done=False` leaves out `[DONE]`."""

    def answer(asked: Asked) -> Answer:
        counts = None if usage is None else _usage(*usage)
        if not asked.json.get("stream"):
            message = {
                "role": "assistant",
                "content": "".join(p for p in pieces if isinstance(p, str)),
                "refusal": None,
            }
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
            whole = {"id": "chatcmpl-up", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
            body = orjson.dumps(whole if counts is None else {**whole, "usage": counts})
            return _packed([body], "application/json", compressed, cut, hang)
        steps: list[Step] = [frame(chunk({"role": "assistant", "content": ""}))]
        steps += [piece if isinstance(piece, asyncio.Event) else frame(chunk({"content": piece})) for piece in pieces]
        if not cut:
            steps.append(frame(chunk({}, finish)))
            if counts is not None and (asked.json.get("stream_options") or {}).get("include_usage"):
                steps.append(frame({**chunk({}), "choices": [], "usage": counts}))
            if done:
                steps.append(frame("[DONE]"))
        return _packed(steps, "text/event-stream", compressed, cut, hang)

    return answer


def Refuse(  # noqa: N802
    status: int, message: str = "refused", *, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    """Returns an error answer with OpenAI's envelope, or with `body`."""
    content = body if body is not None else orjson.dumps({"error": {"message": message, "type": "x", "code": None}})
    return Answer(
        [content], status=status, headers={"Content-Type": "application/json", **(headers or {})}, framing="length"
    )


def listing(*names: str) -> Answer:
    """Returns the answer to `GET /v1/models` with these names, as from a service whose owner (`owned_by`) shows that it
    has no engine's paths to probe."""
    model = {"object": "model", "created": 1, "owned_by": "system"}
    listed = {"object": "list", "data": [{"id": name, **model} for name in names]}
    return Answer([orjson.dumps(listed)], headers={"Content-Type": "application/json"}, framing="length")


def Raw(*steps: Step, hang: bool = False, reset: bool = False) -> Answer:  # noqa: N802
    """Returns an answer of exactly these bytes instead of HTTP, after which the connection is closed (or reset, or left
    open)."""
    return Answer(raw=steps, hang=hang, reset=reset)


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _packed(steps: Sequence[Step], content_type: str, compressed: bool, cut: bool, hang: bool) -> Answer:
    headers = {"Content-Type": content_type}
    if compressed:
        headers["Content-Encoding"] = "gzip"
        steps = [gzip.compress(b"".join(s for s in steps if isinstance(s, bytes)))]
    return Answer(steps, headers=headers, cut=cut, hang=hang)


@dataclass(slots=True)
class Asked:
    """One request that the server got. `dropped` is set when the client closed the connection before the answer's
    end."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    dropped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        """The parsed body; an empty object if there is none."""
        return orjson.loads(self.body) if self.body else {}


Script = Answer | Callable[[Asked], Answer]


async def close_server(server: asyncio.Server) -> None:
    """Closes a server of the running event loop after the connections that it has accepted have reached it: asyncio
    leaves a connection open that reaches a closed server."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening)
    for _ in range(TAKING):
        await asyncio.sleep(0)
    server.close()


class Upstream:
    """A model server on a free loopback port, written on raw sockets so that it can break any rule.

    `connections` counts all its connections, `open` those still open. `POST` requests are stored in `requests` and
    answered by the turns of `script` in order; the last one repeats. `GET` requests, with which the gateway identifies
    a server, are stored in `looks` and answered by `pages` for their path, else by `listing`, by default a list with
    the models `m` and `n`. An asynchronous context manager.
    """

    def __init__(self, script: Sequence[Script] = ()) -> None:
        self.script: list[Script] = list(script)
        self.listing: Script = listing("m", "n")
        self.pages: dict[str, Script] = {}
        self.requests: list[Asked] = []
        self.looks: list[Asked] = []
        self.connections = 0
        self.open = 0
        self.arrived = asyncio.Semaphore(0)
        self._server: asyncio.Server | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        await close_server(self._server)
        await cancel_all(self._running)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # lets the loop close its transports

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Its base URL, without `/v1`."""
        return f"http://127.0.0.1:{self.port}"

    async def next_request(self) -> Asked:
        """Waits until one more `POST` request has arrived and returns the newest one."""
        await self.arrived.acquire()
        return self.posts[-1]

    @property
    def posts(self) -> list[Asked]:
        """The `POST` requests so far."""
        return [asked for asked in self.requests if asked.method == "POST"]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine function: asyncio would log the cancellation of its task as an unhandled error.
        self.connections += 1
        self.open += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, self.connections))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: writer.close())  # also if the task was cancelled before it began

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        try:
            while (asked := await _read_request(reader, number)) is not None:
                (self.looks if asked.method == "GET" else self.requests).append(asked)
                if asked.method == "POST":
                    self.arrived.release()
                if not await self._answer(asked, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client closed the connection; `dropped` is set
        finally:
            self.open -= 1
            writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Plays one turn while watching for the client to disconnect. Returns True if the connection can be reused."""
        turn = self._turn(asked)
        if turn.reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing means a reset
        playing = asyncio.ensure_future(_play(turn, writer))
        # a client waiting for its answer sends nothing, so a read that returns means it closed
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({playing, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() and not playing.done():
                asked.dropped.set()
            return await playing if playing.done() else False
        except ConnectionError:
            asked.dropped.set()
            return False
        finally:
            for task in (playing, gone):
                task.cancel()
            await asyncio.gather(playing, gone, return_exceptions=True)

    def _turn(self, asked: Asked) -> Answer:
        turn = self.pages.get(asked.path, self.listing) if asked.method == "GET" else self.script[0]
        if asked.method != "GET" and len(self.script) > 1:
            del self.script[0]
        return turn(asked) if callable(turn) else turn


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body, connection)


async def _play(turn: Answer, writer: asyncio.StreamWriter) -> bool:
    """Writes one answer. Returns True if the connection can be reused."""
    if turn.wait is not None:
        await turn.wait.wait()
    if turn.raw is not None:
        await _write(turn.raw, writer, bytes)
        await _hang(turn)
        return False
    headers = dict(turn.headers)
    if turn.framing == "chunked":
        headers["Transfer-Encoding"] = "chunked"
    elif turn.framing == "length":
        headers["Content-Length"] = str(sum(len(s) for s in turn.steps if isinstance(s, bytes)))
    lines = [f"HTTP/1.1 {turn.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    wrap = _chunked if turn.framing == "chunked" else bytes
    await _write(turn.steps, writer, wrap)
    await _hang(turn)
    if turn.cut:
        return False
    if turn.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return turn.framing != "close"


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _write(steps: Sequence[Step], writer: asyncio.StreamWriter, wrap: Callable[[bytes], bytes]) -> None:
    for step in steps:
        if isinstance(step, asyncio.Event):
            await step.wait()
        else:
            writer.write(wrap(step))
            await writer.drain()


async def _hang(turn: Answer) -> None:
    if turn.hang:
        await asyncio.Event().wait()
