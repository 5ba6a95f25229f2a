"""Regular expressions that an operator chooses: compiled by RE2, whose every search is linear in the text."""

from __future__ import annotations

from typing import Any


def linear(pattern: str) -> Any:
    """A regular expression for bytes of UTF-8, compiled by RE2, so that every search is linear. Raises `ValueError` for
    one that RE2 cannot compile, and without RE2."""
    try:
        import re2
    except ImportError as error:
        raise ValueError("patterns of your own need a package: pip install 'toolwire[redact]'") from error
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression of RE2: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """The reason that RE2 gives for an error, as text."""
    reason = error.args[0] if error.args else error
    return reason.decode() if isinstance(reason, bytes) else str(reason)
