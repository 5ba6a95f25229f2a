"""A backend whose answers are no bytes: JSON-RPC over a pipe that all requests share. Its source is `EventSource`, and
nothing else.

Every answer goes over real sockets to real clients of both protocols, streamed and not.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestServer

from tests.cases import first_and_in_turn
from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, function, post, read_config, serving
from tests.waiting import GUARD_S
from toolwire.config import BackendConfig, BreakerConfig, RetryConfig
from toolwire.errors import BackendFault, ClientFault, GatewayError
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold
from toolwire.model import Message, ModelReply, ModelRequest, Text, Usage
from toolwire.pipeline.answers.reply import Reply
from toolwire.record import AccessRecord, BackendObserver
from toolwire.registry import registries
from toolwire.testing import WireAnswer
from toolwire.upstream.pool.attempts import Attempts
from toolwire.upstream.pool.server import UpstreamServer
from toolwire.upstream.pool.server_pool import ServerPool, WeightedServer
from toolwire.upstream.servers.base import Backend, Capabilities, EventSource, WireSource
from toolwire.upstream.servers.private_data import PrivateData

RESPONSES = "/v1/responses"
QUICK = {"backoff_s": 0.001, "attempts": 2}
SECRET = "the-key-of-the-rpc-server"

WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
CLIENTS = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])

Steps = Sequence[Any]
"""What the model's process does with a turn: a text is said, a mapping is sent as it is, an event is waited for. Then
it is over, unless the last step says so itself."""
HANG: dict[str, Any] = {}
REFUSED = {"error": {"code": -32001, "message": "Server overloaded; retry later."}}
WRONG = {"error": {"code": -32602, "message": "Invalid params."}}
BROKEN = {"method": "failed", "params": {"message": f"The process died, and said {SECRET}."}}
CUT = {"method": "cut", "params": {}}
"""The answer is over, and has no end."""


class Process:
    """The other end of the pipe: lines of JSON in, lines of JSON out, turns at the same time."""

    def __init__(self, *script: Steps) -> None:
        self.script = list(script)
        self.prompts: list[str] = []
        self.cancelled: list[int] = []
        self.news = asyncio.Event()
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        """What it writes."""
        self._turns: dict[int, asyncio.Task[None]] = {}

    def write(self, line: bytes) -> None:
        """Take a line."""
        said = orjson.loads(line)
        if said["method"] == "cancel":
            self.cancelled.append(said["params"]["turn"])
            self._turns[said["params"]["turn"]].cancel()
        else:
            self.prompts.append(said["params"]["prompt"])
            steps = self.script.pop(0) if self.script else ["ok"]
            self._turns[said["id"]] = asyncio.create_task(self._play(said["id"], steps))
        self.news.set()

    async def _play(self, turn: int, steps: Steps) -> None:
        if not (steps and isinstance(steps[0], dict) and "error" in steps[0]):
            self._say({"id": turn, "result": {}})
        for step in steps:
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, str):
                self._say({"method": "text", "params": {"turn": turn, "text": step}})
            elif "error" in step:
                self._say({"id": turn, **step})
                return
            elif not step:
                await asyncio.Event().wait()
            else:
                self._say({**step, "params": {"turn": turn, **step["params"]}})
        self._say({"method": "done", "params": {"turn": turn, "read": 7, "written": 5}})

    def _say(self, value: Mapping[str, Any]) -> None:
        self.lines.put_nowait(orjson.dumps(value))

    async def until(self, test: Callable[[], bool]) -> None:
        """Wait until it was told something."""
        async with asyncio.timeout(GUARD_S):
            while not test():
                self.news.clear()
                await self.news.wait()

    async def stop(self) -> None:
        for task in self._turns.values():
            task.cancel()
        await asyncio.gather(*self._turns.values(), return_exceptions=True)


class RpcBackend(Backend):
    """The gateway's end. `raises`: what breaks is raised, not given as a `Fault`."""

    def __init__(self, name: str, process: Process, *, raises: bool = False) -> None:
        self.name = name
        self.capabilities = Capabilities()
        self.private = PrivateData(secrets=(SECRET,))
        self.raises = raises
        self.process = process
        self.open_turns: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        await self.process.stop()

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> EventSource:
        assert body is None, "there is no wire form"
        turn = next(self._numbers)
        said = self.open_turns[turn] = asyncio.Queue()
        prompt = "\n".join(message.text for message in request.messages)
        self.process.write(orjson.dumps({"id": turn, "method": "turn", "params": {"prompt": prompt}}))
        source = RpcSource(self, turn, said, request.model)
        answer = await said.get()
        if "error" in answer:
            await source.close()
            error = answer["error"]
            if error["code"] == -32001:
                raise BackendFault(error["message"], code="upstream_error", transient=True)
            raise ClientFault(error["message"], code="upstream_rejected", upstream_status=400)
        return source

    async def ready(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def _read(self) -> None:
        while True:
            said = orjson.loads(await self.process.lines.get())
            turn = said["id"] if "id" in said else said["params"]["turn"]
            if turn in self.open_turns:
                self.open_turns[turn].put_nowait(said)


class RpcSource(EventSource):
    """One answer: two methods, and `reply` is there."""

    def __init__(self, backend: RpcBackend, turn: int, said: asyncio.Queue[dict[str, Any]], model: str) -> None:
        self._backend = backend
        self._turn = turn
        self._said = said
        self._model = model
        self._over = False

    async def batches(self) -> AsyncIterator[list[Event]]:
        yield [Start(f"turn{self._turn}", self._model, 1)]
        opened = False
        while True:
            said = await self._said.get()
            params = said["params"]
            match said["method"]:
                case "text":
                    yield [Delta(0, params["text"])] if opened else [Open(0, BlockKind.TEXT), Delta(0, params["text"])]
                    opened = True
                case "done":
                    self._over = True
                    yield [Close(0), Finish("stop", Usage(params["read"], params["written"]))]
                    return
                case "cut":
                    self._over = True
                    return
                case _:
                    self._over = True
                    fault = BackendFault(params["message"], code="upstream_disconnected", transient=True)
                    if self._backend.raises:
                        raise fault
                    yield [Fault(fault)]
                    return

    async def close(self) -> None:
        if self._backend.open_turns.pop(self._turn, None) is not None and not self._over:
            self._backend.process.write(orjson.dumps({"method": "cancel", "params": {"turn": self._turn}}))


@asynccontextmanager
async def gateway(*processes: Process, raises: bool = False, **options: Any) -> AsyncIterator[TestServer]:
    """A gateway with a route to the first process, and the others as its fallback. `options` are the route's."""
    plugins = registries()
    names = [f"rpc{number}" for number in range(len(processes))]
    known = dict(zip(names, processes, strict=True))
    plugins.backends.register("rpc", lambda name, config, limits: RpcBackend(name, known[name], raises=raises))
    route = {"model": "m", "backend": names[0], "fallback": names[1:]}
    options.setdefault("format", "sentinel")
    config = read_config({"backends": {n: {"kind": "rpc"} for n in names}, "defaults": options, "routes": [route]})
    async with serving(config, plugins) as server:
        yield server


def ask(path: str, *, stream: bool, tools: bool = False) -> dict[str, Any]:
    tool = function("read_file", path="string")
    if path == CHAT:
        return {"messages": USER, "stream": stream, **({"tools": [tool]} if tools else {})}
    flat = {"type": "function", "strict": False, **tool["function"]}
    return {"input": "hi", "stream": stream, **({"tools": [flat]} if tools else {})}


def said_in(answer: WireAnswer, path: str, *, stream: bool) -> tuple[str, list[tuple[str, Any]], Any]:
    """The text, the calls with their arguments, and the number of tokens written, for a client of `path`."""
    assert answer.status == 200, answer.body
    if path == RESPONSES:
        response = answer.frames()[-1]["response"] if stream else answer.json()
        assert response["status"] == "completed"
        texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
        calls = [i for i in response["output"] if i["type"] == "function_call"]
        return "".join(texts), [(c["name"], orjson.loads(c["arguments"])) for c in calls], response["usage"]
    if not stream:
        message = answer.json()["choices"][0]["message"]
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        return message["content"] or "", [(c["name"], orjson.loads(c["arguments"])) for c in calls], None
    *chunks, done = answer.frames()
    assert done == "[DONE]"
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert [delta["role"] for delta in deltas if "role" in delta] == ["assistant"], "one answer"
    pieces = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    arguments = "".join(piece.get("arguments", "") for piece in pieces)
    names = [piece["name"] for piece in pieces if piece.get("name")]
    text = "".join(delta.get("content") or "" for delta in deltas)
    return text, [(name, orjson.loads(arguments)) for name in names], None


# --- the interface --------------------------------------------------------------------------------------------------


def test_three_methods_are_all() -> None:
    assert {name for name in vars(EventSource) if not name.startswith("_")} == {"batches", "reply", "close"}
    assert not isinstance(Reply.of(ModelReply("r", "m", 1, ())).source, WireSource)

    class Half(EventSource):
        async def close(self) -> None: ...

    with pytest.raises(TypeError, match="batches"):
        Half()  # type: ignore[abstract]


# --- what clients get -----------------------------------------------------------------------------------------------


@CLIENTS
@WAYS
async def test_text_and_calls_in_it(path: str, stream: bool) -> None:
    process = Process(["Reading. ", *block("read_file", {"path": "a.txt"})])
    async with gateway(process) as server:
        answer = await post(server, ask(path, stream=stream, tools=True), path=path)
    text, calls, usage = said_in(answer, path, stream=stream)
    assert text.strip() == "Reading."
    assert calls == [("read_file", {"path": "a.txt"})]
    assert path == CHAT or (usage["input_tokens"], usage["output_tokens"]) == (7, 5)
    assert '"read_file"' in process.prompts[0], "it was taught the tool"


# --- tries ----------------------------------------------------------------------------------------------------------


PAIRS = [(CHAT, False, False), (CHAT, True, True), (RESPONSES, False, True), (RESPONSES, True, False)]
"""The path, whether it is streamed, and whether what breaks is raised."""
TRIES: dict[str, tuple[list[Steps], int, str, int]] = {  # the script, status, text or error, number of tries
    "refused": ([[REFUSED], ["Hello"]], 200, "Hello", 2),
    "broken": ([[BROKEN], ["Hello"]], 200, "Hello", 2),
    "cut": ([[CUT], ["Hello"]], 200, "Hello", 2),
    "the client's fault is not asked again": ([[WRONG], ["Hello"]], 400, "Invalid params.", 1),
    "the last try is what the client hears of": ([[BROKEN], [BROKEN], ["Hello"]], 502, "upstream_disconnected", 2),
}


async def test_asked_again_while_nothing_was_said() -> None:
    for (path, stream, raises), name in first_and_in_turn(PAIRS, TRIES):
        script, status, told, tries = TRIES[name]
        process = Process(*script)
        async with gateway(process, raises=raises, retry=QUICK) as server:
            answer = await post(server, ask(path, stream=stream), path=path)
        assert (answer.status, len(process.prompts)) == (status, tries), name
        if status == 200:
            assert said_in(answer, path, stream=stream)[0] == told, name
        else:
            assert told in (answer.json()["error"]["message"], answer.json()["error"]["code"]), name
        assert SECRET.encode() not in answer.body


async def test_another_backend_is_asked() -> None:
    one, two = Process([REFUSED], [REFUSED]), Process(["Hello"])
    async with gateway(one, two, retry={**QUICK, "attempts": 1}) as server:
        answer = await post(server, ask(CHAT, stream=True))
    assert said_in(answer, CHAT, stream=True)[0] == "Hello"
    assert (len(one.prompts), len(two.prompts)) == (1, 1)


# --- what breaks off ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "end", "raises"), [(CHAT, BROKEN, False), (RESPONSES, BROKEN, True), (RESPONSES, CUT, False)]
)
async def test_a_stream_that_breaks_off_says_so_in_its_words(path: str, end: Any, raises: bool) -> None:
    process = Process(["Half an ", end], ["Hello"])
    async with gateway(process, raises=raises, retry=QUICK) as server:
        answer = await post(server, ask(path, stream=True), path=path)
    assert answer.status == 200
    assert b"Half an" in answer.body
    frames = answer.frames()
    if path == CHAT:
        assert frames[-2]["error"]["code"] == "upstream_disconnected"
        assert frames[-1] == "[DONE]"
    else:
        assert frames[-1]["type"] == "response.failed"
    assert SECRET.encode() not in answer.body
    assert len(process.prompts) == 1, "what has begun is never begun again"


@pytest.mark.parametrize(("path", "stream"), [(CHAT, False), (RESPONSES, True)])
async def test_a_client_that_leaves_cancels_the_turn(path: str, stream: bool) -> None:
    process = Process(["Hello", HANG])
    body = {"model": "m", **ask(path, stream=stream)}
    async with gateway(process) as server, aiohttp.ClientSession() as session:

        async def client() -> None:
            async with session.post(server.make_url(path), json=body) as response:
                await response.read()

        asking = asyncio.create_task(client())
        await process.until(lambda: bool(process.prompts))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await process.until(lambda: process.cancelled == [0])
        answer = await post(server, ask(path, stream=stream), path=path)
        assert said_in(answer, path, stream=stream)[0] == "ok", "the pipe goes on"
    assert process.cancelled == [0], "an answer that ended is not cancelled"


# --- what is known afterwards ---------------------------------------------------------------------------------------


class Duck:
    """A source that inherits from nothing."""

    def __init__(self, events: list[list[Event]]) -> None:
        self.events = events
        self.closed = 0

    async def batches(self) -> AsyncIterator[list[Event]]:
        for batch in self.events:
            yield batch

    async def reply(self) -> ModelReply:
        return fold([event for batch in self.events for event in batch])

    async def close(self) -> None:
        self.closed += 1


class DuckBackend(RpcBackend):
    def __init__(self, *answers: list[list[Event]]) -> None:
        super().__init__("duck", Process())
        self.sources = [Duck(answer) for answer in answers]
        self._left = iter(self.sources)

    async def open(self, request: ModelRequest, **more: Any) -> EventSource:
        return next(self._left)


LOST: GatewayError = BackendFault("lost", code="upstream_disconnected", transient=True)
START = Start("r", "m", 1)
TEXT: list[Event] = [Open(0, BlockKind.TEXT), Delta(0, "x")]
END: list[Event] = [Close(0), Finish("stop", None)]


def attempts(backend: Backend) -> tuple[Attempts, UpstreamServer]:
    """With a breaker that opens at the first failure."""
    endpoint = UpstreamServer("s", backend, BackendConfig(breaker=BreakerConfig(failures=1)))
    request = ModelRequest("m", (Message("user", (Text("hi"),)),), stream=True)
    retry = RetryConfig(backoff_s=0.0, attempts=3)
    endpoints = ServerPool([WeightedServer(endpoint), WeightedServer(UpstreamServer("t", backend, BackendConfig()))])
    return Attempts(endpoints, retry, lambda m: (request, None), record=AccessRecord(), request_id="r"), endpoint


@pytest.mark.parametrize(
    "first",
    [
        [],
        [[]],
        [[START]],
        [[Fault(LOST)]],
        [[START, Fault(LOST)]],
        [[START], [START, START], [Fault(LOST)]],
    ],
)
async def test_nothing_of_a_try_that_said_nothing_is_shown(first: list[list[Event]]) -> None:
    backend = DuckBackend(first, [[START, *TEXT], [], END])
    source, _ = attempts(backend)
    await source.open()
    assert [batch async for batch in source.batches() if batch] == [[START, *TEXT], END]
    await source.close()
    assert [duck.closed for duck in backend.sources] == [1, 1]


@pytest.mark.parametrize("end", [[[Fault(LOST)]], [[Close(0), Fault(LOST)]], []], ids=["fault", "behind", "cut"])
async def test_a_stream_that_breaks_off_is_the_servers_failure(end: list[list[Event]]) -> None:
    """As it is where the answer comes as bytes."""
    backend = DuckBackend([[START, *TEXT], *end])
    source, endpoint = attempts(backend)
    await source.open()
    events = [event async for batch in source.batches() for event in batch]
    assert events[:3] == [START, *TEXT]
    assert isinstance(events[-1], Fault)
    await source.close()
    assert endpoint.breaker.state == "open"


async def test_what_comes_behind_the_end_is_not_read() -> None:
    backend = DuckBackend([[START, *TEXT], END, [Fault(LOST)]])
    source, endpoint = attempts(backend)
    await source.open()
    assert [type(e) for batch in [b async for b in source.batches()] for e in batch][-1] is Finish
    await source.close()
    assert endpoint.breaker.state == "closed"
