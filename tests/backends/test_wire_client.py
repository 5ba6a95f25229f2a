"""Connections of the fast client: reuse, bounds, limits of time, pauses, and what is left behind (docs/adr/0007)."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from tests.backends.peers import CHUNKED, LIMIT, Peer, ask, chunked, fault_of, post, self_signed, sized, vigilant
from tests.waiting import GUARD_S, until
from toolwire.config import BackendConfig, Pool, Timeouts
from toolwire.errors import BackendFault
from toolwire.support.allocator import LARGE_BYTES
from toolwire.upstream.client.wire_answer import HttpAnswer
from toolwire.upstream.client.wire_client import WireClient
from toolwire.upstream.client.wire_connection import READ_BYTES

# --- reuse ----------------------------------------------------------------------------------------------------------


async def test_a_connection_is_not_given_back_before_its_answer_was_taken() -> None:
    async with Peer() as peer:
        client = peer.client()
        first = await post(client)
        assert first.ended
        second = await post(client)
        assert peer.connections == 2
        for answer in (first, second):
            assert await answer.read(LIMIT) == b"ok"
            await answer.close()
            await answer.close()
        assert [await ask(client), await ask(client)] == [b"ok"] * 2
        assert peer.connections == 2
        await client.close()


async def test_large_answers_count_for_returning_memory() -> None:
    large = bytes(4_000_000)
    async with Peer([sized(large)], [sized(b"ok")]) as peer:
        client = peer.client()
        answer = await post(client)
        assert await answer.read(len(large)) == large
        freed = client._memory.freed
        assert LARGE_BYTES <= freed <= len(large) + READ_BYTES
        assert await ask(client) == b"ok"
        assert client._memory.freed == freed
        await client.close()


async def test_a_stale_connection_is_replaced_by_a_new_one() -> None:
    """Two unused connections, both closed by the server when the next request comes: the second try takes a new one."""
    async with Peer([sized(b"a")], [sized(b"a")], [None], [sized(b"b")]) as peer:
        client = peer.client()
        both = [await post(client), await post(client)]
        for answer in both:
            await answer.read(LIMIT)
        assert await ask(client) == b"b"
        assert peer.connections == 3
        assert len(peer.heads) == 4
        await client.close()


async def test_a_second_try_is_the_last() -> None:
    async with Peer([sized(b"a")], [None]) as peer:
        client = peer.client()
        await ask(client)
        assert (await fault_of(client)).code == "upstream_disconnected"
        assert len(peer.heads) == 3
        await client.close()


async def test_a_silent_server_is_not_asked_twice() -> None:
    """A limit that passed on a kept connection is no sign of a stale one."""
    async with Peer([sized(b"a")], [asyncio.Event()]) as peer:
        client = vigilant(peer)
        await ask(client)
        client.timeouts = Timeouts(first_byte_s=0)
        assert (await fault_of(client)).code == "upstream_timeout"
        await peer.all_closed()
        assert peer.connections == 1
        await client.close()


async def test_an_unused_connection_grows_old() -> None:
    async with Peer() as peer:
        client = peer.client(pool=Pool(idle_s=0.0))
        await ask(client)
        await ask(client)
        assert peer.connections == 2
        await peer.all_closed()
        await client.close()


async def test_the_patrol_rests_when_there_is_nothing_to_look_at() -> None:
    async with Peer() as peer:
        client = peer.client(pool=Pool(idle_s=0.04))
        assert client._timer is None
        await ask(client)
        await peer.all_closed()
        client._on_timer()
        assert client._timer is None
        assert await ask(client) == b"ok"
        await client.close()


# --- bounds ---------------------------------------------------------------------------------------------------------


async def test_requests_wait_for_a_free_connection_in_turn() -> None:
    async with Peer(lambda head, body: [sized(body)]) as peer:
        client = peer.client(pool=Pool(connections=2))
        held = [await post(client), await post(client)]
        order: list[int] = []

        async def one(number: int) -> None:
            answer = await post(client, b"%d" % number)
            order.append(int(await answer.read(LIMIT)))

        waiting = [asyncio.create_task(one(number)) for number in range(6)]
        await asyncio.sleep(0)
        assert len(peer.heads) == 2
        for answer in held:
            await answer.close()
        await asyncio.gather(*waiting)
        assert sorted(order) == list(range(6))
        assert peer.connections == 2
        await client.close()


@pytest.mark.parametrize("freed", ["before", "after"])
async def test_who_gives_up_waiting_takes_no_place(freed: str) -> None:
    async with Peer() as peer:
        client = peer.client(pool=Pool(connections=1))
        held = await post(client)
        waiting = asyncio.create_task(post(client))
        await asyncio.sleep(0)
        if freed == "before":
            await held.close()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await held.close()
        async with asyncio.timeout(GUARD_S):
            assert await ask(client) == b"ok"
        await client.close()


async def test_waiting_for_a_free_connection_has_a_limit() -> None:
    async with Peer() as peer:
        client = peer.client(pool=Pool(connections=1))
        held = await post(client)
        client.timeouts = Timeouts(first_byte_s=0.01)
        fault = await fault_of(client)
        assert (fault.status, "first byte" in fault.message) == (504, True)
        client.timeouts = Timeouts()
        await held.close()
        assert await ask(client) == b"ok"
        await client.close()


@pytest.mark.parametrize("end", ["closed", "failed", "refused", "cancelled", "overdue"])
async def test_every_end_frees_its_place(end: str) -> None:
    scripts: dict[str, list[Any]] = {
        "closed": [CHUNKED + chunked(b"a", end=False)],
        "failed": [CHUNKED + b"ZZ\r\n"],
        "refused": [b"garbage"],
        "cancelled": [asyncio.Event()],
        "overdue": [CHUNKED + chunked(b"a", end=False), asyncio.Event()],
    }
    async with Peer(*[scripts[end]] * 3, [sized(b"ok")]) as peer:
        client = vigilant(peer, pool=Pool(connections=1), timeouts=Timeouts(idle_s=0))
        for _ in range(3):
            if end == "cancelled":
                task = asyncio.create_task(post(client))
                await peer.asked.acquire()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                continue
            try:
                answer = await post(client)
                if end != "closed":
                    await answer.read(LIMIT)
                await answer.close()
            except BackendFault:
                assert end != "closed"
        async with asyncio.timeout(GUARD_S):
            assert await ask(client) == b"ok"
        await client.close()


async def test_no_connection_no_place() -> None:
    async with Peer() as gone:
        url = gone.url
    client = WireClient(url, {}, BackendConfig(pool=Pool(connections=1)))
    for _ in range(3):
        async with asyncio.timeout(GUARD_S):
            assert "cannot be reached" in (await fault_of(client)).message
    await client.close()


async def test_a_name_that_nobody_has() -> None:
    for host in ("model.invalid", "a" * 64 + ".invalid"):
        client = WireClient(URL(f"http://{host}/v1"), {}, BackendConfig())
        assert (await fault_of(client)).code == "upstream_disconnected"
        await client.close()


# --- pause, resume, sinks -------------------------------------------------------------------------------------------


async def test_a_pause_stops_the_server_and_its_clock() -> None:
    part = chunked(b"x" * 65536, end=False)
    rest = asyncio.Event()
    async with Peer([CHUNKED + chunked(b"first", end=False), rest, *[part] * 300, b"0\r\n\r\n"]) as peer:
        client = peer.client(timeouts=Timeouts(idle_s=0))
        client._patrol_s = 3600.0  # the test goes on patrol itself
        answer = await post(client, stream=True)
        got: list[int] = []

        def sink(data: bytes) -> None:
            got.append(len(data))
            if len(got) == 1:
                answer.pause()

        pumping = asyncio.create_task(answer.pump(sink))
        while not got:  # noqa: ASYNC110
            await asyncio.sleep(0)
        rest.set()
        for _ in range(50):
            await asyncio.sleep(0)
            client.patrol()
        assert got == [5]
        answer.resume()
        await pumping
        assert sum(got) == 5 + 300 * 65536
        await client.close()


async def test_silence_is_measured_from_the_end_of_a_pause() -> None:
    async with Peer([CHUNKED + chunked(b"first", end=False)], after="hang") as peer:
        client = peer.client(timeouts=Timeouts(idle_s=0))
        client._patrol_s = 3600.0
        answer = await post(client, stream=True)
        pumping = asyncio.create_task(answer.pump(lambda _: answer.pause()))
        await asyncio.sleep(0)
        client.patrol()
        client.patrol()
        assert not answer.ended
        answer.resume()
        client.patrol()
        assert not answer.ended
        client.patrol()
        with pytest.raises(BackendFault, match="idle"):
            await pumping
        await client.close()


async def test_a_pause_at_the_end_is_not_the_next_answers() -> None:
    async with Peer([CHUNKED + chunked(b"a", end=False), chunked(b"b")], [sized(b"ok")]) as peer:
        client = peer.client()
        answer = await post(client, stream=True)
        await answer.pump(lambda data: answer.pause() if data == b"b" else None)
        async with asyncio.timeout(GUARD_S):
            assert await ask(client) == b"ok"
        assert peer.connections == 1
        await client.close()


async def test_a_paused_answer_can_still_end_well() -> None:
    later = asyncio.Event()
    async with Peer([CHUNKED + chunked(b"a", end=False), later, b"0\r\n\r\n"], [sized(b"ok")]) as peer:
        client = peer.client()
        answer = await post(client, stream=True)
        answer.pause()
        later.set()
        await answer.close(linger_s=5.0)
        assert await ask(client) == b"ok"
        assert peer.connections == 1
        await client.close()


async def test_an_answer_that_does_not_end_in_time_gives_up_its_connection() -> None:
    async with Peer([CHUNKED + chunked(b"a", end=False)], [sized(b"ok")]) as peer:
        client = peer.client()
        answer = await post(client, stream=True)
        await answer.close(linger_s=0.01)
        assert await ask(client) == b"ok"
        assert peer.connections == 2
        await client.close()


@pytest.mark.parametrize("read", ["first", "later"])
@pytest.mark.parametrize("error", [LookupError, asyncio.CancelledError, StopIteration])
async def test_what_a_sink_raises(read: str, error: type[BaseException]) -> None:
    """It ends the reading at once, wherever the sink was called, and the server's work with it."""
    later = asyncio.Event()
    steps = [CHUNKED + chunked(b"a", end=False), later, chunked(b"b", end=False)]
    async with Peer(steps, after="hang") as peer:
        client = peer.client()
        answer = await post(client, stream=True)

        def sink(data: bytes) -> None:
            if data == (b"a" if read == "first" else b"b"):
                raise error("mine")
            later.set()

        with pytest.raises((error, RuntimeError)) as caught:
            await answer.pump(sink)
        assert isinstance(caught.value, error) or isinstance(caught.value.__cause__, error)
        await answer.close()
        await peer.all_closed()
        await client.close()


async def test_a_pump_that_is_cancelled_calls_its_sink_no_more() -> None:
    later = asyncio.Event()
    async with Peer([CHUNKED + chunked(b"a", end=False), later, chunked(b"b", end=False)], after="hang") as peer:
        client = peer.client()
        answer = await post(client, stream=True)
        got: list[bytes] = []
        pumping = asyncio.create_task(answer.pump(got.append))
        await asyncio.sleep(0)
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
        later.set()
        assert [data async for data in _some(answer)] == [b"b"]
        assert got == [b"a"]
        await answer.close()
        await peer.all_closed()
        await client.close()


async def _some(answer: HttpAnswer) -> Any:
    async for data in answer.reads():
        yield data
        return


# --- what is left behind --------------------------------------------------------------------------------------------


async def test_closing_the_client_ends_what_is_under_way() -> None:
    async with Peer([CHUNKED + chunked(b"a", end=False)], [asyncio.Event()], after="hang") as peer:
        client = peer.client(pool=Pool(connections=2))
        reading = asyncio.create_task((await post(client)).read(LIMIT))
        tasks = [reading, *(asyncio.create_task(post(client)) for _ in range(2))]
        for _ in range(2):
            await peer.asked.acquire()
        await client.close()
        async with asyncio.timeout(GUARD_S):
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {getattr(end, "code", end) for end in ends} == {"upstream_disconnected"}
        await peer.all_closed()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
async def test_closing_in_every_phase_leaves_no_socket(tmp_path: Path) -> None:
    tls, _ = self_signed(tmp_path)
    for context in (None, tls):
        await _close_in_every_phase(context)


async def _close_in_every_phase(tls: ssl.SSLContext | None) -> None:
    phases = {
        "connecting": None,
        "no head": [asyncio.Event()],
        "half a head": [b"HTTP/1.1 2", asyncio.Event()],
        "no body": [CHUNKED, asyncio.Event()],
        "half a body": [CHUNKED + chunked(b"a", end=False), asyncio.Event()],
        "a whole body": [sized(b"ok")],
    }
    before = _sockets()
    async with Peer([], tls=tls) as peer:
        client = peer.client(verify_tls=False)
        for name, script in phases.items():
            for way in ("close", "cancel"):
                peer.scripts = [script if script is not None else [asyncio.Event()]]
                task = asyncio.create_task(post(client, stream=True))
                if name == "connecting":
                    await asyncio.sleep(0)
                else:
                    await peer.asked.acquire()
                if name in ("no body", "half a body", "a whole body"):
                    answer = await task
                    if way == "cancel":
                        reading = asyncio.create_task(answer.read(LIMIT))
                        await asyncio.sleep(0)
                        reading.cancel()
                        await asyncio.gather(reading, return_exceptions=True)
                    await answer.close()
                else:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                assert not client._answers, name
        await client.close()
        await peer.all_closed()
    await until(lambda: _sockets() <= before, 0.001)


def _sockets() -> int:
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(link) and os.readlink(link).startswith("socket:") for link in links)
