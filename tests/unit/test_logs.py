"""The short way to a log line says what the long way says, and gives way to whoever listens."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Literal

import pytest

from tests.waiting import GUARD_S
from toolwire.observability.logs import MOST_WAITING, flush_logs, log_fields, set_up_logging

LOGGER = logging.getLogger("toolwire.test_logs")
FIELDS = {"status": 200, "model": "a b", "ok": True, "ms": 0.25, "name": "naïve", "pid": "mine", "list": ["\x9b\u202e"]}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def short_line(fields: Mapping[str, object]) -> None:
    async def log() -> None:
        log_fields(LOGGER, "exchange", fields)

    asyncio.run(log())


@pytest.mark.parametrize("form", ["text", "json"])
def test_both_ways_write_the_same(form: Literal["text", "json"], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    set_up_logging(form, "info", stream)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0625)
    LOGGER.info("exchange", extra={"fields": FIELDS})
    short_line(FIELDS)
    flush_logs()
    long, short = stream.getvalue().splitlines()
    assert short == long
    assert short.isprintable(), "a terminal would obey"
    assert "2027-01-15T08:00:00.062Z" in short
    if form == "json":
        assert json.loads(short)["pid"] != "mine"


def test_lines_keep_their_order() -> None:
    stream = io.StringIO()
    set_up_logging("text", "info", stream)
    for number in range(MOST_WAITING + 2):
        short_line({"n": number})
    assert stream.getvalue().count("\n") == MOST_WAITING
    LOGGER.warning("n=warned")
    ends = [line.rpartition("n=")[2] for line in stream.getvalue().splitlines()]
    assert ends == [*map(str, range(MOST_WAITING + 2)), "warned"]


async def test_a_line_does_not_wait_for_the_next() -> None:
    written = asyncio.Event()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.set()
            return super().write(text)

    set_up_logging("text", "info", Stream())
    log_fields(LOGGER, "exchange", {})
    async with asyncio.timeout(GUARD_S):
        await written.wait()


def test_listeners_get_a_record() -> None:
    stream, other = io.StringIO(), io.StringIO()
    set_up_logging("text", "info", stream)
    handler = logging.StreamHandler(other)
    LOGGER.addHandler(handler)
    try:
        log_fields(LOGGER, "exchange", {"a": 1})
    finally:
        LOGGER.removeHandler(handler)
    assert other.getvalue() == "exchange\n"
    assert stream.getvalue().endswith("INFO toolwire.test_logs: exchange a=1\n")


def test_filters_and_levels_are_kept() -> None:
    stream = io.StringIO()
    set_up_logging("text", "info", stream)

    def never(record: logging.LogRecord) -> bool:
        return False

    LOGGER.addFilter(never)
    log_fields(LOGGER, "exchange", {})
    LOGGER.removeFilter(never)
    logging.getLogger().setLevel(logging.WARNING)
    log_fields(LOGGER, "exchange", {})
    flush_logs()
    assert stream.getvalue() == ""


def test_a_stream_that_fails_fails_no_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    set_up_logging("text", "info", Full())
    short_line({})
    flush_logs()
    assert "no space left" in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr", Full())
    set_up_logging("text", "info")
    short_line({})
    LOGGER.error("the next line")
