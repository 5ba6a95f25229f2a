"""`Retry-After` of a model server: what is heeded, what a client is told, and what is neither."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.e2e.conftest import USER, post, serving, upstream_config
from tests.waiting import GUARD_S
from toolwire.errors import ClientFault, GatewayError
from toolwire.testing import Raw, Upstream
from toolwire.upstream.servers.retry_after import (
    LONGEST_S,
    as_header,
    as_headers,
    named_wait_s,
    retry_after_ms,
    retry_after_s,
    wait_s,
)
from toolwire.upstream.servers.upstream_errors import read_refusal

PAST = "Sun, 06 Nov 1994 08:49:37 GMT"


@every(
    ("value", "seconds", "told"),
    [
        (None, None, None),
        ("0", 0, "0"),
        ("7", 7, "7"),
        (" 12\t", 12, "12"),
        ("007", 7, "7"),
        ("86401", LONGEST_S, "86400"),
        ("9" * 400, LONGEST_S, "86400"),
        ("0" * 400 + "5", 5, "5"),
        (PAST, 0, PAST),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0, PAST),
        ("Sun Nov  6 08:49:37 1994", 0, PAST),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_S, "86400"),
        *((value, None, None) for value in (
            *("", " ", "soon", "-5", "+5", "1.5", "1e999", "1_000", "0x10", "NaN", "inf", "5 s", "5, 7", "²", "٣", "\x017", "7\x01"),
            *("7\r\nX-Evil: 1", "7\x00", "7\x7f", "7\xa0", "7é", "Sun, 99 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 99:49:37 GMT"),
            *("Sun, 06 Nov 1994 08:49:37 +0100", "06 Nov 1994 08:49:37 GMT",  PAST + "\x01"),
            *("Sun, 06 Nov 1994 08:49:37 GMT, 7", "Sun, 06 Now 1994 08:49:37 GMT"),
        )),
    ],
)  # fmt: skip
def test_what_is_heeded_and_told(value: str | None, seconds: float | None, told: str | None) -> None:
    assert (retry_after_s(value), as_header(value)) == (seconds, told)
    error = read_refusal(429, {} if value is None else {"Retry-After": value}, b"")
    assert error.headers == ({} if told is None else {"Retry-After": told})


@every(
    ("value", "told"),
    [
        (None, None),
        ("1", "1"),
        (" 1500\t", "1500"),
        ("0", "0"),
        ("007", "7"),
        ("1500.0", "1500"),
        ("1500.25", "1501"),
        ("9" * 400, "86400000"),
        ("86400001", "86400000"),
        *((value, None) for value in ("", "soon", "-5", "+5", "1e3", "NaN", "inf", "5 ms", "1.", ".5", "²", "٣", "5, 7", "7\x00")),
    ],
)  # fmt: skip
def test_milliseconds(value: str | None, told: str | None) -> None:
    headers = {} if value is None else {"retry-after-ms": value}
    assert retry_after_ms(value) == (None if told is None else int(told))
    assert as_headers(headers).get("retry-after-ms") == told
    assert wait_s(headers) == (None if told is None else int(told) / 1000)
    both = {"Retry-After": "7", **headers}
    assert wait_s(both) == (7.0 if told is None else int(told) / 1000)
    assert as_headers(both) == {"Retry-After": "7", **({} if told is None else {"retry-after-ms": told})}


def test_who_reads_seconds_only_is_told_them() -> None:
    assert as_headers({"retry-after-ms": "1500"}) == {"Retry-After": "2", "retry-after-ms": "1500"}
    assert as_headers({"retry-after-ms": "0"}) == {"Retry-After": "1", "retry-after-ms": "0"}


@every(
    ("message", "seconds"),
    [
        ("You exceeded your current quota. Please retry in 34.07s.", 34.07),  # Gemini
        ("Rate limit reached for m on tokens per min. Please try again in 1.898s. Visit", 1.898),  # OpenAI
        ("Limit 500000, Used 499000. Please try again in 6m0s.", 360),  # Groq
        ("try again in 1h2m3.5s", 3723.5),
        ("Try again in 86ms", 0.086),
        ("Please retry after 30 seconds.", 30),
        ("Please retry after 1 second", 1),
        ("try again in 5 minutes", 300),
        ("try again in 2 hours", 7200),
        ("try again in 9999h", LONGEST_S),
        *((message, None) for message in (
            *("", "Please try again later.", "Please try again in a few seconds.", "try again in 5", "try again in 5 days"),
            *("retry in 3 steps", "try again in 7 millions", "It may be retried in 5s"),
        )),
    ],
)  # fmt: skip
def test_a_wait_in_the_message(message: str, seconds: float | None) -> None:
    assert named_wait_s(message) == seconds
    error = read_refusal(429, {}, orjson.dumps({"error": {"message": message}}))
    assert wait_s(error.headers) == (None if seconds is None else pytest.approx(seconds, abs=0.001))
    told = read_refusal(429, {"Retry-After": "7"}, orjson.dumps({"error": {"message": message}}))
    assert told.headers == {"Retry-After": "7"}


def test_a_date_is_told_as_it_is_and_counted_from_now() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    wait = retry_after_s(date)
    assert wait is not None
    assert 3500 < wait <= 3600
    assert as_header(date) == date


@given(
    st.one_of(
        st.text(),
        st.from_regex(r"[0-9]{1,20}"),
        st.from_regex(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"),
    )
)
def test_whatever_it_says_it_can_be_sent(value: str) -> None:
    told, wait = as_header(value), retry_after_s(value)
    assert (told is None) == (wait is None)
    assert told is None or (told.isascii() and told.isprintable() and len(told) < 40)
    assert wait is None or 0 <= wait <= LONGEST_S


async def test_a_client_always_gets_its_answer() -> None:
    body = b'{"error":{"message":"slow down"}}'
    async with (
        asyncio.timeout(GUARD_S),
        Upstream() as upstream,
        serving(upstream_config(upstream.url)) as server,
    ):
        for value, stream in product(["7\x01", "\x0b7", "7\x7f", "7\x80", "7\x00x", "soon"], (False, True)):
            head = f"HTTP/1.1 429 Too Many\r\nRetry-After: {value}\r\nContent-Length: {len(body)}\r\n\r\n"
            upstream.script = [Raw(head.encode("latin-1") + body)]
            answer = await post(server, {"messages": USER, "stream": stream})
            assert answer.status in (429, 502)  # the parser refuses some of them
            assert "Retry-After" not in answer.headers
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_an_error_has_only_headers_that_can_be_sent() -> None:
    """Also those of a plug-in: an error is always said."""
    given = {
        "Retry-After": "7",
        "X-A": "a\tb",
        "X-B": "a\r\nX-C: d",
        "X-D": "\x00",
        "X-É": "e",
        "": "x",
        "X-F": "é",
        "X-G": "",
    }
    for kind in (GatewayError, ClientFault):
        assert kind("no", headers=given).headers == {"Retry-After": "7", "X-A": "a\tb", "X-G": ""}
    assert ClientFault("no", headers={"X-Number": 5}).headers == {"X-Number": "5"}  # type: ignore[dict-item]  # plug-ins are not all typed
