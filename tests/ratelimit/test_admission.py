"""Which limits apply, and what the client is told."""

from __future__ import annotations

import pytest

from tests.cases import every
from tests.protocols.messages_wires import MESSAGES
from tests.protocols.wires import CHAT
from tests.ratelimit.conftest import Clock
from toolwire.config import GatewayConfig, KeyConfig, RateLimitConfig, RateLimitsConfig, RouteConfig
from toolwire.errors import GatewayError
from toolwire.ingress.auth import ApiKey, Keys
from toolwire.model import Image, Message, ModelRequest, Sampling, Text, ToolResult
from toolwire.protocols.shared.openai import duration
from toolwire.ratelimit.admission import Admission, allowances, effective_limit
from toolwire.ratelimit.base import Booking, Bound, LedgerUnavailable, MemoryLedger

ROUTE = RouteConfig(
    model="small",
    rate_limit=RateLimitConfig(requests_per_min=100),
    rate_limit_per_key=RateLimitConfig(tokens_per_min=50),
)


def admission(clock: Clock | None = None, **sections: object) -> tuple[Admission, list[str]]:
    refused: list[str] = []
    config = GatewayConfig(rate_limits=RateLimitsConfig(**sections))  # type: ignore[arg-type]
    return Admission(config, MemoryLedger(now=clock or Clock()), refused.append), refused


def api_key(key: str = "k", **limits: int) -> ApiKey:
    return next(iter(Keys([KeyConfig(key=key, **limits)])))  # type: ignore[arg-type]


@every(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0001, "1ms"),
        (0.006, "6ms"),
        (0.9991, "1s"),
        (1, "1s"),
        (1.5, "1.5s"),
        (12.34, "12.34s"),
        (59.9999, "1m0s"),
        (60, "1m0s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
        (5025.25, "1h23m45.25s"),
    ],
)
def test_durations_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_key_has_its_own_limits_and_the_default_for_the_rest() -> None:
    default = RateLimitConfig(requests_per_min=60, tokens_per_min=1000)
    assert effective_limit(None, default) == default
    own = api_key(requests_per_min=5, tokens_per_min=0, concurrent=2)
    assert effective_limit(own, default) == RateLimitConfig(requests_per_min=5, tokens_per_min=0, concurrent=2)
    assert effective_limit(api_key(), default) == default


def test_the_limits_of_an_exchange() -> None:
    limits, _ = admission(in_flight=9, per_key=RateLimitConfig(requests_per_min=60))
    key = api_key(tokens_per_min=7, concurrent=4)
    assert [(bound.scope, bound.kind, bound.most) for bound in limits.slot_bounds(key)] == [
        ("key", "concurrent", 4),
        ("gateway", "concurrent", 9),
    ]
    found = limits.bounds(key, ROUTE)
    assert [(bound.scope, bound.kind, bound.most) for bound in found] == [
        ("key", "requests", 60),
        ("key", "tokens", 7),
        ("route", "requests", 100),
        ("key_route", "tokens", 50),
    ]
    assert len({bound.name for bound in found}) == 4
    assert limits.bounds(None, RouteConfig()) != limits.bounds(api_key(), RouteConfig())
    nothing, _ = admission()
    assert nothing.bounds(api_key(tokens_per_min=0), RouteConfig()) == ()


def test_headers_tell_of_the_limit_of_which_least_is_left() -> None:
    bounds = [Bound("key", "requests", "k", 60), Bound("route", "requests", "r", 10), Bound("key", "tokens", "k", 1000)]
    left = allowances(bounds, Booking(True, (1, 8.5, 1030)))
    assert MESSAGES.write_limits(left, 1795304349.0) == {
        "anthropic-ratelimit-requests-limit": "10",
        "anthropic-ratelimit-requests-remaining": "1",
        "anthropic-ratelimit-requests-reset": "2026-11-21T23:40:00Z",
        "anthropic-ratelimit-tokens-limit": "1000",
        "anthropic-ratelimit-tokens-remaining": "0",
        "anthropic-ratelimit-tokens-reset": "2026-11-21T23:40:11Z",
    }
    assert CHAT.write_limits(left, 0) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "51s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m1.8s",
    }


async def test_a_refusal_says_which_limit_what_was_used_and_when_to_come_back(clock: Clock) -> None:
    limits, refused = admission(clock)
    bounds = limits.bounds(api_key(requests_per_min=2), RouteConfig())
    for left in ("1", "0"):
        told = await limits.book(bounds, 5, "x", "small", CHAT)
        assert told["x-ratelimit-remaining-requests"] == left
    clock.now += 10.5
    with pytest.raises(GatewayError) as caught:
        await limits.book(bounds, 5, "x", "small", CHAT)
    error = caught.value
    assert (error.status, error.type, error.code) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert error.message == (
        "Rate limit reached for this API key on requests per min (RPM): Limit 2, Used 2, Requested 1. "
        "Please try again in 19.5s."
    )
    assert error.headers["Retry-After"] == "20"
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused == ["key_requests"]
    clock.now += 20
    await limits.book(bounds, 5, "x", "small", CHAT)


async def test_of_several_refusals_the_longest_wait_is_told() -> None:
    limits, refused = admission(per_key=RateLimitConfig(requests_per_min=1, tokens_per_min=10, concurrent=1))
    bounds = limits.bounds(None, RouteConfig())
    await limits.book(bounds, 2, "x", "m", CHAT)
    with pytest.raises(GatewayError, match=r"^Rate limit reached for clients without an API key on requests") as caught:
        await limits.book(bounds, 10, "y", "m", CHAT)
    assert caught.value.headers["Retry-After"] == "60"
    assert refused == ["key_requests"]


@every(
    ("limit", "who"),
    [
        (RouteConfig(rate_limit=RateLimitConfig(concurrent=1)), 'the model "small"'),
        (RouteConfig(rate_limit_per_key=RateLimitConfig(concurrent=1)), 'this API key on the model "small"'),
    ],
)
async def test_concurrent_requests(limit: RouteConfig, who: str) -> None:
    limits, _ = admission()
    bounds = limits.bounds(api_key(), limit)
    await limits.book(bounds, 2, "x", "small", CHAT)
    with pytest.raises(GatewayError) as caught:
        await limits.book(bounds, 2, "y", "small", CHAT)
    assert caught.value.message == (
        f"Rate limit reached for {who} on concurrent requests: Limit 1, Used 1, Requested 1. "
        "Please try again when another one has ended."
    )
    assert caught.value.headers == {"Retry-After": "1"}


async def test_too_many_in_flight_is_an_overload() -> None:
    limits, refused = admission(in_flight=1, per_key=RateLimitConfig(requests_per_min=60))
    slot = await limits.enter(None, CHAT)
    assert slot is not None
    with pytest.raises(GatewayError) as caught:
        await limits.enter(None, CHAT)
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    assert caught.value.headers["Retry-After"] == "1"
    assert refused == ["gateway_concurrent"]
    await slot.end()
    assert await limits.enter(None, CHAT) is not None


async def test_counts_that_are_away_refuse_what_is_limited() -> None:
    class Away(MemoryLedger):
        async def book(self, *_: object) -> Booking:
            raise LedgerUnavailable("the Redis server cannot be reached")

    limits = Admission(GatewayConfig(), Away(), lambda limit: None)
    with pytest.raises(GatewayError) as caught:
        await limits.book(limits.bounds(api_key(concurrent=5), RouteConfig()), 2, "x", "m", CHAT)
    error = caught.value
    assert (error.status, error.code, error.headers) == (503, "store_unavailable", {"Retry-After": "1"})


async def test_a_request_that_is_counted_uses_one_of_its_key() -> None:
    limits, _ = admission(per_key=RateLimitConfig(requests_per_min=1))
    assert await limits.enter(api_key(), CHAT) is None
    assert await limits.enter(api_key(), CHAT, counted=True) is not None
    with pytest.raises(GatewayError, match="requests per min"):
        await limits.enter(api_key(), CHAT, counted=True)


class Monitor:
    """Stands for that of a request whose body is on its way."""

    def __init__(self) -> None:
        self.reason: GatewayError | None = None

    def stop(self, reason: GatewayError) -> None:
        self.reason = reason


async def test_of_a_full_gateway_the_key_with_most_arriving_bodies_gives_way() -> None:
    limits, _ = admission(in_flight=4)
    slow = [Monitor() for _ in range(4)]
    for monitor in slow:
        await limits.enter(api_key("slow"), CHAT, monitor)  # type: ignore[arg-type]
    other = [Monitor() for _ in range(2)]
    for monitor in other:
        assert await limits.enter(api_key("other"), CHAT, monitor) is not None  # type: ignore[arg-type]
    assert [one.reason is not None for one in slow] == [True, True, False, False]  # the oldest
    with pytest.raises(GatewayError):  # they have as many each
        await limits.enter(api_key("other"), CHAT, Monitor())  # type: ignore[arg-type]
    with pytest.raises(GatewayError):
        await limits.enter(api_key("slow"), CHAT, Monitor())  # type: ignore[arg-type]
    assert not any(one.reason for one in (*slow[2:], *other))


async def test_a_key_does_not_give_way_to_one_that_would_then_have_more() -> None:
    limits, _ = admission(in_flight=3)
    arriving = [Monitor() for _ in range(3)]
    for name, monitor in zip(("slow", "slow", "other"), arriving, strict=True):
        await limits.enter(api_key(name), CHAT, monitor)  # type: ignore[arg-type]
    with pytest.raises(GatewayError, match="serves 3 requests at once"):
        await limits.enter(api_key("other"), CHAT, Monitor())  # type: ignore[arg-type]
    assert not any(one.reason for one in arriving)


async def test_nothing_gives_way_that_has_arrived_or_to_a_key_without_places() -> None:
    limits, _ = admission(in_flight=3)
    monitors = [Monitor() for _ in range(3)]
    slots = [await limits.enter(api_key("slow"), CHAT, one) for one in monitors]  # type: ignore[arg-type]
    busy = api_key("busy", concurrent=1)
    assert await limits.enter(busy, CHAT) is not None
    assert monitors[0].reason is not None
    with pytest.raises(GatewayError, match="concurrent requests: Limit 1"):
        await limits.enter(busy, CHAT)
    for slot in slots:
        assert slot is not None
        slot.arrived()
    with pytest.raises(GatewayError, match="serves 3 requests at once"):
        await limits.enter(api_key("other"), CHAT)
    assert not any(one.reason for one in monitors[1:])


def test_what_a_request_is_booked_with() -> None:
    limits, _ = admission(expected_output_tokens=100)

    def booked(size: int, *parts: object, max_tokens: int | None = None) -> tuple[int, int]:
        message = Message("user", parts)  # type: ignore[arg-type]
        request = ModelRequest(model="m", messages=(message,), sampling=Sampling(max_tokens=max_tokens))
        return limits.estimate(request, size)

    assert booked(400, Text("x")) == (100, 100)
    assert booked(401, Text("x"), max_tokens=7) == (101, 7)
    assert booked(400, Text("x"), max_tokens=100_000) == (100, 100)
    picture = Image("data:" + "x" * 10_000)
    assert booked(10_405, Text("x"), picture) == (185, 100)
    assert booked(20_410, ToolResult("c", (picture,)), picture) == (270, 100)
