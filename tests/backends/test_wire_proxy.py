"""The way to a model server through a proxy of the environment (`trust_env`, R10.12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from tests.backends.peers import CHUNKED, LIMIT, Peer, chunked, self_signed, sized
from toolwire.config import BackendConfig, Timeouts
from toolwire.errors import BackendFault
from toolwire.upstream.client.sessions import open_session
from toolwire.upstream.client.wire_client import WireClient
from toolwire.upstream.client.wire_proxy import proxy_for

CONNECTED = b"HTTP/1.1 200 Connection established\r\nVia: p\r\n\r\n"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Tunnels:
    """A proxy that connects everybody to `peer`, after it has said `answer` in these segments. None: it hangs."""

    def __init__(self, peer: Peer, answer: Sequence[bytes | None]) -> None:
        self.peer = peer
        self.answer = answer
        self.heads: list[bytes] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Gives its port."""
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(asyncio.get_running_loop().create_task(self._serve(reader, writer)))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            for segment in self.answer:
                if segment is None:
                    await reader.read()
                    return
                writer.write(segment)
                await writer.drain()
                await asyncio.sleep(0)
            if not b"".join(filter(None, self.answer)).startswith(b"HTTP/1.1 200"):
                return
            there, further = await asyncio.open_connection("127.0.0.1", self.peer.url.port)
            try:
                await asyncio.gather(_copy(reader, further), _copy(there, writer))
            finally:
                further.close()
        finally:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
    except ConnectionError:
        pass  # one of the two went away


def client_for(url: URL, **config: Any) -> WireClient:
    client = WireClient(url, {}, BackendConfig(trust_env=True, **config))
    client.settle_s = 0.0
    return client


async def posted(client: WireClient, body: bytes = b"{}", *, stream: bool = False) -> bytes:
    answer = await client.post(body, stream=stream, request_id="r")
    try:
        assert answer.status == 200
        return await answer.read(LIMIT)
    finally:
        await answer.close()


async def test_without_tls_the_proxy_reads_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the whole address, and the credentials that are its own; its connection is used again."""
    async with Peer([CHUNKED, chunked(b"data: 1\n\n")], [sized(b"2")]) as peer:
        monkeypatch.setenv("http_proxy", f"http://me:s%40y@127.0.0.1:{peer.url.port}")
        client = client_for(URL("http://a:b@model.invalid/v1/chat/completions?x=1"))
        assert await posted(client, stream=True) == b"data: 1\n\n"
        assert await posted(client) == b"2"
        await client.close()
    head = peer.heads[0]
    assert head.startswith(b"POST http://model.invalid/v1/chat/completions?x=1 HTTP/1.1\r\n")
    assert b"\r\nHost: model.invalid\r\n" in head
    assert b"\r\nAuthorization: Basic YTpi\r\n" in head
    assert b"\r\nProxy-Authorization: Basic bWU6c0B5\r\n" in head
    assert (len(peer.heads), peer.connections) == (2, 1)


async def test_the_gateways_own_queries_do_so_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the backend's key: credentials of the user's `.netrc` are for other programs."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine model.invalid login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    url, key = URL("http://model.invalid/v1/models"), {"Authorization": "Bearer key"}
    async with Peer([sized(b"{}")]) as peer:
        monkeypatch.setenv("http_proxy", f"http://me:s%40y@127.0.0.1:{peer.url.port}")
        async with (
            open_session(url, key, BackendConfig(trust_env=True)) as session,
            session.post(url, data=b"{}") as response,
        ):
            assert response.status == 200
    head = peer.heads[0]
    assert head.startswith(b"POST http://model.invalid/v1/models HTTP/1.1\r\n")
    assert b"Authorization: Bearer key\r\n" in head
    assert b"Proxy-Authorization: Basic bWU6c0B5\r\n" in head


async def test_with_tls_it_gets_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with Peer([sized(b"1")], [CHUNKED, chunked(b"2" * 300_000)], tls=tls) as peer:
        tunnels = Tunnels(peer, [CONNECTED[:9], CONNECTED[9:-2], CONNECTED[-2:]])
        async with tunnels.running() as port:
            monkeypatch.setenv("HTTPS_PROXY", f"http://me:x@127.0.0.1:{port}")
            client = client_for(peer.url.with_host("localhost"))
            assert await posted(client) == b"1"
            assert await posted(client, b"x" * 600_000, stream=True) == b"2" * 300_000
            await client.close()
        there = f"localhost:{peer.url.port}".encode()
    (head,) = tunnels.heads
    assert head == (b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nProxy-Authorization: Basic bWU6eA==\r\n\r\n" % (there, there))
    assert peer.heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert not any(b"proxy" in head.lower() for head in peer.heads)
    assert [len(body) for body in peer.bodies] == [2, 600_000]


async def test_the_certificate_is_checked_behind_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls, certificate = self_signed(tmp_path, "other.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with Peer(tls=tls) as peer, Tunnels(peer, [CONNECTED]).running() as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        client = client_for(peer.url)
        with pytest.raises(BackendFault, match="certificate is not trusted"):
            await posted(client)
        assert peer.heads == []
        await client.close()


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ([b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"], "upstream_disconnected", "The proxy does not connect .*407"),
        ([b"HTTP/1.0 502 Bad Gateway\r\nServer: p\r\n\r\n"], "upstream_disconnected", "The proxy does not connect .*502"),
        ([b"HTTP/1.1 2000\r\n\r\n"], "upstream_invalid_response", "not valid HTTP"),
        ([b"SSH-2.0-x\r\n\r\n"], "upstream_invalid_response", "not valid HTTP"),
        ([b"HTTP/1.1 200 OK\r\nX: ", b"x" * 70_000], "upstream_invalid_response", "not valid HTTP"),
        ([b"HTTP/1.1 407"], "upstream_disconnected", "closed the connection"),
        ([], "upstream_disconnected", "closed the connection"),
        ([b"HTTP/1.1 200 OK\r\n", None], "upstream_timeout", "connecting"),
    ],
    ids=["needs a password", "cannot", "no status", "no HTTP", "no end", "half", "nothing", "hangs"],
)  # fmt: skip
async def test_a_proxy_that_does_not_connect(
    answer: list[bytes | None], code: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says which of the two it was, and no address. It is another try's chance: nothing was asked."""
    async with Peer() as peer, Tunnels(peer, answer).running() as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        hangs = None in answer
        client = client_for(URL("https://model.invalid/v1"), timeouts=Timeouts(connect_s=0.2 if hangs else 60.0))
        with pytest.raises(BackendFault, match=said) as caught:
            await posted(client)
        assert caught.value.code == code
        assert "127.0.0.1" not in caught.value.message
        assert "model.invalid" not in caught.value.message
        await client.close()


@pytest.mark.parametrize(
    ("url", "no_proxy", "used"),
    [
        ("http://model.example/v1", "", True),
        ("https://model.example/v1", "", False),  # only `http_proxy` is set
        ("http://model.example/v1", "model.example", False),
        ("http://gpu.model.example:8000/v1", "other,.model.example", False),
        ("http://model.example/v1", "*", False),
        ("http://model.example/v1", "example.com", True),
    ],
)
def test_which_servers_have_a_proxy(url: str, no_proxy: str, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (proxy_for(URL(url), BackendConfig(trust_env=True)) is not None) is used


@pytest.mark.parametrize(
    "given", ["https://u:secret@proxy.example", "socks5://proxy.example", "proxy.example:3128", "http://[", "http:"]
)
def test_a_proxy_that_cannot_be_used_is_named(
    given: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", given)
    assert proxy_for(URL("https://model.example/v1"), BackendConfig(trust_env=True)) is None
    assert [record.getMessage() for record in caplog.records] == [
        "the proxy in https_proxy is not used: it is not `http://HOST:PORT`"
    ]
