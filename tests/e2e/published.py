"""Factories for middlewares of packages that are made in code rather than by options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from toolwire import ClientFault
from toolwire.pipeline.chain.middleware import Handler


def forwarded() -> Any:
    """aiohttp-remotes: the client's address, scheme and host as a trusted proxy tells them."""
    from aiohttp_remotes import XForwardedRelaxed

    return XForwardedRelaxed().middleware


def session() -> Any:
    """aiohttp-session, with sessions that are kept in the cookie."""
    from aiohttp_session import SimpleCookieStorage, session_middleware

    return session_middleware(SimpleCookieStorage())


async def counting(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts a session's requests."""
    from aiohttp_session import get_session

    kept = await get_session(request)
    kept["count"] = kept.get("count", 0) + 1
    return await handler(request)


async def catching(request: web.Request, handler: Handler) -> web.StreamResponse:
    """aiohttp-catcher, which goes by the very class of an error."""
    from aiohttp_catcher import Catcher, catch

    catcher = Catcher()
    await catcher.add_scenario(catch(ClientFault).and_stringify().with_status_code(422))
    return await catcher.middleware(request, handler)  # type: ignore[no-any-return]


def checked(most: int) -> Any:
    """webargs: reads the body, and refuses one whose `max_tokens` is more than this."""
    from marshmallow import EXCLUDE
    from webargs import fields, validate
    from webargs.aiohttpparser import AIOHTTPParser

    parser = AIOHTTPParser(unknown=EXCLUDE)
    schema: Mapping[str, Any] = {"max_tokens": fields.Int(load_default=1, validate=validate.Range(max=most))}

    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        known = await parser.parse(schema, request, location="json", unknown=EXCLUDE)
        response = await handler(request)
        response.headers["X-Max-Tokens"] = str(known["max_tokens"])
        return response

    return middleware
