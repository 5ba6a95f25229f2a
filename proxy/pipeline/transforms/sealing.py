"""Reasoning that clients send back: opaque fields of servers, and the text of reasoning, are sealed for clients and
opened again (`toolwire.protocols.shared.opaque_reasoning`, docs/adr/0054).

Rules:

1. `Marking`, the first stage of an answer, notes in `server` which server understands its opaque fields. `Sealing`, the
   last stage, replaces the fields by sealed texts. Stages between them see the fields. A response is stored in
   the form that its client got, so that an item has the same content by its id.
2. A sealed text is bound to the client's key, the route, and the server whose fields it holds, if any.
3. Nothing is sealed between a client and the only server of the same protocol. Its bytes can be sent unchanged.
4. A sealed text that cannot be opened is left out and counted. It never fails a request.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Final

from ...events import BlockKind, Close, Delta, Event, Open
from ...model import EMPTY, Extra, ModelReply, Reasoning, ToolUse, fields_of, merged
from ...protocols.base import ClientSide, ServerSide
from ...protocols.shared.opaque_reasoning import CALL, SERVER, SealedContent, with_server, without_opaque
from ..answers.reply import Reply
from ..answers.stages import Stage
from ..exchange.request_state import Exchange
from ..exchange.route_seals import DROPPED, RouteSeals

LOG: Final = logging.getLogger("toolwire")

BARE: Final = {"data": None}
"""Fields of a reasoning block without text, as `fields` of `ClientSide.carried`."""
Failed = Callable[[], None]
"""Called for each value that is too large to be sealed."""


def seal_reply(reply: Reply, exchange: Exchange, *, stored: bool = False) -> None:
    """Declares sealing on an answer if its client needs it and it is not declared yet. `stored`: the answer is stored
    in the form that its client gets, so its bytes are not sent unchanged."""
    sealed = exchange.route.sealed
    if sealed is None or reply.sealed:
        return
    reply.sealed = True
    client, request = exchange.protocol, exchange.received
    wire = None if reply.wire is None else reply.wire.protocol
    same, several = wire is not None and wire.name == client.name, client.name in sealed.several
    if same and not several and (sealed.servers_seal or client.brings_reasoning):
        return
    wanted = client.asks_opaque and client.wants_opaque(request)
    if same and not several and (not wanted or sealed.servers_seal or client.brings_reasoning):
        return
    if same and not (stored or reply.touched or client.may_hold_opaque(request)):
        return

    def failed() -> None:
        exchange.record.count("reasoning_dropped")
        LOG.warning("request %s: %s: reasoning is too large to be sealed", exchange.id, DROPPED)

    own = not same or several
    reply.map(Sealing(sealed, client, wire, exchange.owner, wanted=wanted, own=own, failed=failed))


class Marking(Stage):
    """Notes which server understands opaque fields. `asked` returns the name of the answering server. `moves`: opaque
    fields of a call move into a reasoning block before it."""

    changes = False
    only_rewritten = True
    ignores_text = True

    def __init__(self, wire: ServerSide, asked: Callable[[], str], *, moves: bool) -> None:
        self._protocol, self._opaque = wire.name, wire.opaque_fields
        self._asked = asked
        self._moves = moves
        self._inserted = 0  # number of inserted blocks, negated

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `Stage`. Nothing is marked in an answer without opaque fields."""
        opaque = any(
            isinstance(part, Reasoning | ToolUse) and not self._opaque.isdisjoint(fields_of(part.extra, self._protocol))
            for choice in reply.choices
            for part in choice.parts
        )
        return None if opaque else reply

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Open) and event.extra and event.kind is BlockKind.TOOL_CALL:
                before, extra = self._of_call(event.extra)
                if before:
                    self._inserted -= 1
                    out.append(Open(self._inserted, BlockKind.REASONING, choice=event.choice, extra=before))
                    out.append(Close(self._inserted))
                event = changed_open(event, extra)
            elif isinstance(event, Open) and event.extra and event.kind is BlockKind.REASONING:
                event = changed_open(event, self._marked(event.extra))
            elif isinstance(event, Close) and event.extra:
                event = Close(event.block, event.status, self._marked(event.extra))
            out.append(event)
        return out

    def _of_call(self, extra: Extra) -> tuple[Extra, Extra]:
        """Returns the `extra` of a reasoning block to insert before a call, and the `extra` of the call."""
        own = self._marked(extra)
        if own is extra or not self._moves:
            return EMPTY, own
        fields = {key: value for key, value in extra[self._protocol].items() if key in self._opaque}
        before = {CALL: {self._protocol: fields}, SERVER: own[SERVER]}
        return before, without_opaque(extra, self._protocol, self._opaque)

    def _marked(self, extra: Extra) -> Extra:
        return with_server(extra, self._protocol, self._opaque, self._asked())


class Sealing(Stage):
    """Replaces opaque fields by sealed texts. `wanted`: the client asks for reasoning as an opaque field. `own`: the
    server's own opaque fields are sealed too."""

    ignores_text = True

    def __init__(
        self,
        sealed: RouteSeals,
        client: ClientSide,
        wire: ServerSide | None,
        owner: str,
        *,
        wanted: bool,
        own: bool,
        failed: Failed,
    ) -> None:
        self._sealed = sealed
        self._wire = wire
        self._protocol = "" if wire is None else wire.name
        self._client = client
        self._owner = owner
        self._wanted = wanted
        self._own = own
        self._failed = failed
        self._holds_text = wanted or not client.brings_reasoning
        self._blocks: dict[int, tuple[Open, list[str]]] = {}

    def waits_in(self, block: int) -> bool:
        """See `Stage`: the text of reasoning is sealed."""
        return self._holds_text and block in self._blocks

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `Stage`. Nothing is sealed in an answer without reasoning and without opaque fields."""
        sealable = any(
            (isinstance(part, Reasoning) and (self._wanted or SERVER in part.extra))
            or (isinstance(part, ToolUse) and SERVER in part.extra)
            for choice in reply.choices
            for part in choice.parts
        )
        return None if sealable else reply

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Open):
                out.append(self._opened(event))
            elif isinstance(event, Delta):
                if self._holds_text and event.block in self._blocks:
                    self._blocks[event.block][1].append(event.text)
                out.append(event)
            elif isinstance(event, Close) and event.block in self._blocks:
                opened, texts = self._blocks.pop(event.block)
                whole = merged(opened.extra, event.extra)
                sealed = self._reasoning(whole, "".join(texts))
                out.append(Close(event.block, event.status, event.extra if sealed is whole else sealed))
            else:
                out.append(event)
        return out

    def _opened(self, event: Open) -> Open:
        if event.kind is BlockKind.REASONING:
            self._blocks[event.block] = event, []
            if self._own and event.extra:
                event = changed_open(event, self._without_opaque(event.extra))
        elif event.kind is BlockKind.TOOL_CALL and SERVER in event.extra:
            event = changed_open(event, self._call(event.extra))
        return event

    def _reasoning(self, extra: Extra, text: str) -> Extra:
        """Returns the `extra` of reasoning for the client."""
        server = extra.get(SERVER, "")
        of_call = CALL in extra
        if (server and not (self._own or of_call)) or not (server or (self._wanted and text)):
            return extra
        fields = fields_of(extra[CALL] if of_call else extra, self._protocol) if server else EMPTY
        carried_text = text if self._holds_text and not of_call else None
        shown = self._without_opaque(extra)
        sealed = self._seal(SealedContent(carried_text, self._protocol, fields, of_call), server)
        if sealed is None:
            return shown
        return merged(shown, {self._client.name: self._client.carried(sealed, BARE if of_call else fields)})

    def _call(self, extra: Extra) -> Extra:
        """Returns the `extra` of a call for the client."""
        if not self._own or self._wire is None or not self._client.opaque_on_calls:
            return extra
        opaque = self._wire.opaque_fields
        fields = {key: value for key, value in fields_of(extra, self._protocol).items() if key in opaque}
        shown = self._without_opaque(extra)
        sealed = self._seal(SealedContent(None, self._protocol, fields, of_call=True), extra[SERVER])
        return shown if sealed is None else merged(shown, {self._client.name: self._client.carried_call(sealed)})

    def _seal(self, carried: SealedContent, server: str) -> str | None:
        sealed = self._sealed.seal(carried, self._owner, server)
        if sealed is None:
            self._failed()
        return sealed

    def _without_opaque(self, extra: Extra) -> Extra:
        wire = self._wire
        return extra if wire is None else without_opaque(extra, wire.name, wire.opaque_fields)


def changed_open(event: Open, extra: Extra) -> Open:
    """Returns the same `Open` with another `extra`."""
    return event if extra is event.extra else dataclasses.replace(event, extra=extra)
