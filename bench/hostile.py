"""Hostile requests and answers, as data for `bench.attacks`.

Each attack is one example of a kind: its input is small, but its processing is large or slow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolwire.config import DEFAULT_CHAIN

Body = bytes
Headers = dict[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` may contain `{ID}`, the id of the last response, and `{CAPTURE}`, the id of the last request.

    `slow_s`: the body is sent in two halves with this pause. `unread_s`: the answer is not read for this time, then the
    connection is closed.
    """

    path: str
    body: Body | None
    headers: Headers = field(default_factory=dict)
    method: str = "POST"
    slow_s: float = 0.0
    unread_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. `before` is sent in order and not measured; then `requests`, `at_once` at a time; then `after`, paths
    that are read. `answer` is the HTTP response of the model server to every request."""

    name: str
    requests: Callable[[], Iterator[Request]]
    before: Callable[[], Iterator[Request]] = lambda: iter(())
    after: Sequence[str] = ()
    answer: Callable[[], bytes] | None = None
    at_once: int = 1
    config: dict[str, Any] = field(default_factory=dict)


# --- bodies ---------------------------------------------------------------------------------------------------------


def dump(value: object) -> bytes:
    """Returns compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def chat(text: str = "hi", **more: object) -> bytes:
    """Returns a Chat request."""
    return dump({"model": "m", "messages": [{"role": "user", "content": text}], **more})


def function(name: str, parameters: object, description: str = "") -> dict[str, Any]:
    """Returns a Chat tool."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def completion(content: str, **choice: object) -> bytes:
    """Returns a Chat response that is not streamed."""
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "message": message, "finish_reason": "stop", **choice}]
    return dump({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})


def reply(body: bytes, kind: str = "application/json") -> bytes:
    """Returns a complete HTTP response."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind.encode(), len(body), body)


def stream(*contents: str) -> bytes:
    """Returns a streamed Chat response."""
    chunks = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in contents]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    frames = [
        b"data: %b\n\n"
        % dump({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [c]})
        for c in chunks
    ]
    return reply(b"".join(frames) + b"data: [DONE]\n\n", "text/event-stream")


SIMPLE: Final = function("look_up", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})


def _patterns(path: str, bad: bool = False) -> Iterator[Request]:
    for turn in range(28):
        tools = []
        for tool in range(64):
            number = turn * 64 + tool
            properties = {
                f"p{place}": {"type": "string", "pattern": f"^(a{{1,300}}|b{{1,300}}|r{number}i{place})$"}
                for place in range(32)
            }
            tools.append(function(f"tool_{tool}", {"type": "object", "properties": properties}))
        choice: dict[str, Any] = {"tool_choice": {"type": "function", "function": {"name": "none"}}} if bad else {}
        if "messages" in path:
            flat = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in tools]
            yield Request(path, dump({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": flat}))
        else:
            yield Request(path, chat(tools=tools, **choice))


def _classes() -> Iterator[Request]:
    for turn in range(12):
        tools = [
            function(
                f"tool_{tool}",
                {
                    "type": "object",
                    "properties": {
                        f"p{place}": {
                            "type": "string",
                            "pattern": rf"^\w{{1,60}}[\p{{L}}\d]{{1,40}}x{turn * 64 + tool}$",
                        }
                        for place in range(32)
                    },
                },
            )
            for tool in range(64)
        ]
        yield Request("/v1/chat/completions", chat(tools=tools))


def _enums() -> Iterator[Request]:
    tools = [
        function(f"t{n}", {"type": "object", "properties": {"e": {"enum": [f"value {n} {m}" for m in range(9000)]}}})
        for n in range(4)
    ]
    for turn in range(3):
        yield Request("/v1/chat/completions", chat(f"hi {turn}", tools=tools, tool_choice="required"))


def _stored(size: int, count: int = 1, items: int = 1) -> Iterator[Request]:
    for turn in range(count):
        text = f"{turn} " + "word " * (size // 5 // items)
        body: dict[str, Any] = {"model": "m", "input": [{"type": "message", "role": "user", "content": text}] * items}
        if turn:
            body["previous_response_id"] = "{ID}"
        yield Request("/v1/responses", dump(body))


def _follow() -> Iterator[Request]:
    yield Request("/v1/responses", dump({"model": "m", "previous_response_id": "{ID}", "input": "go on"}))


def _references(times: int) -> Iterator[Request]:
    items: list[object] = [{"type": "item_reference", "id": "{ITEM}"}] * times
    yield Request("/v1/responses", dump({"model": "m", "input": items}))


def _paths(path: str, times: int) -> Iterator[Request]:
    for _ in range(times):
        yield Request(path, None, method="GET")


def _one(body: bytes, path: str = "/v1/chat/completions", times: int = 1, **more: Any) -> Iterator[Request]:
    for _ in range(times):
        yield Request(path, body, **more)


def _many_messages(count: int, calls: bool = False) -> bytes:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for place in range(count):
        if calls:
            call = {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": "look_up", "arguments": '{"q":"x"}'},
            }
            messages += (
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {
                    "role": "tool",
                    "tool_call_id": f"call_{place}",
                    "content": "ok",
                },
            )
        else:
            messages.append({"role": ("assistant", "user")[place % 2], "content": f"message {place}"})
    if calls:
        messages.append({"role": "user", "content": "and?"})
    return dump({"model": "m", "messages": messages, "tools": [SIMPLE]})


def _embeddings() -> bytes:
    rows = ",".join(["0.0123456789"] * 6_000_000).encode()
    return reply(b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[%b]}]}' % rows)


WATCHED: Final = {"capture": 20, "inspect": True, "chain": ["request_log", *DEFAULT_CHAIN]}
READ: Final = ("/admin/captures", "/admin/captures/{CAPTURE}", "/inspect/api/exchanges/{CAPTURE}")
"""Paths that show the last exchange."""
CAPTURE_HEAD: Final = b'{"toolwire_capture":1,"id":"x"}\n'
DEEP_CALL: Final = '<tool_call>\n{"name": "look_up", "arguments": {"q": [%s]}}\n</tool_call>'
NEAR_MISS: Final = '<tool_call>\n{"name": "look_up", "arguments": {"q": "%s"}\n'
STORE: Final = {"store": {"kind": "memory"}}

ATTACKS: Final = (
    Attack("nothing", lambda: _one(chat(tools=[SIMPLE]), times=50)),
    Attack("patterns of schemas", lambda: _patterns("/v1/chat/completions")),
    Attack("patterns, refused with 400", lambda: _patterns("/v1/chat/completions", bad=True)),
    Attack("patterns, count_tokens", lambda: _patterns("/v1/messages/count_tokens")),
    Attack("patterns of Unicode classes", _classes),
    Attack("enums of 619 kB, required", _enums),
    Attack(
        "a description of 31 MB", lambda: _one(chat(tools=[function("f", {"type": "object"}, "word " * 6_200_000)]))
    ),
    Attack("item_reference x 500", lambda: _references(500), before=lambda: _stored(1_000_000), config=STORE),
    Attack("item_reference x 2000", lambda: _references(2000), before=lambda: _stored(1_000_000), config=STORE),
    Attack("a chain of 10 x 6 MB", _follow, before=lambda: _stored(6_000_000, 10), config=STORE),
    Attack("a follow-up of 8 MB", _follow, before=lambda: _stored(8_000_000), config=STORE),
    Attack("a follow-up of 1,000 items", _follow, before=lambda: _stored(6_000_000, 1, 1_000), config=STORE),
    Attack("a follow-up of 16,000 items", _follow, before=lambda: _stored(500_000, 1, 16_000), config=STORE),
    Attack(
        "input_items of 30 MB x 20",
        lambda: _paths("/v1/responses/{ID}/input_items", 20),
        before=lambda: _stored(30_000_000),
        at_once=20,
        config=STORE,
    ),
    Attack("eyJ x 20,000 in a message", lambda: _one(chat("eyJ" * 20_000)), after=READ, config=WATCHED),
    Attack("eyJ x 100,000 in a message", lambda: _one(chat("eyJ" * 100_000)), after=READ, config=WATCHED),
    Attack("sk- x 1 million in a message", lambda: _one(chat("sk-a" * 1_000_000)), after=READ, config=WATCHED),
    Attack(
        "eyJ x 18,000 in User-Agent",
        lambda: _one(chat(), headers={"User-Agent": "eyJ" * 18_000}),
        after=READ,
        config=WATCHED,
    ),
    Attack(
        '":\\n\\n" x 21,000 in an answer',
        lambda: _one(chat(tools=[SIMPLE])),
        answer=lambda: reply(completion('":\n\n"' * 21_000)),
    ),
    Attack(
        "[] x 5 million in an answer",
        lambda: _one(chat(tools=[SIMPLE])),
        answer=lambda: reply(completion("hi", x=[])[:-1] + b',"x":[%b]}' % b",".join([b"[]"] * 5_300_000)),
    ),
    Attack(
        "[] x 2.5 million in a frame",
        lambda: _one(chat(tools=[SIMPLE], stream=True)),
        answer=lambda: reply(
            b'data: {"choices":[],"x":[%b]}\n\n' % b",".join([b"[]"] * 2_500_000), "text/event-stream"
        ),
    ),
    Attack(
        "logprobs of 6.8 MB",
        lambda: _one(chat(tools=[SIMPLE], logprobs=True, top_logprobs=5), times=3),
        answer=lambda: reply(
            completion(
                "word " * 20_000,
                logprobs={
                    "content": [
                        {
                            "token": "word ",
                            "logprob": -0.1,
                            "bytes": [1, 2, 3],
                            "top_logprobs": [{"token": "word", "logprob": -0.25, "bytes": [1, 2]}] * 5,
                        }
                        for _ in range(20_000)
                    ]
                },
            )
        ),
    ),
    Attack(
        "a list of models of 7 MB",
        lambda: _paths("/v1/models", 10),
        answer=lambda: reply(
            dump({"object": "list", "data": [{"id": f"model-{n}", "object": "model"} for n in range(150_000)]})
        ),
    ),
    Attack(
        "a near miss of 1 MB",
        lambda: _one(chat(tools=[SIMPLE])),
        answer=lambda: reply(completion(NEAR_MISS % ("<tool_call>" * 90_000))),
    ),
    Attack(
        "a near miss of 8 MB",
        lambda: _one(chat(tools=[SIMPLE])),
        answer=lambda: reply(completion(NEAR_MISS % ("<tool_call>" * 720_000))),
    ),
    Attack(
        "check of 30 MB in the inspector",
        lambda: _one(b'{"api":"chat","body":' + chat("hi", x=[[]] * 10_000_000) + b"}", "/inspect/api/check", 2),
        config=WATCHED,
        at_once=2,
    ),
    Attack(
        "view of 30 MB in the inspector",
        lambda: _one(CAPTURE_HEAD + b'{"a":[%b]}' % b",".join([b"[]"] * 10_000_000), "/inspect/api/view", 2),
        config=WATCHED,
        at_once=2,
    ),
    Attack(
        "view of 20,000 calls in the inspector",
        lambda: _one(
            CAPTURE_HEAD + b"".join(b'{"kind":"sent","at":0,"call":%d,"data":"{}"}\n' % n for n in range(20_000)),
            "/inspect/api/view",
        ),
        config=WATCHED,
    ),
    Attack("400 bodies of 3.9 MB at once", lambda: _one(chat("x" * 3_900_000), times=400, slow_s=4), at_once=400),
    Attack(
        "8 unread embeddings",
        lambda: _one(dump({"model": "m", "input": "x"}), "/v1/embeddings", 8, unread_s=4),
        answer=_embeddings,
        at_once=8,
    ),
    Attack(
        "count_tokens of 30 MB",
        lambda: _one(
            dump({"model": "m", "messages": [{"role": "user", "content": "word " * 6_000_000}]}),
            "/v1/messages/count_tokens",
            2,
        ),
    ),
    Attack("10 x 33,000 messages", lambda: _one(_many_messages(33_000), times=10), at_once=10),
    Attack("6,000 calls", lambda: _one(_many_messages(6_000, calls=True), times=3)),
    Attack(
        "calls with deep arguments",
        lambda: _one(chat(tools=[function("look_up", {"type": "object"})]), times=3),
        answer=lambda: reply(completion(DEEP_CALL % ",".join(["[]"] * 300_000))),
    ),
    Attack(
        "streams of brackets",
        lambda: _one(chat(tools=[SIMPLE], stream=True)),
        answer=lambda: stream(*["[{<tool_call" * 400] * 400),
    ),
)
