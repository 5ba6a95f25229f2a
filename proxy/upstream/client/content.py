"""Tells streams from whole answers, by content type and first bytes."""

from __future__ import annotations

from typing import Final

STREAM: Final = "text/event-stream"
"""Content type of an answer that is always a stream."""


def is_whole(data: bytes) -> bool:
    """True if the first bytes of an answer labelled as a stream are those of a whole JSON answer. No line of a stream
    begins with `{`."""
    return data.lstrip()[:1] == b"{"


def is_stream(body: bytes) -> bool:
    """True if an answer that is not labelled as a stream is the text of one."""
    return body[:64].lstrip(b"\xef\xbb\xbf \r\n").startswith((b"data:", b"event:", b": "))


def may_be_stream(content_type: str) -> bool:
    """True if an answer of this content type is a stream when one was requested. JSON and HTML never are; for other
    types the server is assumed to do as requested."""
    return not content_type.endswith(("/json", "+json")) and content_type != "text/html"
