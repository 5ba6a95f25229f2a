"""Hostile requests and answers against a real gateway: `python -m bench.attacks`, or `-k NAME` for some of them.

Each attack (`bench.hostile`) runs against a `toolwire serve` of its own, before a scripted model server in another
process. A watcher in a third process asks for `/health` of the gateway every few milliseconds, and of an idle gateway
beside it, which is the baseline: the same program on the same machine without an attack. The table shows:

- `sent`, `ans.`: bytes of the requests, and of the model server's answers, in MB;
- `hold`: the longest that `/health` took, in ms, and the same of the idle gateway (`idle`);
- `peak`: memory above rest at its highest, in MB and per byte sent and answered;
- `kept`: memory above rest after everything was answered, in MB.

`hold` is a wall clock: a busy machine shows in `idle` as well. Exit status 1 if a hold is more than 50 ms beyond
`idle`, a peak beyond 20 bytes per byte and the budgets of a worker, or what is kept beyond the budget of its caches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench import played
from bench.hostile import ATTACKS, Attack, Request, chat, completion, reply

KEY: Final = "attacker"
HOLD_MS: Final = 50.0
BYTES_PER_BYTE: Final = 20
BUDGETS_MB: Final = 400
"""Arriving bodies and caches of a worker together, by default."""
KEPT_MB: Final = 128
"""Caches and stored responses of a worker, by default."""
POLL_S: Final = 0.002


# --- processes beside -----------------------------------------------------------------------------------------------


def model_server(ready: Connection, answer: bytes) -> None:
    """Answers every request with `answer`, without end; sends its port to `ready`."""

    async def play(body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer)
        return True

    played.serve(ready, play, keep=False)


def watcher(line: Connection, ports: Sequence[int]) -> None:
    """Requests `/health` of each port repeatedly. Answers each message from `line` with the longest waits since the
    message before, in seconds; None ends it."""

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


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running `toolwire serve`."""

    url: str
    pid: int

    def memory(self, what: str) -> int:
        """Returns `VmRSS` or `VmHWM` in bytes."""
        found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024

    def reset_peak(self) -> None:
        """Resets `VmHWM`."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@contextmanager
def running(folder: str, upstream: str, config: Mapping[str, Any]) -> Iterator[Gateway]:
    """Runs a gateway in front of `upstream`, with the configuration of an attack."""
    whole = {
        "server": {"port": 0, "log_level": "error"},
        "auth": {"keys": [{"key": KEY, "admin": True}]},
        "backends": {"up": {"url": f"{upstream}/v1", "preset": "generic"}},
        **{key: value for key, value in config.items() if value is not None},
    }
    with played.gateway(folder, whole, quiet=True) as (url, pid):
        yield Gateway(url, pid)


# --- one attack -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sender:
    """Sends requests, and stores the ids in their answers."""

    session: aiohttp.ClientSession
    url: str
    show: bool
    response_id: str = ""
    item_id: str = ""
    capture: str = ""
    sent: int = 0
    statuses: dict[int, int] = field(default_factory=dict)

    async def send(self, request: Request) -> None:
        """Sends a request and reads its answer."""
        path = request.path.replace("{ID}", self.response_id).replace("{CAPTURE}", self.capture)
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
                if self.show and response.status >= 400:
                    print(response.status, path, text[:400].decode(errors="replace"))
                if path.startswith("/v1/"):
                    self.capture = response.headers.get("X-Request-Id", "")
            if path == "/v1/responses" and response.status == 200 and text.startswith(b"{"):
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


async def run(attack: Attack, gateway: Gateway, line: Connection, answered: int, show: bool) -> bool:
    """Runs one attack and prints its row. Returns True if it kept all limits."""
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    sizes = {"max_line_size": 1 << 20, "max_field_size": 1 << 20}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, **sizes) as session:  # type: ignore[arg-type]  # mypy takes `sizes` for any option
        sender = Sender(session, gateway.url, show)
        await sender.send(Request("/v1/chat/completions", chat()))
        for request in attack.before():
            await sender.send(request)
        stored, sender.sent, sender.statuses = sender.sent, 0, {}
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
        for path in attack.after:
            await sender.send(Request(path, None, method="GET"))
        took = time.perf_counter() - begin
        peak = gateway.memory("VmHWM") - rest
        await asyncio.sleep(2)  # the gateway releases memory after a second
        hold, idle = (worst * 1e3 for worst in _ask(line))
        kept = (gateway.memory("VmRSS") - rest) / 1e6
    bytes_in = max(stored + sender.sent + answered * len(todo), 1)
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


def one(attack: Attack, folder: str, idle: Gateway, show: bool) -> bool:
    """Starts the processes for an attack, and runs it. Returns True if it kept all limits."""
    answer = attack.answer() if attack.answer else reply(completion("hello"))
    with (
        played.model_server(model_server, answer) as server,
        running(folder, server, attack.config) as gateway,
        watched([gateway.url, idle.url]) as line,
    ):
        time.sleep(0.5)
        return asyncio.run(run(attack, gateway, line, len(answer) if attack.answer else 0, show))


@contextmanager
def watched(urls: Sequence[str]) -> Iterator[Connection]:
    """Runs `watcher` in a process."""
    line, other = get_context("spawn").Pipe()
    ports = [int(url.rpartition(":")[2]) for url in urls]
    watching = get_context("spawn").Process(target=watcher, args=(other, ports), daemon=True)
    watching.start()
    try:
        yield line
    finally:
        line.send(None)
        watching.join(5)
        watching.terminate()


def main(arguments: Sequence[str]) -> int:
    """The command line. Returns 1 if an attack exceeded a limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-k", metavar="NAME", help="only attacks whose name holds this")
    parser.add_argument("--errors", action="store_true", help="print the errors that are answered")
    options = parser.parse_args(arguments)
    chosen = [attack for attack in ATTACKS if not options.k or options.k in attack.name]
    print(
        f"{'attack':32} {'sent MB':>8} {'ans. MB':>8} {'hold ms':>8} {'idle':>6} {'peak MB':>8} {'per B':>7} {'kept MB':>7}"
        f" {'s':>6}  statuses"
    )
    with tempfile.TemporaryDirectory() as folder, running(folder, "http://127.0.0.1:9", {}) as idle:
        held = [one(attack, folder, idle, options.errors) for attack in chosen]
    print("all bounds held" if all(held) else f"{held.count(False)} of {len(held)} did not hold")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
