"""Hostile schemas and bodies: a clear answer, and other requests go on being served.

What each of them gets is in `tests/unit/test_schema_hostile.py` and `test_bodies.py`, and how work grows with their
size in `tests/linear/test_requests.py`. Here the gateway is a process of its own, so that one that never comes to an
end fails a test.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, function
from tests.e2e.forking import ROOT
from tests.e2e.processes import Process
from tests.waiting import GUARD_S

EVIL_NAMES = [
    "__import__('os').system('touch owned')",
    '"); raise SystemExit(1) #',
    "{data}",
    "__proto__",
    "__class__",
    "a\nimport os",
    "'''",
    "\\",
    "%s%n",
    "日本",
    "",
]
SCRIPT = [
    {"when": "catastrophic", "text": block("f", {"a": "a" * 50_000 + "!"}), "chunk": 10_000},
    {"when": "evil names", "text": block("f", dict.fromkeys(EVIL_NAMES, "x"))},
    {"when": "many values", "text": block("f", {"a": [0] * 100_000}), "chunk": 10_000},
    {
        "when": "deep",
        "text": '<tool_call>{"name":"f","arguments":"' + "[" * 100_000 + "]" * 100_000 + '"}</tool_call>',
        "chunk": 10_000,
    },
    {"when": "angles", "text": "<" * 300_000, "chunk": 50_000},
]


@dataclass(frozen=True)
class Hostile:
    """A body (made on use, some are large), the statuses that are right, and the error code if there is one."""

    make: Callable[[], bytes]
    statuses: tuple[int, ...]
    code: str | None = None


def chat(**fields: Any) -> Callable[[], bytes]:
    return lambda: json.dumps({"model": "m", "messages": USER, **fields}).encode()


def said(text: str, **fields: Any) -> Callable[[], bytes]:
    """To the model that answers by what it is told."""
    return lambda: json.dumps({"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}).encode()


def tool(**schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object", **schema}}}


MIB = 1024 * 1024
LARGEST = 4 * MIB
"""Of a body that is read at all."""
CASES: dict[str, Hostile] = {
    # patterns
    "a catastrophic pattern": Hostile(
        said("catastrophic", tools=[tool(properties={"a": {"type": "string", "pattern": "^(a+)+$"}})]), (200,)
    ),
    # names and values
    "names like code": Hostile(
        said("evil names", tools=[tool(properties={name: {"type": "string"} for name in EVIL_NAMES})]), (200,)
    ),
    "arguments of many values": Hostile(
        said("many values", tools=[tool(properties={"a": {"type": "array", "uniqueItems": True}})]), (200,)
    ),
    "arguments of many levels": Hostile(said("deep", tools=[tool()]), (200,)),
    "1 MB of angles": Hostile(said("angles", tools=[tool()], stream=True), (200,)),
    # bodies; small ones that are no JSON: tests/unit/test_bodies.py
    "a number of a million digits": Hostile(
        lambda: b'{"model":"m","messages":[{"role":"user","content":"a"}],"seed":' + b"1" * 1_000_000 + b"}", (400,)
    ),
    "a million levels": Hostile(lambda: b'{"model":"m","messages":' + b"[" * 1_000_000 + b"}", (400,), "invalid_json"),
    "much text beside tools": Hostile(
        lambda: chat(messages=[{"role": "user", "content": "word " * 700_000}], tools=[tool()])(), (200,)
    ),
    "a byte too many": Hostile(lambda: b" " * (LARGEST + 1), (413,), "request_too_large"),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the gateway."""
    process = Process(tmp_path_factory.mktemp("hostile"))
    process.write(
        {
            "backends": {
                "plain": {"kind": "mock", "script": ["hello"]},
                "scripted": {"kind": "mock", "script": SCRIPT},
            },
            "routes": [{"model": "m", "backend": "plain"}, {"model": "scripted", "backend": "scripted"}],
            "limits": {"body_bytes": LARGEST},
        }
    )
    asyncio.run(process.start())
    yield process.url
    process.process.close()


async def ask(session: aiohttp.ClientSession, body: bytes) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    while True:
        try:
            async with session.post(CHAT, data=io.BytesIO(body), headers=headers) as response:
                return response.status, await response.read()
        except aiohttp.ClientOSError:
            if len(body) <= LARGEST:
                raise  # who is refused while he is still sending may be cut off before he has read why


async def others(session: aiohttp.ClientSession, stop: asyncio.Event) -> int:
    """Ordinary requests, one after the other, while something else goes on."""
    served = 0
    while not stop.is_set():
        status, body = await ask(session, chat(tools=[function("f")])())
        assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "hello")
        served += 1
    return served


@pytest.mark.parametrize("name", CASES)
async def test_hostile_bodies(url: str, name: str) -> None:
    case = CASES[name]
    body = case.make()
    stop = asyncio.Event()
    async with asyncio.timeout(GUARD_S), aiohttp.ClientSession(url) as session:
        beside = asyncio.create_task(others(session, stop))
        status, answer = await ask(session, body)
        stop.set()
        assert await beside
    if status == 200:
        assert answer
    else:
        error = json.loads(answer)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == (case.code or error["code"])
        assert len(error["message"]) < 1000
    assert status in case.statuses, answer[:500]


async def test_names_like_code_are_only_names(url: str) -> None:
    """And a key that occurs twice is named."""
    async with aiohttp.ClientSession(url) as session:
        _, answer = await ask(session, CASES["names like code"].make())
        (call,) = json.loads(answer)["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == dict.fromkeys(EVIL_NAMES, "x")
        assert not (ROOT / "owned").exists()
        status, answer = await ask(session, b'{"model":"x","model":"m","messages":[]}')
        assert status == 400
        assert 'the key "model" twice' in json.loads(answer)["error"]["message"]
