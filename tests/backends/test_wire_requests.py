"""Requests of the fast client, in the clear and over TLS, and how large ones are sent (docs/adr/0007)."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path

import pytest
from yarl import URL

from tests.backends.peers import LIMIT, Peer, ask, fault_of, post, self_signed, vigilant
from toolwire.config import BackendConfig, Timeouts
from toolwire.errors import BackendFault
from toolwire.upstream.client import sessions
from toolwire.upstream.client.wire_client import PIECE_BYTES, WireClient, request_head

# --- TLS ------------------------------------------------------------------------------------------------------------


async def test_a_certificate_that_nobody_signed(tmp_path: Path) -> None:
    tls, _ = self_signed(tmp_path)
    async with Peer(tls=tls) as peer:
        client = peer.client()
        fault = await fault_of(client)
        assert (fault.code, "not trusted" in fault.message) == ("upstream_disconnected", True)
        assert fault.transient, "another server may be asked"
        assert peer.heads == []
        await client.close()


async def test_a_server_that_does_not_speak_tls(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)  # a socket that is closed with bytes unread resets its connection
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = WireClient(URL(f"https://127.0.0.1:{port}"), {}, BackendConfig())
        fault = await fault_of(client)
        assert (fault.code, fault.message) == ("upstream_disconnected", "The model server refuses TLS connections.")
        await client.close()
    assert "no TLS connection to 127.0.0.1: " in caplog.text


async def test_a_certificate_of_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls, certificate = self_signed(tmp_path, "other.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with Peer(tls=tls) as peer:
        client = peer.client()
        assert "not trusted" in (await fault_of(client)).message
        await client.close()


async def test_a_certificate_without_alternative_names_is_good_for_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python would take the name in its subject. The log says what is missing, the client is told nothing of names."""
    tls, certificate = self_signed(tmp_path, named=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with Peer(tls=tls) as peer:
        client = WireClient(peer.url.with_host("localhost"), {}, BackendConfig())
        with pytest.raises(BackendFault) as caught:
            await client.post(b"{}", stream=False, request_id="r")
        assert (caught.value.code, "not trusted" in caught.value.message) == ("upstream_disconnected", True)
        assert "localhost" not in caught.value.message
        assert peer.heads == []
        await client.close()
    assert "subjectAltName" in caplog.text


# --- large requests -------------------------------------------------------------------------------------------------

LARGE = bytes(32 * 1024 * 1024)


async def test_a_large_request_goes_out_in_pieces() -> None:
    """Others get their turns meanwhile, and no more than a piece or two waits in the gateway."""
    waiting: list[int] = []

    async def watch(client: WireClient) -> None:
        while True:
            for answer in client._answers:
                if answer._connection is not None:
                    waiting.append(answer._connection.transport.get_write_buffer_size())
            await asyncio.sleep(0)

    async with Peer() as peer:
        client = peer.client()
        watching = asyncio.create_task(watch(client))
        answer = await post(client, LARGE)
        watching.cancel()
        assert await answer.read(LIMIT) == b"ok"
        assert peer.bodies == [LARGE]
        assert len(waiting) >= len(LARGE) // PIECE_BYTES
        assert max(waiting) <= 2 * PIECE_BYTES
        assert await ask(client) == b"ok"
        assert peer.connections == 1
        await client.close()


@pytest.mark.parametrize("end", ["limit", "cancelled", "closed"])
async def test_a_large_request_that_nobody_takes(end: str) -> None:
    async with Peer([] if end == "closed" else [asyncio.Event()]) as peer:
        peer.takes = False
        peer.after = "close"
        client = vigilant(peer)
        task = asyncio.create_task(post(client, LARGE))
        await peer.asked.acquire()
        if end == "limit":
            (answer,) = client._answers
            answer._timeouts = Timeouts(first_byte_s=0)
        if end == "cancelled":
            task.cancel()
        with pytest.raises((BackendFault, asyncio.CancelledError)) as caught:
            await task
        if end == "limit":
            assert "first byte" in str(caught.value)
        assert not client._answers
        await client.close()


# --- requests to other paths ----------------------------------------------------------------------------------------


class Writer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.mark.parametrize("size", [0, 1, sessions.PIECE_BYTES, sessions.PIECE_BYTES + 1, 5 * sessions.PIECE_BYTES + 7])
async def test_no_piece_is_large(size: int) -> None:
    body = bytes(index % 251 for index in range(size))
    payload, writer = sessions.BodyInPieces(body), Writer()
    await payload.write_with_length(writer, size)  # type: ignore[arg-type]  # all that is used of one
    assert b"".join(writer.written) == body
    assert all(len(piece) <= sessions.PIECE_BYTES for piece in writer.written)
    assert payload.size == size


def test_a_body_can_be_shown() -> None:
    assert json.loads(sessions.BodyInPieces(b'{"a":"\xc3\xa4"}').decode()) == {"a": "ä"}


# --- headers --------------------------------------------------------------------------------------------------------


def test_the_head_of_a_request() -> None:
    given = {"user-agent": "x", "HOST": "other", "Authorization": "Bearer k", "accept": "ignored", "X-A": "ü\tb"}
    head = request_head(URL("http://h:8000/v1/chat?a=%20b"), given, stream=True).decode()
    line, *fields = head.split("\r\n")
    assert line == "POST /v1/chat?a=%20b HTTP/1.1"
    assert fields == [
        *("Host: other", "Content-Type: application/json", "Accept: text/event-stream", "user-agent: x"),
        *("Authorization: Bearer k", "X-A: ü\tb", "X-Request-Id: "),
    ]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://h/", "h"),
        ("http://h:80/", "h"),
        ("https://h:8443/", "h:8443"),
        ("http://[::1]:1/", "[::1]:1"),
        ("http://grün.example/", "xn--grn-ioa.example"),
    ],
)
def test_the_host_of_a_request(url: str, host: str) -> None:
    assert f"\r\nHost: {host}\r\n".encode() in request_head(URL(url), {}, stream=False)


def test_a_key_in_the_url() -> None:
    word = b64encode(b"me:s:t").decode()
    assert f"Authorization: Basic {word}\r\n".encode() in request_head(URL("http://me:s%3At@h/"), {}, stream=False)


@pytest.mark.parametrize(("name", "value"), [("A b", "x"), ("", "x"), ("A", "x\r\nB: y"), ("A", "x\0"), ("A:", "x")])
def test_headers_that_cannot_be_sent(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        request_head(URL("http://h/"), {name: value}, stream=False)


async def test_a_request_id_is_one_line() -> None:
    async with Peer() as peer:
        client = peer.client()
        with pytest.raises(ValueError, match="request id"):
            await client.post(b"{}", stream=False, request_id="a\r\nB: c")
        await client.close()
