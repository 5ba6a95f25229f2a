"""The rules one by one, with the text that shows each (R6, C18, C22)."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from tests.cases import every
from tests.parse.policies import WordPolicy
from tests.parse.texts import GRAMMARS
from toolwire import open_scanner
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Open
from toolwire.scan._grammar import BlockSyntax, Branch, Grammar

CALL = '<tool_call>{"x":1}</tool_call>'
THINK = (("<think>", "</think>"),)


def read(
    twin: ModuleType,
    text: str,
    form: str = "sentinel",
    *,
    strict: bool = False,
    truncated: bool = False,
    **options: Any,
) -> list[str]:
    """The blocks as short words, fed character by character: `kind:text`, `!code` for a fault."""
    scanner = twin.CallScanner(GRAMMARS[form], WordPolicy(strict), **options)
    events: list[Event] = [event for char in text for event in scanner.feed(char)]
    return words(events + scanner.finish(truncated))


def words(events: list[Event]) -> list[str]:
    blocks: dict[int, str] = {}
    faults: list[str] = []
    for event in events:
        match event:
            case Open():
                blocks[event.block] = f"{event.kind.value.removeprefix('tool_')}:"
            case Delta():
                blocks[event.block] += event.text
            case Close():
                blocks[event.block] += "" if event.status == "complete" else " [cut]"
            case Fault():
                faults.append(f"!{event.error.code}")
    return [*blocks.values(), *faults]


BLOCKS: dict[str, tuple[str, list[str]]] = {
    "text call text": (f"a {CALL} b", ["text:a", 'call:{"x":1}', "text: b"]),
    "two calls": (f"{CALL}\n{CALL}", ['call:{"x":1}', 'call:{"x":1}']),
    "closer in string": ('<tool_call>\n {"x":"</tool_call>"} \n</tool_call>', ['call:{"x":"</tool_call>"}']),
    "escapes": ('<tool_call>{"x":"\\"</tool_call>\\\\"}</tool_call>', ['call:{"x":"\\"</tool_call>\\\\"}']),
    "broken string": ('<tool_call>{"x":"</tool_call> b "</tool_call> c', ['call:{"x":"', 'text:b "</tool_call> c']),
    "string never ends": ('<tool_call>{"x":"</tool_call> rest', ['call:{"x":"', "text:rest"]),
    "missing brace": ('<tool_call>{"x":{"b":1}</tool_call> c', ['call:{"x":{"b":1}', "text:c"]),
    "unquoted goes to the policy": ("<tool_call>{x:1}</tool_call>", ["call:{x:1}"]),
    "trailing comma": ('<tool_call>{"x":1,}</tool_call>', ['call:{"x":1,}']),
    "raw newline in string": ('<tool_call>{"x":"a\nb"}</tool_call>', ['call:{"x":"a\nb"}']),
    "fence": (
        '<tool_call>\n```json\n{"x":"</tool_call>"}\n```\n</tool_call>',
        ['call:```json\n{"x":"</tool_call>"}\n```'],
    ),
    "refused is text": ("<tool_call>{}</tool_call>", ["text:<tool_call>{}</tool_call>"]),
    "refused then call": (
        f"a <tool_call>{{}}</tool_call> {CALL}",
        ["text:a <tool_call>{}</tool_call>", 'call:{"x":1}'],
    ),
    "no object": ('a\n<tool_call>["d"]</tool_call>', ['text:a\n<tool_call>["d"]</tool_call>']),
    "dropped block is trimmed like a call": ('a\n<tool_call>{"d":1}</tool_call>\nb', ["text:a", "text:\nb"]),
    "replaced block is not trimmed": ('a <tool_call>{"r":1}</tool_call> b', ["text:a  [rejected]  b"]),
    "only whitespace": (" \n ", ["text: \n "]),
    "whitespace at the end": ("a \n", ["text:a \n"]),
    "whitespace around a call": (f" {CALL} ", ['call:{"x":1}']),
    "partial opener at the end": ("a <tool_cal", ["text:a <tool_cal"]),
    "nothing": ("", []),
}


@every("block", BLOCKS)
def test_blocks(twin: ModuleType, block: str) -> None:
    text, expected = BLOCKS[block]
    assert read(twin, text) == expected


def test_a_call_carries_its_source_and_ids(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy(), choice=2, first_block=7)
    text = '<tool_call> {"xx":1} </tool_call>'
    events = scanner.feed(text) + scanner.finish()
    assert events == [
        Open(7, BlockKind.TOOL_CALL, name="f", call_id="call_1", choice=2, extra={"source": text}),
        Delta(7, '{"xx":1}'),
        Close(7),
        Open(
            8,
            BlockKind.TOOL_CALL,
            name="g",
            call_id="call_1b",
            choice=2,
            call_kind="custom",
            namespace="space",
            extra={"source": "its own source"},
        ),
        Close(8),
    ]
    assert scanner.next_block == 9


# --- mentions (R6.2) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["The `<tool_call>` tag", "<tool_call>\n\nis a tag", "<tool_call>``x", "<tool_call>"])
def test_a_mention_is_text_at_once(twin: ModuleType, text: str) -> None:
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy())
    said = "".join(e.text for char in text for e in scanner.feed(char) if isinstance(e, Delta))
    if text != "<tool_call>":
        assert said == text
    assert scanner.state == ("lead" if text == "<tool_call>" else "text")
    assert said + "".join(e.text for e in scanner.finish() if isinstance(e, Delta)) == text


def test_a_mention_before_a_call_does_not_swallow_it(twin: ModuleType) -> None:
    assert read(twin, f"Use <tool_call> like so: {CALL}") == ["text:Use <tool_call> like so:", 'call:{"x":1}']


def test_with_a_strict_tool_an_opener_without_a_body_is_held_for_the_judge(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy(strict=True))
    events = scanner.feed("a <tool_call> name: f")
    assert words(events) == ["text:a"]
    assert scanner.state == "held"
    assert scanner.held == " <tool_call> name: f"
    events += scanner.feed("</tool_call> never seen")
    assert words(events) == ["text:a", "!malformed_tool_arguments"]
    assert scanner.state == "done"
    assert scanner.feed("more") == scanner.finish() == []


def test_strict_another_opener_or_the_end_shows_that_it_was_a_mention(twin: ModuleType) -> None:
    assert read(twin, f"<tool_call> or {CALL}", strict=True) == ["text:<tool_call> or", 'call:{"x":1}']
    assert read(twin, "<tool_call> or so ", strict=True) == ["text:<tool_call> or so "]
    assert read(twin, "<tool_call> or so ", strict=True, truncated=True) == ["text:<tool_call> or so  [cut]"]


# --- whitespace (R6.6) ----------------------------------------------------------------------------------------------

DROPPED = '<tool_call>{"d":1}</tool_call>'
THOUGHT = "<think>Hm.</think>"


@every(
    ("text", "visible"),
    [
        (f"mix {CALL} and {CALL} tail", "mix and tail"),
        (f"one\n\n{CALL} two", "one\ntwo"),
        (f"one {CALL}\r\n\r\ntwo", "one\ntwo"),
        (f"one\t{CALL}two", "one two"),
        (f"one{CALL} \t two", "one two"),
        (f"one{CALL}two", "onetwo"),
        (f"one {CALL}\n{CALL} two", "one two"),
        (f"one{CALL}\n{CALL} {CALL}two", "one\ntwo"),
        (f"one {CALL}{CALL}{CALL} two", "one two"),
        (f"  {CALL} one {CALL}\n", "one"),
        (f"  one {CALL}", "  one"),
        (f"{CALL} one  ", "one  "),
        (f" \n{CALL}\n {CALL} ", ""),
        (f"one\n{THOUGHT} two", "one\ntwo"),
        (f"one {THOUGHT} two", f"one {THOUGHT} two"),
        (f"one\n{THOUGHT}\n{CALL}\n{THOUGHT}two", "one\ntwo"),
        (f"{THOUGHT}\n\none\n", "one\n"),
        (f"one {DROPPED} two", "one two"),
        ("one <tool_call> two", "one <tool_call> two"),
        (f"one <tool_call> {CALL} two", "one <tool_call> two"),
        ('one <tool_call>{"r":1}</tool_call> two', "one  [rejected]  two"),
    ],
)
def test_words_are_never_glued(twin: ModuleType, text: str, visible: str) -> None:
    """Of whitespace that touches a block a line end stays between two texts, else a blank; it begins the later one."""
    said = [word.removeprefix("text:") for word in read(twin, text, reasoning=THINK) if word.startswith("text:")]
    assert "".join(said) == visible
    assert not any(one[-1:].isspace() for one in said[:-1])


@pytest.mark.parametrize("between", ["", " ", "\n", "\n\n \n"])
def test_whitespace_inside_a_section_is_none_between_texts(twin: ModuleType, between: str) -> None:
    call = f"<|section|>{between}<|call|>x<|args|>{{}}<|end|>{between}<|section_end|>"
    assert read(twin, f"one{call}two", "section") == ["text:one", "call:<|call|>x<|args|>{}", "text:two"]
    assert read(twin, f"one {call} two", "section")[-1] == "text: two"


def test_the_blank_comes_with_what_follows(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy())
    assert words(scanner.feed(f"one {CALL}")) == ["text:one", 'call:{"x":1}']
    assert scanner.feed(" \n") == []
    assert words(scanner.feed("two")) == ["text:\ntwo"]


def test_trim_none_keeps_whitespace_but_not_empty_text(twin: ModuleType) -> None:
    text = f"\na\n{CALL}\n{CALL}\nb "
    assert read(twin, text, trim_edges=False) == ["text:\na\n", 'call:{"x":1}', 'call:{"x":1}', "text:\n\nb "]
    assert read(twin, f" {CALL}b{CALL} ", trim_edges=False) == ['call:{"x":1}', "text: b", 'call:{"x":1}']
    assert read(twin, f" {CALL} ", trim_edges=False) == ['call:{"x":1}']
    assert read(twin, " \n", trim_edges=False) == ["text: \n"]


RUNS = [" ", "\n\n", " " * 300, "\n" * 300 + " " * 5, "\n    \n    ", "\r\n" * 200, " \t" * 3 + "\n" * 400]


@every("run", RUNS)
@every("size", [1, 2, 3, 7, 1000])
def test_a_run_waits_and_comes_back_as_it_was(twin: ModuleType, run: str, size: int) -> None:
    fed = open_scanner("sentinel", ["f"], scanner=twin.CallScanner)
    fed.feed("é")
    waited = [event for at in range(0, len(run), size) for event in fed.feed(run[at : at + size])]
    assert waited == []
    assert fed.held == run
    assert fed.feed("ü") == [Delta(0, run + "ü")]
    assert fed.held == ""


@every("run", RUNS)
def test_a_run_at_a_block_goes(twin: ModuleType, run: str) -> None:
    fed = open_scanner("sentinel", ["f"], scanner=twin.CallScanner)
    events = [*fed.feed(f"a{run}"), *fed.feed('<tool_call>{"name":"f","arguments":{}}</tool_call>'), *fed.finish()]
    assert [event.text for event in events if isinstance(event, Delta)] == ["a", "{}"]


def test_whitespace_is_held_only_up_to_the_limit(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy(), block_bytes=100)
    events = scanner.feed("a" + " " * 100)
    assert scanner.held == " " * 100
    assert scanner.feed(" ") == [Delta(0, " " * 101)]
    assert scanner.feed("  ") == [Delta(0, "  ")]
    assert words(events + scanner.feed(CALL)) == ["text:a", 'call:{"x":1}']


# --- the end of the answer (R6.8, C18, C22) -------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["", "\n", "</tool_", "\n</tool_call"])
def test_a_whole_object_without_its_closer_is_the_judges(twin: ModuleType, tail: str) -> None:
    policy = WordPolicy()
    scanner = twin.CallScanner(GRAMMARS["sentinel"], policy)
    events = scanner.feed('a <tool_call>{"x":1}' + tail) + scanner.finish()
    assert words(events) == ["text:a", 'call:{"x":1}']
    assert [(body, closed) for _, body, _, closed, *_ in policy.log] == [('{"x":1}' + tail.split("<")[0], False)]


def test_a_block_that_breaks_off_is_text_or_the_judges_error(twin: ModuleType) -> None:
    assert read(twin, 'a <tool_call>{"x":') == ['text:a <tool_call>{"x":']
    assert read(twin, 'a <tool_call>{"x":', strict=True) == ["text:a", "!malformed_tool_arguments"]


@every("tail", ["", "  ", '{"x":', '{"x":1}', '{"x":1}</tool_cal', '{"x":"</tool_call> ', "{x"])
def test_a_block_cut_off_for_length_vanishes(twin: ModuleType, tail: str) -> None:
    assert read(twin, "a <tool_call>" + tail, truncated=True) == ["text:a"]
    assert read(twin, CALL + "b<tool_call>" + tail, truncated=True) == ['call:{"x":1}', "text:b"]


def test_open_text_is_marked_as_cut(twin: ModuleType) -> None:
    assert read(twin, "a b", truncated=True) == ["text:a b [cut]"]


# --- size (R6.9) ----------------------------------------------------------------------------------------------------


def test_a_block_of_exactly_the_limit_is_a_block(twin: ModuleType) -> None:
    text = '<tool_call>{"x":"é"}</tool_call>'
    size = len(text.encode())
    assert read(twin, text, block_bytes=size) == ['call:{"x":"é"}']
    assert read(twin, text, block_bytes=size - 1) == [f"text:{text}"]
    assert read(twin, text, block_bytes=size - 1, strict=True) == ["!malformed_tool_arguments"]


def test_an_oversize_block_ends_at_a_closer_that_was_passed_over(twin: ModuleType) -> None:
    text = '<tool_call>{"x":"</tool_call> and then ' + "much text " * 10
    assert read(twin, text, block_bytes=64) == ['call:{"x":"', "text:and then " + "much text " * 10]


# --- reasoning (R6.7) -----------------------------------------------------------------------------------------------


def test_reasoning_is_a_channel_of_its_own(twin: ModuleType) -> None:
    text = f"<think>\nWhy {CALL}?\n</think>\n\nAnswer. </think> {CALL}"
    expected = [f"reasoning:\nWhy {CALL}?\n", "text:Answer. </think>", 'call:{"x":1}']
    assert read(twin, text, reasoning=THINK) == expected
    assert read(twin, text.removeprefix("<think>"), reasoning=THINK, preopened=True) == expected
    assert read(twin, text)[0] == "text:<think>\nWhy"


def test_reasoning_without_content_is_none(twin: ModuleType) -> None:
    assert read(twin, "<think>\n\n</think>\n\nAnswer.", reasoning=THINK) == ["text:Answer."]


def test_reasoning_that_does_not_end_is_closed(twin: ModuleType) -> None:
    assert read(twin, "<think>Hm </thi", reasoning=THINK) == ["reasoning:Hm </thi"]
    assert read(twin, "Hm ", reasoning=THINK, preopened=True, truncated=True) == ["reasoning:Hm  [cut]"]


def test_calls_inside_reasoning_count_if_asked_for(twin: ModuleType) -> None:
    text = f"<think>Let me {CALL} see</think>{CALL}"
    assert read(twin, text, reasoning=THINK, scan_calls=True) == [
        *["reasoning:Let me ", 'call:{"x":1}', "reasoning: see", 'call:{"x":1}']
    ]


def test_a_think_tag_inside_a_block_is_data(twin: ModuleType) -> None:
    text = '<tool_call>{"x":"<think></think>"}</tool_call>'
    assert read(twin, text, reasoning=THINK) == ['call:{"x":"<think></think>"}']


# --- other syntaxes (R6.12) -------------------------------------------------------------------------------------------


def test_fenced_json(twin: ModuleType) -> None:
    call = '```json\n{"tool_calls": ["x", "```"]}\n```'
    body = '{"tool_calls": ["x", "```"]}'
    assert read(twin, call, "fenced_json") == [f"call:{body}"]
    assert read(twin, f"Now:\n{call}\nDone", "fenced_json") == ["text:Now:", f"call:{body}", "text:\nDone"]
    for text in (f"Now: {call}", '```json\n{"x": 1}\n```', "```jsonc\n{}\n```", '```json\n{"tool_call', "```js"):
        assert read(twin, text, "fenced_json", strict=True) == [f"text:{text}"]


def test_an_ordinary_fence_is_released_with_its_first_key(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["fenced_json"], WordPolicy(strict=True))
    text = '```json\n{ "to'
    assert scanner.feed(text) == []
    assert words(scanner.feed("p")) == [f"text:{text}p"]


def test_bare_json(twin: ModuleType) -> None:
    assert read(twin, ' {"tool_calls":["x"]} \n', "bare_json") == ['call:{"tool_calls":["x"]}']
    assert read(twin, '<think>x</think>\n{"name":"x"}', "bare_json", reasoning=THINK) == [
        "reasoning:x",
        'call:{"name":"x"}',
    ]
    for text in ('{"name":"x"} and more', 'See {"name":"x"}', '{"size":1}', '{"name":"x"', "{", " {}", '{"name" "x"}'):
        assert read(twin, text, "bare_json") == [f"text:{text}"]


def test_bare_json_does_not_delay_ordinary_text(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["bare_json"], WordPolicy())
    events = scanner.feed("I")
    assert words(events) == ["text:I"]
    assert words(events + scanner.feed('{"name":"x"}')) == ['text:I{"name":"x"}']


def test_a_grammar_without_syntaxes_finds_only_reasoning(twin: ModuleType) -> None:
    assert read(twin, f"<think>a</think>{CALL}", "none", reasoning=THINK) == ["reasoning:a", f"text:{CALL}"]


# --- input (R6.5) ---------------------------------------------------------------------------------------------------


def test_bytes_may_be_cut_inside_a_character_and_be_invalid(twin: ModuleType) -> None:
    for data in ("Grüße 😀 „x“".encode(), b"\xff\xfe a\xc3", b"\xf0\x9f\x98", b"a\xe2\x82b\xf0\x9f\x98\x80\x80"):
        scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy())
        events = [event for at in range(len(data)) for event in scanner.feed(data[at : at + 1])]
        assert words(events + scanner.finish()) == [f"text:{data.decode('utf-8', 'replace')}"]


def test_surrogates_cut_by_deltas_are_joined_and_lone_ones_replaced(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy())
    events = scanner.feed("a\ud83d") + scanner.feed("") + scanner.feed("\ude00\ude00\ud83db\ud83d") + scanner.finish()
    assert words(events) == ["text:a\U0001f600\ufffd\ufffdb\ufffd"]


def test_bytes_and_text_may_take_turns(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy())
    events = scanner.feed(b"\xc3") + scanner.feed("b\ud83d") + scanner.feed(b"") + scanner.feed(b"c") + scanner.finish()
    assert words(events) == ["text:\ufffdb\ufffdc"]


# --- construction ---------------------------------------------------------------------------------------------------


@every(
    ("grammar", "reasoning", "message"),
    [
        (Grammar(syntaxes=(BlockSyntax(opener="", closer=""),)), (), "needs anchor='answer'"),
        (Grammar(syntaxes=(BlockSyntax(opener="a", closer="b", anchor="answer"),)), (), "without an opener"),
        (Grammar(syntaxes=(BlockSyntax(opener="<t>", closer="</t>"),)), (("<t", "</t"),), "part of another marker"),
        (Grammar(syntaxes=(BlockSyntax(opener="ab", closer="xabx"),)), (), "part of another marker"),
        (Grammar(syntaxes=()), (("<think>", ""),), "must not be empty"),
        (
            Grammar(syntaxes=tuple(BlockSyntax(opener=f"{c}>", closer="/") for c in "abcdefghijklmnopq")),
            (),
            "different bytes",
        ),
        (
            Grammar(syntaxes=(BlockSyntax(opener="<t>", body=((Branch(literal="x", ahead=True, then=1),), ())),)),
            (),
            "nothing can follow",
        ),
    ],
)
def test_markers_that_contradict_each_other_are_refused(
    twin: ModuleType, grammar: Grammar, reasoning: tuple[tuple[str, str], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        twin.CallScanner(grammar, WordPolicy(), reasoning=reasoning)


def test_a_block_may_end_in_front_of_what_ends_it(twin: ModuleType) -> None:
    """And a marker may stand at the end of another one: what begins first counts."""
    syntax = BlockSyntax(opener="<to=", body=((Branch(literal="me>", ahead=True), Branch(literal="you>")),))
    grammar = Grammar(syntaxes=(syntax, BlockSyntax(opener=">", closer="<")), reasoning=(("me>", "</me>"),))
    for size in (1, 50):
        text = "<to=me>Hm.</me> <to=you>Yes. <to=them"
        scanner = twin.CallScanner(grammar, WordPolicy(), reasoning=grammar.reasoning)
        events = [event for at in range(0, len(text), size) for event in scanner.feed(text[at : at + size])]
        assert words(events + scanner.finish()) == ["reasoning:Hm.", "text:Yes. <to=them"]


def test_nesting_beyond_the_bound_is_malformed(twin: ModuleType) -> None:
    for depth, end in ((999, "tail"), (1000, "broken")):
        scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy())
        scanner.feed('<tool_call>{"x":' + "[" * depth + "]" * depth + "}")
        assert scanner.state == end


@pytest.mark.parametrize("size", [1, 7, 100])
def test_what_ran_over_the_closer_is_no_piece_of_the_block(twin: ModuleType, size: int) -> None:
    """A quote that is not closed hides a closer; once the block turns out broken, it is the whole body that is
    judged."""
    text = "<calls>f(a='x</calls><calls>g(')')\n[f()]</calls>1"
    policy = WordPolicy()
    scanner = twin.CallScanner(GRAMMARS["code"], policy)
    for at in range(0, len(text), size):
        scanner.feed(text[at : at + size])
    scanner.finish()
    assert policy.log == [
        ("<calls>", "f(a='x", (("call", "f(a='x"),), True, True, True),
        ("<calls>", "g(')')\n[f()]", (("call", "g(')')"), ("call", "[f()]")), True, True, False),
    ]


@every("size", [1, 13, 1000])
@every(("spaces", "follows"), [(40, True), (41, False)])
def test_whitespace_beyond_the_limit_parts_what_follows_a_block(
    twin: ModuleType, spaces: int, follows: bool, size: int
) -> None:
    """However it comes: whitespace that is kept waits for what follows, but not more of it than `block_bytes`."""
    text = "<|call|>x<|args|>{}<|end|>" + " " * spaces + "<|section_end|>z"
    scanner = twin.CallScanner(GRAMMARS["section"], WordPolicy(), block_bytes=40, trim_edges=False)
    events = [event for at in range(0, len(text), size) for event in scanner.feed(text[at : at + size])]
    shown = words(events + scanner.finish())
    assert ("<|section_end|>" in "".join(shown)) is not follows


def test_a_word_may_end_in_what_was_held_for_another_opener(twin: ModuleType) -> None:
    """MiniMax M3's opener holds a `>`, which ends a key: where it is no opener after all, the key has ended in an
    earlier delta."""
    mark = "]<]minimax[>["
    text = f'So. {mark}<tool_call>\n{mark}<invoke name="f">{mark}{mark}</tool_call>>\n{mark}</s>{mark}<l>1{mark}</l>x'
    results = []
    for size in (*range(1, 40), len(text)):
        scanner = open_scanner("minimax_m3", ["f"], scanner=twin.CallScanner)
        events = [event for at in range(0, len(text), size) for event in scanner.feed(text[at : at + size])]
        results.append("".join(event.text for event in [*events, *scanner.finish()] if isinstance(event, Delta)))
    assert set(results) == {text}
