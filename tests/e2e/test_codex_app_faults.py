"""A `codex_app_server` that fails in every way it can: what the client is told, and that nobody else notices
(docs/reference/faults.md)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests import codex_double
from tests.cases import every
from tests.e2e.conftest import post, serving, upstream_config
from tests.e2e.forking import Forked
from tests.e2e.test_codex_app import PAIRS, WAYS, Codex, Start, codex, way
from tests.waiting import GUARD_S, runs, until
from toolwire.extras.codex_app import rpc
from toolwire.testing import WireAnswer

__all__ = ["codex", "way"]

OVERLOADED = {"code": -32001, "message": "Server overloaded; retry later."}
SECRET = "sk-the-codex-key-0123456789"


async def chat(up: Codex, text: str = "hi", *, stream: bool = False) -> WireAnswer:
    async with asyncio.timeout(GUARD_S):
        return await post(up.server, {"messages": [{"role": "user", "content": text}], "stream": stream})


def text_of(answer: WireAnswer) -> str:
    assert answer.status == 200, answer.body
    return str(answer.json()["choices"][0]["message"]["content"])


def error_of(answer: WireAnswer, *, stream: bool) -> tuple[str, str]:
    """Type and code of an error, wherever it stands."""
    if not stream or answer.status != 200:
        error = answer.json()["error"]
    else:
        error = next(frame["error"] for frame in answer.frames() if isinstance(frame, dict) and "error" in frame)
    return error["type"], error["code"]


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    await until(lambda: not runs(pid))


# --- too much to do ---------------------------------------------------------------------------------------------------


OVERLOADS = [("initialize", "websocket"), ("thread/start", "stdio"), ("turn/start", "websocket")]


@pytest.mark.parametrize(("method", "way"), OVERLOADS)
async def test_overload_is_waited_out(codex: Start, way: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tries with pauses, before anything is said; no try of the route is used up."""
    monkeypatch.setattr("toolwire.extras.codex_app.backend.PAUSE_S", 0.01)
    up = await codex(["Hello."], way=way, script={"refuse": {method: [OVERLOADED] * 3}})
    assert text_of(await chat(up)) == "Hello."
    assert len(up.told(method)) == 4


async def test_overload_that_does_not_end(codex: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.codex_app.backend.PAUSE_S", 0.001)
    up = await codex(["Hello."], way="websocket", script={"refuse": {"turn/start": [OVERLOADED] * 100}})
    for stream in (False, True):
        answer = await chat(up, stream=stream)
        assert (answer.status, error_of(answer, stream=stream)) == (503, ("server_error", "overloaded"))
        assert "overloaded" in answer.body.decode()


# --- a model that fails -----------------------------------------------------------------------------------------------

FAILURES: dict[str, tuple[Any, str, int, str]] = {
    "context": ("contextWindowExceeded", "It is full.", 400, "context_length_exceeded"),
    "rate": ("rateLimitExceeded", "Slow down.", 429, "rate_limit_exceeded"),
    "used up": ("usageLimitExceeded", "Come back later.", 429, "rate_limit_exceeded"),
    "key": ("unauthorized", "Who?", 502, "upstream_auth"),
    "no model": ("modelNotFound", "There is no such model.", 404, "model_not_found"),
    "overload": ("serverOverloaded", "Too much.", 503, "overloaded"),
    "inside": ("internalServerError", "High demand.", 502, "upstream_error"),
    "word": ("somethingNew", "Hm.", 502, "upstream_error"),
    "refused": ("other", '{"error": {"message": "No such thing."}}', 400, "upstream_rejected"),
    "429": ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "last status: 429", 429, "rate_limit_exceeded"),
    "401": (
        {"httpConnectionFailed": {"httpStatusCode": 401}},
        "status 401, url: http://10.1.2.3/v1",
        502,
        "upstream_auth",
    ),
    "cut": ({"responseStreamDisconnected": {"httpStatusCode": None}}, "cut", 502, "upstream_disconnected"),
    "closed": ("other", "stream disconnected before completion: stream closed", 502, "upstream_disconnected"),
}


async def test_a_turn_that_fails(codex: Start) -> None:
    turns = [
        {"when": f"<{name}>", "steps": [{"fail": {"message": message, "codexErrorInfo": info}}]}
        for name, (info, message, _, _) in FAILURES.items()
    ]
    up = await codex(*turns, ["Hello."], way="websocket")
    for name, stream in product(FAILURES, (False, True)):
        answer = await chat(up, f"<{name}>", stream=stream)
        assert (answer.status, error_of(answer, stream=stream)[1]) == FAILURES[name][2:], name
        assert b"10.1.2.3" not in answer.body
        assert text_of(await chat(up)) == "Hello."


LONG = {"input_error_code": "input_too_large", "max_chars": 1048576, "actual_chars": 2000000}
REFUSALS = [
    ({"code": -32602, "message": "Input exceeds the maximum length of 1048576 characters.", "data": LONG}, "context_length_exceeded", "1048576"),
    ({"code": -32600, "message": "remote image URLs are not supported; use an inline data URL instead"}, "unsupported_content", ""),
]  # fmt: skip


async def test_a_prompt_that_the_server_does_not_take(codex: Start) -> None:
    up = await codex(way="websocket", script={"refuse": {"turn/start": [error for error, *_ in REFUSALS]}})
    for _, code, told in REFUSALS:
        answer = await chat(up)
        assert (answer.status, error_of(answer, stream=False)[1]) == (400, code)
        assert told in answer.body.decode()


async def test_a_prompt_that_the_server_cuts_in_silence(codex: Start) -> None:
    """It makes a summary of what does not fit its model: that is another conversation, and is not answered."""
    compaction = {"notify": "item/started", "params": {"item": {"type": "contextCompaction", "id": "x"}}}
    up = await codex([compaction, "Something else.", {"wait": True}], way="websocket")
    answer = await chat(up)
    assert (answer.status, error_of(answer, stream=False)[1]) == (400, "context_length_exceeded")
    assert "This model's maximum context length" in answer.body.decode()
    await until(lambda: up.told("turn/interrupt"))


# --- who goes ---------------------------------------------------------------------------------------------------------


@PAIRS
async def test_who_goes_stops_the_turn(codex: Start, way: str, stream: bool) -> None:
    """R10.7, also before the first token; and the thread is let go."""
    up = await codex([{"wait": True}] if not stream else ["1", {"wait": True}], way=way)
    if stream:
        async with up.streaming():
            pass
    else:
        request = asyncio.create_task(chat(up))
        await until(lambda: up.told("turn/start"))
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    await until(lambda: up.told("turn/interrupt"))
    await until(lambda: up.told("thread/unsubscribe"))
    (interrupted,) = up.told("turn/interrupt")
    assert interrupted["threadId"] == up.told("turn/start")[0]["threadId"]


async def test_every_thread_is_released(codex: Start) -> None:
    """The server keeps what nobody lets go; what has ended need not be stopped."""
    up = await codex(["Hello."], way="websocket")
    for _ in range(3):
        await chat(up)
    assert await ready(up) == 200
    await until(lambda: len(up.told("thread/unsubscribe")) == 3)
    assert not up.told("turn/interrupt")


# --- a process that misbehaves ----------------------------------------------------------------------------------------


BOUNDED = {"frame_bytes": 100_000, "body_bytes": 100_000}
ENDED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "it dies": (["Half ", {"die": 3}], {}),
    "garbage without end": (["1", {"write": "oops", "times": 2000}, {"wait": True}], {}),
    "a frame without bounds": (["1", {"huge": 300_000}, {"wait": True}], {"way": "websocket", "limits": BOUNDED}),
}


@WAYS
@pytest.mark.parametrize("name", ENDED)
async def test_a_process_or_a_connection_that_ends(codex: Start, name: str, stream: bool) -> None:
    """Its answers end as errors, and the next request has another."""
    turn, more = ENDED[name]
    up = await codex(turn, ["Hello."], **more)
    answer = await chat(up, stream=stream)
    assert (answer.status, "upstream" in error_of(answer, stream=stream)[1]) == (200 if stream else 502, True)
    assert name != "it dies" or error_of(answer, stream=stream)[1] == "upstream_disconnected"
    assert text_of(await chat(up)) == "Hello."
    assert len(up.processes()) == 2


async def test_a_process_that_is_killed_while_nobody_asks(codex: Start) -> None:
    up = await codex(["Hello."])
    assert text_of(await chat(up)) == "Hello."
    os.kill(up.processes()[0]["started"], signal.SIGKILL)
    await until(lambda: len(up.processes()) >= 2)
    assert text_of(await chat(up)) == "Hello."


async def test_a_process_that_dies_takes_no_other_server_with_it(codex: Start) -> None:
    """What others were being told ends as an error, at once, and is not left hanging."""
    up = await codex(
        {"when": "one", "steps": ["1", {"wait": True}]}, {"when": "two", "steps": [{"die": 1}]}, ["Hello."]
    )
    async with up.streaming("one") as first:
        assert (await chat(up, "two")).status == 502
        assert b"upstream_disconnected" in await first.read()
    assert text_of(await chat(up, "three")) == "Hello."


async def answered(up: Codex) -> None:
    """Ask until there is an answer: where limits are so short that a slow machine may pass them, too."""
    async with asyncio.timeout(GUARD_S):
        while (await chat(up)).status != 200:
            pass


@pytest.mark.parametrize("before", [{"die": 1}, {"hang": True}], ids=["dies", "hangs"])
async def test_a_process_that_never_shakes_hands(
    codex: Start, before: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one; its successor does."""
    monkeypatch.setattr("toolwire.extras.codex_app.stdio.GRACE_S", 0.1)
    monkeypatch.setattr("toolwire.extras.codex_app.backend.STARTING_S", 0.5)
    limits = {"connect_s": 0.5} if "hang" in before else {}
    up = await codex(["Hello."], script={"before": [{**before, "once": 1}]}, backend={"timeouts": limits})
    first = await chat(up)
    assert error_of(first, stream=False)[1] == ("upstream_timeout" if limits else "upstream_disconnected")
    monkeypatch.setattr("toolwire.extras.codex_app.backend.STARTING_S", GUARD_S)  # its successor may start slowly
    await answered(up)
    await gone(up.processes()[0]["started"])


async def test_a_process_that_begins_slowly(codex: Start) -> None:
    """Who cannot wait is told so; the process is not killed for it."""
    slow = {"sleep": 1.0}
    up = await codex(["Hello."], script={"before": [slow]}, backend={"timeouts": {"connect_s": 0.1}})
    assert error_of(await chat(up), stream=False)[1] == "upstream_timeout"
    await answered(up)
    assert len(up.processes()) == 1


async def ready(up: Codex) -> int:
    async with aiohttp.ClientSession() as session, session.get(up.server.make_url("/ready")) as response:
        return response.status


async def test_a_process_that_hangs_in_a_turn(codex: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit ends the request; that it does not answer when it is to stop ends the process."""
    monkeypatch.setattr("toolwire.extras.codex_app.stdio.GRACE_S", 0.1)
    up = await codex(["1", {"hang": True}], ["Hello."], backend={"timeouts": {"idle_s": 1.0}})
    asking = asyncio.create_task(chat(up))
    await until(lambda: up.told("turn/start"))
    monkeypatch.setattr("toolwire.extras.codex_app.rpc.ANSWER_S", 0.3)
    answer = await asking
    assert (answer.status, error_of(answer, stream=False)[1]) == (504, "upstream_timeout")
    await gone(up.processes()[0]["started"])
    monkeypatch.setattr("toolwire.extras.codex_app.rpc.ANSWER_S", GUARD_S)  # its successor may start slowly
    await answered(up)


async def test_a_turn_that_never_says_anything(codex: Start) -> None:
    """Only it: the connection stays."""
    up = await codex([{"quiet": True}], ["Hello."], way="websocket", backend={"timeouts": {"first_byte_s": 0.3}})
    answer = await chat(up)
    assert (answer.status, error_of(answer, stream=False)[1]) == (504, "upstream_timeout")
    assert len(up.processes()) == 1


async def test_garbage(codex: Start, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """Frames that are no JSON-RPC are left out, and the log says so without repeating them."""
    garbage = [{"write": text} for text in ("oops " * 50, "[]", '"x"', "{", '{"id": [1], "result": 1}', "[" * 5000)]
    up = await codex(["Hel", *garbage, "lo."], way=way)
    assert text_of(await chat(up)) == "Hello."
    assert "is not JSON-RPC" in caplog.text
    assert "oops" not in caplog.text


@every(("in_a_row", "goes_on"), [(1, True), (2, False)])
async def test_much_garbage_ends_the_connection_if_nothing_else_comes_between(
    codex: Start, monkeypatch: pytest.MonkeyPatch, in_a_row: int, goes_on: bool
) -> None:
    monkeypatch.setattr(rpc, "MOST_UNREADABLE", 2)
    garbage = [{"write": "oops"}] * in_a_row
    up = await codex(["Hel", *garbage, "lo", *garbage, "."])
    answer = await chat(up)
    assert (text_of(answer) == "Hello.") if goes_on else (error_of(answer, stream=False)[1] == "upstream_disconnected")


async def test_a_frame_that_is_too_large(codex: Start, way: str) -> None:
    """It costs only the turn that it is about."""
    up = await codex(
        {"when": "one", "steps": ["1", {"wait": True}]},
        {"when": "two", "steps": [{"huge": 300_000}, {"wait": True}]},
        ["Hello."],
        way=way,
        limits={"frame_bytes": 100_000},
    )
    async with up.streaming("one"):
        answer = await chat(up, "two")
        assert (answer.status, error_of(answer, stream=False)[1]) == (502, "upstream_invalid_response")
        assert text_of(await chat(up, "three")) == "Hello."
    await until(lambda: len(up.told("turn/interrupt")) == 2)
    assert len(up.processes()) == 1


@WAYS
async def test_a_flood(codex: Start, stream: bool) -> None:
    """An answer that is too large is a fault of that answer, and what is said of no thread is not kept."""
    noise = {
        "write": '{"method": "noise", "params": {"threadId": "nobody", "text": "' + "x" * 1000 + '"}}',
        "times": 2000,
    }
    up = await codex(
        [noise, *["x" * 10_000] * 100, {"wait": True}], [noise, "Hello."], limits={"stream_bytes": 300_000}
    )
    answer = await chat(up, stream=stream)
    assert error_of(answer, stream=stream)[1] == "upstream_invalid_response"
    assert text_of(await chat(up)) == "Hello."


# --- what is written and inherited ------------------------------------------------------------------------------------


async def test_standard_error_is_in_the_log(codex: Start, caplog: pytest.LogCaptureFixture) -> None:
    """In lines of bounded length and number, without secrets."""
    caplog.set_level(logging.INFO, logger="toolwire.backends")
    steps = [
        {"complain": f"the key is {SECRET}"},
        {"complain": "OPENAI_API_KEY=abcdef123456 {'access_token': 'abcdef123456'} Authorization: Bearer abcdef123456"},
        {"complain": "eyJhbGciOiJIUzI1NiJ9.abcdef123456.abcdef123456"},
        {"complain": "long " * 10_000},
        {"complain": "again", "times": 3000},
        "Hello.",
    ]
    up = await codex(steps, backend={"codex": {"env": {"GW_KEY": SECRET}}})
    assert text_of(await chat(up)) == "Hello."
    await until(lambda: "again" in caplog.text)
    await up.server.close()
    assert "the key is" in caplog.text
    assert SECRET not in caplog.text
    assert "abcdef123456" not in caplog.text
    assert caplog.text.count("says: again") <= 100
    assert "more lines, which are left out" in caplog.text
    assert max(len(record.getMessage()) for record in caplog.records) < 1000


async def test_the_environment_is_a_list(codex: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the gateway's own the process gets what every program needs, and what is named."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-others-123")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("FURTHER", "1")
    up = await codex(backend={"codex": {"env": {"GW_KEY": SECRET}, "inherit": ["FURTHER", "NOT_THERE"]}})
    await chat(up)
    (process,) = up.processes()
    assert {"GW_KEY", "FURTHER", "PATH"} <= process["env"].keys()
    assert {"OPENAI_API_KEY", "HTTPS_PROXY", "NOT_THERE"}.isdisjoint(process["env"])
    assert process["folder"] != os.getcwd()
    assert os.listdir(process["folder"]) == []


async def test_no_answer_holds_a_secret(codex: Start) -> None:
    up = await codex([f"It is {SECRET}."], backend={"codex": {"env": {"GW_KEY": SECRET}}})
    answer = await chat(up)
    assert answer.status == 502
    assert SECRET.encode() not in answer.body


async def test_the_key_goes_to_the_address(codex: Start) -> None:
    up = await codex(way="websocket", backend={"api_key": SECRET, "headers": {"X-More": "1"}})
    await chat(up)
    (connection,) = up.processes()
    assert (connection["headers"]["Authorization"], connection["headers"]["X-More"]) == (f"Bearer {SECRET}", "1")


async def test_a_redirect_is_not_followed() -> None:
    """Neither the key nor other configured headers go elsewhere."""
    visits: list[dict[str, str]] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        visits.append(dict(request.headers))
        return web.Response()

    async def redirect(request: web.Request) -> web.StreamResponse:
        return web.Response(status=int(request.match_info["status"]), headers={"Location": away})

    there, here = web.Application(), web.Application()
    there.router.add_get("/", elsewhere)
    here.router.add_get("/{status}", redirect)
    async with TestServer(there) as other, TestServer(here) as server:
        away = str(other.make_url("/"))
        for status in (301, 302, 303, 307, 308):
            url = str(server.make_url(f"/{status}")).replace("http:", "ws:")
            backend = {"kind": "codex_app_server", "api_key": SECRET, "headers": {"X-More": "1"}}
            async with serving(upstream_config(url, backend=backend)) as gateway:
                answer = await post(gateway, {"messages": [{"role": "user", "content": "hi"}]})
            assert (answer.status, answer.json()["error"]["code"]) == (502, "upstream_error")
            assert f"redirect (status {status})" in answer.json()["error"]["message"]
    assert visits == []


# --- the end ----------------------------------------------------------------------------------------------------------


GATEWAY = """
server: {{port: 0}}
backends:
  up: {{kind: codex_app_server, command: {command}}}
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_the_process_ends_with_the_gateway(tmp_path: Path, how: signal.Signals) -> None:
    """Also where the gateway has no time to see to it: its end of the pipe closes."""
    log, file = tmp_path / "log", tmp_path / "toolwire.yaml"
    command = codex_double.behind_pipes({}, tmp_path)
    file.write_text(GATEWAY.format(command=command))
    with (tmp_path / "said").open("wb") as said:
        process = Forked(file, env={}, folder=tmp_path, log=said)
    try:
        await until(lambda: any(line.get("method") == "initialized" for line in codex_double.read(log)))
        process.send_signal(how)
        await process.ended()
        await gone(codex_double.read(log)[0]["started"])
    finally:
        process.close()
