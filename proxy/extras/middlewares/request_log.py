"""Logs requests and answers, for debugging (R16.6): what a client sent, and what it got.

Rules:

1. It logs only if it is in a chain: the access line never contains conversations.
2. Secrets are replaced as in captures, and long texts are cut. The rest of the conversation is in the log, readable for
   everyone with access to it.
3. A stream is not held back: its answer is logged at its end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from aiohttp import web

from ...app import CONFIG
from ...events import BlockKind, Delta, Event, Fault, Finish, Open
from ...model import ModelRequest
from ...observability.logs import log_fields
from ...observability.redaction import Redaction, known_secrets, words_of
from ...pipeline.answers.reply import Reply
from ...pipeline.chain.middleware import Middleware
from ...pipeline.exchange.request_state import Exchange
from ...support.offload import is_large, offload

LOG: Final = logging.getLogger("toolwire.requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLogOptions:
    """Options: log requests, log answers, and the longest logged text. `secrets` are regular expressions (RE2) of
    further texts to replace, besides keys."""

    requests: bool = True
    answers: bool = True
    most_chars: int = 2000
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            Redaction(patterns=self.secrets)
        except ValueError as error:
            raise ValueError(f"secrets: {error}") from error


class RequestLog(Middleware):
    """Logs the body as the client sent it, and the answer as it is at this place of the chain: further out as the
    client gets it, further in as the model wrote it."""

    proxied_requests = "runs"
    Options: ClassVar[type] = RequestLogOptions

    def __init__(self, options: RequestLogOptions | None = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._redaction = Redaction(patterns=self.options.secrets)

    async def start(self, app: web.Application) -> None:
        self._redaction = Redaction(known_secrets(app[CONFIG]), self.options.secrets)

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        if self.options.requests and LOG.isEnabledFor(logging.INFO):
            await offload(is_large(request), self._log, exchange, "request", {"body": exchange.body})
        return request

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        if self.options.answers and LOG.isEnabledFor(logging.INFO):
            answer = _LoggedAnswer(self.options.most_chars)
            reply.watch(answer.see)
            exchange.at_end(lambda: self._log(exchange, "answer", answer.fields()))

    def _log(self, exchange: Exchange, what: str, fields: Mapping[str, Any]) -> None:
        words = words_of(exchange.protocol.secrets(exchange.received))
        shown = _cut(self._redaction.value(dict(fields), *words), self.options.most_chars)
        log_fields(LOG, what, {"request_id": exchange.id, **shown})


@dataclass(slots=True)
class _LoggedBlock:
    kind: BlockKind
    name: str | None
    texts: list[str] = field(default_factory=list)
    chars: int = 0


class _LoggedAnswer:
    """The parts of an answer that will be logged."""

    def __init__(self, most_chars: int) -> None:
        self._most = most_chars
        self._blocks: dict[int, _LoggedBlock] = {}
        self._end: dict[str, str] = {}

    def see(self, event: Event) -> None:
        """Records the next event."""
        match event:
            case Open():
                self._blocks[event.block] = _LoggedBlock(event.kind, event.name)
            case Delta():
                block = self._blocks[event.block]
                if block.chars <= self._most:  # one character more than is shown, to detect a cut text
                    block.texts.append(event.text)
                    block.chars += len(event.text)
            case Finish():
                self._end = {"finish": event.reason}
            case Fault():
                self._end = {"error": event.error.code}

    def fields(self) -> dict[str, Any]:
        """Returns the fields of the log line. Without `finish` or `error` the answer did not reach its end."""
        calls = [
            {"name": block.name, "arguments": "".join(block.texts)}
            for block in self._blocks.values()
            if block.kind is BlockKind.TOOL_CALL
        ]
        shown: dict[str, Any] = {}
        for name, kinds in (("text", (BlockKind.TEXT, BlockKind.REFUSAL)), ("reasoning", (BlockKind.REASONING,))):
            text = "".join("".join(block.texts) for block in self._blocks.values() if block.kind in kinds)
            if text:
                shown[name] = text
        if calls:
            shown["calls"] = calls
        return {**shown, **self._end}


def _cut(value: Any, most: int) -> Any:
    """Returns the value with all texts cut to `most` characters."""
    match value:
        case str():
            return value if len(value) <= most else f"{value[:most]}… ({len(value)} characters)"
        case dict():
            return {name: _cut(item, most) for name, item in value.items()}
        case list():
            return [_cut(item, most) for item in value]
        case _:
            return value
