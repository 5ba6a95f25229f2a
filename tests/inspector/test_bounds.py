"""Bounds on looking at exchanges: bodies of every route, how many requests at once, and what is shown of an
exchange that is large in some way. Sizes and objects are counted, never time."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, post, read_config
from tests.e2e.edge import running
from tests.inspector.inspected import asked, inspecting
from tests.inspector.test_routes import HERS, HIS, KEYED, bearer
from tests.waiting import GUARD_S
from toolwire.config import LimitsConfig
from toolwire.extras.capture.files import CapturedExchange, Entry, read_capture, write_capture
from toolwire.extras.capture.recording import RecordingError
from toolwire.extras.inspector import answer as answers
from toolwire.extras.inspector import prompt, uploads
from toolwire.extras.inspector.bounds import MOST_BYTES, MOST_READS, MOST_ROUNDS, READ_CHARS, within_bounds
from toolwire.extras.inspector.formats import read_in_all_formats
from toolwire.extras.inspector.routes import READS
from toolwire.extras.inspector.uploads import open_capture
from toolwire.extras.inspector.view import view
from toolwire.registry import registries
from toolwire.testing import chunk, frame

LIMITS = LimitsConfig()
MARK = b'{"toolwire_capture":1,"request_id":"r"'

# --- bodies ---------------------------------------------------------------------------------------------------------

MANY = b"[" + b"[]," * 200_000 + b"[]]"
DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000


def request_with(value: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"hi"}],"x":' + value + b"}"


def check_of(value: bytes) -> bytes:
    return b'{"api":"chat","body":' + request_with(value) + b"}"


def capture_of(value: bytes) -> bytes:
    return MARK + b',"x":' + value + b"}\n"


HOSTILE = {"many values": MANY, "deep": DEEP, "large": b'"' + b"x" * 200_000 + b'"'}
TAKERS = {
    "/inspect/api/view": capture_of,
    "/inspect/api/formats": capture_of,
    "/inspect/api/check": check_of,
    "/inspect/try/hermes/v1/chat/completions": request_with,
    CHAT: request_with,
}


@every("kind", HOSTILE)
async def test_a_hostile_body_is_refused_at_every_route(kind: str) -> None:
    """Too large, too deep, too many values: 413, or 400 before a value is built."""
    most = 100_000 if kind == "large" else 10_000_000
    limits = {"limits": {"body_bytes": most}, "capture": {"keep": 0, "exchange_bytes": most // 4}}

    async def pieces(body: bytes) -> Any:
        yield body

    async with inspecting(read_config({**KEYED, **limits})) as gateway:
        for path, taken in TAKERS.items():
            for data in (taken(HOSTILE[kind]), pieces(taken(HOSTILE[kind]))):
                headers = {"Content-Type": "application/json", **bearer(HERS)}
                got = await gateway.fetch("POST", path, data=data, headers=headers)
                assert got.status == (413 if kind == "large" else 400), (path, got.body[:300])
                assert got.json()["error"]["code"] in ("request_too_large", "invalid_json", "invalid_value")
                good = await post(gateway.server, asked(), headers=bearer(HERS))
                assert good.status == 200


WITHOUT_BODY = (
    *("/inspect", "/inspect/api/setup", "/inspect/api/overview", "/inspect/api/exchanges/r", "/inspect/app.js"),
    *("/admin/tools", "/admin/captures", "/admin/captures/r", "/metrics", "/v1/models", "/openapi.json"),
)


async def test_a_body_where_none_is_wanted_is_not_read() -> None:
    async with running(read_config({**KEYED, "capture": 1})) as gateway, asyncio.timeout(GUARD_S):
        for method, path in product(("GET", "DELETE", "PUT"), WITHOUT_BODY):
            lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {HERS}"]
            head = "\r\n".join([*lines, f"Content-Length: {10**8}", "", ""])
            async with gateway.connection() as (reader, writer):
                writer.write(head.encode() + b"x" * 200_000)
                answer = await reader.readuntil(b"\r\n\r\n")
                assert b"connection: close" in answer.lower(), (method, path)
                assert gateway.body_bytes < 200_000, (method, path)


async def test_a_key_has_so_many_reading_requests_at_once() -> None:
    """Uploads that do not come take the places of their key, and of no other."""
    async with running(read_config(KEYED)) as gateway, asyncio.timeout(GUARD_S):

        async def begin(key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            lines = ["POST /inspect/api/view HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}"]
            writer.write("\r\n".join([*lines, "Content-Length: 1000", "Expect: 100-continue", "", ""]).encode())
            return reader, writer

        slow = [await begin(HERS) for _ in range(READS)]
        for reader, _ in slow:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")  # it has its place
        reader, writer = await begin(HERS)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"\r\nRetry-After: 1\r\n" in answer
        writer.close()
        other, writer = await begin(HIS)
        assert (await other.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.transport.abort()
        for _, writer in slow:
            writer.transport.abort()


async def test_a_check_counts_as_a_request_of_its_key() -> None:
    keys = [{"key": HERS, "requests_per_min": 1}, {"key": HIS}]
    async with inspecting(read_config({**KEYED, "auth": {"keys": keys}})) as gateway:
        for status in (200, 429):
            got = await gateway.fetch("POST", "/inspect/api/check", data=check_of(b"1"), headers=bearer(HERS))
            assert got.status == status
        assert (await gateway.get("setup", **bearer(HERS)))[0] == 200
        got = await gateway.fetch("POST", "/inspect/api/check", data=check_of(b"1"), headers=bearer(HIS))
        assert got.status == 200


# --- who is told what -----------------------------------------------------------------------------------------------

OTHERS: dict[str, Any] = {
    **KEYED,
    "backends": {"first": KEYED["backends"]["mock"], "second": KEYED["backends"]["mock"]},
    "routes": [
        {"model": "m", "aliases": ["m-too"], "backend": "first"},
        {"model": "other", "backend": "second"},
    ],
}


async def test_a_key_is_told_of_its_own_routes() -> None:
    told = {b'"m"', b'"m-too"', b'"first"', b'"second"', b'"other"'}
    async with inspecting(read_config(OTHERS)) as gateway:
        for place in ("/inspect/api/setup", "/inspect/api/overview", "/v1/models"):
            his = (await gateway.fetch("GET", place, headers=bearer(HIS))).body
            hers = (await gateway.fetch("GET", place, headers=bearer(HERS))).body
            assert {word for word in told if word in his} <= {b'"other"', b'"second"'}, place
            assert {word for word in told if word in hers} - {word for word in told if word in his}, place


async def test_an_error_lists_the_models_of_its_key() -> None:
    async with inspecting(read_config(OTHERS)) as gateway:
        body = {**asked(), "model": "none"}
        for key, hint in ((HIS, "other"), (HERS, "m, m-too, other")):
            got = await post(gateway.server, body, headers=bearer(key))
            assert got.status == 404
            assert f"Models of this gateway: {hint}." in got.json()["error"]["message"]
            data = json.dumps({"api": "chat", "body": body}).encode()
            checked = await gateway.fetch("POST", "/inspect/api/check", data=data, headers=bearer(key))
            assert checked.json()["error"]["code"] == "model_not_found"
            assert ("m-too" in checked.body.decode()) is (key == HERS)


async def test_one_request_id_of_several_keys() -> None:
    async with inspecting(read_config({**KEYED, "capture": 10})) as gateway:
        for key, text in ((HERS, "hers"), (HIS, "his"), (HERS, "hers again")):
            body = {**asked(text=text), "model": "other"}
            await post(gateway.server, body, headers={"X-Request-Id": "same", **bearer(key)})
        for key, texts in ((HERS, ["hers again", "hers"]), (HIS, ["his"])):
            rows: list[Any] = []
            async with asyncio.timeout(GUARD_S):
                while len(rows) < len(texts):  # a client has its answer a little earlier
                    got = await gateway.fetch("GET", "/admin/captures", headers=bearer(key))
                    rows = got.json()["data"]
                    await asyncio.sleep(0.005)
            assert [row["id"] for row in rows] == ["same"] * len(texts)
            for row, text in zip(rows, texts, strict=True):
                for place in ("/admin/captures/{}", "/inspect/api/exchanges/{}/capture"):
                    path = place.format(row["exchange_id"])
                    file = await gateway.fetch("GET", path, headers=bearer(key))
                    assert f'"content":"{text}"' in read_capture(file.body).bytes_of("request").decode()
                    other = HIS if key == HERS else HERS
                    assert (await gateway.fetch("GET", path, headers=bearer(other))).status == 404
            view_ = await gateway.ended("same", **bearer(key))
            assert f'"{texts[0]}"' in view_["request"]["text"]  # the youngest


# --- what is shown --------------------------------------------------------------------------------------------------


def captured(text: str = "", *, request: bytes = b'{"model":"m","messages":[]}', **entries: int) -> CapturedExchange:
    """A capture of a streamed answer with this text. `entries`: so many further ones of a kind."""
    sse = frame(chunk({"content": text})) + frame(chunk({}, "stop")) + frame("[DONE]")
    head = {"content-type": "text/event-stream"}
    made = [
        Entry("request", 0.0, data=request),
        Entry("sent", 0.0, 1, request),
        Entry("answered", 0.0, 1, fields={"status": 200, "headers": head}),
        Entry("received", 0.0, 1, sse),
        *(Entry(kind, 0.1, 1 if kind == "received" else 0, b": \n\n") for kind, n in entries.items() for _ in range(n)),
        Entry("output", 0.2, data=sse),
        Entry("end", 0.3, fields={"status": 200, "format": "hermes"}),
    ]
    return CapturedExchange({"request_id": "r", "endpoint": "chat"}, tuple(made))


def test_what_is_within_the_bounds_is_left_alone() -> None:
    capture = captured("hello", received=1000)
    assert within_bounds(capture, LIMITS) is capture
    assert open_capture(write_capture(capture.head, capture.entries), LIMITS).complete


def test_reads_and_rounds_beyond_the_bounds_are_left_out() -> None:
    capture = within_bounds(captured("hello", received=MOST_READS + 100), LIMITS)
    assert sum(entry.kind == "received" for entry in capture.entries) == MOST_READS
    assert capture.head["left_out_bytes"] == 101 * len(b": \n\n")
    rounds = tuple(Entry("sent", 0.0, number, b"{}") for number in range(1, 10 * MOST_ROUNDS))
    shown = within_bounds(CapturedExchange({}, rounds), LIMITS)
    assert len(shown.calls) == MOST_ROUNDS
    assert len(view(shown, registries())["rounds"]) == MOST_ROUNDS


@every("kind", ["request", "sent", "received", "output"])
def test_json_that_is_dear_to_parse_is_left_out(kind: Any) -> None:
    whole = Entry(kind, 0.0, 1 if kind in ("sent", "received") else 0, b'{"choices":' + MANY + b"}")
    streamed = Entry(kind, 0.0, whole.call, b'data: {"choices":' + MANY + b"}\n\n")
    for entry in (whole, streamed):
        shown = within_bounds(CapturedExchange({}, (entry,)), LIMITS)
        assert shown.head["left_out_bytes"] == len(entry.data)
        assert not shown.bytes_of(kind)
    large = Entry(kind, 0.0, whole.call, b'{"x":"' + b"y" * (MOST_BYTES + 1) + b'"}')
    assert not within_bounds(CapturedExchange({}, (large,)), LIMITS).bytes_of(kind)


@every("value", [MANY, DEEP])
def test_a_line_of_a_capture_may_hold_as_much_as_a_request(value: bytes) -> None:
    with pytest.raises(RecordingError, match="holds too much"):
        open_capture(MARK + b',"x":' + value + b"}\n", LIMITS)


def test_all_lines_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_LINES", 10)
    line = b'{"kind":"output","at":0,"x":[' + b"1," * 100 + b"1]}\n"
    with pytest.raises(RecordingError, match="holds too much"):
        open_capture(MARK + b"}\n" + line * 8, LIMITS)
    with pytest.raises(RecordingError, match="more than 10 lines"):
        open_capture(MARK + b"}\n" * 12, LIMITS)


def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Watches what is given to scanners."""
    seen: list[int] = []
    build = answers.build_scanner

    def watched(*args: Any, **options: Any) -> Any:
        scanner = build(*args, **options)

        class Watched:
            state = property(lambda _: scanner.state)
            held_bytes = property(lambda _: scanner.held_bytes)
            finish = staticmethod(scanner.finish)

            def feed(self, text: str) -> Any:
                seen.append(len(text))
                return scanner.feed(text)

        return Watched()

    monkeypatch.setattr(answers, "build_scanner", watched)
    return seen


def test_a_long_answer_is_searched_up_to_a_bound_and_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fed(monkeypatch)
    text = "word " * (READ_CHARS // 4)
    shown = view(captured(text), registries())
    (one,) = shown["rounds"]
    assert one["raw"]["text"] == text
    assert sum(seen) == READ_CHARS
    assert [span["kind"] for span in one["raw"]["spans"]] == ["text"]
    assert f"up to character {READ_CHARS}" in shown["judgements"][0]["words"]


def test_every_format_reads_the_beginning_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.inspector.formats.FORMATS_CHARS", 100)
    seen = fed(monkeypatch)
    shown = read_in_all_formats(captured("word " * 1000), registries())
    assert (len(shown["text"]), shown["left_out_chars"]) == (100, 4900)
    assert sum(seen) == 5000 + 100 * len(shown["formats"])


def test_a_request_is_shown_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.inspector.view.SHOWN_CHARS", 200)
    request = b'{"model":"m","messages":[],"x":[' + b"1," * 50 + b"1]}"
    shown = view(captured(request=request), registries())["request"]
    assert shown["text"].endswith("more characters are not shown.")
    assert len(shown["text"]) < 260
    assert shown["bytes"] == len(request)
    long = b'{"model":"m","messages":[],"x":"' + b"y" * 1000 + b'"}'
    assert view(captured(request=long), registries())["request"]["text"].startswith('{"model":"m"')


def conversation(count: int, more: str = "") -> bytes:
    said = [{"role": "user", "content": f"message number {number}{more}"} for number in range(count)]
    return json.dumps({"model": "m", "messages": said}).encode()


def test_messages_beyond_the_bound_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "MOST_MESSAGES", 10)
    shown = view(captured(request=conversation(50)), registries())["rounds"][0]["prompt"]["messages"]
    texts = ["".join(span["text"] for span in message["spans"]) for message in shown]
    assert texts[4:7] == ["message number 4", "… 40 messages are not shown …", "message number 45"]
    assert len(texts) == 11


def test_comparing_a_prompt_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is not compared says so, and is kept."""
    monkeypatch.setattr(prompt, "COMPARED_STEPS", 10_000)
    capture = captured(request=conversation(30))
    changed = tuple(
        Entry("sent", 0.0, 1, conversation(30, ", changed")) if entry.kind == "sent" else entry
        for entry in capture.entries
    )
    messages = view(CapturedExchange(capture.head, changed), registries())["rounds"][0]["prompt"]["messages"]
    kinds = [span["kind"] for message in messages for span in message["spans"]]
    assert kinds[0] != "unread" == kinds[-1]
    assert "".join(span["text"] for span in messages[-1]["spans"]) == "message number 29, changed"
