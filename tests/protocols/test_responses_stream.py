"""Streams written: exact bytes, the published schemas, every rule of R8.5 to R8.13, laws; and the resource that they
end in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.protocols.blocks import call, text
from tests.protocols.corners import folded
from tests.protocols.published import SHARED
from tests.protocols.responses_wires import (
    RESPONSES,
    accumulate,
    check_event,
    check_resource,
    options,
    payloads,
    read,
    write,
)
from tests.strategies import streams as chat_streams
from toolwire.errors import BackendFault, ClientFault, GatewayError, ModelFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from toolwire.folding import fold
from toolwire.model import Usage
from toolwire.protocols.responses.reply import broken_off
from toolwire.stream_grammar import check, normalise

GOLDEN = Path(__file__).parents[1] / "golden"
START = Start("resp_1", "m", 1)
TOOLS = [
    {"type": "function", "name": "read_file", "parameters": {"type": "object"}},
    {"type": "custom", "name": "apply_patch", "description": "Edits files."},
    {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [{"type": "function", "name": "stop"}]},
    {"type": "web_search"},
]


def finish(reason: str = "stop", usage: Usage | None = None) -> Finish:
    return Finish(reason, usage, extra={"completed_at": 9})


ALL_KINDS: list[Event] = [
    START,
    *text(0, "Let me ", "see.", kind=BlockKind.REASONING),
    *text(1, "Reading ", "it: “ü”\n"),
    *call(2, "call_a", "read_file", '{"path":', '"notes.txt"}'),
    *call(3, "call_b", "apply_patch", "*** Begin\n", "+x\n", call_kind="custom"),
    *call(4, "call_c", "stop", namespace="agents"),
    *text(5, "Done."),
    finish("stop", Usage(82, 17, 4, 0, 3)),
]
CUT: list[Event] = [START, *text(0, "Half an ans"), finish("length", Usage(9, 3))]
BROKEN: list[Event] = [
    START,
    *call(0, "call_a", "read_file", "{}"),
    Open(1, BlockKind.TEXT),
    Delta(1, "Half an ans"),
    Fault(ModelFault("The model's call is malformed.", code="malformed_tool_arguments")),
]


def terminal(data: bytes) -> dict[str, Any]:
    value: dict[str, Any] = payloads(data)[-1]["response"]
    return value


def kinds(data: bytes) -> list[str]:
    return [event["type"].removeprefix("response.") for event in payloads(data)]


# --- exact forms ----------------------------------------------------------------------------------------------------


@every(
    ("name", "events"),
    [("responses-all-kinds", ALL_KINDS), ("responses-incomplete", CUT), ("responses-failed", BROKEN)],
)
def test_golden_bytes(name: str, events: list[Event]) -> None:
    data = write(events, options({"tools": TOOLS, "instructions": "Be brief.", "metadata": {"a": "b"}}))
    assert data.decode() == (GOLDEN / f"{name}.sse").read_text(encoding="utf-8")


def test_a_tool_of_one_group_gets_its_group_back() -> None:
    opts = options({"tools": [*TOOLS, {"type": "function", "name": "stop2"}]})
    items = terminal(write([START, *call(0, "call_a", "stop"), *call(1, "call_b", "stop2"), finish()], opts))["output"]
    assert [item.get("namespace") for item in items] == ["agents", None]
    twice = [*TOOLS, {"type": "function", "name": "stop"}]
    (item,) = terminal(write([START, *call(0, "call_a", "stop"), finish()], options({"tools": twice})))["output"]
    assert "namespace" not in item


def test_sequential_ids() -> None:
    echoed = [
        {"type": "function_call", "id": "fc_007", "call_id": "fc_007", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "fc_007", "output": "ok"},
    ]
    events = [START, *text(0, "x"), *call(1, "call_a", "f"), *call(2, "call_b", "p", "x", call_kind="custom"), finish()]
    foreign = [{"type": "local_shell_call", "id": "lsh_1", "call_id": "fc_011", "action": {}, "status": "completed"}]
    for body, wanted in (
        ({}, ["fc_001", "ctc_002"]),
        ({"input": echoed}, ["fc_008", "ctc_009"]),
        ({"input": [*echoed, *foreign]}, ["fc_012", "ctc_013"]),
    ):
        opts = options(body, ids="sequential")
        data = write(events, opts)
        calls = accumulate(payloads(data))[1:]
        assert [item["id"] for item in calls] == wanted
        assert [item["call_id"] for item in calls] == wanted
        assert json.loads(RESPONSES.write_reply(fold(events), opts)) == terminal(data)


# --- text and other prose -------------------------------------------------------------------------------------------


@every(
    ("field", "wanted"),
    [
        ("reasoning_content", [("reasoning", "hm "), ("message", "so")]),
        ("both", [("reasoning", "hm "), ("message", "so")]),
        ("inline", [("message", "<think>hm </think>so")]),
        ("drop", [("message", "so")]),
    ],
)
def test_where_reasoning_goes(field: str, wanted: list[tuple[str, str]]) -> None:
    events = [START, *text(0, "h", "m ", kind=BlockKind.REASONING), *text(1, "so"), finish()]
    opts = options(reasoning_field=field)
    items = accumulate(payloads(write(events, opts)))
    assert [(item["type"], item["content"][0]["text"]) for item in items] == wanted
    assert json.loads(RESPONSES.write_reply(fold(events), opts))["output"] == items


def test_reasoning_of_another_server_goes_back_whole() -> None:
    extra = {"responses": {"encrypted_content": "xyz", "id": "rs_9", "summary": True}}
    for pieces in ((), ("so ", "so")):
        opened = Open(0, BlockKind.REASONING, extra=extra)
        events = [START, opened, *(Delta(0, piece) for piece in pieces), Close(0), finish()]
        data = write(events)
        (item,) = accumulate(payloads(data))
        assert (item["id"], item["encrypted_content"]) == ("rs_9", "xyz")
        assert item["summary"] == ([{"type": "summary_text", "text": "so so"}] if pieces else [])
        for event in payloads(data):
            check_event(event)
    assert normalise(read(data)) == normalise([*events[:-1], finish("stop", None)])


# --- overlapping blocks, foreign items ------------------------------------------------------------------------------


def test_how_an_item_goes_on_that_is_not_modelled() -> None:
    """Under its place here, and nothing stands between; what comes meanwhile waits."""
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    begun = {**item, "status": "in_progress"}
    about = {"output_index": 7, "item_id": "ws_1", "sequence_number": 99}
    searching = {"type": "response.web_search_call.searching", **about}
    announced = {"type": "response.output_item.added", "output_index": 7, "item": begun}
    events: list[Event] = [
        START,
        *text(0, "a"),
        Opaque("responses", searching),  # of nothing that was announced: left out
        Opaque("responses", announced),
        Opaque("responses", searching),
        *text(1, "b"),
        Opaque("responses", searching),
        Opaque("responses", item),
        Opaque("responses", item),
        Opaque("chat", {"choices": []}),
        finish(),
    ]
    shown = payloads(write(events))
    assert not [event for event in shown if event.get("output_index") == 7]
    kinds = [event["type"].removeprefix("response.") for event in shown if event.get("output_index") == 1]
    going_on = ["web_search_call.searching"] * 2
    assert kinds == ["output_item.added", *going_on, "output_item.done"]
    where = [number for number, event in enumerate(shown) if event.get("output_index") == 1]
    assert where == list(range(where[0], where[0] + 4))
    items = shown[-1]["response"]["output"]
    assert items[:2] == [items[0], item]
    assert [one["type"] for one in items] == ["message", "web_search_call", "message", "web_search_call"]
    for length in range(1, len(events)):  # it may break off anywhere
        payloads(write([*events[:length], Fault(BackendFault("x"))]))
        items = payloads(write([*events[:length], finish()]))[-1]["response"]["output"]
        assert ("web_search_call" in [one["type"] for one in items]) is (length > 5)


# --- how streams end ------------------------------------------------------------------------------------------------


@every(
    ("reason", "called", "status", "word"),
    [
        ("stop", False, "completed", None),
        ("tool_calls", False, "completed", None),
        ("eos", False, "completed", None),
        ("length", False, "incomplete", "max_output_tokens"),
        ("max_tokens", False, "incomplete", "max_output_tokens"),
        ("content_filter", False, "incomplete", "content_filter"),
        ("length", True, "completed", None),
        ("stop", True, "completed", None),
    ],
)
def test_how_an_answer_ended(reason: str, called: bool, status: str, word: str | None) -> None:
    events = [START, *text(0, "x"), *(call(1, "call_a", "f", "{}") if called else []), finish(reason)]
    data = write(events)
    last = payloads(data)[-1]
    assert last["type"] == f"response.{status}"
    shown = last["response"]
    assert (shown["status"], shown["incomplete_details"]) == (status, word and {"reason": word})
    assert shown["completed_at"] == (9 if status == "completed" else None)
    assert shown["output"][-1]["status"] == status
    assert json.loads(RESPONSES.write_reply(fold(events), options())) == shown


@every(
    ("error", "code"),
    [
        (BackendFault("gone", code="upstream_disconnected"), "server_error"),
        (ModelFault("bad", code="invalid_tool_arguments"), "server_error"),
        (ClientFault("long", code="context_length_exceeded", param="input"), "context_length_exceeded"),
        (ClientFault("no", code="unsupported_content"), "invalid_prompt"),
        (GatewayError("slow down", code="rate_limit_exceeded"), "rate_limit_exceeded"),
    ],
)
def test_failures(error: GatewayError, code: str) -> None:
    for before in ([], [START], [START, *text(0, "x"), Open(1, BlockKind.TEXT)]):
        *_, event, last = payloads(write([*before, Fault(error)]))
        said = {"type": error.type, "code": error.code, "message": error.message, "param": error.param}
        assert event["error"] == said
        assert last["type"] == "response.failed"
        assert last["response"]["status"] == "failed"
        assert last["response"]["error"] == {"code": code, "message": f"{error.code}: {error.message}"}
        assert last["response"]["usage"] is None


def test_a_half_call_is_in_no_failed_response() -> None:
    events = [START, *text(0, "x"), Open(1, BlockKind.TOOL_CALL, name="f", call_id="call_a"), Delta(1, '{"x":')]
    (item,) = terminal(write([*events, Fault(BackendFault("no"))]))["output"]
    assert item["type"] == "message"
    (item,) = broken_off(folded(events), options(), "failed")["output"]
    assert item["type"] == "message"


def test_options_of_the_end() -> None:
    quiet = write(BROKEN, options(error_event=False))
    assert "error" not in kinds(quiet)
    assert kinds(quiet)[-1] == "failed"
    for events in (ALL_KINDS, BROKEN):
        marked = write(events, options(done_marker=True))
        assert marked.endswith(b"\n\ndata: [DONE]\n\n")
        assert b"[DONE]" not in write(events)


def test_keepalive() -> None:
    writer = RESPONSES.writer(options())
    assert writer.feed([START])
    assert writer.keepalive() == b": keep-alive\n\n"
    writer = RESPONSES.writer(options(keepalive="event"))
    assert writer.keepalive() == b": keep-alive\n\n"
    data = writer.feed([START, Open(0, BlockKind.TEXT), Delta(0, "a")])
    data += writer.keepalive() + writer.keepalive() + writer.feed([Delta(0, "b"), Close(0), finish()])
    events = payloads(data)
    assert [event["type"] for event in events].count("response.in_progress") == 3
    assert accumulate(events)[0]["content"][0]["text"] == "ab"
    for event in events:
        check_event(event)


# --- the resource ---------------------------------------------------------------------------------------------------


def test_what_is_echoed() -> None:
    schema = {"type": "object", "properties": {}}
    body = {
        "instructions": "Be brief.", "max_output_tokens": 5, "max_tool_calls": 2, "parallel_tool_calls": False,
        "previous_response_id": "resp_0", "prompt_cache_key": "k", "reasoning": {"effort": "low"}, "store": False,
        "safety_identifier": "s", "temperature": 0.5, "top_p": 0.25, "truncation": "auto", "metadata": {"a": "b"},
        "presence_penalty": 1, "frequency_penalty": -1, "top_logprobs": 2, "user": "u",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}, "verbosity": "low"},
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}, {"type": "web_search"},
                  {"type": "custom", "name": "p", "format": {"type": "text"}}],
    }  # fmt: skip
    shown = json.loads(RESPONSES.write_reply(fold([START, finish()]), options(body)))
    same = set(body) - {"reasoning", "text", "tool_choice", "tools"}
    assert {key: shown[key] for key in same} == {key: body[key] for key in same}
    assert shown["reasoning"] == {"effort": "low", "summary": None}
    assert shown["text"]["verbosity"] == "low"
    assert shown["text"]["format"] == {
        "type": "json_schema", "name": "n", "schema": schema, "strict": False, "description": None
    }  # fmt: skip
    assert shown["tool_choice"] == {"type": "function", "name": "f"}
    assert shown["tools"] == [
        {"type": "function", "name": "f", "description": None, "parameters": schema, "strict": None},
        {"type": "web_search"},
        {"type": "custom", "name": "p", "format": {"type": "text"}},
    ]
    check_resource(shown)


@every(
    "choice",
    [
        "none",
        "required",
        {"type": "function", "name": "read_file"},
        {"type": "custom", "name": "apply_patch"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read_file"}]},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "read_file"}}]}},
    ],
)  # fmt: skip
def test_every_choice_is_echoed_in_the_published_form(choice: Any) -> None:
    check_resource(terminal(write([START, finish()], options({"tools": TOOLS, "tool_choice": choice}))))


# --- recordings of the live service ---------------------------------------------------------------------------------

RECORDED = sorted((SHARED / "spec/data/observed-openai").glob("responses-*.events.jsonl"))
OURS = {"cache_write_tokens", "presence_penalty", "frequency_penalty", "name"}
"""Keys that some recordings lack: of newer documents, and the name in `function_call_arguments.done`."""
THEIRS = {"obfuscation", "prompt_cache_retention", "user", "verbosity", "encrypted_content"}
"""Keys of the recordings that are not sent here: padding, and settings that the client did not give."""


def shapes(value: Any, path: str, found: dict[str, list[str]]) -> None:
    """Every object of an event under what it is, with its keys in order."""
    if isinstance(value, dict):
        found[path] = [key for key in value if key not in OURS | THEIRS]
        for key, inner in value.items():
            if key in ("item", "part"):
                shapes(inner, f"{path}.{inner['type']}", found)
            elif key == "output":
                for item in inner:
                    shapes(item, f"output.{item['type']}", found)
            elif key in ("response", "usage", "error", "incomplete_details", "reasoning", "input_tokens_details"):
                shapes(inner, f"{path}.{key}", found)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.split(".")[0])
def test_key_sets_and_their_order_are_those_of_the_live_service(path: Path) -> None:
    recorded = [json.loads(line) for line in path.read_text().splitlines()]
    body = json.loads(path.with_name(path.name.replace(".events.jsonl", ".request.json")).read_bytes())["body"]
    wire = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in recorded)
    ours = payloads(write(read(wire), options(body)))
    theirs: dict[str, list[str]] = {}
    mine: dict[str, list[str]] = {}
    for event in recorded:
        shapes(event, event["type"], theirs)
    for event in ours:
        shapes(event, event["type"], mine)
    common = theirs.keys() & mine.keys()
    assert any(name.endswith(".response") for name in common)
    assert {event["type"] for event in ours} <= {event["type"] for event in recorded} | {
        "response.reasoning_summary_text.delta"  # cut out of the recordings
    }
    if "error" in common:  # said as it is published as well
        assert mine["error"][2:5] == ["code", "message", "param"]
        del mine["error"][2:5]
    # One version of the service writes the number last; inside of events all agree.
    number_first = list(recorded[0])[1] == "sequence_number"
    for name in common:
        if number_first or name not in {event["type"] for event in recorded}:
            assert mine[name] == theirs[name], name
        else:
            assert set(mine[name]) == set(theirs[name]), name


def test_there_are_recordings() -> None:
    if not SHARED.exists():
        pytest.skip(f"no recordings at {SHARED}; set TOOLWIRE_SHARED")
    assert len(RECORDED) == 4


# --- laws -----------------------------------------------------------------------------------------------------------


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Streams with calls of every kind."""
    events = draw(chat_streams())
    out: list[Event] = [START]
    for event in events[1:-1]:
        if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
            kind = draw(st.sampled_from(["function", "custom"]))
            space = draw(st.sampled_from([None, "agents"]))
            event = Open(
                event.block, event.kind, name=event.name, call_id=event.call_id, call_kind=kind, namespace=space
            )
        out.append(event)
    assert isinstance(events[-1], Finish)
    return [*out, finish(events[-1].reason, events[-1].usage)]


@examples(0.5)
@given(streams(), st.data())
def test_one_terminal_event_whatever_breaks_and_all_have_the_published_form(
    events: list[Event], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(events) - 1))
    broken = [*events[:cut], Fault(BackendFault("gone", code="upstream_disconnected")), *events[cut:]]
    names = kinds(write(broken))
    assert names[:2] == ["created", "in_progress"]
    assert names[-2:] == ["error", "failed"]
    assert sum(name in ("completed", "incomplete", "failed") for name in names) == 1
    got = read(write(broken))
    check(got)
    assert isinstance(got[-1], Fault)
    for event in (*payloads(write(broken)), *payloads(write(events))):
        check_event(event)


@examples(0.5)
@given(streams(), st.data())
def test_what_is_stored_of_a_broken_stream_is_what_the_client_saw(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(events) - 1))
    seen = events[:cut]
    still_open = {e.block for e in seen if isinstance(e, Open)} - {e.block for e in seen if isinstance(e, Close)}
    assume(len(still_open) < 2)  # What waits behind another block the client has not seen.
    error = BackendFault("gone")
    shown = terminal(write([*seen, Fault(error)]))["output"]
    reply = folded(seen)
    stored = broken_off(reply, options(), "failed", error)["output"]
    assert {item["id"] for item in shown} <= {item["id"] for item in stored}
    last = next((e for e in reversed(seen) if isinstance(e, Open)), None)
    if last is None or (still_open <= {last.block} and not (still_open and last.kind is BlockKind.TOOL_CALL)):
        assert stored == shown
    check_resource(broken_off(reply, options(), "failed", error))
