"""Writing answers and frames: the Chat writer compared with a dict of the same answer and `orjson.dumps`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson
import pytest

from bench import corpus
from bench.measuring import Measure
from toolwire.events import BlockKind, Delta, Event, Open, Start
from toolwire.model import Message, ModelReply, ModelRequest, ReplyChoice, Text, ToolUse, Usage
from toolwire.protocols.chat.reply import write_reply
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.streams import WriteOptions

ID: Final = "chatcmpl-6f1c2f7e9f0a4c0f9b1d2e3f4a5b6c7d"
CALL_ID: Final = "call_6f1c2f7e9f0a4c0f9b1d2e3f4a5b6c7d"
REQUEST: Final = ModelRequest("example-8b-instruct", (Message("user", (Text("hi"),)),))
WRITE: Final = WriteOptions(request=REQUEST, created=1790000000)
TEXT: Final = "".join(corpus.prose(60))
CALL: Final = ToolUse(CALL_ID, "get_weather", '{"city":"Lisbon","unit":"celsius"}')
USAGE: Final = Usage(120, 60)
REPEATS: Final = 200


def plain_reply(message: dict[str, Any], reason: str) -> bytes:
    """Returns the body, written by code that knows all fields in advance."""
    body = {
        "id": ID,
        "object": "chat.completion",
        "created": WRITE.created,
        "model": REQUEST.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": USAGE.input_tokens,
            "completion_tokens": USAGE.output_tokens,
            "total_tokens": USAGE.input_tokens + USAGE.output_tokens,
            "prompt_tokens_details": {
                "cached_tokens": USAGE.cached_tokens,
                "cache_write_tokens": USAGE.cache_write_tokens,
            },
            "completion_tokens_details": {"reasoning_tokens": USAGE.reasoning_tokens},
        },
    }
    return orjson.dumps(body)


def plain_text() -> bytes:
    return plain_reply({"role": "assistant", "content": TEXT, "refusal": None}, "stop")


def plain_call() -> bytes:
    function = {"name": CALL.name, "arguments": CALL.arguments}
    calls = [{"id": CALL.call_id, "type": "function", "function": function}]
    return plain_reply({"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}, "tool_calls")


def plain_frame(delta: dict[str, Any]) -> bytes:
    chunk = {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": WRITE.created,
        "model": REQUEST.model,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}],
    }
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def reply_of(part: Text | ToolUse, reason: str) -> ModelReply:
    return ModelReply(id=ID, model="m", created=1, choices=(ReplyChoice((part,), reason),), usage=USAGE)


def framing(opened: Open) -> Callable[[], bytes]:
    """Returns a function that writes one more delta of this block."""
    writer = ChatWriter(WRITE)
    writer.feed([Start(ID, "m", 1), opened, Delta(0, "So")])
    more: list[Event] = [Delta(0, " weather")]
    return partial(writer.feed, more)


WAYS: Final = ("dict and orjson", "chat writer")
WRITTEN: Final[dict[str, tuple[Callable[[], bytes], Callable[[], bytes]]]] = {
    "whole, text": (plain_text, partial(write_reply, reply_of(Text(TEXT), "stop"), WRITE)),
    "whole, a call": (plain_call, partial(write_reply, reply_of(CALL, "tool_calls"), WRITE)),
    "frame, text": (lambda: plain_frame({"content": " weather"}), framing(Open(0, BlockKind.TEXT))),
    "frame, arguments": (
        lambda: plain_frame({"tool_calls": [{"index": 0, "function": {"arguments": " weather"}}]}),
        framing(Open(0, BlockKind.TOOL_CALL, name="get_weather", call_id=CALL_ID)),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", WRITTEN)
def test_writing(measure: Measure, kind: str, way: str) -> None:
    ways = dict(zip(WAYS, WRITTEN[kind], strict=True))
    assert len({write() for write in ways.values()}) == 1
    run = ways[way]
    measure(lambda: [run() for _ in range(REPEATS)], table="Writing", row=kind, column=way, units=REPEATS, unit="one")
