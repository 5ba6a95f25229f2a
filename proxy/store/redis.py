"""Stores turns in a Redis or Valkey server, a Sentinel service or a cluster, shared by gateways on several machines.
Needs the extra `redis`.

Rules of this module:

1. Each turn is one key with a time to live, so the server removes it even if no gateway runs. Sorted sets hold the keys
   by order of use (for the bounds: of all turns, and of each owner) and by expiry (for `prune`).
2. A change is one script: the server runs it completely or not at all.
3. The memory for all turns is limited by the server's own setting (`maxmemory`). Turns that it evicts are simply
   missing, which every caller handles.
4. Error messages contain no address, user or password, and no text of the server, which may repeat arguments.
5. Times to live are relative, so the clocks of gateways and server need not agree.
6. In a cluster all keys have one hash tag and are on one node, because bounds cover all turns and a script cannot span
   several nodes. Elsewhere keys have no hash tag.
7. Where a master can be replaced, a change counts as made after its replicas know it. An answer that a turn is missing
   counts only if the server is still the master after the answer (docs/adr/0044).
"""

from __future__ import annotations

import time
from asyncio import sleep
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from hashlib import sha1
from typing import Any, Final, TypeVar

from ..protocols.shared.turn import StoredTurn
from ..support.offload import OFFLOAD_BYTES, offload
from ..support.redis_client import FAILURES, PROBE, RedisClient, Script, Server, described
from ..support.redis_url import read_url
from .base import Change, ReadBudget, ResponseStore, StoreUnavailable
from .encoding import MAX_TURN_BYTES, MAX_TURNS, check_bounds, decoded, encoded, key_of, with_expiry

T = TypeVar("T")

TIMEOUT_S: Final = 2.0
PATIENCE_S: Final = 45.0
"""Default of `patience_s`. Sentinels wait for half a minute by default before they begin a failover."""
SWAPS: Final = 200
"""Maximum number of attempts at a change while other writers change the same turn."""
AT_ONCE: Final = 500
"""Maximum number of turns per script, because the server does nothing else while a script runs."""
LAYOUT: Final = 1
"""Version of the key layout, and part of each key: gateways with different layouts do not see each other's turns. The
form of a value is versioned separately (`toolwire.protocols.stored.json_form`)."""

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
"""Lua functions shared by the scripts. Turns are keys from the seventh on, so that a cluster that is moving keys
refuses a script that would find only some of them. `order` and `expiry` contain all turns, `order:OWNER` those of one
owner, `owners` the number of turns of each, `puts` the position of each owner's last put, `whose` the owner of each
turn. The server may evict any of these keys; then the oldest turns of all owners are removed first."""

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
"""Stores a turn if the stored one is still the one that it was made from."""

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
"""Returns the total size of turns, and the turns themselves if the size is within the limit."""


class RedisStore(ResponseStore):
    """Turns in the server at `url` (forms: `toolwire.support.redis_url`): at most `max_turns`, at most
    `max_turns_per_owner` of one owner, under keys that begin with `prefix`.

    `timeout_s` bounds each wait: for a free connection, for connecting, for an answer. `replicas`: number of replicas
    that must know a change; None: all that could take over (with Sentinels or a cluster), else none. With Sentinels or
    a cluster a call waits for a new master for at most `patience_s`, and in a long outage not at all. `now` returns
    Unix seconds. After a failed `start` the store can still be used: each call tries again. Raises `ValueError` for an
    invalid `url`.
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

    async def check(self) -> None:
        await self._call(self._client.run(PROBE, (f"{self._prefix}:probe",), (), replicated=False))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._client.close()

    async def put(self, turn: StoredTurn, *, prolongs: bool = True) -> None:
        await self._put(_PUT, turn, prolongs=prolongs)

    async def change(self, turn_id: str, owner: str, work: Change) -> StoredTurn | None:
        key = self._key(turn_id, owner)
        for _ in range(SWAPS):
            (expires, text), _ = await self._call(self._client.ask(("ZSCORE", self._expiry, key), ("GET", key)))
            there = text is not None and (expires is None or float(expires) > self._now())
            before = await decoded(text) if there else None
            if before is not None and expires is not None:
                before = with_expiry(before, float(expires))
            turn = await offload(text is not None and len(text) > OFFLOAD_BYTES, work, before)
            if turn is None:
                return None
            digest = "" if text is None else sha1(text, usedforsecurity=False).hexdigest()
            if await self._put(_SWAP, turn, digest):
                return turn
        raise StoreUnavailable("other writers keep changing the same entry")

    async def _put(self, script: Script, turn: StoredTurn, *more: str, prolongs: bool = True) -> Any:
        text = await encoded(turn, self._max_turn_bytes)
        now = self._now()
        values = (
            *(text, _lives_ms(turn.expires, now), repr(now), repr(turn.expires)),
            *(self._max_turns, self._max_turns_per_owner, key_of("", turn.owner)),
            *more,
        )
        turns = [self._key(turn_id, turn.owner) for turn_id in (turn.id, *(turn.ancestors if prolongs else ()))]
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
            numbers = await self._call(self._client.run(_PRESENT, keys, (repr(self._now()),), replicated=False))
            there |= {some[number] for number in numbers}
        return there

    async def get(self, turn_id: str, owner: str, budget: ReadBudget | None = None) -> StoredTurn | None:
        (turn,) = await self._read([self._key(turn_id, owner)], budget)
        return turn

    async def get_many(
        self, turn_ids: Sequence[str], owner: str, budget: ReadBudget | None = None
    ) -> tuple[StoredTurn, ...] | None:
        turns: list[StoredTurn] = []
        if not turn_ids:
            return ()
        for turn in await self._read([self._key(turn_id, owner) for turn_id in turn_ids], budget):
            if turn is None:
                return None
            turns.append(turn)
        return tuple(turns)

    async def delete(self, turn_id: str, owner: str) -> bool:
        return bool(await self._change(_DELETE, [self._key(turn_id, owner)], (repr(self._now()),)))

    async def prune(self, now: float) -> int:
        values = (repr(now), AT_ONCE, self._max_turns)
        removed = 0
        while batch := await self._call(self._client.run(_PRUNE, self._keys, values, replicated=False)):
            removed += batch
        return removed

    def _key(self, turn_id: str, owner: str) -> str:
        return f"{self._prefix}:turn:{key_of(turn_id, owner)}"

    async def _change(self, script: Script, turns: Sequence[str], values: Sequence[Any]) -> Any:
        return await self._call(self._client.run(script, (*self._keys, *turns), values, replicated=True))

    async def _read(self, keys: Sequence[str], budget: ReadBudget | None) -> list[StoredTurn | None]:
        """Returns the turns under these keys, up to the first that is missing (None)."""
        while True:
            trial = None if budget is None else ReadBudget(budget.bytes, budget.values)
            turns, server = await self._read_from_server(keys, trial)
            last = turns[-1]
            # Rule 7: a finished turn never changes, so any server's answer is final.
            if (last is not None and last.status != "in_progress") or await self._call(self._client.still(server)):
                if budget is not None and trial is not None:
                    budget.bytes, budget.values = trial.bytes, trial.values
                return turns

    async def _read_from_server(
        self, keys: Sequence[str], budget: ReadBudget | None
    ) -> tuple[list[StoredTurn | None], Server]:
        """Returns the turns according to one server, and that server. Raises `BudgetExceeded`."""
        commands: list[Sequence[Any]] = [("ZSCORE", self._expiry, key) for key in keys]
        if budget is None:
            commands.append(("MGET", *keys))
        else:
            commands.append(("EVAL", _WITHIN, len(keys), *keys, budget.bytes))
        (*expiries, texts), server = await self._call(self._client.ask(*commands))
        if budget is not None:
            size, texts = texts
            budget.take_bytes(size)
        turns: list[StoredTurn | None] = []
        for text, expires in zip(texts, expiries, strict=True):
            turn = None if text is None else await decoded(text, budget)
            if turn is not None and expires is not None:
                turn = with_expiry(turn, float(expires))
            turns.append(turn if turn is not None and turn.expires > self._now() else None)
            if turns[-1] is None:
                break
            await sleep(0)  # a long conversation has megabytes: lets other tasks run
        return turns, server

    async def _call(self, command: Coroutine[Any, Any, T]) -> T:
        """Returns the server's answer. Raises `StoreUnavailable`."""
        if self._closed:
            command.close()
            raise StoreUnavailable("the store is closed")
        try:
            return await command
        except FAILURES as error:
            # `from None`: the server's message may contain keys and texts, and tracebacks are logged.
            raise StoreUnavailable(described(error)) from None


def _lives_ms(expires: float, now: float) -> int:
    """Returns the time to live in milliseconds."""
    return max(1, int((expires - now) * 1000))
