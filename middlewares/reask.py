"""Asks the model again after an answer that cannot be used (R9.8, R9.9), or that attempted a call without success
(R23.4).

It must come directly outside of `arguments`; it is left out of the chain if the route has `bad_answers.reask: 0`. After
a strict failure, a missing required call or a near miss, two messages are added to the request: the model's answer, and
why it was not accepted. The usage of all attempts is added up.

If `bad_answers.reask` is set and a failure is possible that leads to a retry (a strict tool, a required call), the
answer is held back until it is complete and checked (`_accepted`). `strict_failure` and `choice_miss` decide about a
failure of the last attempt.

Other answers are streamed (`RetriedAnswer`): once the client has seen any part, reasoning included, the answer stands.
A near miss before that, or in an answer that is not streamed, holds the rest back; the model is asked again unless a
good call follows or the answer only explains calls (`toolwire.call_policy.near`). With `choice_miss: reask` the text of
an answer that must have a call is held back too, until a call begins.

The answer after a near miss is restricted to the attempted tools (R30.4): the model is told to call them, and a server
that enforces tool choices enforces this one (`ModelRequest.enforced_choice`). The prompt stays unchanged.

Several answers to one request (`n`) are retried together, if no part of any was sent and none has a good call. The
result of the last attempt is the answer; if the server fails then, the answer before it is sent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from aiohttp.web import StreamResponse

from toolwire.call_policy.near import NearMiss, stand
from toolwire.config import BadAnswersConfig
from toolwire.errors import GatewayError, ModelFault, quote
from toolwire.events import BlockKind, Delta, Event, Fault, Finish, Opaque, Open, Start
from toolwire.formats.engine.rendering import by_prompt_name
from toolwire.model import Attempt, Message, ModelReply, ModelRequest, Text, ToolChoice, ToolResult, Usage
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.answers.stages import Batches, Following, Stage
from toolwire.pipeline.chain.middleware import Ask, ChainPlace, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.protocols.shared.wire import dump_in_pieces
from toolwire.record import AccessField, CallDecision, CounterSpec
from toolwire.support.offload import OFFLOAD_BYTES, OFFLOAD_MESSAGES, offload, weight
from toolwire.upstream.servers.usage import add_usage

LOG: Final = logging.getLogger("toolwire.reask")

_STRICT: Final = frozenset({"malformed_tool_arguments", "invalid_tool_arguments", "unknown_tool_call"})
_REJECTED: Final = re.compile(r"\[tool call rejected: \w++: ([^\]]*+)(?:\]|\Z)")
"""A strict failure with `strict_failure: assistant_message`. Without a closing bracket it matches to the end, which
keeps the search linear."""
_COUNTED: Final = ("calls", "strict_failures", "choice_missed")
_REFUSES: Final = frozenset({400, 422, 501})
"""The statuses with which a server refuses a request itself."""
_VISIBLE: Final = (Open, Delta, Opaque, Finish)


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Why an answer is not accepted, as text for the model, and the tool choice for the next attempt; None keeps the
    client's choice."""

    why: str
    choice: ToolChoice | None = None


@dataclass(frozen=True, slots=True)
class _Limits:
    """The number of retries for each kind of flaw."""

    near: int
    strict: int
    choice: int


def _limits(options: BadAnswersConfig) -> _Limits:
    """Returns the limits of a route."""
    if options.reask is not None:
        return _Limits(options.reask, options.reask, options.reask)
    return _Limits(1, 0, 1 if options.choice_miss == "reask" else 0)


class Reask(Middleware):
    """Asks the model again if an answer cannot be used; the module's docstring has the rules."""

    proxied_requests = "stands_aside"
    for_tools = True
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField(
            "reasks",
            "Answers discarded because the model was asked again (`bad_answers.reask`).",
            CounterSpec("toolwire_reasks_total", "Answers that were discarded because the model was asked again"),
        ),
    )

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        """Returns True if the route never asks again (R9.8, R23.4)."""
        return place.route.options.bad_answers.reask == 0

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        """Returns the option that requires this middleware, or None."""
        return "bad_answers.reask" if place.route.options.bad_answers.reask else None

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        """Returns the middlewares that must be further in, with reasons. Without `reask` it needs none."""
        return {} if cls.asked_for_by(place) is None else {"arguments": "which detects bad answers"}

    def review(self, exchange: Exchange, reply: Reply, ask: Ask) -> None:
        asked = exchange.request
        if not asked.tools or asked.tool_choice.mode == "none":
            return
        limits = _limits(exchange.route.options.bad_answers)
        trial = _Trial(exchange, asked)
        if limits.strict and _may_fail(asked):
            trial.hold(reply)
            reply.rewrite(partial(_accepted, exchange, ask, trial, limits), holds=True)
        elif limits.near and (exchange.offer is not None or asked.callable_tools):
            answer = RetriedAnswer(exchange, ask, trial, limits)
            reply.map(answer)
            reply.finish(answer.finish, unless=lambda whole: not answer.suspect)


async def _accepted(
    exchange: Exchange, ask: Ask, trial: _Trial, limits: _Limits, batches: Batches
) -> AsyncGenerator[list[Event], None]:
    """Yields the first accepted answer, or the last one, in one batch."""
    spent: Usage | None = None
    again = 0
    while True:
        events = [event async for batch in batches for event in batch]
        spent = add_usage(spent, trial.usage)
        flaw = await offload(len(events) > OFFLOAD_MESSAGES, trial.flaw, events, limits, again)
        if flaw is None:
            break
        again += 1
        trial = _Trial(exchange, await trial.discard(flaw))
        reply = await _answer(exchange, ask, trial.asked)
        if not isinstance(reply, Reply):  # a middleware further in has answered differently
            break
        trial.hold(reply)
        batches = reply.events()
    events = _with_usage(events, spent)
    last = events[-1] if events else None
    # Nothing was sent yet, so an error can become an HTTP status.
    yield [last] if isinstance(last, Fault) else events


async def _answer(exchange: Exchange, ask: Ask, asked: ModelRequest) -> StreamResponse:
    """Returns the answer of the middlewares further in. If a server that handles tools itself refuses the enforced
    choice, it is called again without it. Raises `GatewayError`."""
    try:
        return await ask(asked)
    except GatewayError as error:
        if exchange.tools_by != "server" or asked.enforced_choice is None or error.upstream_status not in _REFUSES:
            raise
    return await ask(replace(asked, enforced_choice=None))


class RetriedAnswer(Stage):
    """Streams one answer, the attempt number `again`, and the attempts that replace it. The module's docstring has the
    rules.

    `missed`: the model has to be asked again. Then only the last event has been passed on, to `finish`, and the rest is
    held back.
    """

    ignores_text = True  # text of a block that the client knows; a block that is held back never takes the fast path

    def __init__(self, exchange: Exchange, ask: Ask, trial: _Trial, limits: _Limits, again: int = 0) -> None:
        self._exchange = exchange
        self._ask = ask
        self._limits = limits
        self._again = again
        self._whole = not exchange.received.stream
        self._demanded = again < limits.choice and trial.asked.tool_choice.forces
        self._sent = False
        self.missed = False
        self.trial = trial
        self.held: list[Event] = []
        """The events that the client has not got, of an answer that may be discarded."""

    @property
    def suspect(self) -> bool:
        """True if the answer may have to be replaced: it had a near miss, or has no call though one is demanded."""
        return bool(self._exchange.near) or (self._demanded and self.trial.choice_missed)

    def feed(self, events: list[Event]) -> list[Event]:
        """Returns the events to send now; holds back those of an answer that may be retried."""
        if self._sent:
            return events
        if not (self._whole or self.held or self._begins_to_hold(events)):
            self._sent = any(isinstance(event, _VISIBLE) for event in events)
            return events
        self.held += events
        over = isinstance(events[-1], Finish | Fault)
        if not (over or (not self._whole and self.trial.has_call(events))):
            return []
        if isinstance(events[-1], Finish) and self.trial.flaw(self.held, self._limits, self._again) is not None:
            self.missed = True
            return events[-1:]
        self._sent = True
        held, self.held = self.held, []
        return held

    def _begins_to_hold(self, events: list[Event]) -> bool:
        """Returns True if these events must wait: after a near miss, or text or the end where a call is demanded."""
        if self._exchange.near and self._again < self._limits.near:
            return True
        return self._demanded and any(
            isinstance(event, Finish) or (isinstance(event, Open) and event.kind is BlockKind.TEXT) for event in events
        )

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """Returns `reply`, a complete answer; None if it may have to be replaced, so its events have to be read."""
        return None if self.suspect else reply

    async def finish(self, last: Event) -> Event | Following:
        """Returns the last event, or the answers that replace this one."""
        return self._replaced() if self.missed else last

    async def _replaced(self) -> Following:
        """Yields the answer that replaces this one."""
        if isinstance(self.held[0], Start):  # else it has been sent
            yield [self.held.pop(0)]
        attempt, again = self, self._again
        spent: Usage | None = None
        while True:
            held, trial = attempt.held, attempt.trial
            spent = add_usage(spent, _usage(held))
            flaw = trial.flaw(held, self._limits, again)
            assert flaw is not None
            trial = _Trial(self._exchange, await trial.discard(flaw, held))
            again += 1
            attempt = RetriedAnswer(self._exchange, self._ask, trial, self._limits, again)
            begun = False
            async with aclosing(self._events(trial.asked)) as batches:
                async for batch in batches:
                    batch = [event for event in batch if not isinstance(event, Start)]
                    out = attempt.feed(batch) if batch else []
                    if attempt.missed:
                        break
                    if out and isinstance(out[-1], Fault) and not begun and not isinstance(out[-1].error, ModelFault):
                        break
                    if out:
                        begun = True
                        yield _with_usage(out, add_usage(spent, _usage(out)))
            if begun:
                return
            if not attempt.missed:
                LOG.warning("request %s: the server did not answer the retry", self._exchange.id)
                yield _with_usage(held, spent)
                return

    async def _events(self, asked: ModelRequest) -> AsyncGenerator[list[Event], None]:
        """Yields the events of another answer; nothing, or a `Fault`, if the server fails."""
        try:
            reply = await _answer(self._exchange, self._ask, asked)
            if isinstance(reply, Reply):
                async with aclosing(reply.events()) as batches:
                    async for batch in batches:
                        yield batch
        except GatewayError as error:
            yield [Fault(error)]


def _with_usage(events: list[Event], usage: Usage | None) -> list[Event]:
    """Returns the events; if they end the answer, with the usage of all attempts."""
    last = events[-1] if events else None
    if isinstance(last, Finish):
        return [*events[:-1], replace(last, usage=usage)]
    return events


def _usage(events: list[Event]) -> Usage | None:
    last = events[-1] if events else None
    return last.usage if isinstance(last, Finish) else None


def _may_fail(request: ModelRequest) -> bool:
    return bool(request.callable_tools) and (
        request.tool_choice.forces or any(tool.strict is True for tool in request.tools)
    )


class _Trial:
    """One attempt: its request `asked`, the counts before it, and the events of the model."""

    def __init__(self, exchange: Exchange, asked: ModelRequest) -> None:
        self.asked = asked
        self._exchange = exchange
        counts = exchange.record.counts
        self._before = {name: counts.get(name, 0) for name in _COUNTED}
        self._wrote: list[Event] = []
        exchange.near.clear()

    def hold(self, reply: Reply) -> None:
        """Reads the answer to its end before any other stage changes it. Observers and usage counting come first."""
        reply.rewrite(self._whole, first=True)

    async def _whole(self, batches: Batches) -> AsyncGenerator[list[Event], None]:
        self._wrote = [event async for batch in batches for event in batch]
        yield self._wrote[:]

    @property
    def usage(self) -> Usage | None:
        """The usage of this attempt; None if unknown."""
        return _usage(self._wrote)

    @property
    def choice_missed(self) -> bool:
        """True if the attempt is complete and has no call, though one is demanded."""
        return self._counted("choice_missed")

    def flaw(self, events: list[Event], limits: _Limits, again: int) -> _Flaw | None:
        """Returns why the complete answer is not accepted; None if it is accepted, or if it was retried `again` times
        already."""
        last = events[-1] if events else None
        error = last.error if isinstance(last, Fault) else None
        strict = again < limits.strict
        if strict and isinstance(error, ModelFault) and error.code in _STRICT:
            return _Flaw(error.message)
        if strict and self._counted("strict_failures") and error is None:
            text = "".join(event.text for event in events if isinstance(event, Delta))
            return _Flaw(" ".join(_REJECTED.findall(text)))
        if again < limits.near and error is None and (why := self.near_miss(events)) is not None:
            return why
        if again < limits.choice and self.choice_missed and (limits.strict or not any(map(_is_call, events))):
            choice = self.asked.tool_choice
            wanted = f"The tool {choice.name}" if choice.mode == "named" else "A tool"
            return _Flaw(f"{wanted} has to be called.")
        return None

    def near_miss(self, events: Sequence[Event]) -> _Flaw | None:
        """Returns the flaw of the calls that the model attempted in these events, which must be all events that the
        client has not got; None if it attempted none, or made a good call."""
        near = self._exchange.near
        if not near or self.has_call(events):
            return None
        choice = near[0][0]
        misses = [miss for other, miss in near if other == choice and not self._is_copy(miss)]
        if not misses or not stand(misses, _visible(events, choice)):
            return None
        return _Flaw(" ".join(dict.fromkeys(miss.why for miss in misses)), self._demanded(misses))

    def _is_copy(self, miss: NearMiss) -> bool:
        """Returns True if the attempt is in a text of the client, and texts were escaped: the model quotes it."""
        escapes = self._exchange.escapes
        if not escapes or not miss.text:
            return False
        restorer = escapes.restorer()
        text = (restorer.feed(miss.text) + restorer.finish()).strip()
        parts = (part for message in self.asked.messages if message.role != "assistant" for part in message.parts)
        texts = (inner for part in parts for inner in (part.parts if isinstance(part, ToolResult) else (part,)))
        return any(text in inner.text for inner in texts if isinstance(inner, Text))

    def _demanded(self, misses: Iterable[NearMiss]) -> ToolChoice | None:
        """Returns the choice that requires the attempted tools; None if the request wants several answers, because
        others may be good."""
        if self.asked.sampling.n > 1:
            return None
        known = by_prompt_name(self.asked.callable_tools)
        tried = [known[name].name for miss in misses for name in miss.tools if name in known]
        if len(tried) == 1:
            return ToolChoice("named", tried[0])
        return ToolChoice("required", allowed=tuple(dict.fromkeys(tried))) if tried else None

    def has_call(self, events: Iterable[Event]) -> bool:
        """Returns True if a call of a tool on offer begins in these events."""
        called = {(event.namespace, event.name) for event in events if isinstance(event, Open) and _is_call(event)}
        return any((tool.namespace, tool.name) in called for tool in self.asked.callable_tools) if called else False

    def _counted(self, name: str) -> bool:
        return self._exchange.record.counts[name] > self._before[name]

    async def discard(self, flaw: _Flaw, wrote: list[Event] | None = None) -> ModelRequest:
        """Discards the attempt and returns the next request, with the model's answer and why it was not accepted. The
        model's answer is left out if the request would exceed the size of a body (R33.2)."""
        counts = self._exchange.record.counts
        counts["calls"] = self._before["calls"]
        counts["reasks"] += 1
        LOG.warning("request %s: the model is asked again: %s", self._exchange.id, flaw.why)
        self._exchange.record.decided(CallDecision("discarded", flaw.why))
        near = self._exchange.near
        wrote = self._wrote if wrote is None else wrote
        choice = near[0][0] if near else 0
        long = len(wrote) > OFFLOAD_MESSAGES or _chars(wrote) > OFFLOAD_BYTES
        written = await offload(long, _as_text, wrote, choice)
        why = Message(
            "user",
            (Text(f"That answer was not accepted, and nothing of it was used. {flaw.why} {_order(flaw.choice)}"),),
        )
        # If nothing was escaped in the prompt, all markers in the answer are the model's own.
        own = Text(written) if self._exchange.escapes else Attempt(written)
        room = self._exchange.route.limits.body_bytes - self.asked.size
        added = (Message("assistant", (own,)), why) if written and weight(written) <= room else (why,)
        grown = self.asked.grown + weight(added)
        return replace(self.asked, messages=(*self.asked.messages, *added), grown=grown, enforced_choice=flaw.choice)


def _is_call(event: Event) -> bool:
    return isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL


def _order(choice: ToolChoice | None) -> str:
    """Returns the instruction for the next attempt."""
    if choice is None:
        return "Answer again."
    if choice.name is not None:
        return f"Answer again: call the tool {quote(choice.name)}, and write nothing else."
    return f"Answer again: call {', '.join(map(quote, choice.allowed or ()))}, and write nothing else."


def _visible(events: Iterable[Event], choice: int) -> str:
    """Returns the visible text of an answer."""
    texts: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, Open) and event.kind is BlockKind.TEXT and event.choice == choice:
            texts[event.block] = []
        elif isinstance(event, Delta) and event.block in texts:
            texts[event.block].append(event.text)
    return "".join(piece for pieces in texts.values() for piece in pieces)


def _chars(events: Iterable[Event]) -> int:
    """Returns the number of characters of an answer."""
    return sum(len(event.text) for event in events if isinstance(event, Delta))


def _as_text(events: list[Event], choice: int) -> str:
    """Returns the text of an answer, with calls that came as structures written as JSON."""
    names: dict[int, str | None] = {}
    texts: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, Open) and event.kind in (BlockKind.TEXT, BlockKind.TOOL_CALL) and event.choice == choice:
            names[event.block] = event.name if event.kind is BlockKind.TOOL_CALL else None
            texts[event.block] = []
        elif isinstance(event, Delta) and event.block in texts:
            texts[event.block].append(event.text)
    whole = {block: "".join(pieces) for block, pieces in texts.items()}
    written = (
        text if (name := names[block]) is None else dump_in_pieces({"name": name, "arguments": text}).decode()
        for block, text in whole.items()
    )
    return "\n".join(text for text in written if text.strip())
