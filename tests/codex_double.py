"""A scripted Codex app-server, over pipes (`python codex_double.py SCRIPT LOG`) or a WebSocket (`served`).

The script is a mapping. `turns` are lists of steps, one for each `turn/start`, in order, also across processes; the
last one is played again. A turn that is a mapping `{"when": TEXT, "steps": [...]}` is played for inputs that hold the
text. `refuse`: by method, the errors with which it is answered first. `before`: what is done before anything else.

| Step | What it does |
| --- | --- |
| a text | a delta of the message that is open; of a new one, if none is |
| `{"think": TEXT}` | a delta of thoughts |
| `{"close": true}` | the message ends |
| `{"notify": METHOD, "params": {...}}` | a notification of this thread |
| `{"ask": METHOD, "params": {...}}` | a request of this thread, whose answer is awaited |
| `{"retry": true}` | the model's stream was cut, and begins anew |
| `{"fail": {...}}` | the turn ends with this error |
| `{"usage": {...}}` | counts of the whole thread |
| `{"call": [ID, NAME, ARGUMENTS]}` | a call of a dynamic tool |
| `{"called": true}` | the model's answer with calls is over, with a `usage` or one of its own |
| `{"wait": true}` | until it is interrupted |
| `{"write": TEXT, "times": N}` | bytes as they are |
| `{"huge": N}` | a delta of so many characters |
| `{"complain": TEXT, "times": N}` | lines on standard error |
| `{"die": STATUS}` | the process ends at once |
| `{"sleep": SECONDS}` | it does nothing for a while |
| `{"hang": true}` | nothing is read or written any more |
| `{"quiet": true}` | the turn is over, and nobody says so |

Needs nothing but the standard library, unless it is served.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

FILE = Path(__file__)


class Double:
    """One server. `log`: a file with everything that it is told, a line each."""

    def __init__(self, script: dict[str, Any], log: Path) -> None:
        self.script = script
        self.log = log
        self.refuse = {method: list(errors) for method, errors in script.get("refuse", {}).items()}
        self.numbers = itertools.count(1)
        self.begun = sum(line.get("method") == "turn/start" for line in read(log))

    def told(self, message: dict[str, Any]) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps(message) + "\n")


class Peer:
    """A connection to it. `write` takes a frame."""

    def __init__(self, double: Double, write: Callable[[bytes], None]) -> None:
        self.double = double
        self.write = write
        self.turns: dict[str, asyncio.Task[None]] = {}
        self.answers: dict[int, asyncio.Future[Any]] = {}
        self.shaken = False

    def say(self, **message: Any) -> None:
        self.write(json.dumps(message).encode())

    async def hear(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.double.told(message)
        method, number = message.get("method"), message.get("id")
        if method is None:
            if number in self.answers:
                self.answers.pop(number).set_result(message)
            return
        if number is None:
            return
        errors = self.double.refuse.get(method)
        if errors:
            self.say(id=number, error=errors.pop(0))
            return
        params = message.get("params") or {}
        if method == "initialize":
            self.say(id=number, result={"userAgent": "double/1", "platformOs": "linux"})
            self.shaken = True
        elif not self.shaken:
            self.say(id=number, error={"code": -32600, "message": "Not initialized"})
        elif method == "thread/start":
            thread = f"T{next(self.double.numbers)}-{os.getpid()}"
            self.say(method="thread/started", params={"threadId": thread, "thread": {"id": thread}})
            self.say(id=number, result={"thread": {"id": thread, "ephemeral": True}})
        elif method == "turn/start":
            turn = f"U{next(self.double.numbers)}"
            steps = self.steps(json.dumps(params["input"]))
            play = self.play(params["threadId"], turn, number, steps, params["input"])
            self.turns[turn] = asyncio.create_task(play)
        elif method == "turn/interrupt":
            task = self.turns.get(params["turnId"])
            if task is None or task.done():
                self.say(id=number, error={"code": -32600, "message": "no active turn to interrupt"})
            else:
                task.cancel()
                self.say(id=number, result={})
                self.end(params["threadId"], params["turnId"], "interrupted", None)
        elif method == "thread/inject_items":
            self.say(id=number, result={})
            for item in params["items"]:  # as the real one does, of another turn
                told = {"threadId": params["threadId"], "turnId": "auto-compact-0", "item": item}
                self.say(method="rawResponseItem/completed", params=told)
        elif method == "thread/unsubscribe":
            self.say(id=number, result={})
        else:
            self.say(id=number, error={"code": -32600, "message": f"unknown method {method}"})

    def steps(self, said: str) -> list[Any]:
        turns = self.double.script.get("turns") or [["Hello."]]
        for turn in turns:
            if isinstance(turn, dict) and turn["when"] in said:
                return list(turn["steps"])
        plain = [turn for turn in turns if isinstance(turn, list)]
        number, self.double.begun = self.double.begun, self.double.begun + 1
        return plain[min(number, len(plain) - 1)]

    async def play(self, thread: str, turn: str, number: int, steps: list[Any], asked: Any) -> None:
        ids = {"threadId": thread, "turnId": turn}

        def notify(method: str, **params: Any) -> None:
            self.say(method=method, params={**ids, **params})

        notify("turn/started", turn={"id": turn, "status": "inProgress"})  # may come before the answer
        self.say(id=number, result={"turn": {"id": turn, "items": [], "status": "inProgress"}})
        repeated = {"type": "userMessage", "id": "u", "content": asked}
        for when in ("started", "completed"):
            self.say(method=f"item/{when}", params={"item": repeated, **ids})
        item: dict[str, Any] | None = None
        names = itertools.count(1)

        def close() -> None:
            nonlocal item
            if item is not None:
                notify("item/completed", item=item)
            item = None

        for step in steps:
            if isinstance(step, str):
                if item is None:
                    item = {"type": "agentMessage", "id": f"msg_{next(names)}", "text": ""}
                    notify("item/started", item=dict(item))
                item["text"] += step
                notify("item/agentMessage/delta", itemId=item["id"], delta=step)
            elif "think" in step:
                notify("item/reasoning/textDelta", itemId="rs_1", delta=step["think"], contentIndex=0)
            elif "close" in step:
                close()
            elif "notify" in step:
                notify(step["notify"], **step.get("params", {}))
            elif "ask" in step:
                await self.ask(step["ask"], {**ids, **step.get("params", {})})
            elif "retry" in step:
                item = None
                error = {"message": "Reconnecting... 1/5", "codexErrorInfo": {"responseStreamDisconnected": {}}}
                notify("error", error=error, willRetry=True)
            elif "fail" in step:
                notify("error", error=step["fail"], willRetry=False)
                self.end(thread, turn, "failed", step["fail"])
                return
            elif "usage" in step and "called" not in step:
                notify("thread/tokenUsage/updated", tokenUsage={"total": step["usage"], "last": step["usage"]})
            elif "call" in step:
                ident, name, arguments = step["call"]
                called = {"type": "function_call", "call_id": ident, "name": name, "arguments": arguments}
                if not step.get("old"):
                    notify("rawResponseItem/completed", item=called)
                asked = {"callId": ident, "namespace": None, "tool": name, "arguments": json.loads(arguments)}
                self.say(method="item/tool/call", id=next(self.double.numbers), params={**ids, **asked})
            elif "called" in step:
                usage = step.get("usage", {"totalTokens": 18, "inputTokens": 11, "outputTokens": 7})
                notify("rawResponse/completed", responseId="r", usage=usage)
            elif "wait" in step:
                await asyncio.Event().wait()
            elif "write" in step:
                for _ in range(step.get("times", 1)):
                    self.write(step["write"].encode())
            elif "huge" in step:
                notify("item/agentMessage/delta", itemId="msg_1", delta="x" * step["huge"])
            else:
                misbehave(step)
                if "quiet" in step:
                    return
            await asyncio.sleep(0)
        close()
        self.end(thread, turn, "completed", None)

    async def ask(self, method: str, params: dict[str, Any]) -> None:
        number = next(self.double.numbers)
        answer = self.answers[number] = asyncio.get_running_loop().create_future()
        self.say(method=method, id=number, params=params)
        await answer

    def end(self, thread: str, turn: str, status: str, error: Any) -> None:
        self.say(
            method="turn/completed",
            params={"threadId": thread, "turn": {"id": turn, "items": [], "status": status, "error": error}},
        )


def misbehave(step: dict[str, Any]) -> None:
    if "complain" in step:
        for _ in range(step.get("times", 1)):
            sys.stderr.write(step["complain"] + "\n")
        sys.stderr.flush()
    elif "die" in step:
        sys.stdout.flush()
        os._exit(step["die"])
    elif "sleep" in step:
        time.sleep(step["sleep"])
    elif "hang" in step:
        while True:
            time.sleep(60)


def read(log: Path) -> list[dict[str, Any]]:
    """What it was told."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def behind_pipes(script: dict[str, Any], folder: Path) -> list[str]:
    """The command of a server that plays this; its log is `log` in the folder."""
    file = folder / "script"
    file.write_text(json.dumps(script))
    return [sys.executable, "-I", "-S", str(FILE), str(file), str(folder / "log")]


async def over_pipes(script: dict[str, Any], log: Path) -> None:
    """Serve standard input until it ends."""

    def write(frame: bytes) -> None:
        sys.stdout.buffer.write(frame + b"\n")
        sys.stdout.buffer.flush()

    double = Double(script, log)
    double.told({"started": os.getpid(), "env": dict(os.environ), "folder": os.getcwd()})
    peer = Peer(double, write)
    for step in script.get("before", []):
        if "write" in step:
            for _ in range(step.get("times", 1)):
                write(step["write"].encode())
        elif step.get("once") is None or sum("started" in line for line in read(log)) <= step["once"]:
            misbehave(step)
    lines: asyncio.StreamReader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        await peer.hear(line)


@asynccontextmanager
async def served(script: dict[str, Any], log: Path) -> AsyncIterator[Any]:
    """A server with a WebSocket, which refuses web pages."""
    from aiohttp import web
    from aiohttp.test_utils import TestServer

    double = Double(script, log)

    async def talk(request: web.Request) -> web.StreamResponse:
        if "Origin" in request.headers:
            return web.Response(status=403)
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        frames: asyncio.Queue[bytes] = asyncio.Queue()
        double.told({"started": os.getpid(), "headers": dict(request.headers)})
        peer = Peer(double, frames.put_nowait)

        async def write() -> None:
            while True:
                await socket.send_str((await frames.get()).decode())

        writing = asyncio.create_task(write())
        try:
            async for message in socket:
                if message.data == "hang up":
                    break
                await peer.hear(message.data.encode())
        finally:
            for task in (writing, *peer.turns.values()):
                task.cancel()
            await asyncio.gather(writing, *peer.turns.values(), return_exceptions=True)
        return socket

    app = web.Application()
    app.router.add_get("/", talk)
    server = TestServer(app)
    await server.start_server()
    try:
        yield server
    finally:
        await server.close()


if __name__ == "__main__":
    asyncio.run(over_pipes(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])))
