"""Counts of tokens in frames that pass as bytes (R29.6)."""

from __future__ import annotations

from typing import Any

import orjson

from tests.cases import every
from toolwire.pipeline.paths.relay import Relay, counted
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol


def frames(*said: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % (one if isinstance(one, bytes) else orjson.dumps(one)) for one in said)


def events(*said: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\n" % one["type"].encode() + frames(one) for one in said)


CHAT = {"choices": [{"index": 0, "delta": {"content": "x"}}]}
COUNTS = {"prompt_tokens": 9, "completion_tokens": 4}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
DONE = b"[DONE]"
MESSAGE = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
INSIDE = {"usage": {"input_tokens": 1, "output_tokens": 1}}
BLOCK = {"type": "content_block_start", "content_block": {"type": "tool_use", "input": INSIDE}}
SILENT = {"choices": [], "usage": None}
CREATED = {"type": "response.created", "response": {"usage": None}}
COMPLETED = {"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 4}}}


@every(
    ("protocol", "said"),
    [
        (ChatProtocol(), frames({**CHAT, "usage": None}, {**CHAT, "usage": COUNTS}, END, DONE)),
        (ChatProtocol(), frames({**CHAT, "usage": None}, {**CHAT, "usage": COUNTS}, SILENT, END, DONE)),
        (ChatProtocol(), frames({**CHAT, "usage": {**COUNTS, "completion_tokens": 1}}, {**CHAT, "usage": COUNTS})),
        (ChatProtocol(), frames({**CHAT, "usage": COUNTS}, {**CHAT, "usage": dict.fromkeys(COUNTS)})),
        (ChatProtocol(), frames({**CHAT, "usage": COUNTS}, {**CHAT, "usage": ["usage"]})),
        (ChatProtocol(), frames({**CHAT, "usage": COUNTS}, {**CHAT, "usage": dict.fromkeys(COUNTS, 0)})),
        (ChatProtocol(), frames({**CHAT, "usage": {"input_tokens": 9, "output_tokens": 4}})),
        (ChatProtocol(), frames(CHAT, {"choices": [{"index": 0, "delta": {}, "usage": COUNTS}]}, END, DONE)),
        (ChatProtocol(), frames({**CHAT, "x_groq": {"id": "a"}}, {**CHAT, "x_groq": {"usage": COUNTS}}, END, DONE)),
        (ResponsesProtocol(), frames(CREATED, {**COMPLETED, "response": {"usage": COUNTS}})),
        (MessagesProtocol(), events(MESSAGE, BLOCK, {"type": "message_delta", "usage": {"output_tokens": 4}})),
        (
            MessagesProtocol(),
            events(MESSAGE, {"type": "message_delta", "usage": {"input_tokens": 0, "output_tokens": 4}}),
        ),
        (ResponsesProtocol(), frames(CREATED, COMPLETED)),
    ],
)
@every("split", [False, True])
def test_the_last_count_of_each_kind_counts(protocol: ServerSide, said: bytes, split: bool) -> None:
    relay = Relay(protocol, frame_bytes=1 << 16)
    pieces = said.splitlines(keepends=True) if split else [said]
    assert b"".join(map(relay.feed, pieces)) == said
    usage = counted(protocol, b"".join(relay.counts))
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.estimated) == (9, 4, False)


@every(
    "said",
    [
        frames(CHAT, DONE),
        frames({**CHAT, "usage": None}),
        frames({**CHAT, "usage": dict.fromkeys(COUNTS, 0)}),
        frames({"usage": [1]}),
        frames(b'["usage"]'),
        b"",
    ],
)
def test_what_nobody_counted(said: bytes) -> None:
    assert counted(ChatProtocol(), said) is None
