"""Calls in forms that nobody taught, through the whole gateway (R23.1): read in every mode and protocol, streamed and
not; counted by form.

Which forms, and what stays text: `tests/parse/test_recognition.py`, `tests/unit/test_recognised.py`. Calls that a model
wrote nearly right: `tests/unit/test_json_calls.py`, `tests/unit/test_coercion.py`."""

from __future__ import annotations

import logging
from itertools import product
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import get, mock_config, post, read_config, serving
from tests.e2e.meaning import CHAT, CLIENTS, MESSAGES, asking, ended, meant
from tests.e2e.test_capture import captured_of
from toolwire.extras.capture.files import read_capture

CALL = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'
FAILS = f"  It says {CALL.replace('read', 'write')} \n"
READ = [("read", {"path": "a"})]


@every("options", [{"format": "fenced_json"}, {"format": "mistral"}, {"mode": "native"}])
@every(
    "says, choice, recognise, wanted",
    [
        (f"I look.\n\n{CALL}", "auto", "any", ("I look.", READ, "tool_calls")),
        (FAILS, "auto", "any", (FAILS, [], "stop")),
        (CALL, "none", "any", (CALL, [], "stop")),
        (CALL, "auto", "taught", (CALL, [], "stop")),
    ],
)
async def test_a_call_in_a_form_that_nobody_taught(
    options: dict[str, Any], says: str, choice: str, recognise: str, wanted: Any
) -> None:
    script = [{"text": says, "chunk": 3, "finish": "stop"}]
    async with serving(mock_config(script, recognise=recognise, **options)) as server:
        for path, stream in product(CLIENTS, (False, True)):
            body = {**asking(path, stream), "tool_choice": {"type": choice} if path == MESSAGES else choice}
            answer = await post(server, body, path=path)
            assert (*meant(path, answer, stream)[:2], ended(path, answer, stream)) == wanted, (path, stream)


@every(
    "model, says",
    [
        ("magistral-small", '[THINK]Hm[/THINK][TOOL_CALLS]read[ARGS]{"path": "a"}'),
        ("Seed-OSS-36B", "<seed:think>Hm</seed:think><seed:tool_call>\n<function=read>\n<parameter=path>a</parameter>\n</function>\n</seed:tool_call>"),
        ("gpt-oss-20b", '<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.read<|channel|>commentary json<|message|>{"path": "a"}<|call|>'),
    ],
)  # fmt: skip
async def test_a_native_server_leaves_the_models_own_words(model: str, says: str) -> None:
    """The thought as well as the call, in the form of the model's family."""
    async with serving(mock_config([{"text": says, "chunk": 3}], mode="native")) as server:
        for path, stream in product(CLIENTS, (False, True)):
            answer = await post(server, {**asking(path, stream), "model": model}, path=path)
            assert meant(path, answer, stream)[:3] == ("", READ, "Hm"), (path, stream)


async def test_it_is_counted_by_form(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="toolwire.access")
    says = f"{CALL} {CALL.replace('read', 'sub')} {CALL.replace('path', 'file')}"
    backend = {"kind": "mock", "script": [{"text": says, "finish": "stop"}]}
    config = read_config({"backends": {"mock": backend}, "defaults": {"mode": "native"}, "capture": {"keep": 1}})
    async with serving(config) as server:
        answer = await post(server, asking(CHAT, False))
        page = (await get(server, "/metrics")).body.decode()
        end = read_capture(await captured_of(server, answer.headers["X-Request-Id"])).end
    (line,) = [record.__dict__["fields"] for record in caplog.records if record.name == "toolwire.access"]
    for told in (line, end):
        assert (told["calls"], told["recognised"], told["form"], told["unrecognised"]) == (1, 1, "hermes", 1)
    assert not line.keys() & {"parse_failures", "unknown_names", "schema_warnings", "strict_failures"}
    assert 'toolwire_tool_calls_recognised_total{form="hermes"} 1.0\n' in page
    assert 'toolwire_tool_calls_unrecognised_total{reason="schema"} 1.0\n' in page
