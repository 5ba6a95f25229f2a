"""Hostile schemas and bodies: a clear answer, little work, and other requests go on being served.

What is asserted is that nothing runs away: work and pauses of the event loop stay within bounds a hundred times smaller
than what these inputs cost an unguarded reader. The goals themselves (a refusal within a second, no pause above 50 ms)
are a matter of milliseconds that a busy machine doubles: `--log-cli-level=INFO` shows what was measured.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, function
from tests.waiting import GUARD_S

LOG = logging.getLogger(__name__)
STALL_S = 1.0
WORK_S = 5.0
TRIES = 4
"""What other processes do to the caches only ever adds to a measurement, so the least of a few counts."""

ROOT = Path(__file__).parents[2]
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
    {"when": "openers", "text": "<tool_cal" * 50_000, "chunk": 50_000},
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


def tool(name: str = "f", /, **schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **schema}}}


def schema(**fields: Any) -> Callable[[], bytes]:
    return chat(tools=[tool(**fields)])


def nested(levels: int, key: str = "properties") -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}} if key == "properties" else {key: [inner]}
    return inner


def around(head: str, filling: str, tail: str, times: int = 1) -> Callable[[], bytes]:
    return lambda: (
        b'{"model":"m","messages":[{"role":"user","content":' + (head + filling * times + tail).encode() + b"}]}"
    )


def with_tools(filling: str, times: int) -> Callable[[], bytes]:
    return lambda: chat(messages=[{"role": "user", "content": filling * times}], tools=[tool()])()


MIB = 1024 * 1024
LARGEST = 32 * MIB
"""Of a body that is read at all."""
BAD_SCHEMA = ((400,), "invalid_tool_schema")
BAD_JSON = ((400,), "invalid_json")
CASES: dict[str, Hostile] = {
    # schemas
    "1 MB schema": Hostile(schema(description="x" * MIB), *BAD_SCHEMA),
    "10,000 properties": Hostile(schema(properties={f"p{n}": {"type": "string"} for n in range(10_000)}), *BAD_SCHEMA),
    "1,000 properties": Hostile(schema(properties={f"p{n}": {"type": "string"} for n in range(1_000)}), (200,)),
    "100 levels": Hostile(schema(properties={"a": nested(55)}), *BAD_SCHEMA),
    "a cycle of references": Hostile(
        schema(
            properties={"a": {"$ref": "#/$defs/b"}},
            **{"$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}}},
        ),
        (200, 400),
    ),
    "a schema that contains itself": Hostile(schema(properties={"a": {"$ref": "#"}}), (200,)),
    "a cycle through allOf": Hostile(schema(allOf=[{"$ref": "#"}]), (200, 400)),
    "references that double": Hostile(
        schema(
            properties={"a": {"$ref": "#/$defs/d0"}},
            **{
                "$defs": {
                    **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)},
                    "d40": {"type": "string"},
                }
            },
        ),
        (200, 400),
    ),
    "a reference into nothing": Hostile(schema(properties={"a": {"$ref": "#/$defs/none"}}), (200,)),
    "a file reference": Hostile(schema(properties={"a": {"$ref": "file:///etc/passwd"}}), *BAD_SCHEMA),
    "an enum of 50,000": Hostile(schema(properties={"a": {"enum": list(range(50_000))}}), (200, 400)),
    "128 schemas": Hostile(
        chat(
            tools=[
                tool(f"f{t}", properties={f"p{t}-{n}": {"type": "string", "maxLength": n} for n in range(100)})
                for t in range(128)
            ]
        ),
        (200,),
    ),
    # patterns
    "a catastrophic pattern": Hostile(
        said("catastrophic", tools=[tool(properties={"a": {"type": "string", "pattern": "^(a+)+$"}})]), (200,)
    ),
    "a catastrophic pattern with a reference back": Hostile(
        said("catastrophic", tools=[tool(properties={"a": {"type": "string", "pattern": r"^((a+)+)\1$"}})]), (200, 400)
    ),
    "a pattern that explodes": Hostile(
        schema(properties={"a": {"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}}), (200, 400)
    ),
    "a pattern of classes": Hostile(
        schema(properties={"a": {"type": "string", "pattern": r"(\p{L}|\w|[^a]){1000}" * 20}}), (200, 400)
    ),
    "2,000 patterns": Hostile(schema(patternProperties={rf"^p{n}\w+$": {} for n in range(2_000)}), (200, 400)),
    "no pattern at all": Hostile(schema(properties={"a": {"type": "string", "pattern": "("}}), (200, 400)),
    # names and values
    "names like code": Hostile(
        said("evil names", tools=[tool(properties={name: {"type": "string"} for name in EVIL_NAMES})]), (200,)
    ),
    "arguments of many values": Hostile(
        said("many values", tools=[tool(properties={"a": {"type": "array", "uniqueItems": True}})]), (200,)
    ),
    "arguments of many levels": Hostile(said("deep", tools=[tool()]), (200,)),
    "1 MB of openers": Hostile(said("openers", tools=[tool()]), (200,)),
    "1 MB of angles": Hostile(said("angles", tools=[tool()], stream=True), (200,)),
    # bodies; small ones that are no JSON: tests/unit/test_bodies.py
    "NUL in a string": Hostile(around('"', r"a\u0000b", '"'), (200,)),
    "a number of a million digits": Hostile(
        lambda: b'{"model":"m","messages":[{"role":"user","content":"a"}],"seed":' + b"1" * 1_000_000 + b"}", (400,)
    ),
    "an exponent": Hostile(
        lambda: b'{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":1e999999}', (400,)
    ),
    "10,000 levels": Hostile(around("", "[" * 10_000 + "]" * 10_000, ""), *BAD_JSON),
    "10,000 levels of objects": Hostile(around("", '{"a":' * 10_000 + "1" + "}" * 10_000, ""), *BAD_JSON),
    "10 million levels": Hostile(around("", "[", "", 10_000_000), *BAD_JSON),
    "10 million values": Hostile(around("[", "0,", "0]", 10_000_000), *BAD_JSON),
    "5 million objects": Hostile(around("[", "{},", "{}]", 5_000_000), *BAD_JSON),
    "90,000 values that say nothing": Hostile(around("[", "0,", "0]", 90_000), ((400,)), "invalid_type"),
    "20,000 messages": Hostile(
        lambda: b'{"model":"m","messages":[' + b",".join([b'{"role":"user","content":""}'] * 20_000) + b"]}",
        (200, 400),
    ),
    "20,000 parts": Hostile(around("[", ",".join(['{"type":"text","text":"a"}'] * 20_000), "]"), (200, 400)),
    "20,000 calls": Hostile(
        lambda: (
            b'{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":['
            + b",".join(
                b'{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}' % n for n in range(20_000)
            )
            + b"]}]}"
        ),
        (200, 400),
    ),
    "40,000 unknown fields": Hostile(
        lambda: (
            b'{"model":"m","messages":[{"role":"user","content":"a"}],'
            + b",".join(b'"k%d":0' % n for n in range(40_000))
            + b"}"
        ),
        (200,),
    ),
    "30 MiB of escapes": Hostile(around('"', r"\u0041", '"', 5 * MIB), (200,)),
    "30 MiB of text": Hostile(around('"', "word ", '"', 6 * MIB), (200,)),
    "30 MiB of text beside tools": Hostile(with_tools("word ", 6 * MIB), (200,)),
    "30 MiB of one word": Hostile(around('"', "a", '"', 30 * MIB), (200,)),
    "11 MiB of openers": Hostile(with_tools("<tool_call>", MIB), (200,)),
    "30 MiB of quotes": Hostile(around('"', r"\"", '"', 15 * MIB), (200,)),
    "30 MiB of spaces": Hostile(lambda: b" " * (30 * MIB), *BAD_JSON),
    "32 MiB and a byte": Hostile(lambda: b" " * (LARGEST + 1), (413,), "request_too_large"),
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where the gateway listens."""
    file = tmp_path_factory.mktemp("hostile") / "config.json"
    config = {
        "backends": {
            "plain": {"kind": "mock", "script": ["hello"]},
            "scripted": {"kind": "mock", "script": SCRIPT},
        },
        "routes": [{"model": "m", "backend": "plain"}, {"model": "scripted", "backend": "scripted"}],
    }
    file.write_text(json.dumps(config))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("probed_gateway.py")), str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield int(process.stdout.readline())
        process.stdin.close()
        process.wait(GUARD_S)


async def ask(session: aiohttp.ClientSession, body: bytes) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    while True:
        try:
            async with session.post(CHAT, data=io.BytesIO(body), headers=headers) as response:
                return response.status, await response.read()
        except aiohttp.ClientOSError:
            if len(body) <= LARGEST:
                raise  # who is refused while he is still sending may be cut off before he has read why


async def probe(session: aiohttp.ClientSession) -> dict[str, float]:
    async with session.get("/probe") as response:
        seen: dict[str, float] = await response.json()
        return seen


async def others(session: aiohttp.ClientSession, stop: asyncio.Event) -> int:
    """Ordinary requests, one after the other, while something else goes on."""
    served = 0
    while not stop.is_set():
        status, body = await ask(session, chat(tools=[function("f")])())
        assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "hello")
        served += 1
    return served


@pytest.mark.parametrize("name", CASES)
async def test_hostile_bodies(port: int, name: str) -> None:
    case = CASES[name]
    body = case.make()
    stop = asyncio.Event()
    async with asyncio.timeout(GUARD_S), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        await ask(session, chat(tools=[function("f")])())
        await probe(session)
        for _ in range(TRIES):  # until within the bounds
            status, answer = await ask(session, body)
            seen = await probe(session)
            LOG.info("%s: %.3f s of work, a pause of %.3f s", name, seen["cpu"], seen["stall"])
            if seen["stall"] < STALL_S:
                break
        beside = asyncio.create_task(others(session, stop))
        assert (await ask(session, body))[0] == status
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
    assert seen["stall"] < STALL_S
    if status != 200:
        assert seen["cpu"] < WORK_S


async def test_a_remote_reference_is_never_fetched(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/schema.json"
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for keyword in ("$ref", "$dynamicRef", "$schema", "$id"):
                for fields in (
                    {keyword: url},
                    {"properties": {"a": {keyword: url}}},
                    {"properties": {"a": {"$id": url, "$ref": "x"}}},
                ):
                    status, answer = await ask(session, schema(**fields)())
                    if keyword in ("$ref", "$dynamicRef") and "$id" not in str(fields):
                        assert (status, json.loads(answer)["error"]["code"]) == (400, "invalid_tool_schema"), fields
        with pytest.raises(BlockingIOError):
            listening.accept()


async def test_names_like_code_are_only_names(port: int) -> None:
    """And a key that occurs twice is named."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        _, answer = await ask(session, CASES["names like code"].make())
        (call,) = json.loads(answer)["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == dict.fromkeys(EVIL_NAMES, "x")
        assert not (ROOT / "owned").exists()
        status, answer = await ask(session, b'{"model":"x","model":"m","messages":[]}')
        assert status == 400
        assert 'the key "model" twice' in json.loads(answer)["error"]["message"]
