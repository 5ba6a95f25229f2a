"""A server that answers with exactly these bytes, in exactly these segments, and a client towards it."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from yarl import URL

from tests.waiting import until
from toolwire.config import BackendConfig
from toolwire.errors import BackendFault
from toolwire.testing import close_server
from toolwire.upstream.client.wire_answer import HttpAnswer
from toolwire.upstream.client.wire_client import WireClient

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

LIMIT = 1 << 26
"""Larger than any answer."""

Step = bytes | asyncio.Event | None
"""Bytes to write, an event to wait for, or None: close the connection."""

Script = Sequence[Step] | Callable[[bytes, bytes], Sequence[Step]]
"""Steps, or what gives them for a request's head and body."""


def chunked(*pieces: bytes, end: bool = True) -> bytes:
    """Pieces of a body as HTTP chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if end else b"")


def sized(body: bytes, *fields: bytes) -> bytes:
    """A whole answer with a `Content-Length`."""
    lines = [b"Content-Length: %d" % len(body), *fields]
    return OK + b"\r\n".join(lines) + b"\r\n\r\n" + body


class Peer:
    """Answers every request with the next of `scripts`, the last one for ever: steps, each written as a segment of its
    own.

    Afterwards the connection is kept, closed or left hanging, as `after` says. With `takes` off nothing of a request's
    body is taken.
    """

    def __init__(self, *scripts: Script, after: str = "keep", tls: ssl.SSLContext | None = None) -> None:
        self.scripts: list[Script] = list(scripts) or [[sized(b"ok")]]
        self.after = after
        self.takes = True
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.asked = asyncio.Semaphore(0)
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Peer:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close_server(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> URL:
        """Where it listens."""
        scheme = "https" if self._tls is not None else "http"
        return URL(f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1/chat/completions")

    def client(self, **config: Any) -> WireClient:
        """A client with this configuration, which uses connections again at once."""
        client = WireClient(self.url, config.pop("headers", {}), BackendConfig(**config))
        client.settle_s = 0.0
        return client

    async def all_closed(self) -> None:
        """Wait until no connection stands."""
        await until(lambda: not self.open, 0.001)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # also of one that was cancelled before it began

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await self._request(reader)) is not None:
                script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
                for step in script(*request) if callable(script) else script:
                    await self._play(step, reader, writer)
                if self.after == "hang":
                    await reader.read()
                if self.after != "keep":
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, or shall think that the server did
        finally:
            self.open -= 1
            writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        self.heads.append(head)
        self.asked.release()
        body = b""
        if self.takes:
            body = await reader.readexactly(int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]))
            self.bodies.append(body)
        return head, body

    async def _play(self, step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if step is None:
            raise ConnectionError("the script says so")
        if isinstance(step, asyncio.Event):
            waits = {asyncio.ensure_future(step.wait()), asyncio.ensure_future(reader.read())}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
            if not step.is_set():
                raise ConnectionError("the client went away")
            return
        writer.write(step)
        await writer.drain()
        for _ in range(3):  # turns of the loop in which the client reads: what follows comes in another read
            await asyncio.sleep(0)


async def post(client: WireClient, body: bytes = b"{}", *, stream: bool = False) -> HttpAnswer:
    """A request, up to the head of its answer."""
    return await client.post(body, stream=stream, request_id="r")


async def ask(client: WireClient) -> bytes:
    """A request and its whole answer."""
    return await (await post(client)).read(LIMIT)


async def fault_of(client: WireClient, body: bytes = b"{}") -> BackendFault:
    """What a request fails with."""
    with pytest.raises(BackendFault) as caught:
        await post(client, body)
    return caught.value


def vigilant(peer: Peer, **config: Any) -> WireClient:
    """A client that looks at its limits all the time, so that a test may set one to nothing at the right moment."""
    client = peer.client(**config)
    client._patrol_s = 0.001
    return client


def self_signed(
    folder: Path, host: str = "localhost", *, named: bool = True, days: int = 1
) -> tuple[ssl.SSLContext, Path]:
    """The TLS side of a server called `host`, and the file of its certificate, which nobody has signed but itself and
    which is good for so many days and a half. Without `named` its name stands in the subject only, as it did decades
    ago."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days, hours=12))
        .add_extension(names if named else usage, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret, public = folder / "key.pem", folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    secret.write_bytes(private)
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, secret)
    return context, public
