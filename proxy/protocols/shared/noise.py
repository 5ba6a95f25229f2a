"""Noise: frames and items from servers, and from proxies before them, that are neither part of an answer nor an error:
keep-alives, limits, warnings, empty chunks (R29.1).

Rules:

1. Noise is left out everywhere: it causes no fault, no item, no chunk for a client, and is never stored. It is counted
   by its kind (`KINDS`).
2. An object that may be an error is not noise, and neither is data that may be the rest of one.
3. Each protocol knows what its answers consist of (`in_chat`, `in_messages`, `in_responses`). Everything that `named`
   recognises is noise in all of them, except a `ping` of Messages, which its clients expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .server_errors import error_in

Note = Callable[[str, str], None]
"""Function that is called for an oddity in a server's answer, with its name (one of `NOTES`) and a detail."""

LEFT_OUT: Final = "left_out"
UNKNOWN_END: Final = "unknown_ends"
NAMELESS: Final = "nameless_calls"
NOTES: Final = frozenset({LEFT_OUT, UNKNOWN_END, NAMELESS})

KINDS: Final = ("comment", "empty", "keepalive", "limits", "warning", "no_delta", "other")

_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ping", "pong", "keepalive", "heartbeat", "noop", "processing"), "keepalive"),
    **dict.fromkeys(("ratelimit", "ratelimits"), "limits"),
    **dict.fromkeys(("warning", "warnings"), "warning"),
}
_BLANK: Final = frozenset({b"", b"null", b'""'})
_MAX_CHARS: Final = 64
"""Maximum length of a name."""


def ignore_note(what: str, detail: str) -> None:
    """Ignores the oddity."""


def named(word: object) -> str | None:
    """Returns the kind of noise that a type, an event or a key names by its last part (after a dot); None if it names
    none."""
    if not isinstance(word, str) or len(word) > _MAX_CHARS:
        return None
    return _NAMES.get(word.rpartition(".")[2].strip().lower().replace("-", "").replace("_", "").replace(" ", ""))


def of_text(data: bytes, name: str | None = None) -> str | None:
    """Returns the kind of noise in a frame's data that is not an object: a comment, a word, or empty, or anything in a
    frame with such a `name`. None if the data may be anything else."""
    text = data[: 2 * _MAX_CHARS].strip()
    if text in _BLANK:
        return "empty" if text or not data.strip() else None
    if text.startswith(b":"):
        return "comment"
    word = named(text.strip(b'":').decode("latin-1")) if len(text) <= _MAX_CHARS else None
    return word or named(name)


def in_chat(name: str | None, value: Mapping[str, Any]) -> str | None:
    """Returns the kind of noise of a frame in a stream of chat chunks; None if the frame is a chunk, counts tokens or
    is an error."""
    choices = value.get("choices")
    if isinstance(choices, list):
        return None if not choices or value.get("error") or any(map(_has_content, choices)) else "no_delta"
    return None if value.get("usage") or _is_error(name, value) else _kind(name, value)


def in_messages(name: str | None, value: Mapping[str, Any]) -> str | None:
    """Returns the kind of noise of a frame in a stream of Messages; None if it is not noise."""
    kind = value.get("type") or name
    if kind == "ping" or _is_error(name, value):
        return None
    return named(kind) if kind else _kind(name, value)


def in_responses(name: str | None, value: Mapping[str, Any]) -> str | None:
    """Returns the kind of noise of a frame in a stream of Responses, whose events all begin with `response.`; None if
    it is not noise."""
    kind = value.get("type") or name
    if isinstance(kind, str) and kind.startswith("response."):
        return named(kind)
    return None if _is_error(name, value) else _kind(name, value)


def in_any(name: str | None, value: Mapping[str, Any]) -> str | None:
    """Returns the kind of noise of a frame in a stream of unknown form; None if it is not noise."""
    if _is_error(name, value):
        return None
    return named(value.get("type")) or named(name) or (None if value else "empty")


def of_item(item: Mapping[str, Any]) -> str | None:
    """Returns the kind of noise of an entry in a list of output items or blocks; None if it is an item."""
    if not item:
        return "empty"
    return named(item["type"]) if item.get("type") else _warns(item) if len(item) == 1 else None


def without_noise(answer: Mapping[str, Any], key: str, note: Note) -> Mapping[str, Any]:
    """Returns a whole answer without the noise in the list under `key`; the same object if there is none."""
    items = answer.get(key)
    if not isinstance(items, list):
        return answer
    items_left: list[Any] = []
    for item in items:
        kind = of_item(item) if isinstance(item, dict) else None
        if kind is None:
            items_left.append(item)
        else:
            note(LEFT_OUT, kind)
    return answer if len(items_left) == len(items) else {**answer, key: items_left}


NoiseTest = Callable[[str | None, Mapping[str, Any]], str | None]


def with_deltas(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a chat chunk with a `delta` in each choice, as strict clients expect; the same object if none lacks
    it."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or all(map(_has_delta, choices)):
        return chunk
    return {**chunk, "choices": [one if _has_delta(one) else {**one, "delta": {}} for one in choices]}


def _has_delta(choice: Any) -> bool:
    return not isinstance(choice, dict) or isinstance(choice.get("delta"), dict) or choice.get("text") is not None


def _has_content(choice: Any) -> bool:
    """True if a choice of a chunk has any of the fields of a choice."""
    if not isinstance(choice, dict):
        return False
    if isinstance(choice.get("delta"), dict) or choice.get("text") is not None:
        return True
    return bool(choice.get("finish_reason") or choice.get("message") or choice.get("error"))


def _is_error(name: str | None, value: Mapping[str, Any]) -> bool:
    return name == "error" or error_in(value) is not None


def _kind(name: str | None, value: Mapping[str, Any]) -> str:
    return named(value.get("type")) or named(name) or _warns(value) or ("other" if value else "empty")


def _warns(value: Mapping[str, Any]) -> str | None:
    return next(filter(None, map(named, value)), None)
