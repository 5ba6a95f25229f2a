"""Hostile requests and answers against a real gateway: `python -m bench.attacks`, or `-k NAME` for some of them.

Each attack runs against a `toolwire serve` of its own, before a scripted model server in another process. A watcher in
a third process asks `/health` of the gateway every few milliseconds, and `/health` of an idle gateway beside it, which is
the baseline: the same process on the same machine without an attack. The table shows for each attack:

- `sent`, `answered`: bytes of the requests, and of the model server's answers;
- `hold`: the longest that `/health` took, in ms, and the same of the idle gateway (`idle`);
- `peak`: memory above rest at its highest, per byte sent and answered;
- `kept`: memory above rest after everything was answered, in MB.

`hold` is a wall clock: a busy machine shows in `idle` as well. Exit status 1 if a hold is beyond 50 ms more than `idle`,
a peak beyond 20 bytes per byte and the budgets of a worker together, or memory that is kept beyond the budget of the caches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import aiohttp

ROOT: Final = Path(__file__).resolve().parents[1]
KEY: Final = "attacker"
HOLD_MS: Final = 50.0
BYTES_PER_BYTE: Final = 20
BUDGETS_MB: Final = 400
"""Bytes of arriving bodies and the caches of a worker together, by default."""
KEPT_MB: Final = 128
"""Caches and stored responses of a worker, by default."""
POLL_S: Final = 0.002

Body = bytes
Headers = dict[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` may hold `{ID}`: the id of the response that was made last. `slow_s`: the body is sent in two
    halves with this pause between them. `unread`: the answer is left in the socket for so many seconds."""

    path: str
    body: Body | None
    headers: Headers = field(default_factory=dict)
    method: str = "POST"
    slow_s: float = 0.0
    unread_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Attack:
    """`before` is sent one after the other and not measured; then `requests`, `at_once` at a time. `answer` is what the model
    server sends: the whole body, or the frames of a stream."""

    name: str
    requests: Callable[[], Iterator[Request]]
    before: Callable[[], Iterator[Request]] = lambda: iter(())
    answer: Callable[[], bytes] | None = None
    at_once: int = 1
    config: dict[str, Any] = field(default_factory=dict)


# --- bodies ---------------------------------------------------------------------------------------------------------


def dump(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def chat(text: str = "hi", **more: object) -> bytes:
    """A Chat request."""
    return dump({"model": "m", "messages": [{"role": "user", "content": text}], **more})


def function(name: str, parameters: object, description: str = "") -> dict[str, Any]:
    """A Chat tool."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def completion(content: str, **choice: object) -> bytes:
    """A whole Chat answer."""
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", **choice}]
    return dump({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})


def reply(body: bytes, kind: str = "application/json") -> bytes:
    """A whole HTTP answer."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind.encode(), len(body), body)


def stream(*contents: str) -> bytes:
    """A streamed Chat answer."""
    chunks = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in contents]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    frames = [
        b"data: %b\n\n" % dump({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [c]})
        for c in chunks
    ]
    return reply(b"".join(frames) + b"data: [DONE]\n\n", "text/event-stream")


SIMPLE: Final = function("look_up", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})


def _patterns(path: str, bad: bool = False) -> Iterator[Request]:
    for turn in range(28):
        tools = []
        for tool in range(64):
            number = turn * 64 + tool
            properties = {
                f"p{place}": {"type": "string", "pattern": f"^(a{{1,300}}|b{{1,300}}|r{number}i{place})$"}
                for place in range(32)
            }
            tools.append(function(f"tool_{tool}", {"type": "object", "properties": properties}))
        choice = {"tool_choice": {"type": "function", "function": {"name": "nowhere"}}} if bad else {}
        if "messages" in path:
            tools = [
                {"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in tools
            ]
            yield Request(path, dump({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools}))
        else:
            yield Request(path, chat(tools=tools, **choice))


def _classes() -> Iterator[Request]:
    for turn in range(12):
        tools = [
            function(
                f"tool_{tool}",
                {
                    "type": "object",
                    "properties": {
                        f"p{place}": {"type": "string", "pattern": rf"^\w{{1,60}}[\p{{L}}\d]{{1,40}}x{turn * 64 + tool}$"}
                        for place in range(32)
                    },
                },
            )
            for tool in range(64)
        ]
        yield Request("/v1/chat/completions", chat(tools=tools))


def _enums() -> Iterator[Request]:
    tools = [
        function(f"t{n}", {"type": "object", "properties": {"e": {"enum": [f"value {n} {m}" for m in range(9000)]}}})
        for n in range(4)
    ]
    for turn in range(3):
        yield Request("/v1/chat/completions", chat(f"hi {turn}", tools=tools, tool_choice="required"))


def _stored(size: int, count: int = 1) -> Iterator[Request]:
    for turn in range(count):
        text = f"{turn} " + "word " * (size // 5)
        body = {"model": "m", "input": [{"type": "message", "role": "user", "content": text}]}
        if turn:
            body["previous_response_id"] = "{ID}"
        yield Request("/v1/responses", dump(body))


def _follow(extra: object = None, times: int = 1) -> Iterator[Request]:
    for _ in range(times):
        body = {"model": "m", "previous_response_id": "{ID}", "input": extra or "go on"}
        yield Request("/v1/responses", dump(body))


def _references(times: int) -> Iterator[Request]:
    items: list[object] = [{"type": "item_reference", "id": "{ITEM}"}] * times
    yield Request("/v1/responses", dump({"model": "m", "input": items}))


def _paths(path: str, times: int) -> Iterator[Request]:
    for _ in range(times):
        yield Request(path, None, method="GET")


def _one(body: bytes, path: str = "/v1/chat/completions", times: int = 1, **more: Any) -> Iterator[Request]:
    for _ in range(times):
        yield Request(path, body, **more)


def _many_messages(count: int, calls: bool = False) -> bytes:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for place in range(count):
        if calls:
            call = {"id": f"call_{place}", "type": "function", "function": {"name": "look_up", "arguments": '{"q":"x"}'}}
            messages += {"role": "assistant", "content": None, "tool_calls": [call]}, {
                "role": "tool",
                "tool_call_id": f"call_{place}",
                "content": "ok",
            }
        else:
            messages.append({"role": ("assistant", "user")[place % 2], "content": f"message {place}"})
    if calls:
        messages.append({"role": "user", "content": "and?"})
    return dump({"model": "m", "messages": messages, "tools": [SIMPLE]})


def _embeddings() -> bytes:
    rows = ",".join(["0.0123456789"] * 6_000_000).encode()
    return reply(b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[%b]}]}' % rows)


WATCHED: Final = {"capture": 20, "inspect": True, "chain": None}
NEAR_MISS: Final = '<tool_call>\n{"name": "look_up", "arguments": {"q": "%s"}\n'
STORE: Final = {"store": {"kind": "memory"}}
GUARD: Final = {"defaults": {"tool_loop": {"max_iterations": 2}}}

ATTACKS: Final = (
    Attack("nothing", lambda: _one(chat(tools=[SIMPLE]), times=50)),
    Attack("patterns of schemas", lambda: _patterns("/v1/chat/completions")),
    Attack("patterns, refused with 400", lambda: _patterns("/v1/chat/completions", bad=True)),
    Attack("patterns, count_tokens", lambda: _patterns("/v1/messages/count_tokens")),
    Attack("patterns of Unicode classes", _classes),
    Attack("enums of 619 kB, required", _enums),
    Attack("a description of 31 MB", lambda: _one(chat(tools=[function("f", {"type": "object"}, "word " * 6_200_000)]))),
    Attack("item_reference x 500", lambda: _references(500), before=lambda: _stored(1_000_000), config=STORE),
    Attack("item_reference x 2000", lambda: _references(2000), before=lambda: _stored(1_000_000), config=STORE),
    Attack("a chain of 10 x 6 MB", lambda: _follow(), before=lambda: _stored(6_000_000, 10), config=STORE),
    Attack("a follow-up of 8 MB", lambda: _follow(), before=lambda: _stored(8_000_000), config=STORE),
    Attack(
        "input_items of 30 MB x 20",
        lambda: _paths("/v1/responses/{ID}/input_items", 20),
        before=lambda: _stored(30_000_000),
        at_once=20,
        config=STORE,
    ),
    Attack("eyJ x 20,000 in a message", lambda: _one(chat("eyJ" * 20_000)), config=WATCHED),
    Attack("eyJ x 100,000 in a message", lambda: _one(chat("eyJ" * 100_000)), config=WATCHED),
    Attack(
        "eyJ x 18,000 in User-Agent",
        lambda: _one(chat(), headers={"User-Agent": "eyJ" * 18_000}),
        config=WATCHED,
    ),
    Attack('":\\n\\n" x 21,000 in an answer', lambda: _one(chat(tools=[SIMPLE])), answer=lambda: reply(completion('":\n\n"' * 21_000))),
    Attack(
        "[] x 5 million in an answer",
        lambda: _one(chat(tools=[SIMPLE])),
        answer=lambda: reply(completion("hi", x=[])[:-1] + b',"x":[%b]}' % b",".join([b"[]"] * 5_300_000)),
    ),
    Attack(
        "[] x 2.5 million in a frame",
        lambda: _one(chat(tools=[SIMPLE], stream=True)),
        answer=lambda: reply(b'data: {"choices":[],"x":[%b]}\n\n' % b",".join([b"[]"] * 2_500_000), "text/event-stream"),
    ),
    Attack(
        "logprobs of 6.8 MB",
        lambda: _one(chat(tools=[SIMPLE], logprobs=True, top_logprobs=5), times=3),
        answer=lambda: reply(
            completion(
                "word " * 20_000,
                logprobs={
                    "content": [
                        {
                            "token": "word ",
                            "logprob": -0.1,
                            "bytes": [1, 2, 3],
                            "top_logprobs": [{"token": "word", "logprob": -0.25, "bytes": [1, 2]}] * 5,
                        }
                        for _ in range(20_000)
                    ]
                },
            )
        ),
    ),
    Attack(
        "a list of models of 7 MB",
        lambda: _paths("/v1/models", 10),
        answer=lambda: reply(dump({"object": "list", "data": [{"id": f"model-{n}", "object": "model"} for n in range(150_000)]})),
    ),
    Attack(
        "a near miss of 1 MB",
        lambda: _one(chat(tools=[SIMPLE])),
        answer=lambda: reply(completion(NEAR_MISS % ("<tool_call>" * 90_000))),
    ),
    Attack(
        "a near miss of 8 MB",
        lambda: _one(chat(tools=[SIMPLE])),
        answer=lambda: reply(completion(NEAR_MISS % ("<tool_call>" * 720_000))),
    ),
    Attack(
        "check of 30 MB in the inspector",
        lambda: _one(b'{"path":"/v1/chat/completions","body":' + chat("[" * 30_000_000) + b"}", "/inspect/api/check", 2),
        config=WATCHED,
        at_once=2,
    ),
    Attack(
        "view of 30 MB in the inspector",
        lambda: _one(b'{"a":[%b]}' % b",".join([b"[]"] * 10_000_000), "/inspect/api/view", 2),
        config=WATCHED,
        at_once=2,
    ),
    Attack("400 bodies of 3.9 MB at once", lambda: _one(chat("x" * 3_900_000), times=400, slow_s=4), at_once=400),
    Attack(
        "8 unread embeddings",
        lambda: _one(dump({"model": "m", "input": "x"}), "/v1/embeddings", 8, unread_s=4),
        answer=_embeddings,
        at_once=8,
    ),
    Attack(
        "count_tokens of 30 MB",
        lambda: _one(dump({"model": "m", "messages": [{"role": "user", "content": "word " * 6_000_000}]}), "/v1/messages/count_tokens", 2),
    ),
    Attack("10 x 33,000 messages", lambda: _one(_many_messages(33_000), times=10), at_once=10),
    Attack("6,000 calls", lambda: _one(_many_messages(6_000, calls=True), times=3)),
    Attack(
        "calls with deep arguments",
        lambda: _one(chat(tools=[function("look_up", {"type": "object"})]), times=3),
        answer=lambda: reply(completion('<tool_call>\n{"name": "look_up", "arguments": {"q": [%s]}}\n</tool_call>' % ",".join(["[]"] * 300_000))),
    ),
    Attack("streams of brackets", lambda: _one(chat(tools=[SIMPLE], stream=True)), answer=lambda: stream(*["[{<tool_call" * 400] * 400)),
)


# --- processes beside -----------------------------------------------------------------------------------------------


def model_server(ready: Connection, answer: bytes) -> None:
    """Send `answer` for every request, for ever; the port goes to `ready`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if length:
                    await _drop(reader, int(length[1]))
                elif re.search(rb"(?i)transfer-encoding: chunked", head):
                    while size := int(await reader.readline(), 16):
                        await _drop(reader, size + 2)
                    await reader.readline()
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def _drop(reader: asyncio.StreamReader, size: int) -> None:
    while size:
        size -= len(await reader.read(min(size, 1 << 20)) or b" " * size)


def watcher(line: Connection, ports: Sequence[int]) -> None:
    """Ask `/health` of each port again and again. On each message from `line` send the longest waits so far, in seconds, and begin
    anew; None ends it."""

    async def poll(port: int, worst: list[float], place: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            begin = time.perf_counter()
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            worst[place] = max(worst[place], time.perf_counter() - begin)
            await asyncio.sleep(POLL_S)

    async def main() -> None:
        worst = [0.0] * len(ports)
        polls = [asyncio.create_task(poll(port, worst, place)) for place, port in enumerate(ports)]
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, line.recv) is not None:
            line.send(list(worst))
            worst[:] = [0.0] * len(ports)
        for task in polls:
            task.cancel()

    asyncio.run(main())


class Gateway:
    """A running `toolwire serve`."""

    def __init__(self, folder: str, upstream: int, config: dict[str, Any]) -> None:
        whole = {
            "server": {"port": 0, "log_level": "error"},
            "auth": {"keys": [{"key": KEY, "admin": True}]},
            "backends": {"up": {"url": f"http://127.0.0.1:{upstream}/v1", "preset": "generic"}},
            **{key: value for key, value in config.items() if value is not None},
        }
        path = Path(folder, "gateway.yaml")
        path.write_text(json.dumps(whole))
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout is not None
        found = None
        while found is None and (line := self.process.stdout.readline()):
            found = re.search(r"http://[\d.:]+:(\d+)", line)
        assert found, "the gateway did not start"
        self.port = int(found[1])

    def memory(self, what: str) -> int:
        """`VmRSS` or `VmHWM`, in bytes."""
        found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024

    def reset_peak(self) -> None:
        """Let `VmHWM` begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


# --- one attack -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sender:
    """Sends requests, and remembers the ids that answers have."""

    session: aiohttp.ClientSession
    url: str
    response_id: str = ""
    item_id: str = ""
    sent: int = 0
    statuses: dict[int, int] = field(default_factory=dict)

    async def send(self, request: Request) -> None:
        """Send it, and read its answer."""
        path = request.path.replace("{ID}", self.response_id)
        body = request.body
        if body is not None:
            body = body.replace(b"{ID}", self.response_id.encode()).replace(b"{ITEM}", self.item_id.encode())
            self.sent += len(body)
        data: Any = body
        if body is not None and request.slow_s:
            data = self._halves(body, request.slow_s)
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **request.headers}
        try:
            async with self.session.request(request.method, self.url + path, data=data, headers=headers) as response:
                if request.unread_s:
                    await asyncio.sleep(request.unread_s)
                    return self._count(response.status)
                text = await response.read()
                self._count(response.status)
            if path == "/v1/responses" and response.status == 200:
                self.response_id = json.loads(text)["id"]
                async with self.session.get(
                    f"{self.url}/v1/responses/{self.response_id}/input_items", headers=headers
                ) as listed:
                    if listed.status == 200:
                        self.item_id = json.loads(await listed.read())["data"][0]["id"]
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            self._count(0)

    def _count(self, status: int) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1

    async def _halves(self, body: bytes, pause_s: float) -> Any:
        half = len(body) // 2
        yield body[:half]
        await asyncio.sleep(pause_s)
        yield body[half:]


async def run(attack: Attack, gateway: Gateway, line: Connection, answered: int) -> bool:
    """Run one attack and print its row; whether every bound held."""
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"max_line_size": 1 << 20, "max_field_size": 1 << 20}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, **headers) as session:  # type: ignore[arg-type]
        sender = Sender(session, f"http://127.0.0.1:{gateway.port}")
        await sender.send(Request("/v1/chat/completions", chat()))
        for request in attack.before():
            await sender.send(request)
        sender.sent, sender.statuses = 0, {}
        todo = list(attack.requests())
        await asyncio.sleep(0.3)
        rest = gateway.memory("VmRSS")
        gateway.reset_peak()
        _ask(line)
        waiting = iter(todo)

        async def work() -> None:
            for request in waiting:
                await sender.send(request)

        begin = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(attack.at_once)))
        took = time.perf_counter() - begin
        peak = gateway.memory("VmHWM") - rest
        await asyncio.sleep(0.5)
        hold, idle = (worst * 1e3 for worst in _ask(line))
        kept = (gateway.memory("VmRSS") - rest) / 1e6
    bytes_in = max(sender.sent + answered * len(todo), 1)
    allowed = BYTES_PER_BYTE * bytes_in + BUDGETS_MB * 1e6
    held = hold <= idle + HOLD_MS and peak <= allowed and kept <= KEPT_MB
    statuses = " ".join(f"{status}x{count}" for status, count in sorted(sender.statuses.items()))
    print(
        f"{attack.name:32} {sender.sent / 1e6:8.2f} {answered / 1e6:8.2f} {hold:8.0f} {idle:6.0f}"
        f" {peak / 1e6:8.0f} {peak / bytes_in:7.1f} {kept:7.0f} {took:6.1f}  {statuses}{'' if held else '  <-- NOT HELD'}",
        flush=True,
    )
    return held


def _ask(line: Connection) -> list[float]:
    line.send(True)
    worst: list[float] = line.recv()
    return worst


def one(attack: Attack, folder: str, idle: Gateway) -> bool:
    """Start what an attack needs, and run it."""
    context = get_context("spawn")
    answer = attack.answer() if attack.answer else reply(completion("hello"))
    ours, theirs = context.Pipe()
    server = context.Process(target=model_server, args=(theirs, answer), daemon=True)
    server.start()
    gateway = Gateway(folder, ours.recv(), attack.config)
    line, other = context.Pipe()
    watching = context.Process(target=watcher, args=(other, (gateway.port, idle.port)), daemon=True)
    watching.start()
    try:
        time.sleep(0.5)
        return asyncio.run(run(attack, gateway, line, len(answer) if attack.answer else 0))
    finally:
        line.send(None)
        watching.join(5)
        watching.terminate()
        gateway.close()
        server.terminate()
        server.join()


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-k", metavar="NAME", help="only attacks whose name holds this")
    options = parser.parse_args(arguments)
    chosen = [attack for attack in ATTACKS if not options.k or options.k in attack.name]
    print(
        f"{'attack':32} {'sent MB':>8} {'ans. MB':>8} {'hold ms':>8} {'idle':>6} {'peak MB':>8} {'per B':>7} {'kept MB':>7}"
        f" {'s':>6}  statuses"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "idle").mkdir()
        idle = Gateway(f"{folder}/idle", 9, {})
        try:
            held = [one(attack, folder, idle) for attack in chosen]
        finally:
            idle.close()
    print("all bounds held" if all(held) else f"{held.count(False)} of {len(held)} did not hold")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
