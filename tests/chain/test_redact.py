"""The middleware `redact`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.conftest import CHAT
from tests.e2e.meaning import RESPONSES
from tests.e2e.meaning import said as said_by
from tests.strategies import cuts
from toolwire.config import MiddlewareConfig, RouteOptions
from toolwire.extras.middlewares.redact import RedactOptions
from toolwire.testing import WireAnswer, run_chain

MAIL = "zoe@example.org"
PATHS = pytest.mark.parametrize("path", [CHAT, RESPONSES])
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def redacted(body: dict[str, Any], reply: Any = "ok", path: str = CHAT, **options: Any) -> WireAnswer:
    entry = MiddlewareConfig(use="redact", options=options)
    chain = ["conversation", "validation", entry, "arguments", "transformation", "injection"]
    if "messages" in body and path == RESPONSES:
        body = {**body, "input": body["messages"]}
        del body["messages"]
    return await run_chain(chain, body, replies=[reply], path=path)


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def sent(answer: WireAnswer) -> str:
    return repr([message.parts for request in answer.requests for message in request.messages])


@PATHS
async def test_the_model_does_not_get_to_see_it(path):
    answer = await redacted(said(f"Write to {MAIL} now"), path=path)
    assert "Write to [redacted] now" in sent(answer)
    assert MAIL not in sent(answer)


async def test_results_and_earlier_calls_are_looked_through():
    arguments = '{"to": "ad\\u0061@example.org", "zoe@example.org": 12345678901234567890, "n": 1e400}'
    call = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": arguments}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": f"It is {MAIL}."},
    ]
    entry = MiddlewareConfig(use="redact")
    answer = await run_chain([entry], {"messages": messages}, replies=["ok"], options=RouteOptions(mode="native"))
    parts = [part for message in answer.requests[0].messages for part in message.parts]
    # Values are read before they are looked at; keys, numbers and spelling stay.
    assert parts[1].arguments == '{"to": "[redacted]", "zoe@example.org": 12345678901234567890, "n": 1e400}'
    assert parts[2].parts[0].text == "It is [redacted]."


async def test_a_request_without_a_find_keeps_its_identity():
    answer = await redacted(said("nothing here"))
    assert answer.requests[0].origin is not None


@PATHS
@MODES
async def test_the_client_does_not_get_to_see_it(path, stream):
    pieces = ["Mail a", "da@exam", "ple.or", "g now", "."]
    answer = await redacted(said("hi", stream=stream), {"text": "", "chunk": pieces}, path, where="answer")
    assert said_by(path, answer, stream)[0] == "Mail [redacted] now."
    assert "ple.or" not in answer.body.decode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(st.data(), st.booleans())
async def test_for_every_split_the_client_gets_the_same(data, stream):
    pieces = data.draw(cuts(f"Mail {MAIL} or b@c.de, not <tool_call> but 078-05-1120"))
    answer = await redacted(said("hi", stream=stream), {"text": "", "chunk": pieces}, where="both")
    assert said_by(CHAT, answer, stream)[0] == "Mail [redacted] or [redacted], not <tool_call> but [redacted]"


@MODES
async def test_reasoning_too_and_calls_not(stream):
    call = f'<tool_call>{{"name":"mail","arguments":"{{\\"to\\":\\"{MAIL}\\"}}"}}</tool_call>'
    body = said("hi", stream=stream, tools=[{"type": "function", "name": "mail"}])
    answer = await redacted(body, {"reasoning": f"To {MAIL}?", "text": f"To {MAIL}: " + call}, where="answer")
    shown = answer.body.decode()
    assert shown.count("[redacted]") == 2
    assert shown.count(MAIL) == 1  # in the call: with a hole in it, it would be carried out


async def test_an_answer_that_breaks_off_shows_nothing_of_what_was_held():
    turn = {"text": f"Mail {MAIL}", "chunk": 4, "error": {"status": 500, "after": 12}}
    answer = await redacted(said("hi", stream=True), turn, where="answer")
    assert "zoe" not in answer.body.decode()
    assert answer.frames()[-2]["error"]


async def test_it_is_counted(caplog):
    caplog.set_level("INFO", "toolwire.access")
    await redacted(said(f"{MAIL} {MAIL}"), f"no {MAIL}", where="both")
    assert caplog.records[-1].fields["redacted"] == 3


async def test_own_patterns_and_words():
    answer = await redacted(said("project Falcon"), kinds=[], patterns=["(?i)falcon"], by="X")
    assert "project X" in sent(answer)


@pytest.mark.parametrize(
    "options", [{"kinds": ()}, {"patterns": ("a+",)}, {"patterns": ("(",)}], ids=["nothing", "endless", "broken"]
)
def test_what_cannot_be_looked_for_is_said_at_load(options):
    with pytest.raises(ValueError):
        RedactOptions(**options)
