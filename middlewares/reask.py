"""Asking the model again after an answer that cannot be given out (R9.8, R9.9).

Stands directly outside of `arguments`; a chain whose route has neither `reask` nor `choice_miss: reask` goes without it. A strict
failure, or the lack of a demanded call, becomes two further messages: what the model wrote, and why it was not accepted.

Where such a failure is possible (a strict tool, a demanded call) the answer is held back until it is judged; any other passes as
it comes. The answer of the model is read to its end before it is judged, so that every attempt's usage is known and added up. What
becomes of a failure of the last attempt is the business of `strict_failure` and `choice_miss`, as ever.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Final

from aiohttp import web

from proxy.errors import ModelFault
from proxy.events import BlockKind, Delta, Event, Fault, Finish, Open
from proxy.exchange import EXCHANGE, Exchange
from proxy.middleware import Handler, Middleware
from proxy.model import Message, ModelRequest, Text, Usage
from proxy.protocols.wire import dump
from proxy.reply import Batches, Reply
from proxy.stages import Settle, Watch
from proxy.usage import added

LOG: Final = logging.getLogger("toolwire.reask")

_STRICT: Final = frozenset({"malformed_tool_arguments", "invalid_tool_arguments", "unknown_tool_call"})
_REJECTED: Final = re.compile(r"\[tool call rejected: \w+: (.*?)\]", re.DOTALL)
"""What a strict failure is under `strict_failure: assistant_message`."""


class Reask(Middleware):
    """Asks again; see the module."""

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = request[EXCHANGE]
        asked = exchange.request
        trial = _Trial(exchange)
        reply = await handler(request)
        if isinstance(reply, Reply) and _may_fail(asked):
            trial.hold(reply)
            reply.rewrite(partial(_accepted, request, handler, asked, trial))
        return reply


async def _accepted(
    request: web.Request, handler: Handler, asked: ModelRequest, trial: _Trial, batches: Batches
) -> AsyncGenerator[list[Event], None]:
    """The first answer that is accepted, or the last one, in one batch."""
    exchange = request[EXCHANGE]
    restored = exchange.request
    options = exchange.route.options
    left: int = options.reask or (1 if options.choice_miss == "reask" else 0)
    spent: Usage | None = None
    while True:
        events = [event async for batch in batches for event in batch]
        spent = added(spent, trial.usage)
        flaw = trial.flaw(events, strict=options.reask > 0) if left else None
        if flaw is None:
            break
        left -= 1
        trial.discard()
        LOG.warning("request %s: asked again: %s", exchange.id, flaw)
        asked = replace(asked, messages=(*asked.messages, *trial.as_messages(flaw)))
        exchange.request = asked
        trial = _Trial(exchange)
        try:
            reply = await handler(request)
        finally:
            exchange.request = restored
        if not isinstance(reply, Reply):  # somebody further in has answered in another way
            break
        trial.hold(reply)
        batches = reply.events()
    last = events[-1] if events else None
    if isinstance(last, Finish):
        events[-1] = Finish(last.reason, spent, last.others, last.extra)
    # Nothing was sent, so a failure can be what it is for a whole answer: a status.
    yield [last] if isinstance(last, Fault) else events


def _may_fail(request: ModelRequest) -> bool:
    return bool(request.callable_tools) and (
        request.tool_choice.forces or any(tool.strict is True for tool in request.tools)
    )


class _Trial:
    """One attempt: what was counted before it, and what the model wrote in it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._choice = exchange.request.tool_choice
        self._before = dict(exchange.record.counts)
        self._wrote: list[Event] = []

    def hold(self, reply: Reply) -> None:
        """Have the answer read to its end before anything changes it. What only looks on, or fills in the usage, comes first."""
        self._reply = reply
        at = next(
            (index for index, stage in enumerate(reply.stages) if not isinstance(stage, Watch | Settle)),
            len(reply.stages),
        )
        reply.stages.insert(at, self._whole)

    async def _whole(self, batches: Batches) -> AsyncGenerator[list[Event], None]:
        self._wrote = [event async for batch in batches for event in batch]
        yield self._wrote[:]

    @property
    def usage(self) -> Usage | None:
        """The counts of this attempt, as far as they are known."""
        last = self._wrote[-1] if self._wrote else None
        return last.usage if isinstance(last, Finish) else None

    def flaw(self, events: list[Event], *, strict: bool) -> str | None:
        """Why the judged answer is not accepted, in words for the model; None if it is. `strict`: strict failures count."""
        last = events[-1] if events else None
        error = last.error if isinstance(last, Fault) else None
        if strict and isinstance(error, ModelFault) and error.code in _STRICT:
            return error.message
        if strict and self._counted("strict_failures") and error is None:
            text = "".join(event.text for event in events if isinstance(event, Delta))
            return " ".join(_REJECTED.findall(text))
        if self._counted("choice_missed"):
            choice = self._choice
            return f"The tool {choice.name} has to be called." if choice.mode == "named" else "A tool has to be called."
        return None

    def _counted(self, name: str) -> bool:
        return self._exchange.record.counts[name] > self._before.get(name, 0)

    def discard(self) -> None:
        """The client gets nothing of it."""
        counts = self._exchange.record.counts
        counts["calls"] = self._before.get("calls", 0)
        counts["reasks"] += 1

    def as_messages(self, flaw: str) -> tuple[Message, ...]:
        """What the model wrote, and what is wrong with it."""
        written = _in_words(self._wrote)
        why = Message(
            "user", (Text(f"That answer was not accepted, and nothing of it was used. {flaw} Answer again."),)
        )
        return (Message("assistant", (Text(written),)), why) if written else (why,)


def _in_words(events: list[Event]) -> str:
    """The text of an answer; calls that came as structures stand in it as JSON."""
    names: dict[int, str | None] = {}
    texts: dict[int, str] = {}
    for event in events:
        if isinstance(event, Open) and event.kind in (BlockKind.TEXT, BlockKind.TOOL_CALL) and not event.choice:
            names[event.block] = event.name if event.kind is BlockKind.TOOL_CALL else None
            texts[event.block] = ""
        elif isinstance(event, Delta) and event.block in texts:
            texts[event.block] += event.text
    written = (
        text if (name := names[block]) is None else dump({"name": name, "arguments": text}).decode()
        for block, text in texts.items()
    )
    return "\n".join(text for text in written if text.strip())
