"""The log on a terminal: a line that is read at a glance, for whoever sits in front of it.

    POST chat smollm2 200 1 call 5.6 s
    POST responses gpt-oss 200 stream 2 calls 3 tries (spare) 12.4 s
    POST chat nosuch 404 model_not_found 2 ms
    tool get_time completed

An exchange shows what it was and what became of it, nothing that is only counted; a call that the gateway ran, how it
ended, and no state on the way (R15.4): the other forms have all fields and all states.
Whatever comes from outside is shown and never obeyed: what cannot be printed is written as an escape.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolwire.observability.log_forms import TextFormatter
from toolwire.support.legible import visible, visible_lines

ACCESS: Final = "toolwire.access"
"""The logger of the access line."""

TOOLS: Final = "toolwire.tools"
"""The logger of calls that the gateway runs: what has a `state` there is a change of one."""

NAME_CHARS: Final = 60
"""So much of a name is shown."""

_RED, _GREEN, _YELLOW, _DIM = "31", "32", "33", "2"
_LEVELS: Final = {"DEBUG": _DIM, "WARNING": _YELLOW, "ERROR": _RED, "CRITICAL": _RED}
_ENDS: Final = {"TOOL_COMPLETED": ("completed", _GREEN), "EXECUTION_FAILED": ("failed", _YELLOW)}
_WORD: Final = re.compile(r'[^\s"\\]+')
_COUNTED: Final = (
    ("calls", "call", "calls"),
    ("reasks", "bad answer", "bad answers"),
    ("parse_failures", "bad call", "bad calls"),
)
"""Of the access line: a field, and how one and several of it are called."""


def takes_colours(environment: Mapping[str, str]) -> bool:
    """Whether a terminal shows colours, by what the environment says of it: `NO_COLOR` (no-color.org), `TERM`, and on
    Windows only where a terminal that knows them says so."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return sys.platform != "win32" or "WT_SESSION" in environment or "TERM" in environment


class TerminalFormatter(TextFormatter):
    """An exchange, and the end of a call that the gateway ran, in a line without time and level; `LEVEL logger: message
    key=value` for all others. A traceback follows."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def shows(self, logger: str, fields: Mapping[str, Any]) -> bool:
        """All but the states of a call before and after its end."""
        return logger != TOOLS or "state" not in fields or fields["state"] in _ENDS

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        if logger == ACCESS and "status" in fields:
            return " ".join(self._exchange(fields))
        if logger == TOOLS and "state" in fields:
            ended, colour = _ENDS[fields["state"]]
            return f"tool {word(str(fields['tool']))} {self._coloured(ended, colour)}"
        said = super()._line(at, level, logger, message, fields, trace)[len(f"{at} {level}") :]
        return self._coloured(level, _LEVELS.get(level)) + visible_lines(said)

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
            yield f"{tries} tries ({word(str(fields.get('backend', '-')))})"
        yield self._coloured(duration(fields["total_ms"]), _DIM)

    def _coloured(self, text: str, colour: str | None) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour is not None and text else text


def word(text: str) -> str:
    """A name as one word of the line: in quotes if it would look like several."""
    text = visible(text if len(text) <= NAME_CHARS else text[: NAME_CHARS - 1] + "…")
    return text if _WORD.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'


def duration(ms: float) -> str:
    """Milliseconds below a second, tenths of seconds below 100, then whole seconds."""
    if ms < 999.5:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 99_950 else f"{ms / 1000:.0f} s"
