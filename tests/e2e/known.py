"""A gateway that knows conversations beside one that keeps nothing: both are asked the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from toolwire.configuration.settings import load
from toolwire.ingress import known_conversations
from toolwire.server.process import gateway
from toolwire.server.simulated import SimulatedGateway
from toolwire.support import offload

ROUTES: Final[Mapping[str, Mapping[str, Any]]] = {
    "prompt": {},
    "bracket": {"prompt": {"flatten": "bracket", "reminder": "on"}},
    "kimi": {"format": "kimi_k2", "prompt": {"placement": "user"}},
    "qwen": {"format": "qwen3_coder", "prompt": {"placement": "separate"}},
    "bare": {"format": "bare_json", "requests": {"validation": "strict"}},
    "native": {"mode": "native"},
    "renamed": {"mode": "native", "upstream_model": "another"},
    "template": {"mode": "template"},
    "to_messages": {"backend": "messages"},
    "to_messages_native": {"backend": "messages", "mode": "native"},
    "to_responses": {"backend": "responses"},
    "to_responses_native": {"backend": "responses", "mode": "native"},
    "to_completions": {"backend": "completions"},
}
"""By model: its options."""
OF_ROUTE: Final = frozenset({"backend", "upstream_model"})
KINDS: Final = {
    "chat": "openai_chat",
    "messages": "anthropic_messages",
    "responses": "openai_responses",
    "completions": "openai_completions",
}
PATHS: Final = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_USAGE: Final = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
_TEXT: Final = {"type": "output_text", "text": "Yes.", "annotations": []}
_ITEM: Final = {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [_TEXT]}
ANSWERS: Final[Mapping[bytes, Mapping[str, Any]]] = {
    b"/chat/completions": {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    },
    b"/completions": {"object": "text_completion", "choices": [{"index": 0, "text": "Yes.", "finish_reason": "stop"}]},
    b"/messages": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Yes."}],
        "stop_reason": "end_turn",
        "usage": _USAGE,
    },
    b"/responses": {"object": "response", "created_at": 1, "status": "completed", "output": [_ITEM], "usage": _USAGE},
}
"""Of a model server, by what its path ends with, the first that fits."""


CALLING: Final = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": '<tool_call>\n{"name": "read", "arguments": {"a": 1}}\n</tool_call>'}, "finish_reason": "stop"}],
}  # fmt: skip
"""The answer of the Chat server if the request says "Call!" after its last "Go on"."""

OF_TIME: Final = frozenset({"id", "created", "created_at", "completed_at"})
"""Fields that are other in every answer."""


@dataclass(frozen=True)
class Seen:
    """The bytes that the client and the server were sent."""

    status: bytes
    answer: Any
    asked: Sequence[bytes]


class Asked:
    """One of the gateways, with clients for two keys."""

    def __init__(self, cache_bytes: int) -> None:
        self.sent: list[bytes] = []
        self.ids: list[bytes] = []
        """Ids that clients were given, which `continued` names by their numbers."""
        backends = {
            name: {"url": "http://127.0.0.1:9", "kind": kind, "identify_s": 0, "preset": "generic"}
            for name, kind in KINDS.items()
        }
        routes = []
        for model, said in ROUTES.items():
            of_route = {"backend": "chat", **{key: value for key, value in said.items() if key in OF_ROUTE}}
            options = {key: value for key, value in said.items() if key not in OF_ROUTE}
            routes.append({"model": model, **of_route, "options": options})
        config = load(
            None,
            env={},
            overrides={
                "backends": backends,
                "routes": routes,
                "store": {"kind": "memory"},
                "auth": {"keys": ["one", "two"]},
                "limits": {"cache_bytes": cache_bytes},
                "defaults": {"retry": {"attempts": 1}},
            },
        )
        self.played = SimulatedGateway(gateway, config, self._answer)

    def _answer(self, request: bytes) -> Sequence[bytes]:
        self.sent.append(request.partition(b"\r\n\r\n")[2])
        path = request.split(b" ", 2)[1]
        said = next(answer for end, answer in ANSWERS.items() if path.endswith(end))
        if path.endswith(b"/chat/completions") and b"Call!" in request.rpartition(b"Go on")[2]:
            said = CALLING
        answer = json.dumps({"id": "c", "created": 1, "model": "m", **said}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
        return [head.encode() + answer]

    async def ask(self, api: str, body: bytes, key: str) -> Seen:
        """One request on a connection of its own."""
        self.sent = []
        given = await self._given("POST", PATHS[api], body, key)
        head_given, _, answer = given.partition(b"\r\n\r\n")
        return Seen(head_given.split(b" ")[1], _comparable(json.loads(answer)), self.sent)

    async def continued(self, body: bytes, key: str) -> Seen:
        """The same over Responses, with the ids that this gateway has given in place of their numbers (`@3@`)."""
        for number, ident in enumerate(self.ids):
            body = body.replace(b"@%d@" % number, ident)
        self.sent = []
        given = (await self._given("POST", PATHS["responses"], body, key)).partition(b"\r\n\r\n")
        answer = json.loads(given[2])
        if "output" in answer:
            calls = [one for one in answer["output"] if one["type"] == "function_call"]
            self.ids += [call[name].encode() for call in calls for name in ("id", "call_id")]
            self.ids.append(answer["id"].encode())
        shown, sent = given[2], list(self.sent)
        for number, ident in enumerate(self.ids):
            shown = shown.replace(ident, b"@%d@" % number)
            sent = [one.replace(ident, b"@%d@" % number) for one in sent]
        return Seen(given[0].split(b" ")[1], _comparable(json.loads(shown)), sent)

    async def deleted(self, number: int, key: str) -> bytes:
        """The status when a response is deleted."""
        path = f"{PATHS['responses']}/{self.ids[number].decode()}"
        return (await self._given("DELETE", path, b"", key)).split(b" ")[1]

    async def _given(self, method: str, path: str, body: bytes, key: str) -> bytes:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nX-Request-Id: r1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return await self.played.client()(head.encode() + body)


def _comparable(answer: Any) -> Any:
    """Without what is other in every answer."""
    if isinstance(answer, dict):
        return {key: _comparable(item) for key, item in answer.items() if key not in OF_TIME}
    if isinstance(answer, list):
        return list(map(_comparable, answer))
    return answer


def body_of(api: str, model: str, said: Sequence[Any], tools: Sequence[Any], number: int = 0) -> bytes:
    """A body in one of the protocols that says what these messages and tools of Chat say, as the `number`-th request
    of a client: over Messages it has a note on who pays, new each time, and a mark on its last message."""
    functions = [tool["function"] for tool in tools]
    body: dict[str, Any] = {"model": model}
    if api == "chat":
        body |= {"messages": said} | ({"tools": tools} if tools else {})
    elif api == "messages":
        system, said = _instructions(said)
        note = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={number:05x};"}
        shown = [_as_blocks(one) if isinstance(one, dict) else one for one in said]
        if shown and isinstance(shown[-1], dict) and isinstance(blocks := shown[-1].get("content"), list) and blocks:
            blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
        body |= {"max_tokens": 9, "system": [note, {"type": "text", "text": system}], "messages": shown}
        if functions:
            renamed = [{("input_schema" if key == "parameters" else key): one[key] for key in one} for one in functions]
            body["tools"] = renamed
    else:
        system, said = _instructions(said)
        shown = [item for one in said for item in (_as_items(one) if isinstance(one, dict) else [one])]
        body |= {"instructions": system, "input": shown, "store": number % 2 == 0}
        if functions:
            body["tools"] = [{"type": "function", **one} for one in functions]
    return json.dumps(body, ensure_ascii=False).encode()


def _instructions(said: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    first = said[0] if said and isinstance(said[0], dict) else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return first["content"], said[1:]
    return "", said


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    used = message.get("tool_calls") or ()
    return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in used]


def _more(message: Mapping[str, Any]) -> dict[str, Any]:
    known = {"role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content"}
    return {key: value for key, value in message.items() if key not in known}


def _as_blocks(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        shown = content if isinstance(content, str) else json.dumps(content)
        return {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": shown}],
        }
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    if thought := message.get("reasoning_content"):
        blocks.insert(0, {"type": "thinking", "thinking": thought, "signature": "s"})
    for ident, name, arguments in _calls(message):
        try:
            value = json.loads(arguments)
        except ValueError:
            value = {}
        blocks.append(
            {"type": "tool_use", "id": ident, "name": name, "input": value if isinstance(value, dict) else {}}
        )
    return {"role": {"developer": "system"}.get(role, role), "content": blocks, **_more(message)}


def _as_items(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        shown = content if isinstance(content, str) else json.dumps(content)
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": shown}]
    items: list[dict[str, Any]] = []
    if thought := message.get("reasoning_content"):
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]})
    if isinstance(content, list) and role == "user":
        bare = {"text": "input_text", "image_url": "input_image"}  # parts may stand where an item belongs
        items += [{**part, "type": bare.get(part["type"], part["type"])} for part in content]
    elif content:
        items.append({"role": role, "content": content, **_more(message)})
    for ident, name, arguments in _calls(message):
        items.append({"type": "function_call", "call_id": ident, "name": name, "arguments": arguments})
    return items


class Both:
    """A gateway that keeps what it can, and one that looks for nothing and keeps nothing."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.knowing, self.fresh = Asked(64 * 1024 * 1024), Asked(0)
        self.runner.run(self.knowing.played.__aenter__())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(known_conversations, "LEAST_BYTES", 2**62)
            self.runner.run(self.fresh.played.__aenter__())

    def close(self) -> None:
        """Stop both."""
        for one in (self.knowing, self.fresh):
            self.runner.run(one.played.__aexit__(None, None, None))
        self.runner.close()

    def same(self, api: str, body: bytes, key: str = "one") -> Seen:
        """Returns what was seen, which must be the same of both."""
        seen = [self.runner.run(one.ask(api, body, key)) for one in (self.knowing, self.fresh)]
        assert seen[0] == seen[1]
        return seen[0]

    def continued(self, body: Mapping[str, Any], key: str = "one") -> Seen:
        """The same for a request over Responses that may name earlier answers: see `Asked.continued`."""
        raw = json.dumps(body, ensure_ascii=False).encode()
        seen = [self.runner.run(one.continued(raw, key)) for one in (self.knowing, self.fresh)]
        assert seen[0] == seen[1]
        return seen[0]

    def delete(self, number: int, key: str = "one") -> bytes:
        """Delete the response with that number on both. Returns the status, which must be the same."""
        seen = [self.runner.run(one.deleted(number, key)) for one in (self.knowing, self.fresh)]
        assert seen[0] == seen[1]
        return seen[0]

    def forget(self) -> None:
        """Begin anew with the numbers of answers."""
        self.knowing.ids, self.fresh.ids = [], []


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """The two gateways. Nothing is too small to be known there, nor to be written as a large request."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_conversations, "LEAST_BYTES", 0)
        patch.setattr(offload, "OFFLOAD_BYTES", 0)
        pair = Both()
        yield pair
        pair.close()
