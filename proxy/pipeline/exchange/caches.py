"""The application's budget for its caches."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from ...support.cache import CacheBudget

CACHES: Final = web.AppKey("toolwire.caches", CacheBudget)
