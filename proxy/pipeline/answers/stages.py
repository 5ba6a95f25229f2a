"""The stages that middlewares declare on an answer.

Rules:

1. A stage sees every event of a stream once, in order. Only a `FinishStage` waits, at the last event, and a
   `RewriteStage`.
2. A stage declares what affects the bytes of the answer: whether it changes anything, and whether text may bypass it.
3. An exception in a function of a middleware ends the stream with a `Fault` in the middleware's name, or switches the
   stage off (`on_failure: skip`).

`toolwire.pipeline.answers.stage_chain` runs them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from ...errors import Defect, GatewayError
from ...events import Event, Fault
from ...folding import ending, fold, unfold
from ...model import ModelReply

Batches = AsyncIterator[list[Event]]
"""Events, one list per read."""

Following = AsyncGenerator[list[Event], None]
"""Events in place of the last event of an answer, up to another last one."""

FinishFunction = Callable[[Event], Awaitable[Event | Following]]
RewriteFunction = Callable[[Batches], Batches]
ReplyTest = Callable[[ModelReply], bool]


class StageOwner(Protocol):
    """The middleware that declared a stage: `toolwire.pipeline.chain.middleware.Layer`."""

    skip: bool
    """True if the answer continues without the stage after it has failed."""

    def report(self, error: Exception) -> None:
        """Logs and counts an error of the stage."""

    def defect(self) -> Defect:
        """Returns the error that the client gets if the stage fails."""


class Stage:
    """A step that works on events without waiting. Subclasses define `feed`, and `whole` where that is cheaper.

    `changes`: the stage may change the answer, so its bytes have to be written from events. `only_rewritten`: the stage
    is left out if the answer's bytes are sent unchanged. `ignores_text`: deltas of text and reasoning may bypass the
    stage, or be shown to it late and merged. `holds_calls`: the stage holds calls until they are complete.
    """

    # No ABC: `isinstance` with one is a Python call, and it runs for every read.

    changes: bool = True
    only_rewritten: bool = False
    ignores_text: bool = False
    holds_calls: bool = False
    later: Sequence[Event] = ()
    """Events that `feed` has deferred because they take long. `work` processes them in a thread."""

    def feed(self, events: list[Event]) -> list[Event]:
        """Processes the events of one read and returns the resulting events. Events that are held back must be returned
        with the last event."""
        raise NotImplementedError

    async def work(self) -> list[Event]:
        """Processes the deferred events in a thread and returns the resulting events. Events that arrive meanwhile are
        deferred too."""
        raise NotImplementedError

    def waits_in(self, block: int) -> bool:
        """Returns whether the text of this open block has to go through `feed`, although `ignores_text` is set."""
        return False

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """Returns the result of `feed` for a whole answer; the same object if the stage has nothing to do, None if
        `feed` has to see the events. A call that was found in text keeps its `source` in its `extra` until all stages
        are done. Raises the `GatewayError` with which the stage ends the answer."""
        return None


class Watcher(Stage):
    """A stage that sees every event and changes none. Neighbouring deltas may be shown to it late and merged."""

    changes = False
    ignores_text = True


class WatchStage(Watcher):
    """Shows every event to one function. An exception in it ends the stream with a `Fault`, or stops the watching
    (`on_failure: skip`)."""

    def __init__(
        self, function: Callable[[Event], None], owner: StageOwner | None, unless: ReplyTest | None = None
    ) -> None:
        self._function = function
        self._owner = owner
        self._unless = unless
        self._on = True

    def whole(self, reply: ModelReply) -> ModelReply | None:
        return reply if self._unless is not None and self._unless(reply) else None

    def feed(self, events: list[Event]) -> list[Event]:
        """Shows the events to the function and returns them unchanged."""
        if self._on:
            for index, event in enumerate(events):
                try:
                    self._function(event)
                except Exception as error:
                    self._on = False
                    fault = stage_fault(self._owner, error)
                    return events if fault is None else [*events[:index], fault]
        return events


class FinishStage:
    """Lets one function process the last event. An exception in it, or in its generator, becomes the last event, a
    `Fault`, or is only reported (`on_failure: skip`)."""

    ignores_text: Final = True
    holds_calls: Final = False

    def __init__(
        self,
        function: Callable[[Event], Awaitable[object]],
        owner: StageOwner | None,
        *,
        changes: bool = True,
        unless: ReplyTest | None = None,
    ) -> None:
        self.changes = changes
        self._function = function
        self._owner = owner
        self._unless = unless

    async def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `Stage`. Returns None, so that the reply is processed as events, if the function may replace the last
        event: it may need the events before it."""
        if self._unless is not None and self._unless(reply):
            return reply
        if self.changes:
            return None
        given = await self.finish(ending(reply))
        if isinstance(given, Fault):
            raise given.error
        return reply

    async def finish(self, last: Event) -> Event | Following:
        """Calls the function with the last event. Returns the event, or the generator of events, that replaces it."""
        try:
            given = await self._function(last)
            if not self.changes:
                return last
            if isinstance(given, Event):
                return given
            if isinstance(given, AsyncGenerator):
                return self._following(given, last)
            raise TypeError(
                f"a function for the last event returned {type(given).__name__}, not an event or an async generator"
            )
        except Exception as error:
            return stage_fault(self._owner, error) or last

    async def _following(self, given: Following, last: Event) -> Following:
        async with aclosing(given) as batches:
            try:
                async for batch in batches:
                    yield batch
            except Exception as error:
                yield [stage_fault(self._owner, error) or last]


class RewriteStage:
    """Lets an asynchronous generator process batches of events. An unexpected exception in it ends the stream with a
    `Fault`. Under `on_failure: skip`, if nothing has been yielded, the original events follow. Errors of inner stages
    are raised as they are."""

    changes: Final = True
    ignores_text: Final = False

    def __init__(self, function: RewriteFunction, owner: StageOwner | None, *, holds: bool) -> None:
        self.holds_calls = holds
        self._function = function
        self._owner = owner

    async def rewritten(self, batches: Batches) -> Batches:
        """Runs a stream of events through the middleware's generator."""
        owner = self._owner
        silent = owner is not None and owner.skip
        taken: list[list[Event]] = []  # batches to forward unchanged if the generator fails
        inner: Exception | None = None

        async def noted() -> Batches:
            nonlocal inner
            try:
                async for batch in batches:
                    if silent:
                        taken.append(batch[:])
                    yield batch
            except Exception as error:
                inner = error
                raise

        source = noted()
        given = self._function(source)
        try:
            async for batch in given:
                silent = False
                taken.clear()
                yield batch
            return
        except GatewayError:
            raise
        except Exception as error:
            if owner is None or error is inner:
                raise
            owner.report(error)
            if not silent:
                yield [Fault(owner.defect())]
                return
        finally:
            for generator in (given, source):
                if isinstance(generator, AsyncGenerator):
                    await generator.aclose()
        for batch in taken:
            yield batch
        async for batch in batches:
            yield batch


AnyStage = Stage | FinishStage | RewriteStage


def collected(function: Callable[[ModelReply], Awaitable[ModelReply]]) -> RewriteFunction:
    """Returns a function for `Reply.rewrite` from one that processes the whole answer. A stream is held back until it
    is complete. A stream that ended with a `Fault` is not changed."""

    async def whole(batches: Batches) -> Batches:
        events = [event async for batch in batches for event in batch]
        if events and isinstance(events[-1], Fault):
            yield events
            return
        yield unfold(await function(fold(events)))

    return whole


def stage_fault(owner: StageOwner | None, error: Exception) -> Fault | None:
    """Returns the `Fault` that ends a stream after a stage of `owner` raised `error`, or None if the stream continues
    without the stage. Raises `error` if the stage has no owner."""
    if owner is None:
        raise error
    if isinstance(error, GatewayError):
        return Fault(error)
    owner.report(error)
    return None if owner.skip else Fault(owner.defect())
