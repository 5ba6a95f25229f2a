"""Our streams through the accumulators of the real `openai` package, without a server."""

from __future__ import annotations

import json

from hypothesis import assume, given
from openai import Omit
from openai._models import construct_type
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion import Choice
from openai.types.responses import ParsedResponse, Response, ResponseStreamEvent

from tests.cases import examples
from tests.protocols import responses_wires, wires
from tests.protocols.test_responses_stream import streams as responses_streams
from tests.strategies import streams
from toolwire.events import BlockKind, Close, Event, Finish, Open
from toolwire.folding import fold


def prose_overlaps(events: list[Event]) -> bool:
    """Returns True if two blocks of one kind of prose are open at once: no client can tell their texts apart."""
    active: dict[int, BlockKind] = {}
    for event in events:
        if isinstance(event, Open) and event.kind is not BlockKind.TOOL_CALL:
            if event.kind in active.values():
                return True
            active[event.block] = event.kind
        elif isinstance(event, Close):
            active.pop(event.block, None)
    return False


@examples(0.5)
@given(streams())
def test_chat(events: list[Event]) -> None:
    """The SDK sees the whole answer."""
    assume(not prose_overlaps(events))
    state = ChatCompletionStreamState()
    for value in wires.payloads(wires.write(events, wires.options(usage=True))):
        if value != "[DONE]":
            state.handle_chunk(ChatCompletionChunk.model_validate(value))
    theirs = state.current_completion_snapshot
    ours = ChatCompletion.model_validate_json(wires.CHAT.write_reply(fold(events), wires.options(usage=True)))
    a, b = ours.choices[0], theirs.choices[0]
    assert a.finish_reason == b.finish_reason
    assert (a.message.content or None, a.message.refusal) == (b.message.content or None, b.message.refusal)
    assert calls_of(a) == calls_of(b)
    assert theirs.usage is not None
    assert ours.usage is not None
    assert theirs.usage.total_tokens == ours.usage.total_tokens


def calls_of(choice: Choice) -> list[tuple[str, str, str, str]]:
    return [
        (call.id, call.type, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or []
        if call.type == "function"
    ]


def completed(events: list[Event]) -> ParsedResponse[object] | None:
    """The completed response, as `client.responses.stream` gives it, if there is one."""
    state: ResponseStreamState[object] = ResponseStreamState(input_tools=Omit(), text_format=Omit())
    for value in responses_wires.payloads(responses_wires.write(events)):
        state.handle_event(construct_type(type_=ResponseStreamEvent, value=value))  # type: ignore[arg-type]  # as the SDK does
    return state._completed_response


@examples(0.5)
@given(responses_streams())
def test_responses(events: list[Event]) -> None:
    events = [*events[:-1], Finish("stop", None, extra={"completed_at": 9})]
    whole = responses_wires.RESPONSES.write_reply(fold(events), responses_wires.options())
    theirs = completed(events)
    assert theirs is not None
    plain = theirs.to_dict()
    for item in plain["output"]:  # type: ignore[attr-defined]  # a list of objects
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    assert Response.model_validate(plain).to_dict() == Response.model_validate(json.loads(whole)).to_dict()
