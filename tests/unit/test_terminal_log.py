"""The log on a terminal: one line for people, whatever a client calls things."""

from __future__ import annotations

import asyncio
import functools
import io
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.e2e.conftest import USER, function, gateway_before, post, read_config, serving
from toolwire.observability.logs import change_logging, flush_logs, log_fields, set_up_logging
from toolwire.observability.telemetry import ACCESS
from toolwire.observability.terminal import duration, takes_colours, word
from toolwire.support.legible import visible
from toolwire.testing import Refuse, Say

EXCHANGE = {
    "request_id": "r",
    "endpoint": "chat",
    "stream": False,
    "status": 200,
    "total_ms": 5612.4,
    "model": "smollm2",
}
LOG = logging.getLogger("toolwire.test_terminal")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_COLOR", "1")
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def shown(*said: Callable[[], object], form: Any = "auto", stream: io.StringIO | None = None) -> str:
    stream = stream or Terminal()
    set_up_logging(form, "info", stream)
    for each in said:
        each()
    flush_logs()
    return stream.getvalue()


def access(**fields: Any) -> str:
    return shown(lambda: ACCESS.info("exchange", extra={"fields": {**EXCHANGE, **fields}}))


@every(
    ("fields", "line"),
    [
        ({"calls": 1}, "POST chat smollm2 200 1 call 5.6 s"),
        ({}, "POST chat smollm2 200 5.6 s"),
        ({"calls": 2, "stream": True, "endpoint": "responses"}, "POST responses smollm2 200 stream 2 calls 5.6 s"),
        ({"attempts": 3, "backend": "spare"}, "POST chat smollm2 200 3 attempts (spare) 5.6 s"),
        ({"reasks": 1, "parse_failures": 2}, "POST chat smollm2 200 1 bad answer 2 bad calls 5.6 s"),
        ({"status": 404, "code": "model_not_found", "total_ms": 1.7}, "POST chat smollm2 404 model_not_found 2 ms"),
        ({"stream": True, "code": "upstream_error"}, "POST chat smollm2 200 upstream_error stream 5.6 s"),
        ({"model": "a b"}, 'POST chat "a b" 200 5.6 s'),
        ({"model": "x" * 100}, f"POST chat {'x' * 59}… 200 5.6 s"),
        ({"model": "\x1b[2J\x07m\r\nPOST chat forged 200 1 s"}, None),
        ({"model": "\u202eabc\x9b1m\ud800"}, 'POST chat "\\u202eabc\\x9b1m\\ud800" 200 5.6 s'),
    ],
)
def test_a_line_an_exchange(fields: dict[str, Any], line: str | None) -> None:
    got = access(**fields)
    assert got.count("\n") == 1
    assert got.removesuffix("\n").isprintable()
    assert got == f"{line or got.rstrip()}\n"


CALL_STATES = ["TOOL_CALL_INITIATED", "VALIDATING_PARAMETERS", "EXECUTING_TOOL", "TOOL_COMPLETED", "IDLE"]


def tool_call(*states: str, form: Any = "auto") -> str:
    """What is shown of these states, logged as the gateway does and as a record."""

    def change(state: str) -> None:
        fields = {"request_id": "r", "tool": "a\x1bb", "from": "IDLE", "state": state}
        logging.getLogger("toolwire.tools").info("tool call", extra={"fields": fields})

        async def later() -> None:
            log_fields(logging.getLogger("toolwire.tools"), "tool call", fields)

        asyncio.run(later())

    return shown(*(functools.partial(change, state) for state in states), form=form)


def test_a_call_that_the_gateway_ran_is_one_line() -> None:
    assert tool_call(*CALL_STATES) == 2 * 'tool "a\\x1bb" completed\n'
    assert tool_call("EXECUTING_TOOL", "EXECUTION_FAILED") == 2 * 'tool "a\\x1bb" failed\n'
    assert tool_call(*CALL_STATES, form="text").count("state=") == 2 * len(CALL_STATES), (
        "elsewhere each change is there"
    )
    assert tool_call(*CALL_STATES, form="json").count('"state"') == 2 * len(CALL_STATES)


def test_no_model_is_known_of_a_body_that_is_none() -> None:
    fields = {**EXCHANGE, "status": 400, "code": "malformed_request"}
    del fields["model"]
    got = shown(lambda: ACCESS.info("exchange", extra={"fields": fields}))
    assert got == "POST chat - 400 malformed_request 5.6 s\n"


def test_other_lines_say_who_and_how_bad_and_keep_their_fields() -> None:
    def fails() -> None:
        try:
            raise ValueError("bad \x1b[31m value")
        except ValueError:
            LOG.exception("broke")

    got = shown(
        lambda: LOG.warning("one\n  two \x1b]0;title\x07", extra={"fields": {"tool": "\u202ex", "n": 1}}), fails
    )
    first, second, third, *trace = got.splitlines()
    assert first == "WARNING toolwire.test_terminal: one"
    assert second == '  two \\x1b]0;title\\x07 tool="\\u202ex" n=1'
    assert third == "ERROR toolwire.test_terminal: broke"
    assert trace[0].startswith("Traceback")
    assert trace[-1] == "ValueError: bad \\x1b[31m value"


def test_colours_where_they_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[32m200\x1b[0m" in access()
    assert "\x1b[31m502\x1b[0m \x1b[31mupstream_error\x1b[0m" in access(status=502, code="upstream_error")
    assert "\x1b[33mWARNING\x1b[0m" in shown(lambda: LOG.warning("x"))
    assert "\x1b[31m" not in access(model="\x1b[31mred")
    assert not takes_colours({"TERM": "dumb"})
    assert not takes_colours({"TERM": "xterm", "NO_COLOR": "1"})
    assert takes_colours({"TERM": "xterm", "NO_COLOR": ""}), "as no-color.org wants it"
    monkeypatch.setattr(sys, "platform", "win32")
    assert not takes_colours({})
    assert takes_colours({"WT_SESSION": "x"})


@every(
    ("form", "stream"), [("text", Terminal()), ("auto", io.StringIO()), ("json", Terminal()), ("json", io.StringIO())]
)
def test_everything_else_has_all_fields(form: str, stream: io.StringIO) -> None:
    got = shown(lambda: ACCESS.info("exchange", extra={"fields": EXCHANGE}), form=form, stream=stream)
    assert "total_ms" in got
    assert got.startswith("{") is (form == "json")


def test_a_reload_changes_the_form() -> None:
    stream = Terminal()
    shown(lambda: ACCESS.info("exchange", extra={"fields": EXCHANGE}), stream=stream)
    change_logging("json", "info")
    ACCESS.info("exchange", extra={"fields": EXCHANGE})
    change_logging("auto", "info")
    ACCESS.info("exchange", extra={"fields": EXCHANGE})
    first, second, third = stream.getvalue().splitlines()
    assert first == third == "POST chat smollm2 200 5.6 s"
    assert second.startswith("{")


@every(
    ("ms", "said"),
    [(0.0, "0 ms"), (999.4, "999 ms"), (999.6, "1.0 s"), (5612.4, "5.6 s"), (99_940, "99.9 s"), (99_960, "100 s"), (754_000, "754 s")],
)  # fmt: skip
def test_how_long(ms: float, said: str) -> None:
    assert duration(ms) == said


@given(st.text(st.characters(codec=None, categories=None)))
def test_law_a_name_is_one_word_and_can_be_printed(name: str) -> None:
    got = word(name)
    assert got.isprintable()
    assert got.encode()
    assert " " not in got or (got[0] == got[-1] == '"')
    assert visible(visible(name)) == visible(name)


async def test_requests_through_a_gateway() -> None:
    """What a person sees of requests: a call, an error, a try that failed, and a model that would clear the screen."""
    stream = Terminal()
    call = '<tool_call>{"name": "f", "arguments": {"x": "1"}}</tool_call>'
    body = {"messages": USER, "tools": [function("f", x="string")]}
    set_up_logging("auto", "info", stream)
    async with serving(read_config({"backends": {"m": {"kind": "mock", "script": [call]}}})) as server:
        await post(server, {**body, "model": "smollm2"})
        await post(server, {**body, "model": "\x1b[2Jm", "stream": True})
    retry = {"retry": {"attempts": 2, "backoff_s": 0.0}}
    async with gateway_before([Refuse(500), Say("fine")], defaults=retry) as (server, _):
        await post(server, {"messages": USER, "model": "m"})
    async with serving(read_config({"backends": {"m": {"kind": "mock"}}, "routes": [{"model": "only"}]})) as server:
        await post(server, {"messages": USER, "model": "other"})
    flush_logs()
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("POST")]
    words = [line.rsplit(" ", 2)[0] for line in lines]
    assert words == [
        "POST chat smollm2 200 1 call",
        'POST chat "\\x1b[2Jm" 200 stream 1 call',
        "POST chat m 200 2 attempts (up)",
        "POST chat other 404 model_not_found",
    ]
    assert all(line.rsplit(" ", 1)[1] in ("ms", "s") for line in lines)
