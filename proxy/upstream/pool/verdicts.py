"""Verdicts: for each model of each server, whether the server or the gateway handles tools (R24.1).

Rules:

1. A verdict applies to all clients. So a verdict that the server needs the gateway is stored only after the gateway's
   own probe. A client's request that was refused, and accepted in the other mode, only triggers a probe.
2. It is forgotten when it expires, and when the server reports another identity.
3. Workers share verdicts in small files in a common folder, one per model; the newest counts. A worker that already
   knows that the gateway reads a model's calls does not look there.
4. At most `MOST` verdicts are stored; beyond that the one that expires first is removed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from ...errors import quote

LOG: Final = logging.getLogger("toolwire.tool_mode")

MOST: Final = 256

Mode = Literal["native", "prompt", "template"]
Cause = Literal["accepted", "called", "refused", "near_miss", "silent", "shown", "unseen", "read"]
"""The reason of a verdict. `accepted`: the server accepted tools; `called`: it called the probe's tool; `refused`: it
refused tools; `near_miss`: its answer contained an attempted call; `silent`: it did not call the probe's tool. Template
probes also: the tool was in the prompt (`shown`) or not (`unseen`), or the server parsed the call itself (`read`)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on one model. `until` is a time of the monotonic clock, which all processes of a machine share.
    `server` is the identity that the server reported, if any."""

    backend: str
    model: str
    mode: Mode
    cause: Cause
    until: float
    server: str | None = None


class Verdicts:
    """The verdicts of an application; with a `folder`, of all its workers. `report` is called with each new verdict."""

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
        """Returns the valid verdict on a model, or None. `server`: the identity that the server reports now, if any."""
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
        """Stores a verdict for `seconds`. `quiet`: it is not logged here."""
        verdict = Verdict(backend, model, mode, cause, self._clock() + seconds, server)
        self._known.pop((backend, model), None)
        if len(self._known) >= MOST:
            self._forget(min(self._known.values(), key=lambda known: known.until))
        self._known[backend, model] = verdict
        self._report(verdict)
        if cause != "accepted" and not quiet:
            LOG.warning(
                "backend %s, model %s: tools are handled %s for %g s (%s)",
                quote(backend),
                quote(model),
                "by the server" if mode == "native" else "by the gateway",
                seconds,
                cause,
            )
        if self._folder is not None:
            _write(self._file(self._folder, backend, model), verdict)

    def claim(self, backend: str, model: str, seconds: float) -> bool:
        """True if this worker is the first within `seconds` to probe a model."""
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
        """Returns all valid verdicts by backend and model, for `/ready`."""
        known = dict(self._known)
        if self._folder is not None and self._folder.is_dir():
            files = sorted(self._folder.glob("*.json"))[:MOST]
            known = {(verdict.backend, verdict.model): verdict for verdict in map(_read, files) if verdict is not None}
        now = self._clock()
        out: dict[str, dict[str, dict[str, Any]]] = {}
        for (backend, model), verdict in sorted(known.items()):
            if verdict.until > now:
                left = {"mode": verdict.mode, "cause": verdict.cause, "for_s": round(verdict.until - now)}
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


def _read(file: Path) -> Verdict | None:
    try:
        fields: Mapping[str, Any] = orjson.loads(file.read_bytes())
        return Verdict(**fields)
    except (OSError, ValueError, TypeError):  # the file is missing or incomplete
        return None


def _write(file: Path, verdict: Verdict) -> None:
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(orjson.dumps(asdict(verdict)))
        fresh.replace(file)
    except OSError as error:
        LOG.warning("a verdict on tools is not shared with other workers: %s", error)
