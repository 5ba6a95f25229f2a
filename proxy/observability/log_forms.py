"""Forms of log lines: `key=value` for people who search, JSON for machines. The one for a terminal is in
`toolwire.observability.terminal`.

A record may carry `extra={"fields": {...}}`: they become keys of the JSON object, or `key=value` at the end of the
text.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from toolwire.support.legible import visible_json, visible_lines

Entry = tuple[float, str, str, str, Mapping[str, Any], str]
"""What a line says: Unix time in seconds, level, logger, message, fields, traceback."""

_PLAIN: Final = re.compile(r"[!#-<>-~]+")
"""A word that needs no quotes: printable ASCII without space, quote and equals sign."""


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """The fields that a record carries."""
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


class LineFormatter(logging.Formatter):
    """A form of lines. The text of a second is kept: most lines share it with the line before."""

    worker: int | None = None
    """The number of the worker that writes, if there are several; a field of every line."""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._text = ""

    def format(self, record: logging.LogRecord) -> str:
        """One line, with the traceback if there is one."""
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        said = record.getMessage()
        return self.lines([(record.created, record.levelname, record.name, said, fields_of(record), trace)])

    def lines(self, entries: Iterable[Entry]) -> str:
        """The lines that say this."""
        out = []
        for created, level, logger, message, fields, trace in entries:
            second = int(created)
            if second != self._second:
                self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
                self._second = second
            at = f"{self._text}.{int((created - second) * 1000):03}Z"
            shown = fields if self.worker is None else {"worker": self.worker, **fields}
            out.append(self._line(at, level, logger, message, shown, trace))
        return "\n".join(out)

    def shows(self, logger: str, fields: Mapping[str, Any]) -> bool:
        """Whether this form has a line for such an event: all do, but where people only look on."""
        return True

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        """The line; `at` is the time in words."""
        raise NotImplementedError


class TextFormatter(LineFormatter):
    """`2026-01-31T12:00:00.000Z INFO toolwire: message key=value`. A value that is no plain word is JSON. A traceback
    follows."""

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        parts = [f"{at} {level} {logger}: {message}"]
        for key, value in fields.items():
            kind = type(value)
            if kind is str:  # most are words, which is seen faster without the pattern
                plain = (value.isascii() and value.isidentifier()) or _PLAIN.fullmatch(value) is not None
            else:
                plain = kind is int
            try:
                parts.append(f"{key}={value if plain else orjson.dumps(value, default=str).decode()}")
            except TypeError:  # half a character
                parts.append(f"{key}={json.dumps(value, default=str)}")
        line = " ".join(parts)
        line = f"{line}\n{trace}" if trace else line
        return line if line.isprintable() else visible_lines(line)  # asked here, since a call costs as much again


class JsonFormatter(LineFormatter):
    """One JSON object a line: `time`, `level`, `logger`, `message`, `pid`, the fields, and `traceback` after an
    error."""

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        own = {
            "time": at,
            "level": level.lower(),
            "logger": logger,
            "message": message,
            "pid": os.getpid(),
        }
        if trace:
            own["traceback"] = trace
        # Twice: once for the order, once because a field must not take the place of what is always there.
        entry = {**own, **fields, **own}
        try:
            line = orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # half a character
            line = json.dumps(entry, default=str)
        return line if line.isprintable() else visible_json(line)
