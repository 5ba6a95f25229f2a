"""Compaction of conversations that a client requests (R8.15). The model writes a summary, through the chain of the
route like any other answer. The client's protocol writes the summary into the shortened conversation. The gateway
stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from ...ingress.budget import BodyShare
from ...model import ModelRequest
from ...protocols.base import ClientSide
from ...protocols.shared.wire import dump
from ...record import AccessRecord
from ..answers.reply import Reply
from ..exchange.request_state import Exchange
from ..paths.whole import note_usage
from ..sending.delivery import Delivery, Serving, answered_by


class Compacting(Delivery):
    """Serves the path at which clients of one protocol ask for a shortened conversation."""

    _detaches = False

    def __init__(self, serving: Serving, protocol: ClientSide) -> None:
        super().__init__(serving, protocol)
        self._read = self._read_compaction

    def _read_compaction(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Returns the request that asks the model for a summary of the conversation in `body`."""
        self._protocol.read_request(body, raw)  # checked like any other body
        asking = self._protocol.compacting(body)
        return self._protocol.read_request(asking, dump(asking))

    async def _exchange(self, request: web.Request, record: AccessRecord, ident: str, share: BodyShare) -> Exchange:
        exchange = await super()._exchange(request, record, ident, share)
        exchange.body = self._protocol.compacting(exchange.body)
        exchange.aside = True
        exchange.route = answered_by(exchange.route, self._protocol.name, self._answered)
        return exchange

    async def _answered(self, exchange: Exchange, reply: Reply) -> web.Response:
        answer = await reply.whole()
        messages = exchange.received.messages if exchange.conversation is None else exchange.conversation
        body = self._protocol.write_compacted(answer, messages)
        note_usage(exchange, answer.usage, reply)
        headers = {name: value for name, value in reply.headers.items() if name.lower().startswith("x-")}
        return web.Response(body=body, content_type="application/json", headers=headers)
