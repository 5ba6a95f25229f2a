"""Odd shapes of answers: one table for every kind of server, through every client protocol, streamed and whole (R29.2).

A call leaves whole and named, or not at all. A row says what a server sends and what each client gets of it: the calls,
or the name of an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Final

import orjson
import pytest

from tests.e2e.conftest import CHAT, post, serving
from tests.e2e.meaning import CLIENTS, MESSAGES, RESPONSES, failed, meant
from tests.e2e.speaking import JSON, SSE
from tests.e2e.test_cut_calls import asking, behind, event
from toolwire.testing import Answer, Upstream, chunk, frame

A: Final = ("read", {"path": "a"})
B: Final = ("read", {"path": "b"})
READ_A, READ_B = '{"path": "a"}', '{"path": "b"}'
INVALID: Final = "only calls without a name"
BROKEN: Final = "broke off"
INSIDE: Final = "ended inside a call"
Wire = dict[str, Any]


# --- Chat -----------------------------------------------------------------------------------------------------------


def of(index: int | str | None = 0, **fields: Any) -> Wire:
    """A delta of a call: `id` beside, `name` and `arguments` inside."""
    beside = {"index": index} if index is not None else {}
    inside = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {**beside, **fields, "function": inside}


def calling(*deltas: Wire, end: str | None = None, **fields: Any) -> bytes:
    return frame(chunk({"tool_calls": list(deltas), **fields}, end))


def chat(*frames: bytes, end: str | None = "tool_calls", done: bool = True) -> list[bytes]:
    last = [frame(chunk({}, end))] if end else []
    return [*frames, *last, *([frame("[DONE]")] if done else [])]


def whole_chat(*calls: Any, end: str | None = "tool_calls", **message: Any) -> Wire:
    said = {"role": "assistant", "content": None, "tool_calls": list(calls), **message}
    choice = {"index": 0, "message": said, "finish_reason": end}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


NAME = of(id="call_x", name="read", arguments="")
USED = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
CHAT_SHAPES: dict[str, tuple[Any, Any]] = {
    "an end before the arguments": (
        chat(
            calling(NAME),
            frame(chunk({}, "stop")),
            calling(of(arguments='{"path":')),
            calling(of(arguments='"a"}')),
            end=None,
        ),
        [A],
    ),
    "an end in every chunk": (
        chat(calling(NAME, end="stop"), calling(of(arguments='{"path":'), end="stop"), calling(of(arguments='"a"}'))),
        [A],
    ),
    "a new id in every chunk": (
        chat(calling(NAME), calling(of(id="b", arguments='{"path":')), calling(of(id="c", arguments='"a"}'))),
        [A],
    ),
    "no index behind the first": (
        chat(calling(of(1, id="b", name="read", arguments="")), calling(of(None, arguments='{"path":"a"}'))),
        [A],
    ),
    "no index at all": (chat(calling(of(None, name="read")), calling(of(None, arguments=READ_A))), [A]),
    "an index for each piece": (chat(calling(NAME), calling(of(1, arguments='{"path":')), calling(of(2, arguments='"a"}'))), [A]),
    "the second name on the first index, the rest on its own": (
        chat(
            calling(of(id="x", name="read", arguments=READ_A)), calling(of(id="y", name="read", arguments="")),
            calling(of(1, arguments='{"path":')), calling(of(1, arguments='"b"}')),
        ),
        [A, B],
    ),
    "an id for each piece, on one index": (
        chat(
            calling(of(id="x", name="read", arguments="")), calling(of(id="y", name="read", arguments="")),
            calling(of(id="x", arguments=READ_A)), calling(of(id="y", arguments=READ_B)),
        ),
        [A, B],
    ),
    "a name, and no end": (chat(calling(NAME), end=None), INSIDE),
    "half a call, and no end": (chat(calling(NAME), calling(of(arguments='{"path": "a')), end=None), INSIDE),
    "a call, a name, and no end": (chat(calling(of(id="x", name="read", arguments=READ_A)), calling(of(1, id="y", name="read")), end=None), [A]),
    "a name, and the end of calls": (chat(calling(NAME), calling(of(arguments=READ_A))), [A]),
    "a name, and nothing": (chat(calling(NAME), end=None, done=False), BROKEN),
    "no name": (chat(calling(of(id="x", arguments=READ_A))), INVALID),
    "a name of spaces": (chat(calling(of(id="x", name=" ", arguments=READ_A))), INVALID),
    "no name beside a call": (chat(calling(of(0, id="x", arguments=READ_B)), calling(of(1, name="read", arguments=READ_A))), [A]),
    "no name, cut": (chat(calling(of(id="x", arguments="{")), end="length"), []),
    "an empty name in every chunk": (chat(calling(NAME), calling(of(id="", name="", arguments=READ_A))), [A]),
    "a name in pieces": (chat(calling(of(id="x", name="re")), calling(of(name="ad")), calling(of(arguments=READ_A))), [A]),
    "a name in every chunk": (
        chat(*(calling(of(id="x", name="read", arguments=piece)) for piece in ("", '{"path":', '"a"}', ""))),
        [A],
    ),
    "an index in quotes": (
        chat(calling(of("0", id="x", name="read"), of("1", id="y", name="read")), calling(of("0", arguments=READ_A)), calling(of("1", arguments=READ_B))),
        [A, B],
    ),
    "one id for two": (chat(calling(of(0, id="x", name="read", arguments=READ_A)), calling(of(1, id="x", name="read", arguments=READ_B))), [A, B]),
    "one id for two, no index": (chat(calling(of(None, id="x", name="read", arguments=READ_A)), calling(of(None, id="x", name="read", arguments=READ_B))), [A, B]),
    "empty ids": (chat(calling(of(0, id="", name="read", arguments=READ_A), of(1, id="", name="read", arguments=READ_B))), [A, B]),
    "two in one chunk": (chat(calling(of(0, id="x", name="read", arguments=READ_A), of(1, id="y", name="read", arguments=READ_B))), [A, B]),
    "two on one index": (chat(calling(of(id="x", name="read", arguments=READ_A)), calling(of(id="y", name="read", arguments=READ_B))), [A, B]),
    "arguments as an object": (chat(calling(of(id="x", name="read", arguments={"path": "a"}))), [A]),
    "arguments quoted twice": (chat(calling(of(id="x", name="read", arguments='"{\\"path\\": \\"a\\"}"'))), [A]),
    "null arguments": (chat(calling({**NAME, "function": {"name": "read", "arguments": None}}), calling(of(arguments=READ_A))), [A]),
    "a null function": (chat(calling(NAME), calling({"index": 0, "function": None}), calling(of(arguments=READ_A))), [A]),
    "null calls": (chat(frame(chunk({"tool_calls": None})), calling(NAME), frame(chunk({"tool_calls": []})), calling(of(arguments=READ_A))), [A]),
    "a role in every chunk": (chat(calling(NAME, role="assistant"), calling(of(arguments=READ_A), role="assistant")), [A]),
    "counts in every chunk": (
        chat(*(frame({**chunk({"tool_calls": [one]}), "usage": USED}) for one in (NAME, of(arguments=READ_A)))),
        [A],
    ),
    "no choices": (chat(frame({**chunk({}), "choices": []}), calling(NAME), frame({**chunk({}), "choices": []}), calling(of(arguments=READ_A))), [A]),
    "calls beside empty text": (chat(calling(NAME, content=""), calling(of(arguments=READ_A), content=None)), [A]),
    "the last chunk twice": (chat(calling(NAME), calling(of(arguments=READ_A)), frame(chunk({}, "tool_calls"))), [A]),
    "a whole call twice": (chat(calling(of(id="x", name="read", arguments=READ_A)), calling(of(id="x", name="read", arguments=READ_A), end="stop")), [A]),
    "calls as an object": (chat(frame(chunk({"tool_calls": of(id="x", name="read", arguments=READ_A)}))), [A]),
    "no function": (chat(calling({"index": 0, "id": "x", "name": "read", "arguments": {"path": "a"}})), [A]),
    "arguments as parameters": (chat(calling({"function": {"name": "read", "parameters": {"path": "a"}}})), [A]),
    "nothing before the arguments": (chat(calling(of(id="x", name="read", arguments="{}")), calling(of(arguments=READ_A))), [A]),
    "the old field as well": (chat(calling(of(id="x", name="read", arguments=READ_A), function_call={"name": "read", "arguments": READ_A})), [A]),
    "a message for a delta": ([frame({**whole_chat(of(id="x", name="read", arguments=READ_A))})], [A]),
    "another label": (Answer(chat(calling(of(id="x", name="read", arguments=READ_A))), headers=JSON), [A]),
    "an end, and the connection is cut": (
        Answer(chat(calling(of(id="x", name="read", arguments=READ_A)), done=False), headers=SSE, cut=True), [A],
    ),
    "half a call, and the connection is cut": (Answer(chat(calling(NAME), end=None, done=False), headers=SSE, cut=True), "closed"),
    "no label": (Answer(chat(calling(of(id="x", name="read", arguments=READ_A)))), [A]),
    "a whole answer": (whole_chat({"id": "x", "function": {"name": "read", "arguments": READ_A}}), [A]),
    "whole: an object, no id": (whole_chat({"function": {"name": "read", "arguments": {"path": "a"}}}), [A]),
    "whole: no name": (whole_chat({"id": "x", "function": {"arguments": READ_A}}), INVALID),
    "whole: no name beside a call": (whole_chat({"id": "x", "function": None}, of(name="read", arguments=READ_A)), [A]),
    "whole: one id for two": (whole_chat(of(id="x", name="read", arguments=READ_A), of(id="x", name="read", arguments=READ_B)), [A, B]),
    "whole: an error": ({"error": {"message": "Burnt.", "code": 500}}, "Burnt."),
}  # fmt: skip

# --- Responses ------------------------------------------------------------------------------------------------------


def item(ident: str | None, path: str, *, call: str | None = None, **fields: Any) -> Wire:
    ids = {key: value for key, value in (("id", ident), ("call_id", call)) if value is not None}
    return {"type": "function_call", **ids, "name": "read", "arguments": f'{{"path": "{path}"}}', **fields}


def added(index: int | None, shown: Wire) -> bytes:
    return _placed("response.output_item.added", index, item={**shown, "arguments": ""})


def delta(index: int | None, ident: str | None, text: Any) -> bytes:
    return _placed("response.function_call_arguments.delta", index, delta=text, **({"item_id": ident} if ident else {}))


def done(index: int | None, shown: Wire) -> bytes:
    return _placed("response.output_item.done", index, item=shown)


def _placed(kind: str, index: int | None, **fields: Any) -> bytes:
    return event({"type": kind, **({} if index is None else {"output_index": index}), **fields})


def resource(*output: Wire) -> Wire:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**head, "output": list(output), "usage": {"input_tokens": 1, "output_tokens": 1}}


def over(*frames: bytes, output: Sequence[Wire] = ()) -> list[bytes]:
    return [*frames, event({"type": "response.completed", "response": resource(*output)})]


FIRST, SECOND = item("fc_1", "a", call="call_1"), item("fc_2", "b", call="call_2")
BARE_A, BARE_B = item(None, "a"), item(None, "b")
OTHER = item("fc_9", "a", call="call_1")
RESPONSES_SHAPES: dict[str, tuple[Any, Any]] = {
    "one index for two": (
        over(*(one for shown in (FIRST, SECOND) for one in (added(0, shown), delta(0, shown["id"], shown["arguments"]), done(0, shown)))),
        [A, B],
    ),
    "one index for two, interleaved": (
        over(added(0, FIRST), added(0, SECOND), delta(0, "fc_1", READ_A), delta(0, "fc_2", READ_B), done(0, FIRST), done(0, SECOND)),
        [A, B],
    ),
    "one index for two, and the resource": (
        over(added(0, FIRST), done(0, FIRST), added(0, SECOND), done(0, SECOND), output=[FIRST, SECOND]), [A, B]
    ),
    "one index for two, only done": (over(done(0, FIRST), done(0, SECOND)), [A, B]),
    "one index for two, no ids": (over(done(0, BARE_A), done(0, BARE_B)), [A, B]),
    "ids that change": (over(added(0, FIRST), delta(0, "fc_7", READ_A), done(0, item("fc_8", "a", call="call_1")), output=[OTHER]), [A]),
    "ids that change, no index": (over(added(None, FIRST), delta(None, "fc_7", READ_A), done(None, OTHER)), [A]),
    "ids that change, two": (
        over(added(0, FIRST), delta(0, "fc_7", READ_A), added(1, SECOND), delta(1, "fc_8", READ_B), done(0, OTHER), done(1, item("x", "b", call="call_2"))),
        [A, B],
    ),
    "nothing but the resource": (over(output=[FIRST, SECOND]), [A, B]),
    "no ids in the resource": (over(output=[BARE_A, BARE_B]), [A, B]),
    "one id for two": (over(output=[item("x", "a", call="c"), item("x", "b", call="c")]), [A, B]),
    "a call shown twice": (over(added(0, FIRST), done(0, FIRST), done(0, FIRST), output=[FIRST]), [A]),
    "arguments as an object": (over(done(0, {**FIRST, "arguments": {"path": "a"}})), [A]),
    "arguments as an object in a delta": (over(added(0, FIRST), delta(0, "fc_1", {"path": "a"})), [A]),
    "arguments quoted twice": (over(done(0, {**FIRST, "arguments": '"{\\"path\\": \\"a\\"}"'})), [A]),
    "deltas of nothing": (over(delta(4, "fc_4", READ_A), done(0, FIRST)), [A]),
    "no name": (over(done(0, {**FIRST, "name": ""})), INVALID),
    "no name beside a call": (over(done(0, {**FIRST, "name": None}), done(1, SECOND)), [B]),
    "a name, and its item never ends": (over(added(0, FIRST)), INSIDE),
    "no end": ([added(0, FIRST), delta(0, "fc_1", READ_A)], BROKEN),
    "a whole answer": (resource(FIRST, SECOND), [A, B]),
    "whole: an object": (resource({**FIRST, "arguments": {"path": "a"}}), [A]),
    "whole: no name": (resource({**FIRST, "name": None}), INVALID),
    "whole: no ids": (resource(BARE_A, BARE_B), [A, B]),
}  # fmt: skip

# --- Messages -------------------------------------------------------------------------------------------------------


def start(index: int | None, given: Any = None, **fields: Any) -> bytes:
    block = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": given or {}, **fields}
    return _block("content_block_start", index, content_block=block)


def pieces(index: int | None, *texts: Any) -> bytes:
    return b"".join(
        _block("content_block_delta", index, delta={"type": "input_json_delta", "partial_json": text}) for text in texts
    )


def stop(index: int | None) -> bytes:
    return _block("content_block_stop", index)


def _block(kind: str, index: int | None, **fields: Any) -> bytes:
    return event({"type": kind, **({} if index is None else {"index": index}), **fields})


def message(*frames: bytes, end: str | None = "tool_use") -> list[bytes]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": TOKENS}
    said = [event({"type": "message_delta", "delta": {"stop_reason": end}, "usage": TOKENS})] if end else []
    return [event({"type": "message_start", "message": head}), *frames, *said, event({"type": "message_stop"})]


def whole_message(*blocks: Wire, end: str | None = "tool_use") -> Wire:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": TOKENS}
    return {**head, "content": list(blocks), "stop_reason": end}


TOKENS = {"input_tokens": 1, "output_tokens": 1}
USE = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}
MESSAGES_SHAPES: dict[str, tuple[Any, Any]] = {
    "the whole input at the start": (message(start(0, {"path": "a"}), stop(0)), [A]),
    "the whole input as a text": (message(start(0, READ_A), stop(0)), [A]),
    "input in the start, and nothing in a piece": (message(start(0, {"path": "a"}), pieces(0, "{}"), stop(0)), [A]),
    "input in both": (message(start(0, {"path": "a"}), pieces(0, '{"path"', ':"a"}'), stop(0)), [A]),
    "a piece that is an object": (message(start(0), pieces(0, {"path": "a"}), stop(0)), [A]),
    "no stops": (message(start(0), pieces(0, READ_A), start(1, id="toolu_2"), pieces(1, READ_B)), [A, B]),
    "no indexes": (message(start(None), pieces(None, READ_A), stop(None), start(None, id="b"), pieces(None, READ_B), stop(None)), [A, B]),
    "one index for two": (message(start(0), pieces(0, READ_A), stop(0), start(0, id="b"), pieces(0, READ_B), stop(0)), [A, B]),
    "one id for two": (message(start(0), pieces(0, READ_A), stop(0), start(1), pieces(1, READ_B), stop(1)), [A, B]),
    "no id": (message(start(0, id=None), pieces(0, READ_A), stop(0)), [A]),
    "a start twice": (message(start(0), start(0), pieces(0, READ_A), stop(0)), [A]),
    "a stop twice": (message(start(0), pieces(0, READ_A), stop(0), stop(0)), [A]),
    "no name": (message(start(0, name=""), pieces(0, READ_A), stop(0)), INVALID),
    "no name beside a call": (message(start(0, name=None), pieces(0, READ_B), stop(0), start(1, id="b"), pieces(1, READ_A), stop(1)), [A]),
    "Chat's end": ([*message(start(0), pieces(0, READ_A), stop(0))[:-1], frame("[DONE]")], [A]),
    "an end, and the connection is cut": (
        Answer(message(start(0), pieces(0, READ_A), stop(0))[:-1], headers=SSE, cut=True), [A],
    ),
    "pieces of nothing": (message(pieces(3, READ_B), start(0), pieces(0, READ_A), stop(0)), [A]),
    "a name, and no reason": (message(start(0), end=None), INSIDE),
    "a whole answer": (whole_message(USE), [A]),
    "whole: input as a text": (whole_message({**USE, "input": READ_A}), [A]),
    "whole: no name": (whole_message({**USE, "name": None}), INVALID),
    "whole: no name beside a call": (whole_message({**USE, "name": ""}, USE), [A]),
    "whole: one id for two": (whole_message(USE, {**USE, "input": {"path": "b"}}), [A, B]),
}  # fmt: skip
SHAPES: Final = {CHAT: CHAT_SHAPES, RESPONSES: RESPONSES_SHAPES, MESSAGES: MESSAGES_SHAPES}


@pytest.mark.parametrize("kind", SHAPES)
async def test_a_call_leaves_whole_and_named_or_not_at_all(kind: str) -> None:
    """R29.2. A stream also answers who asks for a whole answer, and a whole one who asks for a stream, with its own
    type and labelled as a stream. Each shape is for two kinds of clients, in turn."""
    now = Answer()
    ways = list(product(CLIENTS, (False, True)))
    async with Upstream([lambda asked: now]) as up, serving(behind(up, kind)) as server:
        for number, (name, (sent, expected)) in enumerate(SHAPES[kind].items()):
            steps, types = ([orjson.dumps(sent)], [JSON, SSE]) if isinstance(sent, dict) else (sent, [SSE])
            for (path, stream), current in product(ways[number % 3 :: 3], types):
                now = sent if isinstance(sent, Answer) else Answer(steps, headers=current)
                got = await post(server, asking(path, stream), path=path)
                where = (name, path, stream, current, got.status, got.body)
                if isinstance(expected, str):
                    assert expected in got.body.decode(), where
                    assert failed(path, got, stream), where
                    continue
                assert got.status == 200, where
                assert b'"name":""' not in got.body, where
                _, calls, *_ = meant(path, got, stream)
                assert calls == expected, where
