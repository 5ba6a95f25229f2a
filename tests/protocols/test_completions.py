"""The text protocol towards backends."""

from __future__ import annotations

import json

import pytest

from proxy.errors import ClientFault, Defect
from proxy.events import fold
from proxy.model import Image, Message, ModelRequest, Reasoning, Sampling, Text, ToolResult, ToolUse
from proxy.protocols.completions import CompletionsProtocol, render_transcript
from tests.protocols.wires import frame, options

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


def test_images_are_refused() -> None:
    with pytest.raises(ClientFault) as caught:
        TEXT.write_request(ModelRequest("m", (Message("user", (Image("data:,"),)),)))
    assert caught.value.code == "unsupported_content"


def test_answers() -> None:
    whole = {
        "id": "cmpl-1",
        "choices": [{"index": 0, "text": " Hello", "finish_reason": "length"}],
        "usage": {"prompt_tokens": 1},
    }
    got = TEXT.read_reply(json.dumps(whole).encode())
    assert (got.text, got.choices[0].reason) == (" Hello", "length")
    reader = TEXT.reader(frame_bytes=1 << 20)
    events = []
    for text, reason in ((" Hel", None), ("lo", None), ("", "stop")):
        events += reader.feed(frame({"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": reason}]}))
    events += reader.feed(b"data: [DONE]\n\n")
    assert fold(events).text == " Hello"
    assert json.loads(TEXT.write_error(ClientFault("no"), "r"))["error"]["message"] == "no"


def test_it_serves_no_clients() -> None:
    with pytest.raises(Defect):
        TEXT.read_request({}, b"")
    with pytest.raises(Defect):
        TEXT.write_reply(TEXT.read_reply(b'{"choices":[{"text":"x"}]}'), options())
    with pytest.raises(Defect):
        TEXT.writer(options())
