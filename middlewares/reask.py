"""Asking the model again after an answer that cannot be given out (R9.8, R9.9), or that tried to call and did not
(R23.4).

Stands directly outside of `arguments`; a chain whose route has `bad_answers.reask: 0` goes without it. A strict
failure, the lack of a demanded call, or a near miss becomes two further messages: what the model wrote, and why it was
not accepted. Every attempt's usage is added up.

Where a failure is possible that is to be asked for again (a strict tool, a demanded call) the answer is held back until
it is judged (`_accepted`). The answer of the model is read to its end before it is judged. What becomes of a failure of
the last attempt is the business of `strict_failure` and `choice_miss`, as ever.

Any other answer passes as it comes (`NearMisses`): the first thing in it that a client sees, be it a thought, decides
that it is the answer. A near miss before that, or in an answer that is not streamed, holds it back from there on; it is
asked for again unless a good call follows, or the answer shows that it only explains (`toolwire.call_policy.near`).

The next answer after a near miss is held to the tools that were tried (R30.4): the model is told to call them, and a
server that enforces choices enforces this one (`ModelRequest.enforced_choice`). The prompt stays as it was.

Several answers to one request (`n`) are one in this: asked for again together, if nothing of any was sent and none has
a good call. What the last attempt gives is the answer; one that the server fails to give leaves the answer before it.
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
from toolwire.events import BlockKind, Delta, Event, Fault, Finish, Opaque, Open, Start, changed
from toolwire.formats.engine.rendering import by_prompt_name
from toolwire.model import Attempt, Message, ModelReply, ModelRequest, Text, ToolChoice, Usage
from toolwire.pipeline.chain.middleware import Ask, ChainPlace, Middleware
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.chain.stages import Batches, Following, Stage
from toolwire.pipeline.exchange.exchange import Exchange
from toolwire.protocols.shared.wire import dump_in_pieces
from toolwire.record import AccessField, CounterSpec
from toolwire.support.offload import OFFLOAD_BYTES, OFFLOAD_MESSAGES, offload, weight
from toolwire.upstream.servers.usage import added

LOG: Final = logging.getLogger("toolwire.reask")

_STRICT: Final = frozenset({"malformed_tool_arguments", "invalid_tool_arguments", "unknown_tool_call"})
_REJECTED: Final = re.compile(r"\[tool call rejected: \w++: ([^\]]*+)(?:\]|\Z)")
"""A strict failure under `strict_failure: assistant_message`. Without a bracket it is read to the end, which keeps the
search linear."""
_COUNTED: Final = ("calls", "strict_failures", "choice_missed")
_REFUSES: Final = frozenset({400, 422, 501})
"""With these a server refuses a request as it is."""
_VISIBLE: Final = (Open, Delta, Opaque, Finish)


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Why an answer is not accepted, in words for the model, and to what the next one is held; None: to what the client
    asked for."""

    why: str
    choice: ToolChoice | None = None


@dataclass(frozen=True, slots=True)
class _Limits:
    """How often it is asked again after each kind of flaw."""

    near: int
    strict: int
    choice: int


_DEFAULT: Final = _Limits(1, 0, 0)


def _limits(options: BadAnswersConfig) -> _Limits:
    """Those of a route."""
    if options.reask is not None:
        return _Limits(options.reask, options.reask, options.reask)
    return _DEFAULT if options.choice_miss != "reask" else _Limits(1, 0, 1)


class Reask(Middleware):
    """Asks again; see the module."""

    proxied_requests = "stands_aside"
    for_tools = True
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField(
            "reasks",
            "Answers that the client did not get because the model was asked again (`bad_answers.reask`).",
            CounterSpec("toolwire_reasks_total", "Answers that were thrown away and asked for again"),
        ),
    )

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        """See `Middleware.idle` (R9.8, R23.4)."""
        return place.route.options.bad_answers.reask == 0

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        """See `Middleware.asked_for_by`."""
        options = place.route.options.bad_answers
        wanted = options.reask or (options.reask is None and options.choice_miss == "reask")
        return "bad_answers.reask" if wanted else None

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        """See `Middleware.needs`. For near misses alone nobody is needed."""
        return {} if cls.asked_for_by(place) is None else {"arguments": "which says what a bad answer is"}

    def review(self, exchange: Exchange, reply: Reply, ask: Ask) -> None:
        """See `Middleware.review`."""
        asked = exchange.request
        if not asked.tools or asked.tool_choice.mode == "none":
            return
        limits = _limits(exchange.route.options.bad_answers)
        trial = _Trial(exchange, asked)
        if (limits.strict or limits.choice) and _may_fail(asked):
            trial.hold(reply)
            reply.rewrite(partial(_accepted, exchange, ask, trial, limits))
        elif limits.near and (exchange.offer is not None or asked.callable_tools):
            near = NearMisses(exchange, ask, trial, limits.near)
            reply.map(near)
            reply.finish(near.finish, unless=lambda answer: not exchange.near)


async def _accepted(
    exchange: Exchange, ask: Ask, trial: _Trial, limits: _Limits, batches: Batches
) -> AsyncGenerator[list[Event], None]:
    """The first answer that is accepted, or the last one, in one batch."""
    spent: Usage | None = None
    again = 0
    while True:
        events = [event async for batch in batches for event in batch]
        spent = added(spent, trial.usage)
        flaw = await offload(len(events) > OFFLOAD_MESSAGES, trial.flaw, events, limits, again)
        if flaw is None:
            break
        again += 1
        trial = _Trial(exchange, await trial.discard(flaw))
        reply = await _answer(exchange, ask, trial.asked)
        if not isinstance(reply, Reply):  # somebody further in has answered in another way
            break
        trial.hold(reply)
        batches = reply.events()
    events = _with_usage(events, spent)
    last = events[-1] if events else None
    # Nothing was sent, so a failure can be what it is for a whole answer: a status.
    yield [last] if isinstance(last, Fault) else events


async def _answer(exchange: Exchange, ask: Ask, asked: ModelRequest) -> StreamResponse:
    """The answer of everything further in. A server that does tools itself, and refuses the enforced choice, is asked
    without it. Raises `GatewayError`."""
    try:
        return await ask(asked)
    except GatewayError as error:
        if not exchange.native or asked.enforced_choice is None or error.upstream_status not in _REFUSES:
            raise
    return await ask(replace(asked, enforced_choice=None))


class NearMisses(Stage):
    """One answer, and after a near miss others in its place, at most `left`; see the module.

    `missed`: the answer is to be asked for again. Then its last event has gone on alone, to `finish`, and all of it is
    held.
    """

    ignores_text = True  # whatever follows what a client sees of the answer

    def __init__(self, exchange: Exchange, ask: Ask, trial: _Trial, left: int) -> None:
        self._exchange = exchange
        self._ask = ask
        self._left = left
        self._whole = not exchange.received.stream
        self._sent = False
        self.missed = False
        self.trial = trial
        self.held: list[Event] = []
        """What the client has not got, of an answer that may be asked for again."""

    def feed(self, events: list[Event]) -> list[Event]:
        """See `Stage`."""
        if self._sent:
            return events
        if not (self._whole or self.held or (self._left and self._exchange.near)):
            self._sent = any(isinstance(event, _VISIBLE) for event in events)
            return events
        self.held += events
        over = isinstance(events[-1], Finish | Fault)
        if not (over or (not self._whole and self.trial.has_call(events))):
            return []
        if self._left and isinstance(events[-1], Finish) and self.trial.near_miss(self.held) is not None:
            self.missed = True
            return events[-1:]
        self._sent = True
        held, self.held = self.held, []
        return held

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `Stage`."""
        return None if self._exchange.near else reply

    async def finish(self, last: Event) -> Event | Following:
        """See `Reply.finish`."""
        return self._again() if self.missed else last

    async def _again(self) -> Following:
        """The answer that takes the place of this one."""
        if isinstance(self.held[0], Start):  # else it has gone out
            yield [self.held.pop(0)]
        attempt, left = self, self._left
        spent: Usage | None = None
        while True:
            held, trial = attempt.held, attempt.trial
            spent = added(spent, _usage(held))
            flaw = trial.near_miss(held)
            assert flaw is not None
            trial = _Trial(self._exchange, await trial.discard(flaw, held))
            left -= 1
            attempt = NearMisses(self._exchange, self._ask, trial, left)
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
                        yield _with_usage(out, added(spent, _usage(out)))
            if begun:
                return
            if not attempt.missed:
                LOG.warning("request %s: the server did not answer again", self._exchange.id)
                yield _with_usage(held, spent)
                return

    async def _events(self, asked: ModelRequest) -> AsyncGenerator[list[Event], None]:
        """Another answer; nothing, or a `Fault`, if there is none."""
        try:
            reply = await _answer(self._exchange, self._ask, asked)
            if isinstance(reply, Reply):
                async with aclosing(reply.events()) as batches:
                    async for batch in batches:
                        yield batch
        except GatewayError as error:
            yield [Fault(error)]


def _with_usage(events: list[Event], usage: Usage | None) -> list[Event]:
    """The events; if they end the answer, with what all attempts have used."""
    last = events[-1] if events else None
    if isinstance(last, Finish):
        return [*events[:-1], changed(last, usage=usage)]
    return events


def _usage(events: list[Event]) -> Usage | None:
    last = events[-1] if events else None
    return last.usage if isinstance(last, Finish) else None


def _may_fail(request: ModelRequest) -> bool:
    return bool(request.callable_tools) and (
        request.tool_choice.forces or any(tool.strict is True for tool in request.tools)
    )


class _Trial:
    """One attempt: what was `asked`, what was counted before it, and what the model wrote in it."""

    def __init__(self, exchange: Exchange, asked: ModelRequest) -> None:
        self.asked = asked
        self._exchange = exchange
        self._room = exchange.route.limits.body_bytes - asked.size
        counts = exchange.record.counts
        self._before = {name: counts.get(name, 0) for name in _COUNTED}
        self._wrote: list[Event] = []
        exchange.near.clear()

    def hold(self, reply: Reply) -> None:
        """Have the answer read to its end before anything changes it. What only looks on, or fills in the usage, comes
        first."""
        reply.rewrite(self._whole, first=True)

    async def _whole(self, batches: Batches) -> AsyncGenerator[list[Event], None]:
        self._wrote = [event async for batch in batches for event in batch]
        yield self._wrote[:]

    @property
    def usage(self) -> Usage | None:
        """The counts of this attempt, as far as they are known."""
        return _usage(self._wrote)

    def flaw(self, events: list[Event], limits: _Limits, again: int) -> _Flaw | None:
        """Why the judged answer is not accepted; None if it is, or if it was asked for `again` often enough."""
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
        if again < limits.choice and self._counted("choice_missed"):
            choice = self.asked.tool_choice
            wanted = f"The tool {choice.name}" if choice.mode == "named" else "A tool"
            return _Flaw(f"{wanted} has to be called.")
        return None

    def near_miss(self, events: Sequence[Event]) -> _Flaw | None:
        """What was wrong with the calls that the model tried in these events, which are all of its answer that the
        client has not got; None if it did not, or made a good one."""
        near = self._exchange.near
        if not near or self.has_call(events):
            return None
        choice = near[0][0]
        misses = [miss for other, miss in near if other == choice]
        if not stand(misses, _visible(events, choice)):
            return None
        return _Flaw(" ".join(dict.fromkeys(miss.why for miss in misses)), self._demanded(misses))

    def _demanded(self, misses: Iterable[NearMiss]) -> ToolChoice | None:
        """The choice that demands the tools that were tried; None where the answer is one of several, of which others
        may be good."""
        if self.asked.sampling.n > 1:
            return None
        known = by_prompt_name(self.asked.callable_tools)
        tried = [known[name].name for miss in misses for name in miss.tools if name in known]
        if len(tried) == 1:
            return ToolChoice("named", tried[0])
        return ToolChoice("required", allowed=tuple(dict.fromkeys(tried))) if tried else None

    def has_call(self, events: Iterable[Event]) -> bool:
        """Whether a call of a tool on offer begins in these events."""
        called = {
            (event.namespace, event.name)
            for event in events
            if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL
        }
        return any((tool.namespace, tool.name) in called for tool in self.asked.callable_tools) if called else False

    def _counted(self, name: str) -> bool:
        return self._exchange.record.counts[name] > self._before[name]

    async def discard(self, flaw: _Flaw, wrote: list[Event] | None = None) -> ModelRequest:
        """The client gets nothing of it: what is asked next, which holds also what the model wrote, and what is wrong
        with it. What the model wrote is left out if the request would be larger than a body may be (R33.2)."""
        counts = self._exchange.record.counts
        counts["calls"] = self._before["calls"]
        counts["reasks"] += 1
        LOG.warning("request %s: asked again: %s", self._exchange.id, flaw.why)
        near = self._exchange.near
        wrote = self._wrote if wrote is None else wrote
        choice = near[0][0] if near else 0
        long = len(wrote) > OFFLOAD_MESSAGES or _chars(wrote) > OFFLOAD_BYTES
        written = await offload(long, _in_words, wrote, choice)
        why = Message(
            "user",
            (Text(f"That answer was not accepted, and nothing of it was used. {flaw.why} {_order(flaw.choice)}"),),
        )
        # Where nothing was escaped in the prompt, whatever stands in the answer is the model's own.
        own = Text(written) if self._exchange.escapes else Attempt(written)
        told = (Message("assistant", (own,)), why) if written and weight(written) <= self._room else (why,)
        grown = self.asked.grown + weight(told)
        return replace(self.asked, messages=(*self.asked.messages, *told), grown=grown, enforced_choice=flaw.choice)


def _order(choice: ToolChoice | None) -> str:
    """What the model is to do next."""
    if choice is None:
        return "Answer again."
    if choice.name is not None:
        return f"Answer again: call the tool {quote(choice.name)}, and write nothing else."
    return f"Answer again: call {', '.join(map(quote, choice.allowed or ()))}, and write nothing else."


def _visible(events: Iterable[Event], choice: int) -> str:
    """The visible text of an answer."""
    texts: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, Open) and event.kind is BlockKind.TEXT and event.choice == choice:
            texts[event.block] = []
        elif isinstance(event, Delta) and event.block in texts:
            texts[event.block].append(event.text)
    return "".join(piece for pieces in texts.values() for piece in pieces)


def _chars(events: Iterable[Event]) -> int:
    """The characters of an answer."""
    return sum(len(event.text) for event in events if isinstance(event, Delta))


def _in_words(events: list[Event], choice: int) -> str:
    """The text of an answer; calls that came as structures stand in it as JSON."""
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
