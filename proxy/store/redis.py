"""Keeps turns in a Redis or Valkey server, shared by gateways on several machines. Needs the extra `redis`.

Rules of this module:

1. Each turn is one key with a time to live, so the server drops it even if no gateway lives. Sorted sets hold the keys
   by order of use (for the bounds: of all, and of each owner) and by expiry (for `prune`).
2. A change is one script: the server runs it whole or not at all.
3. How much memory all turns together may take is the server's own setting (`maxmemory`). If it evicts turns by itself,
   they are gone, which is a case that a store has anyway.
4. No message holds an address, a user, a password, or what the server said: it repeats arguments.
5. Times to live are relative, so the clocks of the gateways and of the server need not agree.
"""

from __future__ import annotations

import time
from asyncio import sleep
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from ..protocols.turn import Turn
from ..support.redis_client import FAILURES, Commands, connect, described
from .base import ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, check_bounds, decoded, encoded, key_of, living_until

TIMEOUT_S: Final = 2.0
AT_ONCE: Final = 500
"""The server does nothing else while a script runs."""
LAYOUT: Final = 1
"""Of the keys, and part of each: gateways with different layouts on one server do not see each other's turns. What a
key holds says its form itself (`proxy.protocols.stored_form`), so it may change under the same layout."""

_DROP: Final = """
local order, expiry, last, owners, puts, whose = unpack(KEYS)
local function of(owner) return order .. ':' .. owner end
local function count(owner)
    local has = redis.call('ZCARD', of(owner))
    if has > 0 then
        redis.call('ZADD', owners, has, owner)
    else
        redis.call('ZREM', owners, owner)
        redis.call('HDEL', puts, owner)
    end
    return has
end
local function forget(turn)
    redis.call('ZREM', order, turn)
    redis.call('ZREM', expiry, turn)
    local owner = redis.call('HGET', whose, turn)
    if owner then
        redis.call('HDEL', whose, turn)
        redis.call('ZREM', of(owner), turn)
        count(owner)
    end
end
local function drop(turn)
    forget(turn)
    return redis.call('UNLINK', turn) == 1
end
local function use(turn, owner)
    local place = redis.call('INCR', last)
    local highest = tonumber(redis.call('ZRANGE', order, -1, -1, 'WITHSCORES')[2] or 0)
    if place <= highest then
        place = highest + 1
        redis.call('SET', last, place)
    end
    redis.call('ZADD', order, place, turn)
    redis.call('ZADD', of(owner), place, turn)
    redis.call('HSET', whose, turn, owner)
    return place
end
local function prolong(turn, owner, now, expires, lives_ms)
    local until_then = redis.call('ZSCORE', expiry, turn)
    if until_then and tonumber(until_then) > tonumber(now) and redis.call('EXISTS', turn) == 1 then
        if tonumber(until_then) < tonumber(expires) then
            redis.call('PEXPIRE', turn, lives_ms)
            redis.call('ZADD', expiry, expires, turn)
        end
        use(turn, owner)
    end
end
local function trim(most)
    local gone = 0
    while redis.call('ZCARD', order) > tonumber(most) do
        local oldest = redis.call('ZRANGE', order, 0, 0)[1]
        local owner = redis.call('HGET', whose, oldest)
        local number = redis.call('ZRANGE', owners, -1, -1, 'WITHSCORES')[2]
        if owner and number and redis.call('ZSCORE', of(owner), oldest) then
            local victim, silent
            for _, each in ipairs(redis.call('ZRANGEBYSCORE', owners, number, number)) do
                local put = tonumber(redis.call('HGET', puts, each) or 0)
                if not silent or put < silent then victim, silent = each, put end
            end
            local his = redis.call('ZRANGE', of(victim), 0, 0)[1]
            if his then oldest = his else redis.call('ZREM', owners, victim) end
        end
        drop(oldest)
        gone = gone + 1
    end
    return gone
end
"""
"""What the scripts share. `order` and `expiry` hold all turns, `order:OWNER` those of one, `owners` how many each has,
`puts` the place of the last put of each, `whose` the owner of each turn. One that a version before put has none, and
goes first. The server may have evicted any of them: then less is known, and the oldest of all go first."""

_PUT: Final = f"""{_DROP}
local text, lives_ms, now, expires, most, most_of_one, owner, turn = unpack(ARGV, 1, 8)
redis.call('SET', turn, text, 'PX', lives_ms)  -- first: a server that is full refuses it, and nothing has changed
forget(turn)
for i = 9, #ARGV do prolong(ARGV[i], owner, now, expires, lives_ms) end
redis.call('ZADD', expiry, expires, turn)
redis.call('HSET', puts, owner, use(turn, owner))
while count(owner) > tonumber(most_of_one) do
    local oldest = redis.call('ZRANGE', of(owner), 0, 0)[1]
    drop(oldest)
    redis.call('ZREM', of(owner), oldest)
end
trim(most)
"""

_PROLONG: Final = f"""{_DROP}
local lives_ms, now, expires, owner = unpack(ARGV, 1, 4)
for i = 5, #ARGV do prolong(ARGV[i], owner, now, expires, lives_ms) end
count(owner)
"""

_PRESENT: Final = f"""{_DROP}
local there = {{}}
for i = 2, #ARGV do
    local expires = redis.call('ZSCORE', expiry, ARGV[i])
    if expires and tonumber(expires) > tonumber(ARGV[1]) and redis.call('EXISTS', ARGV[i]) == 1 then
        there[#there + 1] = i - 2
    end
end
return there
"""

_DELETE: Final = f"""{_DROP}
local now, turn = unpack(ARGV)
local expires = redis.call('ZSCORE', expiry, turn)
return (drop(turn) and expires and tonumber(expires) > tonumber(now)) and 1 or 0
"""

_PRUNE: Final = f"""{_DROP}
local now, at_once, most = unpack(ARGV)
local expired = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, at_once)
for _, turn in ipairs(expired) do drop(turn) end
return #expired + trim(most)
"""


class RedisStore(ResponseStore):
    """Turns in the server at `url` (`redis://`, `rediss://` or `unix://`), at most `max_turns`, and of one owner at
    most `max_turns_per_owner`, under keys that begin with `prefix`.

    `timeout_s` bounds each wait: for a connection, for its opening, for an answer. `now` gives Unix seconds. If `start`
    fails the store may be used all the same: each call tries again. Raises `ValueError` for a `url` that is none.
    """

    shared = True

    def __init__(
        self,
        url: str,
        max_turns: int = MAX_TURNS,
        *,
        max_turns_per_owner: int | None = None,
        max_turn_bytes: int = MAX_TURN_BYTES,
        prefix: str = "toolwire",
        timeout_s: float = TIMEOUT_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        check_bounds(max_turns, max_turns_per_owner, max_turn_bytes)
        self._max_turns = max_turns
        self._max_turns_per_owner = max_turns if max_turns_per_owner is None else max_turns_per_owner
        self._max_turn_bytes = max_turn_bytes
        self._now = now
        self._prefix = f"{prefix}:{LAYOUT}"
        self._expiry = f"{self._prefix}:expiry"
        names = ("order", "expiry", "last", "owners", "puts", "whose")
        self._keys = tuple(f"{self._prefix}:{name}" for name in names)
        self._closed = False
        self._timeout_s = timeout_s
        self._redis = connect(url, timeout_s)
        self._commands = Commands()
        self._put_script = self._redis.register_script(_PUT)
        self._prolong_script = self._redis.register_script(_PROLONG)
        self._present_script = self._redis.register_script(_PRESENT)
        self._delete_script = self._redis.register_script(_DELETE)
        self._prune_script = self._redis.register_script(_PRUNE)

    async def start(self) -> None:
        await self._call(self._redis.ping)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._commands.end(self._timeout_s)
            await self._redis.aclose()

    async def put(self, turn: Turn) -> None:
        text = await encoded(turn, self._max_turn_bytes)
        now = self._now()
        values: tuple[Any, ...] = (
            *(text, _lives_ms(turn.expires, now), repr(now), repr(turn.expires)),
            *(self._max_turns, self._max_turns_per_owner, key_of("", turn.owner), self._key(turn.id, turn.owner)),
            *(self._key(ancestor, turn.owner) for ancestor in turn.ancestors),
        )
        await self._call(lambda: self._put_script(self._keys, values))

    async def prolong(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        now = self._now()
        turns = [self._key(turn_id, owner) for turn_id in turn_ids]
        values: tuple[Any, ...] = (_lives_ms(expires, now), repr(now), repr(expires), key_of("", owner), *turns)
        await self._call(lambda: self._prolong_script(self._keys, values))

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        asked = list(turns)
        there: set[tuple[str, str]] = set()
        for at in range(0, max(1, len(asked)), AT_ONCE):
            some = asked[at : at + AT_ONCE]
            values: tuple[Any, ...] = (repr(self._now()), *(self._key(*each) for each in some))
            there |= {some[number] for number in await self._call(partial(self._present_script, self._keys, values))}
        return there

    async def get(self, turn_id: str, owner: str) -> Turn | None:
        (turn,) = await self._read([self._key(turn_id, owner)])
        return turn

    async def get_chain(self, turn_id: str, owner: str) -> tuple[Turn, ...] | None:
        last = await self.get(turn_id, owner)
        if last is None or not last.ancestors:
            return None if last is None else (last,)
        turns: list[Turn] = []
        for turn in await self._read([self._key(ancestor, owner) for ancestor in last.ancestors]):
            if turn is None:
                return None
            turns.append(turn)
        return (*turns, last)

    async def delete(self, turn_id: str, owner: str) -> bool:
        values = (repr(self._now()), self._key(turn_id, owner))
        return bool(await self._call(lambda: self._delete_script(self._keys, values)))

    async def prune(self, now: float) -> int:
        values = (repr(now), AT_ONCE, self._max_turns)
        gone = 0
        while batch := await self._call(lambda: self._prune_script(self._keys, values)):
            gone += batch
        return gone

    def _key(self, turn_id: str, owner: str) -> str:
        return f"{self._prefix}:turn:{key_of(turn_id, owner)}"

    async def _read(self, keys: Sequence[str]) -> list[Turn | None]:
        """The turns under these keys, up to the first that is not there."""
        asked = self._redis.pipeline(transaction=False)
        asked.mget(keys)
        for key in keys:
            asked.zscore(self._expiry, key)
        texts, *expiries = await self._call(asked.execute)
        turns: list[Turn | None] = []
        for text, expires in zip(texts, expiries, strict=True):
            turn = None if text is None else await decoded(text)
            if turn is not None and expires is not None:
                turn = living_until(turn, expires)
            turns.append(turn if turn is not None and turn.expires > self._now() else None)
            if turns[-1] is None:
                break
            await sleep(0)  # A long conversation is megabytes: others are served in between.
        return turns

    async def _call(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """What the server answers. Raises `StoreUnavailable`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            return await self._commands.run(command())
        except FAILURES as error:
            # `from None`: what the server said may repeat keys and texts, and tracebacks are logged.
            raise StoreUnavailable(described(error)) from None


def _lives_ms(expires: float, now: float) -> int:
    """The time to live, as the server takes it."""
    return max(1, int((expires - now) * 1000))
