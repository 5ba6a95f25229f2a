"""Hostile schemas and bodies: a clear answer, and other requests go on being served.

How work grows with their size is counted in `tests/linear/test_requests.py`. Here the gateway is a process of its own,
so that one that never comes to an end fails a test.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
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
LARGEST = 4 * MIB
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
    "a million levels": Hostile(around("", "[", "", 1_000_000), *BAD_JSON),
    "a million values": Hostile(around("[", "0,", "0]", 1_000_000), *BAD_JSON),
    "a million objects": Hostile(around("[", "{},", "{}]", 1_000_000), *BAD_JSON),
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
    "many escapes": Hostile(around('"', r"\u0041", '"', 600_000), (200,)),
    "much text": Hostile(around('"', "word ", '"', 700_000), (200,)),
    "much text beside tools": Hostile(with_tools("word ", 700_000), (200,)),
    "one long word": Hostile(around('"', "a", '"', 3_500_000), (200,)),
    "many openers": Hostile(with_tools("<tool_call>", 100_000), (200,)),
    "many quotes": Hostile(around('"', r"\"", '"', 1_700_000), (200,)),
    "many spaces": Hostile(lambda: b" " * 3_500_000, *BAD_JSON),
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


async def test_a_remote_reference_is_never_fetched(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        remote = f"http://127.0.0.1:{listening.getsockname()[1]}/schema.json"
        async with aiohttp.ClientSession(url) as session:
            for keyword in ("$ref", "$dynamicRef", "$schema", "$id"):
                for fields in (
                    {keyword: remote},
                    {"properties": {"a": {keyword: remote}}},
                    {"properties": {"a": {"$id": remote, "$ref": "x"}}},
                ):
                    status, answer = await ask(session, schema(**fields)())
                    if keyword in ("$ref", "$dynamicRef") and "$id" not in str(fields):
                        assert (status, json.loads(answer)["error"]["code"]) == (400, "invalid_tool_schema"), fields
        with pytest.raises(BlockingIOError):
            listening.accept()


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
