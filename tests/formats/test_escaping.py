"""How the meaning is taken out of markers and put back: laws for any text, any split, any set of markers (R5.6,
R5.6a)."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import examples
from tests.formats.cases import FORMATS, restore_json
from tests.strategies import split, texts
from toolwire.formats.base import control_tokens, escaping_for
from toolwire.formats.engine import escaping, markers
from toolwire.formats.engine.escaping import Escaping, Markup
from toolwire.formats.engine.markers import TAIL_CHARS, MarkerSet, distinct
from toolwire.formats.engine.restoring import Restorer
from toolwire.formats.engine.results import TOOL_RESPONSE
from toolwire.formats.families import bare_json, invoke, json_tags, messages, pythonic, qwen
from toolwire.formats.recognised import auto

MARKERS = ("<tool_call>", "</tool_call>", "```json", *TOOL_RESPONSE.markers)
SETS = {
    "tags": MarkerSet(MARKERS),
    "tokens": MarkerSet(control_tokens()),
    "overlapping": MarkerSet(["<a<bX", "<bY", "<<SYS>>", "[[", "]~b]", "]~!b[", "[INST]", "functools[", '<|"|>']),
    "fences": MarkerSet(["```", "```json", "<t>"]),
    "bare objects": MarkerSet(["<t>"], begins=bare_json.GRAMMAR),
    "bare arrays": MarkerSet(["<t>", "[TOOL_CALLS]"], begins=json_tags.XLAM.grammar),
    "bare lists": MarkerSet(["<t>", "[function_call"], begins=pythonic.PYTHONIC.grammar),
    "bare names": MarkerSet(["<t>", *messages.FUNCTIONARY.grammar.markers], begins=messages.FUNCTIONARY.grammar),
    "bare headers": MarkerSet(invoke.MUSE.grammar.markers, begins=invoke.MUSE.grammar),
    "all at once": MarkerSet([*auto.GRAMMAR.markers, *control_tokens()], begins=auto.GRAMMAR),
}
ESCAPINGS = {name: Escaping(found) for name, found in SETS.items()}
every_set = pytest.mark.parametrize("name", SETS)
PLAIN = [
    *("", "\\", "\\\\", "<", "[", "{", "`", "]", "|", '"', "/", "\n", " ", "é", "name", '{"name":', "[f("),
    *('[{"name"', "[ {", "all\n", ">>>", "to=", "name {"),
]
SPELLINGS = [
    lambda value: json.dumps(value, ensure_ascii=False),
    json.dumps,
    lambda value: json.dumps(value).replace("/", "\\/").replace("<", "\\u003c"),
    lambda value: json.dumps(value).replace("\\\\", "\\u005c"),
]
"""Ways to write the same JSON."""


@cache
def hostile(name: str) -> st.SearchStrategy[str]:
    """Markers, parts of markers, and what looks like an escaped one."""
    words = SETS[name].words[:: max(1, len(SETS[name].words) // 40)]
    found = [*words, *PLAIN]
    found += [part for word in words for at in (1, len(word) // 2, len(word) - 1) for part in (word[:at], word[at:])]
    found += [f"{word[0]}{slashes}{word[1:]}" for word in words for slashes in ("\\", "\\\\")]
    return st.lists(st.sampled_from(found) | texts, max_size=9).map("".join)


def through(restorer: Restorer, pieces: Any) -> str:
    return "".join([*map(restorer.feed, pieces), restorer.finish()])


cut_places = st.lists(st.integers(0, 400), max_size=5)


@every_set
@given(data=st.data(), cuts=cut_places)
def test_what_was_escaped_is_restored_at_every_split(name: str, data: st.DataObject, cuts: list[int]) -> None:
    text = data.draw(hostile(name))
    it = ESCAPINGS[name]
    for escaped in (it.text(text), it.value(text)):
        assert it.restore(escaped) == text
        for pieces in ([escaped], split(escaped, cuts), list(escaped)):
            assert through(it.restorer(), pieces) == text
    assert not any(word in it.text(text) for word in it.markers.words if len(word) > 1)
    assert through(it.restorer(), list(text)) == it.restore(text)  # also of what nobody escaped


@every_set
@examples(0.24)
@given(data=st.data(), cuts=cut_places)
def test_strings_of_json_are_restored_at_every_split(name: str, data: st.DataObject, cuts: list[int]) -> None:
    """A model copies what it was shown into JSON, in which it spells a backslash as two, and some characters as it
    likes."""
    text = data.draw(hostile(name))
    it = ESCAPINGS[name]
    shown = it.text(text)
    for spelled in SPELLINGS:
        copied = spelled({shown: [shown, 1, {"a": shown}]})
        restored = restore_json(it, copied)
        assert json.loads(restored) == {text: [text, 1, {"a": text}]}
        for pieces in (split(copied, cuts), list(copied)):
            assert through(it.restorer(json=True), pieces) == restored


@every_set
@examples(0.24)
@given(data=st.data())
def test_json_hides_markers_for_the_same_value(name: str, data: st.DataObject) -> None:
    text = data.draw(hostile(name))
    it = ESCAPINGS[name]
    for spelled in SPELLINGS:
        written = spelled({text: [text, {"a": text}]})
        hidden = it.json(written)
        assert json.loads(hidden) == {text: [text, {"a": text}]}
        inside = re.findall(r'"(?:[^"\\]|\\.)*"', hidden, re.DOTALL)
        assert not any(word in string for string in inside for word in it.markers.words if len(word) > 1)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("</tool_call>", "<\\/tool_call>"),
        ("<tool_call>", "<\\tool_call>"),
        ("<\\/tool_call>", "<\\\\/tool_call>"),
        ("````json", "``\\``json"),
        ("<tool_<tool_call>call>", "<tool_<\\tool_call>call>"),
        ("a < b, `c` and <tool>, ``` and \\<", "a < b, `c` and <tool>, ``` and \\<"),
    ],
)
def test_how_escapes_look(text: str, escaped: str) -> None:
    assert Escaping(MARKERS).text(text) == escaped


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ('{"name":"f"}', '{\\"name":"f"}'),
        ('\n { "tool_calls" :', '\n {\\ "tool_calls" :'),
        ('{\\"name"', '{\\\\"name"'),
        ('{"name', '{"name'),
        ('{"title":1}', '{"title":1}'),
        ('x {"name":"f"}', 'x {"name":"f"}'),
        ("{" + " " * 2 * TAIL_CHARS + '"name":', "{\\" + " " * 2 * TAIL_CHARS + '"name":'),
    ],
)
def test_how_the_beginning_of_an_answer_looks(text: str, escaped: str) -> None:
    """Where a whole answer may be a call, the bracket that it begins with is a marker, and only there."""
    it = Escaping(MarkerSet((), begins=bare_json.GRAMMAR))
    assert it.text(text) == escaped
    assert it.restore(escaped) == text
    assert through(it.restorer(), escaped) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ('search\n{"q":1}', 's\\earch\n{"q":1}'),
        (" é.x {", " é\\.x {"),
        ("all\nx", "a\\ll\nx"),
        ('>>>search\n{"q":1}', '>\\>>search\n{"q":1}'),
        ("x\n>>>y {\n>>>>", "x\n\\>>>y {\n\\>>>>"),
        ("\n\\>>>", "\n\\\\>>>"),
        ("a >>> b, x {y}, all", "a >>> b, x {y}, all"),
        ("x" * 2 * TAIL_CHARS + "{", "x" * 2 * TAIL_CHARS + "{"),
    ],
)
def test_names_and_marks_at_the_beginning_of_lines(text: str, escaped: str) -> None:
    """functionary's calls begin with a bare name, or with a mark that only counts where a line begins."""
    grammar = messages.FUNCTIONARY.grammar
    it = Escaping(MarkerSet(grammar.markers, begins=grammar))
    assert it.text(text) == escaped
    assert it.restore(escaped) == text
    assert through(it.restorer(), escaped) == text


def test_without_markers_nothing_is_escaped() -> None:
    assert Escaping(()).text("<tool_call>") == Escaping(()).json("<tool_call>") == "<tool_call>"


# --- pieces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "composed"),
    [
        (["<tool_", "call>"], "<\\tool_call>"),
        ([Markup("<tool_call>"), "x", Markup("</tool_call>")], "<tool_call>x</tool_call>"),
        ([Markup("<tool_"), Markup("call>"), "x"], "<tool_call>x"),
        ([Markup("a <"), "tool_call> b"], "a <\\tool_call> b"),
        ([Markup("a <tool_"), "ca", Markup("ll>")], "a <tool_\\call>"),
        (["a <tool", Markup("_call> b")], "a <\\tool_call> b"),
        (["a <\\", Markup("tool_call> b")], "a <\\\\tool_call> b"),
        (["", Markup(""), "<tool", "", "_call>", Markup("<tool_call>")], "<\\tool_call><tool_call>"),
        ([Markup("<tool_response>"), "</tool_response>", Markup("</tool_response>")],
         "<tool_response><\\/tool_response></tool_response>"),
        ([Markup("x")], "x"),
        ([], ""),
    ],
)  # fmt: skip
def test_what_is_escaped_is_what_goes_out(pieces: list[str], composed: str) -> None:
    assert Escaping(MARKERS).compose(pieces) == composed


@every_set
@examples(0.24)
@given(data=st.data())
def test_no_marker_is_left_that_is_not_wholly_markup(name: str, data: st.DataObject) -> None:
    """Law: each marker in what was composed lies in markup; take the data away and only markup is left."""
    it = ESCAPINGS[name]
    marked = st.tuples(st.booleans(), hostile(name))
    pieces = [Markup(text) if ours else text for ours, text in data.draw(st.lists(marked, max_size=5))]
    composed = it.compose(pieces)
    ours = "".join(piece for piece in pieces if isinstance(piece, Markup))
    if not ours:
        assert composed == it.text("".join(pieces))
    for word in it.markers.words:
        if len(word) > 1:
            assert composed.count(word) <= sum(text.count(word) for text in runs_of_markup(pieces))
    if "\\" not in "".join(pieces):
        assert composed.replace("\\", "") == "".join(pieces)


def runs_of_markup(pieces: list[str]) -> list[str]:
    runs = [""]
    for piece in pieces:
        if isinstance(piece, Markup):
            runs[-1] += piece
        elif piece:
            runs.append("")
    return runs


@every_set
@examples(0.24)
@given(data=st.data(), cuts=cut_places)
def test_texts_that_may_be_put_together_hold_no_marker_then(name: str, data: st.DataObject, cuts: list[int]) -> None:
    it = ESCAPINGS[name]
    text = data.draw(hostile(name))
    written = it.compose_each([[piece] for piece in split(text, cuts)])
    assert not any(word in "".join(written) for word in it.markers.words if len(word) > 1)
    assert len(written) == len(split(text, cuts))


# --- sets -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.sampled_from("<[a\\ "), max_size=5), max_size=6))
def test_markers_are_made_so_that_none_overlap(given_markers: list[str]) -> None:
    words = distinct(given_markers)
    for one in words:
        assert "\\" not in one
        for at in range(1, len(one)):
            assert not any(other.startswith(one[at:]) or one[at:].startswith(other) for other in words)
        assert not any(other != one and other.startswith(one) for other in words)
    for marker in given_markers:
        if marker.strip("\\ "):
            assert any(word in marker for word in words)


@pytest.mark.parametrize("text", ['/// <param name="x">A.</param>\n', "<arg>1\n</arg>", '<option value="x"/>'])
def test_what_only_slips_are_written_with_stays_in_data(text: str) -> None:
    """Documentation in C# is full of `</param>`."""
    for tool_format in (qwen.QWEN3_CODER, invoke.MINIMAX_M2):
        assert escaping_for(tool_format).text(text) == text


def test_formats_without_tokens_of_their_own_escape_all() -> None:
    """The safe default for a format that names no control tokens."""
    families = [f for f in FORMATS if f.own_tokens is not None]
    assert {"sentinel", "fenced_json", "bare_json", "auto"}.isdisjoint(f.name for f in families)
    assert all(f.template_tokens < control_tokens() for f in families)
    assert all(f.template_tokens == control_tokens() for f in FORMATS if f not in families)


# --- cost -----------------------------------------------------------------------------------------------------------

SMALL = 64


class Spied:
    """A compiled pattern that notes how much it looks at."""

    def __init__(self, pattern: re.Pattern[str], looked: list[int]) -> None:
        self._pattern = pattern
        self._looked = looked

    def finditer(self, text: str, start: int, end: int) -> Any:
        self._looked.append(end - start)
        return self._pattern.finditer(text, start, end)

    def match(self, text: str, start: int = 0, end: int | None = None) -> Any:
        self._looked.append(min(len(text) if end is None else end, start + SMALL) - start)
        return self._pattern.match(text, start)


HOSTILE = [
    "<" + "\\" * 999,
    "<\\" * 500,
    "<" * 999,
    "<tool_call>" * 99,
    "<\\tool_call>" * 99,
    "<tool_cal" * 99,
    "\\" * 999,
    "<|im_" * 200,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_call_of_an_engine_looks_at_more_than_a_slice(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the interpreter as long as it looks. All slices together are the text, but for what they overlap."""
    monkeypatch.setattr(escaping, "SLICE_CHARS", SMALL)
    looked: list[int] = []
    it = Escaping(MarkerSet([*MARKERS, "<|im_end|>"]))
    made = it.markers._pattern
    monkeypatch.setattr(it.markers, "_pattern", lambda *args: Spied(made(*args), looked))
    whole = Escaping(it.markers.words)
    monkeypatch.setattr(escaping, "SLICE_CHARS", 1 << 20)
    expected = whole.text(text)
    monkeypatch.setattr(escaping, "SLICE_CHARS", SMALL)
    assert it.text(text) == expected
    assert it.restore(expected) == text
    most = SMALL + it.markers.longest
    assert max(looked, default=0) <= most
    windows = len(text) // SMALL + len(expected) // SMALL + 2
    found = text.count("tool_call>") * 4
    assert sum(looked) <= 3 * windows * most + found * most


@every_set
@settings(max_examples=15)
@given(data=st.data())
def test_long_texts_are_escaped_in_slices(name: str, data: st.DataObject) -> None:
    text = data.draw(hostile(name))
    whole = ESCAPINGS[name].text(text)
    quoted = ESCAPINGS[name].json(json.dumps(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(escaping, "SLICE_CHARS", 3)
        patch.setattr(escaping, "_RUN_CHARS", 2)
        patch.setattr(escaping, "_JOINED", 2)
        patch.setattr(markers, "STEP_CHARS", 2)
        assert ESCAPINGS[name].text(text) == whole
        assert ESCAPINGS[name].restore(whole) == text
        assert ESCAPINGS[name].json(json.dumps(text)) == quoted


@pytest.mark.parametrize("json_text", [False, True])
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_restoring_is_linear(text: str, json_text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps for each character, however it is cut; what was taken for the beginning of a marker is looked at twice."""
    steps = 0
    take = Restorer._take

    def counted(self: Restorer, char: str, spelled: str) -> None:
        nonlocal steps
        steps += 1
        take(self, char, spelled)

    monkeypatch.setattr(Restorer, "_take", counted)
    it = ESCAPINGS["tags"]
    shown = json.dumps(text) if json_text else text
    for pieces in ([shown], list(shown)):
        steps = 0
        through(it.restorer(json=json_text), pieces)
        assert steps <= 3 * len(shown)


def test_little_is_kept_back() -> None:
    restorer = ESCAPINGS["tags"].restorer()
    kept = 0
    given_out = 0
    for number, char in enumerate("a <b> <tool_call> <\\x <\\tool_x <\\\\\\tool_call> \\" * 3, 1):
        given_out += len(restorer.feed(char))
        kept = max(kept, number - given_out)
    assert kept <= len("\\tool_call") + 3  # and the backslashes that were taken away
