"""The recipes of the guide for middlewares, as they are printed. The page itself has one test, which
`tests/unit/test_docs_links.py` runs."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.docs.pages import write_files
from toolwire import MiddlewareConfig, run_chain

PAGE: Final = Path("docs/how-to/write-a-middleware.md")
HI: Final = [{"role": "user", "content": "hi"}]
BODY: Final = {"messages": HI, "tools": [{"type": "function", "name": "search"}]}
CALL: Final = '<tool_call>{"name":"search","arguments":{"limit":%d}}</tool_call>'
REST: Final = ["arguments", "transformation", "injection"]


@pytest.fixture(autouse=True)
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's modules can be imported."""
    names = [file.stem for file in write_files(PAGE, tmp_path)]
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in names:
        sys.modules.pop(name, None)


def recipe(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


async def test_addresses_do_not_reach_the_model() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Write to ada@example.org"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "bob@example.org"},
    ]
    chain = [recipe("redaction", "Redaction"), "injection"]
    answer = await run_chain(chain, {"messages": messages}, replies=["ok"])
    sent = "".join(message.text for message in answer.requests[0].messages)
    assert "Write to [hidden]" in sent
    assert "example.org" not in sent


@pytest.mark.parametrize(("limit", "sent", "lowered"), [(9000, '{"limit": 50}', 1), (7, '{"limit":7}', None)])
async def test_only_a_large_limit_is_lowered(
    limit: int, sent: str, lowered: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolwire.access")
    answer = await run_chain([recipe("page_limit", "PageLimit"), *REST], BODY, replies=[CALL % limit])
    [call] = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == sent
    assert vars(caplog.records[-1])["fields"].get("limits_lowered") == lowered


async def test_a_negative_limit_does_not_reach_the_client() -> None:
    chain = [recipe("page_limit", "PageLimit"), *REST]
    whole = await run_chain(chain, BODY, replies=[CALL % -1])
    assert (whole.status, whole.json()["error"]["code"]) == (403, "against_policy")
    stream = await run_chain(chain, {**BODY, "stream": True}, replies=[CALL % -1])
    assert b"against_policy" in stream.body
    assert b"tool_calls" not in stream.body


async def test_it_answers_by_itself() -> None:
    chain = [recipe("short_circuit", "Ping")]
    answer = await run_chain(chain, {"messages": [{"role": "user", "content": "ping"}]})
    assert answer.json()["choices"][0]["message"]["content"] == "pong"
    assert answer.requests == ()


async def test_a_second_try() -> None:
    chain = ["validation", "arguments", recipe("ask_again", "AskAgain"), "transformation", "injection"]
    answer = await run_chain(chain, {**BODY, "tool_choice": "required"}, replies=["Hello.", CALL % 1])
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "search"
    assert [message.text for message in answer.requests[1].messages[-2:]] == [
        "Hello.",
        "You called no tool. Call one now.",
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_it_is_booked(stream: bool) -> None:
    await run_chain([recipe("ledger", "Ledger")], {"messages": HI, "stream": stream}, replies=["hello"])
    assert [*recipe("ledger", "BOOKED").values()] == ["5 characters"]


async def test_only_the_right_signature_is_accepted() -> None:
    chain = [MiddlewareConfig(use="signed:signed", options={"secret": "tell nobody"})]
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    right = hmac.new(b"tell nobody", body, hashlib.sha256).hexdigest()
    for signature, status in ((right, 200), ("guessed", 401)):
        answer = await run_chain(chain, body, replies=["hello"], headers={"X-Signature": signature})
        assert answer.status == status
