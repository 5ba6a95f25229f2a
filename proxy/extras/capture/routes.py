"""`GET /admin/captures` and `GET /admin/captures/{request id or exchange id}` (R18.4). Served only if captures are
stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import orjson
from aiohttp import web

from ...errors import ClientFault, quote
from ...pipeline.sending.delivery import API_KEY, OWNER
from .recorder import CaptureFolder, named

CAPTURES: Final = web.AppKey("toolwire.captures", CaptureFolder)


def add_routes(router: web.UrlDispatcher) -> None:
    """Adds the paths that serve the captures of `app[CAPTURES]`."""
    router.add_get("/admin/captures", _list)
    router.add_get("/admin/captures/{id}", _get)


def visible_owner(request: web.Request) -> str | None:
    """Returns the owner whose captures the client may see; None for all."""
    key = request.get(API_KEY)
    return None if key is None or key.admin else request[OWNER]


async def _list(request: web.Request) -> web.Response:
    captures = request.app[CAPTURES]
    await captures.written()
    rows = await asyncio.to_thread(_rows, captures, visible_owner(request))
    return web.json_response({"object": "list", "data": rows}, dumps=lambda value: orjson.dumps(value).decode())


def _rows(captures: CaptureFolder, owner: str | None) -> list[dict[str, object]]:
    """Returns the list entries, latest first."""
    rows: list[dict[str, object]] = []
    for path in reversed(captures.files(owner)):
        name = named(path)
        try:
            size = path.stat().st_size
            created = int(name.when) // 10**9
            rows.append({"id": name.request_id, "exchange_id": name.exchange_id, "created": created, "bytes": size})
        except FileNotFoundError:
            pass  # another worker has deleted it
    return rows


async def _get(request: web.Request) -> web.Response:
    captures = request.app[CAPTURES]
    ident = request.match_info["id"]
    await captures.finished(ident, visible_owner(request))
    content = await asyncio.to_thread(_content, captures, ident, visible_owner(request))
    if content is None:
        raise ClientFault(
            f"There is no capture of the request {quote(ident)}.",
            code="not_found",
            hint=f"The last {captures.keeps} are kept; see `/admin/captures`.",
        )
    headers = {"Content-Disposition": f'attachment; filename="{ident}.capture.jsonl"'}
    return web.Response(body=content, content_type="application/jsonl", headers=headers)


def _content(captures: CaptureFolder, ident: str, owner: str | None) -> bytes | None:
    path: Path | None = captures.file(ident, owner)
    try:
        return None if path is None else path.read_bytes()
    except FileNotFoundError:
        return None
