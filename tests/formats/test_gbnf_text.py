"""Grammars of answers with text in them (R23.2): any text is possible in which no call begins, and a call that has
begun is one that fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import jsonschema_rs
import pytest

from tests.cases import every
from tests.e2e.test_framing import SAID
from tests.formats.cases import FORMATS, bare, every_format
from tests.formats.sampler import Acceptor, Grammar
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import LimitsConfig, ReasoningConfig, RouteOptions
from toolwire.events import Finish, Start
from toolwire.folding import fold
from toolwire.formats.base import ToolFormat, whole_answer
from toolwire.formats.families import harmony
from toolwire.formats.gbnf.grammar import AllowedText, Inexpressible
from toolwire.formats.gbnf.notation import literal, sequence
from toolwire.formats.gbnf.rules import GrammarBounds
from toolwire.formats.gbnf.text import Pattern, TextWithout, spaced, units
from toolwire.formats.gbnf.values import ValueRules
from toolwire.model import Part, Reasoning, ToolChoice, ToolSpec, ToolUse
from toolwire.model import Text as TextPart
from toolwire.scanner import build_scanner, reasoning_tags

UNIT = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1}, "unit": {"enum": ["c", "f"]}, "days": {"type": "integer"}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}  # fmt: skip
TOOLS = (ToolSpec("get_weather", None, UNIT), ToolSpec("get_weather_map", None, UNIT), ToolSpec("stop", None, None))
SCHEMAS = {"get_weather": UNIT, "get_weather_map": UNIT, "stop": {"type": "object"}}
USE = ToolUse("call_1", "get_weather", '{"city":"Oslo <b>","unit":"c","days":3}')
STOP = ToolUse("call_2", "stop", "{}")
THINK = ReasoningConfig()


def around(tool_format: ToolFormat, **more: Any) -> AllowedText:
    grammar = tool_format.grammar
    thinking = () if grammar.calls_in_reasoning else reasoning_tags(grammar, THINK)
    return AllowedText(**{"text": True, "thinking": thinking, **more})


@cache
def acceptor_of(tool_format: ToolFormat, *, parallel: bool = True, **more: Any) -> Acceptor:
    return Acceptor(Grammar(whole_answer(tool_format, TOOLS, parallel, around=around(tool_format, **more))))


def read(tool_format: ToolFormat, text: str) -> tuple[Part, ...]:
    """What a gateway reads in an answer."""
    options, limits = RouteOptions(), LimitsConfig()
    policy = CallPolicy(TOOLS, choice=ToolChoice(), parallel=True, options=options, limits=limits)
    scanner = build_scanner(tool_format.grammar, policy, options, limits)
    return fold([Start("r", "m", 0), *scanner.feed(text), *scanner.finish(), Finish()]).choices[0].parts


who_thinks = every("tool_format", [f for f in FORMATS if not f.grammar.calls_in_reasoning])
"""Without the formats whose calls count inside reasoning too: to them that is text like any other."""

PROSE = [
    "",
    "Paris is the capital of France.",
    "Zürich 😀 \u2028 \t and\r\nfour lines\n\nof text. ",
    '{"name": "Alice", "age": 30, "pets": [{"name": "get_wetter"}]}',
    '  {\n  "city": "Paris",\n  "arguments": null}',
    '[1, 2, {"a": "b"}]',
    "[get_wetter](https://example.com) is a link, [x] a box",
    '```json\n{"name": "x", "version": "1.0"}\n```\nThat is a package.json.',
    "```python\nprint(a < b << 2, x[1:2])\n```",
    "<b>HTML</b>, <div>, <tool>, <tool_, <|im_start, <function, <｜, [TOOL, <s, `<tool_call>` and a lone <",
    "if a < b and c > d: return {'k': [1]}",
    "<thin>not thinking</thin> <think is near",
    "/".join("<" * n for n in range(9)),
    "The answer is: {",
    "{",
    "[",
    "```json",
    '{"tool": 1}',
    "functools, call:, function call, commentary to=",
]


@every_format
def test_text_in_which_no_call_begins_is_possible(tool_format: ToolFormat) -> None:
    acceptor = acceptor_of(tool_format)
    for text in PROSE:
        refused = acceptor.refused_at(text)
        assert refused is None, text[: refused + 1]
    # A token costs what it costs without a grammar: few ways are followed at any time.
    assert acceptor.most <= 12


THOUGHT = '<think>I might write <tool_call> {"tool_calls" or [stop( here.</think>\n'


@every_format
@every("before", ["", "Let me look.\n\n", THOUGHT])
def test_calls_are_possible_where_they_are_read(tool_format: ToolFormat, before: str) -> None:
    """Behind text where the format allows that; and then the answer is over."""
    if tool_format.grammar.calls_in_reasoning and before == THOUGHT:
        before = "<think>I might write something here.</think>\n"
    acceptor = acceptor_of(tool_format)
    assert tool_format.render_calls is not None
    for uses in ([USE], [STOP, USE, STOP]):
        text = before + tool_format.render_calls(uses)
        calls = [(use.name, use.arguments) for use in uses]
        assert [part for part in bare(read(tool_format, text)) if isinstance(part, tuple)] == (
            calls if not (tool_format.alone and before.startswith("Let")) else []
        )
        assert acceptor.accepts(text), text[: (acceptor.refused_at(text) or 0) + 1]
        assert acceptor.accepts(text + "\n")
        if not (tool_format.alone and before.startswith("Let")):
            assert not acceptor.accepts(text + "\nThat was the call."), "text behind a call"


@every_format
def test_one_call_where_only_one_is_wanted(tool_format: ToolFormat) -> None:
    acceptor = acceptor_of(tool_format, parallel=False)
    assert tool_format.render_calls is not None
    assert acceptor.accepts(tool_format.render_calls([USE]))
    assert not acceptor.accepts(tool_format.render_calls([USE, STOP]))


@every_format
def test_a_call_that_has_begun_can_only_fit(tool_format: ToolFormat) -> None:
    acceptor = acceptor_of(tool_format)
    for arguments in (
        *('{"city":"Oslo","unit":"kelvin"}', '{"unit":"c"}', '{"city":"","unit":"c"}'),
        *('{"city":"Oslo","unit":"c","more":1}', '{"city":"Oslo","unit":"c","days":"three"}'),
    ):
        text = tool_format.render_call(ToolUse("call_1", "get_weather", arguments))
        assert not acceptor.accepts(text), text


@every_format
def test_an_unknown_tool_is_not_called(tool_format: ToolFormat) -> None:
    """Where the beginning of a call says nothing but that, it goes on with a tool on offer; where it may be something
    else it stays text."""
    text = tool_format.render_call(ToolUse("call_1", "delete_all", "{}"))
    if tool_format.name not in ("llama3_json", "xlam", "pythonic", "functionary"):
        assert not acceptor_of(tool_format).accepts(text)
    assert not any(isinstance(part, ToolUse) for part in read(tool_format, text))


@every_format
def test_whatever_follows_the_beginning_of_a_call_fits(tool_format: ToolFormat) -> None:
    """Cut off anywhere and gone on with at random: what is read is calls that fit, and text."""
    bounds = GrammarBounds(string=6, items=3, calls=3)
    source = whole_answer(tool_format, TOOLS, True, bounds, around=around(tool_format))
    acceptor = Acceptor(Grammar(source))
    random = Random(tool_format.name)
    whole = ("" if tool_format.alone else "Well.\n") + tool_format.render_call(USE)
    called = 0
    for cut in range(0, len(whole), 3):
        text = acceptor.go_on(whole[:cut], random)
        for part in () if text is None else read(tool_format, text):
            if isinstance(part, ToolUse):
                called += 1
                arguments = json.loads(part.arguments)
                assert jsonschema_rs.validator_for(SCHEMAS[part.name]).is_valid(arguments), text
            else:
                assert isinstance(part, TextPart | Reasoning)
    assert called >= 5, "the writer found no call"


@who_thinks
def test_thinking_that_the_prompt_has_begun_comes_first(tool_format: ToolFormat) -> None:
    opened, closed = reasoning_tags(tool_format.grammar, THINK)[0]
    free = acceptor_of(tool_format, preopened=True)
    call = tool_format.render_call(USE)
    assert free.accepts(f"So {call} or not?{closed}\n\n{call}")
    assert free.accepts(f"So.{closed}\n\nNo call.")
    assert free.accepts("Thinking that has no end")
    demanded = acceptor_of(tool_format, preopened=True, text=False)
    assert demanded.accepts(f"So {opened} or not?{closed}\n\n{call}")
    assert demanded.accepts(f"{closed}{call}")
    for text in (call, "So.", f"So.{closed}", f"So.{closed}\nNo call.", f"So.{closed}{call} And more."):
        assert not demanded.accepts(text), text


@who_thinks
def test_thinking_that_nobody_announced_is_over_with_its_closer(tool_format: ToolFormat) -> None:
    """A template may have begun it: what comes behind the closer is the answer."""
    call = tool_format.render_call(USE)
    acceptor = acceptor_of(tool_format)
    assert acceptor.accepts(f"The user wants something.</think>{call}")
    assert not acceptor.accepts(f"The user wants something.</think>{call} And more.")


@every_format
def test_what_stands_around_an_answer_may_be_written(tool_format: ToolFormat) -> None:
    said = SAID.get(tool_format.name, "Hello.")
    acceptor = acceptor_of(tool_format)
    refused = acceptor.refused_at(said)
    assert refused is None, said[: refused + 1]
    assert acceptor.accepts(said)
    assert acceptor.most <= 12


@every_format
def test_text_costs_about_a_rule_for_each_tool(tool_format: ToolFormat) -> None:
    """Where calls are known by the names of tools, names begin alike; elsewhere it costs the same for any number of
    them."""
    assert tool_format.gbnf is not None
    rules = []
    for number in (2, 30):
        tools = [ToolSpec(f"tool_number_{n}", None, UNIT) for n in range(number)]
        free = whole_answer(tool_format, tools, True, around=around(tool_format))
        rules.append(free.count("\n") - tool_format.gbnf(tools, True).count("\n"))
    assert rules[0] <= 600
    assert rules[1] - rules[0] <= 60


def test_messages_of_gpt_oss() -> None:
    acceptor = acceptor_of(harmony.FORMAT)
    thought = "<|channel|>analysis<|message|>Need <|channel|>commentary to=functions.stop it.<|end|><|start|>assistant"
    assert acceptor.accepts(f"{thought}<|channel|>final<|message|>Done.<|return|>")
    call = "<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{}<|call|>"
    assert acceptor.accepts(thought + call)
    assert not acceptor.accepts(thought + call.replace("stop", "other"))


def test_a_format_without_a_layout_says_so() -> None:
    own = ToolFormat(
        name="own",
        grammar=harmony.GRAMMAR,
        instructions="",
        render_tools=str,
        render_call=str,
        render_result=str,
        gbnf=harmony.FORMAT.gbnf,
    )
    with pytest.raises(Inexpressible, match="own"):
        whole_answer(own, TOOLS, True, around=AllowedText(text=True))


# --- the automaton --------------------------------------------------------------------------------------------------


def strings(alphabet: str, length: int) -> Iterator[str]:
    """All strings of up to `length` characters."""
    yield ""
    for text in strings(alphabet, length - 1) if length else ():
        for char in alphabet:
            if len(text) == length - 1:
                yield text + char
    if length > 1:
        yield from (text for text in strings(alphabet, length - 1) if text)


@pytest.mark.parametrize(
    "barred", [("ab",), ("aab", "ba"), ("aba", "bb"), ("a",), ("abab", "baa"), ("aa", "ab", "ba")], ids=repr
)
def test_text_without_patterns_is_exactly_that(barred: tuple[str, ...]) -> None:
    rules = ValueRules(GrammarBounds())
    text = TextWithout(tuple(Pattern.of(one, None) for one in barred), may_end=True)
    acceptor = Acceptor(Grammar(rules.text(text.rule(rules))))
    for tried in strings("abc", 6):
        assert acceptor.accepts(tried) is not any(one in tried for one in barred), tried


@every("ends", ["ab", "aab", "aba", "abc"])
@every(("low", "high"), [(0, None), (2, None), (0, 3), (2, 3), (1, 1)])
def test_text_up_to_its_end_is_exactly_as_long(ends: str, low: int, high: int | None) -> None:
    """The end is the first place at which it can be read, as whoever reads it does."""
    rules = ValueRules(GrammarBounds())
    text = TextWithout((Pattern.of(ends, literal("!")),))
    acceptor = Acceptor(Grammar(rules.text(text.rule(rules, low, high))))
    for tried in strings("abc", 6):
        at = (tried + ends).index(ends)
        fits = at == len(tried) and low <= at and (high is None or at <= high)
        assert acceptor.accepts(tried + ends + "!") is fits, tried
        assert not acceptor.accepts(tried)


def test_patterns_at_the_start_of_lines_and_texts() -> None:
    rules = ValueRules(GrammarBounds())
    then = sequence(literal("!"))
    text = TextWithout((Pattern(units("ab"), then, "line"), Pattern(units("ba"), then, "start"), Pattern(units("cc"), then, "plain")), may_end=True)  # fmt: skip
    acceptor = Acceptor(Grammar(rules.text(text.rule(rules))))
    for tried, fits in {
        "ab!": True, "ab": False, "x\nab!": True, "x\nab": False, "xab": True, "ba!": True, "ba": False, "x\nba": True, "xcc": False,
        "xcc!": True, "x`cc": True, "x`ccc": False, "x`ccc!": True, "x`c": True,
    }.items():  # fmt: skip
        assert acceptor.accepts(tried) is fits, tried


def test_whitespace_where_json_allows_it() -> None:
    rules = ValueRules(GrammarBounds())
    text = TextWithout((Pattern(spaced('{"a b":["c'), literal("!"), "start"),), may_end=True)
    acceptor = Acceptor(Grammar(rules.text(text.rule(rules))))
    for tried in ('{"a b":["c', ' {\n "a b" : [\t"c'):
        assert acceptor.accepts(f"{tried}!")
        assert not acceptor.accepts(tried)
    for tried in ('{"a  b":["c', '{"ab":["c', '{"a b":[" c'):
        assert acceptor.accepts(tried)
