"""Every fault of a model server, in every way a client can ask: what the client gets, and what the log and the metrics
say.

One test a fault. Each goes through both protocols, both stream paths (passed through and scanned), streamed and
whole. The table for people, with the faults that other tests look at, is
docs/reference/faults.md.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
import logging
import os
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import CHAT, USER, function, gateway_before, post, serving, upstream_config
from tests.e2e.responses_answers import RESPONSES, read_events
from tests.e2e.speaking import SSE
from tests.e2e.test_faults import UNUSED, leaving_nothing
from tests.waiting import GUARD_S
from toolwire.observability.exposition import page
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.pipeline.handlers.status import METRICS
from toolwire.testing import Answer, Asked, Raw, Refuse, Say, Script, Upstream, WireAnswer, chunk, frame

TOOL = function("read_file", path="string")
FLAT = {"type": "function", **TOOL["function"]}
CALL = '<tool_call>{"name":"read_file","arguments":{"path":"a"}}</tool_call>'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
ROLE = frame(chunk({"role": "assistant", "content": ""}))
HEL = frame(chunk({"role": "assistant", "content": "Hel"}))
STREAM = HEL + frame(chunk({"content": "lo"})) + frame(chunk({}, "stop")) + b"data: [DONE]\n\n"
GARBAGE = b"data: {no json\n\n"
KEY = "sk-of-the-gateway-0123456789"
"""With which it asks the server."""
SAYS_KEY = {"error": {"message": f"Incorrect key {KEY} at http://127.0.0.1:45883/v1", "type": "x", "code": None}}
FAR = (b'"index":0', b'"index":1000000000000')


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _during(*rest: bytes, begin: bytes = b"", reset: bool = False, hang: bool = False) -> Script:
    """Bytes on the wire after the answer's beginning; a request for a whole answer gets the begin of one."""

    def turn(asked: Asked) -> Answer:
        if asked.json.get("stream"):
            return Raw(HEAD + _chunked(HEL + begin), *rest, hang=hang, reset=reset)
        begun = _chunked(b'{"id":"x","choices":[{"message":{"content":"Hel')
        return Raw(WHOLE_HEAD + begun, *rest, hang=hang, reset=reset)

    return turn


def _role(*rest: bytes, reset: bool = False) -> Script:
    """Nothing but a role in a stream; of a whole answer less than all."""

    def turn(asked: Asked) -> Answer:
        if asked.json.get("stream"):
            return Raw(HEAD + _chunked(ROLE), *rest, reset=reset)
        return Raw(WHOLE_HEAD + _chunked(b'{"id":"x"'), reset=True)

    return turn


def _packed(stream: bytes, whole: bytes | None = None, headers: dict[str, str] | None = None) -> Script:
    """These bytes as an answer; `whole` for a request that is not streamed (default: a good answer)."""

    def turn(asked: Asked) -> Answer:
        if asked.json.get("stream"):
            return Answer([stream], headers={**SSE, **(headers or {})})
        if whole is None:
            answer = Say("Hello")(asked)
            assert not headers
            return answer
        return Answer([whole], headers={"Content-Type": "application/json", **(headers or {})})

    return turn


def _goes_on(asked: Asked) -> Answer:
    """More behind the end."""
    if not asked.json.get("stream"):
        return Say("Hello")(asked)
    more = STREAM + frame({"error": {"message": "late"}}) + b"garbage"
    return Raw(HEAD + _chunked(STREAM + more), _chunked(STREAM), b"0\r\n\r\n")


def _whole(text: str) -> bytes:
    return (
        b'{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}]}'
        % (text.encode())
    )


@dataclass(frozen=True)
class Fault:
    """`early`: status and code while nothing was sent; None: an answer that is fine. `late`: the code inside a stream;
    None: a stream fails as early. `short`: the limit of time that is to be exceeded; elsewhere a machine that pauses
    would."""

    script: Script
    early: tuple[int, str] | None
    late: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    short: str | None = None
    unread: bool = False
    """No fault where bytes pass unread: the client gets them."""


GONE = (502, "upstream_disconnected")
INVALID = (502, "upstream_invalid_response")
TIMEOUT = (504, "upstream_timeout")

FAULTS: dict[str, Fault] = {
    # before the first byte
    "refused": Fault(Raw(), GONE),  # the test takes a port where nobody listens
    "reset before the headers": Fault(Raw(reset=True), GONE),
    "reset during the headers": Fault(Raw(b"HTTP/1.1 200 OK\r\nContent-Ty", reset=True), GONE),
    "reset after the headers": Fault(Raw(HEAD, reset=True), GONE),
    "closed before the headers": Fault(Raw(), GONE),
    "no answer": Fault(Raw(hang=True), TIMEOUT, short="first_byte_s"),
    "headers but no body": Fault(Raw(HEAD, hang=True), TIMEOUT, short="first_byte_s"),
    "closed during the headers": Fault(Raw(b"HTTP/1.1 20"), GONE),
    "not HTTP": Fault(Raw(b"\x00\xff garbage\r\n\r\n"), INVALID),
    "a web page": Fault(Answer([b"<html>hi</html>"], headers={"Content-Type": "text/html"}), INVALID),
    "a web page as a stream": Fault(Answer([b"<html>hi</html>"], headers=SSE), INVALID),
    "words as a stream": Fault(Answer([b"Internal ", b"Server Error"]), INVALID),
    "400": Fault(Refuse(400, "no such sampler"), (400, "upstream_rejected")),
    "400 about the length": Fault(Refuse(400, "This model's maximum context length is 4096 tokens"), (400, "context_length_exceeded")),
    "401": Fault(Refuse(401), (502, "upstream_auth")),
    "408": Fault(Refuse(408), TIMEOUT),
    "413": Fault(Refuse(413), (413, "request_too_large")),
    "429 with Retry-After": Fault(
        Refuse(429, headers={"Retry-After": "7"}), (429, "rate_limit_exceeded"), headers=(("Retry-After", "7"),)
    ),
    "429 without Retry-After": Fault(Refuse(429), (429, "rate_limit_exceeded"), headers=(("Retry-After", None),)),
    "429 with an invalid Retry-After": Fault(
        Refuse(429, headers={"Retry-After": "7; soon"}), (429, "rate_limit_exceeded"), headers=(("Retry-After", None),)
    ),
    "500": Fault(Refuse(500), (502, "upstream_error")),
    "404 for the model": Fault(Refuse(404, "The model `m` does not exist."), (404, "model_not_found")),
    "404 for the path": Fault(Refuse(404, body=b'{"detail":"Not Found"}'), (502, "upstream_error")),
    "garbage as the answer": Fault(_packed(GARBAGE, b"{no json"), INVALID),
    "an invalid chunk size": Fault(Raw(HEAD + b"zz\r\n"), INVALID),
    "an invalid status line": Fault(Raw(b"HTTP/1.1 000 OK\r\nContent-Length: 9\r\n\r\nok", hang=True), INVALID),
    "an invalid HTTP version": Fault(Raw(b"HTTP/9.9 200 OK\r\nContent-Length: 9\r\n\r\nok", hang=True), INVALID),
    # in the middle
    "reset between frames": Fault(_during(reset=True), GONE, "upstream_disconnected"),
    "reset inside a frame": Fault(_during(_chunked(b'data: {"id":"x","cho'), reset=True), GONE, "upstream_disconnected"),
    "reset inside a call": Fault(
        _during(begin=frame(chunk({"content": CALL[:40]})), reset=True), GONE, "upstream_disconnected"
    ),
    "reset after a role": Fault(_role(reset=True), GONE),
    "ended after a role": Fault(_role(_chunked(b"")), GONE),
    "an error after a role": Fault(_packed(ROLE + frame(SAYS_KEY), orjson.dumps(SAYS_KEY)), (502, "upstream_error")),
    "closed inside a chunk": Fault(_during(b"ff\r\ndata: {"), GONE, "upstream_disconnected"),
    "ended in the text": Fault(
        _packed(HEL, b'{"id":"x","choices":[{"message":{"content":"Hel'), INVALID, "upstream_disconnected"
    ),
    "stalled": Fault(_during(hang=True), TIMEOUT, "upstream_timeout", short="idle_s"),
    "stalled inside a call": Fault(
        _during(begin=frame(chunk({"content": CALL[:40]})), hang=True), TIMEOUT, "upstream_timeout", short="idle_s"
    ),
    "garbage between frames": Fault(_packed(HEL + GARBAGE, b"{no json"), INVALID, "upstream_invalid_response"),
    "an invalid later chunk size": Fault(_during(b"zz\r\n", hang=True), INVALID, "upstream_invalid_response"),
    "a choice with the index 1,000,000,000,000": Fault(
        _packed(HEL + STREAM.removeprefix(HEL).replace(*FAR), _whole("Hello").replace(*FAR)),
        INVALID,
        "upstream_invalid_response",
        unread=True,
    ),
    "an error with the key and a status 200": Fault(_packed(frame(SAYS_KEY), orjson.dumps(SAYS_KEY)), (502, "upstream_error")),
    "an error with the key in a later frame": Fault(
        _packed(HEL + frame(SAYS_KEY) + STREAM, orjson.dumps(SAYS_KEY)), (502, "upstream_error"), "upstream_error"
    ),
    "an answer with the key": Fault(
        _packed(HEL + frame(chunk({"content": f" {KEY} "})) + STREAM, _whole(f"Hel {KEY}")), INVALID, "upstream_invalid_response"
    ),
    "an answer with the key in two frames": Fault(
        _packed(HEL + frame(chunk({"content": KEY[:9]})) + frame(chunk({"content": KEY[9:]})) + STREAM, _whole(f"Hel {KEY}")),
        INVALID,
        "upstream_invalid_response",
    ),
    # not a fault for the client
    "unrequested gzip": Fault(
        _packed(gzip.compress(STREAM), gzip.compress(_whole("Hello")), {"Content-Encoding": "gzip"}), None
    ),
    "frames behind [DONE]": Fault(_goes_on, None),
    "lines end with CR": Fault(_packed(STREAM.replace(b"\n", b"\r")), None),
    "lines end with CRLF": Fault(_packed(STREAM.replace(b"\n", b"\r\n")), None),
    "a byte order mark": Fault(_packed(b"\xef\xbb\xbf" + STREAM), None),
    "comments": Fault(_packed(b": hello\n\n" + STREAM.replace(b"data: [", b": wait\n\n:\ndata: [")), None),
    "data in several lines": Fault(_packed(STREAM.replace(b'"choices":', b'"choices":\ndata: ')), None),
    "event, id and retry fields": Fault(_packed(STREAM.replace(b"data: {", b"event: message\nid: 1\nretry: 9\ndata: {")), None),
}  # fmt: skip

SHORT_S = 0.15
WAYS = list(itertools.product((CHAT, RESPONSES), (False, True), (False, True)))


def body(path: str, scanned: bool, stream: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"messages": USER} if path == CHAT else {"input": "hi"}
    tools = {"tools": [TOOL if path == CHAT else FLAT]} if scanned else {}
    return {**asked, **tools, "stream": stream}


def check_error(error: dict[str, Any], code: str) -> None:
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    assert error["message"]


def check_early(answer: WireAnswer, fault: Fault) -> None:
    assert fault.early is not None
    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (fault.early[0], "application/json")
    assert set(answer.json()) == {"error"}
    check_error(answer.json()["error"], fault.early[1])
    for name, value in fault.headers:
        assert answer.headers.get(name) == value


def check_late(answer: WireAnswer, path: str, code: str, *, scanned: bool) -> None:
    """One terminal event, in the protocol's own form, and no call that was not whole."""
    assert answer.status == 200
    if path == CHAT:
        *chunks, error, done = answer.frames()
        assert done == "[DONE]"
        check_error(error["error"], code)
        choices = [choice for c in chunks for choice in c["choices"]]
        assert all(choice["finish_reason"] is None and "tool_calls" not in choice["delta"] for choice in choices)
        check_text("".join(choice["delta"].get("content") or "" for choice in choices), scanned=scanned)
        return
    events = read_events(answer.body)
    assert [e["type"] for e in events if e["type"] in ("error", "response.completed", "response.failed")] == [
        "error",
        "response.failed",
    ]
    check_error(events[-2]["error"], code)
    check_text("".join(e["delta"] for e in events if e["type"] == "response.output_text.delta"), scanned=scanned)
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]


def check_text(text: str, *, scanned: bool) -> None:
    """Where calls are looked for, nothing of one that broke off is text."""
    assert text.removesuffix(KEY[:9]) == "Hel" if scanned else text.startswith("Hel")


def check_fine(answer: WireAnswer, path: str, stream: bool) -> None:
    assert answer.status == 200, answer.body
    if path == CHAT and stream:
        *chunks, last = answer.body.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n\n")[:-1]
        assert last.split("\n")[-1] == "data: [DONE]"
        assert sum('"finish_reason":"stop"' in c for c in chunks) == 1
        assert "".join(c for c in chunks).count('"Hel"') == 1
    elif path == CHAT:
        assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    else:
        whole = read_events(answer.body)[-1]["response"] if stream else answer.json()
        assert whole["status"] == "completed"
        assert whole["output"][0]["content"][0]["text"] == "Hello"


SAID = ("toolwire_requests", "toolwire_backend_errors", "toolwire_inflight_requests")
"""The families that are looked at: to write the histograms takes longer than the requests."""


def counted(server: TestServer) -> dict[str, float]:
    """The samples that the metrics page has of some families."""
    metrics = server.app[METRICS]  # type: ignore[union-attr]  # there is one
    text, _ = page([family for family in metrics.families if family.name.startswith(SAID)], metrics.cells, "")
    lines = (line for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def grown(before: dict[str, float], after: dict[str, float], family: str) -> dict[str, float]:
    """What was added to the samples of a family."""
    found = {name: value - before.get(name, 0) for name, value in after.items() if name.startswith(family + "{")}
    return {name: value for name, value in found.items() if value}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_server(name: str, caplog: pytest.LogCaptureFixture, nobody: str) -> None:
    fault = FAULTS[name]
    caplog.set_level(logging.INFO, "toolwire.access")
    async with Upstream([fault.script]) as upstream:
        url = nobody if name == "refused" else upstream.url
        timeouts = {fault.short: SHORT_S} if fault.short else {}
        backend = {"api_key": KEY, "timeouts": timeouts}
        async with serving(upstream_config(url, backend=backend)) as server:
            for path, scanned, stream in WAYS:
                caplog.clear()
                before = counted(server)
                async with asyncio.timeout(GUARD_S):
                    answer = await post(server, body(path, scanned, stream), path=path)
                assert KEY.encode() not in answer.body
                assert b"45883" not in answer.body
                late = fault.late if stream else None
                fine = fault.early is None or (fault.unread and path == CHAT and not scanned)
                if fine:
                    late = None
                    check_fine(answer, path, stream)
                elif late is None:
                    check_early(answer, fault)
                else:
                    check_late(answer, path, late, scanned=scanned)
                status, code = (200, late) if late or fine else fault.early
                check_said(server, caplog, before, path, stream, status, code)


def check_said(
    server: TestServer,
    caplog: pytest.LogCaptureFixture,
    before: dict[str, float],
    path: str,
    stream: bool,
    status: int,
    code: str | None,
) -> None:
    """One access line and one request counted; a failure of the server counted as that, once."""
    (line,) = [record.__dict__["fields"] for record in caplog.records if record.name == "toolwire.access"]
    assert (line["status"], line.get("code"), line["stream"]) == (status, code, stream)
    after = counted(server)
    endpoint = "chat" if path == CHAT else "responses"
    (requests,) = grown(before, after, "toolwire_requests_total").items()
    assert requests[1] == 1
    assert f'endpoint="{endpoint}"' in requests[0]
    assert f'status="{status}"' in requests[0]
    errors = grown(before, after, "toolwire_backend_errors_total")
    assert errors == ({f'toolwire_backend_errors_total{{backend="up",code="{code}"}}': 1} if code else {})
    assert after["toolwire_inflight_requests"] == 0


async def test_an_answer_too_many_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """R33.6. That no client ever gets it: `tests/backends/test_out_of_step.py`."""
    whole = _whole("Hello")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(whole)
    async with gateway_before([Raw((head + whole) * 2, hang=True)]) as (server, _):
        for number in (1, 2):
            check_fine(await post(server, body(CHAT, False, False)), CHAT, False)
            assert counted(server)['toolwire_backend_errors_total{backend="up",code="out_of_step"}'] == number
    assert caplog.text.count("no request asked for") == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
@pytest.mark.parametrize("mode", ["prompt", "native"])
async def test_the_table_leaves_nothing_behind(mode: str) -> None:
    """No task, no socket, no descriptor, whatever went wrong."""
    short = {"timeouts": {"first_byte_s": SHORT_S, "idle_s": SHORT_S}}
    ways = [(CHAT, False, True), (CHAT, True, False), (RESPONSES, False, False), (RESPONSES, True, True)]
    async with gateway_before([Say("ok")], backend=short | UNUSED, defaults={"mode": mode}) as (server, upstream):
        async with leaving_nothing(server, upstream):
            for number, fault in enumerate(FAULTS.values()):
                for path, scanned, stream in ways[number % 2 :: 2] if mode == "prompt" else ways[-1:]:
                    upstream.script = [fault.script]
                    async with asyncio.timeout(GUARD_S):
                        await post(server, body(path, scanned, stream), path=path)
        assert not server.app[CONVERSATIONS].running
