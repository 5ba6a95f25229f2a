"""A backend that returns recorded responses, for running captures again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from multidict import CIMultiDict

from ...config import BackendConfig, LimitsConfig
from ...errors import CODES, BackendFault, GatewayError
from ...protocols.base import ServerSide
from ...upstream.client.connections import disconnected
from ...upstream.client.iterated_answer import IteratedAnswer
from ...upstream.servers.http import HttpBackend
from .files import RecordedCall

NOWHERE = "http://recorded.invalid"


class RecordedBackend(HttpBackend):
    """Returns the responses of these calls in order, then repeats the last one. Opens no connection."""

    def __init__(
        self,
        name: str,
        config: BackendConfig,
        limits: LimitsConfig,
        protocol: ServerSide,
        calls: Sequence[RecordedCall],
    ) -> None:
        super().__init__(name, config, limits, protocol)
        self._calls = tuple(calls)

    async def start(self) -> None:
        """Creates the client that returns the recorded responses."""
        self.client = _RecordedClient(self._calls)

    async def ready(self) -> bool:
        """Returns True: recorded responses are always available."""
        return True


class _RecordedClient:
    """An `UpstreamClient` that returns recorded responses."""

    def __init__(self, calls: Sequence[RecordedCall]) -> None:
        self._calls = iter(calls)
        self._last: RecordedCall | None = None

    async def post(
        self, body: bytes, *, stream: bool, request_id: str, headers: Mapping[str, str] | None = None
    ) -> _RecordedAnswer:
        self._last = call = next(self._calls, self._last)
        if call is None:
            raise disconnected()
        if not call.status:
            raise _error(call)
        return _RecordedAnswer(call)

    async def close(self) -> None:
        pass


class _RecordedAnswer(IteratedAnswer):
    """A recorded response (an `UpstreamAnswer`). Its pieces are available at once."""

    queued_s = 0.0

    def __init__(self, call: RecordedCall) -> None:
        super().__init__()
        self.status = call.status
        self.headers: Mapping[str, str] = CIMultiDict(call.headers)
        self.content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.ended = False
        self._call = call

    async def reads(self) -> AsyncGenerator[bytes, None]:
        for read in self._call.all("received"):
            yield read.data
        self.ended = True
        if self._call.first("failed"):
            raise _error(self._call)

    async def close(self, *, linger_s: float = 0.0) -> None:
        self.ended = True


def _error(call: RecordedCall) -> GatewayError:
    failed = call.first("failed") or {"code": "upstream_disconnected", "message": "The model server broke off."}
    return BackendFault(failed["message"], code=failed["code"] if failed["code"] in CODES else "upstream_disconnected")


def replayable(calls: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """Yields the calls that remain without retries: drops a failed call that was followed by another one."""
    for index, call in enumerate(calls):
        if index == len(calls) - 1 or (call.status == 200 and not call.first("failed")):
            yield call
