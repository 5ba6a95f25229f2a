"""The events of a background response as they are sent to a client: `EventReplay`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp.test_utils import make_mocked_request

from toolwire.pipeline.conversations import background_events
from toolwire.pipeline.conversations.background_events import EVENTS, EventReplay
from toolwire.protocols.responses.turns import ResponsesTurns
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.protocols.streams import KEEPALIVE

TURN = StoredTurn(id="resp_1", owner="", status="in_progress", created=0.0, expires=1e9)
LOOKS_PER_S = 4


async def test_keep_alives_come_once_in_the_time_of_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from the last event: two seconds of silence, an event at 2.5 s, and silence until 7 s."""
    looks = 0
    written: list[tuple[float, bytes]] = []

    def now() -> float:
        return looks / LOOKS_PER_S

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if now() >= 7:
            replay._stop()

    class Conversations:
        async def present(self, keys: Any) -> set[Any]:
            return set(keys)

        async def get(self, ident: str, owner: str) -> StoredTurn | None:
            if not ident.endswith("_0") or now() < 2.5:
                return None
            return StoredTurn(
                id=ident,
                owner=owner,
                status="kept",
                created=0.0,
                expires=1e9,
                extra={EVENTS: {"frames": ["event: some"]}},
            )

    async def write(data: bytes) -> None:
        written.append((now(), bytes(data)))

    clock = SimpleNamespace(sleep=sleep, get_running_loop=lambda: SimpleNamespace(time=now))
    monkeypatch.setattr(background_events, "asyncio", clock)
    writer = Mock(write=write, write_eof=AsyncMock(), write_headers=AsyncMock(), length=None)
    monitor: Any = SimpleNamespace(attend=lambda *args: None)
    replay = EventReplay(Conversations(), 2.0, TURN, ResponsesTurns(), -1)  # type: ignore[arg-type]
    await replay.send(make_mocked_request("GET", "/", writer=writer), monitor)
    assert written == [(2.0, KEEPALIVE), (2.5, b"event: some\n\n"), (4.5, KEEPALIVE), (6.5, KEEPALIVE)]
