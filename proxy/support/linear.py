"""Regular expressions from the configuration, compiled by RE2, whose searches take linear time."""

from __future__ import annotations

from typing import Any


def linear(pattern: str) -> Any:
    """Returns an RE2 pattern for UTF-8 bytes. Raises `ValueError` if RE2 cannot compile `pattern` or is not
    installed."""
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
    """Returns the reason in an RE2 error, as text."""
    reason = error.args[0] if error.args else error
    return reason.decode() if isinstance(reason, bytes) else str(reason)
