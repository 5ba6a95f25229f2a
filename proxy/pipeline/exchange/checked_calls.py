"""Calls and results of a conversation: ids that occur once, and results that answer a call (R2.7 to R2.9, C14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...errors import ClientFault, quote
from ...known.past import fold
from ...model import Message, ModelRequest, ToolResult, ToolUse
from ...tolerances import MOVED, NO_CALL, REPEATED
from .exchange import Exchange
from .places import Places


class _Checked(NamedTuple):
    """The result of checking messages. `called` maps call ids to the number of their message, `answered` are the ids
    with a result, `asked` is the number of the last message without results, `moved` counts results that do not
    directly follow their calls, `tolerated` are names of tolerated faults with their call ids."""

    called: Mapping[str, int]
    answered: frozenset[str]
    asked: int
    moved: int
    tolerated: tuple[tuple[str, str], ...]


def check_conversation(exchange: Exchange, request: ModelRequest, places: Places) -> None:
    """Checks calls and results (R2.7 to R2.9, C14). Raises `ClientFault` for a duplicate call id, and in strict
    validation for a result without an earlier call or away from its call; otherwise these are tolerated and counted."""
    strict = exchange.route.options.requests.validation == "strict"

    def tolerate(those: Iterable[tuple[str, str]]) -> None:
        for name, ident in those:
            exchange.record.tolerate(name, f"the call id {quote(ident)}", exchange.id)

    def step(before: _Checked, messages: Sequence[Message], start: int, made: list[None]) -> _Checked:
        tolerated = list(before.tolerated)
        try:
            return _checked(before, messages, start, tolerated, strict, places)
        except ClientFault:
            tolerate(tolerated)
            raise

    key, nothing = ("checked", strict), _Checked({}, frozenset(), -1, 0, ())
    checked = fold(request.past, key, request.messages, nothing, step)[1]
    tolerate(checked.tolerated)
    if checked.moved:
        exchange.record.count("moved_results", checked.moved)
        what = f"{checked.moved} tool results do not stand right after their calls"
        exchange.record.tolerate(MOVED, what, exchange.id)


def _checked(
    before: _Checked,
    messages: Sequence[Message],
    start: int,
    tolerated: list[tuple[str, str]],
    strict: bool,
    places: Places,
) -> _Checked:
    """Checks further messages, the first of which has number `start`. Returns the result for all messages so far.
    Raises `ClientFault`."""
    called, answered = dict(before.called), set(before.answered)
    asked, moved = before.asked, before.moved
    for index, message in enumerate(messages, start):
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        for number, part in enumerate(results):
            if part.call_id not in called:
                if strict:
                    raise _without_call(part.call_id, places, index, number if called else None)
                tolerated.append((NO_CALL, part.call_id))
                continue
            if part.call_id in answered and not strict:
                tolerated.append((REPEATED, part.call_id))
            answered.add(part.call_id)
            if called[part.call_id] != asked:
                moved += 1
                if strict:
                    raise ClientFault(
                        f"The result for {quote(part.call_id)} does not stand right after its call.",
                        code="invalid_message_order",
                        param=places.message(index),
                    )
        if not results:
            asked = index
        for number, call in enumerate(part for part in message.parts if isinstance(part, ToolUse)):
            if call.call_id in called:
                raise ClientFault(
                    f"The call id {quote(call.call_id)} occurs twice.",
                    code="invalid_tool_call_id",
                    param=places.call_id(index, number),
                    hint="Every call of a conversation needs an id of its own.",
                )
            called[call.call_id] = index
    return _Checked(called, frozenset(answered), asked, moved, tuple(tolerated))


def _without_call(call_id: str, places: Places, index: int, number: int | None) -> ClientFault:
    """Returns the error for a result without its call. `number` is its position among the results of its message, None
    if there was no call at all before it."""
    if number is None:
        return ClientFault(
            "A tool result stands without an earlier assistant message that made a call.",
            code="invalid_message_order",
            param=places.message(index),
        )
    return ClientFault(
        f"No earlier call has the id {quote(call_id)}.",
        code="invalid_tool_call_id",
        param=places.result_id(index, number),
        hint="A result needs the id of the call that it answers.",
    )
