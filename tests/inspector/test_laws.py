"""Laws of the lanes for every answer, however it was cut into reads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cases import examples
from tests.e2e.conftest import function, read_config, serving
from tests.inspector.inspected import CALL, WEATHER, Inspected, asked, covers, lane, part
from toolwire.config import RouteOptions
from toolwire.extras.capture.files import CapturedExchange, Entry
from toolwire.extras.inspector.output import frames
from toolwire.extras.inspector.view import view
from toolwire.registry import registries
from toolwire.support.conversion import to_mapping
from toolwire.testing import chunk, frame

PLUGINS = registries()
TOOLS = [WEATHER, function("add", a="integer")]
OPTIONS = RouteOptions()

PIECES = st.sampled_from(
    [
        CALL,
        CALL.replace("}}", ",}}"),
        CALL.replace("weather", "wether"),
        CALL.removesuffix("</tool_call>"),
        '<tool_call>{"name": "add", "arguments": {"a": "1"}}</tool_call>',
        '<tool_call>[{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2}}]</tool_call>',
        '```json\n{"name": "weather", "arguments": {"city": "Rome"}}\n```',
        '{"name": "weather", "arguments": {"city": "Rome"}}',
        '[TOOL_CALLS][{"name": "add", "arguments": {"a": 3}}]',
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "text",
        " ",
        "\n\n",
        "ü",
        "\U0001f680",
        "<",
        "{",
        "`",
        "I look. ",
    ]
)
REFUSED_FENCE = f"""```json
{{"name": "weather", "arguments": {{"city": "Rome"}}}}
```

<think>{CALL}"""
"""A block that is text, with whitespace at its end, before a tag that vanishes."""

TEXTS = st.lists(PIECES, max_size=7).map("".join)


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    points = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)) | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(points)] or [""]


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, list[str], list[str]]:
    """A text, cut in two ways."""
    text = draw(TEXTS)
    return text, draw(cut(text)), draw(cut(text))


def capture(pieces: Sequence[str], *, finish: str | None = "stop", **more: Any) -> CapturedExchange:
    """An exchange in which the server sent these pieces."""
    body = orjson.dumps(asked("/v1/chat/completions", *TOOLS, stream=True))
    frames = [frame(chunk({"content": piece})) for piece in pieces]
    if finish is not None:
        frames += [frame(chunk({}, finish)), frame("[DONE]")]
    head = {
        "endpoint": "chat",
        "request_id": "r",
        "config": {"defaults": to_mapping(OPTIONS), "limits": {}},
        "backend": {"kind": "openai_chat"},
        **more,
    }
    ended = [] if finish is None else [Entry("end", 9.0, fields={"status": 200, "format": "hermes"})]
    answered = {"status": 200, "headers": {"content-type": "text/event-stream"}}
    return CapturedExchange(
        head,
        (
            Entry("request", 0.0, data=body),
            Entry("sent", 0.1, 1, data=body, fields={"backend": "up"}),
            Entry("answered", 0.2, 1, fields=answered),
            *(Entry("received", 1.0 + number / 100, 1, data=data) for number, data in enumerate(frames)),
            *ended,
        ),
    )


def shown(seen: Mapping[str, Any]) -> tuple[Any, ...]:
    """What may not depend on how it came."""
    answer = seen["rounds"][0]["raw"]
    return answer["text"], answer["spans"], seen["calls"], seen["judgements"]


def test_whitespace_at_the_end_of_a_block_that_is_text_is_left_out() -> None:
    spans = view(capture([REFUSED_FENCE]), PLUGINS)["rounds"][0]["raw"]["spans"]
    assert [span["kind"] for span in spans] == ["refused", "markup", "reasoning"]


@given(answers())
@example((f"A {CALL}\n{CALL} B", [f"A {CALL}\n{CALL} B"], [*f"A {CALL}\n{CALL} B"]))
@example((REFUSED_FENCE, [REFUSED_FENCE], [*REFUSED_FENCE]))
@example(("\U0001f680<think>a</think>b", ["\U0001f680<thi", "nk>a</think>b"], ["\U0001f680<think>a</", "think>b"]))
def test_spans_cover_the_text_however_it_came(case: tuple[str, list[str], list[str]]) -> None:
    text, one, other = case
    first = view(capture(one), PLUGINS)
    assert first["rounds"][0]["raw"]["text"] == text
    covers(first["rounds"][0]["raw"])
    second = view(capture(other), PLUGINS)
    covers(second["rounds"][0]["raw"])
    assert shown(first) == shown(second)
    assert all(span["kind"] != "open" for span in first["rounds"][0]["raw"]["spans"])


@examples(0.5)
@given(answers())
def test_while_it_runs_nothing_is_said_that_turns_out_wrong(case: tuple[str, list[str], list[str]]) -> None:
    """Earlier decisions stay; only what was open is decided later."""
    text, pieces, _ = case
    end = view(capture(pieces), PLUGINS)
    for upto in range(len(pieces) + 1):
        now = view(capture(pieces[:upto], finish=None, so_far={"format": "hermes"}), PLUGINS)
        assert now["running"]
        answer = now["rounds"][0]["raw"]
        covers(answer)
        assert text.startswith(answer["text"])
        kinds = characters(answer)
        later = characters(end["rounds"][0]["raw"])
        decided = [(a, b) for a, b in zip(kinds, later, strict=False) if a != "open"]
        assert all(a == b for a, b in decided), (kinds, later)


def characters(answer: Mapping[str, Any]) -> list[str]:
    """The kind of each character; calls with their numbers."""
    out: list[str] = []
    for span in answer["spans"]:
        out += [f"{span['kind']}{span.get('call', '')}"] * (span["to"] - span["from"])
    return out


def test_events_are_the_same_in_whatever_reads_they_came() -> None:
    events = [b"data: x\r\n\r\n", b"data: y\n\n", b"data: z"]
    data = b"".join(events)
    for size in (1, 3, len(data)):
        reads = [Entry("output", 0.0, data=data[at : at + size]) for at in range(0, len(data), size)]
        assert [event for _, event in frames(reads)] == events


def of_client(body: bytes) -> tuple[str, str, list[tuple[str, str]]]:
    """Text, thoughts and calls of a Chat stream."""
    text, thoughts, calls = "", "", list[tuple[str, str]]()
    for line in body.split(b"\n"):
        if not line.startswith(b"data: {"):
            continue
        for choice in orjson.loads(line[6:])["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            thoughts += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                made = call["function"]
                if "id" in call:
                    calls.append((made["name"], ""))
                calls[-1] = calls[-1][0], calls[-1][1] + made.get("arguments", "")
    return text, thoughts, calls


async def test_the_lanes_say_what_the_client_got() -> None:
    """Text that is shown as text is what the client got as text, and the calls are its calls. Through the gateway, for
    every order of two pieces, alone and in the midst of the others."""
    parts = [
        CALL,
        CALL.replace("weather", "wether"),
        "<think>Hm.</think>",
        " I look.\n",
        '```json\n{"name": "weather", "arguments": {"city": "Rome"}}\n```',
        '<tool_call>{"name": "add", "arguments": {"a": "1"}}</tool_call>',
        "\U0001f680",
    ]
    # Seven is a prime: each step takes every piece in, and two starts reach each pair of neighbours.
    orders = [[(start + step * at) % 7 for at in range(7)] for step in range(1, 7) for start in (0, step)]
    texts = ["".join(parts[at] for at in some) for some in [*itertools.permutations(range(7), 2), *orders]]
    script = [{"text": text, "chunk": 7, "when": f"#{number}#"} for number, text in enumerate(texts)]
    config = {
        "inspect": True,
        "backends": {"mock": {"kind": "mock", "script": script}},
        "defaults": {"bad_answers": {"reask": 0}},
    }
    async with serving(read_config(config)) as server:
        gateway = Inspected(server)
        for number in range(len(texts)):
            body = asked("/v1/chat/completions", *TOOLS, text=f"#{number}#", stream=True)
            got, seen = await gateway.ask(body)
            text, thoughts, calls = of_client(got.body)
            pieces = lane(seen)
            # A line end before a call may come out behind it.
            said = "".join(text for kind, text in pieces if kind in ("text", "refused"))
            assert "".join(said.split()) == "".join(text.split()), texts[number]
            assert "".join(text for kind, text in pieces if kind == "reasoning") == thoughts
            assert [(call["name"], call["arguments"]) for call in seen["calls"]] == calls
            numbers = [call["n"] for call in seen["calls"]]
            assert {n for event in seen["client"]["events"] for n in event["calls"]} == set(numbers)
            answer = seen["rounds"][0]["raw"]
            about = [span["call"] for span in answer["spans"] if span["kind"] == "call"]
            assert sorted(set(about)) == numbers
            assert part(answer["text"], 0, answer["spans"][-1]["to"]) == texts[number]
