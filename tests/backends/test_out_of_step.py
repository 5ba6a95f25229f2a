"""Servers that send an answer too many: it never becomes another request's answer (R33.6).

Time is played: the server's delays and the client's settling are moments of one clock that a test moves, so what is
shown here does not depend on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from tests.backends.peers import CHUNKED, LIMIT, OK, Peer, Step, ask, chunked, post, sized
from tests.cases import every
from tests.waiting import until
from toolwire.config import BackendConfig, Pool
from toolwire.testing import close_server
from toolwire.upstream.client import wire_client
from toolwire.upstream.client.wire_client import SETTLE_S, WireClient

MOST_DELAY_S: Final = 0.05
REQUESTS: Final = 100
TURNS: Final = 12
"""Turns of the loop in which loopback bytes reach the other end."""

FRAMINGS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "length": sized,
    "chunked": lambda body: CHUNKED + chunked(body),
    "empty": lambda body: b"HTTP/1.1 204 No Content\r\nX-Of: " + body + b"\r\n\r\n",
}


async def turns(number: int = TURNS) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Played:
    """A server and its clients on one clock, which stands still until the next thing is due.

    Each request is answered some time later with its own body; after every `every`-th answer comes another one, up to
    `MOST_DELAY_S` later.
    """

    def __init__(self, seed: int, every: int) -> None:
        self.now = 0.0
        self.received = 0
        self.connections = 0
        self.extras = 0
        self._every = every
        self._random = random.Random(seed)
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Played:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await close_server(self._server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1/chat/completions"

    def at(self, moment: float, what: Callable[[], object]) -> None:
        heapq.heappush(self._due, (moment, next(self._order), what))

    async def run(self, ask: Callable[[int], Awaitable[bytes]], requests: int) -> list[bytes]:
        """The answer of each request; the requests begin at different moments."""
        begun: list[asyncio.Task[bytes]] = []
        moment = 0.0
        for _ in range(requests):
            moment += self._random.choice((0.0, 0.0, 0.001, 0.01, 0.04, 0.12))
            self.at(moment, lambda: begun.append(asyncio.ensure_future(ask(len(begun)))))
        while self._due or not all(task.done() for task in begun):
            if not self._due:
                await asyncio.sleep(0)
                continue
            self.now, _, what = heapq.heappop(self._due)
            what()
            await until(lambda: self.received >= len(begun) or begun[-1].done())
            await turns(self._random.choice((0, 1, TURNS)))
        return [await task for task in begun]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                asked = await reader.readexactly(length)
                self.received += 1
                answer = self._random.choice((sized, FRAMINGS["chunked"]))
                due = self.now + self._random.uniform(0, 0.06)
                self.at(due, partial(writer.write, answer(asked)))
                if self.received % self._every == 0:
                    self.extras += 1
                    extra = answer(b"nobody's, after " + asked)
                    cut = self._random.choice((0, 1, len(extra) // 2))
                    late = due + self._random.choice((0.0, MOST_DELAY_S, self._random.uniform(0, MOST_DELAY_S)))
                    for piece in filter(None, (extra[:cut], extra[cut:])):
                        self.at(late, partial(writer.write, piece))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


def asking(client: Any) -> Callable[[int], Awaitable[bytes]]:
    """Requests streamed and whole, each with a body of its own."""

    async def one(number: int) -> bytes:
        answer = await client.post(b"%d" % number, stream=number % 2 == 0, request_id="r")
        try:
            if number % 3:
                return bytes(await answer.read(LIMIT))
            got: list[bytes] = []
            await answer.pump(got.append)
            return b"".join(got)
        finally:
            await answer.close()

    return one


@pytest.mark.parametrize(("seed", "remembers", "every"), [(0, True, 1), (1, True, 7), (2, False, 2), (3, False, 50)])
async def test_law_each_request_gets_its_own_answer(
    monkeypatch: pytest.MonkeyPatch, seed: int, remembers: bool, every: int
) -> None:
    if not remembers:
        monkeypatch.setattr(wire_client, "OUT_OF_STEP_S", 0.0)
    async with Played(seed, every) as server:
        reports: list[bool] = []
        client = WireClient(wire_client.URL(server.url), {}, BackendConfig(), reports.append)
        client._now = lambda: server.now
        got = await server.run(asking(client), REQUESTS)
        await turns()
        assert got == [b"%d" % number for number in range(REQUESTS)]
        assert server.extras == REQUESTS // every
        assert reports[0]
        if remembers:
            assert len(reports) <= server.extras
            assert not any(reports[1:])
        else:
            assert server.connections < REQUESTS or every == 1, "some were used again"
        await client.close()


# --- one connection -------------------------------------------------------------------------------------------------


def clocked(peer: Peer, reports: list[bool], **config: Any) -> tuple[WireClient, list[float]]:
    """A client whose clock is the last of these numbers."""
    clock = [0.0]
    client = WireClient(peer.url, {}, BackendConfig(**config), reports.append)
    client._now = lambda: clock[-1]
    return client, clock


async def test_a_connection_settles_before_it_is_used_again() -> None:
    async with Peer() as peer:
        client, clock = clocked(peer, [])
        for moment, connections in ((0.0, 1), (SETTLE_S / 2, 2), (SETTLE_S, 2), (1.4 * SETTLE_S, 3), (2 * SETTLE_S, 3)):
            clock.append(moment)
            assert await ask(client) == b"ok"
            assert peer.connections == connections
        await client.close()
        await peer.all_closed()


async def test_connections_that_settle_count_as_unused() -> None:
    async with Peer() as peer:
        client, clock = clocked(peer, [], pool=Pool(idle_connections=2, idle_s=30.0))
        for _ in range(5):
            await ask(client)
        await until(lambda: peer.open == 2)
        clock.append(30.0)
        client.patrol()
        await peer.all_closed()
        await client.close()


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", [1, 9, 10_000], ids=["a byte", "half a head", "whole"])
async def test_any_byte_on_an_unused_connection_ends_it(framing: str, size: int) -> None:
    gate = asyncio.Event()
    async with Peer([sized(b"a"), gate, FRAMINGS[framing](b"b")[:size]], [sized(b"c")]) as peer:
        reports: list[bool] = []
        client, clock = clocked(peer, reports)
        assert await ask(client) == b"a"
        gate.set()
        await peer.all_closed()
        clock.append(1.0)
        assert await ask(client) == b"c"
        assert (peer.connections, reports) == (2, [True])
        await client.close()


@pytest.mark.parametrize("data", [b"\r\n", b"\n", b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"])
async def test_bytes_that_are_no_answer_end_the_connection_only(data: bytes) -> None:
    gate = asyncio.Event()
    async with Peer([sized(b"a"), gate, data], [sized(b"c")]) as peer:
        reports: list[bool] = []
        client, clock = clocked(peer, reports)
        assert await ask(client) == b"a"
        gate.set()
        await peer.all_closed()
        for moment in (1.0, 2.0):
            clock.append(moment)
            assert await ask(client) == b"c"
        assert (peer.connections, reports) == (2, [])
        await client.close()


@every("answer", [sized(b"a"), CHUNKED + chunked(b"a"), b"HTTP/1.1 204 No Content\r\n\r\n"])
@every("apart", [False, True])
@every("surplus", [sized(b"b"), b'{"more": 1}', b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_bytes_behind_the_end_of_an_answer(answer: bytes, apart: bool, surplus: bytes) -> None:
    steps: list[Step] = [answer, surplus] if apart else [answer + surplus]
    async with Peer(steps, [sized(b"c")]) as peer:
        reports: list[bool] = []
        client, clock = clocked(peer, reports)
        held = await post(client)
        if apart:
            await peer.all_closed()  # before anybody took the answer
        assert (await held.read(LIMIT)) == (b"" if answer.startswith(b"HTTP/1.1 204") else b"a")
        assert reports == [True]
        for moment in (1.0, 2.0):
            clock.append(moment)
            assert await ask(client) == b"c"
        assert peer.connections == 3, "connections of a server that is out of step are not used again"
        await client.close()


async def test_a_server_is_in_step_again_after_a_while() -> None:
    async with Peer([sized(b"a") + sized(b"b")], [sized(b"c")]) as peer:
        reports: list[bool] = []
        client, clock = clocked(peer, reports)
        for moment in (0.0, 1.0, 2.0, wire_client.OUT_OF_STEP_S, wire_client.OUT_OF_STEP_S + 1):
            clock.append(moment)
            await ask(client)
        assert (peer.connections, reports) == (4, [True])
        await client.close()


async def test_the_other_unused_connections_are_closed_as_well() -> None:
    gate = asyncio.Event()
    async with Peer([sized(b"a")], [sized(b"b"), gate, sized(b"x")]) as peer:
        client, _ = clocked(peer, [])
        for answer in [await post(client), await post(client)]:
            await answer.read(LIMIT)
        assert peer.open == 2
        gate.set()
        await peer.all_closed()
        await client.close()


@pytest.mark.parametrize("data", [sized(b"x"), b""], ids=["an answer", "the end"])
async def test_a_connection_with_bytes_that_nobody_has_read_yet_is_not_lent(data: bytes) -> None:
    """They arrived within this turn of the loop."""
    writers: list[asyncio.StreamWriter] = []
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                received.append(head)
                await reader.readexactly(2)
                writer.write(sized(b"%d" % len(received)))
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = wire_client.URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        client = WireClient(url, {}, BackendConfig())
        client.settle_s = 0.0
        assert [await ask(client), await ask(client)] == [b"1", b"2"]
        assert len(writers) == 1
        writers[0].write(data)
        if not data:
            writers[0].write_eof()
        assert await ask(client) == b"3"
        assert len(writers) == 2
        await until(lambda: len(client._unused) + len(client._settling) <= 1)
        await client.close()
        await turns()


@pytest.mark.parametrize("head", [OK, b"HTTP/1.1 413 Content Too Large\r\n"], ids=["200", "413"])
async def test_an_answer_that_comes_before_the_request_was_written_is_not_its_own(head: bytes) -> None:
    """The server has not seen the end of the request, so it is asked once more, on a new connection."""
    early = head + b"Content-Length: 6\r\n\r\nothers"
    own = head + b"Content-Length: 3\r\n\r\nown"
    async with Peer([sized(b"a")], [early], [own]) as peer:
        client = peer.client()
        assert await ask(client) == b"a"
        peer.takes = False
        answer = await post(client, b"x" * (1 << 26))
        assert await answer.read(LIMIT) == b"own"
        assert (peer.connections, len(peer.heads)) == (2, 3)
        await client.close()
