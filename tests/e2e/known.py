"""A gateway that knows conversations beside one that keeps nothing: both are asked the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.configuration.settings import load
from proxy.server.played import PlayedGateway
from proxy.server.serving import gateway

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


@dataclass(frozen=True)
class Seen:
    """What the client and the server were sent."""

    status: bytes
    answer: Any
    asked: Sequence[bytes]


class Asked:
    """One of the gateways, with clients for two keys."""

    def __init__(self, cache_bytes: int) -> None:
        self.sent: list[bytes] = []
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
        self.played = PlayedGateway(gateway, config, self._answer)

    def _answer(self, request: bytes) -> Sequence[bytes]:
        self.sent.append(request.partition(b"\r\n\r\n")[2])
        path = request.split(b" ", 2)[1]
        said = next(answer for end, answer in ANSWERS.items() if path.endswith(end))
        answer = json.dumps({"id": "c", "created": 1, "model": "m", **said}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
        return [head.encode() + answer]

    async def ask(self, api: str, body: bytes, key: str) -> Seen:
        """One request on a connection of its own."""
        self.sent = []
        head = (
            f"POST {PATHS[api]} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {key}\r\nX-Request-Id: r1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        given = await self.played.client()(head.encode() + body)
        head_given, _, answer = given.partition(b"\r\n\r\n")
        return Seen(head_given.split(b" ")[1], _comparable(json.loads(answer)), self.sent)


def _comparable(answer: Any) -> Any:
    """Without what is other in every answer."""
    if isinstance(answer, dict):
        return {key: _comparable(item) for key, item in answer.items() if key not in ("id", "created", "created_at")}
    return answer


class Both:
    """A gateway that keeps what it can, and one that keeps nothing."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.knowing, self.fresh = Asked(64 * 1024 * 1024), Asked(0)
        for one in (self.knowing, self.fresh):
            self.runner.run(one.played.__aenter__())

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
