"""The heading of a recorded exchange, by which people recognise it: the user's question and the client's session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from ...model import ModelRequest, Text

SESSION_HEADERS: Final = (
    "session-id",
    "session_id",
    "x-claude-code-session-id",
    "x-session-id",
    "x-session-affinity",
    "thread-id",
    "conversation_id",
)
"""Headers in which clients send the id of their session, in order of preference: Codex, older Codex, Claude Code,
opencode."""

QUESTION_CHARS: Final = 160
SESSION_CHARS: Final = 80

_MESSAGES: Final = 200
"""The number of latest messages that are searched for a question."""
_LONGEST: Final = 2_000
"""The characters of a text that are looked at."""
_USER_ID_CHARS: Final = 1_000

Cover = Callable[[Any], Any]
"""Replaces secrets in a JSON value."""


def question_of(request: ModelRequest, cover: Cover) -> str:
    """Returns the first words of the user's last question; empty if there is none. Texts that clients add in the user's
    name, such as `<system-reminder>`, are questions only if there is no other."""
    added = ""
    for message in reversed(request.messages[-_MESSAGES:]):
        if message.role != "user":
            continue
        for part in reversed(message.parts):
            if not isinstance(part, Text):
                continue
            text = part.text.strip() if len(part.text) < 2 * _LONGEST else part.text
            if text and not _is_added(text):
                return _short(text, cover)
            added = added or text
    return _short(added, cover)


def session_of(headers: Mapping[str, str], request: ModelRequest | None, cover: Cover) -> str:
    """Returns the id of the client's session: from a header, or else from a field of the request; empty if there is
    none."""
    for name in SESSION_HEADERS:
        if value := headers.get(name, "").strip():
            return _session(value, cover)
    if request is None:
        return ""
    for fields in (*request.protocol_fields.values(), request.extra):
        if isinstance(fields, Mapping) and (found := _in_fields(fields)):
            return _session(found, cover)
    return ""


def _is_added(text: str) -> bool:
    """Returns True for a text inside of one pair of tags, such as `<system-reminder>`."""
    if not text.startswith("<"):
        return False
    name, closed, _ = text[1:80].partition(">")
    return bool(closed) and bool(name) and text[-100:].rstrip().endswith(f"</{name}>")


def _short(text: str, cover: Cover) -> str:
    words = " ".join(str(cover(text[:_LONGEST])).split())
    return words if len(words) <= QUESTION_CHARS else f"{words[: QUESTION_CHARS - 1]}…"


def _session(value: str, cover: Cover) -> str:
    return str(cover(value[:SESSION_CHARS]))


def _in_fields(fields: Mapping[str, Any]) -> str:
    metadata = fields.get("metadata")
    for place in (metadata, fields.get("client_metadata")):
        if isinstance(place, Mapping):
            session = place.get("session_id") or _in_user_id(place.get("user_id"))
            if isinstance(session, str) and session:
                return session
    key = fields.get("prompt_cache_key")
    return key if isinstance(key, str) else ""


def _in_user_id(user_id: object) -> str:
    """Returns the session in `metadata.user_id` of Claude Code: JSON with `session_id`, or `user_X_session_ID`."""
    if not isinstance(user_id, str) or len(user_id) > _USER_ID_CHARS:
        return ""
    if user_id.startswith("{"):
        try:
            session = orjson.loads(user_id).get("session_id")
        except (ValueError, AttributeError):
            return ""
        return session if isinstance(session, str) else ""
    _, marked, session = user_id.rpartition("_session_")
    return session if marked else ""
