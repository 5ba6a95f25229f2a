"""Sets up logging: the stream, format and time of log lines. Called by the command line only, never on import."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TextIO

from .log_forms import Entry, JsonFormatter, LineFormatter, TextFormatter, fields_of
from .terminal import TerminalFormatter, takes_colours

LogFormat = Literal["auto", "text", "json"]
"""`auto`: lines for people if the stream is a terminal, else `text`."""

DELAY_S: Final = 0.05
MOST_WAITING: Final = 32


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines of one format. Lines of `log_fields` are collected and written after at most `DELAY_S`, before any
    other line, and at each flush, so no line is lost and the order stays."""

    def __init__(self, stream: TextIO, form: LineFormatter) -> None:
        super().__init__(stream)
        self.form = form
        self.setFormatter(form)
        self._waiting: list[Entry] = []

    def later(self, logger: str, message: str, fields: Mapping[str, Any]) -> None:
        """Writes an `INFO` line after at most `DELAY_S`. Call it in a running event loop; do not change `fields`
        afterwards."""
        if not self.form.shows(logger, fields):
            return
        self._waiting.append((time.time(), "INFO", logger, message, fields, ""))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(DELAY_S, self.flush)
        elif len(self._waiting) >= MOST_WAITING:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record, after the lines that came before it."""
        if not self.form.shows(record.name, fields_of(record)):
            return
        if self._waiting:
            self.flush()
        super().emit(record)

    def flush(self) -> None:
        """Writes the collected lines."""
        self.acquire()
        try:
            waiting, self._waiting = self._waiting, []
            if waiting:
                self.stream.write(self.form.lines(waiting) + "\n")
            super().flush()
        except Exception:
            if sys.stderr and logging.raiseExceptions:
                with suppress(OSError):  # standard error is usually this stream
                    traceback.print_exc()  # as `logging` does with errors of its handlers
        finally:
            self.release()


def log_fields(logger: logging.Logger, message: str, fields: Mapping[str, Any]) -> None:
    """Logs like `logger.info(message, extra={"fields": fields})`. After `set_up_logging`, and without other handlers or
    filters, it skips the record and writes the line a little later, which is faster."""
    if not logger.isEnabledFor(logging.INFO):
        return
    handler = _only_handler(logger)
    if handler is not None:
        handler.later(logger.name, message, fields)
    else:
        logger.info(message, extra={"fields": fields})


def _only_handler(logger: logging.Logger) -> LineHandler | None:
    """Returns the handler of `set_up_logging` if no other handler or filter applies to `logger`; else None."""
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
    """Writes the collected lines of the root logger's handlers."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def number_lines(worker: int) -> None:
    """Adds the number of this worker to all further lines."""
    for handler in _line_handlers():
        handler.form.worker = worker


def change_logging(form: LogFormat, level: str) -> None:
    """Changes format and level of the logging that `set_up_logging` has set up."""
    for handler in _line_handlers():
        handler.flush()
        worker, handler.form = handler.form.worker, _formatter(form, handler.stream)
        handler.form.worker = worker
        handler.setFormatter(handler.form)
        logging.getLogger().setLevel(level.upper())


def _line_handlers() -> list[LineHandler]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, LineHandler)]


def _formatter(form: LogFormat, stream: TextIO) -> LineFormatter:
    if form == "auto" and stream.isatty():
        return TerminalFormatter(colours=takes_colours(os.environ))
    return JsonFormatter() if form == "json" else TextFormatter()


def set_up_logging(form: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Sends all log records from `level` up to `stream` (default: standard error), and replaces earlier handlers."""
    stream = stream or sys.stderr
    handler = LineHandler(stream, _formatter(form, stream))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    # It repeats that a collector is unavailable. `toolwire.extras.otel.otlp` logs that once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
