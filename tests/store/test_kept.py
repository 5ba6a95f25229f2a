"""The form in which a response is kept, as it stands in a store: `tests/store/kept/`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cases import every
from tests.store.turns import turn
from toolwire.model import Message, Text, ToolResult, ToolUse
from toolwire.protocols.responses.turns import ResponsesTurns
from toolwire.protocols.shared.wire import dump
from toolwire.protocols.stored.json_form import FORM, write_turn
from toolwire.store.base import StoreUnavailable
from toolwire.store.encoding import MAX_TURN_BYTES, decode, encode

KEPT = Path(__file__).parent / "kept"
RESPONSES = ResponsesTurns()


def row(name: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_bytes())
    return kept


ADD = ToolUse("call_s", "add", '{"a":1}'), ToolResult("call_s", (Text("3"),), "add")
BESIDE = ToolUse("call_b", "add", "{}"), ToolResult("call_b", (Text("1"),), "add")


def test_a_response() -> None:
    """What the gateway ran and the client did not see stands in it, and is no part of what is shown."""
    kept, got = row("response"), decode((KEPT / "response.json").read_bytes())
    assert got.rounds == (Message("assistant", (ADD[0],)), Message("tool", (ADD[1],)))
    assert got.messages == (*got.input, *got.rounds, *got.output)
    assert (got.status, got.model, got.created, got.expires) == ("completed", "m", kept["created"], kept["expires"])
    assert dump(RESPONSES.shown(got)) == dump(kept["said"]["resource"])
    assert list(RESPONSES.listed(got)) == kept["said"]["input"]
    is_written_again("response")


def test_results_of_tools() -> None:
    got = decode((KEPT / "tools.json").read_bytes())
    assert got.status == "kept"
    assert got.input == (Message("assistant", (ADD[0],)), Message("tool", (ADD[1],)))
    assert got.output == (Message("assistant", (BESIDE[0],)), Message("tool", (BESIDE[1],)))
    is_written_again("tools")


def is_written_again(name: str) -> None:
    """In the same bytes: whoever changes them needs another number."""
    assert FORM == 4
    text = (KEPT / f"{name}.json").read_bytes().rstrip(b"\n")
    got = decode(text)
    if got.wire_form:  # all messages but `rounds` follow from it
        got = replace(got, input=(), output=())
    assert encode(got, MAX_TURN_BYTES) == text


FORMS = "this version of the gateway reads only form 4: empty the store, or run"


@every(
    ("change", "said"),
    [
        ({"form": 3}, f"a stored response has form 3, and {FORMS}"),
        ({"mood": "good"}, "a stored response has content that this version of the gateway does not know"),
        ({"form": "x"}, "a stored response is damaged"),
        ({"input": 3}, "a stored response is damaged"),
        ({"said": {"input": "hi"}}, "a stored response is damaged"),
        ({"input": [{"role": "user", "parts": [3]}]}, "a stored response is damaged"),
    ],
)
def test_what_cannot_be_read_says_why(change: dict[str, Any], said: str) -> None:
    kept = {**write_turn(turn("resp_1")), **change}
    with pytest.raises(StoreUnavailable, match=f"^{said}"):
        decode(dump(kept))
