"""The lanes of real exchanges: the text of the model, and the result of each piece of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from tests.cases import every, named
from tests.e2e.conftest import CHAT, function
from tests.inspector.inspected import (
    CALL,
    MESSAGES,
    RESPONSES,
    WEATHER,
    View,
    answering,
    asked,
    call,
    calls,
    covers,
    kinds,
    lane,
    raw,
    said,
    seen,
    streamed,
    told,
    whole,
)
from toolwire.model import EMPTY
from toolwire.testing import Answer, Refuse, Say, Script, chunk, frame

PARIS = ("weather", {"city": "Paris"})
ADD = function("add", a="integer", b={"type": "array", "items": {"type": "string"}})
TAUGHT: dict[str, Any] = {"defaults": {"format": "sentinel"}}
ONCE: dict[str, Any] = {"defaults": {"format": "sentinel", "bad_answers": {"reask": 0}}}

BARE = '{"name": "weather", "arguments": {"city": "Paris"}}'
QUOTED = BARE.replace('"', "'")
COERCED = call("add", {"a": "1", "b": "x"})
MISSPELLED = call("wether", {"city": "Paris"})
UNREADABLE = '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>'

OWN = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}
IN_PIECES = [
    {"tool_calls": [{**OWN, "function": {"name": "weather", "arguments": ""}}]},
    *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in ('{"city":', '"Paris"}')),
]
OWN_SPAN = ("call", '{"city":"Paris"}')


class Row(NamedTuple):
    """An answer of the server, and what is shown of it. `lane`: None where it does not matter which markup is whose.
    `said`: of each judgement its kind, and words of it."""

    turn: Script
    lane: list[tuple[str, str]] | None
    calls: list[tuple[str, Any]]
    said: tuple[tuple[str, ...], ...] = ()
    tool: Any = WEATHER
    body: Mapping[str, Any] = EMPTY
    sections: Mapping[str, Any] = EMPTY


def repaired(text: str, *words: str) -> Row:
    return Row(Say(text), [("call", text)], [PARIS], tuple(("repaired", word) for word in words))


def recognised(text: str, words: str) -> Row:
    return Row(Say(text), None, [PARIS], (("recognised", words),), sections=TAUGHT)


def refused(text: str, *words: str) -> Row:
    shown = [("text", "So: "), ("refused", text), ("text", " Well.")]
    return Row(Say(f"So: {text} Well."), shown, [], (("refused", *words),), sections=ONCE)


def native(*deltas: Any, lane: list[tuple[str, str]], said: tuple[tuple[str, ...], ...] = (), **body: Any) -> Row:
    answer = streamed(*deltas, finish="tool_calls")
    return Row(answer, lane, [PARIS], said, body=body, sections={"defaults": {"mode": "native"}})


TAG = "So <tool_call>is that</tool_call> a tag."
SECOND = CALL.replace("Paris", "Rome")
DEDUPED: dict[str, Any] = {"defaults": {"calls": {"dedupe_calls": True}}}
ROWS: dict[str, Row] = {
    "no call": Row(Say("Grüße aus Köln"), [("text", "Grüße aus Köln")], []),
    "a tag": Row(Say(TAG), [("text", TAG)], []),
    "a call and the space before it": Row(
        Say("I look.\n", CALL[:9], CALL[9:]), [("text", "I look."), ("markup", "\n"), ("call", CALL)], [PARIS]
    ),
    "a comma": repaired('<tool_call>{"name": "weather", "arguments": {"city": "Paris",}}</tool_call>', "a trailing comma"),
    "a fence": repaired(f"<tool_call>\n```json\n{BARE}\n```\n</tool_call>", "a Markdown fence around the JSON"),
    "brackets": repaired(f"<tool_call>{BARE[:-1]}</tool_call>", "missing brackets"),
    "a closer": repaired(CALL.removesuffix("</tool_call>"), "the closing tag is missing"),
    "quotes": repaired(f"<tool_call>{QUOTED}</tool_call>", "are not JSON's"),
    "several repairs": repaired(f"<tool_call>{QUOTED[:-2]},}}}}</tool_call>", "", ""),
    "arguments that were coerced": Row(
        Say(COERCED),
        [("call", COERCED)],
        [("add", {"a": 1, "b": ["x"]})],
        (("coerced", "a number in quotes"), ("coerced", "one value where a list is wanted")),
        tool=ADD,
    ),
    "untaught, fenced": recognised(f"I do it.\n```json\n{BARE}\n```", "a fenced call"),
    "untaught, bare": recognised(BARE, "a call without markers"),
    "untaught, llama's": recognised(f"<|python_tag|>{BARE.replace('arguments', 'parameters')}", "the form of llama"),
    "untaught, mistral's": recognised(f"[TOOL_CALLS][{BARE}]", "the form of mistral"),
    "a name that is not on offer": refused(MISSPELLED, '"wether"', "not on offer", 'The closest is "weather".'),
    "what cannot be read": refused(UNREADABLE, "cannot be read"),
    "untaught, arguments that do not fit": Row(
        Say(f"```json\n{BARE.replace('city', 'town')}\n```"), None, [], (("refused",),), sections=ONCE
    ),
    "a second one where one is allowed": Row(
        Say(CALL, SECOND),
        [("call", CALL), ("dropped", SECOND)],
        [PARIS],
        (("dropped", "parallel_tool_calls"),),
        body={"parallel_tool_calls": False},
    ),
    "a repetition": Row(
        Say(CALL, CALL), [("call", CALL), ("dropped", CALL)], [PARIS], (("dropped", "dedupe_calls"),), sections=DEDUPED
    ),
    "two in one block": Row(
        Say(f"[TOOL_CALLS] [{BARE}, {BARE.replace('Paris', 'Rome')}]"),
        None,
        [PARIS, ("weather", {"city": "Rome"})],
        sections={"defaults": {"format": "mistral"}},
    ),
    "the server's own": native({"content": "I look."}, *IN_PIECES, lane=[("text", "I look."), OWN_SPAN]),
    "a second one of the server's own where one is allowed": native(
        {"tool_calls": [OWN]},
        {"tool_calls": [{**OWN, "index": 1, "id": "c2"}]},
        lane=[OWN_SPAN, ("dropped", OWN_SPAN[1])],
        said=(("dropped",),),
        parallel_tool_calls=False,
    ),
    **{  # what was held back is text then
        f"the server's own behind {text!r}": native(
            text, {"tool_calls": [OWN]}, f"after {CALL}", lane=[("text", text), OWN_SPAN, ("text", f"after {CALL}")]
        )
        for text in ("I look <", "I look <tool_", "I look\n\n", CALL[:40])
    },
}  # fmt: skip


CONFIGURED = [*{str(row.sections): row.sections for row in ROWS.values()}.values()]


@every("sections", CONFIGURED)
async def test_what_became_of_each_piece(sections: Mapping[str, Any]) -> None:
    """One gateway for all rows with the same configuration."""
    rows = {name: row for name, row in ROWS.items() if row.sections == sections}
    async with answering(*(row.turn for row in rows.values()), **sections) as (gateway, _):
        for name, row in rows.items():
            with named({"row": name}):
                _, view = await gateway.ask(asked(CHAT, row.tool, stream=True, **row.body))
                check_row(row, view)


def check_row(row: Row, view: View) -> None:
    """Spans, calls and judgements lead to each other, and the client was told of the calls."""
    pieces = lane(view)
    assert row.lane is None or pieces == row.lane
    assert (calls(view), kinds(view)) == (row.calls, [kind for kind, *_ in row.said])
    for (_, words), (_, *wanted) in zip(said(view), row.said, strict=True):
        assert all(some in words for some in wanted), words
    numbers = list(range(1, len(row.calls) + 1))
    assert [one["n"] for one in view["calls"]] == told(view) == numbers
    spans = raw(view)["spans"]
    assert [span["call"] for span in spans if span["kind"] == "call"] == numbers
    for text, (_, arguments) in zip([text for kind, text in pieces if kind == "call"], row.calls, strict=True):
        assert arguments.get("city", "") in text
    judged = [number for one in view["calls"] for number in one["judgements"]]
    assert judged == [number for number, kind in enumerate(kinds(view)) if kind not in ("refused", "dropped")]
    if row.lane is not None and kinds(view)[:1] in (["repaired"], ["refused"]):
        assert 0 in [span.get("judgement") for span in spans]
    assert (view["status"], view["code"], view["running"]) == (200, None, False)


async def test_a_name_in_a_form_that_nobody_taught() -> None:
    """It is passed over in silence by the gateway; who looks is told."""
    text = '```json\n{"name": "wethr", "arguments": {"city": "Paris"}}\n```'
    _, view = await seen(Say(text), WEATHER, **ONCE)
    assert any('The closest is "weather"' in words for kind, words in said(view) if kind == "refused"), said(view)


async def test_an_answer_that_is_cut_inside_a_call() -> None:
    begun = '<tool_call>{"name": "weather", "arguments": {"ci'
    _, view = await seen(Say(f"I look. {begun}", finish="length"), WEATHER)
    assert lane(view)[0] == ("text", "I look.")
    assert lane(view)[-1][0] == "dropped"
    assert lane(view)[-1][1].endswith('{"name": "weather", "arguments": {"ci')
    assert view["calls"] == []
    assert kinds(view) == ["cut", "cut"]
    assert {"Dropped: the answer was cut by length inside this call", "The answer was cut by its limit of length"} == {
        words for _, words in said(view)
    }


async def test_a_strict_failure() -> None:
    strict = function("weather", strict=True, city="string")
    got, view = await seen(Say(f"Hm. {UNREADABLE}"), strict)
    assert b"malformed_tool_arguments" in got.body
    assert view["code"] == "malformed_tool_arguments"
    assert "failed" in kinds(view)
    assert lane(view)[0] == ("text", "Hm.")
    assert lane(view)[-1] == ("refused", UNREADABLE)
    assert any("error" in event["brief"] for event in view["client"]["events"])


async def test_a_whole_error_is_shown_itself() -> None:
    got, view = await seen(Refuse(400, "No such thing."), WEATHER)
    (event,) = view["client"]["events"]
    assert event["brief"] == got.body.decode()[:200]
    assert "No such thing." in event["brief"]


async def test_thoughts_that_nothing_opened() -> None:
    """The gateway notices it at the end of the thought."""
    got, view = await seen(Say("I wonder.</think>Yes. ", CALL), WEATHER, body={"stream": False})
    assert got.json()["choices"][0]["message"]["reasoning_content"] == "I wonder."
    assert lane(view) == [
        ("reasoning", "I wonder."),
        ("markup", "</think>"),
        ("text", "Yes."),
        ("markup", " "),
        ("call", CALL),
    ]


async def test_tags_that_nobody_looks_for() -> None:
    """Without tools an answer passes as it is."""
    text = f"<think>Hm.</think>{CALL}"
    got, view = await seen(Say(text), body={"stream": False})
    assert got.json()["choices"][0]["message"]["content"] == text
    assert lane(view) == [("text", text)]
    got, view = await seen(Say(text), path=RESPONSES, body={"stream": False})
    assert [item["type"] for item in got.json()["output"]] == ["reasoning", "message"]
    assert [kind for kind, _ in lane(view)] == ["markup", "reasoning", "markup", "text"]


async def test_what_was_done_to_native_calls() -> None:
    given = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": "1", "b": ["x"],}'}}
    answer = whole({"content": None, "tool_calls": [given]}, finish="tool_calls")
    got, view = await seen(answer, ADD, defaults={"mode": "native"}, body={"stream": False})
    (made,) = got.json()["choices"][0]["message"]["tool_calls"]
    assert view["calls"][0]["arguments"] == made["function"]["arguments"]
    assert said(view) == [
        ("repaired", "Repaired: a trailing comma"),
        ("coerced", "Types mended: a number in quotes"),
    ]
    assert told(view) == [1]


@every("path", [CHAT, RESPONSES, MESSAGES])
@every("stream", [True, False])
async def test_every_client_api(path: str, stream: bool) -> None:
    text = f"<think>Hm.</think>I look. {CALL}"
    got, view = await seen(Say(text, usage=(3, 4)), WEATHER, path=path, body={"stream": stream})
    assert got.status == 200
    assert view["head"]["api"] == {CHAT: "chat", RESPONSES: "responses", MESSAGES: "messages"}[path]
    assert [piece for piece in lane(view) if piece[0] != "markup"] == [
        ("reasoning", "Hm."),
        ("text", "I look."),
        ("call", CALL),
    ]
    assert view["client"]["streamed"] is stream
    assert view["client"]["bytes"] == len(got.body)
    assert told(view) == [1]
    briefs = ", ".join(event["brief"] for event in view["client"]["events"])
    for words in ("call weather", "I look.", "finish: "):
        assert words in briefs, briefs
    facts = dict(view["facts"])
    assert (facts["tokens of the prompt"], facts["tokens of the answer"]) == (3, 4)
    sent = orjson.loads(view["request"]["text"])
    assert sent["model"] == "m"
    events = [event["data"] for event in view["client"]["events"]]
    if stream:
        frames = [line[5:].strip().decode() for line in got.body.split(b"\n") if line.startswith(b"data:")]
        assert events == frames
    else:
        assert events == [got.body.decode()]


async def test_an_answer_of_the_server_that_is_whole() -> None:
    message = {"reasoning_content": "Hm.", "content": f"I look. {CALL}"}
    _, view = await seen(whole(message), WEATHER, body={"stream": False})
    assert lane(view) == [("reasoning", "Hm."), ("text", "I look."), ("markup", " "), ("call", CALL)]
    assert raw(view)["streamed"] is False


async def test_several_streamed_answers_show_the_first() -> None:
    frames = [
        frame({**chunk({}), "choices": [{"index": index, "delta": {"content": text}, "finish_reason": None}]})
        for index, text in ((0, "o"), (1, "tw"), (0, "ne"), (1, "o"))
    ]
    ends = [
        frame({**chunk({}), "choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]}) for index in (0, 1)
    ]
    answer = Answer([*frames, *ends, frame("[DONE]")], headers={"Content-Type": "text/event-stream"})
    _, view = await seen(answer, body={"n": 2})
    assert lane(view) == [("text", "one")]


async def test_offsets_count_as_javascript_does() -> None:
    text = f"\U0001f680\U0001f680 ü {CALL} \U0001f680"
    _, view = await seen(Say(text), WEATHER)
    assert lane(view) == [
        ("text", "\U0001f680\U0001f680 ü"),
        ("markup", " "),
        ("call", CALL),
        ("text", " \U0001f680"),
    ]
    assert raw(view)["spans"][0]["to"] == 6
    assert raw(view)["steps"][-1]["upto"] == len(text) + 3


async def test_half_a_character_of_two_units() -> None:
    """A server may send what is no text. Whoever looks is answered all the same."""
    payload = orjson.dumps(chunk({"content": "@"})).replace(b"@", rb"a \ud800 b")
    half = b"data: %b\n\n" % payload
    answer = Answer([half, frame(chunk({}, "stop"))], headers={"Content-Type": "text/event-stream"})
    _, view = await seen(answer, WEATHER)
    covers(raw(view))
