"""Small things that the chat tests share: options, frames, and what a stream adds up to for a client."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.protocols.corners import read_by
from toolwire.events import Event
from toolwire.model import ModelRequest, ToolChoice
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.streams import WriteOptions

CHAT = ChatProtocol()


def options(*, usage: bool = False, choice: ToolChoice | None = None, **kwargs: Any) -> WriteOptions:
    request = ModelRequest("m", (), stream=True, include_usage=usage, tool_choice=choice or ToolChoice())
    return WriteOptions(request=request, created=1, **kwargs)


def write(events: Iterable[Event], opts: WriteOptions | None = None) -> bytes:
    return CHAT.writer(opts or options()).feed(events)


def read(data: bytes) -> list[Event]:
    return read_by(CHAT.reader(frame_bytes=1 << 20), data)


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Any, reason: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return frame(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [choice],
            **fields,
        }
    )


def payloads(data: bytes) -> list[Any]:
    """The parsed frames, `[DONE]` as a string. Checks the framing of R7.10."""
    assert data.endswith(b"\n\n")
    out: list[Any] = []
    for raw in data.decode().split("\n\n")[:-1]:
        assert raw.startswith("data: ")
        assert "\n" not in raw
        out.append("[DONE]" if raw == "data: [DONE]" else json.loads(raw[6:]))
    return out


def accumulate(data: bytes) -> dict[int, dict[str, Any]]:
    """What a client that adds up deltas has at the end, by choice."""
    total: dict[int, dict[str, Any]] = {}
    for value in payloads(data):
        if value == "[DONE]":
            continue
        for choice in value["choices"]:
            mine = total.setdefault(choice["index"], {"tool_calls": []})
            for key, piece in choice["delta"].items():
                if key == "tool_calls":
                    for call in piece:
                        calls = mine["tool_calls"]
                        if call["index"] == len(calls):
                            shown = {name: value for name, value in call.items() if name != "index"}
                            calls.append({**shown, call["type"]: dict(call[call["type"]])})
                            continue
                        assert not {"id", "type"} & set(call), "once, in the first chunk"
                        known = calls[call["index"]]
                        for name, value in call.items():
                            if name == known["type"]:
                                for field, more in value.items():
                                    known[name][field] += more
                            elif name != "index":
                                assert name not in ("function", "custom")
                                known[name] = value
                elif piece is not None:
                    mine[key] = mine.get(key, "") + piece
            if choice["finish_reason"]:
                assert "finish_reason" not in mine
                mine["finish_reason"] = choice["finish_reason"]
    return total
