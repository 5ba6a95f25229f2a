"""Checks the final text against the format that the client requested (`response_format`, or `text.format` of
Responses).

The format is sent to backends that support constrained decoding (see forwarding); other answers are checked at their
end. A mismatch is logged and counted, and is an error with `format_miss: error`. An answer that calls a tool, or was
cut off, has no final text. Nothing is declared on an answer that keeps its bytes (R1.6).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from toolwire.errors import ModelFault
from toolwire.events import BlockKind, Delta, Event, Finish, Kind, Open
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.record import AccessField
from toolwire.repair.relaxed_json import read_json
from toolwire.schemas.schema import SchemaProblem, compile_schema

LOG: Final = logging.getLogger("toolwire.output_format")
WANTS: Final = Kind.TEXT | Kind.CALL | Kind.EDGES


class OutputFormat(Middleware):
    """Checks the final text of answers with a requested format."""

    proxied_requests = "stands_aside"
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("format_misses", "The final text did not have the requested format."),
    )

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        return "bad_answers.format_miss" if place.route.options.bad_answers.format_miss == "error" else None

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        form = exchange.received.response_format
        if form is None or form.get("type") not in ("json_object", "json_schema"):
            return
        wire = reply.protocol
        if reply.touched or wire is None or wire.name != exchange.protocol.name:
            reply.map(partial(FinalText(form).see, exchange), WANTS)


class FinalText:
    """Follows one answer and checks its text at the end."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        self._form = form
        self._texts: list[str] = []
        self._prose: set[int] = set()
        self._called = False

    def see(self, exchange: Exchange, event: Event) -> Event:
        """Records the next event and returns it unchanged. Raises `ModelFault` at the end, which ends the answer."""
        match event:
            case Delta() if event.block in self._prose:
                self._texts.append(event.text)
            case Open(kind=BlockKind.TOOL_CALL):
                self._called = True
            case Open(kind=BlockKind.TEXT):
                self._prose.add(event.block)
            case Open():
                self._called = self._called or event.kind is BlockKind.REFUSAL  # a refusal is a valid answer
            case Finish() if not self._called and event.reason not in ("length", "content_filter"):
                self._policy(exchange)
        return event

    def _policy(self, exchange: Exchange) -> None:
        flaw = self.flaw("".join(self._texts))
        if flaw is None:
            return
        exchange.record.count("format_misses")
        if exchange.route.options.bad_answers.format_miss == "error":
            raise ModelFault(
                f"The model's answer does not have the requested format: {flaw}",
                code="output_format_not_satisfied",
            )
        LOG.warning("request %s: the answer does not have the requested format", exchange.id)

    def flaw(self, text: str) -> str | None:
        """Returns why `text` does not fit; None if it does, or if the schema cannot be checked."""
        try:
            value = read_json(text)
        except ValueError as error:
            return f"it is not valid JSON: {error}."
        if self._form["type"] == "json_object":
            return None if isinstance(value, dict) else "it is not a JSON object."
        schema = (self._form.get("json_schema") or {}).get("schema")
        if not isinstance(schema, Mapping):
            return None
        try:
            return compile_schema(schema).check(text)
        except SchemaProblem:
            return None
