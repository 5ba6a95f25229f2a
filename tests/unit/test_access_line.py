"""The access line: every field that the code can write is documented, and the other way round."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from docs.generate import middleware_fields
from tests.cases import every
from toolwire.errors import BackendFault
from toolwire.observability.telemetry import FIELDS, Metrics
from toolwire.protocols.shared.noise import NOTES
from toolwire.record import AccessRecord
from toolwire.testing import run_chain

ROOT = Path(__file__).parents[2]
ALWAYS = {"request_id", "endpoint", "stream", "status", "total_ms", "backend_ms", "overhead_ms"}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SECRET = "a-secret-that-is-nowhere-else"


WRITES = re.compile(
    r'''(?:\brecord\.(?:count|note)|\b_record\.(?:count|note)|\b_count|(?<![\w.])count)\(\s*"(\w+)"'''
    r'''|\bcounts\["(\w+)"\] \+=|\bnotes\["(\w+)"\](?:, [^=\n]+)? =[^=]|\bcounter="(\w+)"'''
    r'''|\b_Failure\((?:[^,]*,){2}\s*"(\w+)"'''
)
"""Places that count or note something in the record of an exchange."""


HINTS = ("count(", "note(", "counts[", "notes[", 'counter="', "_Failure(")
"""A text without any of these has no such place, and is not searched: that takes a hundred times longer."""


def written() -> set[str]:
    """The names of which the code counts or notes something."""
    texts = [file.read_text("utf-8") for folder in ("proxy", "middlewares") for file in (ROOT / folder).rglob("*.py")]
    places = (names for text in texts if any(hint in text for hint in HINTS) for names in WRITES.findall(text))
    own = re.findall(r'self\.(?:count|note)\("(\w+)"', (ROOT / "proxy/record.py").read_text("utf-8"))
    return {name for names in places for name in names if name} | set(own)


def test_the_forms_are_those_of_recognised_calls() -> None:
    record = AccessRecord()
    record.label("retries", "upstream_error")
    assert "form" not in record.fields
    for form in ("python", "fenced", "python"):
        record.label("recognised", form)
    assert record.fields["form"] == "fenced,python"


def test_every_count_and_note_is_documented_and_nothing_else() -> None:
    own = ALWAYS | {"form", "code", "client_disconnected", "queue_ms", "prepare_ms", "first_byte_ms"}
    found = written() | {*NOTES}  # a note becomes a count under its own name
    assert {"calls", "echoed_calls", "tool_names", "parse_failures", "deduped"} <= found, "the walk sees the code"
    assert found | own == set(FIELDS) | middleware_fields().keys()
    assert not set(FIELDS) & middleware_fields().keys()


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the access lines since the last look."""
    found = [vars(record)["fields"] for record in caplog.records if record.name == "toolwire.access"]
    caplog.clear()
    return found


@pytest.fixture(autouse=True)
def _access_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire.access")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_line_says_what_happened(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    body = {
        "messages": [
            {"role": "user", "content": SECRET},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": SECRET},
        ],
        "tools": [WEATHER],
        "stream": stream,
    }
    text = '<tool_call>{"name": "weather", "arguments": "{\'a\': 1,}"}</tool_call>'
    chain = ["validation", "arguments", "transformation", "injection"]
    answer = await run_chain(chain, body, replies=[text], headers={"Authorization": f"Bearer {SECRET}"})
    assert answer.status == 200, answer.body
    (fields,) = lines(caplog)
    assert set(fields) >= ALWAYS | {"prepare_ms", "first_byte_ms", "route", "backend", "format"}
    assert fields["stream"] is stream
    assert (fields["tools"], fields["tool_names"]) == (1, ["weather"])
    assert (fields["calls"], fields["repaired"], fields["echoed_calls"]) == (1, 1, 1)
    assert fields["scanned_bytes"] == len(text)
    assert 0 <= fields["prepare_ms"] <= fields["total_ms"]
    assert SECRET not in json.dumps(fields)


def record_of(status: int, code: str | None = None, *, seconds: float = 0) -> AccessRecord:
    record = AccessRecord()
    record.status, record.code = status, code
    record.started -= seconds
    return record


@every(("share", "written"), [(1.0, 40), (0.3, 12), (0.25, 10), (0.1, 4), (0.0, 0)])
def test_a_share_of_the_lines_is_written_but_every_one_of_interest(
    caplog: pytest.LogCaptureFixture, share: float, written: int
) -> None:
    """R35.6: errors and slow requests are never left out, and what is left out is counted."""
    metrics = Metrics()
    metrics.sample(share, slow_s=1000)
    hidden = record_of(200)
    hidden.backend_failed(BackendFault("away", code="upstream_error"), "b")
    interesting = [record_of(500, "upstream_error"), record_of(404), record_of(200, seconds=1001), hidden]
    for record in (*(record_of(200) for _ in range(40)), *interesting):
        metrics.finish(record, endpoint="chat", request_id="r")
    assert len(lines(caplog)) == written + len(interesting)
    assert f"toolwire_access_lines_dropped_total {40 - written}.0".encode() in metrics.page()[0] or written == 40
