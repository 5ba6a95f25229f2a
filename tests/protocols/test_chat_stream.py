"""Streams: exact bytes, the published schema, and every oddity of R4.5. More in `test_corners_*.py` and
`test_broken_streams.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import chunks
from tests.cases import every, examples
from tests.linear.work import calls
from tests.protocols.blocks import call, text
from tests.protocols.published import validator
from tests.protocols.wires import CHAT, accumulate, chunk, frame, options, payloads, read, write
from tests.strategies import streams
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from toolwire.folding import fold
from toolwire.model import Reasoning, Refusal, Text, ToolChoice, ToolUse, Usage
from toolwire.protocols.chat.reader import ChatReader
from toolwire.stream_grammar import check

GOLDEN = Path(__file__).parents[1] / "golden"
DONE = b"data: [DONE]\n\n"
START = Start("chatcmpl-1", "backend-model", 9)


TWO_CALLS: list[Event] = [
    START,
    *text(0, "Reading ", "it: “ü”\n"),
    *call(1, "call_a", "read_file", '{"path":', '"notes.txt"}'),
    *call(2, "call_b", "list_files"),
    Finish("stop", Usage(82, 17, 4, 0, 3)),
]
BROKEN: list[Event] = [
    START,
    Open(0, BlockKind.TEXT),
    Delta(0, "Half an ans"),
    Fault(BackendFault("The model server broke off.")),
]


# --- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "events", "usage"),
    [("chat-two-calls-usage", TWO_CALLS, True), ("chat-error", BROKEN, False)],
)
def test_golden_bytes(name: str, events: list[Event], usage: bool) -> None:
    assert write(events, options(usage=usage)).decode() == (GOLDEN / f"{name}.sse").read_text(encoding="utf-8")


@every(
    ("reason", "called", "word"),
    [
        ("stop", False, "stop"),
        ("length", False, "length"),
        ("content_filter", False, "content_filter"),
        ("max_tokens", False, "length"),
        ("tool_calls", False, "stop"),
        ("eos", False, "stop"),
        ("stop", True, "tool_calls"),
        ("length", True, "tool_calls"),
    ],
)
def test_finish_words(reason: str, called: bool, word: str) -> None:
    events = [START, *(call(0, "call_a", "f", "{}") if called else text(0, "x")), Finish(reason)]
    assert accumulate(write(events))[0]["finish_reason"] == word
    assert json.loads(CHAT.write_reply(fold(events), options()))["choices"][0]["finish_reason"] == word


def test_named_stop() -> None:
    events = [START, *call(0, "call_a", "f", "{}"), Finish()]
    named = ToolChoice("named", "f")
    for choice, flag, word in [(named, True, "stop"), (named, False, "tool_calls"), (ToolChoice(), True, "tool_calls")]:
        opts = options(choice=choice, named_stop=flag)
        assert accumulate(write(events, opts))[0]["finish_reason"] == word


@every(
    ("field", "wanted"),
    [
        ("reasoning_content", {"content": "so", "reasoning_content": "hm "}),
        ("reasoning", {"content": "so", "reasoning": "hm "}),
        ("both", {"content": "so", "reasoning_content": "hm ", "reasoning": "hm "}),
        ("inline", {"content": "<think>hm </think>so"}),
        ("drop", {"content": "so"}),
    ],
)
def test_where_reasoning_goes(field: str, wanted: dict[str, str]) -> None:
    thought = [Open(0, BlockKind.REASONING), Delta(0, "h"), Delta(0, "m "), Close(0)]
    events = [START, *thought, *text(1, "so"), Finish()]
    opts = options(reasoning_field=field)
    keys = ("content", "reasoning_content", "reasoning")
    streamed = accumulate(write(events, opts))[0]
    assert {key: streamed[key] for key in keys if key in streamed} == wanted
    whole = json.loads(CHAT.write_reply(fold(events), opts))["choices"][0]["message"]
    assert {key: whole[key] for key in keys if key in whole} == wanted


def test_unknown_chunks_keep_their_content_and_get_the_identity_of_the_stream() -> None:
    odd = {"id": "x", "model": "y", "usage": {}, "choices": [{"index": 0, "delta": {"audio": {"id": "a"}}}]}
    events = [START, Opaque("chat", odd), Opaque("responses", {"type": "x"}), Finish()]
    first, *_ = payloads(write(events, options(usage=True)))
    assert first == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": odd["choices"],
        "usage": None,
    }


def test_the_writer_makes_an_id_unless_it_got_one_of_openais_form() -> None:
    for given_id, kept in [("chatcmpl-7", True), ("cmpl-7", False), ("", False)]:
        first, *_ = payloads(write([Start(given_id, "m", 1), Finish()]))
        assert (first["id"] == given_id) is kept
        assert first["id"].startswith("chatcmpl-")


@examples(0.5)
@given(streams(), st.booleans(), st.sampled_from(["reasoning_content", "reasoning", "both", "inline", "drop"]))
def test_every_chunk_is_valid_by_the_published_schema(events: list[Event], usage: bool, field: str) -> None:
    check_chunk = validator("CreateChatCompletionStreamResponse").validate
    for value in payloads(write(events, options(usage=usage, reasoning_field=field))):
        if value != "[DONE]":
            check_chunk(value)


# --- what servers do ------------------------------------------------------------------------------------------------


def fn(arguments: Any = None, name: str | None = None) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}


def calls_of(*chunks: list[dict[str, Any]], reason: str = "tool_calls") -> list[tuple[str, str, str]]:
    """The calls in chunks of `tool_calls` deltas."""
    raw = b"".join(chunk({"tool_calls": deltas}) for deltas in chunks) + chunk({}, reason) + DONE
    got = read(raw)
    check(got)
    return [(use.call_id, use.name, use.arguments) for use in fold(got).calls]


def piece(arguments: Any, name: str | None = None, **beside: Any) -> list[dict[str, Any]]:
    """A chunk with a piece of the call `a`."""
    return [{"index": 0, "id": "a", **beside, "function": fn(arguments, name)}]


def pieces(*arguments: str, named: bool = False) -> list[list[dict[str, Any]]]:
    """Pieces of the call `a`, the first of them or each with its name."""
    return [piece(text, "f" if named or not n else None) for n, text in enumerate(arguments)]


CALLS: dict[str, tuple[list[list[dict[str, Any]]], list[tuple[str, str, str]]]] = {
    "two in turn": (
        [
            [{"index": 0, "id": "a", "type": "function", "function": fn("", "f")}],
            [{"index": 0, "function": fn('{"x":')}],
            [{"index": 1, "id": "b", "type": "function", "function": fn("", "g")}],
            [{"index": 0, "function": fn("1}")}, {"index": 1, "function": fn("{}")}],
        ],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    "several on index 0": ([piece("{}", "f"), piece('{"x":', "f", id="b"), [{"index": 0, "function": fn("1}")}]], [("a", "f", "{}"), ("b", "f", '{"x":1}')]),
    "no index": (
        [
            [{"id": "a", "function": fn('{"x":', "f")}, {"id": "b", "function": fn("{", "g")}],
            [{"id": "b", "function": fn('"y":2}')}],
            [{"function": fn("1}")}],
        ],
        [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
    ),
    "no index, and the pieces in another order": (
        [
            [{"id": "a", "function": fn('{"x":', "f")}, {"id": "b", "function": fn("{", "g")}],
            [{"id": "a", "function": fn("1}")}],
            [{"id": "b", "function": fn("}")}],
        ],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    "an object, and nothing at all": ([[*piece({"x": [1]}, "f"), {"index": 1, "id": "b", "function": fn(None, "g")}]], [("a", "f", '{"x":[1]}'), ("b", "g", "{}")]),
    "all of it twice": (pieces("{", '{"x":1}', '{"x":1}', named=True), [("a", "f", '{"x":1}')]),
    **{  # fragments that look as if each were all so far
        " ".join(fragments): (pieces(*fragments), [("a", "f", "".join(fragments))])
        for fragments in (['{"a":', '{"a":', "1}}"], ['[{"a":1},', '{"a":1}]'], ['{"', '{":1}'], ["1", "11"])
    },
}  # fmt: skip


@every("case", CALLS)
def test_calls_in_pieces(case: str) -> None:
    chunks, wanted = CALLS[case]
    assert calls_of(*chunks) == wanted


def test_one_id_on_two_indices_becomes_two_ids() -> None:
    (first, *_), (second, *_) = calls_of(piece("{}", "f"), piece("{}", "g", index=1))
    assert first == "a"
    assert second != "a"


def test_several_calls_without_any_ids() -> None:
    got = calls_of(
        [{"index": 0, "function": fn('{"x":1}', "f")}],
        [{"index": 0, "function": fn('{"x":2}', "f")}],
    )
    assert [(name, text) for _, name, text in got] == [("f", '{"x":1}'), ("f", '{"x":2}')]
    assert len({call_id for call_id, *_ in got}) == 2
    assert all(call_id.startswith("call_") for call_id, *_ in got)


def test_a_call_without_a_name_is_none() -> None:
    """R29.2."""
    whole = {"index": 1, "id": "b", "function": fn("{}", "f")}
    assert calls_of([{"index": 0, "id": "a", "function": fn("{}")}, whole]) == [("b", "f", "{}")]
    with pytest.raises(BackendFault, match="only calls without a name"):
        calls_of([{"index": 0, "id": "a", "function": fn("{}")}])
    assert calls_of([{"index": 0, "id": "a", "function": fn("{}")}], reason="length") == []


def test_half_a_call_of_an_answer_that_says_no_end_is_cut() -> None:
    """R29.2."""
    deltas = [{"index": 0, "id": "a", "function": fn("{}", "f")}, {"index": 1, "id": "b", "function": fn('{"', "g")}]
    got = read(chunk({"tool_calls": deltas}) + DONE)
    assert [event.status for event in got if isinstance(event, Close)] == ["complete", "truncated"]


def test_the_deprecated_function_call() -> None:
    raw = (
        chunk({"function_call": fn("", "f")})
        + chunk({"function_call": fn('{"x":1}')})
        + chunk({}, "function_call")
        + DONE
    )
    (use,) = fold(read(raw)).calls
    assert (use.name, use.arguments) == ("f", '{"x":1}')


@every(
    "thought",
    [
        *({key: "hm"} for key in ("reasoning_content", "reasoning", "reasoning_text", "thinking", "thinking_content")),
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]},
    ],
)
@every(
    "text",
    [
        "so",
        ["so"],
        ["s", "o"],
        {"type": "text", "text": "so"},
        [{"text": "so"}],
        [{"type": "output_text", "text": "so"}],
    ],
)
def test_spellings_of_prose(thought: dict[str, Any], text: Any) -> None:
    """Streamed, in a whole answer, and in a whole answer as the only chunk of a stream."""
    refused = chunk({"refusal": "no"}, "stop") + DONE
    both = {**thought, "content": [*thought.get("content", ()), *(text if isinstance(text, list) else [text])]}
    whole = {"choices": [{"index": 0, "message": {**both, "refusal": "no"}, "finish_reason": "stop"}]}
    for got in (
        fold(read(chunk(thought) + chunk({"content": text}) + refused)),
        fold(read(frame(whole) + DONE)),
        CHAT.read_reply(json.dumps(whole).encode()),
    ):
        assert [(type(part), getattr(part, "text", "")) for part in got.choices[0].parts] == [
            *((Reasoning, "hm"), (Text, "so"), (Refusal, "no"))
        ]


def test_reasoning_in_details_and_again_as_text() -> None:
    """In the same delta or in the next one; each told once, also where the model says it again."""
    details, text = ({"reasoning_details": [{"type": "reasoning.text", "text": "ha "}]}, {"reasoning": "ha "})
    for deltas, count in (
        ([{**details, **text}], 1),
        ([details, text], 1),
        ([details, text, details, text], 2),
        ([details, {**details, **text}, text], 3),
        ([details, text, text], 2),
        ([details, details], 2),
        ([text, details], 1),
    ):
        got = fold(read(b"".join(map(chunk, deltas)) + chunk({"content": "so"}, "stop") + DONE))
        assert [part.text for part in got.choices[0].parts if isinstance(part, Reasoning)] == ["ha " * count], deltas


def test_deep_and_wide_content_is_read_in_one_pass() -> None:
    content: Any = ["x"] * 1000
    for _ in range(150):
        content = [content]
    body = json.dumps({"choices": [{"message": {"content": [{"type": "text", "text": content}]}}]}).encode()
    assert CHAT.read_reply(body).text == "x" * 1000
    assert calls(lambda: CHAT.read_reply(body), "toolwire.protocols") < 10_000


def test_a_call_in_pieces_that_is_not_under_function() -> None:
    pieces = [{"id": "a", "name": "f", "arguments": ""}, {"arguments": '{"a":'}, {"name": None, "arguments": "1}"}]
    frames = b"".join(chunk({"tool_calls": [{"index": 0, **piece}]}) for piece in pieces)
    (use,) = fold(read(frames + chunk({}, "tool_calls") + DONE)).choices[0].parts
    assert isinstance(use, ToolUse)
    assert (use.name, use.arguments) == ("f", '{"a":1}')


def test_a_last_chunk_with_a_code_is_no_error() -> None:
    last = frame({"choices": [], "usage": {"prompt_tokens": 1}, "code": 20000, "message": "success", "detail": "x"})
    assert fold(read(chunk({"content": "so"}) + chunk({}, "stop") + last + DONE)).choices[0].parts == (Text("so"),)


COUNTS = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


@every(
    "frames",
    [
        chunk({}, "stop", usage={"input_tokens": 9, "output_tokens": 4}),
        chunk({}, "stop", usage=COUNTS) + frame({"choices": [], "usage": dict.fromkeys(COUNTS, 0)}),
        frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": COUNTS}]}),
        chunk({}, "stop", x_groq={"id": "req_1", "usage": COUNTS}),
    ],
)
def test_counts_in_odd_places(frames: bytes) -> None:
    """With Responses' names, or 0 after the counts, in a choice (Moonshot), in an object of its own (Groq)."""
    usage = fold(read(chunk({"content": "so"}, x_groq={"id": "req_1"}) + frames + DONE)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.missing) == (9, 4, None)


def test_no_tokens_at_all_are_no_counts() -> None:
    zeros = dict.fromkeys(COUNTS, 0)
    assert fold(read(chunk({"content": "so"}, "stop", usage=zeros) + DONE)).usage is None
    body = {"choices": [{"message": {"content": "so"}, "finish_reason": "stop"}], "usage": zeros}
    assert CHAT.read_reply(json.dumps(body).encode()).usage is None


def test_a_first_chunk_without_choices() -> None:
    azure = frame({"id": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": []})
    got = read(
        azure
        + chunk({"role": "assistant", "content": ""}, system_fingerprint="fp")
        + chunk({"content": "x"}, "stop")
        + DONE
    )
    assert got[0] == Start("chatcmpl-1", "m", 1, {"chat": {"system_fingerprint": "fp"}})
    assert fold(got).text == "x"


def test_halves_of_a_character_and_bytes_that_are_no_text() -> None:
    raw = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00\xff"}}]}\n\n' + chunk({}, "stop") + DONE
    )
    got = read(raw)
    assert [event.text for event in got if isinstance(event, Delta)] == ["a\ud83d", "\ude00\ufffd"]
    assert accumulate(write(got))[0]["content"] == "a\U0001f600\ufffd"


def test_length_cuts_only_what_is_not_whole() -> None:
    raw = (
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": fn('{"x":1}', "f")}]})
        + chunk({"tool_calls": [{"index": 1, "id": "b", "function": fn('{"x":', "f")}]})
        + chunk({"tool_calls": [{"index": 2, "id": "c", "function": fn(None, "f")}]}, "length")
        + DONE
    )
    assert [event.status for event in read(raw) if isinstance(event, Close)] == ["complete", "truncated", "truncated"]
    got = read(chunk({"content": "x"}, "length") + DONE)
    assert [event.status for event in got if isinstance(event, Close)] == ["truncated"]


def test_one_of_several_answers_breaks_off() -> None:
    second = frame({"id": "1", "choices": [{"index": 1, "delta": {"content": "y"}, "finish_reason": None}]})
    *_, last = read(chunk({"content": "x"}, "stop") + second)
    assert isinstance(last, Fault)
    assert last.error.code == "upstream_disconnected"


def test_text_about_errors_is_text() -> None:
    assert fold(read(chunk({"content": '{"error": {"message": "no"}}'}, "stop") + DONE)).text.startswith('{"error"')


@given(stream=chunks.reads())
def test_the_short_way_for_text_gives_what_the_long_way_gives(stream: list[bytes]) -> None:
    class Long(ChatReader):
        def _is_text(self, *_: Any) -> bool:
            return False

    short, long = ChatReader(4096), Long(4096)
    for data in stream:
        events = short.feed(data)
        assert _without_ids(events) == _without_ids(long.feed(data))


def _without_ids(events: list[Event]) -> list[str]:
    return [re.sub(r"call_[0-9a-f]{32}", "", repr(event)) for event in events]
