"""The law of `argument_streaming` (R6.13), for every format: what a stream of arguments has to do with the
whole answer.

1. It does not matter where the text is cut (R1.3).
2. What was given out of a call that has not ended is the beginning of a JSON object, and no JSON by itself. Of a custom
   tool it is text, and looks like a whole one, so the answer fails wherever such a call is not whole.
3. Where the whole answer has a call, the stream has the same one, byte for byte, converted to the types of its schema.
   Not so for a key that the model wrote twice, of which the whole answer has the last one: the one before it was
   sent, so the answer fails, as where an object has its name or its arguments twice. Nor for a value in tags whose
   type allows no string, that begins with a bracket and is no JSON: in the whole answer it is read leniently, or
   stands as a string; in the stream the answer fails. Nor for objects in a list as Python writes it, which are no
   JSON: the whole answer has them read as Python, and the calls before them in the list have the same values.
4. Where the stream has a call that the whole answer does not have, it ends with it: the call stays unfinished, and the
   answer fails, or was cut off by a limit of length. Calls that stood before it in the same block, complete ones, were
   given out.
5. Everything else is the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import product
from random import Random
from types import ModuleType
from typing import Any, cast

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from tests.cases import every
from tests.options import route_options
from tests.parse.conftest import some
from tests.parse.reading import blocks
from tests.parse.texts import literals_of
from toolwire import open_scanner
from toolwire.call_policy.coercion import coerce
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.model import ToolUse
from toolwire.registry import registries
from toolwire.scan._grammar import EarlyCall, FoundCall
from toolwire.scan._pyparse import CallScanner
from toolwire.scan._pystring import NO_STRING, UNSAID
from toolwire.scan.follow_json import CallFollower
from toolwire.schemas.schema import compile_schema
from toolwire.stream_grammar import check, normalise

pytestmark = pytest.mark.twin

FORMATS = sorted({registries().formats.get(name).name for name in registries().formats.names()})

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "n": {"type": "integer"},
        "o": {"type": "object"},
        "l": {"type": "array"},
        "m": {"type": ["string", "null"]},
        "a": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "object"}]},
    },
}
TOOLS: list[dict[str, Any]] = [
    *({"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("f", "write")),
    {"type": "custom", "custom": {"name": "patch"}},
]

CHECKER = compile_schema(SCHEMA)

WORDS = [
    *("a", "b c", "\n", "\\", '"', "'", "\\n", "\\u00e9", "é", "😀", "{", "}", "[", "]", ":", ",", "1"),
    *("-2.5e3", "true", "nul", "None"),
]
SPOILT = [
    *("", "", " ", "\n", "}", "]", ")", ",", ":", '"', "'", "\\", "{", "[", "x", "1", "tru", "\x01", "\\x"),
    *("\\u12", "```", "é", '"name"', ",,"),
]


@dataclass
class Part:
    """A block of a stream."""

    kind: str
    name: str | None = None
    text: str = ""
    status: str = ""
    custom: bool = False


@dataclass
class Found:
    parts: list[Part] = field(default_factory=list)
    fault: str | None = None


def scan(
    twin: ModuleType, format: str, text: str, streaming: Any, size: int, truncated: bool, schema: bool = True
) -> list[Event]:
    options = route_options(argument_streaming=streaming, recognise="taught")
    tools: Any = TOOLS if schema else ["f", "write"]
    scanner = open_scanner(format, tools, options=options, scanner=twin.CallScanner)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(event for piece in pieces for event in scanner.feed(piece)), *scanner.finish(truncated)]


def found(events: list[Event]) -> Found:
    """The blocks of a stream; on the way, rule 2."""
    out = Found()
    blocks: dict[int, Part] = {}
    for event in events:
        if isinstance(event, Open):
            blocks[event.block] = Part(event.kind.value, event.name, custom=event.call_kind == "custom")
            out.parts.append(blocks[event.block])
        elif isinstance(event, Delta):
            part = blocks[event.block]
            if part.kind == BlockKind.TOOL_CALL.value and part.text and not part.custom:
                check_unfinished(part.text)
            part.text += event.text
        elif isinstance(event, Close):
            part = blocks[event.block]
            part.status = event.status
            if event.status == "truncated" and part.kind == BlockKind.TOOL_CALL.value and not part.custom:
                check_unfinished(part.text)
        elif isinstance(event, Fault):
            out.fault = event.error.code
    return out


HALF_PAIRS = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.", re.DOTALL)
"""Escapes; those of half a character are JSON to Python, and none to `from_json`."""


def check_unfinished(text: str) -> None:
    """The text begins a JSON object, and is none."""
    if text:
        assert text.lstrip(" \t\r\n").startswith("{")
        from_json(HALF_PAIRS.sub(lambda found: "x" if len(found[0]) == 6 else found[0], text), allow_partial=True)
        with pytest.raises(ValueError):
            json.loads(text)


def agree(whole: Found, live: Found, truncated: bool, format: str, text: str) -> None:
    """Rules 3 to 5."""
    same = 0
    while same < min(len(whole.parts), len(live.parts)) and whole.parts[same] == live.parts[same]:
        same += 1
    rest, more = whole.parts[same:], live.parts[same:]
    if live.fault == whole.fault and not more:
        assert rest == []
        return
    if rest and rest[0].kind == "text" and more[0].kind == "text":  # which goes on where a call was seen
        assert rest[0].text.startswith(more[0].text)
        more = more[1:]
    assert more
    assert all(part.kind == BlockKind.TOOL_CALL.value for part in more), (whole, live)
    assert [part.status for part in more] == ["complete"] * (len(more) - 1) + ["truncated"], (whole, live)
    assert live.fault is not None or (truncated and not more[-1].custom)
    if rest and rest[0].kind != "text":
        *before, last = more
        assert not before or is_listed(format), (whole, live)
        written = rest[: len(before)]  # the whole answer reads such a list as Python and writes its calls anew
        assert [(one.name, json.loads(one.text)) for one in before] == [
            (one.name, json.loads(one.text)) for one in written
        ]
        begun = last.text
        lenient = (is_tagged(format) and ends_in_value(begun)) or (is_listed(format) and not is_json(text, begun))
        if last.custom:
            lenient = lenient or text.count("input") > 1
        assert lenient or has_key_twice(begun), (whole, live)


def has_key_twice(text: str) -> bool:
    return any(text.count(f'"{key}":') > 1 for key in SCHEMA["properties"])


def is_json(text: str, begun: str) -> bool:
    """Whether there is JSON in the text that begins so."""
    try:
        json.JSONDecoder().raw_decode(text, text.index(begun))
    except ValueError:
        return False
    return True


def is_listed(format: str) -> bool:
    """Calls stand in a list as Python writes it."""
    syntaxes = registries().formats.get(format).grammar.syntaxes
    return any(branch.read == "list" for syntax in syntaxes for node in syntax.nodes for branch in node)


def is_tagged(format: str) -> bool:
    """Values have no type of their own."""
    syntaxes = registries().formats.get(format).grammar.syntaxes
    return any(branch.field == "value" for syntax in syntaxes for node in syntax.nodes for branch in node)


def ends_in_value(text: str) -> bool:
    """Unfinished arguments end inside an object or an array that is one of them, or before its first bracket."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*("|$)', "", text)
    return bare.endswith(":") or sum((char in "{[") - (char in "}]") for char in bare) > 1


def string(random: Random, own: list[str]) -> str:
    return "".join(random.choices(WORDS + (own if random.random() < 0.3 else []), k=random.randint(0, 6)))


def value(random: Random, own: list[str], depth: int = 2) -> Any:
    kind = random.randrange(9 if depth else 7)
    if kind == 7:
        return [value(random, own, depth - 1) for _ in range(random.randint(0, 3))]
    if kind == 8:
        return {string(random, []): value(random, own, depth - 1) for _ in range(random.randint(0, 3))}
    return [string(random, own), random.randint(-5, 10**12), random.random() * 1e3, None, True, False, "x" * 70][kind]


def arguments(random: Random, own: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "s": string(random, own),
        "n": random.randint(-3, 99),
        "o": {string(random, []): value(random, own) for _ in range(random.randint(0, 3))},
        "l": [value(random, own) for _ in range(random.randint(0, 3))],
        "m": random.choice([None, string(random, own), "nullable", "1st"]),
        "a": random.choice([string(random, own), 5, {"k": 1}, "12a", "{x"]),
    }
    keys = random.sample(list(made), random.randint(0, 4))
    return {key: made[key] for key in keys}


def free_text(random: Random, own: list[str]) -> dict[str, Any]:
    """Arguments of a custom tool."""
    text = {"input": string(random, own) * random.choice([1, 1, 9])}
    return {**text, **random.choice([{}, {}, {"s": "more"}])} if random.random() < 0.9 else {"s": "more", **text}


def answer(format: str, random: Random, custom: bool) -> str:
    """One to three calls, perhaps with text around, as the format writes them."""
    chosen = registries().formats.get(format)
    own = literals_of(chosen.grammar)
    uses: list[ToolUse] = []
    for n in range(random.randint(1, 3)):
        name = random.choice(["f", "write", "unknown"] if random.random() < 0.1 else ["f", "write"])
        name = "patch" if custom and random.random() < 0.8 else name
        made = free_text(random, own) if name == "patch" else arguments(random, own)
        uses.append(ToolUse(f"call_{n}", name, json.dumps(made, ensure_ascii=random.random() < 0.5)))
    if chosen.render_calls is not None and random.random() < 0.8:
        text = chosen.render_calls(uses)
    else:
        text = random.choice(["", "\n", " and "]).join(map(chosen.render_call, uses))
    before, behind = random.choice([("", ""), ("So. ", ""), ("", " Done."), ("So.\n", "\nDone.")])
    return text if chosen.alone else before + text + behind


def spoil(format: str, text: str, random: Random) -> str:
    """The text with a flaw or two."""
    own = literals_of(registries().formats.get(format).grammar)
    for _ in range(random.randint(1, 2)):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice(SPOILT + own) + text[at + random.choice([0, 0, 1, 1, 2, 9]) :]
    return text


def law(twin: ModuleType, format: str, seed: int, schema: bool = True, custom: bool = False) -> None:
    random = Random(seed)
    text = answer(format, random, custom)
    if random.random() < 0.6:
        text = spoil(format, text, random)
    truncated = random.random() < 0.3
    if truncated or random.random() < 0.2:
        text = text[: random.randint(0, len(text))]
    note(f"{format}: {text!r}")
    whole = found(scan(twin, format, text, "buffered", 10_000, truncated, schema))
    long = random.choice([0, 0, 10, 40])
    events = scan(twin, format, text, long, random.choice([1, 2, 3, 5, 17]), truncated, schema)
    stream: list[Event] = [Start("", "", 0), *events]
    check(stream if events and isinstance(events[-1], Fault) else [*stream, Finish()])
    live = found(events)
    at_once = normalise(scan(twin, format, text, long, 10_000, truncated, schema))
    assert anonymous(normalise(events)) == anonymous(at_once)
    if schema:
        converted(whole)
        converted(live)
    agree(whole, live, truncated, format, text)


def converted(found: Found) -> None:
    """Converts the arguments of complete calls, as the middleware does with those that were not streamed (R23.3)."""
    for part in found.parts:
        if part.kind == BlockKind.TOOL_CALL.value and part.status == "complete" and not part.custom:
            mended = None if CHECKER.check(part.text) is None else coerce(part.text, CHECKER)
            part.text = part.text if mended is None else mended.text


def anonymous(events: list[Event]) -> list[Event]:
    """Without call ids, which are fresh."""
    for event in events:
        if isinstance(event, Open):
            event.call_id = None
            event.extra = {}
        elif isinstance(event, Fault):
            event.error = None  # type: ignore[assignment]
    return events


@settings(max_examples=4)
@example(seed=248)
@given(seed=st.integers(0, 2**32))
def test_the_law(twin: ModuleType, seed: int) -> None:
    for format in some(twin, FORMATS):
        law(twin, format, seed)


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_the_law_of_custom_tools(twin: ModuleType, seed: int) -> None:
    for format in some(twin, FORMATS):
        law(twin, format, seed, custom=True)


# --- how much of it comes while it comes
# --------------------------------------------------------------------------------

LONG = "some \"longer\" text, {with} [brackets]\nand \\ 1e5 'quoted' é😀 x < y && z; " * 8
VALUES: dict[str, dict[str, Any]] = {
    "a string": {"s": LONG},
    "a string behind others": {"n": 5, "m": None, "s": LONG},
    "an object": {"o": {"a": [LONG, 1, {"b": LONG}], "n": [1.5] * 40}},
    "a list": {"l": [LONG] * 2 + list(range(100))},
    "a string among others": {"a": LONG},
    "free text": {"input": LONG},
}


AT_ONCE = {"cwm": "only the end tells JSON from a command", "sarashina": "calls are dicts as Python writes them"}
"""Formats whose arguments go out when the call is whole."""


def test_a_fragment_for_every_64_characters(twin: ModuleType) -> None:
    """In deltas of a few characters, for each of several calls."""
    cases = product(enumerate(name for name in FORMATS if name not in AT_ONCE), enumerate(VALUES))
    for format, kind in some(twin, ((format, kind) for (n, format), (m, kind) in cases if (n + m) % 3 == 0)):
        fragments = fragments_of(twin, format, kind)
        expected = LONG if kind == "free text" else VALUES[kind]
        joined = ["".join(given) for given in fragments]
        assert [text if kind == "free text" else json.loads(text) for text in joined] == [expected] * 2, (format, kind)
        assert max(len(fragment) for given in fragments for fragment in given) <= 64, (format, kind)


def fragments_of(twin: ModuleType, format: str, kind: str) -> list[list[str]]:
    """The pieces in which the arguments of two calls come."""
    chosen = registries().formats.get(format)
    written = json.dumps(VALUES[kind], ensure_ascii=False)
    free = kind == "free text"
    uses = [ToolUse(f"call_{n}", "patch" if free else "write", written) for n in range(2)]
    text = (chosen.render_calls or (lambda uses: "".join(map(chosen.render_call, uses))))(uses)
    fragments: dict[int, list[str]] = {}
    for event in scan(twin, format, text, 0, 4, False):
        if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
            fragments[event.block] = []
        elif isinstance(event, Delta) and event.block in fragments:
            fragments[event.block].append(event.text)
    return list(fragments.values())


@every(
    ("format", "text"),
    [
        ("hermes", '<tool_call>{"name":"f","arguments":{"s":</tool_call>'),
        ("hermes", '<tool_call>{"name":"f","arguments":{"s":}}</tool_call>'),
        ("hermes", '<tool_call>{"name":"f","arguments":[{"s":"a"}]}</tool_call>'),
        ("hermes", '<tool_call>{"name":"f","arguments":"no object"}</tool_call>'),
        ("hermes", '<tool_call>{"name":"f","arguments":{</tool_call>'),
        ("sentinel", '<tool_call>{"name":"f","arguments":"</tool_call>'),
        ("mistral", "[TOOL_CALLS]f[ARGS]{]"),
        ("pythonic", "[f(s=</tool_call>)]"),
        ("gemma4", "<|tool_call>call:f{s:}<tool_call|>"),
        ("functionary", '>>>\n{"s":"a"}'),
    ],
)
@every("cut_off", [False, True])
def test_what_cannot_be_a_value_does_not_go_out(twin: ModuleType, format: str, text: str, cut_off: bool) -> None:
    for size in (1, 10_000):
        parts = found(scan(twin, format, text, 0, size, cut_off)).parts
        sent = "".join(part.text for part in parts if part.kind == BlockKind.TOOL_CALL.value)
        assert sent in ("", '{"s"', '{"s":')


def test_nothing_goes_out_before_it_is_known_to_be_a_call(twin: ModuleType) -> None:
    scanner = open_scanner("hermes", TOOLS, options=route_options(argument_streaming=0), scanner=twin.CallScanner)
    assert scanner.feed('<tool_call>{"arguments": {"s": "a"}, "name": "other"') == []
    assert blocks(scanner.feed("}</tool_call>"))[0].kind == "text"


def test_a_second_key_of_the_same_name_fails(twin: ModuleType) -> None:
    text = '<tool_call>{"name": "write", "arguments": {"s": "a"}, "arguments": {"s": "b"}}</tool_call>'
    assert isinstance(scan(twin, "hermes", text, 0, 10_000, False)[-1], Fault)


@every(
    ("text", "arguments"),
    [
        ('{"name":"write","arguments":{"s":"a",}}', '{"s":"a"}'),
        ('{"name":"write","arguments":{"s":"a"}', '{"s":"a"}'),
        ('{"name":"write","arguments":{"s":"a" , } , }', '{"s":"a"}'),
        ('{"name":"write"}', "{}"),
    ],
)
def test_a_slip_at_the_end_is_repaired(twin: ModuleType, text: str, arguments: str) -> None:
    (part,) = found(scan(twin, "hermes", f"<tool_call>{text}</tool_call>", 0, 1, False)).parts
    assert json.loads(part.text) == json.loads(arguments)


class Counting(EarlyCall):
    """Counts the characters of values of which the kind is asked."""

    asked = 0

    def value_kind(self, syntax: Any, key: str, begun: str) -> Any:
        Counting.asked += len(begun)
        return f'"{key}":', "unsure"


@pytest.mark.parametrize("value", ["{" * 5000, " " * 5000, "1" * 5000, "[" + '"a",' * 1200])
def test_what_a_value_is_is_asked_a_bounded_number_of_times(value: str) -> None:
    """What is read here is the same code for both scanners; the Python one lets its policy be replaced."""
    options = route_options(argument_streaming=0, recognise="taught")
    scanner = cast(CallScanner, open_scanner("glm47", ["f"], options=options, scanner=CallScanner))
    live = scanner._ends._live
    assert live is not None
    Counting.asked = 0
    live._policy.opening = lambda *_: Counting(FoundCall("f", "call_1", ""))  # type: ignore[method-assign]
    for char in f"<tool_call>f<arg_key>k</arg_key><arg_value>{value}":
        scanner.feed(char)
    assert 0 < Counting.asked < 40_000


@every(("text", "kind"), [(b'"{}', NO_STRING), (b'"{} \\n ', NO_STRING), (b'"{}x', UNSAID), (b'"{} {', UNSAID)])
def test_nothing_may_stand_behind_arguments_in_a_string(text: bytes, kind: int) -> None:
    follower = CallFollower()
    follower.begin((b"name",), (b"arguments",), True, False, False, 0)
    pos = follower.read(head := b'{"name":"f","arguments":' + text, 0, 0)
    while pos < len(head) and follower.string[0] != UNSAID:
        pos = follower.read(head[pos:], 0, pos) + pos
    assert follower.string[0] == kind
