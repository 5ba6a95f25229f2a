"""What happened in one exchange, and who looks on while it happens: traces (`toolwire.extras.otel.tracing`) and
captures (`toolwire.extras.capture.recorder`).

Rules:

1. The record is written to by every layer, so it stands below all of them: it is told names and requests, never the
   exchange, a backend or a route, and knows nothing of metrics.
2. Observers are off unless configured; then a record has none, and nothing of them is called. They change nothing, they
   never wait, and they raise nothing: what goes wrong in one is its own affair.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from toolwire.config import RouteConfig, RouteOptions
from toolwire.errors import GatewayError
from toolwire.events import Event
from toolwire.model import ModelRequest

if TYPE_CHECKING:
    from aiohttp import web

LOG: Final = logging.getLogger("toolwire.tolerated")

TOLERATED: Final = "tolerated"
"""The field under which tolerances are counted, each with its name as the label (`toolwire.tolerances`)."""


@dataclass(frozen=True, slots=True)
class CounterSpec:
    """A counter on the metrics page: its name, which ends with `_total`, what it counts, and its only label, if it has
    one, with the values that are known of it. Label values are few: never a tool, a model or a key. `by_model`: it has
    the labels `route` and `model` behind that."""

    name: str
    meaning: str
    label: str | None = None
    values: tuple[str, ...] = ()
    by_model: bool = False


@dataclass(frozen=True, slots=True)
class AccessField:
    """A field of the access line, which somebody counts or notes (`AccessRecord`): its name and what it means.

    `counter`: what is counted is added to it as well. If that has a label, under the `value` given here; without one
    under what `AccessRecord.label` says.
    """

    name: str
    meaning: str
    counter: CounterSpec | None = None
    value: str | None = None


class Counts(dict[str, int]):
    """Numbers by name; 0 for what was not counted."""

    def __missing__(self, name: str) -> int:
        return 0


class AccessRecord:
    """What happened in one exchange. Counted and noted along the way, logged once at the end.

    Times are seconds on the monotonic clock. `waited` is the time spent waiting for the backend; the rest of the total
    is the gateway's own overhead. `queued` is the part of it that was spent waiting for a turn, `prepared` the moment
    at which the first backend was asked. `route` and `model` are those of the metrics: a pattern of the configuration,
    and a name that it or a server knows, `other` for all else; `none` before they are known. `observers` look on:
    traces and captures, usually none.
    """

    __slots__ = (
        "code",
        "counts",
        "error",
        "failures",
        "first_byte",
        "labelled",
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
        self.counts = Counts()
        self.labelled: dict[tuple[str, str], int] = {}
        self.failures: list[tuple[GatewayError, str]] = []
        self.notes: dict[str, Any] = {}
        self.observers: Sequence[ExchangeObserver] = ()

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter, such as `calls` or `repaired`."""
        self.counts[name] = self.counts.get(name, 0) + by

    def label(self, name: str, label: str) -> None:
        """Say more about what was counted as `name`, for the metrics. It counts if the field has
        a counter (`AccessField`)."""
        self.labelled[name, label] = self.labelled.get((name, label), 0) + 1

    def tolerate(self, name: str, detail: str, request_id: str) -> None:
        """Say once that something odd in the request was tolerated: `name` is one of `toolwire.tolerances`, `detail` is
        for the log."""
        if (TOLERATED, name) in self.labelled:
            return
        self.count("tolerated")
        self.label(TOLERATED, name)
        self.note("tolerances", ",".join(self.tolerances))
        LOG.warning("request %s: %s: %s", request_id, name, detail)

    @property
    def tolerances(self) -> list[str]:
        """The names of all that was tolerated."""
        return sorted(label for name, label in self.labelled if name == TOLERATED)

    @property
    def fields(self) -> dict[str, Any]:
        """What was noted and counted."""
        if not self.labelled:
            return {**self.notes, **self.counts}
        forms = [label for name, label in self.labelled if name == "recognised"]
        notes = {**self.notes, "form": ",".join(sorted(forms))} if forms else self.notes
        return {**notes, **self.counts}

    def backend_failed(self, error: GatewayError, backend: str) -> None:
        """A call of this backend failed, whether or not that is the end of the exchange."""
        self.count("backend_errors")
        self.failures.append((error, backend))

    def ended_by(self, error: GatewayError) -> None:
        """The exchange ends with this error. One of a backend that broke off its answer is noticed here."""
        self.error, self.code = error.type, error.code
        if error.type == "upstream_error" and all(error is not known for known, _ in self.failures):
            self.backend_failed(error, self.notes.get("backend", ""))

    def note(self, key: str, value: Any) -> None:
        """Remember a value for the log line; None says nothing. Never a prompt, an argument or a key."""
        if value is not None:
            self.notes[key] = value

    def decided(self, decision: CallDecision) -> None:
        """Tell the observers of a decision."""
        for observer in self.observers:
            observer.decided(decision)

    def wrote(self) -> None:
        """The first byte of the answer is out."""
        if self.first_byte is None:
            self.first_byte = time.monotonic()


class BackendObserver:
    """Sees one call of a backend, from before it is opened to its end. The methods do nothing: override what is
    wanted."""

    def headers(self) -> Mapping[str, str]:
        """Further request headers, such as those of a trace."""
        return {}

    def sent(self, body: bytes) -> None:
        """The body that goes to the server. Not called by backends without wire bytes."""

    def rendered(self, prompt: str) -> None:
        """The prompt as the model sees it, which the server's chat template makes of that body (R31.1a). Only called
        where the server can say it."""

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer."""

    def received(self, data: bytes) -> None:
        """The next bytes of the answer's body, as they were read."""

    def event(self, event: Event) -> None:
        """An event of the answer. Not called where the answer's bytes go to the client unread."""

    def failed(self, error: BaseException) -> None:
        """The call could not be made, or the answer broke off."""

    def closed(self) -> None:
        """The call is over, perhaps for some time. The last method that is called."""


COMPLETED: Final = "TOOL_COMPLETED"
"""The state of an execution that went well."""


class ToolRun(Protocol):
    """One server-side execution while it runs."""

    def ended(self, state: str, result: str) -> None:
        """How it ended (a label of `tool_executions_total`), and what the model gets to read."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request that was read: the client's wire format, where it goes, whose it is (a hash of the key; empty without
    keys), and what it asks. `secrets` are what lets the gateway in elsewhere, for this client."""

    endpoint: str
    route: RouteConfig
    options: RouteOptions
    owner: str
    request: ModelRequest
    secrets: Sequence[str] = ()


Decided = Literal["found", "made", "misfit", "refused", "dropped", "failed", "missed", "in_reasoning", "discarded"]
"""What was decided:

`found`     a block of text holds calls;
`made`      a call goes on to the client, or to the tool that runs in the gateway;
`misfit`    a call goes on, though its arguments do not fit the tool's schema;
`refused`   a block, or a call of the server, is text;
`dropped`   a block vanishes;
`failed`    a block, or a call, ends the answer with an error;
`missed`    a demanded call was not made;
`in_reasoning`  a call stands in reasoning that has no end;
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
    """Sees one exchange. `output`, if not None, gets every piece of the answer's body that goes to the client."""

    output: Callable[[bytes], None] | None

    def read(self, read: ReadRequest, record: AccessRecord) -> None:
        """The request was read and has a route. Not called for a request that is refused before."""

    def backend_call(self, backend: str, request: ModelRequest) -> BackendObserver:
        """The backend of this name is about to be asked."""

    def tool(self, name: str, call_id: str, arguments: str) -> ToolRun:
        """A server-side execution begins."""

    def decided(self, decision: CallDecision) -> None:
        """A decision was made about the calls of the answer that comes. May be called in a thread."""

    def ended(self, record: AccessRecord) -> None:
        """The exchange is over. The last method that is called."""


Observe = Callable[["web.Request", str], ExchangeObserver]
"""Begins to observe the exchange of a request with this id, before anything of it was read."""


class CompositeObserver(BackendObserver):
    """More than one observer of a backend call."""

    def __init__(self, observers: Sequence[BackendObserver]) -> None:
        self._observers = observers

    def headers(self) -> Mapping[str, str]:
        """Those of all."""
        return {name: value for observer in self._observers for name, value in observer.headers().items()}

    def sent(self, body: bytes) -> None:
        """See `BackendObserver`."""
        for observer in self._observers:
            observer.sent(body)

    def rendered(self, prompt: str) -> None:
        """See `BackendObserver`."""
        for observer in self._observers:
            observer.rendered(prompt)

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        """See `BackendObserver`."""
        for observer in self._observers:
            observer.answered(status, headers)

    def received(self, data: bytes) -> None:
        """See `BackendObserver`."""
        for observer in self._observers:
            observer.received(data)

    def event(self, event: Event) -> None:
        """See `BackendObserver`."""
        for observer in self._observers:
            observer.event(event)

    def failed(self, error: BaseException) -> None:
        """See `BackendObserver`."""
        for observer in self._observers:
            observer.failed(error)

    def closed(self) -> None:
        """See `BackendObserver`."""
        for observer in self._observers:
            observer.closed()


def observe_call(record: AccessRecord, backend: str, request: ModelRequest) -> BackendObserver | None:
    """Who sees this call of the backend of this name; None if nobody does. Whoever asked calls `closed` in the end."""
    if not record.observers:
        return None
    observers = [observer.backend_call(backend, request) for observer in record.observers]
    return observers[0] if len(observers) == 1 else CompositeObserver(observers)


class ObservedTool:
    """Around one server-side execution: `with ObservedTool(...) as run`, and in it `run.ended(state, result)`. An
    execution that is left without that was `cancelled`."""

    def __init__(self, record: AccessRecord, name: str, call_id: str, arguments: str) -> None:
        self._runs = [observer.tool(name, call_id, arguments) for observer in record.observers]

    def __enter__(self) -> ObservedTool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended("cancelled", "")

    def ended(self, state: str, result: str) -> None:
        """How it ended: a label of `tool_executions_total`, and what the model gets to read. Counts once."""
        while self._runs:
            self._runs.pop().ended(state, result)
