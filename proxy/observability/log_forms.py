"""Formats of log lines: `key=value` for searching, JSON for programs. The format for a terminal is in
`toolwire.observability.terminal`.

A record may carry `extra={"fields": {...}}`: these become keys of the JSON object, or `key=value` at the end of the
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

from ..support.legible import visible_json, visible_lines

Entry = tuple[float, str, str, str, Mapping[str, Any], str]
"""The content of a line: Unix time in seconds, level, logger, message, fields, traceback."""

_PLAIN: Final = re.compile(r"[!#-<>-~]+")
"""A word without quotes: printable ASCII without space, quote and equals sign."""


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Returns the fields that a record carries; empty if there are none."""
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


class LineFormatter(logging.Formatter):
    """The base of all formats. Caches the text of the current second, because most lines share it with the
    line before."""

    worker: int | None = None
    """The number of this worker, if there are several; added to every line."""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._text = ""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record, with the traceback if there is one."""
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        said = record.getMessage()
        return self.lines([(record.created, record.levelname, record.name, said, fields_of(record), trace)])

    def lines(self, entries: Iterable[Entry]) -> str:
        """Returns the lines of several entries, joined by line ends."""
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
        """Returns True if this format writes a line for such an event. Only the terminal format leaves some out."""
        return True

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        """Returns the line; `at` is the time as text."""
        raise NotImplementedError


class TextFormatter(LineFormatter):
    """`2026-01-31T12:00:00.000Z INFO toolwire: message key=value`. Values that are not plain words are JSON. A
    traceback follows."""

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        parts = [f"{at} {level} {logger}: {message}"]
        for key, value in fields.items():
            kind = type(value)
            if kind is str:  # the common case, decided without the slower pattern
                plain = (value.isascii() and value.isidentifier()) or _PLAIN.fullmatch(value) is not None
            else:  # JSON has no infinite numbers, and writes large ones in another way
                plain = kind is int or (kind is float and -1e15 < value < 1e15)
            try:
                parts.append(f"{key}={value if plain else orjson.dumps(value, default=str).decode()}")
            except TypeError:  # a lone surrogate
                parts.append(f"{key}={json.dumps(value, default=str)}")
        line = " ".join(parts)
        line = f"{line}\n{trace}" if trace else line
        return line if line.isprintable() else visible_lines(line)  # checked here, because a call costs as much again


class JsonFormatter(LineFormatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, `pid`, the fields, and `traceback` after an
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
        # `own` comes first for the order, and last because a field must not replace one of its keys.
        entry = {**own, **fields, **own}
        try:
            line = orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # a lone surrogate
            line = json.dumps(entry, default=str)
        return line if line.isprintable() else visible_json(line)
