"""Hundreds of streams for an hour, with faults on all sides: `python -m bench.soak`, or `--minutes 5` for a look.

A model server and a gateway with two workers run in processes of their own. Clients of Chat and Responses, with and
without tools, ask all the time; some read slowly, some go away, and the server resets, stalls, breaks off and answers
nonsense. With `--kill-every` a worker is killed now and then. What is checked, as it goes:

- every stream that is read to its end has exactly one terminal event, and every answer without one a status and an
  error;
- every call that arrives is the one that the model wrote, whole;
- the memory of a worker after the warm-up (a fifth of the time, two minutes at least) grows by less than 5 %.

`--agents 8` runs agents instead, each of which sends its whole conversation with every turn: see `bench.soak_agents`.

Exit status 1 if one of these fails. Figures go to standard output, one line every ten seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench import played, soak_agents

ROOT: Final = Path(__file__).resolve().parents[1]
FAULTS: Final = ("reset", "close", "stall", "error", "status", "garbage", "busy")
CLIENTS: Final = ("reads", "reads", "reads", "reads", "reads", "slow", "leaves")
PIECES: Final = 20
"""Text frames of an answer."""
REPORT_S: Final = 10.0
GROWTH: Final = 0.05
WARM_UP_S: Final = 120.0
"""The least warm-up: until Python's collector has run twice over its oldest generation, memory grows."""
IDLE_S: Final = 2.0
"""The idle timeout of the gateway for the server, after which it notices a stall."""
TOOL: Final = {
    "name": "take_note",
    "description": "Takes a note.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}, "text": {"type": "string"}}},
}


# --- the model server -----------------------------------------------------------------------------------------------


def model_server(ready: Connection, pace_s: float) -> None:
    """Serves without end; sends its port to `ready`. The prompt contains the fault to play: `soak:FAULT:NUMBER`."""

    async def play(body: bytes, writer: asyncio.StreamWriter) -> bool:
        found = re.search(rb"soak:(\w+):(\d+)", body)
        fault, number = (found[1].decode(), int(found[2])) if found else ("fine", 0)
        return await _play(writer, fault, number, b"take_note" in body, pace_s)

    played.serve(ready, play)


async def _play(writer: asyncio.StreamWriter, fault: str, number: int, tools: bool, pace_s: float) -> bool:
    """Sends one answer. Returns True if the connection can be reused."""
    if fault in ("status", "busy"):
        status = "500 Oops" if fault == "status" else "429 Busy\r\nRetry-After: 1"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}" % status.encode())
        return True
    rng = random.Random(number)
    breaks_at = rng.randrange(PIECES) if fault in FAULTS else -1
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    pieces = [f"word{n} " for n in range(PIECES)]
    if tools:
        call = f'<tool_call>{{"name":"take_note","arguments":{json.dumps(json.dumps(arguments(number)))}}}</tool_call>'
        pieces[-6:] = [call[at : at + -(-len(call) // 6)] for at in range(0, len(call), -(-len(call) // 6))]
    for place, piece in enumerate(pieces):
        if place == breaks_at and not await _break(writer, fault):
            return False
        _write(writer, {"index": 0, "delta": {"content": piece}, "finish_reason": None})
        await writer.drain()
        await asyncio.sleep(pace_s * rng.uniform(0.5, 1.5))
    _write(writer, {"index": 0, "delta": {}, "finish_reason": "stop"})
    done = b"data: [DONE]\n\n"
    writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done))
    await writer.drain()
    return True


async def _break(writer: asyncio.StreamWriter, fault: str) -> bool:
    """Plays a fault. Returns True if the answer continues after it."""
    match fault:
        case "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        case "stall":
            await asyncio.sleep(IDLE_S * 5)
        case "error":
            frame = b'data: {"error":{"message":"no memory"}}\n\n'
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
        case "garbage":
            writer.write(b"zz\r\n")
        case _:
            pass
    return False


def _write(writer: asyncio.StreamWriter, choice: dict[str, Any]) -> None:
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    frame = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))


def arguments(number: int) -> dict[str, Any]:
    """Returns the arguments that the call of this answer must have."""
    return {"number": number, "text": f'a "quoted" <tag> \\ é {number}'}


# --- clients --------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The state so far. `wrong` are the broken rules, `outcomes` counts the ends of answers."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    calls: int = 0
    killed: int = 0
    """The number of killed workers; their unfinished answers are not mistakes."""


class WrongAnswer(Exception):
    """An answer breaks a rule."""


async def client(session: aiohttp.ClientSession, url: str, rng: random.Random, tally: Tally, end: float) -> None:
    """Sends requests until the time is over."""
    while time.monotonic() < end:
        number, killed = rng.randrange(1 << 30), tally.killed
        fault = rng.choice(FAULTS) if rng.random() < 0.25 else "fine"
        chat, tools, manner = rng.random() < 0.5, rng.random() < 0.5, rng.choice(CLIENTS)
        try:
            outcome = await _ask(session, url, f"soak:{fault}:{number}", chat, tools, manner, rng, number, tally)
        except WrongAnswer as error:
            tally.wrong.append(f"{fault} {'chat' if chat else 'responses'} {'tools' if tools else 'plain'}: {error}")
            outcome = "wrong"
        except (aiohttp.ClientError, OSError) as error:
            outcome = f"lost ({type(error).__name__})"
            if tally.killed == killed:
                tally.wrong.append(f"{fault}: {error!r}")
        tally.outcomes[outcome] += 1


async def _ask(
    session: aiohttp.ClientSession,
    url: str,
    prompt: str,
    chat: bool,
    tools: bool,
    manner: str,
    rng: random.Random,
    number: int,
    tally: Tally,
) -> str:
    body: dict[str, Any] = {"model": "m", "stream": True}
    body |= {"messages": [{"role": "user", "content": prompt}]} if chat else {"input": prompt}
    if tools:
        body["tools"] = [{"type": "function", "function": TOOL} if chat else {"type": "function", **TOOL}]
    path = "/v1/chat/completions" if chat else "/v1/responses"
    leaves_after = rng.randrange(1, PIECES) if manner == "leaves" else -1
    async with session.post(url + path, json=body) as response:
        if response.status != 200:
            error = (await response.json())["error"]
            if not error["code"]:
                raise WrongAnswer(f"an error without a code: {error}")
            return f"{response.status} {error['code']}"
        got = bytearray()
        reads = 0
        async for data in response.content.iter_any():
            got += data
            reads += 1
            if reads == leaves_after:
                return "left"
            if manner == "slow":
                await asyncio.sleep(rng.uniform(0.1, 0.4))
    frames = [line[5:].strip() for line in bytes(got).split(b"\n") if line.startswith(b"data:")]
    calls = tally.calls
    outcome = _chat(frames, number, tally) if chat else _responses(frames, number, tally)
    if tools and ":fine:" in prompt and outcome in ("stream stop", "stream completed") and tally.calls == calls:
        raise WrongAnswer("the call of a good answer is missing")
    return outcome


def _chat(frames: list[bytes], number: int, tally: Tally) -> str:
    if not frames or frames[-1] != b"[DONE]" or frames.count(b"[DONE]") != 1:
        raise WrongAnswer(f"the end of {len(frames)} frames is {frames[-1:]}")
    chunks = [json.loads(frame) for frame in frames[:-1]]
    errors = [chunk["error"]["code"] for chunk in chunks if chunk.get("error")]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    ends = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    if len(errors) + len(ends) != 1:
        raise WrongAnswer(f"ends {ends}, errors {errors}")
    parts = [call for choice in choices for call in choice["delta"].get("tool_calls") or ()]
    if parts:
        _check_call("".join(part["function"].get("arguments") or "" for part in parts), number, tally)
    elif ends == ["tool_calls"]:
        raise WrongAnswer("an end with calls, and no call")
    return f"stream {(errors + ends)[0]}"


def _responses(frames: list[bytes], number: int, tally: Tally) -> str:
    events = [json.loads(frame) for frame in frames]
    ends = [e for e in events if e["type"] in ("response.completed", "response.incomplete", "response.failed")]
    if len(ends) != 1 or events[-1] is not ends[0]:
        raise WrongAnswer(f"ends {[e['type'] for e in ends]}, last {events[-1:]}")
    last = ends[0]
    for item in last["response"]["output"]:
        if item["type"] == "function_call":
            _check_call(item["arguments"], number, tally)
    code = (last["response"]["error"] or {}).get("message", "").partition(":")[0]
    return f"stream {code or last['type'].removeprefix('response.')}"


def _check_call(text: str, number: int, tally: Tally) -> None:
    tally.calls += 1
    try:
        whole = json.loads(text) == arguments(number)
    except ValueError:
        whole = False
    if not whole:
        raise WrongAnswer(f"a call that is not whole: {text!r}")


# --- the gateway ----------------------------------------------------------------------------------------------------


def memory_of(pid: int) -> int:
    """Returns the private memory in KiB, without memory shared with the parent."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE))


async def watch(gateway: int, tally: Tally, seconds: float, kill_every: float | None) -> dict[int, list[int]]:
    """Prints figures until the time is over, and kills workers. Returns the memory of each worker after the warm-up."""
    begin, kept = time.monotonic(), dict[int, list[int]]()
    next_kill = begin + kill_every if kill_every else float("inf")
    while (now := time.monotonic()) < begin + seconds:
        await asyncio.sleep(min(REPORT_S, begin + seconds - now + 0.01))
        memory, workers = {}, played.workers_of(gateway)
        for pid in workers or [gateway]:  # one worker is the process itself
            try:
                memory[pid] = memory_of(pid)
            except OSError:
                continue  # it has just ended
            if time.monotonic() - begin > max(WARM_UP_S, seconds / 5):
                kept.setdefault(pid, []).append(memory[pid])
        total = sum(tally.outcomes.values())
        sizes = ", ".join(f"{pid}: {size / 1024:.1f} MiB" for pid, size in memory.items())
        print(
            f"{now - begin:6.0f} s  answers {total}  calls {tally.calls}  wrong {len(tally.wrong)}  {sizes}", flush=True
        )
        if time.monotonic() >= next_kill and workers and memory:
            next_kill += kill_every or 0
            tally.killed += 1
            os.kill(random.choice(list(memory)), signal.SIGKILL)
    return kept


def grew(sizes: list[int]) -> float:
    """Returns the growth of a worker's memory: the last fifth of the samples compared with the first fifth."""
    part = max(1, len(sizes) // 5)
    return statistics.median(sizes[-part:]) / statistics.median(sizes[:part]) - 1


async def soak(url: str, gateway: int, given: argparse.Namespace) -> bool:
    """Runs everything. Returns True if no rule was broken."""
    tally, seconds = Tally(), given.minutes * 60
    end = time.monotonic() + seconds
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        idle = [await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2])) for _ in range(given.idle)]
        clients = [client(session, url, random.Random(f"{given.seed} {n}"), tally, end) for n in range(given.streams)]
        running = asyncio.gather(*clients)
        kept = await watch(gateway, tally, seconds, given.kill_every)
        await running
        still = sum(not reader.at_eof() for reader, _ in idle)
        for _, writer in idle:
            writer.close()
    print(f"\nanswers: {sum(tally.outcomes.values())}, calls: {tally.calls}, workers killed: {tally.killed}")
    if given.idle:
        print(f"idle connections that are still open: {still} of {given.idle}")
    for outcome, number in tally.outcomes.most_common():
        print(f"  {number:8} {outcome}")
    good = not tally.wrong and still == given.idle
    for text in tally.wrong[:20]:
        print("WRONG", text)
    for pid, sizes in kept.items():
        if len(sizes) >= 5:
            growth = grew(sizes)
            good = good and growth < GROWTH
            print(f"worker {pid}: {statistics.median(sizes) / 1024:.1f} MiB, grew by {growth:+.1%} after the warm-up")
    print("all held" if good else "NOT GOOD")
    return good


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=500, help="at once")
    parser.add_argument("--idle", type=int, default=0, help="further connections that say nothing")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pace", type=float, default=0.2, help="seconds between two frames")
    parser.add_argument("--kill-every", type=float, help="kill a worker every so many seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, help="agents that take turns instead of streams with faults, at once")
    given = parser.parse_args()
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory())
        if given.agents:
            server = running.enter_context(played.model_server(soak_agents.model_server))
            with_cache = {"server": {"workers": 1}}
            known, pid = running.enter_context(played.gateway(folder, _configured(server, with_cache)))
            uncached = {**with_cache, "limits": {"cache_bytes": 1}}
            without, _ = running.enter_context(played.gateway(folder, _configured(server, uncached)))
            (worker,) = played.workers_of(pid) or [pid]  # one worker is the process itself
            work = soak_agents.run([known, without], worker, given.agents, given.minutes, given.seed, memory_of)
            return 0 if soak_agents.report(*asyncio.run(work), grew, GROWTH) else 1
        server = running.enter_context(played.model_server(model_server, given.pace))
        config = {
            "server": {"workers": given.workers, "idle_s": None},
            "store": {"kind": "sqlite", "path": f"{folder}/responses.sqlite3", "max_responses": 1000},
        }
        url, pid = running.enter_context(played.gateway(folder, _configured(server, config)))
        return 0 if asyncio.run(soak(url, pid, given)) else 1


def _configured(server: str, config: dict[str, Any]) -> dict[str, Any]:
    """Returns a gateway's configuration in front of the model server."""
    upstream = {"url": server, "timeouts": {"idle_s": IDLE_S}, "pool": {"connections": 0}}
    return {**config, "server": {"port": 0, "log_level": "error", **config["server"]}, "backends": {"up": upstream}}


if __name__ == "__main__":
    sys.exit(main())
