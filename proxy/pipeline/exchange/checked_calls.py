"""Checks calls and results of a conversation: call ids are unique, and results answer calls (R2.7 to R2.9, C14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...errors import ClientFault, quote
from ...known.past import fold_items
from ...model import Message, ModelRequest, ToolResult, ToolUse
from ...tolerances import MOVED, NO_CALL, REPEATED
from .field_positions import FieldPositions
from .request_state import Exchange


class _Checked(NamedTuple):
    """The state after checking some messages."""

    called: Mapping[str, int]
    """Call id -> index of the message that made the call."""
    answered: frozenset[str]
    """Call ids that have a result."""
    asked: int
    """Index of the last message without results."""
    moved: int
    """Number of results that are not directly after their calls."""
    tolerated: tuple[tuple[str, str], ...]
    """Tolerated mistakes: the name of the tolerance and the call id."""


def check_conversation(exchange: Exchange, request: ModelRequest, places: FieldPositions) -> None:
    """Checks R2.7 to R2.9 and C14: ids are unique, and every result answers an earlier call, directly after it or
    counted as moved. Raises `ClientFault`."""
    strict = exchange.route.options.requests.validation == "strict"

    def tolerate(tolerated: Iterable[tuple[str, str]]) -> None:
        for name, ident in tolerated:
            exchange.record.tolerate(name, f"the call id {quote(ident)}", exchange.id)

    def step(before: _Checked, messages: Sequence[Message], start: int, made: list[None]) -> _Checked:
        tolerated = list(before.tolerated)
        try:
            return _checked(before, messages, start, tolerated, strict, places)
        except ClientFault:
            tolerate(tolerated)
            raise

    key, initial = ("checked", strict), _Checked({}, frozenset(), -1, 0, ())
    checked = fold_items(request.past, key, request.messages, initial, step)[1]
    tolerate(checked.tolerated)
    if checked.moved:
        exchange.record.count("moved_results", checked.moved)
        detail = f"{checked.moved} tool results do not stand right after their calls"
        exchange.record.tolerate(MOVED, detail, exchange.id)


def _checked(
    before: _Checked,
    messages: Sequence[Message],
    start: int,
    tolerated: list[tuple[str, str]],
    strict: bool,
    places: FieldPositions,
) -> _Checked:
    """Returns the state after these messages, the first of which has the index `start`. Adds tolerated mistakes to
    `tolerated`. Raises `ClientFault`."""
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


def _without_call(call_id: str, places: FieldPositions, index: int, number: int | None) -> ClientFault:
    """Returns the fault for a result without its call: the `number`-th of a message, or None if no call was made
    before."""
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
