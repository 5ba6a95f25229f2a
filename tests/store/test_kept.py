"""What was kept by every version so far is read by this one. In `tests/store/kept/` is a turn of each form, as it stood
in a store."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.model import Image, Message, Reasoning, Text, ToolResult, ToolUse
from proxy.protocols.responses.turns import ResponsesTurns
from proxy.protocols.stored_form import FORM, WITHOUT_ROUNDS, read_turn, write_turn
from proxy.protocols.turn import Turn
from proxy.protocols.wire import dump
from proxy.store.base import ResponseStore, StoreUnavailable
from proxy.store.encoding import MAX_TURN_BYTES, decode, encode, key_of
from proxy.store.redis import RedisStore
from proxy.store.sqlite import SqliteStore
from tests.store.redis_server import RedisServer
from tests.store.turns import Clock, turn

KEPT = Path(__file__).parent / "kept"
RESPONSES = ResponsesTurns()


def row(name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_bytes())
    return kept


INPUT = (
    Message("system", (Text("Be brief."),)),
    Message("user", (Text("What colour is this?"), Image("https://example.com/sky.png", "auto"))),
    Message("assistant", (Text("Let me look."), ToolUse("call_1", "look", '{"at":"sky"}', item_id="fc_mine"))),
    Message("tool", (ToolResult("call_1", (Text('{"colour":"grey"}'),), "look"),)),
    Message(
        "assistant",
        (ToolUse("call_2", "note", "grey", "custom", item_id="ctc_00000000000040008000000000001806"),),
    ),
    Message("tool", (ToolResult("call_2", (Text("noted"),), "note", kind="custom"),)),
    Message("user", (Text("And now?"),)),
)
OUTPUT = (
    Message(
        "assistant",
        (
            Reasoning("I have to look again."),
            Text("Again."),
            ToolUse(
                "call_00000000000040008000000000000003",
                "look",
                '{"at":"sky"}',
                item_id="fc_00000000000040008000000000001003",
            ),
        ),
    ),
)
ADD = ToolUse("call_s", "add", '{"a":1}'), ToolResult("call_s", (Text("3"),), "add")
BESIDE = ToolUse("call_b", "add", "{}"), ToolResult("call_b", (Text("1"),), "add")


async def put_raw(store: ResponseStore, path: Path, url: str, kept: dict[str, Any]) -> None:
    """As the version wrote it that made it: nothing of this one has a hand in it."""
    key, text = key_of(kept["id"], kept["owner"]), json.dumps(kept).encode()
    if isinstance(store, SqliteStore):
        await store.start()
        with sqlite3.connect(path) as db:
            place = (key, kept["expires"], len(text), text)
            db.execute("INSERT INTO turns (key, expires, bytes, turn) VALUES (?, ?, ?, ?)", place)
        db.close()
        return
    import redis.asyncio

    async with redis.asyncio.from_url(url) as server:
        await server.set(f"old:1:turn:{key}", text)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_a_response_of_form_1(kind: str, tmp_path: Path, clock: Clock, request: pytest.FixtureRequest) -> None:
    """Items and a resource: the client sees the same as ever, and the conversation goes on from messages."""
    path, url, kept = tmp_path / "r.sqlite3", "", row("form-1-response")
    store: ResponseStore
    if kind == "sqlite":
        store = SqliteStore(path, now=clock)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        url = server.url
        store = RedisStore(url, prefix="old", now=clock)
    await put_raw(store, path, url, kept)
    chain = await store.get_chain(kept["id"], "")
    assert chain is not None
    (got,) = chain
    assert dump(RESPONSES.shown(got)) == dump(kept["resource"])
    assert list(RESPONSES.listed(got)) == kept["input"]
    assert (got.input, got.output) == (INPUT, OUTPUT)
    assert (got.status, got.model, got.created, got.expires) == ("completed", "m", kept["created"], kept["expires"])
    await store.put(got)
    assert await store.get(kept["id"], "") == got
    await store.close()


def test_results_of_tools_of_form_1() -> None:
    got = read_turn(row("form-1-tools"))
    assert got.status == "kept"
    assert got.input == (Message("assistant", (ADD[0],)), Message("tool", (ADD[1],)))
    assert got.output == (Message("assistant", (BESIDE[0],)), Message("tool", (BESIDE[1],)))


def test_form_2() -> None:
    """Messages, and beside them what they do not say of items."""
    assert as_read("form-2-response") == as_read("form-1-response")
    assert decode((KEPT / "form-2-tools.json").read_bytes()) == read_turn(row("form-1-tools"))


def test_form_3() -> None:
    """Written in the same bytes, read as the same values: neither may change while this is the form of what has no
    rounds."""
    assert WITHOUT_ROUNDS == 3
    assert as_read("form-3-response") == as_read("form-1-response")
    is_written_again("form-3-response", "form-3-tools")
    assert decode((KEPT / "form-3-tools.json").read_bytes()) == read_turn(row("form-1-tools"))


def test_form_4() -> None:
    """What the gateway ran and the client did not see stands in it, and is no part of what is shown."""
    assert FORM == 4
    got, said = as_read("form-4-response")
    assert got.rounds == (Message("assistant", (ADD[0],)), Message("tool", (ADD[1],)))
    assert got.messages == (*INPUT, *got.rounds, *OUTPUT)
    assert (replace(got, rounds=()), said) == as_read("form-3-response")
    whole = decode((KEPT / "form-4-response.json").read_bytes())
    assert RESPONSES.shown(whole) == row("form-1-response")["resource"]
    assert list(RESPONSES.listed(whole)) == row("form-1-response")["input"]
    is_written_again("form-4-response")


def is_written_again(*names: str) -> None:
    """In the same bytes."""
    for name in names:
        text = (KEPT / f"{name}.json").read_bytes().rstrip(b"\n")
        got = decode(text)
        if got.said:  # all messages follow from it
            got = replace(got, input=(), output=())
        assert encode(got, MAX_TURN_BYTES) == text


def as_read(name: str) -> tuple[Turn, Any]:
    """A turn, and what it says in the words of its protocol."""
    got = decode((KEPT / f"{name}.json").read_bytes())
    return replace(got, said=b""), got.said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"form": 9}, "a kept response has form 9, this version of the gateway knows 4 at most"),
        ({"mood": "good"}, "a kept response holds what this version of the gateway does not know"),
        ({"input": [{"role": "user", "parts": [{"type": "hologram"}]}]}, "a kept response holds what this version"),
        ({"form": "x"}, "a kept response is damaged"),
        ({"form": 1}, "a kept response is damaged"),
        ({"input": 3}, "a kept response is damaged"),
        ({"said": {"input": "hi"}}, "a kept response is damaged"),
        ({"said": 3}, "a kept response is damaged"),
        ({"input": [{"role": "user", "parts": [3]}]}, "a kept response is damaged"),
    ],
)
def test_what_cannot_be_read_says_why(change: dict[str, Any], said: str) -> None:
    kept = {**write_turn(turn("resp_1")), **change}
    with pytest.raises(StoreUnavailable, match=f"^{said}"):
        decode(dump(kept))


def test_what_is_kept_says_itself() -> None:
    """The example of ADR 29."""
    kept = Turn(
        id="resp_1",
        owner="",
        input=(Message("user", (Text("hi"),)),),
        output=(Message("assistant", (Text("Hello.", {"chat": {"x": 1}}),)),),
        status="completed",
        created=1.0,
        expires=2.0,
    )
    assert json.loads(dump(write_turn(kept))) == {
        "form": 3,
        "id": "resp_1",
        "owner": "",
        "input": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}],
        "output": [{"role": "assistant", "parts": [{"type": "text", "text": "Hello.", "extra": {"chat": {"x": 1}}}]}],
        "status": "completed",
        "created": 1.0,
        "expires": 2.0,
    }
