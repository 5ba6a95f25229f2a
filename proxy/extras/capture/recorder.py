"""Debug captures: records the latest exchanges, for bug reports (R18.4).

Rules:

1. Recording is off unless `capture.keep` is above 0. Bytes are recorded where they are read and written, so recording
   changes no path of a stream.
2. Secrets are replaced by stars before anything is written: the keys of the configuration and of the client, and texts
   that look like keys. Only harmless headers are recorded. The conversation itself is recorded, because that is the
   purpose.
3. Memory is limited by `capture.exchange_bytes` and `MOST_ENTRIES` for one exchange and by `MEMORY_BYTES` for all
   running ones. Data beyond the limits is left out, and the capture says so.
4. A `CaptureStorage` stores the exchanges: as files written by a thread in a folder that the workers share
   (`CaptureFolder`), or the latest in memory (`toolwire.extras.inspector.ring`). A client key sees its own exchanges; a
   key with `admin` sees all.
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import orjson
from aiohttp import web

from ..._version import __version__
from ...config import CaptureConfig, GatewayConfig, RouteConfig, RouteOptions
from ...errors import GatewayError
from ...events import Event, Finish
from ...fastparse import IMPLEMENTATION
from ...model import EMPTY, ModelRequest
from ...observability.redaction import Redaction, known_secrets, words_of
from ...pipeline.sending.delivery import OWNER
from ...protocols.base import ServerSide
from ...protocols.streams import StreamWriter, WriteOptions
from ...record import AccessRecord, BackendObserver, CallDecision, ReadRequest, ToolRun
from ...registry import usual_server
from ...support.conversion import to_mapping
from ...support.tasks import BackgroundTasks
from ...upstream.servers.private_data import PrivateData, private_of
from .files import Entry, Kind, write_capture
from .heading import question_of, session_of
from .masking import harmless_headers, mask_secrets, presented_key
from .verdict import CallOutcome, error_text, judge

LOG: Final = logging.getLogger("toolwire.capture")

MEMORY_BYTES: Final = 64 * 1024 * 1024
"""Maximum memory of one worker for the captures of running exchanges."""

ENTRY_BYTES: Final = 320
"""The memory that Python needs for an entry, besides its data."""

MOST_ENTRIES: Final = 65_536
"""Maximum number of entries of one exchange, because a server that writes single bytes would fill the memory with
them."""

FINISH_S: Final = 1.0
"""Maximum wait for the end of an exchange whose capture is requested."""

MODEL_CHARS: Final = 1000
"""Maximum number of characters of a model's recorded name."""

MESSAGE_CHARS: Final = 500
"""Maximum number of characters of an error message in a verdict."""

SUFFIX: Final = ".capture.jsonl"
_NAME: Final = re.compile(rf"[0-9]{{20}}-[0-9a-z]+-[0-9a-f]{{24}}-[\w.-]{{1,128}}{re.escape(SUFFIX)}", re.ASCII)
"""Files with other names in a chosen folder are ignored."""
EXCHANGE_ID: Final = web.RequestKey("toolwire.exchange_id", str)
"""The id of a recorded exchange; the same for all storages."""


class CaptureStorage(Protocol):
    """Stores recorded exchanges."""

    def begun(self, capture: Capture) -> None:
        """Called when the request has been read and is recorded."""

    def ended(self, capture: Capture) -> None:
        """Called when the exchange is over and nothing more is recorded; also for a request that was refused before it
        was read."""


class CaptureFolder:
    """A `CaptureStorage` that writes each capture to a file. `shared` is the folder of all workers if `capture.folder`
    is not set."""

    def __init__(self, config: CaptureConfig, shared: Path | None) -> None:
        self.keeps = config.keep
        self._chosen = Path(config.folder) if config.folder is not None else shared
        self._own: Path | None = None
        self._choosing = threading.Lock()  # keeps two threads that write at the same time from creating a folder each
        self._running: set[Capture] = set()
        self._ended = asyncio.Event()
        self._writing = BackgroundTasks()
        self._numbers = itertools.count()

    def begun(self, capture: Capture) -> None:
        """Notes a running exchange. Its file is written at its end."""
        self._running.add(capture)

    def ended(self, capture: Capture) -> None:
        """Writes the capture in a thread, and deletes the oldest ones."""
        self._running.discard(capture)
        self._ended.set()
        name = f"{time.time_ns():020d}-{short(capture.owner)}-{capture.exchange_id}-{capture.request_id}"
        self._writing.start(self._write(name, capture.file))

    async def written(self) -> None:
        """Waits until all ended captures are written."""
        await self._writing.ended()

    async def finished(self, ident: str, owner: str | None) -> None:
        """Waits a moment for the end of this owner's running exchange with this id, and until its capture is written: a
        client has its answer a little before the exchange has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                while any(
                    ident in (one.exchange_id, one.request_id) and owner in (None, one.owner) for one in self._running
                ):
                    self._ended.clear()
                    await self._ended.wait()
        await self.written()

    async def close(self) -> None:
        """Waits for pending writes. Removes the folder if it is a temporary one."""
        await self.written()
        if self._own is not None:
            await asyncio.to_thread(shutil.rmtree, self._own, ignore_errors=True)

    # These methods read and write files, and are called in threads.

    def files(self, owner: str | None) -> list[Path]:
        """Returns the captures of this owner, or all if None; oldest first."""
        paths = sorted(path for path in self._folder().glob(f"*{SUFFIX}") if _NAME.fullmatch(path.name))
        return paths if owner is None else [path for path in paths if named(path).owner == short(owner)]

    def file(self, ident: str, owner: str | None) -> Path | None:
        """Returns the capture with this exchange id, else the latest with this request id (which clients choose), else
        None."""
        paths = self.files(owner)
        same = [path for path in paths if named(path).exchange_id == ident]
        return next((path for path in reversed(same or paths) if ident in named(path)[2:]), None)

    def _folder(self) -> Path:
        with self._choosing:
            if self._chosen is None:
                self._chosen = self._own = Path(tempfile.mkdtemp(prefix="toolwire-captures-"))
        self._chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._chosen

    async def _write(self, name: str, make: Callable[[], bytes]) -> None:
        try:
            await asyncio.to_thread(self._write_file, name, make)
        except Exception as error:  # a failed capture must not affect the exchange
            LOG.error("a capture could not be written: %s", error)

    def _write_file(self, name: str, make: Callable[[], bytes]) -> None:
        folder = self._folder()
        unfinished = folder / f"{os.getpid()}-{next(self._numbers)}.unfinished"
        try:
            with open(unfinished, "wb", opener=_private) as file:
                file.write(make())
            unfinished.rename(folder / f"{name}{SUFFIX}")
        finally:
            unfinished.unlink(missing_ok=True)  # if the disk is full, the next capture needs its room
        for path in self.files(None)[: -self.keeps]:
            path.unlink(missing_ok=True)  # another worker may have deleted it


class Captures:
    """Records the exchanges of an application and passes them to `keeper`, which stores them."""

    def __init__(self, config: GatewayConfig, keeper: CaptureStorage) -> None:
        self.exchange_bytes = config.capture.exchange_bytes
        self.keeper = keeper
        self.held_bytes = 0
        self.redaction = Redaction(known_secrets(config), config.capture.secrets)
        self.private = PrivateData.together(map(private_of, config.backends.values()))
        self._config = config
        self._settings: dict[tuple[int, int], tuple[object, object, dict[str, Any]]] = {}
        self._backends: dict[str, dict[str, Any]] = {}

    def begin(self, request: web.Request, request_id: str) -> Capture:
        """Starts to record a request. An `Observe`."""
        return Capture(self, request, request_id)

    def settings_of(self, route: RouteConfig, options: RouteOptions) -> dict[str, Any]:
        """Returns the configuration that affects answers of a route, as the file stores it. It is shared by all
        exchanges of the route: do not change it."""
        key = id(route), id(options)  # bounded: there are as many keys as routes and formats
        known = self._settings.get(key)
        if known is None:
            known = self._settings[key] = route, options, self._made_settings(route, options)
        return known[2]

    def _made_settings(self, route: RouteConfig, options: RouteOptions) -> dict[str, Any]:
        chain = self._config.chain if route.chain is None else route.chain
        defaults = to_mapping(options)
        defaults.pop("prompt", None)  # affects the prompt, not how an answer is read
        return {
            "limits": to_mapping(self._config.limits),
            "defaults": defaults,
            "chain": [entry.use for entry in chain],
            "upstream_model": route.upstream_model,
        }

    def backend(self, name: str) -> dict[str, Any]:
        """Returns a backend's configuration without its address and credentials; empty if unknown. Do not change it."""
        settings = self._backends.get(name)
        if settings is None:
            config = self._config.backends.get(name)
            settings = {} if config is None else to_mapping(config)
            for key in ("url", "api_key", "headers", "script", "options", "template", "pool", "timeouts"):
                settings.pop(key, None)
            self._backends[name] = settings
        return settings


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def short(owner: str) -> str:
    """Returns the part of an owner's hash that file names contain; `nobody` without keys."""
    return owner[:16] or "nobody"


class FileName(NamedTuple):
    """The parts of a file name. `when` is Unix time in nanoseconds."""

    when: str
    owner: str
    exchange_id: str
    request_id: str


def named(path: Path) -> FileName:
    """Returns the parts of a capture's file name."""
    return FileName(*path.name.removesuffix(SUFFIX).split("-", 3))


class Capture:
    """One exchange while it is recorded. An `ExchangeObserver`. `exchange_id` is unique; `request_id` is chosen by the
    client, and several exchanges may share it. `head` is the head of the file, `record` the access record (None
    until the request was read), `bytes` the size of the recorded bodies, `began` Unix time in seconds. `outcomes` has
    one entry for each backend call."""

    def __init__(self, captures: Captures, request: web.Request, request_id: str) -> None:
        self.output: Callable[[bytes], None] | None = self._output
        if EXCHANGE_ID not in request:
            request[EXCHANGE_ID] = os.urandom(12).hex()
        self.exchange_id = request[EXCHANGE_ID]
        self.request_id = request_id
        self.owner = request.get(OWNER, "")
        self.bytes = 0
        self.record: AccessRecord | None = None
        self.began = time.time()
        self._started = time.monotonic()
        self._ended: float | None = None
        self._captures = captures
        self._entries: list[Entry] = []
        self._left_out = 0
        self.outcomes: list[CallOutcome] = []
        self._offered: str | None = None  # the mode of the tool choice, if there are tools
        self._end: dict[str, Any] | None = None
        self._secrets: tuple[bytes, ...] = (presented_key(request),)
        self.head: dict[str, Any] = {
            "toolwire": __version__,
            "scanner": IMPLEMENTATION,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": request_id,
            "exchange_id": self.exchange_id,
            "path": self.covered(request.path),
            "headers": self.covered(harmless_headers(request.headers)),
        }
        self._headers = request.headers
        self._note("session", session_of(self._headers, None, self.covered))

    def read(self, read: ReadRequest, record: AccessRecord) -> None:
        """Records the request body and its settings, after it was read."""
        self.owner, self.record = read.owner, record
        self._secrets += words_of(read.secrets)
        self.head |= {"endpoint": read.endpoint, "route": read.route.model}
        self.head["model"] = self.covered(read.request.model[:MODEL_CHARS])
        self.head["config"] = self._captures.settings_of(read.route, read.options)
        self._note("session", session_of(self._headers, read.request, self.covered))
        self._note("question", question_of(read.request, self.covered))
        if read.request.tools:
            self._offered = read.request.tool_choice.mode
        origin = read.request.origin
        if origin is not None:
            self.add("request", data=origin.body)
        self._captures.keeper.begun(self)

    def backend_call(self, backend: str, request: ModelRequest) -> CaptureOfCall:
        """Returns the recorder of a new backend call."""
        self.outcomes.append(CallOutcome())
        self.head.setdefault("backend", self._captures.backend(backend))
        return CaptureOfCall(self, len(self.outcomes), backend, request)

    def tool(self, name: str, call_id: str, arguments: str) -> CaptureOfTool:
        """Returns the recorder of an execution of a server-side tool."""
        self._offered = self._offered or "auto"
        return CaptureOfTool(self, name, call_id, arguments)

    def decided(self, decision: CallDecision) -> None:
        """See `ExchangeObserver`. Changed arguments are the data of the entry."""
        if self.outcomes:
            self.outcomes[-1].add(decision)
        fields = {name: getattr(decision, name) for name in ("choice", "name", "why", "notes", "start", "end", "index")}
        fields = {name: value for name, value in fields.items() if value not in (None, "", ())}
        data = (decision.arguments or "").encode(errors="replace")
        self.add("decision", len(self.outcomes), data, {"decided": decision.kind, **fields})

    def ended(self, record: AccessRecord) -> None:
        """Records the outcome, and hands the capture to the storage."""
        self.record = record
        self._captures.held_bytes -= self.bytes
        mode_used = record.notes.get("tool_mode")
        if mode_used is not None and "config" in self.head:  # a replay does not know the model, so the mode is stored
            config, mode = self.head["config"], "hybrid" if record.counts["mode_switches"] else mode_used
            self.head["config"] = {**config, "defaults": {**config["defaults"], "mode": mode}}
        self._end = self._fields(record)
        self.add("end", fields=self._end)
        self._ended = time.monotonic()
        self._captures.keeper.ended(self)

    @property
    def fields(self) -> Mapping[str, Any]:
        """The outcome, as far as it is known: status, times, the verdict, and the fields of the access line."""
        if self._end is not None:
            return self._end
        return {} if self.record is None else {**self.record.fields, "stream": self.record.stream}

    def _fields(self, record: AccessRecord) -> dict[str, Any]:
        first = None if record.first_byte is None else round((record.first_byte - record.started) * 1000, 2)
        verdict = judge(
            self.outcomes,
            offered=self._offered is not None,
            choice=self._offered or "auto",
            code=record.code,
            message=record.message[:MESSAGE_CHARS],
            written=record.written,
        )
        said = {} if verdict is None else {"verdict": verdict.kind, "why": self.covered(verdict.sentence)}
        fields = {
            "status": record.status,
            "code": record.code,
            "stream": record.stream,
            "total_ms": round(self.seconds * 1000, 2),
            "backend_ms": round(record.waited * 1000, 2),
            "first_byte_ms": first,
            **record.fields,
            **said,
        }
        if verdict is not None and verdict.called:
            fields["called"] = self.covered(list(verdict.called))
        return {name: value for name, value in fields.items() if value is not None}

    def _note(self, name: str, value: str) -> None:
        if value:
            self.head[name] = value

    @property
    def size(self) -> int:
        """The memory in use, in bytes (an estimate)."""
        return self.bytes + ENTRY_BYTES * len(self._entries)

    def file(self) -> bytes:
        """Returns everything recorded so far as the content of a file, with secrets replaced."""
        head = {**self.head, "left_out_bytes": self._left_out} if self._left_out else self.head
        if self.running and self.record is not None:
            head = {**head, "so_far": self.covered(self.fields)}
        captures = self._captures
        return write_capture(
            head, mask_secrets(tuple(self._entries), captures.redaction, self._secrets, captures.private)
        )

    def add(self, kind: Kind, call: int = 0, data: bytes = b"", fields: Mapping[str, Any] = EMPTY) -> None:
        """Records an entry, unless a limit is reached."""
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
        """True until the exchange has ended."""
        return self._ended is None

    @property
    def seconds(self) -> float:
        """The seconds since the start; for an ended exchange its duration."""
        return (time.monotonic() if self._ended is None else self._ended) - self._started

    def covered(self, value: Any) -> Any:
        """Returns a JSON value with secrets replaced."""
        return self._captures.redaction.value(value, *self._secrets)

    def _output(self, data: bytes) -> None:
        self.add("output", data=data)


class CaptureOfCall(BackendObserver):
    """Records one call of a backend. For a backend without HTTP bodies (a mock, for example) it writes the events in
    the usual protocol."""

    def __init__(self, capture: Capture, number: int, backend: str, request: ModelRequest) -> None:
        self._capture = capture
        self._number = number
        self._outcome = capture.outcomes[number - 1]
        self._backend = backend
        self._request = request
        self._has_bytes = False
        self._writer: StreamWriter | None = None

    def sent(self, body: bytes) -> None:
        """Records the body sent to the server."""
        self._has_bytes = True
        self._capture.add("sent", self._number, body, {"backend": self._backend})

    def rendered(self, prompt: str) -> None:
        """Records the prompt of a text-only model."""
        self._capture.add("prompt", self._number, prompt.encode(errors="replace"))

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """Records status and headers of the response."""
        self._outcome.status = status
        self._capture.add("answered", self._number, fields={"status": status, "headers": harmless_headers(headers)})

    def received(self, data: bytes) -> None:
        """Records bytes of the response."""
        self._capture.add("received", self._number, bytes(data))

    def event(self, event: Event) -> None:
        """Notes the finish reason of the answer. Of a backend without HTTP bodies it also records the event, in the
        usual protocol."""
        if isinstance(event, Finish):
            self._outcome.reason = event.reason
        if self._has_bytes:
            return
        if self._writer is None:
            self._writer = self._without_bytes()
        data = self._writer.feed((event,))
        if data:
            self._capture.add("received", self._number, data)

    def _without_bytes(self) -> StreamWriter:
        """Records the request and the response head in the usual protocol. Returns a writer for the events."""
        server = self._record_request()
        head = {"status": 200, "headers": {"content-type": "text/event-stream"}}
        self._capture.add("answered", self._number, fields=head)
        return server.writer(WriteOptions(request=self._request, created=int(self._capture.began)))

    def _record_request(self) -> ServerSide:
        server = usual_server()
        body = orjson.dumps(server.write_request(self._request), default=dict)
        self._capture.add("sent", self._number, body, {"backend": self._backend})
        return server

    def failed(self, error: BaseException) -> None:
        """Records the error of a failed call."""
        if not self._has_bytes and self._writer is None:
            self._record_request()
        code = error.code if isinstance(error, GatewayError) else type(error).__name__
        self._outcome.status = self._outcome.status or getattr(error, "upstream_status", None) or 0
        self._outcome.failure = error_text(code, str(error)[:MESSAGE_CHARS])
        self._capture.add("failed", self._number, fields={"code": code, "message": str(error)})


class CaptureOfTool(ToolRun):
    """Records one execution of a server-side tool."""

    def __init__(self, capture: Capture, name: str, call_id: str, arguments: str) -> None:
        self._capture = capture
        self._began = capture.seconds
        self._fields = {"name": name, "call_id": call_id, "arguments": arguments}

    def ended(self, state: str, result: str) -> None:
        """Records the end of the execution: its state and its result."""
        took = {"seconds": round(self._capture.seconds - self._began, 6)}
        self._capture.add("tool", fields={**self._fields, **took, "state": state, "result": result})
