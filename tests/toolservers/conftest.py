"""Tool servers without a process, in place of real ones."""

from __future__ import annotations

import pytest

from tests.toolservers.scripted import Seen, scripted


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What the servers saw."""
    seen = Seen()
    monkeypatch.setattr("toolwire.extras.mcp.from_clients.McpServer", scripted(seen))
    return seen
