"""File descriptors: how many connections there is room for, and what happens when there are none."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.cases import every
from toolwire.config import LimitsConfig, ServerConfig
from toolwire.observability.telemetry import Metrics
from toolwire.server import clients, descriptors
from toolwire.server.clients import ClientServer
from toolwire.server.descriptors import FEWEST, KEPT, NO_DESCRIPTORS, REPEAT_S, Shortage, connection_limits, log_limits


@every("files", [None, 0, 64, 100, 256, 1024, 4096, 20_000, 1_048_576])
def test_there_is_a_descriptor_for_every_connection_and_its_server(files: int | None) -> None:
    clients, refused = connection_limits(files, 10_000, 256)
    assert clients <= 10_000
    assert refused <= 256
    if files is None or files >= 1_000_000:
        assert (clients, refused) == (10_000, 256)
    elif clients > FEWEST:
        assert 2 * clients + refused + KEPT <= files
        assert 2 * (clients + 1) + refused + KEPT > files - 2


def test_fewer_than_there_is_room_for_stay_as_they_are() -> None:
    assert connection_limits(256, 10, 4) == (10, 4)


async def test_the_limit_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "files_allowed", lambda: 256)
    metrics = Metrics()
    server = ClientServer(lambda request: None, metrics.connections, metrics.refused)
    server.configure(ServerConfig(), LimitsConfig())
    taken = 0
    while isinstance(connection := server(), clients.ClientConnection):
        server.open.add(connection)
        taken += 1
    assert taken == connection_limits(256, 10_000, clients.REFUSALS).clients < 100


@pytest.mark.parametrize(
    ("files", "level"), [(256, logging.WARNING), (15_000, logging.INFO), (20_000, None), (1_000_000, None)]
)
def test_it_is_said_once(
    files: int, level: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(descriptors, "files_allowed", lambda: files)
    log_limits(10_000)
    assert [record.levelno for record in caplog.records] == ([] if level is None else [level])
    assert all("limits.connections" in record.getMessage() for record in caplog.records)


def test_a_shortage_is_told_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    class Loop:
        now = 0.0
        other = 0

        def time(self) -> float:
            return self.now

        def default_exception_handler(self, context: dict[str, Any]) -> None:
            self.other += 1

    loop: Any = Loop()
    handler = Shortage()
    for _ in range(1000):
        handler(loop, {"message": NO_DESCRIPTORS, "exception": OSError(24, "Too many open files")})
    handler(loop, {"message": "something else"})
    loop.now = REPEAT_S
    handler(loop, {"message": NO_DESCRIPTORS, "exception": OSError(24, "Too many open files")})
    assert len(caplog.records) == 2
    assert not any(record.exc_info for record in caplog.records)
    assert loop.other == 1


async def test_a_shortage_is_noticed_while_connections_are_open(caplog: pytest.LogCaptureFixture) -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    metrics = Metrics()
    server = ClientServer(lambda request: None, metrics.connections, metrics.refused)
    server._patrol()
    assert not caplog.records
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        for _ in range(1000):
            server._patrol()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    (record,) = caplog.records
    assert "no file descriptors are left (Too many open files)" in record.getMessage()
