"""Counts in a Redis or Valkey server, shared by gateways on several machines. Needs the extra `redis`.

Rules of this module:

1. A decision is one script and one round trip. The server runs a script completely or not at all.
2. Times are the server's, so the clocks of the gateways need not agree.
3. Every key has a time to live: a bucket expires when it would be empty, leases when the last one has ended.
4. All keys have one hash tag, so they are on one node of a cluster: a script cannot span several.
5. Replicas are not waited for: a failed master loses only the use of its last moments. Nothing is retried here;
   `failover` counts without the server until it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from ..support.redis_client import FAILURES, PROBE, RedisClient, Script, described
from ..support.redis_url import read_url
from .base import LEASE_S, ROUNDING, WINDOW_S, Booking, Bound, Change, Ledger, LedgerUnavailable

LAYOUT: Final = 1
"""Part of each key, so that gateways with different layouts do not share counts."""
SPARE_MS: Final = 60_000
"""Extra lifetime of a bucket, because the server may have been stopped for a while."""
RENEWED_AT_ONCE: Final = 500
"""Maximum number of leases per script, because the server does nothing else while a script runs."""

# ARGV[1]: a time that replaces the server's, in tests.
_NOW: Final = """
local time = redis.call('TIME')
local now = tonumber(ARGV[1]) or time[1] + time[2] / 1000000
"""

_BUCKET: Final = f"""
{_NOW}
local function level_of(key, most)
    local kept = redis.call('HMGET', key, 'level', 'at')
    if not kept[1] then return 0 end
    return math.max(0, kept[1] - math.max(0, now - kept[2]) * most / {WINDOW_S:g})
end
local function set_level(key, most, level)
    if level <= 0 then
        redis.call('UNLINK', key)
    else
        redis.call('HSET', key, 'level', string.format('%.17g', level), 'at', string.format('%.6f', now))
        redis.call('PEXPIRE', key, math.ceil(level / most * {WINDOW_S * 1000:g}) + {SPARE_MS})
    end
end
"""

# KEYS: one for each bound. ARGV: time, lease, then kind, most and cost of each bound.
_BOOK: Final = Script(f"""
{_BUCKET}
local lease, used, fits = ARGV[2], {{}}, true
for i, key in ipairs(KEYS) do
    local kind, most, cost = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
    if kind == 'concurrent' then
        redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.6f', now))
        used[i] = redis.call('ZCARD', key)
    else
        used[i] = level_of(key, most)
    end
    fits = fits and used[i] + cost - most <= {ROUNDING!r}
end
for i, key in ipairs(KEYS) do
    if fits then
        local kind, most, cost = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
        used[i] = used[i] + cost
        if kind == 'concurrent' then
            redis.call('ZADD', key, string.format('%.6f', now + {LEASE_S:g}), lease)
            redis.call('PEXPIRE', key, {LEASE_S * 1000:.0f})
        else
            set_level(key, most, used[i])
        end
    end
    used[i] = string.format('%.9f', used[i])
end
return {{fits and 1 or 0, used}}
""")

# KEYS: one for each change. ARGV: time, lease, then kind, most and change of each.
_SETTLE: Final = Script(f"""
{_BUCKET}
for i, key in ipairs(KEYS) do
    local kind, most, change = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
    if kind == 'concurrent' then
        redis.call('ZREM', key, ARGV[2])
    else
        set_level(key, most, level_of(key, most) + change)
    end
end
""")

# KEYS: accounts. ARGV: time, and the lease on each.
_RENEW: Final = Script(f"""
{_NOW}
local expires = string.format('%.6f', now + {LEASE_S:g})
for i, key in ipairs(KEYS) do
    redis.call('ZADD', key, expires, ARGV[i + 1])
    redis.call('PEXPIRE', key, {LEASE_S * 1000:.0f})
end
""")


class RedisLedger(Ledger):
    """Counts in the server at `url`, or in the master of its Sentinels or cluster. A call takes at most `timeout_s`.
    `now` returns seconds (default: the server's time). Raises `ValueError` for an invalid `url`."""

    def __init__(
        self, url: str, *, timeout_s: float, prefix: str = "toolwire", now: Callable[[], float | str] = str
    ) -> None:
        self._timeout_s = timeout_s
        self._now = now
        self._prefix = f"{{{prefix}:limits}}:{LAYOUT}"
        self._closed = False
        self._client = RedisClient(read_url(url), timeout_s, key=self._prefix)

    async def start(self) -> None:
        await self._run(PROBE, (f"{self._prefix}:probe",), ())

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._client.close()

    async def book(self, bounds: Sequence[Bound], tokens: int, lease: str) -> Booking:
        keys = [self._key(bound) for bound in bounds]
        values = [value for bound in bounds for value in (bound.kind, bound.most, bound.cost(tokens))]
        granted, used = await self._run(_BOOK, keys, [self._now(), lease, *values])
        return Booking(bool(granted), tuple(map(float, used)))

    async def settle(self, made: Sequence[Change], lease: str) -> None:
        changed = [(bound, change) for bound, change in made if change or bound.kind == "concurrent"]
        if changed:
            keys = [self._key(bound) for bound, _ in changed]
            values = [value for bound, change in changed for value in (bound.kind, bound.most, change)]
            await self._run(_SETTLE, keys, [self._now(), lease, *values])

    async def renew(self, held: Mapping[str, Sequence[Bound]]) -> None:
        leases = [
            (self._key(bound), lease)
            for lease, bounds in held.items()
            for bound in bounds
            if bound.kind == "concurrent"
        ]
        for start in range(0, len(leases), RENEWED_AT_ONCE):
            keys, values = zip(*leases[start : start + RENEWED_AT_ONCE], strict=True)
            await self._run(_RENEW, keys, (self._now(), *values))

    def _key(self, bound: Bound) -> str:
        return f"{self._prefix}:{bound.name}"

    async def _run(self, script: Script, keys: Sequence[str], values: Sequence[Any]) -> Any:
        # The client's own timeout applies to each of several waits.
        return await self._call(self._client.run(script, keys, values, replicated=False, limit_s=self._timeout_s))

    async def _call(self, command: Coroutine[Any, Any, Any]) -> Any:
        """Returns the server's answer. Raises `LedgerUnavailable`."""
        if self._closed:
            command.close()
            raise LedgerUnavailable("the counts are closed")
        try:
            return await command
        except FAILURES as error:
            # `from None`: the server's message may contain keys, and tracebacks are logged.
            raise LedgerUnavailable(described(error)) from None
