"""Whole answers: from a reply to the bytes of a body.

Rules:

1. An answer that no stage changes keeps its bytes, if they are a JSON object and no error. Any other answer is written
   in the client's protocol.
2. A middleware that works on an aiohttp response gets a whole answer when it is complete, as a `web.Response`
   (`WholeReply`). It is still a `Reply`: outer middlewares may map or watch it.
3. Bytes are made when they are needed, and again if their source has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import orjson
from aiohttp import web

from ...errors import GatewayError
from ...fastparse import has_duplicates
from ...folding import unfold
from ...model import ModelReply, Usage
from ...protocols.base import ServerSide
from ...protocols.shared.ends import UNUSUAL_END
from ...protocols.shared.noise import without_noise
from ...protocols.shared.server_errors import error_in
from ...protocols.shared.wire import BOUNDS, dump_in_pieces, load
from ...support.bounded_json import loads
from ...support.offload import OFFLOAD_BYTES, is_long, offload
from ...upstream.servers.base import EventSource, WireSource
from ...upstream.servers.leak_detection import check_whole
from ...upstream.servers.upstream_errors import clean_error
from ..answers.reply import Reply
from ..answers.stages import Batches
from ..exchange.request_state import Exchange
from ..exchange.response_head import TOKENIZER, USAGE_SOURCE
from ..transforms.sealing import seal_reply

JSON: Final = "application/json"

_STATUSES: Final = (None, "completed")
"""Statuses of an answer that is no error. One that is `incomplete` may be one, by its reason."""
_SUSPICIOUS: Final = tuple(
    (text, re.compile(pattern))
    for text, pattern in (
        (b'"error"', rb'"error" ?: ?[{"]'),
        (b'"name"', rb'"name" ?: ?(?:null|"")'),
        (b'_reason"', UNUSUAL_END),
    )
)
"""Patterns of an error in a choice, a call without a name, and a finish reason that may mean an error, each with its
first characters, which are faster to search for."""


async def body_of(exchange: Exchange, reply: Reply) -> bytes:
    """Returns the body of a whole answer after all stages. Raises the `GatewayError` with which it broke off."""
    if isinstance(reply, WholeReply) and not reply.touched:
        await show_to_stages(reply, reply.source.answer)
        return reply.source.written()
    wire = None if reply.streamed else reply.unchanged_source(exchange.protocol.name)
    if wire is not None:
        return await check_body(reply, wire, await reply.wire_body())
    answer = await _staged_answer(exchange, reply)
    if not is_long(answer):
        return exchange.protocol.write_reply(answer, exchange.write_options())
    return await offload(True, exchange.protocol.write_reply, answer, exchange.write_options().for_large_answer())


async def complete_reply(exchange: Exchange, reply: Reply) -> WholeReply:
    """Reads the answer and runs it through the stages. Returns the same reply, which then holds the result. Raises the
    `GatewayError` with which the answer broke off."""
    if isinstance(reply, WholeReply) and not reply.touched:
        await show_to_stages(reply, reply.source.answer)
        reply.clear_stages()
        return reply
    seal_reply(reply, exchange)
    before = reply.source
    wire = None if reply.streamed else reply.unchanged_source(exchange.protocol.name)
    if wire is not None:
        known = WholeAnswerSource(
            exchange, before, body=await check_body(reply, wire, await reply.wire_body()), protocol=wire.protocol
        )
        if len(known.written()) > OFFLOAD_BYTES:
            await known.prepare()
    else:
        known = WholeAnswerSource(exchange, before, answer=await _staged_answer(exchange, reply))
        await known.prepare()
    return WholeReply.become(reply, known)


def reply_for_response(exchange: Exchange, response: web.StreamResponse, given: WholeReply) -> web.StreamResponse:
    """Returns the reply for the response of a middleware that got `given`.

    If the client's protocol can read the response's body, that is `given` with this body, so that outer middlewares see
    what the client gets. Otherwise the response is a plain one and no reply.
    """
    body = _plain_body(response)
    if body is not None:
        with suppress(GatewayError):
            known = WholeAnswerSource(exchange, given.source, answer=exchange.protocol.read_reply(body), body=body)
            if response is not given:
                for name in _aiohttp_names(given):
                    del vars(given)[name]
                vars(given).update(vars(response))
            return WholeReply.become(given, known)
    return own_response(response) if isinstance(response, WholeReply) else response


def _plain_body(response: web.StreamResponse) -> bytes | None:
    """Returns the bytes of a response whose head allows it to be a whole answer; else None."""
    if type(response) not in (web.Response, WholeReply) or response.status >= 400 or response.prepared:
        return None
    if response.content_type != JSON or "Content-Encoding" in response.headers:
        return None
    body = cast(web.Response, response).body
    return bytes(body) if isinstance(body, bytes | bytearray) else None


def own_response(response: web.Response) -> web.Response:
    """Returns a plain aiohttp response with the same head and body."""
    own = web.Response()
    vars(own).update((name, vars(response)[name]) for name in _aiohttp_names(response))
    return own


def _aiohttp_names(response: web.Response) -> list[str]:
    """Returns the names of the attributes that aiohttp sets on a response."""
    plain = web.Response()
    return [name for name in vars(response) if hasattr(plain, name)]


async def check_body(reply: Reply, wire: WireSource, body: bytes) -> bytes:
    """Checks an unchanged body, shows it to watching stages and returns the bytes to send. Raises the `GatewayError` in
    the body, or that with which a stage ends the answer."""
    large = len(body) > OFFLOAD_BYTES
    judged = bool(reply.stages)
    body = await offload(True, _checked, wire, body, judged) if large else _checked(wire, body, judged)
    if reply.renaming is not None:
        body = await offload(large, reply.renaming.whole, body)
    if reply.stages:
        if large:
            read = await offload(True, _read, wire, body)
            await show_to_stages(reply, lambda: _given(read))
        else:
            await show_to_stages(reply, lambda: wire.protocol.read_reply(body, note=wire.note))
    return body


def _checked(wire: WireSource, body: bytes, judged: bool) -> bytes:
    """Returns the bytes of a whole answer without items that are neither answer nor error (R29.1), and as JSON that
    strict clients read (R6.5). `judged`: duplicate keys are removed too (R33.6). Raises the `GatewayError` in the body,
    or one for a secret in it."""
    is_strict = True
    try:
        value = orjson.loads(body) if len(body) <= OFFLOAD_BYTES else loads(body, BOUNDS)
    except ValueError:
        value, is_strict = _read_leniently(body), False
    if not isinstance(value, dict) or _is_suspicious(wire.protocol, value, body):
        try:
            wire.protocol.read_reply(body)
        except GatewayError as error:
            raise clean_error(error, private=wire.private) from None
    if isinstance(value, dict):
        items = wire.protocol.items_in
        shown = without_noise(value, items, wire.note) if items else value
        mended = not (is_strict or wire.protocol.any_frames)
        if mended or shown is not value or (judged and has_duplicates(body, value)):
            body = dump_in_pieces(shown)
    if wire.private.secrets:
        check_whole(wire.private, body)
    return body


def _read_leniently(body: bytes) -> Any:
    """Returns the value of a body that is not strict JSON: not in UTF-8, with a byte order mark, NaN or half
    characters. None if it is no JSON at all."""
    try:
        return load(body)
    except ValueError:
        return None


def _is_suspicious(protocol: ServerSide, value: Mapping[str, Any], body: bytes) -> bool:
    """Returns True for a whole answer that may hold an error, or nothing but calls without a name (R29.2). Such an
    answer is read, and fails as one that is converted."""
    if value.get("error"):
        return True
    for text, pattern in _SUSPICIOUS:  # no generator, which would cost as much as the searches
        at = body.find(text)
        if at >= 0 and pattern.search(body, at):
            return True
    if protocol.any_frames:
        return "choices" not in value and error_in(value) is not None
    items = value.get(protocol.items_in or "choices")
    return not items or type(items) is not list or value.get("status") not in _STATUSES


def _read(wire: WireSource, body: bytes) -> ModelReply | GatewayError:
    try:
        return wire.protocol.read_reply(body, note=wire.note)
    except GatewayError as error:
        return error


def _given(read: ModelReply | GatewayError) -> ModelReply:
    if isinstance(read, GatewayError):
        raise read
    return read


async def show_to_stages(reply: Reply, said: Callable[[], ModelReply]) -> None:
    """Shows an answer whose bytes are sent unchanged to watching stages. Raises the `GatewayError` with which a stage
    ends it."""
    chain = reply.chain() if reply.stages else None
    if chain is None:
        return
    try:
        answer = said()
    except GatewayError:
        return  # an unreadable answer is sent too
    await chain.show(answer)


async def _staged_answer(exchange: Exchange, reply: Reply) -> ModelReply:
    """Returns a whole answer after its stages."""
    answer = await reply.whole()
    note_usage(exchange, answer.usage, reply)
    return answer


def note_usage(exchange: Exchange, usage: Usage | None, reply: Reply | None) -> None:
    """Writes the token counts into the access line, and their source also into the head of an unsent `reply`."""
    if usage is None or usage.missing == "both":
        return
    notes = exchange.record.notes
    if usage.input_tokens is not None:
        notes["input_tokens"] = usage.input_tokens
    if usage.output_tokens is not None:
        notes["output_tokens"] = usage.output_tokens
    source = "estimate" if usage.estimated else "backend"
    notes["usage_source"] = source
    if usage.estimated:
        notes["usage_tokenizer"] = usage.tokenizer or "bytes"
    if reply is not None:
        reply.headers[USAGE_SOURCE] = source
        if usage.estimated:
            reply.headers[TOKENIZER] = usage.tokenizer or "bytes"


class WholeAnswerSource(EventSource):
    """A complete answer: as a reply, as bytes, or both. Each form is made from the other when it is needed.

    `before` is the source of the answer and is closed with it. `body` are bytes to send unchanged; `protocol` is their
    protocol if they are a model server's.
    """

    def __init__(
        self,
        exchange: Exchange,
        before: EventSource,
        *,
        answer: ModelReply | None = None,
        body: bytes | None = None,
        protocol: ServerSide | None = None,
    ) -> None:
        self.protocol = protocol
        self._exchange = exchange
        self._before = before
        self._answer = answer
        self._body = body
        self._echoes: object = None  # the request's body that `_body` echoes

    async def prepare(self) -> None:
        """Reads or writes the missing form of a large answer in a thread."""
        if self._body is not None and len(self._body) > OFFLOAD_BYTES:
            with suppress(GatewayError):
                await offload(True, self.answer)
        elif self._body is None and is_long(self._answer):
            await offload(True, self.written)

    def answer(self) -> ModelReply:
        """Returns the answer. Raises `BackendFault` if the bytes are no answer."""
        if self._answer is None:
            assert self._body is not None
            self._answer = self._exchange.protocol.read_reply(self._body)
        return self._answer

    def written(self) -> bytes:
        """Returns the bytes of the body."""
        exchange = self._exchange
        if self._body is None or (self._echoes is not None and self._echoes is not exchange.body):
            self._echoes = exchange.body
            answer, options = self.answer(), exchange.write_options()
            self._body = exchange.protocol.write_reply(
                answer, options.for_large_answer() if is_long(answer) else options
            )
        return self._body

    async def batches(self) -> Batches:
        yield unfold(self.answer())

    async def reply(self) -> ModelReply:
        return self.answer()

    async def close(self) -> None:
        await self._before.close()


class WholeReply(web.Response, Reply):
    """A complete answer that has not been sent."""

    source: WholeAnswerSource

    @property
    def protocol(self) -> ServerSide | None:
        """See `Reply.protocol`; None for an answer that the gateway has written."""
        return self.source.protocol

    @classmethod
    def become(cls, reply: Reply, known: WholeAnswerSource) -> WholeReply:
        """Turns `reply` itself into a `WholeReply` with this answer, so that code with a reference to it, or that has
        set headers on it, sees the answer."""
        reply.source, reply.wire, reply.streamed = known, None, False
        reply.clear_stages()
        vars(reply).pop("_body", None)
        reply.__class__ = cls
        for name, value in vars(web.Response(content_type=JSON)).items():
            if name == "_headers":
                reply.headers.setdefault("Content-Type", JSON)
            elif name != "_body":
                vars(reply).setdefault(name, value)
        assert isinstance(reply, cls)
        return reply

    @property
    def replaced(self) -> bool:
        """True if a middleware has set the body or the text."""
        return "_body" in vars(self)

    @property
    def _body(self) -> Any:  # read by aiohttp's `body`, `text`, `content_length` and sending
        return vars(self)["_body"] if self.replaced else self.source.written()

    @_body.setter
    def _body(self, body: Any) -> None:
        vars(self)["_body"] = body
