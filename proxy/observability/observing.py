"""Who looks on while an exchange runs: traces (`proxy.observability.tracing`) and captures (`proxy.capture.recorder`).

Both are off unless configured; then an exchange has no observers, and nothing here is called. Rules for observers: they change
nothing, they never wait, and they raise nothing: what goes wrong in one is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ..events import Event

if TYPE_CHECKING:
    from aiohttp import web

    from ..backends.base import Backend
    from ..exchange import Exchange
    from ..model import ModelRequest
    from .telemetry import AccessRecord


class BackendObserver:
    """Sees one call of a backend, from before it is opened to its end. The methods do nothing: override what is wanted."""

    def headers(self) -> Mapping[str, str]:
        """Further request headers, such as those of a trace."""
        return {}

    def sent(self, body: bytes) -> None:
        """The body that goes to the server. Not called by backends without wire bytes."""

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


class ExchangeObserver(Protocol):
    """Sees one exchange. `output`, if not None, gets every piece of the answer's body that goes to the client."""

    output: Callable[[bytes], None] | None

    def read(self, exchange: Exchange) -> None:
        """The request was read and has a route. Not called for a request that is refused before."""

    def backend_call(self, backend: Backend, request: ModelRequest) -> BackendObserver:
        """The backend is about to be asked."""

    def tool(self, name: str, call_id: str, arguments: str) -> ToolRun:
        """A server-side execution begins."""

    def ended(self, record: AccessRecord) -> None:
        """The exchange is over. The last method that is called."""


Observe = Callable[["web.Request", str], ExchangeObserver]
"""Begins to observe the exchange of a request with this id, before anything of it was read."""


class Several(BackendObserver):
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


def observe_call(exchange: Exchange, backend: Backend, request: ModelRequest) -> BackendObserver | None:
    """Who sees this call of a backend; None if nobody does. Whoever asked calls `closed` in the end."""
    if not exchange.record.observers:
        return None
    observers = [observer.backend_call(backend, request) for observer in exchange.record.observers]
    return observers[0] if len(observers) == 1 else Several(observers)


class ObservedTool:
    """Around one server-side execution: `with ObservedTool(...) as run`, and in it `run.ended(state, result)`. An execution
    that is left without that was `cancelled`."""

    def __init__(self, exchange: Exchange, name: str, call_id: str, arguments: str) -> None:
        self._runs = [observer.tool(name, call_id, arguments) for observer in exchange.record.observers]

    def __enter__(self) -> ObservedTool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended("cancelled", "")

    def ended(self, state: str, result: str) -> None:
        """How it ended: a label of `tool_executions_total`, and what the model gets to read. Counts once."""
        while self._runs:
            self._runs.pop().ended(state, result)
