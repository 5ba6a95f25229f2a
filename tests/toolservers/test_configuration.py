"""The list of permitted servers in a configuration, and what is told of connections."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from tests.openapi.documents import conforms
from tests.toolservers.scripted import Seen, configuration, scripted, server
from toolwire.app import create_app
from toolwire.support.conversion import ConfigError

BAD = ["tools.example/mcp", "https://*", "https://tools.example*", "ftp://tools.example/", "https://u:p@tools.example/"]


@pytest.mark.parametrize("url", BAD)
def test_a_url_that_is_none_is_a_mistake(url: str) -> None:
    with pytest.raises(ConfigError, match=r"tools\.mcp_from_clients\[1\]: "):
        configuration(tools={"mcp_from_clients": ["https://fine.example/*", url]})


def test_without_the_sdk_the_list_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.configuration.mcp_checks.missing", lambda: "it is not installed")
    with pytest.raises(ConfigError, match=r"tools\.mcp_from_clients: it is not installed"):
        configuration()


async def test_connections_are_told_without_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.mcp.from_clients.McpServer", scripted(Seen()))
    body: dict[str, Any] = {"model": "m", "input": "hi", "tools": [server(headers={"X-Key": "a-secret-word"})]}
    async with TestClient(TestServer(create_app(configuration()))) as client:
        async with client.post("/v1/responses", json=body) as response:
            assert response.status == 200
        async with client.get("/admin/tools") as response:
            text, shown = await response.text(), await response.json()
    conforms("ToolFolder", shown)
    (one,) = shown["from_clients"]
    assert (one["host"], one["state"], one["users"]) == ("tools.example", "up", 0)
    assert "a-secret-word" not in text
