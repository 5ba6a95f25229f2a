"""The record of one exchange (`AccessRecord`) and the interfaces of its observers: traces
(`toolwire.extras.otel.tracing`) and captures (`toolwire.extras.capture.recorder`).

Rules:

1. Every layer writes to the record, so this module stands below all of them: it gets names and requests, never the
   exchange, a backend or a route, and does not know metrics.
2. Observers are off unless configured; then the record has none and nothing is called. Observers change nothing, never
   wait and never raise: they handle their own errors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from .config import RouteConfig, RouteOptions
from .errors import GatewayError
from .events import BlockKind, Event
from .model import ModelRequest

if TYPE_CHECKING:
    from aiohttp import web

LOG: Final = logging.getLogger("toolwire.tolerated")

TOLERATED: Final = "tolerated"
"""Name of the counter of tolerances; the label is the tolerance's name (`toolwire.tolerances`)."""


@dataclass(frozen=True, slots=True)
class CounterSpec:
    """A counter on the metrics page: its name (`toolwire_..._total`), its meaning, its only label, if any, and the
    label's known values. Label values are few: never a tool, a model or a key. `by_model` adds the labels `route` and
    `model`."""

    name: str
    meaning: str
    label: str | None = None
    values: tuple[str, ...] = ()
    by_model: bool = False


@dataclass(frozen=True, slots=True)
class AccessField:
    """A field of the access line that is counted or noted in `AccessRecord`: its name and meaning.

    `counter` is increased by the field's count as well. If it has a label, the label's value is `value`, or comes from
    `AccessRecord.label` if `value` is None.
    """

    name: str
    meaning: str
    counter: CounterSpec | None = None
    value: str | None = None


class Counts(dict[str, int]):
    """Counts by name; 0 for names that were not counted."""

    def __missing__(self, name: str) -> int:
        return 0


class AccessRecord:
    """The record of one exchange: counted and noted along the way, logged once at the end.

    Times are seconds on the monotonic clock. `waited` is the time spent waiting for the backend; the rest of the total
    is the gateway's own overhead. `queued` is the part of the overhead spent waiting in the queue, `prepared` the
    moment of the first request to a backend. `route` and `model` are those of the metrics: a pattern of the
    configuration, and a model name that the configuration or a server knows, `other` for all else, `none` before they
    are known. `error`, `code` and `message` are those of the error that ended the exchange; the message is for
    observers only, since it may quote the request. `written` holds the kinds of blocks with content in the last
    answer, as far as anybody observes; None if nothing is known. `observers` are traces and captures, usually none.
    """

    __slots__ = (
        "code",
        "counts",
        "error",
        "failures",
        "first_byte",
        "labelled",
        "message",
        "model",
        "notes",
        "observers",
        "prepared",
        "queued",
        "route",
        "started",
        "status",
        "stream",
        "waited",
        "written",
    )

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.first_byte: float | None = None
        self.prepared: float | None = None
        self.queued = 0.0
        self.waited = 0.0
        self.status = 0
        self.route = self.model = "none"
        self.stream = False
        self.error: str | None = None
        self.code: str | None = None
        self.message = ""
        self.written: set[BlockKind] | None = None
        self.counts = Counts()
        self.labelled: dict[tuple[str, str], int] = {}
        self.failures: list[tuple[GatewayError, str]] = []
        self.notes: dict[str, Any] = {}
        self.observers: Sequence[ExchangeObserver] = ()

    def count(self, name: str, by: int = 1) -> None:
        """Increases a counter, such as `calls` or `repaired`."""
        self.counts[name] = self.counts.get(name, 0) + by

    def label(self, name: str, label: str) -> None:
        """Counts one occurrence of `label` under the counted field `name`, for metrics. Only fields with a counter
        (`AccessField`) reach the metrics."""
        self.labelled[name, label] = self.labelled.get((name, label), 0) + 1

    def tolerate(self, name: str, detail: str, request_id: str) -> None:
        """Logs and counts a tolerated oddity of the request, once per exchange and name. `name` is one of
        `toolwire.tolerances`; `detail` is for the log."""
        if (TOLERATED, name) in self.labelled:
            return
        self.count("tolerated")
        self.label(TOLERATED, name)
        self.note("tolerances", ",".join(self.tolerances))
        LOG.warning("request %s: %s: %s", request_id, name, detail)

    @property
    def tolerances(self) -> list[str]:
        """Sorted names of all tolerances of this exchange."""
        return sorted(label for name, label in self.labelled if name == TOLERATED)

    @property
    def fields(self) -> dict[str, Any]:
        """All notes and counts by name."""
        if not self.labelled:
            return {**self.notes, **self.counts}
        forms = [label for name, label in self.labelled if name == "recognised"]
        notes = {**self.notes, "form": ",".join(sorted(forms))} if forms else self.notes
        return {**notes, **self.counts}

    def backend_failed(self, error: GatewayError, backend: str) -> None:
        """Counts a failed call of this backend, whether or not the exchange ends with it."""
        self.count("backend_errors")
        self.failures.append((error, backend))

    def ended_by(self, error: GatewayError) -> None:
        """Records the error that ends the exchange. An upstream error that was not counted yet, because the answer
        broke off, is counted as a failure of the backend."""
        self.error, self.code, self.message = error.type, error.code, error.message
        if error.type == "upstream_error" and all(error is not known for known, _ in self.failures):
            self.backend_failed(error, self.notes.get("backend", ""))

    def note(self, key: str, value: Any) -> None:
        """Sets a value for the log line; None is ignored. Never a prompt, an argument or a key."""
        if value is not None:
            self.notes[key] = value

    def decided(self, decision: CallDecision) -> None:
        """Reports a decision to the observers."""
        for observer in self.observers:
            observer.decided(decision)

    def wrote(self) -> None:
        """Notes the time of the answer's first byte; later calls have no effect."""
        if self.first_byte is None:
            self.first_byte = time.monotonic()


class BackendObserver:
    """Observes one call of a backend, from before it is opened to its end. The methods do nothing; override the ones
    you need."""

    def headers(self) -> Mapping[str, str]:
        """Returns additional request headers, such as those of a trace."""
        return {}

    def sent(self, body: bytes) -> None:
        """The request body was sent to the server. Not called for backends without wire bytes."""

    def rendered(self, prompt: str) -> None:
        """The prompt that the server's chat template made of the body (R31.1a). Only called if the server can report
        it."""

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer was received."""

    def received(self, data: bytes) -> None:
        """The next bytes of the answer's body were read."""

    def event(self, event: Event) -> None:
        """An event of the answer was read. Not called if the answer's bytes are sent to the client unread."""

    def failed(self, error: BaseException) -> None:
        """The call could not be made, or the answer broke off."""

    def closed(self) -> None:
        """The call is over. Always the last method called, possibly some time after the answer's end."""


COMPLETED: Final = "TOOL_COMPLETED"
"""State of a successful execution."""


class ToolRun(Protocol):
    """A server-side tool execution, as its observer sees it."""

    def ended(self, state: str, result: str) -> None:
        """The execution ended with this state (a label of `tool_executions_total`) and this result for the model."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request that was read: the client's wire format, its route, its owner (a hash of the key; empty without keys),
    and the request. `secrets` are the client's credentials for other servers, which must not be recorded."""

    endpoint: str
    route: RouteConfig
    options: RouteOptions
    owner: str
    request: ModelRequest
    secrets: Sequence[str] = ()


Decided = Literal[
    "found", "made", "misfit", "refused", "denied", "dropped", "failed", "missed", "in_reasoning", "discarded"
]
"""Kinds of decisions:

`found`     a block of text holds calls;
`made`      a call is sent to the client, or run by the gateway;
`misfit`    a call is sent or run, though its arguments do not fit the tool's schema;
`refused`   a block, or a call of the server, is text;
`denied`    a call becomes text, because its tool is not permitted;
`dropped`   a block vanishes;
`failed`    a block, or a call, ends the answer with an error;
`missed`    a demanded call was not made;
`in_reasoning`  a call is at the end of the reasoning;
`discarded` the answer is not used, and the model is asked again.
"""


@dataclass(frozen=True, slots=True)
class CallDecision:
    """A decision about a call, or about text that may be one, in the answer number `choice`.

    `why` is the reason in words, `name` that of the tool. `notes` are the counters that were raised for it, each with
    its label behind a colon if it has one (`repaired:commas`). `start` and `end` say where a block stands: bytes of
    UTF-8 in the text that one scanner was fed, which is the text content of the answer up to a native call, or behind
    it. Of a call that is `made`, `index` counts the finished calls of the answer from 0, and `arguments` are given if
    the gateway changed them.
    """

    kind: Decided
    why: str = ""
    choice: int = 0
    name: str | None = None
    notes: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    index: int | None = None
    arguments: str | None = None


class ExchangeObserver(Protocol):
    """Observes one exchange. `output`, if not None, gets every piece of the answer's body that is sent to the
    client."""

    output: Callable[[bytes], None] | None

    def read(self, read: ReadRequest, record: AccessRecord) -> None:
        """The request was read and has a route. Not called for a request that is refused before that."""

    def backend_call(self, backend: str, request: ModelRequest) -> BackendObserver:
        """Returns the observer of a call to the backend of this name, which is about to be made."""

    def tool(self, name: str, call_id: str, arguments: str) -> ToolRun:
        """Returns the observer of a server-side tool execution that begins."""

    def decided(self, decision: CallDecision) -> None:
        """A decision was made about the calls of the answer that comes. May be called in a thread."""

    def ended(self, record: AccessRecord) -> None:
        """The exchange is over. Always the last method called."""


Observe = Callable[["web.Request", str], ExchangeObserver]
"""Function that starts observing an exchange: takes the request, before anything of its body was read, and its id."""


class CompositeObserver(BackendObserver):
    """Passes everything on to several observers of one backend call."""

    def __init__(self, observers: Sequence[BackendObserver]) -> None:
        self._observers = observers

    def headers(self) -> Mapping[str, str]:
        """Returns the headers of all observers; the last one wins."""
        return {name: value for observer in self._observers for name, value in observer.headers().items()}

    def sent(self, body: bytes) -> None:
        for observer in self._observers:
            observer.sent(body)

    def rendered(self, prompt: str) -> None:
        for observer in self._observers:
            observer.rendered(prompt)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        for observer in self._observers:
            observer.answered(status, headers)

    def received(self, data: bytes) -> None:
        for observer in self._observers:
            observer.received(data)

    def event(self, event: Event) -> None:
        for observer in self._observers:
            observer.event(event)

    def failed(self, error: BaseException) -> None:
        for observer in self._observers:
            observer.failed(error)

    def closed(self) -> None:
        for observer in self._observers:
            observer.closed()


def observe_call(record: AccessRecord, backend: str, request: ModelRequest) -> BackendObserver | None:
    """Returns the observer of a call to this backend, or None if there is none. The caller has to call `closed` at
    the end."""
    if not record.observers:
        return None
    observers = [observer.backend_call(backend, request) for observer in record.observers]
    return observers[0] if len(observers) == 1 else CompositeObserver(observers)


class ObservedTool:
    """Context manager around one server-side execution. Call `ended(state, result)` inside it; otherwise the execution
    is reported as `cancelled`."""

    def __init__(self, record: AccessRecord, name: str, call_id: str, arguments: str) -> None:
        self._runs = [observer.tool(name, call_id, arguments) for observer in record.observers]

    def __enter__(self) -> ObservedTool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended("cancelled", "")

    def ended(self, state: str, result: str) -> None:
        """Reports the end: a label of `tool_executions_total`, and the result for the model. Only the first call
        counts."""
        while self._runs:
            self._runs.pop().ended(state, result)
