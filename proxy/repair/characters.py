"""Characters: what counts as whitespace, and text that need not be valid Unicode."""

from __future__ import annotations

from typing import Final

SPACE: Final = " \t\r\n"
"""Whitespace between tags, around bodies and at edges (R6.6): JSON's four characters, nothing else."""


def valid_text(text: str) -> str:
    """Returns `text` with surrogate pairs joined and lone halves replaced by U+FFFD, so that it has a UTF-8 form."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
