"""The `@anthropic-ai/sdk` package for JavaScript."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Node
from tests.clients.task import CALLS, FINAL, SAID, in_turn, script
from tests.e2e.conftest import Gateway


@pytest.mark.parametrize(("way", "mode"), in_turn(["create", "stream", "toolRunner", "toolRunner streamed"]))
async def test_messages(gateway: Gateway, node: Node, way: str, mode: str) -> None:
    server = await gateway(script=script(mode), mode=mode)
    got = await node("anthropic.mjs", server, way)
    assert got == {"text": SAID[-1], "calls": CALLS, "files": FINAL}
