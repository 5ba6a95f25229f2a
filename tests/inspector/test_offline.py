"""`toolwire inspect FILE`: a capture in the page, without a gateway."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from aiohttp.test_utils import TestServer, unused_port
from click.testing import CliRunner

from tests.cases import every
from tests.e2e.processes import ROOT
from tests.inspector.inspected import CALL, WEATHER, Inspected, answering, asked, calls
from tests.waiting import GUARD_S
from toolwire.cli import main
from toolwire.extras.capture.files import read_capture
from toolwire.extras.inspector.offline import offline
from toolwire.testing import Say

HEAD = {"toolwire_capture": 1}


async def captured() -> tuple[bytes, dict[str, Any]]:
    """A capture, and how the gateway shows it."""
    async with answering(Say(f"So. {CALL}")) as (gateway, _):
        _, view = await gateway.ask(asked("/v1/chat/completions", WEATHER, stream=True))
        return (await gateway.fetch("GET", "/inspect/api/exchanges/r1/capture")).body, view


@asynccontextmanager
async def opened(*contents: bytes) -> AsyncIterator[Inspected]:
    """The page of these captures."""
    async with TestServer(offline([(read_capture(content), content) for content in contents])) as server:
        yield Inspected(server)


async def test_the_page_shows_what_the_gateway_would() -> None:
    content, view = await captured()
    async with opened(content) as page:
        assert (await page.fetch("GET", "/inspect")).status == 200
        _, setup = await page.get("setup")
        assert (setup["live"], setup["keys"], setup["file"]) == (False, False, "r1")
        assert (setup["routes"], setup["apis"]) == ([], [])
        assert (await page.get("exchanges/r1")) == (200, view)
        assert (await page.get("exchanges/r1/formats"))[0] == 200
        assert (await page.fetch("GET", "/inspect/api/exchanges/r1/capture")).body == content
        assert (await page.get("exchanges/other"))[0] == 404
        for method, place in (("GET", "overview"), ("POST", "check")):
            got = await page.fetch(method, f"/inspect/api/{place}", data=b"{}" if method == "POST" else None)
            assert (got.status, got.json()["error"]["code"]) == (404, "not_found")
        got = await page.fetch("GET", "/inspect/api/setup", headers={"Host": "evil.example"})
        assert got.status == 403
        assert (await page.fetch("POST", "/inspect/api/view", data=content)).json() == view
        (row,) = await page.rows()
    assert (row["id"], row["running"], row["status"], row["calls"]) == ("r1", False, 200, 1)
    assert (row["called"], row["question"], row["why"]) == (["weather"], "hi", 'Called "weather".')
    assert row["at"] > 1_700_000_000


HOSTILE: list[Mapping[str, Any]] = [
    {"request_id": 'a"\r\nX-Evil: 1'},
    {"request_id": "<script>"},
    {"request_id": "ü\U0001f680"},
    {"request_id": 5},
    {"request_id": None},
    {"time": "yesterday"},
    {"time": 5},
    {},
]
SENSELESS: list[Mapping[str, Any]] = [
    {"headers": {"user-agent": 7}},
    {"headers": [1]},
    {"config": 3},
    {"backend": "x"},
]


@every("more", HOSTILE)
async def test_a_file_may_say_anything(more: Mapping[str, Any]) -> None:
    """It is shown, and no header has what it says."""
    async with opened(orjson.dumps({**HEAD, **more}) + b"\n") as page:
        _, setup = await page.get("setup")
        ident = quote(setup["file"], safe="")
        assert (await page.get(f"exchanges/{ident}"))[0] == 200
        got = await page.fetch("GET", f"/inspect/api/exchanges/{ident}/capture")
        assert got.status == 200
        assert "X-Evil" not in got.headers
        assert re.fullmatch(r'attachment; filename="[\w.-]+"', got.headers["Content-Disposition"], re.ASCII)


@every(
    ("content", "status", "said"),
    [
        *((orjson.dumps({**HEAD, **more}) + b"\n", 1, "the capture cannot be read") for more in SENSELESS),
        *((content, 1, "Error: ") for content in (b"", b"hello", b"[1]", b'{"toolwire_capture":99}\n')),
        (b'{"toolwire_capture":1}\n{', 1, "Error: "),
        (None, 2, "No such file"),
    ],
)
def test_what_is_no_capture(tmp_path: Path, content: bytes | None, status: int, said: str) -> None:
    file = tmp_path / ("nothing" if content is None else "x")
    if content is not None:
        file.write_bytes(content)
    done = CliRunner().invoke(main, ["inspect", str(file)])
    assert done.exit_code == status
    assert isinstance(done.exception, SystemExit)
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(orjson.dumps(HEAD) + b"\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["inspect", str(file), "--port", str(port)])
    assert done.exit_code == 1
    assert f"cannot listen on port {port}" in done.output
    assert "End that process, or use another port (--port)" in done.output


async def test_exchanges_with_the_same_id_are_all_there() -> None:
    """Clients choose ids, also those that this makes."""
    contents = [orjson.dumps({**HEAD, "request_id": ident}) + b"\n" for ident in ("x-3", "x", "x", "x")]
    async with opened(*contents) as page:
        names = [row["id"] for row in await page.rows()]
        assert len(set(names)) == 4
        got = [(await page.fetch("GET", f"/inspect/api/exchanges/{name}/capture")).body for name in names]
        assert sorted(got) == sorted(contents)


@contextmanager
def inspecting(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The command, and the address that it prints."""
    command = [sys.executable, "-m", "toolwire", "inspect", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.communicate()


def test_the_command(tmp_path: Path) -> None:
    content, view = asyncio.run(captured())
    (tmp_path / "x").write_bytes(content)
    with inspecting(str(tmp_path / "x")) as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/inspect", url), url
        with urllib.request.urlopen(f"{url}/api/exchanges/r1", timeout=GUARD_S) as answer:
            seen = orjson.loads(answer.read())
        assert seen == view
        assert calls(seen) == [("weather", {"city": "Paris"})]
        with urllib.request.urlopen(url, timeout=GUARD_S) as answer:
            assert b"<html" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/api/exchanges/other", timeout=GUARD_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(GUARD_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_page_that_is_opened_before_the_file_was_read_waits() -> None:
    """The address is known before it is printed if the port was named."""
    content, view = asyncio.run(captured())
    port = unused_port()
    command = [sys.executable, "-m", "toolwire", "inspect", "-", "--port", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            with connected(port, process) as early:
                early.sendall(b"GET /inspect/api/exchanges/r1 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                assert process.stdin is not None
                process.stdin.write(content)
                process.stdin.close()
                process.stdin = None
                answer = b"".join(iter(lambda: early.recv(1 << 16), b""))
        finally:
            process.kill()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert orjson.loads(body) == view


def connected(port: int, process: subprocess.Popen[bytes]) -> socket.socket:
    """A connection, as soon as the process listens."""
    until = time.monotonic() + GUARD_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=GUARD_S)
        except ConnectionRefusedError:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_reader_of_the_address_that_is_gone_is_no_fault_of_the_port(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(orjson.dumps(HEAD) + b"\n")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "toolwire", "inspect", str(tmp_path / "x")]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, timeout=GUARD_S)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
