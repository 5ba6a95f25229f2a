"""Reasoning comes back to the server that wants it, through every client protocol (R28.3)."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.config import GatewayConfig
from proxy.testing import Upstream
from tests.e2e.conftest import read_config, serving
from tests.e2e.reasoning_servers import (
    CLIENTS,
    SAID,
    SERVERS,
    Client,
    Server,
)

SECRET = "0123456789abcdef0123456789abcdef"
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def before(server: Server, up: Upstream, **sections: Any) -> GatewayConfig:
    """A gateway before one server."""
    backend = {"kind": server.kind, "url": up.url, "identify_s": None, **server.facts}
    return read_config({"backends": {"up": backend}, "defaults": {"mode": "native"}, **sections})


@both
@pytest.mark.parametrize("client", CLIENTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.__name__)
async def test_every_server_gets_its_reasoning_from_every_client(
    kind: type[Server], client: type[Client], stream: bool
) -> None:
    """R28.3: each refuses a history that lacks what it gave."""
    server = kind()
    async with Upstream([server]) as up, serving(before(server, up)) as gateway:
        assert await client(stream=stream).run(gateway) == SAID
    assert server.faults == []
