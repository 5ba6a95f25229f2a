"""The lanes of real exchanges: the text of the model, and the result of each piece of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import orjson

from tests.cases import every
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
from toolwire.testing import Answer, Refuse, Say, chunk, frame

PARIS = ("weather", {"city": "Paris"})
ADD = function("add", a="integer", b={"type": "array", "items": {"type": "string"}})
TAUGHT: dict[str, Any] = {"defaults": {"format": "sentinel"}}
NEVER_AGAIN: dict[str, Any] = {"defaults": {"format": "sentinel", "bad_answers": {"reask": 0}}}


async def each(texts: Iterable[str], **sections: Any) -> AsyncIterator[tuple[str, View]]:
    """Each text of a server, and the view of an exchange with it."""
    said = list(texts)
    async with answering(*map(Say, said), **sections) as (gateway, _):
        for text in said:
            _, view = await gateway.ask(asked(CHAT, WEATHER, stream=True))
            yield text, view


async def test_what_is_no_call_is_text() -> None:
    async for text, view in each(["Grüße aus Köln", "So <tool_call>is that</tool_call> a tag."]):
        assert lane(view) == [("text", text)]
        assert (view["calls"], view["judgements"]) == ([], [])
        assert (view["status"], view["code"], view["running"]) == (200, None, False)


async def test_a_call_and_the_space_before_it() -> None:
    _, view = await seen(Say("I look.\n", CALL[:9], CALL[9:]), WEATHER)
    assert lane(view) == [("text", "I look."), ("markup", "\n"), ("call", CALL)]
    assert calls(view) == [PARIS]
    assert view["judgements"] == []
    assert (view["calls"][0]["n"], view["calls"][0]["round"]) == (1, 1)
    assert [span["call"] for span in raw(view)["spans"] if span["kind"] == "call"] == [1]
    assert told(view) == [1]
    assert view["head"]["tool_mode"] == "prompt"


async def test_two_calls_in_one_block() -> None:
    both = [{"name": "weather", "arguments": {"city": city}} for city in ("Paris", "Rome")]
    text = f"[TOOL_CALLS] {orjson.dumps(both).decode()}"
    _, view = await seen(Say(text), WEATHER, defaults={"format": "mistral"})
    assert calls(view) == [PARIS, ("weather", {"city": "Rome"})]
    found = [(kind, text) for kind, text in lane(view) if kind == "call"]
    assert len(found) == 2
    assert "Paris" in found[0][1]
    assert "Rome" not in found[0][1]
    assert "Rome" in found[1][1]
    assert "Paris" not in found[1][1]
    assert told(view) == [1, 2]


REPAIRED = {
    "comma": ('<tool_call>{"name": "weather", "arguments": {"city": "Paris",}}</tool_call>', "a trailing comma"),
    "fence": (f"<tool_call>\n```json\n{CALL[11:-12]}\n```\n</tool_call>", "a Markdown fence around the JSON"),
    "brackets": ('<tool_call>{"name": "weather", "arguments": {"city": "Paris"}</tool_call>', "missing brackets"),
    "closer": (CALL.removesuffix("</tool_call>"), "the closing tag is missing"),
    "quotes": ("<tool_call>{'name': 'weather', 'arguments': {'city': 'Paris'}}</tool_call>", "are not JSON's"),
}


async def test_a_call_that_was_repaired() -> None:
    words_of = dict(REPAIRED.values())
    async for text, view in each(words_of):
        assert lane(view) == [("call", text)]
        assert calls(view) == [PARIS], text
        ((kind, words),) = said(view)
        assert kind == "repaired"
        assert words_of[text] in words
        assert view["judgements"][0]["call"] == 1
        assert view["calls"][0]["judgements"] == [0]
        assert raw(view)["spans"][0]["judgement"] == 0


async def test_several_repairs_of_one_call() -> None:
    text = "<tool_call>{'name': 'weather', 'arguments': {'city': 'Paris',}}</tool_call>"
    _, view = await seen(Say(text), WEATHER)
    assert kinds(view) == ["repaired", "repaired"]
    assert view["calls"][0]["judgements"] == [0, 1]


async def test_arguments_that_were_coerced() -> None:
    text = call("add", {"a": "1", "b": "x"})
    got, view = await seen(Say(text), ADD)
    assert calls(view) == [("add", {"a": 1, "b": ["x"]})]
    assert said(view) == [
        ("coerced", "Types mended: a number in quotes"),
        ("coerced", "Types mended: one value where a list is wanted"),
    ]
    assert view["calls"][0]["judgements"] == [0, 1]
    assert orjson.dumps(view["calls"][0]["arguments"])[1:-1] in got.body
    assert told(view) == [1]


RECOGNISED = {
    "fenced": ('I do it.\n```json\n{"name": "weather", "arguments": {"city": "Paris"}}\n```', "a fenced call"),
    "bare": ('{"name": "weather", "arguments": {"city": "Paris"}}', "a call without markers"),
    "llama": ('<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}', "the form of llama"),
    "mistral": ('[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}}]', "the form of mistral"),
}


async def test_a_call_in_a_form_that_nobody_taught() -> None:
    words_of = dict(RECOGNISED.values())
    async for text, view in each(words_of, **TAUGHT):
        assert calls(view) == [PARIS], text
        (recognised,) = [words for kind, words in said(view) if kind == "recognised"]
        assert words_of[text] in recognised
        (span,) = [text for kind, text in lane(view) if kind == "call"]
        assert '"Paris"' in span
        assert not any("Paris" in text for kind, text in lane(view) if kind != "call")


REFUSED = {
    call("wether", {"city": "Paris"}): ('"wether"', "not on offer", 'The closest is "weather".'),
    '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>': ("cannot be read",),
}


async def test_calls_that_were_refused() -> None:
    """A name that is not on offer, and what cannot be read."""
    words_of = {f"So: {text} Well.": words for text, words in REFUSED.items()}
    async for text, view in each(words_of, **NEVER_AGAIN):
        between = text.removeprefix("So: ").removesuffix(" Well.")
        assert lane(view) == [("text", "So: "), ("refused", between), ("text", " Well.")]
        ((kind, words),) = said(view)
        assert kind == "refused"
        assert all(some in words for some in words_of[text]), words
        assert raw(view)["spans"][1]["judgement"] == 0
        assert view["calls"] == []


async def test_arguments_that_do_not_fit_in_a_form_that_nobody_taught() -> None:
    text = '```json\n{"name": "weather", "arguments": {"town": "Paris"}}\n```'
    _, view = await seen(Say(text), WEATHER, **NEVER_AGAIN)
    assert view["calls"] == []
    ((kind, _words),) = said(view)
    assert kind == "refused"
    assert "".join(text for _, text in lane(view)) == text
    assert "refused" in [kind for kind, _ in lane(view)]


async def test_a_name_in_a_form_that_nobody_taught() -> None:
    """It is passed over in silence by the gateway; who looks is told."""
    text = '```json\n{"name": "wethr", "arguments": {"city": "Paris"}}\n```'
    _, view = await seen(Say(text), WEATHER, **NEVER_AGAIN)
    assert any('The closest is "weather"' in words for kind, words in said(view) if kind == "refused"), said(view)


@every(
    ("second", "option", "more"),
    [
        (CALL.replace("Paris", "Rome"), "parallel_tool_calls", {"body": {"parallel_tool_calls": False}}),
        (CALL, "dedupe_calls", {"defaults": {"calls": {"dedupe_calls": True}}}),
    ],
)
async def test_a_second_call_that_is_dropped(second: str, option: str, more: dict[str, Any]) -> None:
    """Where one is allowed, or as a repetition."""
    _, view = await seen(Say(f"{CALL}{second}"), WEATHER, **more)
    assert calls(view) == [PARIS]
    assert lane(view) == [("call", CALL), ("dropped", second)]
    ((kind, words),) = said(view)
    assert kind == "dropped"
    assert option in words


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
    text = '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>'
    got, view = await seen(Say(f"Hm. {text}"), strict)
    assert b"malformed_tool_arguments" in got.body
    assert view["code"] == "malformed_tool_arguments"
    assert "failed" in kinds(view)
    assert lane(view)[0] == ("text", "Hm.")
    assert lane(view)[-1] == ("refused", text)
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


async def test_native_calls_of_the_server() -> None:
    begun = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    rest = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in ('{"city":', '"Paris"}')]
    answer = streamed({"content": "I look."}, {"tool_calls": [begun]}, *rest, finish="tool_calls")
    _, view = await seen(answer, WEATHER, defaults={"mode": "native"})
    assert view["judgements"] == []
    assert lane(view) == [("text", "I look."), ("call", '{"city":"Paris"}')]
    assert calls(view) == [PARIS]
    assert told(view) == [1]
    assert view["rounds"][0]["prompt"]["tools"] == ["weather"]


OWN = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}


@every("text", ["I look <", "I look <tool_", "I look\n\n", CALL[:40]])
async def test_what_stands_before_and_behind_a_native_call(text: str) -> None:
    """What was held back is text then."""
    answer = streamed(text, {"tool_calls": [OWN]}, f"after {CALL}", finish="tool_calls")
    got, view = await seen(answer, WEATHER, defaults={"mode": "native"})
    deltas = [one["choices"][0]["delta"] for one in got.frames()[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == f"{text}after {CALL}"
    assert lane(view) == [("text", text), ("call", '{"city":"Paris"}'), ("text", f"after {CALL}")]
    assert told(view) == [1]


async def test_a_second_native_call_where_one_is_allowed() -> None:
    other = {**OWN, "index": 1, "id": "c2"}
    answer = streamed({"tool_calls": [OWN]}, {"tool_calls": [other]}, finish="tool_calls")
    got, view = await seen(answer, WEATHER, defaults={"mode": "native"}, body={"parallel_tool_calls": False})
    assert got.body.count(b'"name":"weather"') == 1
    assert lane(view) == [("call", '{"city":"Paris"}'), ("dropped", '{"city":"Paris"}')]
    assert len(view["calls"]) == 1
    assert kinds(view) == ["dropped"]


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
