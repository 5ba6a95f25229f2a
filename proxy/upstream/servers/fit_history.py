"""Repairs the history of calls and results for servers with native tools, which require that every call has an object
of arguments and exactly one result, right after it (R28.4).

Rules: see `toolwire.upstream.servers.adapt`. No result of a tool is lost: one that answers no call becomes text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Final, NamedTuple

from ...known.past import Past, fold_items, reuse_equal
from ...model import Message, Part, Text, ToolResult, ToolUse, replace
from ...protocols.shared.mending import is_json_object, object_of
from ...tolerances import ARGUMENTS, MOVED, NO_CALL, REPEATED, UNANSWERED

Tell = Callable[[str, str], None]
"""Reports a tolerance: its name, and a text about what was changed."""

NO_RESULT: Final = "[no result of this call is in the conversation]"
_SHOWN: Final = "[result of a tool call that is not in the conversation]\n"
_AGAIN: Final = "[another result of the same tool call]\n"


def with_paired_results(messages: tuple[Message, ...], tell: Tell, past: Past | None) -> tuple[Message, ...]:
    """Returns the messages with every result right after its call, or the same object if nothing has to change."""
    if past is not None and fold_items(past, "settled", messages, _Settled(), _check_more)[1] == _Settled():
        return messages
    with_objects = _with_objects(messages, tell)
    if with_objects is messages and _in_order(messages):
        return messages
    return reuse_equal(past, "ordered", with_objects if _in_order(with_objects) else _ordered(with_objects, tell))


def _with_objects(messages: tuple[Message, ...], tell: Tell) -> tuple[Message, ...]:
    """Returns the messages with an object as the arguments of every call."""
    out = []
    for message in messages:
        if message.role == "assistant":
            parts = [_with_object(part) if isinstance(part, ToolUse) else part for part in message.parts]
            if not all(map(is_, parts, message.parts)):
                tell(ARGUMENTS, "the arguments of an earlier call are no JSON object")
                message = replace(message, parts=tuple(parts))
        out.append(message)
    return messages if all(map(is_, out, messages)) else tuple(out)


def _with_object(use: ToolUse) -> ToolUse:
    return (
        use
        if use.kind == "custom" or is_json_object(use.arguments)
        else replace(use, arguments=object_of(use.arguments))
    )


_NO_CALLS: Final[frozenset[str]] = frozenset()


class _Settled(NamedTuple):
    """The state after checking some messages: True (`good`) if none of them has to change, and the ids of calls that
    lack results."""

    good: bool = True
    waiting: frozenset[str] = _NO_CALLS


def _check_more(before: _Settled, messages: Sequence[Message], start: int, made: list[None]) -> _Settled:
    if not before.good:
        return before
    after = _waiting(messages, before.waiting)
    if after is None or not all(_have_objects(message) for message in messages):
        return _Settled(good=False)
    return _Settled(waiting=after)


def _have_objects(message: Message) -> bool:
    """Returns True if the arguments of all calls in the message are JSON objects."""
    uses = [part for part in message.parts if isinstance(part, ToolUse)]
    return message.role != "assistant" or all(_with_object(use) is use for use in uses)


def _in_order(messages: Sequence[Message]) -> bool:
    """Returns True if each call is followed by exactly one result, before any other part."""
    return _waiting(messages, _NO_CALLS) == _NO_CALLS


def _waiting(messages: Sequence[Message], before: frozenset[str]) -> frozenset[str] | None:
    """Returns the ids of calls whose results must follow, None if results are not in order. `before`: the ids of calls
    before these messages that lack results."""
    waiting = set(before)
    for message in messages:
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        for call_id in results:
            if call_id not in waiting:
                return None
            waiting.remove(call_id)
        if waiting and not results:
            return None
        calls = [part.call_id for part in message.parts if isinstance(part, ToolUse)]
        if waiting and (calls or len(results) < len(message.parts)):
            return None
        waiting.update(calls)
    return frozenset(waiting)


def _ordered(messages: Sequence[Message], tell: Tell) -> Iterable[Message]:
    """Yields every message, each call followed by its result. A result that answers no earlier call, or a call that
    already has one, becomes text of the user."""
    answers, spare = _answers(messages)
    due: list[str] = []
    """Ids of calls whose results come next in `messages`."""
    for index, message in enumerate(messages):
        rest: list[Part] = []
        for place, part in enumerate(message.parts):
            if not isinstance(part, ToolResult):
                rest.append(part)
            elif (index, place) in spare:
                repeated = spare[index, place]
                tell(REPEATED if repeated else NO_CALL, f"the call id {part.call_id[:80]!r}")
                rest += [Text(_AGAIN if repeated else _SHOWN), *part.parts]
            elif part.call_id in due:
                due.remove(part.call_id)
            else:
                tell(MOVED, f"the result of {part.call_id[:80]!r}")
        calls = [part for part in message.parts if isinstance(part, ToolUse)]
        if rest:
            due = []
            role = "user" if message.role == "tool" else message.role
            yield (
                message
                if len(rest) == len(message.parts) and role == message.role
                else replace(message, role=role, parts=tuple(rest))
            )
        elif not message.parts:
            yield message
        if calls:
            due = [call.call_id for call in calls]
            for call in calls:
                result = answers.get(call.call_id)
                if result is None:
                    tell(UNANSWERED, f"the call {call.call_id[:80]!r} of {call.name[:80]!r}")
                    result = ToolResult(call.call_id, (Text(NO_RESULT),), call.name, kind=call.kind)
                yield Message("tool", (result,))


def _answers(messages: Iterable[Message]) -> tuple[dict[str, ToolResult], dict[tuple[int, int], bool]]:
    """Returns the first result of each call by its id, and the positions of all other results: True if their call has a
    result already."""
    called: set[str] = set()
    answers: dict[str, ToolResult] = {}
    spare: dict[tuple[int, int], bool] = {}
    for index, message in enumerate(messages):
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolUse):
                called.add(part.call_id)
            elif isinstance(part, ToolResult):
                if part.call_id in called and part.call_id not in answers:
                    answers[part.call_id] = part
                else:
                    spare[index, place] = part.call_id in answers
    return answers, spare
