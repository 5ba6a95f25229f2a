"""Debug captures: the last exchanges as they went, for a bug report (R18.4).

Rules of this module:

1. Off unless `capture.keep` is above 0; then the bytes are kept where they are read and written, so that every stream
   path is the same.
2. Secrets are covered before anything is written: the keys of the configuration and of the client, and what looks like
   one. Of headers only harmless ones are kept. What was said is kept: that is what a capture is for.
3. Memory is bounded by `capture.exchange_bytes` and `MOST_ENTRIES` for one exchange and `MEMORY_BYTES` for all that
   run; what is beyond is left out, and the capture says so.
4. Where exchanges are kept says a `Keeper`: each as one file, written by a thread, in a folder that the workers share
   (`CaptureFolder`), or the last ones in memory (`toolwire.extras.inspector.ring`). A key sees what it has asked
   itself; one with `admin` sees all.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import orjson
from aiohttp import web

from toolwire._version import __version__
from toolwire.config import CaptureConfig, GatewayConfig, RouteConfig, RouteOptions
from toolwire.errors import GatewayError
from toolwire.events import Event
from toolwire.extras.capture.files import Entry, Kind, write_capture
from toolwire.extras.capture.redaction import Redaction, known_secrets, words_of
from toolwire.fastparse import IMPLEMENTATION
from toolwire.model import EMPTY, ModelRequest
from toolwire.protocols.base import ServerSide, StreamWriter, WriteOptions
from toolwire.record import AccessRecord, BackendObserver, CallDecision, ReadRequest, ToolRun
from toolwire.registry import usual_server
from toolwire.support.conversion import to_mapping
from toolwire.upstream.servers.leaks import leaks_of
from toolwire.upstream.servers.private import NOTHING, Private, private_of

LOG: Final = logging.getLogger("toolwire.capture")

MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Of one worker, for exchanges that run."""

ENTRY_BYTES: Final = 320
"""What Python needs for an entry besides its data."""

MOST_ENTRIES: Final = 65_536
"""Of one exchange: a server that writes byte by byte fills the memory with entries."""

MODEL_CHARS: Final = 1000
"""Characters of a model's name that are kept."""

SUFFIX: Final = ".capture.jsonl"
_NAME: Final = re.compile(rf"[0-9]{{20}}-[0-9a-z]+-[0-9a-f]{{24}}-[\w.-]{{1,128}}{re.escape(SUFFIX)}", re.ASCII)
"""What is called otherwise in a chosen folder is not ours."""
EXCHANGE_ID: Final = web.RequestKey("toolwire.exchange_id", str)
"""Of an exchange that is recorded: the same for all keepers."""
HEADERS: Final = frozenset(
    (
        *("accept", "content-type", "content-encoding", "transfer-encoding", "user-agent"),
        *("x-request-id", "x-client-request-id", "server", "date"),
    )
)
"""Kept of requests and answers."""


class Keeper(Protocol):
    """Where exchanges go that are recorded."""

    def begun(self, capture: Capture) -> None:
        """The request was read, and is recorded from now on."""

    def ended(self, capture: Capture) -> None:
        """It is over, and nothing more is recorded. Called also for a request that was refused before it was read."""


class CaptureFolder:
    """A `Keeper`: the files of captures. `shared` is a folder of all workers, for those without `capture.folder`."""

    def __init__(self, config: CaptureConfig, shared: Path | None) -> None:
        self.keeps = config.keep
        self._chosen = Path(config.folder) if config.folder is not None else shared
        self._own: Path | None = None
        self._choosing = threading.Lock()  # threads that write at once must not make a folder each
        self._writing: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()

    def begun(self, capture: Capture) -> None:
        """See `Keeper`. Files are of what has ended."""

    def ended(self, capture: Capture) -> None:
        """See `Keeper`. Write it, soon: in a thread. It makes room for itself."""
        name = f"{time.time_ns():020d}-{short(capture.owner)}-{capture.exchange_id}-{capture.request_id}"
        task = asyncio.get_running_loop().create_task(self._write(name, capture.file))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def written(self) -> None:
        """Wait until what has ended is written."""
        await asyncio.gather(*self._writing)

    async def close(self) -> None:
        """Write what waits. A folder that nobody chose is removed."""
        await self.written()
        if self._own is not None:
            await asyncio.to_thread(shutil.rmtree, self._own, ignore_errors=True)

    # These read and write files: called in threads.

    def files(self, owner: str | None) -> list[Path]:
        """The captures, oldest first: those of this owner, or all."""
        found = sorted(path for path in self._folder().glob(f"*{SUFFIX}") if _NAME.fullmatch(path.name))
        return found if owner is None else [path for path in found if named(path).owner == short(owner)]

    def file(self, ident: str, owner: str | None) -> Path | None:
        """The capture with this exchange id, or the youngest one with this request id, which clients choose."""
        found = self.files(owner)
        same = [path for path in found if named(path).exchange_id == ident]
        return next((path for path in reversed(same or found) if ident in named(path)[2:]), None)

    def _folder(self) -> Path:
        with self._choosing:
            if self._chosen is None:
                self._chosen = self._own = Path(tempfile.mkdtemp(prefix="toolwire-captures-"))
        self._chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._chosen

    async def _write(self, name: str, make: Callable[[], bytes]) -> None:
        try:
            await asyncio.to_thread(self._write_file, name, make)
        except Exception as error:  # nothing that happens to a capture may happen to anybody else
            LOG.error("a capture could not be written: %s", error)

    def _write_file(self, name: str, make: Callable[[], bytes]) -> None:
        folder = self._folder()
        unfinished = folder / f"{os.getpid()}-{next(self._numbers)}.unfinished"
        with open(unfinished, "wb", opener=_private) as file:
            file.write(make())
        unfinished.rename(folder / f"{name}{SUFFIX}")
        for path in self.files(None)[: -self.keeps]:
            path.unlink(missing_ok=True)  # another worker may have been faster


class Captures:
    """Records the exchanges of an application for `keeper`."""

    def __init__(self, config: GatewayConfig, keeper: Keeper) -> None:
        self.exchange_bytes = config.capture.exchange_bytes
        self.keeper = keeper
        self.held_bytes = 0
        self.redaction = Redaction(known_secrets(config), config.capture.secrets)
        self.private = Private.together(map(private_of, config.backends.values()))
        self._config = config
        self._settings: dict[tuple[int, int], tuple[object, object, dict[str, Any]]] = {}
        self._backends: dict[str, dict[str, Any]] = {}

    def begin(self, request: web.Request, request_id: str) -> Capture:
        """An `Observe`."""
        return Capture(self, request, request_id)

    def settings_of(self, route: RouteConfig, options: RouteOptions) -> dict[str, Any]:
        """What of the configuration decides about an answer, in the form of the file: the same for all exchanges of a
        route, so never changed."""
        key = id(route), id(options)  # of which there are no more than routes, each in as many formats as there are
        known = self._settings.get(key)
        if known is None:
            known = self._settings[key] = route, options, self._made_settings(route, options)
        return known[2]

    def _made_settings(self, route: RouteConfig, options: RouteOptions) -> dict[str, Any]:
        chain = self._config.chain if route.chain is None else route.chain
        defaults = to_mapping(options)
        defaults.pop("prompt", None)  # it decides what the model is asked, not what becomes of its answer
        return {
            "limits": to_mapping(self._config.limits),
            "defaults": defaults,
            "chain": [entry.use for entry in chain],
            "upstream_model": route.upstream_model,
        }

    def backend(self, name: str) -> dict[str, Any]:
        """What a backend is, without where it is and how to get in. Never changed."""
        found = self._backends.get(name)
        if found is None:
            config = self._config.backends.get(name)
            found = {} if config is None else to_mapping(config)
            for key in ("url", "api_key", "headers", "script", "options", "template", "pool", "timeouts"):
                found.pop(key, None)
            self._backends[name] = found
        return found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def short(owner: str) -> str:
    """An owner in the name of a file."""
    return owner[:16] or "nobody"


class FileName(NamedTuple):
    """The content of a file name. `when` is Unix time in nanoseconds."""

    when: str
    owner: str
    exchange_id: str
    request_id: str


def named(path: Path) -> FileName:
    """Reads the name of a file."""
    return FileName(*path.name.removesuffix(SUFFIX).split("-", 3))


class Capture:
    """One exchange while it is recorded: an `ExchangeObserver`. `exchange_id` is its own; clients choose the
    `request_id`, and several exchanges may have the same one. `head` is that of the file, `record` what happened (None
    until the request was read), `bytes` what it holds of bodies, `began` Unix time in seconds."""

    def __init__(self, captures: Captures, request: web.Request, request_id: str) -> None:
        self.output: Callable[[bytes], None] | None = self._output
        if EXCHANGE_ID not in request:
            request[EXCHANGE_ID] = os.urandom(12).hex()
        self.exchange_id = request[EXCHANGE_ID]
        self.request_id = request_id
        self.owner = ""
        self.bytes = 0
        self.record: AccessRecord | None = None
        self.began = time.time()
        self._started = time.monotonic()
        self._ended: float | None = None
        self._captures = captures
        self._entries: list[Entry] = []
        self._left_out = 0
        self._calls = 0
        self._secrets: tuple[bytes, ...] = (presented_key(request),)
        self.head: dict[str, Any] = {
            "toolwire": __version__,
            "scanner": IMPLEMENTATION,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": request_id,
            "exchange_id": self.exchange_id,
            "path": self.covered(request.path),
            "headers": self.covered(harmless(request.headers)),
        }

    def read(self, read: ReadRequest, record: AccessRecord) -> None:
        """See `ExchangeObserver`."""
        self.owner, self.record = read.owner, record
        self._secrets += words_of(read.secrets)
        self.head |= {"endpoint": read.endpoint, "route": read.route.model}
        self.head["model"] = self.covered(read.request.model[:MODEL_CHARS])
        self.head["config"] = self._captures.settings_of(read.route, read.options)
        origin = read.request.origin
        if origin is not None:
            self.add("request", data=origin.body)
        self._captures.keeper.begun(self)

    def backend_call(self, backend: str, request: ModelRequest) -> CaptureOfCall:
        """See `ExchangeObserver`."""
        self._calls += 1
        self.head.setdefault("backend", self._captures.backend(backend))
        return CaptureOfCall(self, self._calls, backend, request)

    def tool(self, name: str, call_id: str, arguments: str) -> CaptureOfTool:
        """See `ExchangeObserver`."""
        return CaptureOfTool(self, name, call_id, arguments)

    def decided(self, decision: CallDecision) -> None:
        """See `ExchangeObserver`. Changed arguments are the data of the entry."""
        fields = {name: getattr(decision, name) for name in ("choice", "name", "why", "notes", "start", "end", "index")}
        fields = {name: value for name, value in fields.items() if value not in (None, "", ())}
        data = (decision.arguments or "").encode(errors="replace")
        self.add("decision", self._calls, data, {"decided": decision.kind, **fields})

    def ended(self, record: AccessRecord) -> None:
        """See `ExchangeObserver`."""
        self.record = record
        self._captures.held_bytes -= self.bytes
        done = record.notes.get("tool_mode")
        if done is not None and "config" in self.head:  # run again, it knows nothing of what was known of the model
            config, mode = self.head["config"], "hybrid" if record.counts["mode_switches"] else done
            self.head["config"] = {**config, "defaults": {**config["defaults"], "mode": mode}}
        times = {"total_ms": round(self.seconds * 1000, 2), "backend_ms": round(record.waited * 1000, 2)}
        end = {"status": record.status, "code": record.code, **times, **record.fields}
        self.add("end", fields={name: value for name, value in end.items() if value is not None})
        self._ended = time.monotonic()
        self._captures.keeper.ended(self)

    @property
    def size(self) -> int:
        """The memory that it holds, in bytes, about."""
        return self.bytes + ENTRY_BYTES * len(self._entries)

    def file(self) -> bytes:
        """All that is recorded by now, in the form of a file, with secrets covered."""
        head = {**self.head, "left_out_bytes": self._left_out} if self._left_out else self.head
        if self.running and self.record is not None:
            head = {**head, "so_far": self.covered(self.record.fields)}
        captures = self._captures
        return write_capture(head, cover(tuple(self._entries), captures.redaction, self._secrets, captures.private))

    def add(self, kind: Kind, call: int = 0, data: bytes = b"", fields: Mapping[str, Any] = EMPTY) -> None:
        """Record it, unless it is too much."""
        captures, size = self._captures, len(data)
        if self._ended is not None:
            return
        full = self.bytes + size > captures.exchange_bytes or captures.held_bytes + size > MEMORY_BYTES
        if size and (full or len(self._entries) >= MOST_ENTRIES):
            self._left_out += size
            return
        if size:  # an entry without data may come from a thread
            self.bytes += size
            captures.held_bytes += size
        self._entries.append(Entry(kind, self.seconds, call, data, fields))

    @property
    def running(self) -> bool:
        """It goes on."""
        return self._ended is None

    @property
    def seconds(self) -> float:
        """Since it began; of one that has ended, how long it took."""
        return (time.monotonic() if self._ended is None else self._ended) - self._started

    def covered(self, value: Any) -> Any:
        """A value of JSON without secrets."""
        return self._captures.redaction.value(value, *self._secrets)

    def _output(self, data: bytes) -> None:
        self.add("output", data=data)


class CaptureOfCall(BackendObserver):
    """A call of a backend while it is recorded. One of a backend without bytes, in the words of the usual protocol."""

    def __init__(self, capture: Capture, number: int, backend: str, request: ModelRequest) -> None:
        self._capture = capture
        self._number = number
        self._backend = backend
        self._request = request
        self._has_bytes = False
        self._writer: StreamWriter | None = None

    def sent(self, body: bytes) -> None:
        """See `BackendObserver`."""
        self._has_bytes = True
        self._capture.add("sent", self._number, body, {"backend": self._backend})

    def rendered(self, prompt: str) -> None:
        """See `BackendObserver`."""
        self._capture.add("prompt", self._number, prompt.encode(errors="replace"))

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """See `BackendObserver`."""
        self._capture.add("answered", self._number, fields={"status": status, "headers": harmless(headers)})

    def received(self, data: bytes) -> None:
        """See `BackendObserver`."""
        self._capture.add("received", self._number, bytes(data))

    def event(self, event: Event) -> None:
        """See `BackendObserver`."""
        if self._has_bytes:
            return
        if self._writer is None:
            self._writer = self._without_bytes()
        data = self._writer.feed((event,))
        if data:
            self._capture.add("received", self._number, data)

    def _without_bytes(self) -> StreamWriter:
        """Record what a server with bytes would have been sent, and the head of its answer."""
        server = self._ask()
        head = {"status": 200, "headers": {"content-type": "text/event-stream"}}
        self._capture.add("answered", self._number, fields=head)
        return server.writer(WriteOptions(request=self._request, created=int(self._capture.began)))

    def _ask(self) -> ServerSide:
        server = usual_server()
        asked = orjson.dumps(server.write_request(self._request), default=dict)
        self._capture.add("sent", self._number, asked, {"backend": self._backend})
        return server

    def failed(self, error: BaseException) -> None:
        """See `BackendObserver`."""
        if not self._has_bytes and self._writer is None:
            self._ask()
        code = error.code if isinstance(error, GatewayError) else type(error).__name__
        self._capture.add("failed", self._number, fields={"code": code, "message": str(error)})


class CaptureOfTool(ToolRun):
    """A server-side execution while it is recorded."""

    def __init__(self, capture: Capture, name: str, call_id: str, arguments: str) -> None:
        self._capture = capture
        self._began = capture.seconds
        self._fields = {"name": name, "call_id": call_id, "arguments": arguments}

    def ended(self, state: str, result: str) -> None:
        """See `ToolRun`."""
        took = {"seconds": round(self._capture.seconds - self._began, 6)}
        self._capture.add("tool", fields={**self._fields, **took, "state": state, "result": result})


# --- secrets --------------------------------------------------------------------------------------------------------


def harmless(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are kept."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in HEADERS}


def presented_key(request: web.Request) -> bytes:
    """The key that the client sent, if it sent one."""
    found = request.headers.get("x-api-key") or request.headers.get("Authorization", "").rpartition(" ")[2]
    return found.encode(errors="backslashreplace")


def cover(
    entries: Sequence[Entry], redaction: Redaction, keys: Sequence[bytes], private: Private = NOTHING
) -> Iterator[Entry]:
    """The entries with secrets covered, among them `keys`. A secret that is cut by the end of a read is found too; and
    where a model server spells out one of `private`, piece by piece, all that it says from there on is covered, as it
    was withheld from the client."""
    streams: dict[tuple[Kind, int], list[int]] = {}
    for index, entry in enumerate(entries):
        streams.setdefault((entry.kind, entry.call), []).append(index)
    covered: dict[int, bytes] = {}
    for (kind, _), indices in streams.items():
        whole = redaction.data(b"".join(entries[index].data for index in indices), *keys)
        if kind == "received" and (leaks := leaks_of(private)) is not None:
            whole = leaks.frames(whole).ljust(len(whole), b"*")
        at = 0
        for index in indices:
            size = len(entries[index].data)
            covered[index] = whole[at : at + size]
            at += size
    for index, entry in enumerate(entries):
        yield Entry(entry.kind, entry.at, entry.call, covered[index], redaction.value(dict(entry.fields), *keys))
