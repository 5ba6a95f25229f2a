"""Answers of Messages: exact bytes, the published schema, streams that equal whole answers, all splits, and reading
what was written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.cases import every, examples
from tests.protocols.blocks import call, text
from tests.protocols.messages_wires import (
    MESSAGES,
    accumulate,
    frame,
    frames,
    options,
    read,
    validator,
    write,
)
from tests.strategies import streams
from toolwire.errors import BackendFault, ClientFault, GatewayError, Unavailable
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from toolwire.folding import fold, unfold
from toolwire.model import (
    ModelReply,
    ModelRequest,
    OpaquePart,
    Origin,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolUse,
    Usage,
    scoped,
)
from toolwire.protocols.base import ListedModel
from toolwire.protocols.messages.blocks import PROTOCOL
from toolwire.protocols.messages.ids import is_own_signature, signature_of
from toolwire.protocols.streams import WriteOptions
from toolwire.stream_grammar import check

GOLDEN = Path(__file__).parents[1] / "golden"
START = Start("msg_1", "backend-model", 9, usage=Usage(82, 1, 4))
HEX = "0123456789abcdef" * 2
ALL_KINDS: list[Event] = [
    START,
    *text(0, "I will ", "look.", kind=BlockKind.REASONING),
    *text(1, "Reading ", "it: “ü”\n"),
    *call(2, f"call_{HEX}", "read_file", '{"path":', '"notes.txt"}'),
    *call(3, "toolu_01b", "list_files"),
    Finish("stop", Usage(82, 17, 4, 0, 3)),
]
BROKEN: list[Event] = [START, Open(0, BlockKind.TEXT), Delta(0, "Half an ans"), Fault(BackendFault("It broke off."))]


def whole(reply: ModelReply, opts: WriteOptions | None = None) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(MESSAGES.write_reply(reply, opts or options()))
    return written


def same(message: dict[str, Any]) -> dict[str, Any]:
    """Without ids that are made for each answer."""
    return {key: value for key, value in message.items() if key != "id"}


# --- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "events"), [("messages-all-kinds", ALL_KINDS), ("messages-error", BROKEN)])
def test_golden_bytes(name: str, events: list[Event]) -> None:
    assert write(events).decode() == (GOLDEN / f"{name}.sse").read_text(encoding="utf-8")


def test_life_is_shown_by_a_ping_once_the_message_has_begun() -> None:
    writer = MESSAGES.writer(options())
    assert writer.keepalive().startswith(b":")
    writer.feed([START])
    assert writer.keepalive() == b'event: ping\ndata: {"type":"ping"}\n\n'
    writer.feed([Finish()])
    assert writer.keepalive().startswith(b":")


def test_neighbouring_texts_are_one_and_blank_ones_are_none() -> None:
    events = [START, *text(0, "\n"), *text(1, "A"), *text(2, " B"), *call(3, "c", "f"), *text(4, "\n\n"), *call(5, "d", "f")]  # fmt: skip
    message = accumulate(write([*events, *text(6, " \n"), Finish()]))
    assert [block.get("text", block["type"]) for block in message["content"]] == ["\nA B", "tool_use", "tool_use"]
    nothing = accumulate(write([START, *text(0, "\n"), Finish()]))
    assert nothing["content"] == [{"type": "text", "text": "\n"}]


def test_arguments_that_are_no_object_are_put_into_one() -> None:
    events = [START, *call(0, "a", "f", " [", "1]"), *call(1, "b", "f", "plain"), *call(2, "c", "f", " ", ' {"x":1}')]
    message = accumulate(write([*events, Finish()]))
    assert [block["input"] for block in message["content"]] == [{"input": [1]}, {"input": "plain"}, {"x": 1}]


def test_numbers_keep_their_text() -> None:
    reply = ModelReply("", "m", 0, (ReplyChoice((ToolUse("a", "f", '{"n":100000000000000000000,"f":1e-07}'),)),))
    assert b'"input":{"n":100000000000000000000,"f":1e-07}' in MESSAGES.write_reply(reply, options())


def test_a_call_that_was_cut_off() -> None:
    half = ToolUse("a", "f", '{"x": "ha')
    reply = ModelReply("", "m", 0, (ReplyChoice((Text("So."), half), "length"),))
    written = whole(reply)
    assert ([block["type"] for block in written["content"]], written["stop_reason"]) == (["text"], "max_tokens")
    delta = frames(write(unfold(reply)))[-2]
    assert delta["delta"]["stop_reason"] == "max_tokens"
    complete = ReplyChoice((ToolUse("b", "f", "{}"), half), "length")
    assert whole(ModelReply("", "m", 0, (complete,)))["stop_reason"] == "tool_use"


@every(
    ("reason", "extra", "word", "sequence"),
    [
        ("stop", {}, "end_turn", None),
        ("stop", {"stop_sequence": "###"}, "stop_sequence", "###"),
        ("length", {}, "max_tokens", None),
        ("content_filter", {}, "refusal", None),
        ("pause_turn", {}, "pause_turn", None),
        ("eos", {}, "end_turn", None),
        ("length", scoped("messages", {"stop_reason": "model_context_window_exceeded"}), "model_context_window_exceeded", None),
        ("stop", scoped("messages", {"stop_details": {"type": "x"}}), "end_turn", None),
    ],
)  # fmt: skip
def test_why_it_stopped(reason: str, extra: Any, word: str, sequence: str | None) -> None:
    reply = ModelReply("", "m", 0, (ReplyChoice((Text("a"),), reason, extra),))
    for message in (whole(reply), accumulate(write(unfold(reply)))):
        assert (message["stop_reason"], message["stop_sequence"]) == (word, sequence)
        assert message.get("stop_details") == extra.get("messages", {}).get("stop_details")


def test_a_refusal_is_text_that_says_so() -> None:
    reply = ModelReply("", "m", 0, (ReplyChoice((Refusal("No."),)),))
    for message in (whole(reply), accumulate(write(unfold(reply)))):
        assert message["content"] == [{"type": "text", "text": "No."}]
        assert message["stop_reason"] == "refusal"


def test_counts() -> None:
    """What came from a cache is not counted twice (R11.1)."""
    usage = Usage(100, 7, 30, 20, 5)
    counts = whole(ModelReply("", "m", 0, (ReplyChoice(()),), usage))["usage"]
    assert counts == {
        "input_tokens": 50,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 30,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 5},
    }


def test_before_anybody_has_counted_the_size_is_a_guess() -> None:
    request = ModelRequest("m", (), origin=Origin("messages", b"x" * 400))
    opts = WriteOptions(request=request, created=1)
    start, *_, delta, _ = frames(write([Start("", "", 0), Finish("stop", Usage(9, 2))], opts))
    assert start["message"]["usage"]["input_tokens"] == 100
    assert delta["usage"]["input_tokens"] == 9


@every(
    ("field", "budget", "kinds"),
    [
        ("reasoning_content", None, ["thinking", "text"]),
        ("both", 1024, ["thinking", "text"]),
        ("drop", None, ["text"]),
        ("reasoning_content", 0, ["text"]),
        ("inline", None, ["text"]),
    ],
)
def test_thoughts(field: str, budget: int | None, kinds: list[str]) -> None:
    reply = ModelReply("", "m", 0, (ReplyChoice((Reasoning("hm"), Text("Yes."))),))
    opts = options(budget=budget, reasoning_field=field)
    streamed, written = accumulate(write(unfold(reply), opts)), whole(reply, opts)
    assert same(streamed)["content"] == written["content"]
    assert [block["type"] for block in written["content"]] == kinds
    if kinds[0] == "thinking":
        assert written["content"][0] == {"type": "thinking", "thinking": "hm", "signature": signature_of("hm")}
    elif field == "inline":
        assert written["content"][0]["text"] == "<think>hm</think>Yes."


def test_thoughts_may_be_omitted() -> None:
    """Then their blocks are signed and silent."""
    reply = ModelReply("", "m", 0, (ReplyChoice((Reasoning("hm"), Text("Yes."))),))
    shown = options()
    wish = {PROTOCOL: {"thinking": {"type": "adaptive", "display": "omitted"}}}
    opts = replace(shown, request=replace(shown.request, protocol_fields=wish))
    streamed, written = accumulate(write(unfold(reply), opts)), whole(reply, opts)
    assert same(streamed)["content"] == written["content"]
    thought = written["content"][0]
    assert (thought["type"], thought["thinking"]) == ("thinking", "")
    assert is_own_signature(thought["signature"])
    assert b"hm" not in write(unfold(reply), opts)


ERRORS: list[tuple[GatewayError, int, str]] = [
    (ClientFault("Bad.", code="invalid_json"), 400, "invalid_request_error"),
    (ClientFault("Bad.", code="invalid_api_key"), 401, "authentication_error"),
    (ClientFault("Bad.", code="model_not_allowed"), 403, "permission_error"),
    (ClientFault("Bad.", code="model_not_found"), 404, "not_found_error"),
    (ClientFault("Bad.", code="method_not_allowed"), 405, "invalid_request_error"),
    (ClientFault("Bad.", code="request_too_large"), 413, "request_too_large"),
    (ClientFault("Bad.", code="rate_limit_exceeded"), 429, "rate_limit_error"),
    (BackendFault("Bad."), 502, "api_error"),
    (BackendFault("Bad.", code="upstream_timeout"), 504, "timeout_error"),
    (Unavailable("Bad."), 529, "overloaded_error"),
    (Unavailable("Bad.", code="shutting_down"), 503, "api_error"),
]


@every(("error", "status", "kind"), ERRORS)
def test_errors(error: GatewayError, status: int, kind: str) -> None:
    from toolwire.protocols.messages.errors import status_of

    assert status_of(error) == status
    body = json.loads(MESSAGES.write_error(error, "req_1"))
    assert body == {"type": "error", "error": {"type": kind, "message": "Bad."}, "request_id": "req_1"}
    if status not in (405, 413):  # of which the published types know nothing
        validator("ErrorResponse").validate(body)
    assert frames(write([Fault(error)])) == [{"type": "error", "error": {"type": kind, "message": "Bad."}}]


def test_an_error_says_where() -> None:
    error = json.loads(MESSAGES.write_error(ClientFault("Too hot.", param="temperature"), "r"))["error"]
    assert error["message"] == "temperature: Too hot."
    named = json.loads(MESSAGES.write_error(ClientFault("Invalid 'temperature'.", param="temperature"), "r"))["error"]
    assert named["message"] == "Invalid 'temperature'."


def test_lists_of_models() -> None:
    a, b = ListedModel("a", 0, context=4096), ListedModel("b", 60)
    listed = json.loads(MESSAGES.write_models([a, b]))
    assert ([model["id"] for model in listed["data"]], listed["has_more"]) == (["a", "b"], False)
    assert (listed["first_id"], listed["last_id"]) == ("a", "b")
    assert [model["max_input_tokens"] for model in listed["data"]] == [4096, None]
    assert listed["data"][1]["created_at"] == "1970-01-01T00:01:00Z"
    assert json.loads(MESSAGES.write_model(a)) == listed["data"][0]
    assert json.loads(MESSAGES.write_models([]))["first_id"] is None


# --- laws -----------------------------------------------------------------------------------------------------------


@examples(0.5)
@given(streams())
def test_every_event_fits_the_published_schema(events: list[Event]) -> None:
    for value in frames(write(events)):
        if value["type"] not in ("ping", "error"):
            validator("RawMessageStreamEvent").validate(value)
    validator("Message").validate(whole(fold(events)))


# --- what servers say -----------------------------------------------------------------------------------------------

REPLY: dict[str, Any] = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "container": {"id": "c"},
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eA=="},
        {"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "b"}]},
        {"type": "text", "text": "b", "citations": []},
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1.5}, "caller": {"type": "direct"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "stop_details": None,
    "usage": {"input_tokens": 5, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 1, "output_tokens": 4, "service_tier": "standard", "server_tool_use": {"web_search_requests": 1}, "cache_creation": {"ephemeral_5m_input_tokens": 2}},
}  # fmt: skip


def stripped(value: Any) -> Any:
    return {key: item for key, item in value.items() if item is not None or key == "stop_sequence"}


def test_a_whole_answer_with_everything() -> None:
    reply = MESSAGES.read_reply(json.dumps(REPLY).encode())
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.cache_write_tokens) == (8, 1, 2)
    request = ModelRequest("claude", ())
    written = whole(reply, WriteOptions(request=request, created=1))
    assert written == stripped(REPLY)
    assert same(accumulate(write(unfold(reply), WriteOptions(request=request, created=1)))) == same(stripped(REPLY))


@every(
    ("first", "last", "counts"),
    [
        ({"input_tokens": 0, "output_tokens": 0}, {"output_tokens": 5}, (0, 5, 0)),
        ({"input_tokens": 0, "cache_read_input_tokens": 9}, {"output_tokens": 5}, (9, 5, 9)),
        ({"input_tokens": 0, "cache_read_input_tokens": 9}, {"output_tokens": 0}, (9, 0, 9)),
        ({"input_tokens": 9, "output_tokens": 1}, {"input_tokens": 0, "output_tokens": 5}, (9, 5, 0)),
        ({"input_tokens": 9, "output_tokens": 1}, {"output_tokens": 0}, (9, 1, 0)),
        ({"input_tokens": 0, "output_tokens": 0}, {"output_tokens": 0}, None),
    ],
)
def test_a_count_of_0_is_one_beside_others(first: Any, last: Any, counts: Any) -> None:
    """The prompt came from a cache, or a server counts nothing in one of its frames."""
    start, end = frame("message_start", message={"usage": first}), {"delta": {"stop_reason": "end_turn"}, "usage": last}
    finish = read(start + frame("message_delta", **end) + frame("message_stop"))[-1]
    assert isinstance(finish, Finish)
    for usage in (finish.usage, MESSAGES.read_usage({**first, **{k: v for k, v in last.items() if v}})):
        got = None if usage is None else (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
        assert got == counts


def test_what_nobody_knows_is_kept() -> None:
    odd = frame("new_event", x=1)
    events = read(frame("message_start", message={}) + odd + frame("message_delta", delta={"stop_reason": "end_turn"}))
    assert Opaque("messages", {"frame": {"type": "new_event", "x": 1}}) in events
    assert isinstance(events[-1], Finish)
    early = read(odd + frame("message_start", message={"id": "msg_9"}) + frame("message_stop"))
    assert isinstance(early[0], Start)
    assert (early[0].response_id, type(early[1])) == ("msg_9", Opaque)


def test_servers_that_leave_things_out() -> None:
    """The first event, and the names of events; more in `test_corners_messages_read.py`."""
    start = frame("content_block_start", index=0, content_block={"type": "text", "text": "a"})
    stop = frame("content_block_stop", index=0)
    nameless = frame("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}).split(b"\n", 1)[1]
    for data in (start + stop, nameless):
        events = read(data + frame("message_delta", delta={"stop_reason": "end_turn"}))
        check(events)
        assert fold(events).choices[0].parts == (Text("a"),)


def deltas(*parts: dict[str, Any]) -> bytes:
    return b"".join(frame("content_block_delta", index=0, delta=part) for part in parts)


def test_a_signature_behind_thinking_and_text_in_one_block_is_of_the_thinking() -> None:
    thought, said = {"type": "thinking_delta", "thinking": "hm"}, {"type": "text_delta", "text": "so"}
    start = frame("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""})
    rest = deltas(thought, said, {"type": "signature_delta", "signature": "c2ln"}) + frame("message_stop")
    events = read(start + rest)
    check(events)
    signed = Reasoning("hm", scoped(PROTOCOL, {"signature": "c2ln"}))
    assert fold(events).choices[0].parts == (signed, Text("so"))
    # one that was not announced comes too late for thinking that has ended
    assert fold(read(rest)).choices[0].parts[:2] == (Reasoning("hm"), Text("so"))
    again = deltas(thought, said, thought, {"type": "signature_delta", "signature": "c2ln"}, said)
    parts = (Reasoning("hm"), Text("so"), signed, Text("so"))
    assert fold(read(start + again + frame("message_stop"))).choices[0].parts == parts
    # thinking whose signature has come holds back no text
    events = read(start + deltas(thought, {"type": "signature_delta", "signature": "c2ln"}, said))
    assert events.index(Close(0, "complete", signed.extra)) < events.index(Delta(1, "so"))


@every(
    ("start", "pieces", "wanted"),
    [
        ({"a": 1}, [], '{"a":1}'),
        ({"a": 1}, ["{}"], '{"a":1}'),
        ({"a": 1}, ["{", "}"], '{"a":1}'),
        ({"a": 1}, ['{"a":', " 1}"], '{"a": 1}'),
        ({"a": 1}, ['{"b":', "2}"], '{"a":1,"b":2}'),
        ({"a": 1}, ['{"a":'], '{"a":1}'),
        ('{"a": 1}', ["{", "}"], '{"a": 1}'),
        ("a", ['{"a":', "1}"], '{"a":1}'),
        ({}, ['{"a":', "1}"], '{"a":1}'),
        ({}, [], "{}"),
    ],
)
def test_input_in_the_start_of_a_block_and_in_deltas(start: Any, pieces: list[str], wanted: str) -> None:
    sent = deltas(*({"type": "input_json_delta", "partial_json": piece} for piece in pieces))
    for kind in ("tool_use", "server_tool_use"):
        block = {"type": kind, "id": "t", "name": "f", "input": start}
        begun = frame("content_block_start", index=0, content_block=block)
        for stop in (frame("content_block_stop", index=0), b""):
            reply = fold(read(begun + sent + stop + frame("message_delta", delta={"stop_reason": "tool_use"})))
            (part,) = reply.choices[0].parts
            if isinstance(part, ToolUse):
                assert part.arguments == wanted
            elif pieces:
                assert isinstance(part, OpaquePart)
                assert part.payload == {**block, "input": json.loads(wanted)}


def test_a_text_with_a_field_named_input_is_text() -> None:
    start = frame("content_block_start", index=0, content_block={"type": "text", "text": "", "input": {"a": 1}})
    said = deltas({"type": "text_delta", "text": "so"})
    assert fold(read(start + said + frame("message_stop"))).text == "so"


def test_two_calls_with_one_id_and_one_without() -> None:
    blocks = [{"type": "tool_use", "id": ident, "name": "f", "input": {}} for ident in ("t", "t", "")]
    stream = b"".join(frame("content_block_start", index=n, content_block=block) for n, block in enumerate(blocks))
    ids = [use.call_id for use in fold(read(stream + frame("message_stop"))).calls]
    assert len(set(ids)) == 3
    assert ids[0] == "t"


def test_ends() -> None:
    stop = b'{"type":"message_stop"}'
    assert MESSAGES.is_end("message_stop", stop)
    assert MESSAGES.is_end(None, stop)
    assert not MESSAGES.is_end(None, b'{"type":"content_block_delta","delta":{"text":"message_stop"}}')
    assert MESSAGES.is_empty_frame(None, b'{"type":"ping"}')
    assert not MESSAGES.is_empty_frame(None, b'{"type":"error"}')
    assert not MESSAGES.is_empty_frame(None, b"nope")
    added = MESSAGES.missing_end(frame("message_delta", delta={"stop_reason": "end_turn"}))
    assert added is not None
    assert MESSAGES.is_end(None, added.split(b"data: ")[1])
    assert MESSAGES.missing_end(frame("message_start", message={"stop_reason": None})) is None
