"""Calls to which a server gives no name are left out and counted, each once (R29.2)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson

from tests.cases import every
from tests.protocols.corners import sse
from tests.protocols.test_corners_messages_read import usual
from toolwire.events import Open
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.shared.noise import NAMELESS

READ = '{"path":"a"}'


NAMES = ("", "read", None, "  ")
CHAT_CALLS = [
    {"index": at, "id": f"call_{at}", "function": {"name": name, "arguments": READ}} for at, name in enumerate(NAMES)
]
BLOCKS = [
    {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {"path": "a"}} for at, name in enumerate(NAMES)
]
ITEMS = [
    {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "name": name, "arguments": READ}
    for at, name in enumerate(NAMES)
]
RESPONSE = {"id": "resp_1", "model": "m", "status": "completed", "output": ITEMS}
STREAMS: dict[str, tuple[ServerSide, bytes]] = {
    "chat": (
        ChatProtocol(),
        sse(
            *({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in CHAT_CALLS),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        ),
    ),
    "messages": (
        MessagesProtocol(),
        sse(
            *(frame for at, block in enumerate(BLOCKS) for frame in usual(at, block)),
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
            {"type": "message_stop"},
        ),
    ),
    "responses": (
        ResponsesProtocol(),
        sse(
            *({"type": "response.output_item.done", "output_index": at, "item": one} for at, one in enumerate(ITEMS)),
            {"type": "response.completed", "response": RESPONSE},
        ),
    ),
}
WHOLE: dict[str, Any] = {
    "chat": {"choices": [{"index": 0, "message": {"tool_calls": CHAT_CALLS}, "finish_reason": "tool_calls"}]},
    "messages": {"id": "msg_1", "content": BLOCKS, "stop_reason": "tool_use"},
    "responses": RESPONSE,
}


@every("server", STREAMS)
def test_they_are_left_out_and_counted(server: str) -> None:
    protocol, data = STREAMS[server]
    noted: Counter[str] = Counter()
    reader = protocol.reader(frame_bytes=1 << 20, note=lambda what, _: noted.update([what]))
    events = [*reader.feed(data), *reader.finish()]
    assert [one.name for one in events if isinstance(one, Open)] == ["read"]
    assert noted == {NAMELESS: 3}
    reply = protocol.read_reply(orjson.dumps(WHOLE[server]), note=lambda what, _: noted.update([what]))
    assert [use.name for use in reply.calls] == ["read"]
    assert noted == {NAMELESS: 6}
