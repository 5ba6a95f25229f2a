"""Keeps turns in a Redis or Valkey server, shared by gateways on several machines. Needs the extra `redis`.

Rules of this module:

1. Each turn is one key with a time to live, so the server drops it even if no gateway lives. Two sorted sets hold the
   keys by order of putting (for the bound) and by expiry (for `prune`).
2. A change is one script: the server runs it whole or not at all.
3. How much memory all turns together may take is the server's own setting (`maxmemory`). If it evicts turns by itself,
   they are gone, which is a case that a store has anyway.
4. No message holds an address, a user, a password, or what the server said: it repeats arguments.
5. Times to live are relative, so the clocks of the gateways and of the server need not agree.
"""

from __future__ import annotations

import time
from asyncio import sleep
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ..protocols.turn import Turn
from ..support.redis_client import FAILURES, Commands, connect, described
from .base import ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, check_bounds, decoded, encoded, key_of

TIMEOUT_S: Final = 2.0
PRUNED_AT_ONCE: Final = 500
"""The server does nothing else while a script runs."""
LAYOUT: Final = 1
"""Of the keys, and part of each: gateways with different layouts on one server do not see each other's turns. What a
key holds says its form itself (`proxy.protocols.stored_form`), so it may change under the same layout."""

_TRIM: Final = """
local gone = 0
local over = redis.call('ZCARD', order) - tonumber(most)
if over > 0 then
    local popped = redis.call('ZPOPMIN', order, over)
    for i = 1, #popped, 2 do
        redis.call('UNLINK', popped[i])
        redis.call('ZREM', expiry, popped[i])
        gone = gone + 1
    end
end
"""

_PUT: Final = f"""
local turn, order, expiry, last = unpack(KEYS)
local text, lives_ms, expires, most = unpack(ARGV)
redis.call('SET', turn, text, 'PX', lives_ms)
redis.call('ZADD', order, redis.call('INCR', last), turn)
redis.call('ZADD', expiry, expires, turn)
{_TRIM}
"""

_DELETE: Final = """
local turn, order, expiry = unpack(KEYS)
local now = unpack(ARGV)
local expires = redis.call('ZSCORE', expiry, turn)
redis.call('ZREM', order, turn)
redis.call('ZREM', expiry, turn)
local there = redis.call('UNLINK', turn) == 1
return (there and expires and tonumber(expires) > tonumber(now)) and 1 or 0
"""

_PRUNE: Final = f"""
local order, expiry = unpack(KEYS)
local now, at_once, most = unpack(ARGV)
local expired = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, at_once)
for _, turn in ipairs(expired) do
    redis.call('UNLINK', turn)
    redis.call('ZREM', order, turn)
    redis.call('ZREM', expiry, turn)
end
{_TRIM}
return #expired + gone
"""


class RedisStore(ResponseStore):
    """Turns in the server at `url` (`redis://`, `rediss://` or `unix://`), at most `max_turns`, under keys that begin
    with `prefix`.

    `timeout_s` bounds each wait: for a connection, for its opening, for an answer. `now` gives Unix seconds. If `start`
    fails the store may be used all the same: each call tries again. Raises `ValueError` for a `url` that is none.
    """

    def __init__(
        self,
        url: str,
        max_turns: int = MAX_TURNS,
        *,
        max_turn_bytes: int = MAX_TURN_BYTES,
        prefix: str = "toolwire",
        timeout_s: float = TIMEOUT_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        check_bounds(max_turns, max_turn_bytes)
        self._max_turns = max_turns
        self._max_turn_bytes = max_turn_bytes
        self._now = now
        self._prefix = f"{prefix}:{LAYOUT}"
        self._order = f"{self._prefix}:order"
        self._expiry = f"{self._prefix}:expiry"
        self._last = f"{self._prefix}:last"
        self._closed = False
        self._timeout_s = timeout_s
        self._redis = connect(url, timeout_s)
        self._commands = Commands()
        self._put_script = self._redis.register_script(_PUT)
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
        lives_ms = max(1, int((turn.expires - self._now()) * 1000))
        keys = (self._key(turn.id, turn.owner), self._order, self._expiry, self._last)
        values = (text, lives_ms, repr(turn.expires), self._max_turns)
        await self._call(lambda: self._put_script(keys, values))

    async def get(self, turn_id: str, owner: str) -> Turn | None:
        return await self._read(await self._call(lambda: self._redis.get(self._key(turn_id, owner))))

    async def get_chain(self, turn_id: str, owner: str) -> tuple[Turn, ...] | None:
        last = await self.get(turn_id, owner)
        if last is None:
            return None
        keys = [self._key(ancestor, owner) for ancestor in last.ancestors]
        kept: Sequence[bytes | None] = await self._call(lambda: self._redis.mget(keys)) if keys else ()
        turns: list[Turn] = []
        for text in kept:
            turn = await self._read(text)
            if turn is None:
                return None
            turns.append(turn)
            await sleep(0)  # A long conversation is megabytes: others are served in between.
        return (*turns, last)

    async def delete(self, turn_id: str, owner: str) -> bool:
        keys = (self._key(turn_id, owner), self._order, self._expiry)
        return bool(await self._call(lambda: self._delete_script(keys, (repr(self._now()),))))

    async def prune(self, now: float) -> int:
        keys = (self._order, self._expiry)
        values = (repr(now), PRUNED_AT_ONCE, self._max_turns)
        gone = 0
        while batch := await self._call(lambda: self._prune_script(keys, values)):
            gone += batch
        return gone

    def _key(self, turn_id: str, owner: str) -> str:
        return f"{self._prefix}:turn:{key_of(turn_id, owner)}"

    async def _read(self, text: bytes | None) -> Turn | None:
        turn = None if text is None else await decoded(text)
        return turn if turn and turn.expires > self._now() else None

    async def _call(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """What the server answers. Raises `StoreUnavailable`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            return await self._commands.run(command())
        except FAILURES as error:
            # `from None`: what the server said may repeat keys and texts, and tracebacks are logged.
            raise StoreUnavailable(described(error)) from None
