"""Answers of servers that are none, whole and streamed, in every protocol: cut anywhere, garbage, too large, errors."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from tests.cases import every
from tests.protocols import messages_wires, responses_wires, wires
from tests.protocols import test_corners_chat_read as in_chat
from tests.protocols import test_corners_messages_read as in_messages
from tests.protocols import test_corners_responses_read as in_responses
from tests.protocols.corners import read_by, sse
from toolwire.errors import BackendFault, ClientFault, GatewayError
from toolwire.events import Event, Fault, Finish
from toolwire.folding import fold
from toolwire.protocols.base import ServerSide
from toolwire.stream_grammar import check

DONE = b"data: [DONE]\n\n"
CHAT, MESSAGES, RESPONSES = wires.CHAT, messages_wires.MESSAGES, responses_wires.RESPONSES


def ended(status: str = "completed", **fields: Any) -> bytes:
    return sse({"type": f"response.{status}", "response": {"status": status, "output": [], **fields}})


BEGUN = {
    "chat": wires.chunk({"content": "x"}),
    "messages": sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "x"}}),
    "responses": sse({"type": "response.output_text.delta", "output_index": 0, "delta": "x"}),
}
LAST = {
    "chat": wires.chunk({}, "stop"),
    "messages": sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    "responses": ended(),
}
"""The frame that ends an answer; others may follow."""
REST = {"chat": DONE, "messages": sse({"type": "message_stop"}), "responses": DONE}
SERVERS: dict[str, ServerSide] = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}


def read(name: str, data: bytes, size: int = 0, frame_bytes: int = 1 << 20) -> list[Event]:
    events = read_by(SERVERS[name].reader(frame_bytes=frame_bytes), data, size)
    check(events)
    assert sum(isinstance(event, Fault) for event in events) <= 1
    return events


def fault_of(name: str, data: bytes, size: int = 0, frame_bytes: int = 1 << 20) -> GatewayError:
    last = read(name, data, size, frame_bytes)[-1]
    assert isinstance(last, Fault)
    return last.error


@every("name", SERVERS)
def test_a_stream_that_is_cut_anywhere(name: str) -> None:
    """It is whole as soon as its last frame is there, also without the blank line behind it."""
    enough = len(BEGUN[name] + LAST[name]) - len(b"\n\n")
    whole = BEGUN[name] + LAST[name] + REST[name]
    for length in range(len(whole) + 1):
        last = read(name, whole[:length])[-1]
        assert isinstance(last, Finish if length >= enough else Fault), length
        assert not isinstance(last, Fault) or (last.error.status, last.error.code) == (502, "upstream_disconnected")


def test_the_end_mark_alone_ends_no_stream_but_one_of_chat_that_said_something() -> None:
    assert read("chat", BEGUN["chat"] + DONE)[-1] == Finish("stop")
    assert fault_of("chat", DONE).code == "upstream_invalid_response"
    for data in (DONE, BEGUN["responses"] + DONE, BEGUN["responses"] + DONE + LAST["responses"]):
        assert fault_of("responses", data).code == "upstream_disconnected"


@every(
    ("end", "name"),
    product(
        [
            b'data: "[DONE]"\n\n',
            b"data: [done]\n\n",
            b"event: done\ndata: DONE\n\n",
            b"event: ping\ndata: 1\n\n" + DONE,
        ],
        SERVERS,
    ),
)
def test_spellings_of_the_end_mark(end: bytes, name: str) -> None:
    """Nothing is read after it. In Responses only an event ends an answer."""
    frames = BEGUN[name] + (b"" if name == "responses" else LAST[name]) + end
    last = SERVERS[name].reader(frame_bytes=1 << 20).feed(frames + BEGUN[name])[-1]
    assert isinstance(last, Fault if name == "responses" else Finish)
    assert not isinstance(last, Fault) or last.error.code == "upstream_disconnected"
    assert read(name, frames.replace(b"\n\n", b"\n"))[-1] == last  # without blank lines


INDEX = b'{"type":"content_block_start","index":1000000000,"content_block":{"type":"text"}}'


@every(
    ("garbage", "name"),
    [*product([b"{oops", b"[]", b"[1]", b"hello", b"[" * 100_000], SERVERS), (INDEX, "messages")],
)
def test_garbage(garbage: bytes, name: str) -> None:
    data = b"data: %b\n\n" % garbage + LAST[name] + REST[name]
    for before in (b"", BEGUN[name]):
        for size in (0, 7 if len(garbage) < 1000 else 1 << 16):
            error = fault_of(name, before + data, size)
            assert isinstance(error, BackendFault)
            assert (error.status, error.code, len(error.message) < 300) == (502, "upstream_invalid_response", True)


@every("name", SERVERS)
def test_a_frame_too_large(name: str) -> None:
    for end in (b"\n\n" + REST[name], b""):
        error = fault_of(name, BEGUN[name] + b"data: " + b"x" * 600 + end, frame_bytes=500)
        assert (error.code, "500 bytes" in error.message) == ("upstream_invalid_response", True)


@every("name", SERVERS)
def test_nothing_is_read_after_the_end(name: str) -> None:
    for end in (LAST[name] + REST[name], sse({"error": {"message": "no"}})):
        reader = SERVERS[name].reader(frame_bytes=1 << 20)
        reader.feed(end + BEGUN[name])
        assert reader.feed(BEGUN[name]) == []
        assert reader.finish() == []


def values(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each value inside of a frame: what it is in, and its key there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(inside):
        yield value, key
        yield from values(item)


RESOURCE = in_responses.resource(("text_and_refusal", "summary", "call", "custom", "own_shell", "searched"))
ANSWER = ("cited", "thought", "call", "searched", "found")
STREAMS: dict[str, list[dict[str, Any]]] = {
    "chat": [*in_chat.chunks((*in_chat.PIECES,)), in_chat.END, in_chat.USED],
    "messages": in_messages.frames(ANSWER, in_messages.usual),
    "responses": in_responses.frames(RESOURCE, in_responses.usual),
}
WHOLE: dict[str, dict[str, Any]] = {
    "chat": {"choices": [{"index": 0, "message": {"content": "x", **in_chat.call(0)[0]["delta"]}, "finish_reason": "stop"}], "usage": in_chat.COUNTS},
    "messages": in_messages.answer(ANSWER),
    "responses": RESOURCE,
}  # fmt: skip
ODD = [3, "x", True, 0.5, [], {}, [1], {"type": 1}, None, ""]


@every("name", SERVERS)
def test_whatever_stands_in_the_place_of_a_value(name: str) -> None:
    """It is an answer or a fault. In streams a quarter of the odd values at each place, in turn."""
    frames, body = copy.deepcopy((STREAMS[name], WHOLE[name]))
    for number, (inside, key) in enumerate(list(values(frames))):
        before = inside[key]
        for odd in ODD[number % 4 :: 4]:
            inside[key] = odd
            assert isinstance(read(name, sse(*frames))[-1], Finish | Fault)
        inside[key] = before
    for inside, key in list(values(body)):
        before = inside[key]
        for odd in ODD:
            inside[key] = odd
            with suppress(GatewayError):
                assert SERVERS[name].read_reply(json.dumps(body).encode()).choices
        inside[key] = before


UPSTREAM = (BackendFault, 502, "upstream_error", "GPU on fire")
OVERLOADED = (BackendFault, 503, "overloaded", "Overloaded")
IN_WORDS_OF_OPENAI = (
    "This model's maximum context length is 1 tokens. However, your messages resulted in 2 tokens. Please reduce the length"
    " of the messages."
)
TOO_LONG = (ClientFault, 400, "context_length_exceeded", IN_WORDS_OF_OPENAI)
ODD_ERRORS: list[dict[str, Any]] = [
    {"type": "error", "message": "GPU on fire"},
    {"error": {"error": {"message": "GPU on fire"}}},
    {"errors": [{"message": "GPU on fire", "code": 7003}]},
    {"code": "InternalError", "message": "GPU on fire", "request_id": "x"},
    {"code": 1301, "msg": "GPU on fire"},
    {"error": {"message": "GPU on fire", "code": 500, "errors": [{"message": "a detail", "reason": "x"}]}},
    {"error_code": 336003, "error_msg": "GPU on fire"},
    {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "GPU on fire"}},
]
"""Of services whose errors are not OpenAI's: DashScope, z.ai, Qianfan, MiniMax, Cloudflare."""
ERRORS: list[tuple[str, bytes, tuple[type[GatewayError], int, str, str]]] = [
    *((name, sse({"error": {"message": "GPU on fire", "type": "x", "code": 500}}), UPSTREAM) for name in SERVERS),
    *((name, sse({"error": "GPU on fire"}), UPSTREAM) for name in ("chat", "responses")),
    *((name, b'event: error\ndata: {"message": "GPU on fire"}\n\n', UPSTREAM) for name in ("chat", "responses")),
    ("chat", sse({"object": "error", "message": "GPU on fire", "code": 500}), UPSTREAM),
    *(("chat", sse(body), UPSTREAM) for body in ODD_ERRORS),
    ("chat", sse({"error": {"message": TOO_LONG[-1], "code": "context_length_exceeded"}}), TOO_LONG),
    ("chat", sse({"error": {"message": "x" * 9999}}), (BackendFault, 502, "upstream_error", "x" * 499 + "…")),
    *(
        ("messages", sse({"type": "error", "error": {"type": kind, "message": said}}), wanted)
        for kind, said, wanted in (
            ("api_error", "GPU on fire", UPSTREAM),
            ("overloaded_error", "Overloaded", OVERLOADED),
            ("rate_limit_error", "slow", (ClientFault, 429, "rate_limit_exceeded", "slow")),
            ("invalid_request_error", TOO_LONG[-1], TOO_LONG),
        )
    ),
    ("responses", sse({"type": "error", "error": {"code": "x", "message": "GPU on fire", "param": None}}), UPSTREAM),
    ("responses", sse({"type": "error", "code": "x", "message": "GPU on fire", "param": None}), UPSTREAM),
    ("responses", ended("failed", error={"code": "server_error", "message": "GPU on fire"}), UPSTREAM),
]


@every(("name", "data", "wanted"), ERRORS)
def test_errors_in_a_stream(name: str, data: bytes, wanted: tuple[type[GatewayError], int, str, str]) -> None:
    for before in (b"", BEGUN[name]):
        for size in (0, 7):
            error = fault_of(name, before + data + LAST[name] + REST[name], size)
            assert isinstance(error, wanted[0])
            assert (error.status, error.code, error.message) == wanted[1:]


@every(
    ("name", "data"),
    [
        ("messages", sse({"type": "error"})),
        ("responses", ended("failed")),
        ("responses", ended("cancelled")),
        ("responses", sse({"type": "response.failed"})),
    ],
)
def test_an_error_without_a_reason_is_one(name: str, data: bytes) -> None:
    assert fault_of(name, data).code == "upstream_error"


# --- whole answers --------------------------------------------------------------------------------------------------

NO_ANSWERS: dict[str, list[bytes]] = {
    "chat": [b'{"choices":[]}', b'{"choices":["x"]}'],
    "messages": [b'{"type":"message"}', b'{"content":[' + b'{"type":"text"},' * 5000 + b"{}]}"],
    "responses": [b'{"output": {}}'],
}


@every("name", SERVERS)
def test_what_is_no_answer(name: str) -> None:
    for body in (b"", b"oops", b"<html>", b"[]", b"{}", b"[" * 100_000, *NO_ANSWERS[name]):
        with pytest.raises(BackendFault) as caught:
            SERVERS[name].read_reply(body)
        assert (caught.value.status, caught.value.code) == (502, "upstream_invalid_response"), body[:40]
        assert len(caught.value.message) < 300


def text_delta(kind: str, text: str) -> dict[str, Any]:
    key = kind.removesuffix("_delta")
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: text}}


TEXTS: Any = ["so", {"text": "so"}, ["so"], [{"text": "so"}]]
HEADLESS = {"role": "assistant", "content": "so"}


@every(
    ("name", "data"),
    [
        *(("messages", {"type": "message", "content": text, "stop_reason": "end_turn"}) for text in TEXTS),
        *(("responses", {"status": "completed", "output": [{"type": "message", "content": text}]}) for text in TEXTS),
        ("responses", {"status": "completed", "output": [HEADLESS]}),
        ("responses", ended("completed", output=[HEADLESS])),
        (
            "messages",
            sse(
                *(text_delta(f"{kind}_delta", said) for kind, said in (("thinking", "hm"), ("text", "so"))),
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
                {"type": "message_stop"},
            ),
        ),
    ],
)
def test_text_in_odd_places_is_read(name: str, data: Any) -> None:
    reply = fold(read(name, data)) if isinstance(data, bytes) else SERVERS[name].read_reply(json.dumps(data).encode())
    assert reply.choices[0].parts[-1].text == "so"


@every(
    ("name", "body", "wanted"),
    [
        *(("chat", body, UPSTREAM) for body in ({"error": {"message": "GPU on fire"}}, *ODD_ERRORS)),
        ("chat", {"error": {"message": TOO_LONG[-1], "code": "context_length_exceeded"}}, TOO_LONG),
        ("messages", {"type": "error", "error": {"type": "api_error", "message": "GPU on fire"}}, UPSTREAM),
        ("messages", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, OVERLOADED),
        ("responses", {"status": "failed", "error": {"message": "GPU on fire"}, "output": []}, UPSTREAM),
    ],
)
def test_an_error_in_a_200(name: str, body: dict[str, Any], wanted: tuple[type[GatewayError], int, str, str]) -> None:
    with pytest.raises(wanted[0]) as caught:
        SERVERS[name].read_reply(json.dumps(body).encode())
    assert (caught.value.status, caught.value.code, caught.value.message) == wanted[1:]


def test_a_cancelled_answer_is_an_error() -> None:
    with pytest.raises(BackendFault):
        RESPONSES.read_reply(b'{"status":"cancelled","error":null,"output":[]}')
