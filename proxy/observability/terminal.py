"""The log format for a terminal: short lines for people.

    POST chat smollm2 200 1 call 5.6 s
    POST responses gpt-oss 200 stream 2 calls 3 attempts (spare) 12.4 s
    POST chat nosuch 404 model_not_found 2 ms
    tool get_time completed

An exchange is shown with its request and its outcome, without numbers that are only counted. A call that the gateway
runs is shown once, at its end, without its earlier states (R15.4). The other formats contain all fields and states.
Names from outside cannot control the terminal: unprintable characters are escaped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..support.legible import visible, visible_lines
from .log_forms import TextFormatter

ACCESS: Final = "toolwire.access"
"""The logger of the access line."""

TOOLS: Final = "toolwire.tools"
"""The logger of tool calls that the gateway runs; a `state` field marks a change of state."""

NAME_CHARS: Final = 60
"""The most characters shown of a name."""

_RED, _GREEN, _YELLOW, _DIM = "31", "32", "33", "2"
_LEVELS: Final = {"DEBUG": _DIM, "WARNING": _YELLOW, "ERROR": _RED, "CRITICAL": _RED}
_ENDS: Final = {"TOOL_COMPLETED": ("completed", _GREEN), "EXECUTION_FAILED": ("failed", _YELLOW)}
_WORD: Final = re.compile(r'[^\s"\\]+')
_COUNTED: Final = (
    ("calls", "call", "calls"),
    ("reasks", "bad answer", "bad answers"),
    ("parse_failures", "bad call", "bad calls"),
)
"""Fields of the access line, with their singular and plural names."""


def takes_colours(environment: Mapping[str, str]) -> bool:
    """Returns True if a terminal shows colours, from `NO_COLOR` (no-color.org), `TERM`, and on Windows `WT_SESSION`."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return sys.platform != "win32" or "WT_SESSION" in environment or "TERM" in environment


class TerminalFormatter(TextFormatter):
    """Writes an exchange, and the end of a call that the gateway ran, as one line without time and level; other records
    as `LEVEL logger: message key=value`. A traceback follows."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def shows(self, logger: str, fields: Mapping[str, Any]) -> bool:
        """Returns False for changes of a call's state before its end."""
        return logger != TOOLS or "state" not in fields or fields["state"] in _ENDS

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        if logger == ACCESS and "status" in fields:
            return " ".join(self._exchange(fields))
        if logger == TOOLS and "state" in fields:
            ended, colour = _ENDS[fields["state"]]
            return f"tool {word(str(fields['tool']))} {self._coloured(ended, colour)}"
        text = super()._line(at, level, logger, message, fields, trace)[len(f"{at} {level}") :]
        return self._coloured(level, _LEVELS.get(level)) + visible_lines(text)

    def _exchange(self, fields: Mapping[str, Any]) -> Iterator[str]:
        status, code = fields["status"], fields.get("code")
        colour = _RED if status >= 500 else _YELLOW if status >= 400 or code else _GREEN
        yield "POST"
        yield word(str(fields["endpoint"]))
        yield word(str(fields.get("model", "-")))
        yield self._coloured(str(status), colour)
        if code:
            yield self._coloured(word(str(code)), colour)
        if fields.get("stream"):
            yield "stream"
        for name, one, several in _COUNTED:
            if number := fields.get(name):
                yield f"{number} {one if number == 1 else several}"
        if (tries := fields.get("attempts", 1)) > 1:
            yield f"{tries} attempts ({word(str(fields.get('backend', '-')))})"
        yield self._coloured(duration(fields["total_ms"]), _DIM)

    def _coloured(self, text: str, colour: str | None) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour is not None and text else text


def word(text: str) -> str:
    """Returns a name as one word of the line: in quotes if it contains blanks or quotes."""
    text = visible(text if len(text) <= NAME_CHARS else text[: NAME_CHARS - 1] + "…")
    return text if _WORD.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'


def duration(ms: float) -> str:
    """Returns a duration as text: milliseconds below a second, tenths of seconds below 100 seconds, else whole
    seconds."""
    if ms < 999.5:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 99_950 else f"{ms / 1000:.0f} s"
