"""Stream or whole answer: what a server's content type and first bytes say."""

from __future__ import annotations

from typing import Final

STREAM: Final = "text/event-stream"
"""The type of an answer that is a stream whether or not one was asked for."""


def is_whole(data: bytes) -> bool:
    """Whether what came first of a stream is a whole answer that its server labels as one. No line of a stream begins
    like this."""
    return data.lstrip()[:1] == b"{"


def may_be_stream(content_type: str) -> bool:
    """Whether an answer of this type is a stream if one was asked for. JSON never is, `STREAM` always; servers that say
    neither are taken to do what was asked."""
    return not content_type.endswith(("/json", "+json")) and content_type != "text/html"
