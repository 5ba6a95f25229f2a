"""Reading request bodies: every fault has its words, hostile ones are refused before they are parsed, large ones are
read in pieces and come out as if they had been parsed at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.cases import every
from toolwire.config import LimitsConfig
from toolwire.errors import ClientFault
from toolwire.ingress.bodies import parse_body
from toolwire.support import bounded_json
from toolwire.support.bounded_json import LARGE_BYTES, PIECE_BYTES

LIMITS = LimitsConfig(json_values=100_000, json_depth=128)
MIB = 1024 * 1024


def read(body: bytes, limits: LimitsConfig = LIMITS) -> dict[str, Any]:
    return asyncio.run(parse_body(body, limits))


def fault(body: bytes, limits: LimitsConfig = LIMITS) -> ClientFault:
    with pytest.raises(ClientFault) as caught:
        read(body, limits)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_json", None)
    return caught.value


@every(
    ("body", "words"),
    [
        *((b"", "empty"), (b" \n", "empty"), (b"[1]", "an array"), (b"null", "not null")),
        *((b'"text"', "a string"), (b"3", "a number"), (b"true", "a boolean")),
        (b'{"a":1', "line 1, column 7"),
        (b'{"a":1,}', "trailing comma"),
        (b'{"a":1} x', "line 1, column 9"),
        (b"{a:1}", "line 1, column 2"),
        (b'{\n"a": x}', "line 2"),
        *((b'{"a":%b}' % number, "line 1, column 6") for number in (b"NaN", b"Infinity")),
        (b'{"a":1e999}', "infinity"),
        (b'{"a":"\x01"}', "control character"),
        *((body, "surrogate") for body in (b'{"a":"\\ud800"}', b'{"a":"\\udc00"}', b'{"\\ud83dx":1}')),
        (b'{"a":"\xff"}', "byte 0xff is not UTF-8, at byte 6"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b'\xef\xbb\xbf{"a":1}', "BOM"),
        *((b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1), "128 levels") for depth in (129, 10_000)),
        (b'{"a":[' + b"1," * 100_000 + b"1]}", "100000 JSON values"),
    ],
)
def test_malformed(body: bytes, words: str) -> None:
    assert words in fault(body).message


BOMBS: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: b'{"a":[' + b"1," * (4 * MIB) + b"1]}",
    "quotes": lambda: b'"' * (4 * MIB),
    "short strings": lambda: b'{"a":[' + (b'"' + b"a" * 300 + b'",') * 100_000 + b"1]}",
    "second halves": lambda: b'{"a":"' + b"\\udc00" * (2 * MIB) + b'"}',
    "continuation bytes": lambda: b'{"a":"' + b"\x80" * (4 * MIB) + b'"}',
    "wide string": lambda: b'{"a":"' + b"a" * (20 * MIB) + "😀".encode() + b'"}',
}
"""Made on use, since they are large."""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_before_they_are_parsed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = orjson.loads

    def watched(text: bytes) -> Any:
        assert len(text) <= 2 * PIECE_BYTES, "the whole body was given to the parser"
        return parse(text)

    monkeypatch.setattr(orjson, "loads", watched)
    fault(BOMBS[name](), LIMITS)


LONG = "x" * (3 * MIB)


@every(
    ("behind", "words"),
    [
        (b'\xff"}', f"at byte {6 + 3 * MIB}"),
        *((b'\\ud800x"}', "surrogate"), (b'\x01"}', "control"), (b'\\x"}', "escape")),
        *((b'",}', "trailing comma"), (b"", ""), (b'\\"}', "")),
    ],
)
def test_faults_in_and_around_a_long_string(behind: bytes, words: str) -> None:
    assert words in fault(b'{"a":"' + LONG.encode() + behind).message
    assert "a string" in fault(orjson.dumps(LONG)).message


def test_lifted_strings_cannot_be_forged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_json, "token_hex", lambda size: "f" * 32)
    value = {"a": LONG, "b": "e" * 32 + "0"}
    assert read(orjson.dumps(value)) == value


async def test_a_large_body_is_parsed_in_slices_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, sizes = orjson.loads, []

    def watched(text: bytes) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        sizes.append(len(text))
        return parse(text)

    monkeypatch.setattr(orjson, "loads", watched)
    body = b'{"a":"' + b"a" * (8 * MIB - 16) + b'"}'
    assert len((await parse_body(body, LIMITS))["a"]) == 8 * MIB - 16
    assert max(sizes) <= PIECE_BYTES + 16


@every(
    ("body", "key"),
    [
        (b'{"model":"x","m\\u006fdel":"y"}', '"model"'),
        (b'{"a":[{"b":{"c":1 , "c" : 2}}]}', '"c"'),
        (b'{"a\\"b":1,"x":"\\u0022\\u0022","a\\u0022b":2}', '"a\\"b"'),
        (b'{"\xc3\xa9":1,"\\u00e9":2}', '"\xe9"'),
        (b'{"a":1,"b":"' + b"x" * LARGE_BYTES + b'","a":2}', '"a"'),
        (b'{"a":1,"b":[' + b"[]," * 30_000 + b'0],"a":2}', '"a"'),
        (b'{"b":[' + b"[]," * 30_000 + b'{"q":1,"q":1},0]}', '"q"'),
    ],
)
def test_a_key_that_occurs_twice_is_refused(body: bytes, key: str) -> None:
    assert f"the key {key} twice" in fault(body).message


def test_the_same_key_in_different_objects_is_fine() -> None:
    for body in (b'{"a":{"a":[{"a":1},{"a":1}]}}', b'{"x":"\\"a\\":1,\\"a\\":2","a":1}', b'{"a":"\\u0022","b":":"}'):
        assert read(body) == orjson.loads(body)
