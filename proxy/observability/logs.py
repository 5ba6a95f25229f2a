"""Log lines: one form for people, one for machines. Set up by the command line only, never on import.

A record may carry `extra={"fields": {...}}`: they become keys of the JSON object, or `key=value` at the end of the
text.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TextIO

import orjson

DELAY_S: Final = 0.05
MOST_WAITING: Final = 32

Entry = tuple[float, str, str, str, Mapping[str, Any], str]
"""What a line says: Unix time in seconds, level, logger, message, fields, traceback."""

_PLAIN: Final = re.compile(r"[!#-<>-~]+")
"""A word that needs no quotes: printable ASCII without space, quote and equals sign."""


class _Formatter(logging.Formatter):
    """A form of lines. The text of a second is kept: most lines share it with the line before."""

    worker: int | None = None
    """The number of the worker that writes, if there are several; a field of every line."""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._text = ""

    def format(self, record: logging.LogRecord) -> str:
        """One line, with the traceback if there is one."""
        fields = getattr(record, "fields", None)
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        said = record.getMessage()
        fields = fields if isinstance(fields, Mapping) else {}
        return self.lines([(record.created, record.levelname, record.name, said, fields, trace)])

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

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        """The line; `at` is the time in words."""
        raise NotImplementedError


class TextFormatter(_Formatter):
    """`2026-01-31T12:00:00.000Z INFO toolwire: message key=value`. A value that is no plain word is JSON. A traceback
    follows."""

    def _line(self, at: str, level: str, logger: str, message: str, fields: Mapping[str, Any], trace: str) -> str:
        parts = [f"{at} {level} {logger}: {message}"]
        for key, value in fields.items():
            plain = type(value) is int or (type(value) is str and _PLAIN.fullmatch(value))
            parts.append(f"{key}={value if plain else orjson.dumps(value, default=str).decode()}")
        line = " ".join(parts)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(_Formatter):
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
        return orjson.dumps({**own, **fields, **own}, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines of one form. Those of `log_fields` are written together, after at most `DELAY_S`, before any other
    line, and whenever the handler is flushed, so no line is lost and each stands in its place."""

    def __init__(self, stream: TextIO, form: _Formatter) -> None:
        super().__init__(stream)
        self.form = form
        self.setFormatter(form)
        self._waiting: list[Entry] = []

    def later(self, logger: str, message: str, fields: Mapping[str, Any]) -> None:
        """Write an `INFO` line soon. Called in a running event loop; `fields` are not changed afterwards."""
        self._waiting.append((time.time(), "INFO", logger, message, fields, ""))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(DELAY_S, self.flush)
        elif len(self._waiting) >= MOST_WAITING:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, after the lines that came before it."""
        if self._waiting:
            self.flush()
        super().emit(record)

    def flush(self) -> None:
        """Write what waits."""
        self.acquire()
        try:
            waiting, self._waiting = self._waiting, []
            if waiting:
                self.stream.write(self.form.lines(waiting) + "\n")
            super().flush()
        except Exception:
            if sys.stderr and logging.raiseExceptions:
                traceback.print_exc()  # as logging does with errors of its handlers
        finally:
            self.release()


def log_fields(logger: logging.Logger, message: str, fields: Mapping[str, Any]) -> None:
    """The same as `logger.info(message, extra={"fields": fields})`; without a record, and a little later, where
    `set_up_logging` has been called and nobody has added handlers or filters."""
    if not logger.isEnabledFor(logging.INFO):
        return
    handler = _only_handler(logger)
    if handler is not None:
        handler.later(logger.name, message, fields)
    else:
        logger.info(message, extra={"fields": fields})


def _only_handler(logger: logging.Logger) -> LineHandler | None:
    """The handler of `set_up_logging`, if it is the only thing between `logger` and the stream."""
    if logger.filters:
        return None
    at: logging.Logger | None = logger
    while at is not None and not at.handlers and at.propagate:
        at = at.parent
    if at is None or at.parent is not None or len(at.handlers) != 1:
        return None
    handler = at.handlers[0]
    if not isinstance(handler, LineHandler) or handler.formatter is not handler.form:
        return None
    return None if handler.filters or handler.level > logging.INFO else handler


def flush_logs() -> None:
    """Write what waits in the handlers of the root logger."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def number_lines(worker: int) -> None:
    """From now on every line carries the number of this worker."""
    for handler in _line_handlers():
        handler.form.worker = worker


def change_logging(form: Literal["text", "json"], level: str) -> None:
    """Go on in another form or from another level, where `set_up_logging` has been called."""
    for handler in _line_handlers():
        handler.flush()
        worker, handler.form = handler.form.worker, _formatter(form)
        handler.form.worker = worker
        handler.setFormatter(handler.form)
        logging.getLogger().setLevel(level.upper())


def _line_handlers() -> list[LineHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LineHandler)]


def _formatter(form: Literal["text", "json"]) -> _Formatter:
    return JsonFormatter() if form == "json" else TextFormatter()


def set_up_logging(form: Literal["text", "json"], level: str, stream: TextIO | None = None) -> None:
    """Send all log records from `level` up to `stream` (default: standard error), replacing earlier handlers."""
    handler = LineHandler(stream or sys.stderr, _formatter(form))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # It says again and again that a collector is away. `proxy.observability.otlp` says it once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
