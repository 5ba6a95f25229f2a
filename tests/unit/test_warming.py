"""What only the first request would have to wait for is done when a gateway starts."""

from __future__ import annotations

import logging
import sys
from typing import Any

import fastjsonschema
import pytest

from proxy.protocols import request_schema as shape
from proxy.protocols.base import ClientSide
from proxy.protocols.chat.protocol import ChatProtocol
from proxy.protocols.responses.protocol import ResponsesProtocol
from proxy.registry import registries
from proxy.startup.warming import _rehearse
from proxy.testing import Say, Upstream
from tests.e2e.conftest import CHAT, function, post, serving, upstream_config

CLIENTS: list[type[ClientSide]] = [ChatProtocol, ResponsesProtocol]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", sorted(registries().formats.names()))
def test_every_format_can_be_rehearsed(client: type[ClientSide], name: str) -> None:
    _rehearse.__wrapped__(client, ChatProtocol, registries().formats.get(name))


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_is_compiled_or_imported_for_the_first_request(
    path: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape._validator.cache_clear()
    _rehearse.cache_clear()
    tool = function("look", at="string")
    if path == CHAT:
        body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool], "stream": stream}
    else:
        body = {"input": "hi", "tools": [{"type": "function", **tool["function"]}], "stream": stream}
    async with Upstream([Say("Hello.")]) as up, serving(upstream_config(up.url)) as server:

        def compiled(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("compiled for a request")

        monkeypatch.setattr(fastjsonschema, "compile", compiled)
        before = set(sys.modules)
        assert (await post(server, body, path=path)).status == 200
        assert {name for name in set(sys.modules) - before if name.startswith(("proxy", "middlewares"))} == set()


async def test_one_that_cannot_be_rehearsed_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "toolwire")

    def broken(*args: Any) -> None:
        raise RuntimeError("a plug-in")

    monkeypatch.setattr("proxy.startup.warming._rehearse", broken)
    async with Upstream([Say("Hello.")]) as up, serving(upstream_config(up.url)) as server:
        assert (await post(server, {"messages": [{"role": "user", "content": "hi"}]})).status == 200
    assert "rehearsal" in caplog.text
