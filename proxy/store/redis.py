"""Keeps turns in a Redis or Valkey server, alone, watched over by Sentinels or in a cluster, shared by gateways on
several machines. Needs the extra `redis`.

Rules of this module:

1. Each turn is one key with a time to live, so the server drops it even if no gateway lives. Sorted sets hold the keys
   by order of use (for the bounds: of all, and of each owner) and by expiry (for `prune`).
2. A change is one script: the server runs it whole or not at all.
3. How much memory all turns together may take is the server's own setting (`maxmemory`). If it evicts turns by itself,
   they are gone, which is a case that a store has anyway.
4. No message holds an address, a user, a password, or what the server said: it repeats arguments.
5. Times to live are relative, so the clocks of the gateways and of the server need not agree.
6. In a cluster all keys have one hash tag, so they live on one node: the bounds are over all turns, and a script cannot
   reach over several. Elsewhere they are what they were before there was a tag.
7. Where a master may be replaced, a change has been made when its replicas know it, and that something is not there is
   believed of whoever is the master even after it has said so (docs/adr/0044).
"""

from __future__ import annotations

import time
from asyncio import sleep
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from hashlib import sha1
from typing import Any, Final, TypeVar

from ..protocols.turn import Turn
from ..support.offload import OFFLOAD_BYTES, offload
from ..support.redis_client import FAILURES, RedisClient, Script, Server, described
from ..support.redis_url import read_url
from .base import Change, ReadBudget, ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, check_bounds, decoded, encoded, key_of, living_until

T = TypeVar("T")

TIMEOUT_S: Final = 2.0
PATIENCE_S: Final = 45.0
"""Sentinels wait for half a minute before they begin, unless they are told otherwise."""
SWAPS: Final = 200
"""Attempts at a change while other writers change the same turn."""
AT_ONCE: Final = 500
"""The server does nothing else while a script runs."""
LAYOUT: Final = 1
"""Of the keys, and part of each: gateways with different layouts on one server do not see each other's turns. What a
key holds says its form itself (`proxy.protocols.stored_form`), so it may change under the same layout."""

_DROP: Final = """
local order, expiry, last, owners, puts, whose = unpack(KEYS, 1, 6)
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
"""What the scripts share. The turns that they are about are keys from the seventh on, so a cluster that is moving keys
elsewhere refuses a script that would find only some of them. `order` and `expiry` hold all turns, `order:OWNER` those
of one, `owners` how many each has, `puts` the place of the last put of each, `whose` the owner of each turn. The
server may have evicted any of them: then less is known, and the oldest of all go first."""

_PUTTING: Final = f"""{_DROP}
local text, lives_ms, now, expires, most, most_of_one, owner = unpack(ARGV)
local turn = KEYS[7]
redis.call('SET', turn, text, 'PX', lives_ms)  -- first: a server that is full refuses it, and nothing has changed
forget(turn)
for i = 8, #KEYS do prolong(KEYS[i], owner, now, expires, lives_ms) end
redis.call('ZADD', expiry, expires, turn)
redis.call('HSET', puts, owner, use(turn, owner))
while count(owner) > tonumber(most_of_one) do
    local oldest = redis.call('ZRANGE', of(owner), 0, 0)[1]
    drop(oldest)
    redis.call('ZREM', of(owner), oldest)
end
trim(most)
"""

_PUT: Final = Script(_PUTTING)

_SWAP: Final = Script(f"""
local before = redis.call('GET', KEYS[7])
if (before and redis.sha1hex(before) or '') ~= ARGV[8] then return 0 end
{_PUTTING}
return 1
""")
"""Puts a turn if what stands there is still what it was made of."""

_PROLONG: Final = Script(f"""{_DROP}
local lives_ms, now, expires, owner = unpack(ARGV)
for i = 7, #KEYS do prolong(KEYS[i], owner, now, expires, lives_ms) end
count(owner)
""")

_PRESENT: Final = Script(f"""{_DROP}
local there = {{}}
for i = 7, #KEYS do
    local expires = redis.call('ZSCORE', expiry, KEYS[i])
    if expires and tonumber(expires) > tonumber(ARGV[1]) and redis.call('EXISTS', KEYS[i]) == 1 then
        there[#there + 1] = i - 7
    end
end
return there
""")

_DELETE: Final = Script(f"""{_DROP}
local now, turn = ARGV[1], KEYS[7]
local expires = redis.call('ZSCORE', expiry, turn)
return (drop(turn) and expires and tonumber(expires) > tonumber(now)) and 1 or 0
""")

_PRUNE: Final = Script(f"""{_DROP}
local now, at_once, most = unpack(ARGV)
local expired = redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, at_once)
for _, turn in ipairs(expired) do drop(turn) end
return #expired + trim(most)
""")


_WITHIN: Final = """
local size = 0
for _, turn in ipairs(KEYS) do size = size + redis.call('STRLEN', turn) end
local texts = {}
if size <= tonumber(ARGV[1]) then
    for i, turn in ipairs(KEYS) do texts[i] = redis.call('GET', turn) end
end
return {size, texts}
"""
"""Turns with their bytes together; without the turns if that is more than may be read."""


class RedisStore(ResponseStore):
    """Turns in the server at `url` (`proxy.support.redis_url` has its forms), at most `max_turns`, and of one owner at
    most `max_turns_per_owner`, under keys that begin with `prefix`.

    `timeout_s` bounds each wait: for a connection, for its opening, for an answer. `replicas` must know a change before
    it has been made; None: all that could take over, where Sentinels or a cluster know them, else none. There a call
    waits for a new master for `patience_s` at most, in a long outage not at all. `now` gives Unix seconds. If `start`
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
        replicas: int | None = None,
        patience_s: float = PATIENCE_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        check_bounds(max_turns, max_turns_per_owner, max_turn_bytes)
        self._max_turns = max_turns
        self._max_turns_per_owner = max_turns if max_turns_per_owner is None else max_turns_per_owner
        self._max_turn_bytes = max_turn_bytes
        self._now = now
        where = read_url(url)
        self._prefix = f"{{{prefix}}}:{LAYOUT}" if where.kind == "cluster" else f"{prefix}:{LAYOUT}"
        self._expiry = f"{self._prefix}:expiry"
        names = ("order", "expiry", "last", "owners", "puts", "whose")
        self._keys = tuple(f"{self._prefix}:{name}" for name in names)
        self._closed = False
        self._client = RedisClient(where, timeout_s, key=self._prefix, patience_s=patience_s, replicas=replicas)

    async def start(self) -> None:
        await self._call(self._client.ping())

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._client.close()

    async def put(self, turn: Turn) -> None:
        await self._put(_PUT, turn)

    async def change(self, turn_id: str, owner: str, work: Change) -> Turn | None:
        key = self._key(turn_id, owner)
        for _ in range(SWAPS):
            (expires, text), _ = await self._call(self._client.ask(("ZSCORE", self._expiry, key), ("GET", key)))
            there = text is not None and (expires is None or float(expires) > self._now())
            before = await decoded(text) if there else None
            if before is not None and expires is not None:
                before = living_until(before, float(expires))
            turn = await offload(text is not None and len(text) > OFFLOAD_BYTES, work, before)
            if turn is None:
                return None
            digest = "" if text is None else sha1(text, usedforsecurity=False).hexdigest()
            if await self._put(_SWAP, turn, digest):
                return turn
        raise StoreUnavailable("others change the same entry all the time")

    async def _put(self, script: Script, turn: Turn, *more: str) -> Any:
        text = await encoded(turn, self._max_turn_bytes)
        now = self._now()
        values = (
            *(text, _lives_ms(turn.expires, now), repr(now), repr(turn.expires)),
            *(self._max_turns, self._max_turns_per_owner, key_of("", turn.owner)),
            *more,
        )
        turns = [self._key(turn_id, turn.owner) for turn_id in (turn.id, *turn.ancestors)]
        return await self._change(script, turns, values)

    async def prolong(self, turn_ids: Iterable[str], owner: str, expires: float) -> None:
        now = self._now()
        values = (_lives_ms(expires, now), repr(now), repr(expires), key_of("", owner))
        await self._change(_PROLONG, [self._key(turn_id, owner) for turn_id in turn_ids], values)

    async def present(self, turns: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        asked = list(turns)
        there: set[tuple[str, str]] = set()
        for at in range(0, max(1, len(asked)), AT_ONCE):
            some = asked[at : at + AT_ONCE]
            keys = (*self._keys, *(self._key(*each) for each in some))
            found = await self._call(self._client.run(_PRESENT, keys, (repr(self._now()),), held=False))
            there |= {some[number] for number in found}
        return there

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> Turn | None:
        (turn,) = await self._read([self._key(turn_id, owner)], budget)
        return turn

    async def get_chain(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> tuple[Turn, ...] | None:
        last = await self.get(turn_id, owner, budget)
        if last is None or not last.ancestors:
            return None if last is None else (last,)
        turns: list[Turn] = []
        for turn in await self._read([self._key(ancestor, owner) for ancestor in last.ancestors], budget):
            if turn is None:
                return None
            turns.append(turn)
        return (*turns, last)

    async def delete(self, turn_id: str, owner: str) -> bool:
        return bool(await self._change(_DELETE, [self._key(turn_id, owner)], (repr(self._now()),)))

    async def prune(self, now: float) -> int:
        values = (repr(now), AT_ONCE, self._max_turns)
        gone = 0
        while batch := await self._call(self._client.run(_PRUNE, self._keys, values, held=False)):
            gone += batch
        return gone

    def _key(self, turn_id: str, owner: str) -> str:
        return f"{self._prefix}:turn:{key_of(turn_id, owner)}"

    async def _change(self, script: Script, turns: Sequence[str], values: Sequence[Any]) -> Any:
        return await self._call(self._client.run(script, (*self._keys, *turns), values, held=True))

    async def _read(self, keys: Sequence[str], budget: ReadBudget | None) -> list[Turn | None]:
        """The turns under these keys, up to the first that is not there."""
        while True:
            trial = None if budget is None else ReadBudget(budget.bytes, budget.values)
            turns, server = await self._said(keys, trial)
            last = turns[-1]
            # What has come to its end stays as it is, so whoever has it may say so: rule 7.
            if (last is not None and last.status != "in_progress") or await self._call(self._client.still(server)):
                if budget is not None and trial is not None:
                    budget.bytes, budget.values = trial.bytes, trial.values
                return turns

    async def _said(self, keys: Sequence[str], budget: ReadBudget | None) -> tuple[list[Turn | None], Server]:
        """The same as one server says it. Raises `BudgetExceeded`."""
        commands: list[Sequence[Any]] = [("ZSCORE", self._expiry, key) for key in keys]
        if budget is None:
            commands.append(("MGET", *keys))
        else:
            commands.append(("EVAL", _WITHIN, len(keys), *keys, budget.bytes))
        (*expiries, texts), server = await self._call(self._client.ask(*commands))
        if budget is not None:
            size, texts = texts
            budget.take_bytes(size)
        turns: list[Turn | None] = []
        for text, expires in zip(texts, expiries, strict=True):
            turn = None if text is None else await decoded(text, budget)
            if turn is not None and expires is not None:
                turn = living_until(turn, float(expires))
            turns.append(turn if turn is not None and turn.expires > self._now() else None)
            if turns[-1] is None:
                break
            await sleep(0)  # A long conversation is megabytes: others are served in between.
        return turns, server

    async def _call(self, command: Coroutine[Any, Any, T]) -> T:
        """What the server answers. Raises `StoreUnavailable`."""
        if self._closed:
            command.close()
            raise StoreUnavailable("the store is closed")
        try:
            return await command
        except FAILURES as error:
            # `from None`: what the server said may repeat keys and texts, and tracebacks are logged.
            raise StoreUnavailable(described(error)) from None


def _lives_ms(expires: float, now: float) -> int:
    """The time to live, as the server takes it."""
    return max(1, int((expires - now) * 1000))
