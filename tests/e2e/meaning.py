"""The meaning of an answer: text, calls and counts, the same for clients of all three protocols. And servers of each
kind that answer, and clients that all ask one gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.e2e.conftest import CHAT, USER, function, post, serving
from tests.e2e.speaking import speaking
from tests.protocols.messages_wires import accumulate
from toolwire.config import GatewayConfig
from toolwire.model import ModelReply, ReplyChoice, ToolUse, Usage
from toolwire.registry import usual_server
from toolwire.testing import Answer, Asked, Upstream, WireAnswer

RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
CLIENTS = (CHAT, RESPONSES, MESSAGES)
PATHS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}

_READ = function("read", path="string")
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": USER, "tools": [_READ], "temperature": 1.5, "stop": ["###"]},
    RESPONSES: {"input": "hi", "tools": [{"type": "function", **_READ["function"]}]},
    MESSAGES: {
        "max_tokens": 5, "messages": USER, "tools": [{"name": "read", "input_schema": _READ["function"]["parameters"]}],
        "odd": 1, "thinking": {"type": "adaptive"},
    },
}  # fmt: skip
"""One request with a tool in each protocol."""


def asking(path: str, stream: bool) -> dict[str, Any]:
    """That request, streamed or not; the answer has its counts."""
    counts = {"stream_options": {"include_usage": True}} if path == CHAT and stream else {}
    return {**BODIES[path], "stream": stream, **counts}


def said(path: str, answer: WireAnswer, stream: bool) -> tuple[str, list[tuple[str, Any]], str]:
    """Text, calls and thoughts of a good answer."""
    if path == MESSAGES:
        blocks = (accumulate(answer.body) if stream else answer.json())["content"]
        text, thoughts = ("".join(part.get(key, "") for part in blocks) for key in ("text", "thinking"))
        return text, [(p["name"], p["input"]) for p in blocks if p["type"] == "tool_use"], thoughts
    if path == RESPONSES:
        items = (answer.frames()[-1]["response"] if stream else answer.json())["output"]
        text = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
        calls = [(i["name"], json.loads(i["arguments"])) for i in items if i["type"] == "function_call"]
        thoughts = "".join(p["text"] for i in items if i["type"] == "reasoning" for p in i.get("content") or ())
        return text, calls, thoughts
    if not stream:
        message = answer.json()["choices"][0]["message"]
        made = message.get("tool_calls") or ()
        calls = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in made]
        return message["content"] or "", calls, message.get("reasoning_content") or ""
    deltas = [choice["delta"] for chunk in chunks_of(answer) for choice in chunk["choices"]]
    parts: list[list[str]] = []
    for call in (call for delta in deltas for call in delta.get("tool_calls") or ()):
        if call["index"] == len(parts):
            parts.append([call["function"]["name"], ""])
        parts[call["index"]][1] += call["function"]["arguments"]
    text, thoughts = ("".join(delta.get(key) or "" for delta in deltas) for key in ("content", "reasoning_content"))
    return text, [(name, json.loads(given)) for name, given in parts], thoughts


def chunks_of(answer: WireAnswer) -> list[Any]:
    """The chunks of a stream of Chat."""
    return [chunk for chunk in answer.frames() if chunk != "[DONE]"]


def says(kind: str, *parts: Any) -> Callable[[Asked], Answer]:
    """A server of a kind that answers so, streamed or whole, as it is asked."""
    reason = "tool_calls" if any(isinstance(part, ToolUse) for part in parts) else "stop"
    reply = ModelReply("up_1", "m", 1, (ReplyChoice(parts, reason),), Usage(9, 4))
    return speaking(usual_server(kind), reply)


class Told(NamedTuple):
    """The answer to one client: its path, whether it asked for a stream, and the request that the server got."""

    path: str
    stream: bool
    answer: WireAnswer
    asked: Asked


async def every_client(
    script: Any,
    behind: Callable[[Upstream], GatewayConfig],
    asking: Callable[[str, bool], dict[str, Any]],
    *,
    paths: Sequence[str] = CLIENTS,
    streams: Sequence[bool] = (False, True),
) -> list[Told]:
    """Clients of these protocols ask one gateway, whole and streamed, one after the other. `script` is that of its
    server."""
    async with Upstream(script if isinstance(script, list) else [script]) as up, serving(behind(up)) as server:
        return [
            Told(path, stream, await post(server, asking(path, stream), path=path), up.posts[-1])
            for path in paths
            for stream in streams
        ]


def history(path: str, *turns: Sequence[tuple[str, str, dict[str, Any], str]], said: str = "") -> dict[str, Any]:
    """A conversation in the words of a client: each turn is a text and calls, by id, name, arguments, result."""
    items: list[Any] = [{"role": "user", "content": "hi"}]
    for calls in turns:
        if path == RESPONSES:
            text = [{"type": "output_text", "text": said}]
            items += [{"type": "message", "role": "assistant", "content": text}] if said else []
            items += [
                {"type": "function_call", "call_id": ident, "name": name, "arguments": json.dumps(given)}
                for ident, name, given, _ in calls
            ]
            items += [{"type": "function_call_output", "call_id": one[0], "output": one[3]} for one in calls]
        elif path == MESSAGES:
            blocks: list[Any] = [{"type": "text", "text": said}] if said else []
            blocks += [{"type": "tool_use", "id": one[0], "name": one[1], "input": one[2]} for one in calls]
            results = [{"type": "tool_result", "tool_use_id": one[0], "content": one[3]} for one in calls]
            items += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
        else:
            made = [
                {"id": ident, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
                for ident, name, given, _ in calls
            ]
            items.append({"role": "assistant", "content": said or None, "tool_calls": made})
            items += [{"role": "tool", "tool_call_id": one[0], "content": one[3]} for one in calls]
    return {"input" if path == RESPONSES else "messages": items}


def meant(path: str, answer: WireAnswer, stream: bool) -> tuple[str, list[tuple[str, Any]], str, int]:
    """Text, calls, thoughts, and tokens read of a good answer."""
    if path == MESSAGES:
        usage = (accumulate(answer.body) if stream else answer.json())["usage"]
        read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    elif path == RESPONSES:
        read = (answer.frames()[-1]["response"] if stream else answer.json())["usage"]["input_tokens"]
    else:
        read = (chunks_of(answer)[-1] if stream else answer.json())["usage"]["prompt_tokens"]
    return *said(path, answer, stream), read


def ended(path: str, answer: WireAnswer, stream: bool) -> str:
    """Why a good answer ended, in Chat's words."""
    if path == MESSAGES:
        reason = (accumulate(answer.body) if stream else answer.json())["stop_reason"]
        return {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}[
            reason
        ]
    if path == RESPONSES:
        shown = answer.frames()[-1]["response"] if stream else answer.json()
        if shown["status"] == "incomplete":
            reason = shown["incomplete_details"]["reason"]
            return {"max_output_tokens": "length"}.get(reason, reason)
        assert shown["status"] == "completed", shown
        called = any(item["type"] in ("function_call", "custom_tool_call") for item in shown["output"])
        return "tool_calls" if called else "stop"
    if not stream:
        return str(answer.json()["choices"][0]["finish_reason"])
    return next(
        str(c["finish_reason"]) for chunk in chunks_of(answer) for c in chunk["choices"] if c.get("finish_reason")
    )


def failed(path: str, answer: WireAnswer, stream: bool) -> str:
    """The message of the one error of an answer, wherever it stands."""
    if answer.status != 200:
        return str(answer.json()["error"]["message"])
    assert stream
    if path == CHAT:
        errors = [frame["error"] for frame in answer.frames() if frame != "[DONE]" and "error" in frame]
        assert answer.frames()[-1] == "[DONE]"
    else:
        errors = [frame["error"] for frame in answer.frames() if frame["type"] == "error"]
        last = answer.frames()[-1]["type"]
        assert last == ("response.failed" if path == RESPONSES else "error")
    (error,) = errors
    return str(error["message"])
