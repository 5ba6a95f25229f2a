"""Claude Code's note on who pays, which is new in each request, reaches Anthropic's servers alone (R28.6)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.e2e.conftest import read_config
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.messages.request_writer import write_request
from toolwire.testing import ScriptedBackend, run_chain

NOTE = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.330; cch=0a1b2;"}
RULES = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}


def asked(*system: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "system": list(system), "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("mode", ["prompt", "native"])
@pytest.mark.parametrize("system", [(NOTE, RULES), (NOTE,)], ids=["with rules", "alone"])
async def test_another_server_does_not_get_it(
    mode: str, system: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """And nobody is warned that something was left out, once in each request."""
    backend = ScriptedBackend([{"text": "hello"}])
    config = read_config({"backends": {"m": {"kind": "mock"}}, "defaults": {"mode": mode}})
    answer = await run_chain(config, asked(*system), backend=backend, path="/v1/messages")
    assert answer.status == 200
    (sent,) = backend.requests
    assert [(message.role, message.text) for message in sent.messages] == [
        *([("system", "Be brief.")] if RULES in system else []),
        ("user", "hi"),
    ]
    assert "billing" not in str(sent.messages)
    assert caplog.records == []


def test_a_server_of_its_own_protocol_gets_it_as_it_was() -> None:
    body = asked(NOTE, RULES)
    request = MessagesProtocol().read_request(body, orjson.dumps(body))
    assert write_request(request)["system"] == [NOTE, RULES]


def test_who_only_speaks_of_it_is_heard() -> None:
    body = asked({"type": "text", "text": "The header x-anthropic-billing-header: is odd."})
    request = MessagesProtocol().read_request(body, orjson.dumps(body))
    assert "is odd" in request.messages[0].text
