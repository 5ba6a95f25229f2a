"""A toolwire middleware that writes one JSON line for each finished tool call.

In the gateway's configuration::

    chain:
      - validation
      - use: call-audit
        options:
          path: calls.jsonl
          hide: [password, token]
      - arguments
      - transformation
      - injection
      - forwarding
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from toolwire import Call, Event, Exchange, Kind, Middleware


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`path`: the file to append to; without it, lines go to the log `toolwire_call_audit`. Values of top-level
    arguments named in `hide` are replaced by `"***"`."""

    path: str | None = None
    hide: tuple[str, ...] = ()


class CallAudit(Middleware):
    """Writes one line per finished call; changes nothing."""

    wants = Kind.FINISHED_CALL
    Options = Options

    async def start(self, app: web.Application) -> None:
        path = self.options.path
        self._file = None if path is None else await asyncio.to_thread(Path(path).open, "ab", buffering=0)

    async def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        assert isinstance(event, Call)  # the only kind in `wants`
        line = {"request_id": exchange.id, "call_id": event.use.call_id, "tool": event.use.name}
        self._write({**line, "arguments": self._shown(event.use.arguments)})
        return event

    def _shown(self, arguments: str) -> Any:
        values = orjson.loads(arguments)
        if isinstance(values, dict):
            return {key: "***" if key in self.options.hide else value for key, value in values.items()}
        return values

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            logging.getLogger(__name__).info("%s", orjson.dumps(line).decode())
        else:
            self._file.write(orjson.dumps(line) + b"\n")
