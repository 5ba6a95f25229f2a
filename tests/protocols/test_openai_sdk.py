"""Our stream through the accumulator of the real `openai` package, without a server."""

from __future__ import annotations

import json

from hypothesis import assume, given
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion import Choice

from tests.protocols.test_chat_stream import TWO_CALLS
from tests.protocols.wires import CHAT, options, payloads, write
from tests.strategies import streams
from toolwire.events import BlockKind, Close, Event, Open
from toolwire.folding import fold


def accumulated(events: list[Event]) -> ChatCompletion:
    state = ChatCompletionStreamState()
    for value in payloads(write(events, options(usage=True))):
        if value != "[DONE]":
            state.handle_chunk(ChatCompletionChunk.model_validate(value))
    return state.current_completion_snapshot


def test_two_calls() -> None:
    got = accumulated(TWO_CALLS)
    message = got.choices[0].message
    assert message.content == "Reading it: “ü”\n"
    assert message.tool_calls is not None
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("call_a", "read_file", '{"path":"notes.txt"}'),
        ("call_b", "list_files", "{}"),
    ]
    assert got.choices[0].finish_reason == "tool_calls"
    assert got.usage is not None
    assert got.usage.total_tokens == 99


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


@given(streams())
def test_the_sdk_sees_the_whole_answer(events: list[Event]) -> None:
    assume(not prose_overlaps(events))
    ours = ChatCompletion.model_validate(json.loads(CHAT.write_reply(fold(events), options())))
    theirs = accumulated(events)
    a, b = ours.choices[0], theirs.choices[0]
    assert a.finish_reason == b.finish_reason
    assert (a.message.content or None, a.message.refusal) == (b.message.content or None, b.message.refusal)
    assert calls_of(a) == calls_of(b)


def calls_of(choice: Choice) -> list[tuple[str, str, str, str]]:
    return [
        (call.id, call.type, call.function.name, call.function.arguments)
        for call in choice.message.tool_calls or []
        if call.type == "function"
    ]
