"""Law: what is read and written back in the same protocol keeps every field; what is written in another has none of its
fields.

Over recorded requests, answers and streams, over small ones of our own, and with unknown fields put in anywhere. What
is written in another of several forms that say the same is brought into one form first: `chat_form`, `messages_form`
and `responses_form` are the whole list.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.cases import every, examples
from tests.protocols import responses_wires, wires
from tests.protocols.corners import sse
from tests.protocols.messages_wires import MESSAGES, captured_requests
from tests.protocols.published import SHARED, captured_chat_requests, captured_responses_requests
from tests.protocols.responses_wires import RESPONSES
from tests.protocols.test_corners_responses_read import frames, usual
from tests.protocols.test_messages_request import TOOL
from tests.protocols.wires import CHAT
from tests.strategies import rich_streams
from toolwire.errors import ClientFault
from toolwire.events import Close, Delta, Event, Finish, Opaque, Open, Start
from toolwire.folding import fold, unfold
from toolwire.model import Usage, fields_of, scoped
from toolwire.stream_grammar import check, normalise

# --- one form -------------------------------------------------------------------------------------------------------


def stripped(value: Any) -> Any:
    """Without what is null."""
    if isinstance(value, dict):
        return {key: stripped(item) for key, item in value.items() if item is not None}
    return [stripped(item) for item in value] if isinstance(value, list) else value


def one_text(content: Any, kinds: tuple[str, ...]) -> Any:
    """A single text as a string; no text as none."""
    if isinstance(content, list):
        content = [part for part in content if part.keys() - {"type", "text"} or part.get("text") != ""]
        if len(content) == 1 and content[0].keys() == {"type", "text"} and content[0]["type"] in kinds:
            return content[0]["text"]
    return content or ""


def chat_form(body: dict[str, Any]) -> dict[str, Any]:
    """A Chat request in the form that the gateway writes."""
    body = stripped(copy.deepcopy(body))
    if "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    if isinstance(body.get("stop"), str):
        body["stop"] = [body["stop"]]
    for key, default in (("parallel_tool_calls", True), ("n", 1), ("stream", False), ("tool_choice", "auto")):
        if body.get(key) == default:
            del body[key]
    if not body.get("tools"):
        body = {key: value for key, value in body.items() if key not in ("tools", "tool_choice", "parallel_tool_calls")}
    if body.get("stream_options") == {"include_usage": False}:
        del body["stream_options"]
    elif isinstance(options := body.get("stream_options"), dict) and options.get("include_usage") is False:
        del options["include_usage"]
    for message in body["messages"]:
        message["content"] = one_text(message.get("content"), ("text",))
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url" and isinstance(part["image_url"], str):
                part["image_url"] = {"url": part["image_url"]}
    for tool in body.get("tools", ()):
        if tool["type"] in ("function", "custom") and tool["type"] not in tool:  # flat
            inner = ("name", "description", "parameters", "strict", "format")
            tool[tool["type"]] = {key: tool.pop(key) for key in inner if key in tool}
    return body


def messages_form(body: dict[str, Any]) -> dict[str, Any]:
    """A Messages request in the form that the gateway writes."""
    body = stripped(copy.deepcopy(body))
    body.pop("thread", None)
    if body.get("tool_choice") == {"type": "auto"}:
        del body["tool_choice"]
    for key in ("stream", "tools"):
        if not body.get(key):
            body.pop(key, None)
    if "system" in body:
        body["system"] = one_text(body["system"], ("text",))
    for message in body["messages"]:
        message["content"] = one_text(message["content"], ("text",))
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_result":
                block["content"] = one_text(block.get("content"), ("text",))
                if not block["content"]:
                    del block["content"]
                if block.get("is_error") is False:
                    del block["is_error"]
    return body


def responses_form(body: dict[str, Any]) -> dict[str, Any]:
    """A Responses request in the form that the gateway writes."""
    body = stripped(copy.deepcopy(body))
    for key in ("store", "background", "previous_response_id", "conversation"):
        body.pop(key, None)
    for key, default in (("parallel_tool_calls", True), ("stream", False), ("tool_choice", "auto")):
        if body.get(key) == default:
            del body[key]
    if not body.get("tools"):
        body = {key: value for key, value in body.items() if key not in ("tools", "tool_choice", "parallel_tool_calls")}
    if body.get("text", {}).get("format") == {"type": "text"}:
        del body["text"]["format"]
    body = {key: value for key, value in body.items() if key not in ("text", "reasoning") or value}
    items = body.get("input", [])
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    if body.get("instructions"):
        items = [{"role": "system", "content": body["instructions"]}, *items]
    body.pop("instructions", None)
    body["input"] = [responses_item(item) for item in items if item.get("type") != "reasoning" or says(item)]
    for tool in body.get("tools", ()):
        if tool["type"] == "namespace":
            tool.setdefault("description", tool["name"])
    return body


def says(item: dict[str, Any]) -> bool:
    """Whether reasoning holds anything."""
    return bool(item.get("summary") or item.get("content") or item.get("encrypted_content"))


def responses_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item in the form that the gateway writes."""
    item = {"type": "message", **item}
    kind = item["type"]
    if kind in KINDS:
        item.pop("status", None)
        kept = bool(item.get("encrypted_content")) if kind == "reasoning" else kind.endswith("call")
        if not kept:
            item.pop("id", None)
    if kind == "message":
        text = "output_text" if item["role"] == "assistant" else "input_text"
        item["content"] = one_text([bare(part, text) for part in listed(item.get("content"), text)], (text,))
    if kind.endswith("call_output"):
        item["output"] = one_text(
            [bare(part, "input_text") for part in listed(item["output"], "input_text")], ("input_text",)
        )
    if kind == "reasoning":
        item.setdefault("summary", [])
        texts = [part["text"] for part in item["summary"]]
        item["summary"] = [{"type": "summary_text", "text": "\n\n".join(texts)}] if texts else []
        if not item.get("content"):
            item.pop("content", None)
    return item


KINDS = ("message", "function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output", "reasoning")


def listed(content: Any, kind: str) -> list[dict[str, Any]]:
    return [{"type": kind, "text": content}] if isinstance(content, str) else list(content or ())


def bare(part: dict[str, Any], kind: str) -> dict[str, Any]:
    """A content part; empty lists of a text say nothing."""
    if part["type"] in ("input_text", "output_text", "text"):
        kept = {key: value for key, value in part.items() if value or key not in ("annotations", "logprobs")}
        return {**kept, "type": kind}
    return part


def again(protocol: Any, body: dict[str, Any]) -> Any:
    """The request as it is written after it was read."""
    return json.loads(json.dumps(protocol.write_request(protocol.read_request(body, b""))))


# --- requests -------------------------------------------------------------------------------------------------------

CHAT_REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low", "format": "png"}, "cache_control": {}},
                {"type": "file", "file": {"file_id": "f"}},
            ],
            "name": "me",
            "x_message": 1,
        },
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}", "x": 1}, "extra_content": {"google": {"thought_signature": "s"}}},
                {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "raw"}, "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "ok", "cache_control": {"type": "ephemeral"}}], "x": 2},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "x": 1}, "cache_control": {"type": "ephemeral"}},
        {"type": "custom", "custom": {"name": "p", "format": {"type": "text"}}, "x": 1},
        {"type": "web_search", "x": 1},
    ],
    "tool_choice": {"type": "function", "function": {"name": "f", "x": 1}, "y": 2},
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "response_format": {"type": "json_object", "x": 1},
    "top_k": 4,
    "metadata": {"a": "b"},
}  # fmt: skip

RESPONSES_REQUEST: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi", "cache_control": {}}, {"type": "input_image", "image_url": "data:x", "x": 1}, {"type": "input_file", "file_id": "f"}]},
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "e", "summary": [{"type": "summary_text", "text": "s"}], "content": [{"type": "reasoning_text", "text": "t"}], "x": 1},
        {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "status": "completed", "content": [{"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "u"}]}, {"type": "output_text", "text": "b"}]},
        {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "x": {"y": 1}},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "ok", "x": 1}], "z": 1},
        {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "raw", "x": 1},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "web_search_call", "id": "ws_1", "x": 1},
    ],
    "tools": [
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "defer_loading": True},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}, "x": 1},
        {"type": "web_search", "filters": {"x": 1}},
        {"type": "namespace", "name": "ns", "description": "d", "tools": [{"type": "function", "name": "g", "x": 1}]},
    ],
    "tool_choice": {"type": "function", "name": "f", "x": 1},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {}, "x": 1}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "top_k": 4,
    "min_p": 0.5,
}  # fmt: skip

MESSAGES_REQUEST: dict[str, Any] = {
    "model": "m",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}, {"type": "text", "text": "B."}],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "Look:", "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}, "transformations": {}},
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            {"type": "image", "source": {"type": "file", "file_id": "f"}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "D"}, "title": "t", "citations": {"enabled": True}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}},
            {"type": "container_upload", "file_id": "f"},
        ]},
        {"role": "system", "content": "Mid."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "eA=="},
            {"type": "text", "text": "I see.", "citations": [{"type": "char_location", "cited_text": "D", "document_index": 0}]},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "url": "u"}]},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a", "n": [1, 2.5, None]}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "functions_2", "name": "list", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "text", "text": "ok", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "x"}]},
                {"type": "tool_reference", "tool_name": "f"},
            ], "cache_control": {"type": "ephemeral"}},
            {"type": "tool_result", "tool_use_id": "functions_2", "content": "no", "is_error": True},
            {"type": "text", "text": "Go on."},
        ]},
    ],
    "tools": [
        {**TOOL, "type": "custom", "description": "d", "strict": True, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True},
        {"name": "list", "input_schema": {"type": "object"}, "input_examples": [{}]},
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
        {"type": "bash_20250124", "name": "bash"},
    ],
    "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "summarized"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "u"},
    "mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}],
    "container": {"skills": []},
    "service_tier": "auto",
    "stop_sequences": ["###"],
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 4,
    "stream": True,
    "min_p": 0.5,
}  # fmt: skip

CASES: dict[str, tuple[Any, Callable[[Any], Any], dict[str, Any]]] = {
    "chat": (CHAT, chat_form, CHAT_REQUEST),
    "messages": (MESSAGES, messages_form, MESSAGES_REQUEST),
    "responses": (RESPONSES, responses_form, RESPONSES_REQUEST),
}
FIELD = "x_unknown"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The objects of a body in which there may be an unknown field."""
    if isinstance(value, dict):
        if value.get("type") not in ("namespace", "summary_text", "reasoning_text"):
            yield path
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def with_field(body: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    body = copy.deepcopy(body)
    place: Any = body
    for step in path:
        place = place[step]
    place[FIELD] = "mine"
    return body


@every("name", CASES)
def test_a_request_with_everything_and_an_unknown_field_anywhere(name: str) -> None:
    protocol, form, body = CASES[name]
    for asked in (body, *(with_field(body, path) for path in places(body))):
        assert form(again(protocol, asked)) == form(asked)


RECORDED = [
    *((path, "chat") for path in captured_chat_requests()),
    *((path, "messages") for path in captured_requests()),
    *((path, "responses") for path in captured_responses_requests()),
]


@every(("path", "name"), RECORDED)
def test_recorded_requests(path: Path, name: str) -> None:
    protocol, form, _ = CASES[name]
    value = json.loads(path.read_bytes())
    body = value.get("body", value)
    if name == "messages":
        body.setdefault("max_tokens", 1)  # counting needs none
        if (body.get("thread") or {}).get("type") == "continue":
            with pytest.raises(ClientFault, match="Send the whole conversation"):
                again(protocol, body)
            return
    assert form(again(protocol, body)) == form(body)


WHOLE = {"response_format", "metadata", "schema", "parameters", "format", "input_schema"}
"""Values that mean something to others as a whole."""
OTHERS: dict[str, list[tuple[Any, ...]]] = {
    "chat": [("tools", 2), ("messages", 2, "tool_calls", 1, "custom"), ("tools", 1, "custom")],
    "messages": [
        *(("tools", n) for n in (2, 3)),
        *(("messages", 3, "content", 0, "content", n) for n in (2, 3)),
        *(("messages", 2, "content", n, "input") for n in (3, 5, 6)),
    ],
    "responses": [("tools", 2)],
}
"""Where others are shown what they do not know: hosted tools, arguments, and parts that are JSON in a result."""


@every("name", CASES)
def test_no_field_of_one_protocol_reaches_another(name: str) -> None:
    """But for the parameters of the server."""
    protocol, _, body = CASES[name]
    for path in places(body):
        if path and WHOLE.isdisjoint(path) and not any(path[: len(one)] == one for one in OTHERS[name]):
            request = protocol.read_request(with_field(body, path), b"")
            for other, (writer, *_) in CASES.items():
                assert other == name or FIELD not in json.dumps(writer.write_request(request)), (other, path)


# --- whole answers --------------------------------------------------------------------------------------------------

CHAT_REPLY: dict[str, Any] = {
    "id": "chatcmpl-9",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "system_fingerprint": "fp",
    "service_tier": "flex",
    "provider": {"name": "p"},
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}],
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "x": 1}, "extra_content": {"a": 1}}],
            },
            "logprobs": {"content": [], "refusal": None},
            "finish_reason": "tool_calls",
            "native_finish_reason": "STOP",
        },
        {"index": 1, "message": {"role": "assistant", "content": "b"}, "finish_reason": "stop", "stop_reason": "###", "content_filter_results": {"hate": {"filtered": False}}},
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 2}, "cost": 0.5},
}  # fmt: skip

RESPONSES_REPLY: dict[str, Any] = {
    "id": "resp_9",
    "object": "response",
    "created_at": 1,
    "completed_at": 7,
    "status": "completed",
    "model": "m",
    "service_tier": "flex",
    "billing": {"payer": "developer"},
    "output": [
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "e", "summary": [{"type": "summary_text", "text": "s"}], "x": 1},
        {"type": "message", "role": "assistant", "phase": "final_answer", "content": [{"type": "output_text", "text": "a", "annotations": [{"type": "url_citation", "url": "u"}], "logprobs": []}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no", "x": 1}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "x": 1},
        {"type": "web_search_call", "id": "ws_1", "x": 1},
    ],
    "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 1, "x": 2}, "cost": 0.5},
}  # fmt: skip


def lost(wanted: Any, got: Any, path: str = "") -> list[str]:
    """What of `wanted` is not in `got`; nulls and what the gateway says itself aside."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        return [
            line
            for key, item in wanted.items()
            if item is not None and key not in GATEWAYS
            for line in (lost(item, got[key], f"{path}.{key}") if key in got else [f"{path}.{key}"])
        ]
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        return [line for n, (a, b) in enumerate(zip(wanted, got, strict=True)) for line in lost(a, b, f"{path}[{n}]")]
    return [] if wanted == got else [f"{path}: {wanted!r} is {got!r}"]


GATEWAYS = {"id", "created", "created_at", "model"}

REPLIES = [
    (CHAT, CHAT_REPLY, wires.options),
    (RESPONSES, RESPONSES_REPLY, responses_wires.options),
]


def rewritten(protocol: Any, body: dict[str, Any], options: Any) -> Any:
    return json.loads(protocol.write_reply(protocol.read_reply(json.dumps(body).encode()), options))


@pytest.mark.parametrize(("protocol", "body", "options"), REPLIES, ids=["chat", "responses"])
def test_an_answer_with_everything(protocol: Any, body: dict[str, Any], options: Any) -> None:
    assert lost(body, rewritten(protocol, body, options())) == []


REPLY_CLOSED = ("summary", "logprobs")


@pytest.mark.parametrize(("protocol", "body", "options"), REPLIES, ids=["chat", "responses"])
def test_an_unknown_field_anywhere_in_an_answer(protocol: Any, body: dict[str, Any], options: Any) -> None:
    for path in places(body):
        if not set(REPLY_CLOSED) & set(path):
            answer = with_field(body, path)
            assert lost(answer, rewritten(protocol, answer, options())) == []


@pytest.mark.parametrize("name", ["responses-text.json", "responses-function.json"])
def test_recorded_answers(name: str) -> None:
    path = SHARED / "spec/data/observed-openai" / name
    if not path.exists():
        pytest.skip(f"no recorded answers at {path}; set TOOLWIRE_SHARED")
    body = json.loads(path.read_bytes())["body"]
    asked = {key: body[key] for key in ("temperature", "top_p", "tools", "tool_choice", "text", "reasoning", "store", "truncation", "parallel_tool_calls", "max_output_tokens") if key in body}  # fmt: skip
    got = rewritten(RESPONSES, body, responses_wires.options(asked))
    body["output"] = [responses_item(item) for item in body["output"] if item["type"] != "reasoning" or says(item)]
    for item in got["output"]:
        item["content"] = one_text([bare(part, "output_text") for part in item.get("content", ())], ("output_text",))
    assert lost(body, got) == []


@pytest.mark.parametrize(("read", "write", "body"), [(CHAT, RESPONSES, CHAT_REPLY), (RESPONSES, CHAT, RESPONSES_REPLY)], ids=["chat", "responses"])  # fmt: skip
def test_no_field_of_an_answer_reaches_another_protocol(read: Any, write: Any, body: dict[str, Any]) -> None:
    options = {CHAT: wires.options, RESPONSES: responses_wires.options}[write]()
    for path in places(body):
        if "logprobs" not in path:
            reply = read.read_reply(json.dumps(with_field(body, path)).encode())
            assert FIELD not in write.write_reply(reply, options).decode(), path
            assert FIELD not in write.writer(options).feed(unfold(reply)).decode(), path


# --- streams --------------------------------------------------------------------------------------------------------


def chat_stream() -> bytes:
    first = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}, "extra_content": {"a": 1}}]}  # fmt: skip
    late = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}, "extra_content": {"b": 2}}]}
    beside = {"index": 0, "delta": {"content": "b", "x_delta": 1}}
    logprobs = {"index": 0, "delta": {"content": "c"}, "logprobs": {"content": [], "refusal": None}}
    last = {"index": 0, "delta": {"annotations": [1]}, "finish_reason": "tool_calls", "stop_reason": "###"}
    head = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    return b"".join(
        [
            wires.chunk({"role": "assistant", "content": ""}, provider="p", system_fingerprint="fp"),
            wires.chunk({"reasoning_content": "hm"}, provider="p"),
            wires.chunk({"content": "a"}, provider="p", obfuscation="zzz"),
            wires.frame({**head, "choices": [beside], "x_noise": [1]}),
            wires.frame({**head, "choices": [logprobs]}),
            wires.chunk({"x_only": {"y": 1}}),
            wires.chunk(first),
            wires.chunk(late),
            wires.frame({**head, "choices": [last], "x_groq": {"id": "q"}}),
            wires.frame({**head, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "cost": 0.5}}),
            b"data: [DONE]\n\n",
        ]
    )


def responses_stream() -> bytes:
    """Of a thought that is sealed half when it begins."""

    def half_sealed(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
        added, *rest = usual(index, item)
        return [{**added, "item": {**added["item"], "encrypted_content": "half"}}, *rest]

    def way(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
        return (half_sealed if item["type"] == "reasoning" else usual)(index, item)

    return sse(*frames(RESPONSES_REPLY, way))


STREAMS = [
    (wires.read, wires.write, lambda: wires.options(usage=True), chat_stream),
    (responses_wires.read, responses_wires.write, responses_wires.options, responses_stream),
]


@pytest.mark.parametrize(("read", "write", "options", "data"), STREAMS, ids=["chat", "responses"])
def test_a_stream_with_everything(read: Any, write: Any, options: Any, data: Any) -> None:
    events = read(data())
    check(events)
    again = read(write(events, options()))
    deltas = [(event.text, event.extra) for event in events if isinstance(event, Delta)]
    assert [(event.text, event.extra) for event in again if isinstance(event, Delta)] == deltas
    assert fold(plain(again)) == fold(plain(events))
    assert [event for event in normalise(again) if isinstance(event, Finish)] == [event for event in events if isinstance(event, Finish)]  # fmt: skip


def plain(events: list[Event]) -> list[Event]:
    """The events; of a chunk that is not modelled only the choices: the rest of it is that of every chunk."""
    return [
        Opaque(event.protocol, event.payload["choices"])
        if isinstance(event, Opaque) and event.protocol == "chat"
        else event
        for event in events
    ]


def test_where_a_chat_stream_keeps_what_is_not_modelled() -> None:
    reply = fold(wires.read(chat_stream()))
    (choice,) = reply.choices
    assert reply.extra == {"chat": {"provider": "p", "system_fingerprint": "fp", "x_groq": {"id": "q"}}}
    assert choice.extra == {"chat": {"stop_reason": "###", "message": {"annotations": [1]}}, "stop_sequence": "###"}
    assert choice.stop_sequence == "###"
    assert reply.calls[0].extra == {"chat": {"extra_content": {"b": 2}}}
    assert reply.usage is not None
    assert reply.usage.extra == {"chat": {"cost": 0.5}}


@pytest.mark.parametrize("name", ["chat-text-stream", "responses-text-stream", "responses-function-stream", "responses-incomplete-stream"])  # fmt: skip
def test_recorded_streams(name: str) -> None:
    path = SHARED / f"spec/data/observed-openai/{name}.events.jsonl"
    if not path.exists():
        pytest.skip(f"no recorded streams at {path}; set TOOLWIRE_SHARED")
    chat = name.startswith("chat")
    protocol = wires if chat else responses_wires
    events = protocol.read(b"".join(b"data: %b\n\n" % line for line in path.read_bytes().splitlines()))
    check(events)
    again = protocol.read(protocol.write(events, wires.options(usage=True) if chat else None))
    assert said(again) == said(events)
    assert fold(events).choices[0].reason == ("length" if "incomplete" in name else "stop")


def said(events: list[Event]) -> Any:
    """What a stream amounts to, without what the gateway says itself."""
    reply = fold(plain(events))
    return reply.choices, reply.usage or Usage(), fields_of(reply.extra, "chat"), fields_of(reply.extra, "responses")


@examples(0.4)
@given(rich_streams())
def test_a_stream_shows_no_field_of_a_third_protocol(events: list[Event]) -> None:
    for event in events:
        if isinstance(event, Start | Open | Close | Finish):
            event.extra = scoped("messages", {FIELD: 1})
    for written in (wires.write(events), responses_wires.write(events)):
        assert FIELD not in written.decode()
