"""Who does tools, the server or the gateway: what is known of each model of each server (R24.1).

Rules:

1. A verdict counts for every client. That a server needs the gateway is therefore kept only if the gateway's own probe
   shows it; a client's request that was refused, and taken in the other way, is the reason to probe.
2. It is forgotten when its time is over, and when the server says that it is another one: servers are replaced.
3. Workers share verdicts through small files in a folder of theirs, one for each model, of which the newest counts.
   Whoever knows that the gateway reads the calls of a model does not look there.
4. At most `MOST` are kept; the one that would be forgotten first makes way.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from ..backends.upstream_errors import refuses_tools
from ..errors import GatewayError, quote

LOG: Final = logging.getLogger("toolwire.tool_mode")

MOST: Final = 256

Mode = Literal["native", "prompt", "template"]
Cause = Literal["accepted", "called", "refused", "near_miss", "silent", "shown", "unseen", "read"]
"""What a verdict follows from: the server accepted tools, or called the probe's; it refused them, its answer nearly
called, or the probe's was not called. Of template probes also: the tool was in the prompt (`shown`) or not (`unseen`),
or the server read the call itself (`read`)."""

_OF_ONE_TOOL: Final = re.compile(
    r"\btools?(?:\[|\.)\d|schema|too (?:many|long|large)|at most|maximum|duplicate|pattern", re.IGNORECASE
)
"""A message with this is about the tools of one request, and not about tools."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`until` is a moment of the monotonic clock, which the processes of a machine share. `server` is what the server
    said it was, if it did."""

    backend: str
    model: str
    mode: Mode
    cause: Cause
    until: float
    server: str | None = None


class Verdicts:
    """Those of an application; of all workers if they have a `folder`. `report` is told of each that is kept."""

    def __init__(
        self,
        folder: Path | None = None,
        report: Callable[[Verdict], None] = lambda verdict: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._report = report
        self._clock = clock
        self._known: dict[tuple[str, str], Verdict] = {}

    def find(self, backend: str, model: str, server: str | None = None) -> Verdict | None:
        """What is known of a model. `server`: what the server says it is now, if it does."""
        own = self._valid(self._known.get((backend, model)), server)
        if self._folder is None or (own is not None and own.mode != "native"):
            return own
        return self._valid(_read(self._file(self._folder, backend, model)), server)

    def keep(
        self,
        backend: str,
        model: str,
        mode: Mode,
        cause: Cause,
        seconds: float,
        server: str | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        """It is so for the next `seconds`. `quiet`: another log line says so."""
        verdict = Verdict(backend, model, mode, cause, self._clock() + seconds, server)
        self._known.pop((backend, model), None)
        if len(self._known) >= MOST:
            self._forget(min(self._known.values(), key=lambda known: known.until))
        self._known[backend, model] = verdict
        self._report(verdict)
        if cause != "accepted" and not quiet:
            LOG.warning(
                "backend %s, model %s: tools are done %s for %g s (%s)",
                quote(backend),
                quote(model),
                "by the server" if mode == "native" else "by the gateway",
                seconds,
                cause,
            )
        if self._folder is not None:
            _write(self._file(self._folder, backend, model), verdict)

    def claim(self, backend: str, model: str, seconds: float) -> bool:
        """Whether this worker is the first in `seconds` that wants to find out about a model."""
        if self._folder is None:
            return True
        file = self._file(self._folder, backend, model).with_suffix(".claim")
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            if file.exists() and time.time() - file.stat().st_mtime > seconds:
                file.unlink(missing_ok=True)
            file.touch(exist_ok=False)
        except FileExistsError:
            return False
        except OSError as error:
            LOG.warning("other workers may probe a model as well: %s", error)
        return True

    def shown(self) -> dict[str, dict[str, dict[str, Any]]]:
        """All that count now, by backend and model, for `/ready`."""
        known = dict(self._known)
        if self._folder is not None and self._folder.is_dir():
            files = sorted(self._folder.glob("*.json"))[:MOST]
            known = {(one.backend, one.model): one for one in map(_read, files) if one is not None}
        now = self._clock()
        out: dict[str, dict[str, dict[str, Any]]] = {}
        for (backend, model), one in sorted(known.items()):
            if one.until > now:
                left = {"mode": one.mode, "cause": one.cause, "for_s": round(one.until - now)}
                out.setdefault(backend, {})[model] = left
        return out

    def _valid(self, verdict: Verdict | None, server: str | None) -> Verdict | None:
        if verdict is None or verdict.until <= self._clock():
            return None
        return None if server is not None and verdict.server not in (None, server) else verdict

    def _forget(self, verdict: Verdict) -> None:
        del self._known[verdict.backend, verdict.model]
        if self._folder is not None:
            self._file(self._folder, verdict.backend, verdict.model).unlink(missing_ok=True)

    @staticmethod
    def _file(folder: Path, backend: str, model: str) -> Path:
        return folder / f"{sha256(orjson.dumps([backend, model])).hexdigest()[:32]}.json"


def of_all_tools(error: GatewayError) -> bool:
    """Whether a server that answered so takes no tools at all, and not just none of those that it was given."""
    return refuses_tools(error) and _OF_ONE_TOOL.search(error.message) is None


def _read(file: Path) -> Verdict | None:
    try:
        said: Mapping[str, Any] = orjson.loads(file.read_bytes())
        return Verdict(**said)
    except (OSError, ValueError, TypeError):  # it is not there, or half of it
        return None


def _write(file: Path, verdict: Verdict) -> None:
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(orjson.dumps(asdict(verdict)))
        fresh.replace(file)
    except OSError as error:
        LOG.warning("a verdict on tools is not shared with other workers: %s", error)
