"""Small things that the tests of Messages share: options, events, and what a stream adds up to for a client."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from tests.protocols.corners import read_by
from tests.protocols.published import SHARED, _captured
from toolwire.events import Event
from toolwire.model import ModelRequest, Sampling
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.streams import WriteOptions

MESSAGES = MessagesProtocol()


def options(*, budget: int | None = None, **kwargs: Any) -> WriteOptions:
    request = ModelRequest("m", (), stream=True, include_usage=True, sampling=Sampling(reasoning_budget=budget))
    return WriteOptions(request=request, created=1, **kwargs)


def write(events: Iterable[Event], opts: WriteOptions | None = None) -> bytes:
    return MESSAGES.writer(opts or options()).feed(events)


def read(data: bytes, size: int | None = None) -> list[Event]:
    return read_by(MESSAGES.reader(frame_bytes=1 << 20), data, size or 0)


def frame(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def frames(data: bytes) -> list[Any]:
    """The parsed events. Checks that each has its name before it, in one line."""
    assert data.endswith(b"\n\n")
    out = []
    for raw in data.decode().split("\n\n")[:-1]:
        name, line = raw.split("\n")
        value = json.loads(line.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        out.append(value)
    return out


def accumulate(data: bytes) -> dict[str, Any]:
    """What a client has at the end. Checks the order of R14.3: blocks one at a time, from 0 without a gap."""
    start, *events = frames(data)
    assert start["type"] == "message_start"
    message: dict[str, Any] = start["message"]
    assert (message["content"], message["stop_reason"]) == ([], None)
    assert message["usage"].keys() >= {"input_tokens", "output_tokens"}
    content: list[dict[str, Any]] = message["content"]
    pieces: list[str] | None = None
    *blocks, delta, stop = events
    assert (delta["type"], stop) == ("message_delta", {"type": "message_stop"})
    for event in blocks:
        match event["type"]:
            case "content_block_start":
                assert pieces is None
                assert event["index"] == len(content)
                content.append(event["content_block"])
                pieces = []
            case "content_block_delta":
                assert pieces is not None
                assert event["index"] == len(content) - 1
                take(content[-1], event["delta"], pieces)
            case "content_block_stop":
                assert pieces is not None
                assert event["index"] == len(content) - 1
                if pieces:
                    content[-1]["input"] = json.loads("".join(pieces))
                pieces = None
            case kind:
                assert kind == "ping"
    assert pieces is None
    return {**message, **delta["delta"], "usage": {**message["usage"], **delta["usage"]}}


def take(block: dict[str, Any], delta: dict[str, Any], pieces: list[str]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "input_json_delta":
            pieces.append(delta["partial_json"])
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        case kind:
            raise AssertionError(kind)


@cache
def validator(name: str) -> Draft202012Validator:
    """The validator of one published schema. Skips the test if it is not there."""
    path = SHARED / "spec/data/anthropic-messages-schemas.json"
    if not path.exists():
        pytest.skip(f"the published schemas are not at {path}; set TOOLWIRE_SHARED")
    return Draft202012Validator(json.loads(path.read_bytes())[name])


def captured_requests() -> list[Path]:
    """Every recorded request that went to `/v1/messages`."""
    return [path for path in _captured("/messages", "no such field") if path.exists()]
