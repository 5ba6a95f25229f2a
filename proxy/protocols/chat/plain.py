"""Whether a Chat Completions request is plain: of the few shapes that nearly all requests have.

A quick yes in front of the schema, which is exact, has the words for what is wrong, and takes ten times as long. Law:
what is plain fits the schema. What is not plain may fit as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any, Final

from ...known.past import Past, fold
from ...model import Message, PlainMessages, Text

SPEAKERS: Final = frozenset({"system", "developer", "user", "assistant"})
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

_role_and_text: Final = itemgetter("role", "content")

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "stream": (bool,),
    "parallel_tool_calls": (bool,),
    "logprobs": (bool,),
    "seed": (int,),
    "stop": (str,),
    "tool_choice": (str,),
    "reasoning_effort": (str,),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "n"), (int,)),
    **dict.fromkeys(("temperature", "top_p", "presence_penalty", "frequency_penalty"), (int, float)),
}
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "max_tokens": (1, inf),
    "max_completion_tokens": (1, inf),
    "n": (1, inf),
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_SEEN: Final = frozenset({"model", "messages", "tools"})
_RARE: Final = frozenset({"functions", "function_call"})


def plain_messages(items: Any, past: Past | None = None) -> PlainMessages | None:
    """The `messages` of a body, if each is a role that speaks and a text; None: they may be anything."""
    if not isinstance(items, list) or not items:
        return None
    messages, plain = fold(past, "chat.plain", items, True, _read_plain)
    return PlainMessages(messages) if plain else None


def _read_plain(plain: bool, items: Sequence[Any], start: int, messages: list[Message]) -> bool:
    try:
        for item in items if plain else ():
            role, text = _role_and_text(item)
            if len(item) != 2 or type(text) is not str or role not in SPEAKERS:
                return False
            messages.append(Message(role, (Text(text),) if text else ()))
    except (KeyError, TypeError):  # it has none, or cannot have any
        return False
    return plain


def is_plain(body: Mapping[str, Any]) -> bool:
    """Whether `body` is plain, its `tools` aside: nothing is said about those."""
    return are_plain_items(body.get("messages")) and has_plain_fields(body)


def are_plain_items(items: Any, past: Past | None = None) -> bool:
    """Whether the `messages` of a body are plain."""
    if not isinstance(items, list) or not items:
        return False
    return fold(past, "chat.plain_items", items, True, _look_at_plain)[1]


def _look_at_plain(plain: bool, items: Sequence[Any], start: int, made: list[None]) -> bool:
    for message in items if plain else ():
        if type(message) is not dict:
            return False
        role, content = message.get("role"), message.get("content")
        if type(role) is not str or role not in _ROLES:
            return False
        if not (len(message) == 2 and type(content) is str) and not _is_plain_message(message):
            return False
    return plain


def has_plain_fields(body: Mapping[str, Any]) -> bool:
    """Whether `body` is plain, its `tools` and `messages` aside."""
    model = body.get("model")
    if type(model) is not str or not model:
        return False
    for key, value in body.items():
        if value is None or key in _SEEN:
            continue
        kinds, bounds = _KINDS.get(key), _RANGES.get(key)
        if kinds is None:
            if not _is_plain_field(key, value):
                return False
        elif type(value) not in kinds or (bounds is not None and not bounds[0] <= value <= bounds[1]):
            return False
    return True


def _is_plain_field(key: str, value: Any) -> bool:
    if key == "stream_options":
        return type(value) is dict and type(value.get("include_usage")) in (bool, type(None))
    if key == "response_format":
        return type(value) is dict and type(value.get("type")) is str
    return key not in _RARE


def _is_plain_message(message: Mapping[str, Any]) -> bool:
    """Whether the fields of a message are plain, its role aside."""
    content = message.get("content")
    if type(content) not in (str, type(None)) and not (type(content) is list and all(map(_is_plain_part, content))):
        return False
    for key in ("name", "refusal", "tool_call_id"):
        if type(message.get(key)) not in (str, type(None)):
            return False
    calls = message.get("tool_calls")
    if calls is not None and not (type(calls) is list and all(map(_is_plain_call, calls))):
        return False
    return message.get("function_call") is None


def _is_plain_part(part: Any) -> bool:
    return type(part) is dict and part.get("type") == "text" and type(part.get("text")) is str


def _is_plain_call(call: Any) -> bool:
    if type(call) is not dict or call.get("type") != "function":
        return False
    ident, function = call.get("id"), call.get("function")
    return (
        type(ident) is str
        and 1 <= len(ident) <= 256
        and type(function) is dict
        and type(function.get("name")) is str
        and type(function.get("arguments")) is str
    )
