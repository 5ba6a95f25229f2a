"""Checks of Redis, if it stores conversations or rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ...config import GatewayConfig, StoreConfig
from ...configuration.mistakes import Mistakes
from ...ratelimit.base import LedgerUnavailable
from ...store.base import StoreUnavailable
from ...store.factory import make_store
from .finding import Finding, ok, problem

LIMIT_S: Final = 3.0
"""Time limit for the check of one Redis server."""
LIMITS: Final = "rate limits"

Check = Callable[[], Coroutine[Any, Any, None]]


def stores(config: GatewayConfig, known: Mistakes) -> Iterator[Finding]:
    """Yields a finding for each Redis, except those with mistakes in the configuration."""
    wanted: dict[str, tuple[str, str]] = {}
    if config.store.kind == "redis" and config.store.url and not known.below("store"):
        wanted["conversations"] = (config.store.url, "Conversations cannot be continued, and are not stored.")
    limits = config.rate_limits
    if limits.store in ("auto", "redis") and limits.url and not known.below("rate_limits"):
        closed = limits.on_store_failure == "closed"
        why = (
            "Requests are refused meanwhile."
            if closed
            else "Each worker counts separately meanwhile, so more requests are allowed."
        )
        wanted[LIMITS] = (limits.url, why)
    for (what, (url, why)), fault in zip(wanted.items(), asyncio.run(_faults(wanted)), strict=True):
        place = urlsplit(url).netloc.rpartition("@")[2] or urlsplit(url).path
        if fault is None:
            yield ok(f"Redis at {place}, with the {what}, answers and can be written.")
        else:
            todo = "Start it, correct `url`, user and password, or raise its `maxmemory` if it is full."
            yield problem(f"Redis at {place}, with the {what}, cannot be used: {fault}.", why, todo)


async def _faults(wanted: Mapping[str, tuple[str, str]]) -> list[str | None]:
    """Returns the results of `_fault` for all, which are asked at once."""
    return await asyncio.gather(*(_fault(what, url) for what, (url, _) in wanted.items()))


def _check_of(what: str, url: str) -> tuple[Check, Check]:
    """Returns what checks that a Redis can be written, with the keys of that use, and what closes the connection."""
    if what == LIMITS:
        from ...ratelimit.redis import RedisLedger

        ledger = RedisLedger(url, timeout_s=LIMIT_S)
        return ledger.start, ledger.close
    store = make_store(StoreConfig(kind="redis", url=url))
    assert store is not None
    return store.check, store.close


async def _fault(what: str, url: str) -> str | None:
    """Returns why a Redis cannot be used; None if it can."""
    try:
        check, close = _check_of(what, url)
    except (ImportError, ValueError) as error:
        return str(error)
    try:
        async with asyncio.timeout(LIMIT_S):
            await check()
    except TimeoutError:
        return f"it does not answer within {LIMIT_S:g} s"
    except (StoreUnavailable, LedgerUnavailable) as error:
        return str(error).rstrip(".")
    finally:
        await close()
    return None
