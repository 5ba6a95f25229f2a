"""Checks of Redis, if it stores conversations or rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from ...config import GatewayConfig, StoreConfig
from ...configuration.mistakes import Mistakes
from ...store.base import StoreUnavailable
from ...store.factory import make_store
from .finding import Finding, ok, problem

LIMIT_S: Final = 3.0
"""Time limit for the check of one Redis server."""


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
        wanted["rate limits"] = (limits.url, why)
    for (what, (url, why)), fault in zip(wanted.items(), asyncio.run(_faults(wanted)), strict=True):
        place = urlsplit(url).netloc.rpartition("@")[2] or urlsplit(url).path
        if fault is None:
            yield ok(f"Redis at {place}, with the {what}, answers.")
        else:
            todo = "Start it, or correct `url`, user and password."
            yield problem(f"Redis at {place}, with the {what}, cannot be used: {fault}.", why, todo)


async def _faults(wanted: Mapping[str, tuple[str, str]]) -> list[str | None]:
    """Returns the results of `_fault` for all, which are asked at once."""
    return await asyncio.gather(*(_fault(url) for url, _ in wanted.values()))


async def _fault(url: str) -> str | None:
    """Returns why a Redis cannot be used; None if it can."""
    try:
        store = make_store(StoreConfig(kind="redis", url=url))
    except ValueError as error:
        return str(error)
    assert store is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            await store.start()
    except TimeoutError:
        return f"it does not answer within {LIMIT_S:g} s"
    except StoreUnavailable as error:
        return str(error).rstrip(".")
    finally:
        await store.close()
    return None
