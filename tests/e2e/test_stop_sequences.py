"""Stop sequences that a server does not take, or takes fewer of, over real sockets (R24.5)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import orjson

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, function, gateway_before, post, serving
from tests.e2e.meaning import says
from tests.e2e.speaking import JSON, SSE, speaking
from tests.e2e.test_retries import config
from toolwire.model import ModelReply, ReplyChoice, Text
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream

both = every("stream", [False, True])
FOUR = ["#1", "#2", "#3", "#4"]


def text_of(answer: Any, stream: bool, choice: int = 0) -> tuple[str, str]:
    """The text of an answer, and why it ended."""
    if not stream:
        one = answer.json()["choices"][choice]
        return one["message"]["content"], one["finish_reason"]
    chunks = [chunk for chunk in answer.frames() if chunk != "[DONE]"]
    ours = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice]
    text = "".join(one["delta"].get("content") or "" for one in ours)
    (reason,) = {one["finish_reason"] for one in ours if one["finish_reason"]}
    return text, reason


@both
@every("takes, split", [(3, 1), (1, 100), (0, 3)])
async def test_what_the_server_cannot_take_the_gateway_applies(takes: int, split: int, stream: bool) -> None:
    """Sequences beyond the limit of the server; the client sees no difference. Where they are found:
    `tests/unit/test_stopping.py`."""
    said = "One, two #4 three"
    pieces = [said[at : at + split] for at in range(0, len(said), split)]
    async with gateway_before([Say(*pieces, finish="length")], backend={"stop_sequences": takes}) as (server, up):
        answer = await post(server, {"messages": USER, "stop": FOUR, "stream": stream})
    assert text_of(answer, stream) == ("One, two ", "stop")
    sent = up.posts[0].json.get("stop") or []
    assert sent == FOUR[:takes]
    assert b"#4" not in answer.body


@both
async def test_what_the_server_refuses_the_gateway_applies(stream: bool) -> None:
    def script(asked: Asked) -> Answer:
        refusal = Refuse(400, "Argument not supported on this model: stop")
        return refusal if "stop" in asked.json else Say("One, two #4", " three")(asked)

    async with gateway_before([script]) as (server, up):
        for _ in range(2):
            answer = await post(server, {"messages": USER, "stop": ["", "#2", "#4"], "stream": stream})
            assert text_of(answer, stream) == ("One, two ", "stop")
    assert len(up.posts) == 3


@both
async def test_another_server_that_refuses_them_answers_in_the_end(stream: bool) -> None:
    """The first one has accepted the request, with the stop sequences, before its connection breaks."""

    def refusing(asked: Asked) -> Answer:
        refusal = Refuse(400, "Argument not supported on this model: stop")
        return refusal if "stop" in asked.json else Say("One, two #4", " three")(asked)

    async with (
        Upstream([Refuse(503), Refuse(503), Say(cut=True)]) as one,
        Upstream([refusing]) as other,
        AsyncExitStack() as stack,
    ):
        gateway = await stack.enter_async_context(serving(config(one.url, other.url)))
        for _ in range(2):
            answer = await post(gateway, {"messages": USER, "stop": FOUR, "stream": stream})
            assert text_of(answer, stream) == ("One, two ", "stop")
    assert ["stop" in asked.json for asked in (*one.posts, *other.posts)] == [True] * 5 + [False] * 2


@both
async def test_a_refusal_that_comes_as_an_answer_is_not_overridden(stream: bool) -> None:
    """The stages that change the answer are chosen by then, so the sequences would be lost."""
    error = b'{"error":{"code":400,"message":"Argument not supported on this model: stop"}}'

    def script(asked: Asked) -> Answer:
        frames = [b": PROCESSING\n\n", b"data: %b\n\n" % error]
        refusal = Answer(frames, headers=SSE) if stream else Answer([error], headers=JSON)
        return refusal if "stop" in asked.json else Say("One, two #4", " three")(asked)

    async with gateway_before([script]) as (server, up):
        answer = await post(server, {"messages": USER, "stop": FOUR, "stream": stream})
    assert b"Argument not supported" in answer.body
    assert len(up.posts) == 1


async def test_a_server_that_takes_them_all_gets_the_clients_bytes() -> None:
    body = orjson.dumps({"model": "m", "messages": USER, "stop": FOUR})
    async with gateway_before([Say("One")], backend={"preset": "generic"}) as (server, up):
        await post(server, body)
    assert up.posts[0].body == body


@both
async def test_a_protocol_without_a_place_for_them(stream: bool) -> None:
    async with gateway_before(
        [says("openai_responses", Text("One END two"))], backend={"kind": "openai_responses"}
    ) as (server, up):
        answer = await post(server, {"messages": USER, "stop": "END", "stream": stream})
    assert text_of(answer, stream) == ("One ", "stop")
    assert "stop" not in up.posts[0].json


@both
async def test_calls_are_not_text(stream: bool) -> None:
    """What is taught is written as text and is none: a sequence in it ends nothing."""
    call = '<tool_call>{"name":"read","arguments":{"path":"a#b"}}</tool_call>'
    async with gateway_before([Say("Now ", call, " then # more")], backend={"stop_sequences": 0}) as (server, _):
        body = {"messages": USER, "tools": [function("read", path="string")], "stop": "#", "stream": stream}
        answer = await post(server, body)
    assert b"a#b" in answer.body
    assert b"more" not in answer.body


@both
async def test_each_of_several_answers_ends_by_itself(stream: bool) -> None:
    """One has a sequence and another has none; both come to their ends."""

    choices = tuple(ReplyChoice((Text(text),), "length") for text in ("a # b", "c d", "# e"))
    several = speaking(ChatProtocol(), ModelReply("x", "m", 1, choices))
    backend = {"stop_sequences": 0, "multiple_choices": True}
    async with gateway_before([several], backend=backend) as (server, _):
        answer = await post(server, {"messages": USER, "n": 3, "stop": "#", "stream": stream})
    ends = [text_of(answer, stream, choice) for choice in range(3)]
    assert ends == [("a ", "stop"), ("c d", "length"), ("", "stop")]


@both
@every("stops", [["a"], ["a", "b", "c", "d"]])
async def test_the_gateways_own_do_not_displace_the_clients(stops: list[str], stream: bool) -> None:
    """A text protocol ends an answer where the user would speak."""

    def said(asked: Asked) -> Answer:
        text = "Hello.\nUser: go on"
        if not asked.json.get("stream"):
            body = {"id": "x", "model": "m", "choices": [{"index": 0, "text": text, "finish_reason": "length"}]}
            return Answer([orjson.dumps(body)], headers=JSON, framing="length")
        frames = [
            b"data: " + orjson.dumps({"id": "x", "choices": [{"index": 0, "text": sign}]}) + b"\n\n" for sign in text
        ]
        return Answer([*frames, b"data: [DONE]\n\n"], headers=SSE)

    stops = [f"<{stop}>" for stop in stops]
    async with gateway_before([said], backend={"kind": "openai_completions"}) as (server, up):
        answer = await post(server, {"messages": USER, "stop": stops, "stream": stream})
    sent = up.posts[0].json["stop"]
    assert sent == [*stops, "\nUser:"][:4]
    if "\nUser:" not in sent:
        assert text_of(answer, stream) == ("Hello.", "stop")


async def test_no_more_than_one_answer_is_waited_for() -> None:
    """What stands behind is the server's business no more: its connection is closed."""
    async with gateway_before([Say("One END", "two", hang=True)], backend={"stop_sequences": 0}) as (server, up):
        answer = await post(server, {"messages": USER, "stop": "END", "stream": True})
    assert text_of(answer, True) == ("One ", "stop")
    assert up.posts[0].path == CHAT
