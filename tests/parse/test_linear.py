"""The cost of scanning is linear, whatever the input (R6.10). Work is counted, not timed. The large texts are so long
that a quadratic scanner would not come back."""

from __future__ import annotations

from itertools import product
from types import ModuleType
from typing import Any

import pytest

from tests.cases import every
from tests.parse.conftest import some
from tests.parse.policies import WordPolicy
from tests.parse.texts import GRAMMARS, literals_of
from toolwire.events import Delta
from toolwire.scan import _pyparse

MARKER = len("</tool_call>")

ADVERSARIES = {
    "half openers": "<tool_cal",
    "angles": "<",
    "mentions": "<tool_call>",
    "mentions with text": "<tool_call> a ",
    "fences that are none": "<tool_call>``` ",
    "openers in strings": '<tool_call>{"',
    "broken blocks": "<tool_call>{</tool_call>",
    "closers in strings": '<tool_call>{"a":"</tool_call>"b',
    "closers and openers in strings": '<tool_call>{"a":"</tool_call><tool_call>{":"',
    "quotes": '<tool_call>{"</tool_call>"',
    "escapes": '<tool_call>{"\\\\\\"',
    "half closers": "<tool_call>{x</tool_cal",
    "brackets": '<tool_call>{"a":[',
    "whitespace": "<tool_call>   \n",
    "spaces": " ",
    "letters": "a",
    "backticks": "`",
    "fences": "```json\n",
    "fenced calls": '```json\n{"tool_calls":"```\n',
    "keys": '```json\n{"tool_call',
    "thoughts": "<think></think>",
    "thoughts and ticks": "<think>`</think>`",
    "bare": '{"name":"',
    "not ascii": "<tool_call>é",
    "a whole block": '<tool_call>{"x":1}</tool_call> ',
}

CLOSERS = [
    *("</parameter>", "</parameter> ", "</parameter> x", "</parameter></param", "</parameter>\n</function>"),
    *("</parameter></function>  \n", "</parameter></function></tool_cal"),
    *("</parameter>\n</function>\n</parameter", "\n</function>"),
]
"""What would end a value if something else followed."""

PLACES = {
    "tagged": [
        ("<tool_call><function=f>", "<parameter="),
        ("<tool_call><function=f>", "<parameter=k>v</parameter>"),
        ("<tool_call><function=f><parameter=k>", "</parameter"),
        ("<tool_call><function=f><parameter=k>", "\n<parameter"),
        ("<tool_call><function=f><parameter=k>", "<"),
        ("<tool_call><function=f><parameter=k>", "\n"),
        *(("<tool_call><function=f><parameter=k>", closers) for closers in CLOSERS),
        ("", "<tool_call><function="),
        ("", "<tool_call><function=f>"),
        ("", "<function=f><parameter=k>"),
        ("", "<tool_call><function=f><parameter=k></tool_call>"),
    ],
    "pairs": [
        ("", "<tool_call>x"),
        ("", "<tool_call>x<k>"),
        ("<tool_call>x", "<k>a</k><v>b</v>"),
        ("", "<tool_call>\n"),
        ("<tool_call>", "x"),
        ("<tool_call>x<k>", "</k"),
    ],
    "mistral": [
        ("", "[CALLS]"),
        ("", "[CALLS]f"),
        ("", "[CALLS]f[ARGS"),
        ("", "[CALLS]f[ARGS]{"),
        ("[CALLS]", "["),
        ("", "[CALLS]["),
        ("", "["),
    ],
    "code": [
        ("", "[f("),
        ("[f(", "["),
        ("<|start|>[f(", "("),
        ("<|start|>[f(x='", "'"),
        ("<|start|>[f(x='", "' "),
        ("<|start|>[f(x='", "'a"),
        ("<|start|>[f(x='", "\\"),
        ("<|start|>[", "f(a='b'), "),
        ("<calls>", "f() "),
        ("", "<calls>f("),
        ("", "<|start|>[f(]"),
    ],
    "braces": [
        ("<call>call:f{", "["),
        ("<call>call:f{", "<q>"),
        ("<call>call:f{x:<q>", "<"),
        ("<call>call:f{x:<q>", "<q><"),
        ("", "<call>call:"),
        ("", "<call>call:f{x:<q>"),
    ],
    "separated": [("", '{"a":1};'), ('{"a":1}', ";"), ("", '<tag>[{"name":'), ('{"a":1}', " "), ("<tag>", "[")],
    "section": [
        ("", "<|section|>"),
        ("", "<|call|>x<|args|>{"),
        ("", "<|section|><|call|>x<|args|>{}<|end|>"),
        ("<|section|><|call|>x<|args|>{}<|end|>", "<|section_end|> "),
        ("", "<|start|> "),
        ("<|call|>", "<|arg"),
    ],
    "recognised": [
        *(("", unit) for unit in ADVERSARIES.values()),
        ("", '{"name":\n'),
        ("", '{"name":{}}\n'),
        ("", '\n{"name":{"a":'),
        ("", "\n```\n"),
        ("", '\n```\n{"name":1}'),
        ("", '```\n{"name":[\n'),
        ("", "<tag>[CALLS]<function=<tool_call>"),
        ("", "<tag>{<tag>{}"),
        ("", '<tag>{"'),
        ("", "<tool_call><tag>"),
        ("", "<function=f>"),
        ("", "<function=f><parameter=k>"),
        ("[", "{'name':"),
        ("", "f("),
        ("", "`{` "),
        ("", " "),
        ("", "[CALLS]"),
    ],
    "recognised beside others": [("", '```json\n{"name":'), ("", '{"name":'), ("", '```json\n{"tool_calls":{\n')],
    "nothing taught": [("", "<tool_call>{<tag>"), ("", "[CALLS][<tag>{")],
    "families": [("", '[CALLS][{"x":1}] <tool_call>'), ("", "[CALLS]<tool_call>{"), ("", "```json\n"), ("", "<")],
}
"""What to begin with, and what to repeat, for grammars of nodes and branches."""


WAYS = [(1, False), (1, True), (7, True), (100_000, False)]
"""The size of deltas, and whether blocks are held until they are judged."""


def large(twin: ModuleType) -> int:
    """A size at which quadratic work takes minutes: the Python scanner needs less of it."""
    return 1 << (15 if twin is _pyparse else 18)


def run(twin: ModuleType, form: str, text: str, size: int, **options: Any) -> tuple[int, int]:
    """Work done and text given out."""
    strict = options.pop("strict", False)
    policy = WordPolicy()
    policy.strict = strict  # held blocks, but no decision of failure, which would end the run
    scanner = twin.CallScanner(GRAMMARS[form], policy, reasoning=(("<think>", "</think>"),), **options)
    policy.block = lambda block: WordPolicy().block(block)  # type: ignore[method-assign]  # soft decisions
    policy.unfinished = lambda syntax, body, why: WordPolicy().unfinished(syntax, body, why)  # type: ignore[method-assign]
    said = 0
    for at in range(0, len(text), size):
        said += sum(len(e.text) for e in scanner.feed(text[at : at + size]) if isinstance(e, Delta))
    said += sum(len(e.text) for e in scanner.finish() if isinstance(e, Delta))
    return scanner.steps, said


@every("form", list(PLACES))
def test_work_is_bounded_in_every_machine(twin: ModuleType, form: str) -> None:
    longest = max(len(literal.encode()) for literal in literals_of(GRAMMARS[form]))
    for (begin, unit), (size, strict) in some(twin, product(PLACES[form], WAYS), 7):
        text = begin + unit * (2_500 // len(unit))
        steps, said = run(twin, form, text, size, strict=strict)
        deltas = -(-len(text) // size)
        looks = 4 if strict else 3  # a short field, then held, then text
        looks += 3 * any(syntax.untaught for syntax in GRAMMARS[form].syntaxes)  # and all that as something else
        assert steps <= looks * len(text.encode()) + longest * deltas, (begin, unit, size, strict)
        assert said <= len(text), (begin, unit, size, strict)


@every(
    ("form", "begin", "bracket"),
    [
        ("code", "<|start|>[f(", "["),
        ("code", "<calls>f(", "{"),
        ("code", "[f(", "("),
        ("mistral", "[CALLS]", "["),
        ("braces", "<call>call:f{", "{"),
        ("section", "<|call|>f<|args|>", '{"a":'),
    ],
)
@every("size", [1, 100_000])
def test_very_many_open_brackets(twin: ModuleType, form: str, begin: str, bracket: str, size: int) -> None:
    text = begin + bracket * (large(twin) // 10)
    steps, said = run(twin, form, text, size)
    assert steps <= 3 * len(text) + 2 * MARKER * -(-len(text) // size)
    assert said == len(text)


@pytest.mark.parametrize("size", [9, 1 << 18])
@pytest.mark.parametrize("closers", ["</parameter> x", "</parameter>" + " " * 100_000], ids=["near", "far"])
def test_many_closers_in_a_large_value(twin: ModuleType, closers: str, size: int) -> None:
    """Nothing is copied or read again for each of them."""
    text = "<tool_call><function=f><parameter=k>" + closers * ((1 << 18) // len(closers)) + "x"
    _, said = run(twin, "tagged", text, size)
    assert said == len(text)


@every("name", list(ADVERSARIES))
def test_a_large_delta_is_not_read_again_and_again(twin: ModuleType, name: str) -> None:
    """Look-ahead is not in `steps`. If it began anew at every block, so large a delta would take minutes."""
    unit = ADVERSARIES[name]
    text = unit * (large(twin) // len(unit))
    _, said = run(twin, "several", text, len(text))
    assert said <= len(text)


def test_a_large_quotation_is_not_read_again_at_every_opener(twin: ModuleType) -> None:
    text = "> " + "<tool_call>" * large(twin)
    _, said = run(twin, "several", text, len(text))
    assert said == len(text)


def test_a_large_block_in_tiny_pieces(twin: ModuleType) -> None:
    body = '{"x":"' + "\\n é" * (large(twin) // 6) + '"}'
    text = f"<tool_call>{body}</tool_call>"
    steps, said = run(twin, "sentinel", text, 5)
    assert said == len(body)
    assert steps <= 2 * len(text.encode())
