"""The text protocol towards backends."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from tests.protocols.wires import frame
from toolwire.config import BackendConfig
from toolwire.errors import ClientFault
from toolwire.events import Delta
from toolwire.model import Image, Message, ModelRequest, OpaquePart, Reasoning, Sampling, Text, ToolResult, ToolUse
from toolwire.protocols.completions.protocol import CompletionsProtocol, render_transcript

TEXT = CompletionsProtocol()


def test_the_conversation_is_one_text() -> None:
    messages = (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("List"), Text("it"))),
        Message("assistant", (Reasoning("hm"), ToolUse("call_1", "ls", '{"a":1}'))),
        Message("tool", (ToolResult("call_1", (Text("x.txt"),), "ls"),)),
    )
    assert render_transcript(messages) == (
        "System: Be brief.\n\nUser: List\nit\n\n"
        'Assistant: [function_call call_id=call_1 name=ls arguments={"a":1}]\n\n'
        "User: [function_call_output call_id=call_1 output=x.txt]\n\nAssistant:"
    )
    assert render_transcript(()) == "Assistant:"


def test_an_open_assistant_message_is_continued() -> None:
    messages = (Message("user", (Text("Hi"),)), Message("assistant", (Text("Hel"),)))
    assert render_transcript(messages).endswith("\n\nAssistant: Hel")


def test_the_request() -> None:
    request = ModelRequest(
        "m",
        (Message("user", (Text("Hi"),)),),
        sampling=Sampling(temperature=0, max_tokens=5, stop=("END",)),
        stream=True,
        include_usage=True,
        extra={"top_k": 1},
    )
    assert TEXT.write_request(request) == {
        "model": "m",
        "prompt": "User: Hi\n\nAssistant:",
        "temperature": 0,
        "max_tokens": 5,
        "stop": ["END", "\nUser:"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_k": 1,
    }
    four = ModelRequest("m", (), sampling=Sampling(stop=tuple("abcd")))
    assert TEXT.write_request(four)["stop"] == list("abcd")


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"logprobs": True}, {"logprobs": 1}),
        ({"logprobs": True, "top_logprobs": 4}, {"logprobs": 4}),
        ({"logprobs": False, "top_logprobs": 4}, {}),
        ({"logprobs": 3, "seedling": 1}, {"logprobs": 3, "seedling": 1}),
    ],
)
def test_probabilities_are_asked_for_by_a_number(asked: dict[str, Any], sent: dict[str, Any]) -> None:
    body = TEXT.write_request(ModelRequest("m", (), extra=asked))
    assert {name: value for name, value in body.items() if name not in ("model", "prompt", "stop")} == sent


def test_probabilities_come_in_the_form_of_chat() -> None:
    said = {
        "text_offset": [0, 2],
        "tokens": ["Hi", "\u00e4"],
        "token_logprobs": [None, -0.5],
        "top_logprobs": [None, {"\u00e4": -0.5, "b": -1}],
    }
    first = {"token": "Hi", "logprob": 0.0, "bytes": [72, 105], "top_logprobs": []}
    second = {"token": "\u00e4", "logprob": -0.5, "bytes": [195, 164]}
    tops = [second, {"token": "b", "logprob": -1, "bytes": [98]}]
    expected = {"content": [first, {**second, "top_logprobs": tops}], "refusal": None}
    choice = {"index": 0, "text": "Hi\u00e4", "finish_reason": "stop", "logprobs": said}
    [read] = TEXT.read_reply(orjson.dumps({"choices": [choice]})).choices
    assert read.extra == {"logprobs": expected}
    events = TEXT.reader(frame_bytes=10_000).feed(frame({"id": "x", "choices": [choice]}))
    assert [event.extra for event in events if isinstance(event, Delta)] == [{"logprobs": expected}]


@pytest.mark.parametrize(
    "odd", [{"tokens": []}, {"tokens": [3, None, "\ud800"], "token_logprobs": "x", "top_logprobs": [3]}]
)
def test_probabilities_that_are_none(odd: dict[str, Any]) -> None:
    events = TEXT.reader(frame_bytes=10_000).feed(
        b"data: %b\n\n" % json.dumps({"id": "x", "choices": [{"index": 0, "text": "Hi", "logprobs": odd}]}).encode()
    )
    [delta] = [event for event in events if isinstance(event, Delta)]
    assert len(delta.extra["logprobs"]["content"]) == len(odd["tokens"])


@pytest.mark.parametrize(("configured", "taken"), [(None, 4), (0, 0), (2, 2)])
def test_a_server_takes_as_many_stop_sequences_as_configured(configured: int | None, taken: int) -> None:
    assert TEXT.configured(BackendConfig(stop_sequences=configured)).stops == taken


def test_what_is_not_modelled_is_no_image() -> None:
    """Items of Responses that a text model has no place for are left out; in a result nothing is."""
    thought, search = {"type": "reasoning", "encrypted_content": "x"}, {"type": "web_search_call", "id": "ws_1"}
    messages = [
        Message("user", (Text("Hi"),)),
        Message("assistant", (OpaquePart("responses", thought), OpaquePart("responses", search), Text("Yes"))),
        Message("tool", (ToolResult("c", (OpaquePart("responses", {"type": "thing"}),)),)),
    ]
    assert render_transcript(messages) == (
        'User: Hi\n\nAssistant: Yes\n\nUser: [function_call_output call_id=c output={"type":"thing"}]\n\nAssistant:'
    )


def test_images_are_refused() -> None:
    with pytest.raises(ClientFault) as caught:
        TEXT.write_request(ModelRequest("m", (Message("user", (Image("data:,"),)),)))
    assert caught.value.code == "unsupported_content"
