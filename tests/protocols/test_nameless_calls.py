"""Calls to which a server gives no name are left out and counted, each once (R29.2)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from toolwire.events import Open
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.shared.noise import NAMELESS

READ = '{"path":"a"}'


def chat_call(index: int, name: str | None) -> dict[str, Any]:
    return {"index": index, "id": f"call_{index}", "function": {"name": name, "arguments": READ}}


def block(index: int, name: str | None, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": arguments}


def item(index: int, name: str | None) -> dict[str, Any]:
    called = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}"}
    return {**called, "name": name, "arguments": READ, "status": "completed"}


def frames(*objects: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % orjson.dumps(one) for one in objects)


NAMES = ("", "read", None, "  ")
CHAT_CALLS = [chat_call(*one) for one in enumerate(NAMES)]
ITEMS = [item(*one) for one in enumerate(NAMES)]
BLOCKS = [block(*one, {"path": "a"}) for one in enumerate(NAMES)]
RESPONSE = {"id": "resp_1", "model": "m", "status": "completed", "output": ITEMS}
STREAMS: dict[str, tuple[ServerSide, bytes]] = {
    "chat": (
        ChatProtocol(),
        frames(
            *({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in CHAT_CALLS),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        ),
    ),
    "messages": (
        MessagesProtocol(),
        frames(
            *(
                event
                for at, name in enumerate(NAMES)
                for event in (
                    {"type": "content_block_start", "index": at, "content_block": block(at, name, {})},
                    {
                        "type": "content_block_delta",
                        "index": at,
                        "delta": {"type": "input_json_delta", "partial_json": READ},
                    },
                    {"type": "content_block_stop", "index": at},
                )
            ),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ),
    ),
    "responses": (
        ResponsesProtocol(),
        frames(
            *({"type": "response.output_item.done", "output_index": at, "item": one} for at, one in enumerate(ITEMS)),
            {"type": "response.completed", "response": RESPONSE},
        ),
    ),
}
WHOLE: dict[str, tuple[ServerSide, Any]] = {
    "chat": (
        ChatProtocol(),
        {"choices": [{"index": 0, "message": {"tool_calls": CHAT_CALLS}, "finish_reason": "tool_calls"}]},
    ),
    "messages": (MessagesProtocol(), {"id": "msg_1", "content": BLOCKS, "stop_reason": "tool_use"}),
    "responses": (ResponsesProtocol(), RESPONSE),
}


@pytest.mark.parametrize("server", STREAMS)
def test_in_a_stream(server: str) -> None:
    protocol, data = STREAMS[server]
    noted: Counter[str] = Counter()
    reader = protocol.reader(frame_bytes=1 << 20, note=lambda what, _: noted.update([what]))
    events = [*reader.feed(data), *reader.finish()]
    assert [one.name for one in events if isinstance(one, Open)] == ["read"]
    assert noted == {NAMELESS: 3}


@pytest.mark.parametrize("server", WHOLE)
def test_in_a_whole_answer(server: str) -> None:
    protocol, answer = WHOLE[server]
    noted: Counter[str] = Counter()
    reply = protocol.read_reply(orjson.dumps(answer), note=lambda what, _: noted.update([what]))
    assert [part.name for part in reply.choices[0].parts if hasattr(part, "name")] == ["read"]
    assert noted == {NAMELESS: 3}
