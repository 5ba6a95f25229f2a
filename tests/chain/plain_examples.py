"""Plain aiohttp middlewares for configurations to name by dotted path."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from toolwire.pipeline.chain.middleware import Handler


async def undecorated(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Marks the answer."""
    response = await handler(request)
    response.headers["X-Undecorated"] = "yes"
    return response


class Check:
    """Has a middleware for a method."""

    async def run(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Marks the answer."""
        response = await handler(request)
        response.headers["X-Check"] = "yes"
        return response


CHECK = Check()


def marking(*, name: str) -> Any:
    """Makes one that marks the answer with a header of this name."""

    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        response.headers[name] = "yes"
        return response

    return middleware


async def shouting(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers in capitals, by a response of its own."""
    response = await handler(request)
    assert isinstance(response, web.Response)
    assert response.text is not None
    answer = json.loads(response.text)
    for item in answer["output"]:
        for part in item["content"]:
            part["text"] = part["text"].upper()
    return web.json_response(answer)
