"""HTTP backends over real sockets: time limits (R10.3), and connections that are kept (R10.4). Silence, and more of
connections: `test_wire_client.py`."""

from __future__ import annotations

import pytest

from tests.backends.conftest import SSE, Connect, ask, events_of, fault_of, http_chunk
from toolwire.config import Pool, Timeouts
from toolwire.errors import BackendFault, GatewayError
from toolwire.events import Finish
from toolwire.testing import Answer, Raw, Refuse, Say, Upstream, chunk, frame
from toolwire.upstream.client.wire_client import WireClient
from toolwire.upstream.servers.http import HttpBackend


async def overdue(backend: HttpBackend) -> GatewayError:
    """What a limit ends with: in the stream, or before it where the machine paused for so long."""
    try:
        return await fault_of(backend)
    except BackendFault as fault:
        return fault


# --- time limits ----------------------------------------------------------------------------------------------------


async def test_time_limit_for_the_first_byte_of_the_body(server: Upstream, connect: Connect) -> None:
    server.script = [Answer(headers={"Content-Type": "text/event-stream"}, hang=True)]
    error = await overdue(await connect(timeouts=Timeouts(first_byte_s=0.2, idle_s=60)))
    assert (error.status, error.code) == (504, "upstream_timeout")
    assert "first byte" in error.message


async def test_a_reader_that_takes_its_time_is_not_the_servers_silence(server: Upstream, connect: Connect) -> None:
    server.script = [Answer([b": x\n\n"], headers={"Content-Type": "text/event-stream"}, hang=True)]
    backend = await connect(timeouts=Timeouts(idle_s=0))
    source = await backend.open(ask(), request_id="r")
    reads = source._answer.reads()
    await anext(reads)
    assert isinstance(backend.client, WireClient)
    for _ in range(3):
        backend.client.patrol()  # the timer, while nobody reads: a limit of nothing has passed long ago
    with pytest.raises(BackendFault, match="idle"):
        await anext(reads)
    await source.close()


async def test_time_limit_for_everything(server: Upstream, connect: Connect) -> None:
    server.script = [Answer([b": x\n\n"], headers={"Content-Type": "text/event-stream"}, hang=True)]
    assert "total" in (await overdue(await connect(timeouts=Timeouts(total_s=0.2)))).message
    server.script = [Raw(hang=True)]
    with pytest.raises(BackendFault, match="total"):
        await (await connect(timeouts=Timeouts(total_s=0.05))).open(ask(), request_id="r")


async def test_time_limit_for_connecting(connect: Connect) -> None:
    # A listening socket whose queue is full does not answer: the kernel drops further connection requests.
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(8)]
        try:
            for client in waiting:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
            backend = await connect(url=f"http://127.0.0.1:{port}", timeouts=Timeouts(connect_s=0.1))
            with pytest.raises(BackendFault, match="connecting") as caught:
                await backend.open(ask(), request_id="r")
            assert (caught.value.status, caught.value.code) == (504, "upstream_timeout")
        finally:
            for client in waiting:
                client.close()


async def test_none_means_no_limit(server: Upstream, connect: Connect) -> None:
    server.script = [Say("ok")]
    none = Timeouts(connect_s=None, first_byte_s=None, idle_s=None, total_s=None)
    assert isinstance((await events_of(await connect(timeouts=none)))[-1], Finish)


# --- connections -------------------------------------------------------------------------------------


async def test_connections_are_kept(server: Upstream, connect: Connect) -> None:
    server.script = [Say("a")]
    backend = await connect()
    for stream in (True, False, True):
        source = await backend.open(ask(stream=stream), request_id="r")
        if stream:
            async for batch in source.batches():
                if isinstance(batch[-1], Finish):
                    break  # as delivery does: nobody reads on after the end
        else:
            await source.body()
        await source.close()
    assert server.connections == 1


async def test_a_refusal_does_not_keep_its_connection_busy(server: Upstream, connect: Connect) -> None:
    server.script = [Refuse(500), Say("a")]
    backend = await connect(pool=Pool(connections=1))
    with pytest.raises(BackendFault):
        await backend.open(ask(), request_id="r")
    await events_of(backend)


async def test_a_kept_connection_that_dies_after_its_first_byte_is_not_replaced(
    server: Upstream, connect: Connect
) -> None:
    server.script = [Say("a"), Raw(SSE + http_chunk(frame(chunk({"content": "x"})))), Say("b")]
    backend = await connect()
    await events_of(backend)
    assert (await fault_of(backend)).code == "upstream_disconnected"
    assert len(server.requests) == 2
