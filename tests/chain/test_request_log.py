"""The middleware `request_log`: what it writes, what it covers, and that it changes nothing."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from toolwire.config import AuthConfig, BackendConfig, GatewayConfig, KeyConfig, MiddlewareConfig, StoreConfig
from toolwire.support.conversion import ConfigError
from toolwire.testing import run_chain

CHAIN = ("validation", "arguments", "transformation", "injection", "forwarding")
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123"
KEY = "a-word-of-the-client"
SIGNED = {"Authorization": f"Bearer {KEY}"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = 'Yes. <tool_call>{"name": "look", "arguments": "{}"}</tool_call>'


def config(*, place: int = 0, **options: Any) -> GatewayConfig:
    entries = [MiddlewareConfig(use=name) for name in CHAIN]
    entries.insert(place, MiddlewareConfig(use="request_log", options=options))
    return GatewayConfig(
        store=StoreConfig(kind="memory"),
        backends={"m": BackendConfig(kind="mock")},
        chain=tuple(entries),
        auth=AuthConfig(keys=(KeyConfig(key=KEY),)),
    )


def asked(stream: bool, text: str = f"my key is {SECRET}") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "tools": [TOOL], "stream": stream}


def lines(caplog: pytest.LogCaptureFixture) -> dict[str, dict[str, Any]]:
    found = [record for record in caplog.records if record.name == "toolwire.requests"]
    assert len({record.message for record in found}) == len(found)
    return {record.message: record.fields for record in found}  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire.requests")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_request_and_its_answer(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    answer = await run_chain(config(), asked(stream), replies=[CALL], headers={"X-Request-Id": "mine", **SIGNED})
    assert answer.status == 200
    found = lines(caplog)
    assert {fields["request_id"] for fields in found.values()} == {"mine"}
    (message,) = found["request"]["body"]["messages"]
    assert message["content"] == f"my key is {'*' * len(SECRET)}"
    told = {name: found["answer"][name] for name in ("text", "calls", "finish")}
    assert told == {"text": "Yes.", "calls": [{"name": "look", "arguments": "{}"}], "finish": "stop"}
    assert SECRET not in json.dumps(found)


async def test_further_in_it_sees_what_the_model_wrote(caplog: pytest.LogCaptureFixture) -> None:
    await run_chain(config(place=4), asked(True), replies=[CALL], headers=SIGNED)
    assert lines(caplog)["answer"]["text"] == CALL


async def test_words_of_the_configuration_and_own_patterns_are_covered(caplog: pytest.LogCaptureFixture) -> None:
    text = f"{KEY} and badge Q4711"
    await run_chain(config(secrets=[r"Q\d{4}"]), asked(False, text), replies=[text], headers=SIGNED)
    found = lines(caplog)
    assert "Q4711" not in json.dumps(found)
    assert KEY not in json.dumps(found)
    assert found["answer"]["text"].endswith("and badge *****")


async def test_long_texts_are_cut_and_parts_can_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    await run_chain(config(most_chars=5, requests=False), asked(False), replies=["abcdefgh"], headers=SIGNED)
    found = lines(caplog)
    assert set(found) == {"answer"}
    assert found["answer"]["text"].startswith("abcde…")


async def test_an_answer_that_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    script = {"text": "half of it", "error": {"after": 4}}
    await run_chain(config(), asked(True), replies=[script], headers=SIGNED)
    answer = lines(caplog)["answer"]
    assert (answer["text"], "error" in answer) == ("half", True)


async def test_a_bad_pattern_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        await run_chain(config(secrets=["("]), asked(False), replies=["x"])
