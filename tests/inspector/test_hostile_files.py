"""`toolwire replay` and `toolwire inspect` of files that no gateway wrote: a clear error, and never a traceback."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any, Final

from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.inspector.inspected import CALL, WEATHER, answering, asked
from toolwire.cli import main
from toolwire.testing import Say

VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -1, 1e308, 0.5, "", "\x00", "\x1b[2J", "//x/y", "http://x/", "[", "\u202e", "no such"])
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@cache
def captured() -> bytes:
    """The capture of a streamed answer with a call."""

    async def run() -> bytes:
        async with answering(Say(f"So. {CALL}")) as (gateway, _):
            await gateway.ask(asked("/v1/chat/completions", WEATHER, stream=True))
            body: bytes = (await gateway.fetch("GET", "/inspect/api/exchanges/r1/capture")).body
            return body

    return asyncio.run(run())


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value in a value of JSON."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*path, key))
    return found


def with_value(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """The value with another one at a place."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = other
    return copy


def looked_at(content: bytes, *options: str) -> Result:
    """What `toolwire replay` says of it."""
    return CliRunner().invoke(main, ["replay", *options, "-"], input=content)


def is_clear(got: Result) -> bool:
    """Whether it ended as it should: with a status, and without a traceback."""
    return (got.exception is None or isinstance(got.exception, SystemExit)) and "Traceback" not in got.output


def test_the_capture_itself_can_be_replayed() -> None:
    got = looked_at(captured())
    assert got.exit_code == 0, got.output


@examples(0.4)
@given(st.data())
def test_a_value_of_any_type_in_any_place(data: st.DataObject) -> None:
    lines = [json.loads(line) for line in captured().splitlines()]
    number = data.draw(st.integers(0, len(lines) - 1))
    path = data.draw(st.sampled_from(paths(lines[number])))
    lines[number] = with_value(lines[number], path, data.draw(VALUES))
    content = b"\n".join(json.dumps(line).encode() for line in lines)
    got = looked_at(content, *data.draw(st.sampled_from([(), ("--json",)])))
    assert is_clear(got), (path, got.exception)


@given(st.data())
def test_bytes_that_were_changed(data: st.DataObject) -> None:
    content = bytearray(captured())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    assert is_clear(looked_at(bytes(content[: data.draw(st.integers(at, len(content)))])))


@given(st.binary(max_size=200) | st.binary(max_size=80).map(lambda data: b"data: " + data + b"\n\n"))
def test_recordings_of_any_bytes(content: bytes) -> None:
    assert is_clear(looked_at(content))


HEAD: Final = b'{"toolwire_capture": 1, "request_id": "r", "path": "/v1/chat/completions"}\n'
DEEP: Final = b"[" * 100_000


@every(
    ("content", "said"),
    [
        (b'{"toolwire_capture": 2}\n', "version 2"),
        (b'{"toolwire_capture": "\x1b]0;x\x07"}\n', "cannot be read"),
        (b'{"toolwire_capture": 1, "path": 3}\n', "line 1 of the capture cannot be read: 'path' is not text"),
        (b'{"toolwire_capture": 1, "headers": {"accept": 3}}\n', "'headers' is not text"),
        (b'{"toolwire_capture": 1, "x": ' + DEEP, "line 1 of the capture cannot be read: is nested more than"),
        (b'{"toolwire_capture": 1, "x": ' + b"9" * 5000 + b"}", "line 1"),
        (HEAD + b"\xff\xfe", "line 2 of the capture cannot be read"),
        (HEAD + b"3", "line 2 of the capture cannot be read: expected an object"),
        (HEAD + b'{"at": 1}', "'kind' is missing"),
        (HEAD + b'{"kind": "request"}', "'at' is missing"),
        (HEAD + b'{"kind": "nosuch", "at": 1}', "there is no kind 'nosuch'"),
        (HEAD + b'{"kind": "request", "at": NaN}', "line 2 of the capture cannot be read"),
        (HEAD + b'{"kind": "request", "at": "x"}', "'at' is not a number of seconds"),
        (HEAD + b'{"kind": "request", "at": 1, "data": {}}', "'data' is not text"),
        (HEAD + b'{"kind": "request", "at": 1, "data": "\\ud800"}', "line 2"),
        (HEAD + b'{"kind": "request", "at": 1, "base64": "x"}', "line 2"),
        (HEAD + b'{"kind": "received", "at": 1, "call": []}', "'call' is not a whole number"),
        (HEAD + b'{"kind": "answered", "at": 1, "call": 1, "status": "x"}', "'status' is not a whole number"),
        (HEAD + b'{"kind": "failed", "at": 1, "call": 1}', "'code' is missing"),
        (HEAD[:-40], "line 1"),
    ],
)
def test_each_fault_is_named(content: bytes, said: str) -> None:
    for command in ("replay", "inspect"):
        got = CliRunner().invoke(main, [command, "-"], input=content)
        assert got.exit_code == 1
        assert is_clear(got)
        assert said in got.output, got.output
        assert got.output.isprintable() or got.output.endswith("\n")


@every("path", ["//x.invalid/v1", "http://x.invalid/v1", "v1", "", "/v1\x00"])
def test_no_path_leads_elsewhere(path: str) -> None:
    lines = [json.loads(line) for line in captured().splitlines()]
    lines[0]["path"] = path
    got = looked_at(b"\n".join(json.dumps(line).encode() for line in lines))
    assert is_clear(got)
