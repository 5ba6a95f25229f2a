"""Our streams through the accumulator of the real `openai` package, without a server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from openai import Omit
from openai._models import construct_type
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ParsedResponse, Response, ResponseStreamEvent

from tests.protocols.responses_wires import RESPONSES, options, payloads, write
from tests.protocols.test_responses_stream import ALL_KINDS, BROKEN, CUT, TOOLS, streams
from toolwire.events import Event, Finish
from toolwire.folding import fold
from toolwire.protocols.streams import WriteOptions


def accumulated(events: list[Event], opts: WriteOptions) -> ParsedResponse[object] | None:
    """The completed response, as `client.responses.stream` gives it, if there is one."""
    state: ResponseStreamState[object] = ResponseStreamState(input_tools=Omit(), text_format=Omit())
    for value in payloads(write(events, opts)):
        state.handle_event(construct_type(type_=ResponseStreamEvent, value=value))  # type: ignore[arg-type]  # as the SDK does
    return state._completed_response


def test_all_kinds() -> None:
    got = accumulated(ALL_KINDS, options({"tools": TOOLS}))
    assert got is not None
    assert got.output_text == "Reading it: “ü”\nDone."
    assert [item.type for item in got.output] == [
        "reasoning", "message", "function_call", "custom_tool_call", "function_call", "message"
    ]  # fmt: skip
    assert got.usage is not None
    assert got.usage.total_tokens == 99
    assert got.completed_at == 9


@pytest.mark.parametrize("events", [CUT, BROKEN])
def test_what_is_not_completed_raises_nothing(events: list[Event]) -> None:
    assert accumulated(events, options()) is None


@given(streams())
def test_the_sdk_sees_the_whole_answer(events: list[Event]) -> None:
    events = [*events[:-1], Finish("stop", None, extra={"completed_at": 9})]
    opts = options()
    ours = Response.model_validate(json.loads(RESPONSES.write_reply(fold(events), opts)))
    theirs = accumulated(events, opts)
    assert theirs is not None
    plain = theirs.to_dict()
    for item in plain["output"]:  # type: ignore[attr-defined]  # a list of objects
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    assert Response.model_validate(plain).to_dict() == ours.to_dict()
