"""Fields of Chat's messages and calls for which `toolwire.model` has no attribute: opaque fields of reasoning, which
only their server understands (OpenRouter's `reasoning_details`, and Gemini's `extra_content` if it holds a signature),
and others, which are stored and written back in their original shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from ...formats.engine.keys import ARGUMENTS
from ...model import EMPTY, Extra, fields_of, scoped
from ..shared.opaque_reasoning import SIGNATURE
from ..shared.wire import fields_in, rest_of

PROTOCOL: Final = "chat"
REASONING: Final = ("reasoning_content", "reasoning", "reasoning_text", "thinking", "thinking_content")
"""Names of reasoning among servers and clients; vLLM and OpenRouter use the second one."""
OPAQUE: Final = ("reasoning_details", "extra_content")
_GROWING: Final = ("text", "summary")


def opaque_of(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the opaque fields among the fields of a message or a delta."""
    opaque: dict[str, Any] = {}
    if isinstance(details := fields.get("reasoning_details"), list) and details:
        opaque["reasoning_details"] = details
    if isinstance(extra := fields.get("extra_content"), dict) and any(
        isinstance(value, dict) and SIGNATURE in value for value in extra.values()
    ):
        opaque["extra_content"] = extra
    return opaque or EMPTY


def other_fields(fields: Mapping[str, Any], opaque: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `fields` without those in `opaque`."""
    return {key: value for key, value in fields.items() if key not in opaque} or EMPTY if opaque else fields


def join_fields(first: Mapping[str, Any], second: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the joined opaque fields of two parts of one message."""
    if not first or not second:
        return {key: value for key, value in (first or second).items() if key in OPAQUE} or EMPTY
    both = {**join_fields(first, EMPTY), **join_fields(second, EMPTY)}
    if "reasoning_details" in first and "reasoning_details" in second:
        both["reasoning_details"] = [*first["reasoning_details"], *second["reasoning_details"]]
    return both


def of_deltas(deltas: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the opaque fields of a streamed message from those of its deltas: neighbouring pieces of one entry are
    joined."""
    fields: dict[str, Any] = {}
    pieces: list[Any] = []
    for delta in deltas:
        fields |= delta
        pieces += delta.get("reasoning_details", ())
    if pieces:
        fields["reasoning_details"] = [_entry(list(group)) for _, group in groupby(pieces, _Places())]
    return fields or EMPTY


class _Places:
    """Key function for grouping pieces: the type and index of their entry, or a unique number for a piece without an
    index."""

    def __init__(self) -> None:
        self._alone = 0

    def __call__(self, piece: Any) -> tuple[Any, ...]:
        if isinstance(piece, dict) and isinstance(piece.get("index"), int):
            return (piece.get("type"), piece["index"])
        self._alone += 1
        return (self._alone,)


def _entry(pieces: list[Any]) -> Any:
    if len(pieces) == 1:
        return pieces[0]
    whole: dict[str, Any] = {}
    for piece in pieces:
        whole |= {key: value for key, value in piece.items() if value is not None or key not in whole}
    for key in _GROWING:
        if texts := [piece[key] for piece in pieces if isinstance(piece.get(key), str)]:
            whole[key] = "".join(texts)
    return whole


# --- unmodelled fields ------------------------------------------------------------------------------------------------


CALL_FIELDS: Final = frozenset({"name", "arguments", "input"})
_NAME: Final = frozenset({"name"})
_OTHER_NAMES: Final = frozenset(ARGUMENTS) - {"arguments"}
_OUTSIDE: Final = _NAME | frozenset(ARGUMENTS)


def nested_rest_of(outer: Mapping[str, Any], key: str, inner: Mapping[str, Any], known: frozenset[str]) -> Extra:
    """Returns the unmodelled fields of an object with another object `inner` under `key`, in the same shape; `known`
    are the modelled fields of `inner`."""
    rest = {k: value for k, value in outer.items() if k not in (key, "type", "id") and value is not None}
    if inside := rest_of(inner, known):
        rest[key] = inside
    return scoped(PROTOCOL, rest)


def nest(written: dict[str, Any], key: str, extra: Extra) -> dict[str, Any]:
    """Returns the object `written` with the fields from `nested_rest_of` added."""
    fields = fields_of(extra, PROTOCOL)
    if not fields:
        return written
    inside = fields.get(key)
    rest = {k: value for k, value in fields.items() if k != key}
    inner = {**inside, **written[key]} if isinstance(inside, Mapping) else written[key]
    return {**rest, **written, key: inner}


def usual_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a server's call with name and arguments under `function`; servers also write them beside the id, or the
    arguments under another key. The same object if there is nothing to move."""
    inner = call.get("function")
    if isinstance(inner, dict):
        if inner.get("arguments") is not None or inner.keys() <= _NAME or _OTHER_NAMES.isdisjoint(inner):
            return call
    elif "custom" in call or call.keys().isdisjoint(_OUTSIDE):
        return call
    else:
        inner = {key: call[key] for key in ("name", *ARGUMENTS) if key in call}
        call = {key: value for key, value in call.items() if key not in inner}
    given = next((inner[key] for key in ARGUMENTS if inner.get(key) is not None), None)
    rest = {key: value for key, value in inner.items() if key not in ARGUMENTS}
    return {**call, "function": {**rest, "arguments": given}}


def calls_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the calls of a server's message or delta, also that of the legacy field if it does not repeat one."""
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    elif not isinstance(calls, list):
        calls = []
    calls = [usual_call(call) for call in calls if isinstance(call, dict)]
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and all(call.get("function") != legacy for call in calls):
        calls.append({"function": legacy})
    return calls


def call_extra(call: Mapping[str, Any], key: str) -> Extra:
    """Returns the unmodelled fields of a call whose name stands under `key`, in a request or in an answer."""
    return nested_rest_of(call, key, fields_in(call.get(key)), CALL_FIELDS)
