"""Which servers may be asked, in which order, and what is known of them afterwards (R10.5, R10.6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.waiting import GUARD_S
from toolwire.config import BackendConfig, BreakerConfig, RetryConfig, Timeouts
from toolwire.errors import BackendFault, ClientFault, GatewayError, Unavailable
from toolwire.events import Delta, Event, Fault, Finish, Start
from toolwire.model import Message, ModelRequest, Text
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.record import AccessRecord
from toolwire.upstream.pool.attempts import Attempts
from toolwire.upstream.pool.health import Health
from toolwire.upstream.pool.server import LONGEST_PAUSE_S, UpstreamServer
from toolwire.upstream.pool.server_pool import ServerPool, WeightedServer, common
from toolwire.upstream.servers.base import Backend, Capabilities, EventSource
from toolwire.upstream.servers.presets import PRESETS

REQUEST = ModelRequest("m", (Message("user", (Text("hi"),)),), stream=True)
LOST = BackendFault("lost", code="upstream_disconnected", transient=True)
LATER = BackendFault("later", code="upstream_error", transient=True, headers={"retry-after-ms": "5000"})
BUSY = ClientFault("busy", code="rate_limit_exceeded", upstream_status=429, transient=True)
WRONG = ClientFault("wrong", code="upstream_rejected", upstream_status=400)


@dataclass
class Fake:
    """A server that does what its plan says, one entry for each request: refuse, hang, break off, or answer."""

    name: str
    plan: list[Any] = field(default_factory=list)
    protocol: ServerSide | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    up: asyncio.Future[bool] | Exception | bool = True
    asked: int = 0
    looked_at: int = 0
    hangs: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, request: ModelRequest, **more: Any) -> EventSource:
        self.asked += 1
        turn = self.plan.pop(0) if self.plan else "answers"
        await asyncio.sleep(0)
        if turn == "hangs":
            self.hangs.set()
            await asyncio.Event().wait()
        if isinstance(turn, Exception):
            raise turn
        return FakeSource(turn)

    async def models(self) -> list[str]:
        return [self.name, "shared"]

    async def ready(self) -> bool:
        self.looked_at += 1
        self.hangs.set()
        if isinstance(self.up, Exception):
            raise self.up
        return self.up if isinstance(self.up, bool) else await asyncio.shield(self.up)


@dataclass
class FakeSource(EventSource):
    turn: str
    closed: int = 0

    async def batches(self) -> AsyncIterator[list[Event]]:
        if self.turn == "breaks before":
            yield [Start("r", "m", 1)]
            yield [Fault(LOST)]
            return
        yield [Start("r", "m", 1)]
        await asyncio.sleep(0)
        yield [Delta(0, "x")]
        if self.turn == "stalls":
            await asyncio.Event().wait()
        yield [Fault(LOST) if self.turn == "breaks after" else Finish("stop", None)]

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


def endpoint(server: Fake, clock: Callable[[], float] = lambda: 0.0, **config: Any) -> UpstreamServer:
    return UpstreamServer(server.name, cast(Backend, server), BackendConfig(**config), clock)


def attempts(pool: ServerPool, **retry: Any) -> Attempts:
    retries = RetryConfig(**{"backoff_s": 0.0, **retry})
    return Attempts(pool, retries, lambda member: (REQUEST, None), record=AccessRecord(), request_id="r")


async def answer(source: Attempts) -> list[Event]:
    return [event async for batch in source.batches() for event in batch]


# --- who is asked ---------------------------------------------------------------------------------------------------


def several(number: int, fallback: int = 0, **more: Any) -> tuple[ServerPool, list[Fake]]:
    servers = [Fake(f"s{index}") for index in range(number + fallback)]
    members = [WeightedServer(endpoint(server, **more)) for server in servers]
    return ServerPool(members[:number], members[number:]), servers


def alone(server: Fake, **config: Any) -> ServerPool:
    return ServerPool([WeightedServer(endpoint(server, **config))])


def test_a_retry_goes_to_another_member_first() -> None:
    pool, _ = several(2, 1)
    tried: list[WeightedServer] = []
    while (member := pool.pick(3, tried)) is not None and len(tried) < 5:
        tried.append(member)
    assert [member.name for member in tried] == ["s0", "s1", "s0", "s2"]


def test_a_server_that_may_not_be_asked_is_left_out() -> None:
    now = [0.0]
    pool, _ = several(2, 1, clock=lambda: now[0])
    first, second, third = (*pool.members, *pool.fallback)
    first.endpoint.pause(5.0)
    second.endpoint.set_health(healthy=False)
    assert pool.pick(2) is third
    third.endpoint.pause(9.0)
    assert pool.pick(2) is None
    assert pool.unavailable().headers == {"Retry-After": "1"}, "one of them may come back at any time"
    second.endpoint.set_health(healthy=True)
    second.endpoint.pause(7.2)
    assert pool.unavailable().headers == {"Retry-After": "5", "retry-after-ms": "5000"}
    now[0] = 5.0
    assert pool.pick(2) is first


def test_of_several_pauses_the_longest_counts_up_to_the_maximum() -> None:
    server = UpstreamServer("s", cast(Backend, Fake("s")), BackendConfig(), clock=lambda: 0.0)
    for seconds, wait_s in ((100.0, 100.0), (1.0, 100.0), (10 * LONGEST_PAUSE_S, LONGEST_PAUSE_S)):
        server.pause(seconds)
        assert (server.wait_s, server.available) == (wait_s, False)


def test_the_only_server_is_asked_whatever_is_known_of_it() -> None:
    pool = alone(Fake("s"))
    (member,) = pool.members
    for _ in range(20):
        member.endpoint.failed(member.endpoint.enter())
    member.endpoint.set_health(healthy=False)
    assert pool.pick(1) is member
    pool = alone(Fake("s"), breaker=BreakerConfig(failures=1))
    (member,) = pool.members
    member.endpoint.failed(member.endpoint.enter())
    assert pool.pick(2) is None, "unless a breaker is configured"


def test_servers_of_two_protocols_do_not_go_together() -> None:
    one, other = (WeightedServer(endpoint(server)) for server in (Fake("a", protocol=ChatProtocol()), Fake("b")))
    with pytest.raises(ValueError, match="must speak one protocol: 'a' speaks chat, 'b' speaks in-process"):
        ServerPool([one], [other])


async def test_a_plug_in_that_breaks_or_hangs_names_no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks() -> list[str]:
        raise KeyError("secret")

    async def hangs() -> list[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr("toolwire.upstream.pool.server.PATIENCE_S", 0.01)
    for models in breaks, hangs:
        server = Fake("mine")
        server.models = models  # type: ignore[method-assign]
        with pytest.raises(BackendFault, match='Backend "mine": It') as caught:
            await alone(server).models()
        assert (caught.value.status, "secret" in caught.value.message) == (502, False)


async def test_the_models_of_a_route_are_those_of_its_members() -> None:
    pool, _ = several(2, 1)
    assert await pool.models() == ["s0", "shared", "s1"]


@given(st.lists(st.sampled_from(sorted(PRESETS)), min_size=1, max_size=3))
def test_what_all_take_is_taken_by_each(names: list[str]) -> None:
    presets = [PRESETS[name] for name in names]
    together = common(presets)
    for one in presets:
        assert together.extra_parameters <= one.extra_parameters
        assert together.tool_types <= one.tool_types
        for name in ("system_role", "developer_role", "images", "continuation", "multiple_choices", "reasoning_effort"):
            assert getattr(one, name) or not getattr(together, name)
        assert one.constrain != "none" or together.constrain == "none"
    assert common(presets[:1]) == presets[0]


@every(
    ("field", "one", "other", "both"),
    [
        ("stop_sequences", None, 16, 4),
        ("stop_sequences", 2, None, 2),
        ("stop_sequences", None, None, None),
        ("default_max_tokens", None, 100, 100),
        ("default_max_tokens", 100, 200, 100),
        ("late_system", True, None, None),
        ("late_system", None, False, False),
        ("files", None, False, False),
        ("merge_roles", False, True, True),
        ("refuse_images", False, True, True),
    ],
)
def test_the_stricter_of_two_servers_decides(field: str, one: Any, other: Any, both: Any) -> None:
    takes: list[Any] = [{field: one}, {field: other}]
    for each in (takes, takes[::-1]):
        assert getattr(common([Capabilities(**fields) for fields in each]), field) == both


# --- what is known afterwards ---------------------------------------------------------------------------------------


async def test_errors_of_the_client_do_not_open_the_breaker() -> None:
    pool, (one, _) = several(1, 1, breaker=BreakerConfig(failures=1))
    one.plan = [WRONG, BUSY]
    for _ in range(2):
        with pytest.raises(GatewayError):
            await attempts(pool, attempts=1).open()
        pool.fallback[0].endpoint.pause(100.0)
    assert pool.members[0].endpoint.breaker.state == "closed"


async def test_one_probe_finds_out() -> None:
    """Half open: of many requests at once one goes to the server, and its first byte closes the breaker."""
    now = [0.0]
    pool, (one, two) = several(1, 1, clock=lambda: now[0], breaker=BreakerConfig(failures=1, open_s=10.0))
    one.plan = [LOST]
    first = attempts(pool, attempts=1)
    await first.open()
    await first.close()
    assert (one.asked, two.asked) == (1, 1)
    now[0] = 10.0
    many = [attempts(pool, attempts=1) for _ in range(5)]
    await asyncio.gather(*(source.open() for source in many))
    assert (one.asked, two.asked) == (2, 5)
    probe = next(source for source in many if source._tried[-1].name == "s0")
    reading = aiter(probe.batches())
    await anext(reading)
    assert pool.members[0].endpoint.breaker.state == "closed", "the answer has begun"
    for source in many:
        await source.close()


async def test_a_probe_whose_client_leaves_makes_way() -> None:
    now = [0.0]
    pool, (one, _) = several(1, 1, clock=lambda: now[0], breaker=BreakerConfig(failures=1, open_s=10.0))
    one.plan = [LOST, "hangs", "answers"]
    await attempts(pool, attempts=1).open()
    now[0] = 10.0
    leaving = asyncio.create_task(attempts(pool, attempts=1).open())
    await one.hangs.wait()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert pool.members[0].endpoint.breaker.state == "half_open"
    assert pool.pick(1) is pool.members[0]


async def test_when_nobody_may_be_asked_the_gateway_says_so() -> None:
    pool, (one, two) = several(2, breaker=BreakerConfig(failures=1, open_s=30.0))
    one.plan, two.plan = [LOST], [LOST]
    with pytest.raises(BackendFault):
        await attempts(pool).open()
    with pytest.raises(Unavailable) as caught:
        await attempts(pool).open()
    assert (caught.value.status, caught.value.code) == (503, "no_backend_available")
    assert caught.value.headers == {"Retry-After": "30", "retry-after-ms": "30000"}
    assert (one.asked, two.asked) == (1, 1)


TURNS = st.sampled_from([LOST, BUSY, WRONG, "hangs", "answers", "breaks before", "breaks after", "stalls"])


@given(
    st.lists(st.lists(TURNS, max_size=4), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=5),
)
def test_no_server_stays_busy(plans: list[list[Any]], clients: list[tuple[int, bool]]) -> None:
    """Whatever the servers do, and whenever a client goes: in the end nobody is busy, and no probe is out."""
    servers = [Fake(f"s{index}", plan[:]) for index, plan in enumerate(plans)]
    members = [WeightedServer(endpoint(server, breaker=BreakerConfig(failures=1, open_s=0.0))) for server in servers]
    pool = ServerPool(members[:2], members[2:])

    async def client(turns: int, reads: bool) -> None:
        source = attempts(pool, attempts=3)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def leave(left: int) -> None:
            loop.call_soon(leave, left - 1) if left else task.cancel()

        leave(turns)
        await source.open()  # when that fails there is nothing to close
        try:
            if reads:
                await answer(source)
        finally:
            await source.close()

    async def everybody() -> None:
        running = (asyncio.create_task(client(*one)) for one in clients)
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(everybody())
    assert [member.busy for member in members] == [0] * len(members)
    assert all(member.endpoint.breaker.allows for member in members)


@every(
    ("plan", "spent_s", "said", "asked"),
    [
        ([LOST, "hangs"], 999.9, r"too long \(total: more than 1000 s\)", 2),
        ([LOST], 1000.0, "lost", 1),  # no try begins after the total
        ([LATER], 999.0, "later", 1),  # and no pause that ends after it
    ],
)
async def test_the_total_is_for_all_tries_together(
    monkeypatch: pytest.MonkeyPatch, plan: list[Any], spent_s: float, said: str, asked: int
) -> None:
    server, started = Fake("s", plan), time.monotonic()
    source = attempts(alone(server, timeouts=Timeouts(total_s=1000.0)))
    source._started = started
    stopped = SimpleNamespace(monotonic=lambda: started + spent_s)  # however long the machine takes for the first try
    monkeypatch.setattr("toolwire.upstream.pool.attempts.time", stopped)
    async with asyncio.timeout(GUARD_S):
        with pytest.raises(BackendFault, match=said):
            await source.open()
    assert server.asked == asked


async def test_pauses_that_a_server_asks_for_are_made_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single server is not available before they are over."""
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("asyncio.sleep", sleep)
    asked = {"code": "rate_limit_exceeded", "upstream_status": 429, "transient": True}
    busy = [ClientFault("busy", headers={"retry-after-ms": wait}, **asked) for wait in ("1500", "250")]
    source = attempts(ServerPool([WeightedServer(endpoint(Fake("s", busy), lambda: now[0]))]), attempts=3)
    await source.open()
    assert (now[0], source._record.notes["retry_wait_ms"]) == (1.75, 1750.0)
    await source.close()


async def test_the_begin_of_a_broken_answer_is_not_shown_twice() -> None:
    source = attempts(alone(Fake("s", ["breaks before", "answers"])))
    await source.open()
    assert [type(event) for event in await answer(source)] == [Start, Delta, Finish]
    await source.close()


# --- health ---------------------------------------------------------------------------------------------------------


async def test_health_checks_end_also_when_a_server_answers_in_that_moment() -> None:
    answers: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    server = Fake("s", up=answers)
    async with asyncio.timeout(GUARD_S):
        async with Health({"s": endpoint(server, health_check_s=3600.0)}, lambda up, name: None):
            await server.hangs.wait()
            answers.set_result(True)


async def test_a_server_that_cannot_be_asked_is_down() -> None:
    told: list[tuple[bool, str]] = []
    health = Health({"s": endpoint(Fake("s", up=RuntimeError("no")))}, lambda up, name: told.append((up, name)))
    assert await health.states() == {"s": False}
    assert told == [(False, "s")]


async def test_however_many_ask_a_server_is_asked_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """While an answer is awaited, and for a second after the question; who goes meanwhile spoils nothing."""
    answers: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    server = Fake("s", up=answers)
    told: list[tuple[bool, str]] = []
    async with (
        asyncio.timeout(GUARD_S),
        Health({"s": endpoint(server)}, lambda up, name: told.append((up, name))) as health,
    ):
        asking = [asyncio.create_task(health.states()) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        answers.set_result(True)
        assert await asyncio.gather(*asking[1:]) == [{"s": True}] * 49
        monkeypatch.setattr("toolwire.upstream.pool.health.FRESH_S", 3600.0)
        for _ in range(10):
            assert await health.states() == {"s": True}
        assert (server.looked_at, told) == (1, [(True, "s")])
        monkeypatch.setattr("toolwire.upstream.pool.health.FRESH_S", 0.0)
        assert await health.states() == {"s": True}
        assert server.looked_at == 2


async def test_those_that_are_asked_regularly_are_known() -> None:
    known, unknown = Fake("known", up=False), Fake("unknown")
    servers = {"known": endpoint(known, health_check_s=3600.0), "unknown": endpoint(unknown)}
    async with asyncio.timeout(GUARD_S), Health(servers, lambda up, name: None) as health:
        while not servers["known"].checked:  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0)
        assert await health.states() == {"known": False, "unknown": True}
        servers["known"].set_health(True)
        assert await health.states() == {"known": True, "unknown": True}
    assert (known.looked_at, unknown.looked_at) == (1, 1)
