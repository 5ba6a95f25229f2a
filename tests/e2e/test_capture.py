"""Captures: what went over the wire, without secrets, and that it can be run again with the same result."""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer, make_mocked_request
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.e2e.conftest import CHAT, Gateway, function, gateway_before, get, post, read_config, serving, upstream_config
from tests.waiting import GUARD_S, until
from toolwire.cli import main
from toolwire.config import CaptureConfig
from toolwire.errors import GatewayError
from toolwire.extras.capture.files import CapturedExchange, Entry, RecordedCall, is_capture, read_capture, write_capture
from toolwire.extras.capture.recorded_backend import _RecordedClient, replayable
from toolwire.extras.capture.recorder import MEMORY_BYTES, CaptureFolder, Captures
from toolwire.extras.capture.recording import RecordingError
from toolwire.extras.replay.reproduction import reproduced, settled
from toolwire.observability.redaction import Redaction
from toolwire.record import AccessRecord
from toolwire.testing import Refuse, Say, Upstream

RESPONSES = "/v1/responses"
KEY = "sk-a-key-of-the-gateway-itself"
BACKEND_KEY = "a-key-for-the-model-server"
PASTED = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
CALL = ("I look.\n", "<tool_", 'call>{"name": "weather", ', '"arguments": "{\'city\': ', "'Paris',}\"}</tool_call>")
TOOLS = [function("weather", city="string")]
ANSWERS: dict[str, Any] = {
    "call": Say(*CALL, usage=(3, 4)),
    "text": Say("Grüße ", "aus ", "Köln"),
    "broken": Say(*CALL[:3], cut=True),
    "refused": Refuse(429, "slow down"),
    "secret": Say("a key: sk-proj-", "abcdefghijkl", "mnopqrstuvwxyz0, ", "that is all"),
    "limit": Say(*CALL[:3], finish="length"),
}


def asked(path: str, stream: bool, tools: bool) -> dict[str, Any]:
    said, flat = f"my key is {PASTED}", [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
    body = {"messages": [{"role": "user", "content": said}]} if path == CHAT else {"input": said}
    offered = {"tools": TOOLS if path == CHAT else flat} if tools else {}
    return {"model": "m", "stream": stream, **body, **offered}


async def fetched(server: TestServer, ident: str, key: str | None = None) -> tuple[int, bytes]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    answer = await get(server, f"/admin/captures/{ident}" if ident else "/admin/captures", headers=headers)
    return answer.status, answer.body


async def captured_of(server: TestServer, ident: str, key: str | None = None) -> bytes:
    """The capture, as soon as it is there: the client has its answer a little earlier."""

    async def found() -> bytes | None:
        status, content = await fetched(server, ident, key)
        return content if status == 200 else None

    content: bytes = await until(found, 0.005)
    return content


async def capture_of(server: TestServer, path: str, stream: bool, tools: bool, ident: str = "mine") -> bytes:
    """The capture of a request that is made now."""
    await post(server, asked(path, stream, tools), path=path, headers={"X-Request-Id": ident})
    return await captured_of(server, ident)


@asynccontextmanager
async def recording(upstream: Upstream, *, keep: int = 1, **options: Any) -> AsyncIterator[TestServer]:
    """A gateway that keeps so many captures; `options` of them, and sections."""
    sections = {key: options.pop(key) for key in ("backend", "tools") if key in options}
    async with serving(upstream_config(upstream.url, capture={"keep": keep, **options}, **sections)) as server:
        yield server


@every("mode", ["hybrid", "auto"])
async def test_what_was_known_of_a_model_need_not_be_known_again(mode: str) -> None:
    """The first exchange goes over to `prompt`, or is probed; the second does at once what was learned."""

    def answer(asked: Any) -> Any:
        return Refuse(400, "this model does not support tools") if "tools" in asked.json else ANSWERS["call"](asked)

    async with gateway_before([answer], capture=3, defaults={"mode": mode}) as (server, _):
        for ident in ("one", "two"):
            await post(server, asked(CHAT, False, True), headers={"X-Request-Id": ident})
            captured = read_capture(await captured_of(server, ident))
            assert captured.bytes_of("output").count(b"Paris") == 1
            assert (await reproduced(captured)).same


@every("answer", ANSWERS)
async def test_a_capture_run_again_gives_the_same(answer: str) -> None:
    key = {"api_key": BACKEND_KEY}
    async with Upstream([ANSWERS[answer]]) as upstream, recording(upstream, backend=key) as server:
        ways = list(product((CHAT, RESPONSES), (False, True), (False, True)))
        for path, stream, tools in ways if answer in ("call", "text") else ways[::3]:
            ident = f"{path[4:8]}-{stream}-{tools}"
            got = await post(server, asked(path, stream, tools), path=path, headers={"X-Request-Id": ident})
            content = await captured_of(server, ident)
            for secret in (BACKEND_KEY, PASTED, f"127.0.0.1:{upstream.port}"):
                assert secret.encode() not in content, ident
            captured = read_capture(content)
            assert captured.bytes_of("output") == Redaction().data(got.body), ident
            again = await reproduced(captured)
            assert (captured.end["status"], again.status, again.left_out) == (got.status, got.status, ()), ident
            assert again.same, (ident, again.difference)


async def test_a_stream_that_the_client_left_is_the_same_as_far_as_it_went() -> None:
    more = asyncio.Event()
    async with (
        Upstream([Say("one ", more, "two")]) as upstream,
        recording(upstream) as server,
        asyncio.timeout(GUARD_S),
    ):
        async with aiohttp.ClientSession() as session:
            body, headers = asked(CHAT, True, True), {"X-Request-Id": "left"}
            async with session.post(server.make_url(CHAT), json=body, headers=headers) as response:
                await response.content.readuntil(b"one")
        captured = read_capture(await captured_of(server, "left"))
    assert captured.end["code"] == "client_closed_request"
    assert (await reproduced(captured)).same


MODULE = """
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": SCHEMA}}]


def handle_tool_call(name, parameters):
    return "rain in " + parameters["city"]
"""


async def test_executions_are_recorded_and_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(MODULE)
    tools = {"folder": str(tmp_path), "timeout_s": GUARD_S, "watch_s": 0, "wait_s": GUARD_S, "load_timeout_s": GUARD_S}
    async with Upstream([Say(*CALL), Say("It rains.")]) as upstream, recording(upstream, tools=tools) as server:
        captured = read_capture(await capture_of(server, CHAT, True, False))
    assert [bool(call.all("received")) for call in captured.calls] == [True, True]
    (run,) = [entry.fields for entry in captured.entries if entry.kind == "tool"]
    assert (run["name"], run["state"], run["result"]) == ("weather", "TOOL_COMPLETED", "rain in Paris")
    again = await reproduced(captured)
    assert again.left_out == ("server-side tools",)


async def test_what_goes_on_from_a_stored_response_is_not_run_again() -> None:
    async with Upstream([Say("hi")]) as upstream, recording(upstream, keep=2) as server:
        first = await post(server, asked(RESPONSES, False, False), path=RESPONSES)
        more = {**asked(RESPONSES, False, False), "previous_response_id": first.json()["id"]}
        assert (await post(server, more, path=RESPONSES, headers={"X-Request-Id": "mine"})).status == 200
        captured = read_capture(await captured_of(server, "mine"))
    with pytest.raises(RecordingError, match="stored response"):
        await reproduced(captured)


async def test_the_command_shows_it_and_says_that_it_is_the_same(tmp_path: Path) -> None:
    async with Upstream([ANSWERS["call"]]) as upstream, recording(upstream) as server:
        content = await capture_of(server, CHAT, True, True)
    file = tmp_path / "mine.jsonl"
    file.write_bytes(content)
    done = await asyncio.to_thread(CliRunner().invoke, main, ["replay", str(file)])
    assert done.exit_code == 0, done.output
    assert "call weather" in done.output
    assert "the answer to the client is the same again" in done.output
    lines = (await asyncio.to_thread(CliRunner().invoke, main, ["replay", "--json", str(file)])).output.splitlines()
    assert json.loads(lines[-1])["reproduced"] is True
    # A gateway that did something else: the recorded answer is not what comes out now.
    file.write_bytes(content.replace(b"I look", b"I lurk", 1) if b"I look" in content else b"")
    captured = read_capture(file.read_bytes())
    assert captured.bytes_of("received") != captured.bytes_of("output")
    done = await asyncio.to_thread(CliRunner().invoke, main, ["replay", str(file)])
    assert done.exit_code == 1
    assert "DIFFERENT" in done.output


async def test_own_patterns_are_covered_and_checked() -> None:
    secrets = [r"\d{4}-\d{4}"]
    async with Upstream([Say("badge 4711-0815")]) as upstream, recording(upstream, secrets=secrets) as server:
        content = await capture_of(server, CHAT, False, False)
    assert b"4711-0815" not in content
    assert b"badge *********" in content


async def test_only_the_last_are_kept_and_listed_youngest_first() -> None:
    async with Upstream([Say("hi")]) as upstream, recording(upstream, keep=2) as server:
        for number in range(4):
            await capture_of(server, CHAT, False, False, f"r{number}")
        listed = json.loads((await fetched(server, ""))[1])
        assert [row["id"] for row in listed["data"]] == ["r3", "r2"]
        for ident in ("r0", "..%2F..%2Fetc%2Fpasswd", "*", "%2A"):
            assert (await fetched(server, ident))[0] == 404


async def test_off_by_default(gateway: Gateway) -> None:
    server = await gateway(script=["hi"])
    await post(server, asked(CHAT, False, False), headers={"X-Request-Id": "r"})
    assert (await fetched(server, "r"))[0] == 404


async def test_a_key_sees_its_own_and_an_admin_sees_all(tmp_path: Path) -> None:
    keys = [KEY, "another-key", {"key": "the-key-of-the-boss", "admin": True}]
    async with Upstream([Say(f"you are {KEY}")]) as upstream:
        config = upstream_config(
            upstream.url, capture={"keep": 5, "folder": str(tmp_path / "kept")}, auth={"keys": keys}
        )
        foreign = tmp_path / "kept" / "mine.capture.jsonl"
        foreign.parent.mkdir()
        foreign.touch()
        async with serving(config) as server:
            headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "mine", "Cookie": "session=crumbs"}
            await post(server, asked(CHAT, True, False), headers=headers)
            content = await captured_of(server, "mine", KEY)
            assert (await fetched(server, "mine", "wrong"))[0] == 401
            assert (await fetched(server, "mine", "another-key"))[0] == 404
            assert json.loads((await fetched(server, "", "another-key"))[1])["data"] == []
            assert await fetched(server, "mine", "the-key-of-the-boss") == (200, content)
    assert KEY.encode() not in content
    assert b"crumbs" not in content
    file = next(path for path in (tmp_path / "kept").iterdir() if path != foreign)  # a chosen folder stays
    assert file.read_bytes() == content
    assert file.stat().st_mode & 0o077 == 0


async def test_what_is_too_large_is_left_out_and_said() -> None:
    bytes_ = 2000
    async with Upstream([Say("x" * 5000)]) as upstream, recording(upstream, exchange_bytes=bytes_) as server:
        captured = read_capture(await capture_of(server, CHAT, True, False))
    assert not captured.complete
    assert captured.head["left_out_bytes"] > 5000
    assert bytes_ < MEMORY_BYTES
    with pytest.raises(RecordingError, match=r"capture\.exchange_bytes"):
        await reproduced(captured)


entries = st.builds(
    Entry,
    st.sampled_from(["sent", "received", "output"]),
    st.integers(0, 1000).map(lambda ms: ms / 1000),
    st.integers(0, 3),
    st.one_of(st.binary(max_size=40), st.text(max_size=40).map(lambda text: text.encode(errors="surrogatepass"))),
    st.dictionaries(st.sampled_from(["status", "code"]), st.integers(0, 600), max_size=2),
)


@examples(0.4)
@given(st.lists(entries, max_size=8))
def test_what_is_written_is_read(written: list[Entry]) -> None:
    content = write_capture({"request_id": "r"}, written)
    assert is_capture(content)
    assert read_capture(content) == CapturedExchange({"toolwire_capture": 1, "request_id": "r"}, tuple(written))


@every("content", [b'{"toolwire_capture": 2}', b'{"toolwire_capture": 1}\n{', b'{"toolwire_capture": 1}\n{"at": 1}'])
def test_what_cannot_be_read_is_said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    done = CliRunner().invoke(main, ["replay", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert "capture" in done.output


def test_ids_and_times_do_not_count() -> None:
    one = b'{"id":"call_00112233445566778899aabbccddeeff","created":1}'
    assert settled(one) == settled(one.replace(b"00", b"ff").replace(b"1}", b"2}"))
    assert settled(one) != settled(one.replace(b"id", b"ID"))


def test_calls_that_broke_off_and_were_tried_again_are_not_replayed() -> None:
    answered = Entry("answered", 0.1, 1, fields={"status": 200, "headers": {}})
    failed = Entry("failed", 0.2, 1, fields={"code": "upstream_disconnected", "message": "It broke off."})
    broken, whole = RecordedCall(1, [answered, failed]), RecordedCall(2, [answered])
    assert list(replayable([broken, whole])) == [whole]
    assert list(replayable([whole, broken])) == [whole, broken]


@every(("recorded", "code"), [("upstream_timeout", "upstream_timeout"), ("of_a_plugin", "upstream_disconnected")])
async def test_a_recorded_failure_fails_with_a_code_that_is_known(recorded: str, code: str) -> None:
    failed = RecordedCall(1, [Entry("failed", 0.1, 1, fields={"code": recorded, "message": "It failed."})])
    with pytest.raises(GatewayError, match="It failed") as raised:
        await _RecordedClient([failed]).post(b"", stream=False, request_id="r")
    assert raised.value.code == code


def test_of_captures_with_one_request_id_the_latest_is_found(tmp_path: Path) -> None:
    for time_ns, exchange in enumerate(("a" * 24, "b" * 24, "c" * 24)):
        (tmp_path / f"{time_ns:020d}-0-{exchange}-same.capture.jsonl").touch()
    found = CaptureFolder(CaptureConfig(keep=9, folder=str(tmp_path)), None).file
    assert [str(found(ident, None)).split("-")[-2][0] for ident in ("same", "a" * 24, "b" * 24)] == ["c", "a", "b"]
    assert found("d" * 24, None) is None


def test_a_capture_that_could_not_be_written_leaves_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def full() -> bytes:
        raise OSError(28, "No space left on device")

    async def write() -> None:
        await CaptureFolder(CaptureConfig(keep=1, folder=str(tmp_path)), None)._write("name", full)

    asyncio.run(write())
    assert "a capture could not be written: [Errno 28] No space left on device" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_captures_written_at_once_share_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads write them: each one's first look for the folder that nobody chose must find the same."""
    threads = 4
    meeting = threading.Barrier(threads)
    make = tempfile.mkdtemp
    made: list[str] = []

    def slowly(**options: str) -> str:
        time.sleep(0.05)  # the others arrive meanwhile
        made.append(make(**options))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", slowly)
    folder = CaptureFolder(CaptureConfig(keep=1), None)

    def look() -> None:
        meeting.wait()
        folder.files(None)

    looking = [threading.Thread(target=look) for _ in range(threads)]
    for thread in looking:
        thread.start()
    for thread in looking:
        thread.join()
    asyncio.run(folder.close())
    assert len(made) == 1
    assert not Path(made[0]).exists()


async def test_a_capture_that_is_asked_for_before_its_exchange_has_ended(tmp_path: Path) -> None:
    """A client has its answer a little earlier; the file is there all the same."""
    folder = CaptureFolder(CaptureConfig(keep=1, folder=str(tmp_path)), None)
    captures = Captures(read_config({"backends": {"mock": {"kind": "mock"}}}), folder)
    capture = captures.begin(make_mocked_request("POST", CHAT), "r1")
    folder.begun(capture)
    asked = asyncio.create_task(folder.finished("r1", None))
    await asyncio.sleep(0)
    await folder.finished("other", None)
    await folder.finished("r1", "somebody else")
    assert not asked.done()
    capture.ended(AccessRecord())
    async with asyncio.timeout(GUARD_S):
        await asked
    path = folder.file("r1", None)
    assert path is not None
    assert read_capture(path.read_bytes()).end
