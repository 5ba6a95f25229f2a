"""Whole answers: from a reply to the bytes of a body.

Rules:

1. An answer that nobody touched goes out in the bytes in which it came, provided they are a JSON object and no error;
   any other is written anew in the client's protocol.
2. Who works on an answer as aiohttp knows it gets a whole one when all of it has come, as a `web.Response`
   (`WholeReply`). It is still a `Reply`: whoever stands further out may map it, or look on.
3. Bytes are made when somebody asks for them, and again if what they were made of has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import orjson
from aiohttp import web

from ..backends.base import EventSource, WireSource
from ..backends.leaks import check_whole
from ..backends.upstream_errors import cleaned
from ..errors import GatewayError
from ..folding import unfold
from ..model import ModelReply, Usage
from ..protocols.base import ServerSide
from ..protocols.noise import without_noise
from ..protocols.wire import BOUNDS, dump_in_pieces
from ..support.bounded_json import loads
from ..support.duplicate_keys import has_duplicates
from ..support.offload import OFFLOAD_BYTES, is_long, offload
from .exchange import Exchange
from .heads import TOKENIZER, USAGE_SOURCE
from .reply import Reply
from .stages import Batches

JSON: Final = "application/json"


async def body_of(exchange: Exchange, reply: Reply) -> bytes:
    """The body in which a whole answer goes out, after all stages. Raises the `GatewayError` with which it broke
    off."""
    if isinstance(reply, WholeReply) and not reply.touched:
        await show(reply, reply.source.said)
        return reply.source.written()
    wire = None if reply.streamed else reply.passes_to(exchange.protocol.name)
    if wire is not None:
        return await checked(reply, wire, await reply.wire_body())
    answer = await _said(exchange, reply)
    if not is_long(answer):
        return exchange.protocol.write_reply(answer, exchange.write_options())
    return await offload(True, exchange.protocol.write_reply, answer, exchange.write_options().for_long())


async def completed(exchange: Exchange, reply: Reply) -> WholeReply:
    """The same reply, when all of its answer has come and gone through the stages. Raises the `GatewayError` with which
    it broke off."""
    if isinstance(reply, WholeReply) and not reply.touched:
        await show(reply, reply.source.said)
        reply.settled()
        return reply
    if (sealed := exchange.route.sealed) is not None:
        sealed.seal_reply(reply, exchange)
    before = reply.source
    wire = None if reply.streamed else reply.passes_to(exchange.protocol.name)
    if wire is not None:
        known = Known(
            exchange, before, body=await checked(reply, wire, await reply.wire_body()), protocol=wire.protocol
        )
        if len(known.written()) > OFFLOAD_BYTES:
            await known.prepare()
    else:
        known = Known(exchange, before, answer=await _said(exchange, reply))
        await known.prepare()
    return WholeReply.become(reply, known)


def taken(exchange: Exchange, response: web.StreamResponse, given: WholeReply) -> web.StreamResponse:
    """What a middleware answers that was given `given`: that reply with another body, or a response of its own.

    If the client's protocol can read it, it is `given` with these bytes, so that those further out see what the client
    gets. Else it is the middleware's own answer, and nobody's reply.
    """
    body = _plain_body(response)
    if body is not None:
        with suppress(GatewayError):
            known = Known(exchange, given.source, answer=exchange.protocol.read_reply(body), body=body)
            if response is not given:
                for name in _aiohttps(given):
                    del vars(given)[name]
                vars(given).update(vars(response))
            return WholeReply.become(given, known)
    return own_response(response) if isinstance(response, WholeReply) else response


def _plain_body(response: web.StreamResponse) -> bytes | None:
    """The bytes of a response that may be a whole answer, as far as its head says."""
    if type(response) not in (web.Response, WholeReply) or response.status >= 400 or response.prepared:
        return None
    if response.content_type != JSON or "Content-Encoding" in response.headers:
        return None
    body = cast(web.Response, response).body
    return bytes(body) if isinstance(body, bytes | bytearray) else None


def own_response(response: web.Response) -> web.Response:
    """An aiohttp response, and nothing else, with all that is in this one."""
    own = web.Response()
    vars(own).update((name, vars(response)[name]) for name in _aiohttps(response))
    return own


def _aiohttps(response: web.Response) -> list[str]:
    """The names of what aiohttp keeps in a response."""
    plain = web.Response()
    return [name for name in vars(response) if hasattr(plain, name)]


async def checked(reply: Reply, wire: WireSource, body: bytes) -> bytes:
    """`body` as it may go out, shown to who looks on. Raises the `GatewayError` that it is, or with which one of them
    ends it."""
    large = len(body) > OFFLOAD_BYTES
    judged = bool(reply.stages)
    body = await offload(True, _checked, wire, body, judged) if large else _checked(wire, body, judged)
    if reply.renaming is not None:
        body = await offload(large, reply.renaming.whole, body)
    if reply.stages:
        if large:
            read = await offload(True, _read, wire, body)
            await show(reply, lambda: _given(read))
        else:
            await show(reply, lambda: wire.protocol.read_reply(body, note=wire.note))
    return body


def _checked(wire: WireSource, body: bytes, judged: bool) -> bytes:
    """The bytes of a whole answer that may go out: those of a server, without items that are none (R29.1), and with
    each key of an object once if the answer is `judged` (R33.6). Raises the `GatewayError` that they are."""
    try:
        value = orjson.loads(body) if len(body) <= OFFLOAD_BYTES else loads(body, BOUNDS)
    except ValueError:
        value = None
    if not isinstance(value, dict) or value.get("error"):
        try:
            wire.protocol.read_reply(body)
        except GatewayError as error:
            raise cleaned(error, private=wire.private) from None
    elif (shown := without_noise(value, wire.protocol.items_in, wire.note)) is not value or (
        judged and has_duplicates(body, value)
    ):
        body = dump_in_pieces(shown)
    if wire.private.secrets:
        check_whole(wire.private, body)
    return body


def _read(wire: WireSource, body: bytes) -> ModelReply | GatewayError:
    try:
        return wire.protocol.read_reply(body, note=wire.note)
    except GatewayError as error:
        return error


def _given(read: ModelReply | GatewayError) -> ModelReply:
    if isinstance(read, GatewayError):
        raise read
    return read


async def show(reply: Reply, said: Callable[[], ModelReply]) -> None:
    """Show what an answer says, whose bytes pass, to who looks on. Raises the `GatewayError` with which one of them
    ends it."""
    chain = reply.chain() if reply.stages else None
    if chain is None:
        return
    try:
        answer = said()
    except GatewayError:
        return  # it may be odd and pass all the same
    await chain.show(answer)


async def _said(exchange: Exchange, reply: Reply) -> ModelReply:
    """What a whole answer says, after its stages."""
    answer = await reply.whole()
    note_usage(exchange, answer.usage, reply)
    return answer


def note_usage(exchange: Exchange, usage: Usage | None, reply: Reply | None) -> None:
    """Put the counts of tokens into the access line, and where they come from also into the head of an unsent
    `reply`."""
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


class Known(EventSource):
    """A whole answer that is there: what was said, or its bytes, or both. Each is made of the other when it is asked
    for.

    `before` is where it came from, and is closed with it. `body` are bytes that are to be sent as they are; `protocol`
    is theirs if they are a model server's.
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
        self._echoes: object = None  # the request that bytes of ours repeat

    async def prepare(self) -> None:
        """Read or write what is missing of a large answer, in a thread: later that is done at once."""
        if self._body is not None and len(self._body) > OFFLOAD_BYTES:
            with suppress(GatewayError):
                await offload(True, self.said)
        elif self._body is None and is_long(self._answer):
            await offload(True, self.written)

    def said(self) -> ModelReply:
        """What the answer says. Raises `BackendFault` if the bytes are no answer."""
        if self._answer is None:
            assert self._body is not None
            self._answer = self._exchange.protocol.read_reply(self._body)
        return self._answer

    def written(self) -> bytes:
        """The bytes of the body."""
        exchange = self._exchange
        if self._body is None or (self._echoes is not None and self._echoes is not exchange.body):
            self._echoes = exchange.body
            answer, options = self.said(), exchange.write_options()
            self._body = exchange.protocol.write_reply(answer, options.for_long() if is_long(answer) else options)
        return self._body

    async def batches(self) -> Batches:
        yield unfold(self.said())

    async def reply(self) -> ModelReply:
        return self.said()

    async def close(self) -> None:
        await self._before.close()


class WholeReply(web.Response, Reply):
    """A whole answer that has come and has not been sent."""

    source: Known

    @property
    def protocol(self) -> ServerSide | None:
        """See `Reply.protocol`; of an answer that somebody wrote anew there is none."""
        return self.source.protocol

    @classmethod
    def become(cls, reply: Reply, known: Known) -> WholeReply:
        """`reply` itself, from now on with this answer: whoever knows it, or put something into its head, finds it
        there."""
        reply.source, reply.wire, reply.streamed = known, None, False
        reply.settled()
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
        """Somebody has set the body or the text."""
        return "_body" in vars(self)

    @property
    def _body(self) -> Any:  # where aiohttp's `body`, `text`, `content_length` and all that sends find the body
        return vars(self)["_body"] if self.replaced else self.source.written()

    @_body.setter
    def _body(self, body: Any) -> None:
        vars(self)["_body"] = body
