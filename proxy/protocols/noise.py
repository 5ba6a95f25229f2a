"""What servers, and proxies before them, send that is neither a part of an answer nor an error: signs of life, limits,
warnings, chunks of nothing (R29.1).

Rules:

1. It is left out wherever it comes: it is no fault, no item, no chunk for a client, and is never stored. It is counted
   by its kind (`KINDS`).
2. An object that may be an error is none of it, and neither is data that may be the rest of one.
3. Each protocol says what its answers consist of (`in_chat`, `in_messages`, `in_responses`). What `named` knows is
   noise in all of them, but for a `ping` of Messages, which its clients expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .wire import dump, load

Note = Callable[[str, str], None]
"""Takes what was noticed of a server's answer (one of `NOTES`), and which one."""

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
_MOST_CHARS: Final = 64
"""A name is not longer."""


def unnoted(what: str, detail: str) -> None:
    """Nobody wants to know."""


def named(word: object) -> str | None:
    """The kind of noise that a type, an event or a key names, whatever stands before its last dot."""
    if not isinstance(word, str) or len(word) > _MOST_CHARS:
        return None
    return _NAMES.get(word.rpartition(".")[2].strip().lower().replace("-", "").replace("_", "").replace(" ", ""))


def of_text(data: bytes) -> str | None:
    """The kind of a frame's data that are no object: a comment, a word, nothing. None if they may be anything else."""
    text = data[: 2 * _MOST_CHARS].strip()
    if text in _BLANK:
        return "empty" if text or not data.strip() else None
    if text.startswith(b":"):
        return "comment"
    return named(text.strip(b'":').decode("latin-1")) if len(text) <= _MOST_CHARS else None


def in_chat(name: str | None, value: Mapping[str, Any]) -> str | None:
    """The kind of a frame in a stream of chunks; None if it is one, counts tokens or is an error."""
    choices = value.get("choices")
    if isinstance(choices, list):
        return None if not choices or value.get("error") or any(map(_says, choices)) else "no_delta"
    return None if value.get("usage") or _is_error(name, value) else _kind(name, value)


def in_messages(name: str | None, value: Mapping[str, Any]) -> str | None:
    """As `in_chat`, of a stream of Messages."""
    kind = value.get("type") or name
    if kind == "ping" or _is_error(name, value):
        return None
    return named(kind) if kind else _kind(name, value)


def in_responses(name: str | None, value: Mapping[str, Any]) -> str | None:
    """As `in_chat`, of a stream of Responses, whose events all begin with its name."""
    kind = value.get("type") or name
    if isinstance(kind, str) and kind.startswith("response."):
        return named(kind)
    return None if _is_error(name, value) else _kind(name, value)


def in_any(name: str | None, value: Mapping[str, Any]) -> str | None:
    """As `in_chat`, of a stream in a form that is not known."""
    if _is_error(name, value):
        return None
    return named(value.get("type")) or named(name) or (None if value else "empty")


def of_item(item: Mapping[str, Any]) -> str | None:
    """The kind of an output item, or a block, that is none."""
    if not item:
        return "empty"
    return named(item["type"]) if item.get("type") else _warns(item) if len(item) == 1 else None


def without_noise(answer: Mapping[str, Any], key: str, note: Note) -> Mapping[str, Any]:
    """A whole answer without the items, listed under `key`, that are none; itself if there are none such."""
    items = answer.get(key)
    if not isinstance(items, list):
        return answer
    kept: list[Any] = []
    for item in items:
        kind = of_item(item) if isinstance(item, dict) else None
        if kind is None:
            kept.append(item)
        else:
            note(LEFT_OUT, kind)
    return answer if len(kept) == len(items) else {**answer, key: kept}


Judge = Callable[[str | None, Mapping[str, Any]], str | None]


def of_frame(judge: Judge, name: str | None, data: bytes) -> str | None:
    """The kind of a frame that has not been read; None if it may not be left out."""
    if not data.lstrip().startswith(b"{"):
        return of_text(data)
    value = _object(data)
    return None if value is None else judge(name, value)


def with_deltas(data: bytes) -> bytes:
    """A chunk of Chat, each of whose choices has a delta, as strict clients want. Raises `ValueError` if it is no
    JSON."""
    value = load(data)
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list) or all(map(_has_delta, choices)):
        return data
    return dump({**value, "choices": [one if _has_delta(one) else {**one, "delta": {}} for one in choices]})


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = load(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _has_delta(choice: Any) -> bool:
    return not isinstance(choice, dict) or isinstance(choice.get("delta"), dict) or choice.get("text") is not None


def _says(choice: Any) -> bool:
    """Whether a choice of a chunk has any of what a choice may have."""
    if not isinstance(choice, dict):
        return False
    return _has_delta(choice) or bool(choice.get("finish_reason") or choice.get("message") or choice.get("error"))


def _is_error(name: str | None, value: Mapping[str, Any]) -> bool:
    return bool(value.get("error") or value.get("detail")) or "error" in (name, value.get("type"), value.get("object"))


def _kind(name: str | None, value: Mapping[str, Any]) -> str:
    return named(value.get("type")) or named(name) or _warns(value) or ("other" if value else "empty")


def _warns(value: Mapping[str, Any]) -> str | None:
    return next(filter(None, map(named, value)), None)
