"""The corpus: for every format and every case class, texts as models write them, and what has to be found in them.

Everything is drawn with a seed made of the format's and the class's names, so a failing case comes back by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal

from tests.corpus import writers
from tests.corpus.formats import ALIKE, CANNOT, FORMATS, THINK, Format
from tests.corpus.values import (
    ESCAPES,
    PLAIN,
    UNICODE,
    Call,
    Json,
    Number,
    Tool,
    any_tool,
    arguments,
    read_json,
    tool,
    write_json,
)
from tests.corpus.writers import Style

LARGE = 100_000
SEEDS = 2


@dataclass(frozen=True)
class Part:
    """What has to be found, in order. `text` of a call is its arguments: the very text if `exact`, else the value,
    written compactly. `id` is None where the format has no ids of its own."""

    kind: Literal["text", "reasoning", "call"]
    text: str
    name: str = ""
    id: str | None = None
    exact: bool = True

    def fits(self, found: Part) -> bool:
        """Whether `found` is this."""
        if (self.kind, self.name) != (found.kind, found.name) or self.id not in (None, found.id):
            return False
        if self.exact:
            return self.text == found.text
        return self.text == write_json(read_json(found.text), spaced=False)


@dataclass(frozen=True)
class Case:
    """A text in one format, and what it holds. `truncated`: the backend stopped for length. `preopened`: the answer
    begins inside reasoning. `scan_calls`: calls inside reasoning count. `known`: it reads the same for who does not
    know the format."""

    format: Format
    text: str
    parts: tuple[Part, ...]
    tools: tuple[Tool, ...]
    truncated: bool = False
    preopened: bool = False
    scan_calls: bool = False
    known: bool = True


PROSE = [
    *("Sure.", "Let me look that up for you.", "a < b, c[0] = {x} & `code` > d", "Zürich — 東京 😀"),
    *("1. one\n2. two\n\n* three", "```python\nprint('x')\n```", "Done: 50 % (see [1], or {2})."),
    'He said "so" & left',
]
MENTIONS = ["The {} marker begins a call.", "Use `{}` for calls", "Like so: {} and then:"]


class Text:
    """An answer that is being written."""

    def __init__(self, format: Format, random: Random) -> None:
        self.format = format
        self.random = random
        self.text = ""
        self.parts: list[Part] = []
        self.tools: list[Tool] = []
        self.called = 0
        self.known = True
        self.between = ""  # whitespace since the last prose, if there was any

    def case(self) -> Case:
        return Case(self.format, self.text, tuple(self.parts), self.offer, known=self.known)

    def _add(self, piece: str) -> None:
        if self.text and self.format.name == "harmony":
            self.text += "<|start|>assistant"
        elif self.text:
            space = self.random.choice(self.format.separators)
            self.text += space
            self.between += space
        self.text += piece

    @property
    def offer(self) -> tuple[Tool, ...]:
        """One tool of each name, the first one."""
        return tuple({tool.name: tool for tool in reversed([*self.tools, Tool("idle", {})])}.values())

    def prose(self, text: str = "") -> Text:
        text = text or self.random.choice(PROSE)
        opener, closer = self.random.choice(self.format.wraps)
        self._add(opener + text + closer)
        self.known = self.known and not opener  # what vanishes wherever it stands vanishes only in its own format
        spoken = any(part.kind == "text" for part in self.parts)
        stays = "\n" if "\n" in self.between else self.between[:1]  # words are never glued (R6.6)
        self.parts.append(Part("text", stays + text if spoken else text))
        self.between = ""
        return self

    def thought(self, text: str) -> Text:
        assert self.format.reasoning
        opener, closer = self.format.reasoning
        self._add(opener + text + closer)
        self.known = self.known and self.format.name not in (
            "apriel",
            "muse",
        )  # `auto` does not look for their thoughts
        self.parts.append(Part("reasoning", text))
        return self

    def calls(self, *made: tuple[Tool, Mapping[str, Json]], style: Style | None = None) -> Text:
        """Calls of tools; those of a name that was there before get another one."""
        style = style or Style(spaced=self.random.random() < 0.7)
        calls = []
        for called, given in made:
            if any(other.name == called.name and other is not called for other in self.tools):
                called = replace(called, name=f"{called.name}_{len(self.tools)}")
            self.tools.append(called)
            calls.append(Call(called.name, given, self._id(called.name)))
            self.called += 1
        self._add(self.format.write(calls, style))
        self.known = self.known and not (self.format.name == "sentinel" and style.variant == "object")
        self.parts += [expected(self.format, call, style) for call in calls]
        return self

    def _id(self, name: str) -> str | None:
        if self.format.ids == "kimi":
            return f"functions.{name}:{self.called}"
        if self.format.ids == "mistral" and self.random.random() < 0.5:
            return "".join(self.random.choices("abcdefghijkABCDEFGHIJK0123456789", k=9))
        return None

    def call(self, strings: list[str] | None = None, style: Style | None = None) -> Text:
        """A call of any tool."""
        called = any_tool(self.random)
        return self.calls((called, arguments(self.random, called, strings or PLAIN)), style=style)


def expected(format: Format, call: Call, style: Style) -> Part:
    """The call as it has to arrive: JSON as it was written, other notations by their value."""
    exact = format.encoding == "json" or style.variant == "json"
    compact = format.title == "sentinel" and style.variant == "object"  # a string is taught; C2
    text = writers.arguments(call, style) if exact and not compact else write_json(call.arguments, spaced=False)
    return Part("call", text, call.name, call.id, exact)


# --- the classes -----------------------------------------------------------------------------------------------------


def before(format: Format, random: Random) -> Iterator[Case]:
    yield Text(format, random).prose().call().case()


def between(format: Format, random: Random) -> Iterator[Case]:
    yield Text(format, random).call().prose().call().case()


def after(format: Format, random: Random) -> Iterator[Case]:
    yield Text(format, random).call().prose().case()
    if "before" in format.prose:
        yield Text(format, random).prose().call().prose().case()


def _of_strings(format: Format, random: Random, strings: list[str], style: Style) -> Case:
    """A call with each of these strings as a value and inside one."""
    called = tool(random, ["string"] * len(strings))
    given: dict[str, Json] = dict(zip(called.schemas, strings, strict=True))
    schemas = {**called.schemas, "all": {"type": "array"}, "by_name": {"type": "object"}}
    given |= {"all": strings, "by_name": {"a": strings[0], "b": [strings[-1]]}}
    called = Tool(called.name, schemas)
    return Text(format, random).calls((called, given), style=style).case()


def unicode(format: Format, random: Random) -> Iterator[Case]:
    yield _of_strings(format, random, UNICODE, Style())
    yield _of_strings(format, random, UNICODE, Style(ascii=True))
    if format.prose:
        yield Text(format, random).prose("Ünïcödé 東京 😀").call(UNICODE).case()


def escapes(format: Format, random: Random) -> Iterator[Case]:
    for index in range(0, len(ESCAPES), 5):
        yield _of_strings(format, random, ESCAPES[index : index + 5], Style())


def markers(format: Format, random: Random) -> Iterator[Case]:
    """Markers of the format inside string values, alone and in the middle of a line."""
    strings = [*format.markers, *(f"a {marker} b" for marker in format.markers), "<think>", "a </think> b"]
    random.shuffle(strings)
    for index in range(0, len(strings), 4):
        yield _of_strings(format, random, strings[index : index + 4], Style())


def mention(format: Format, random: Random) -> Iterator[Case]:
    """Openers that open nothing: text, and the call behind them a call."""
    for literal in format.mentions or (format.opener,):
        for sentence in MENTIONS:
            text = sentence.format(literal)
            yield Text(format, random).prose(text).case()
            if "before" in format.prose:
                yield Text(format, random).prose(text).call().case()
        if not format.prose:
            yield Text(format, random).prose(f"{literal} begins a call.").case()


def empty(format: Format, random: Random) -> Iterator[Case]:
    for way in format.empty:
        nothing = Tool("get_time", {})
        optional = tool(random, ["string"])
        yield Text(format, random).calls((nothing, {}), style=Style(empty=way)).case()
        if format.parallel:
            yield Text(format, random).calls((optional, {}), (nothing, {}), style=Style(empty=way)).case()


def nested(format: Format, random: Random) -> Iterator[Case]:
    schemas = {"tree": {"type": "object"}, "rows": {"type": "array"}, "label": {"type": "string"}}
    called = Tool("plant_tree", schemas)

    def value(depth: int) -> Json:
        if not depth:
            return random.choice([*PLAIN, None, True, False, Number("1.50"), [], {}])
        if random.random() < 0.5:
            return [value(depth - 1) for _ in range(random.randint(1, 2))]
        return {key: value(depth - 1) for key in random.sample(["a", "b", "c_d"], random.randint(1, 2))}

    given = {"tree": {"a": value(5)}, "label": "[{(", "rows": [value(4), value(0)]}
    yield Text(format, random).calls((called, given)).case()


def large(format: Format, random: Random) -> Iterator[Case]:
    """100 KB of arguments."""
    called = Tool("write_file", {"content": {"type": "string"}, "marks": {"type": "array"}})
    lines = [*PLAIN, *UNICODE, "    if a < b && c[0] == {x}:", "return 'text' + \"more\"\\n", "\ttab"]
    content = ""
    while len(content) < LARGE // 8:
        content += random.choice(lines) + random.choice(["\n", " ", "\n\n"])
    given = {"content": (content * 8).strip(), "marks": [Number(str(n)) for n in range(300)]}
    yield Text(format, random).calls((called, given)).case()


def reversed_keys(format: Format, random: Random) -> Iterator[Case]:
    yield Text(format, random).call(style=Style(reverse=True)).case()
    yield (
        Text(format, random)
        .call(format.markers and list(format.markers), style=Style(reverse=True, spaced=False))
        .case()
    )


def numbers(format: Format, random: Random) -> Iterator[Case]:
    """Numbers whose text says more than their value."""
    called = tool(random, ["number", "number", "integer", "array", "object"])
    yield Text(format, random).calls((called, arguments(random, called, ["1.0", "007"]))).case()
    called = Tool("count", {"n": {"type": "array", "items": {"type": "number"}}})
    texts = ["1.0", "1e-07", "12345678901234567890", "-0.0", "1E5", "0.10", "1e400"]
    yield Text(format, random).calls((called, {"n": [Number(text) for text in texts]})).case()


def parallel(format: Format, random: Random) -> Iterator[Case]:
    """Several calls, one without arguments, one tool twice."""
    one, other, idle = any_tool(random), replace(any_tool(random), name="other_tool"), Tool("get_time", {})
    made = [(one, arguments(random, one, [*PLAIN, *UNICODE])), (idle, {}), (other, arguments(random, other, ESCAPES))]
    yield Text(format, random).calls(*made).case()
    yield Text(format, random).calls(*made, (one, arguments(random, one, PLAIN))).case()


def whitespace(format: Format, random: Random) -> Iterator[Case]:
    """The notations that the format's models vary between."""
    for variant in format.variants:
        style = Style(variant=variant)
        strings = [*PLAIN, 'say "hi" now'] if variant == "raw_quotes" else [*PLAIN, *ESCAPES]
        yield Text(format, random).call(strings, style).case()
        if format.parallel and variant not in ("one", "function_call"):
            one, idle = tool(random, ["string", "integer"]), Tool("get_time", {})
            yield Text(format, random).calls((one, arguments(random, one, strings)), (idle, {}), style=style).case()
        if "before" in format.prose and "after" in format.prose and variant != "first":
            yield Text(format, random).prose().call(strings, style).prose().case()


def reasoning(format: Format, random: Random) -> Iterator[Case]:
    """Thoughts before the call; a call inside them is none, unless the route says so."""
    thought = "\nI need the weather.\nSo: call it. 😀\n"
    yield Text(format, random).thought(thought).call().case()
    if format.prose:
        yield Text(format, random).thought(thought).prose().call().case()
    assert format.reasoning
    opener, closer = format.reasoning
    case = Text(format, random).thought(thought).call().case()
    if format.name != "harmony":
        yield replace(case, text=case.text.removeprefix(opener), preopened=True, known=format.reasoning == THINK)
        inside = Text(format, random).call()
        outer = Text(format, random).thought(f"Hm.\n{inside.text}\nNo.").call()
        outer.tools += inside.tools
        if closer not in inside.text:
            yield outer.case()
    if format.name in ("hunyuan", "hermes"):
        yield replace(
            Text(format, random).call().case(),
            text=f"{opener}Hm.\n{inside.text}\nYes.{closer}",
            tools=inside.offer,
            parts=(Part("reasoning", "Hm.\n"), *inside.parts, Part("reasoning", "\nYes.")),
            scan_calls=True,
        )


def foreign(format: Format, random: Random) -> Iterator[Case]:
    """Other formats' markers: mentioned, inside values, and around a whole call, which is text here."""
    own = {*format.markers, format.opener, format.closer, format.end, format.value_closer.strip(), "<think>", "```json"}
    own.discard("")
    own.add("</function>")  # of several formats
    others = [other for other in FORMATS if other.opener and not any(mark in other.opener for mark in own)]
    others = [other for other in others if other.name not in (format.name, "harmony", "beam", "functionary_v31")]
    literals = sorted({mark for other in others for mark in (other.opener, other.closer) if mark} - own)
    yield _of_strings(format, random, random.sample(literals, 6), Style())
    if "before" not in format.prose:
        return
    literal = random.choice(others).opener
    yield Text(format, random).prose(f"Others write {literal} there.").call(literals).case()
    random.shuffle(others)
    for other in others:
        theirs = Text(other, random).call()
        if not any(mark in theirs.text for mark in own):
            ours = Text(format, random).prose(f"Others do this:\n{theirs.text}\nI do that:").call()
            ours.tools += theirs.tools
            yield replace(ours.case(), known=False)
            break


def cut_off(format: Format, random: Random) -> Iterator[Case]:
    """Answers that end too early: never a call, unless nothing was missing but closers."""
    yield from _inside_arguments(format, random)
    yield from _inside_opener(format, random)
    yield from _without_closer(format, random)
    if format.encoding == "tagged":
        yield from _between_arguments(format, random)


def _needle(random: Random) -> tuple[Tool, dict[str, Json]]:
    called = tool(random, ["string", "string"])
    first, second = called.schemas
    return called, {first: "alpha beta", second: "the needle in here"}


def _inside_arguments(format: Format, random: Random) -> Iterator[Case]:
    text = Text(format, random)
    first = any_tool(random)
    if format.parallel:
        text.calls((first, arguments(random, first, PLAIN)), _needle(random), style=Style())
    else:
        text.calls(_needle(random), style=Style())
    whole = text.text
    at = whole.rindex("needle") + 3
    text.parts.pop()
    start = whole.index(format.opener)  # what stands before it is framing
    if format.together:
        text.parts.clear()
    elif format.parallel:
        start = whole.rindex(format.first, 0, at)
    base = replace(text.case(), text=whole[:at])
    yield replace(base, truncated=True)
    yield replace(base, parts=(*base.parts, Part("text", whole[start:at])))


def _inside_opener(format: Format, random: Random) -> Iterator[Case]:
    literal = "" if format.framed else format.opener
    prose = "" if format.name == "harmony" else f"Well.{format.separators[0]}"
    for size in {1, len(literal) // 2, len(literal) - 1} - {0, -1}:
        text = prose + literal[:size]
        for truncated in (False, True):
            yield Case(format, text, (Part("text", text),), (Tool("idle", {}),), truncated)
    if literal:
        yield Case(format, prose + literal, (Part("text", prose + literal),), (Tool("idle", {}),))


def _without_closer(format: Format, random: Random) -> Iterator[Case]:
    case = Text(format, random).calls(_needle(random), style=Style()).case()
    text = case.text
    if format.end:
        at = text.rindex(format.end)
        half = format.end[: len(format.end) // 2]
        yield replace(case, text=text[:at])
        yield replace(case, text=text[:at] + half, parts=(*case.parts, Part("text", half)), truncated=True)
    if format.closer:
        at = text.rindex(format.closer)
        for size in (0, 1, len(format.closer) - 1):
            base = replace(case, text=text[: at + size])
            rest = (Part("text", format.closer[:size]),) if size else ()
            match format.without_closer:
                case "whole":
                    yield replace(base, parts=(*case.parts, *rest))
                    yield replace(base, parts=(*case.parts, *rest), truncated=True)
                case "stopped":
                    yield replace(base, parts=(*case.parts, *rest))
                    yield replace(base, parts=(), truncated=True)
                case "repaired":
                    yield base
                    yield replace(base, parts=(), truncated=True)


def _between_arguments(format: Format, random: Random) -> Iterator[Case]:
    """One of two arguments is whole: if the model stopped by itself, it was the last one. If it is not closed, it
    is text."""
    case = Text(format, random).calls(_needle(random), style=Style()).case()
    end = case.text.index("alpha beta") + len("alpha beta")
    at = end + len(format.value_closer)
    text = case.text[:at]
    if format.without_closer != "stopped":  # there it would be what the model said
        closed = not format.value_closer.endswith("/")
        key = next(iter(json.loads(case.parts[0].text)))
        first = replace(case.parts[0], text=f'{{"{key}":"alpha beta"}}')
        yield replace(case, text=text, parts=(first if closed else Part("text", text),))
        yield replace(case, text=text[:end], parts=(Part("text", text[:end]),))
    yield replace(case, text=text, parts=(), truncated=True)


CLASSES: Mapping[str, Callable[[Format, Random], Iterator[Case]]] = {
    "before": before,
    "between": between,
    "after": after,
    "unicode": unicode,
    "escapes": escapes,
    "markers": markers,
    "mention": mention,
    "empty": empty,
    "nested": nested,
    "large": large,
    "reversed": reversed_keys,
    "numbers": numbers,
    "parallel": parallel,
    "whitespace": whitespace,
    "reasoning": reasoning,
    "foreign": foreign,
    "cut off": cut_off,
}


@cache
def cases(title: str, kind: str) -> Sequence[Case]:
    """The cases of a format (by its title) in a class; none if the format cannot express it."""
    (format,) = [format for format in FORMATS if format.title == title]
    if title in CANNOT.get(kind, {}):
        return ()
    rounds = 1 if kind in ("large", "markers", "escapes") or title in ALIKE else SEEDS
    return [case for seed in range(rounds) for case in CLASSES[kind](format, Random(f"{title}/{kind}/{seed}"))]
