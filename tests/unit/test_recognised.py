"""The test that a call in a form which nobody taught has to pass (R23.1), on blocks as a scanner gives them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tests.cases import every
from tests.corpus.answers import all_tools
from toolwire.call_policy.recognised import REASONS
from toolwire.formats.families.hermes import GRAMMAR as HERMES
from toolwire.model import ToolChoice, ToolSpec
from toolwire.scan._grammar import AS_TEXT, DROPPED, BlockSyntax, Branch, Field, Why

from .policy_bench import TAGS, PolicyBench


def untaught(family: str, *states: tuple[Branch, ...]) -> BlockSyntax:
    """A form of a whole answer that nobody taught."""
    return BlockSyntax(opener="", anchor="answer", body=states, family=family, untaught=True)


ONE_OBJECT = Branch(read="object", field="call", then=1)
OBJECT = untaught("object", (ONE_OBJECT,), (ONE_OBJECT, Branch()))
LIST = untaught("list", (Branch(read="array", field="calls"),))
PYTHON = untaught("python", (Branch(read="call", field="call"), Branch(read="list", field="calls")))
UNTAUGHT_TAGS = dataclasses.replace(TAGS, framed=False, untaught=True)


def tool(name: str, *, strict: bool | None = None) -> ToolSpec:
    """A tool of the corpus."""
    return ToolSpec(name, parameters=all_tools()[name]["parameters"], strict=strict)


WEATHER, SEARCH, TIME = tool("get_weather"), tool("search"), tool("get_time")


class Bench(PolicyBench):
    def __init__(self, *tools: ToolSpec, any_name: bool = False, **options: Any) -> None:
        super().__init__(*(() if any_name else tools or (WEATHER, SEARCH, TIME)), syntax=OBJECT, **options)

    def is_text(self, text: str, reason: str | None, *syntax: Any, **block: Any) -> None:
        """It must be ordinary text, and nothing else may have happened."""
        assert self.block(text, *syntax, **block) == AS_TEXT
        assert self.counts == ({"unrecognised": 1} if reason else {})
        assert self.labels == ({("unrecognised", reason): 1} if reason else {})


ONE = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
TWO = '{"name": "search", "arguments": {"query": "x"}}'


FAILS = [
    ('{"name": "other", "arguments": {"query": "x"}}', None),
    ('{"name": "Search", "arguments": {"query": "x"}}', "name"),
    ("{}", None),
    ('{"name": "search", "arguments": {}}', "schema"),
    ('{"name": "search"}', "schema"),
    ('{"name": "search", "arguments": {"query": "x", "limit": "many"}}', "schema"),
    ('{"name": "search", "arguments": "all of it"}', "arguments"),
    ('{"name": "search", "version": "1.0", "private": true}', "arguments"),
    ('{"name": "search", "arguments": {"query": "x"}', "arguments"),  # not closed, and not said to be broken
    ('{"name": "search", "arguments": {"query": say "x"}}', "arguments"),
    ('{"name": "search", "version": say "x"}', None),
    ('{"name": "get_time", "description": "The time.", "parameters": {}}', "definition"),
    (
        '{"name": "get_time", "parameters": {"type": "object", "properties": {"timezone": {"type": "string"}}}}',
        "definition",
    ),
    (
        '{"type": "function", "function": {"name": "get_time", "description": "The time.", "parameters": {"type": "object",'
        ' "properties": {}}}}',
        "definition",
    ),
]
"""Text, and the reason why it is no call; None: nothing shows that it was meant as one."""


@every(("text", "reason"), FAILS)
@every("strict", [None, True])
def test_what_fails_is_text_and_never_a_failure(text: str, reason: str | None, strict: bool | None) -> None:
    tools = [tool(name, strict=strict) for name in ("get_weather", "search", "get_time")]
    Bench(*tools, strict_failure="error").is_text(text, reason, closed=not text.endswith('"x"}'))


def test_every_reason_has_a_case() -> None:
    assert {reason for _, reason in FAILS if reason} == set(REASONS)


def test_a_tool_that_needs_nothing_is_called_by_its_name() -> None:
    for more in ("", ', "arguments": ""', ', "parameters": {}'):
        assert Bench().call(f'{{"name": "get_time"{more}}}').arguments == "{}"
    assert Bench(ToolSpec("ping")).call('{"name":"ping"}').arguments == "{}"
    Bench(ToolSpec("ping")).is_text('{"name": "ping", "version": "1"}', "arguments")


def test_properties_may_be_called_as_those_of_a_schema() -> None:
    schema = {"type": "object", "properties": {"type": {"type": "string"}, "properties": {"type": "object"}}}
    arguments = '{"type": "object", "properties": {"a": 1}}'
    found = Bench(ToolSpec("make", parameters=schema)).call(f'{{"name": "make", "arguments": {arguments}}}')
    assert found.arguments == arguments


def test_only_tools_that_may_be_called() -> None:
    Bench(choice=ToolChoice("named", "get_time")).is_text(TWO, None)
    Bench(choice=ToolChoice("none")).is_text(TWO, None)
    assert Bench(choice=ToolChoice("named", "search")).call(TWO)
    off = Bench()
    off.policy.recognises = False
    off.is_text(TWO, None)
    # With nothing known of the tools, arguments only have to parse.
    assert Bench(any_name=True).call('{"name": "what", "arguments": {"ever": 1}}').name == "what"
    Bench(any_name=True).is_text('{"name": "what", "arguments": "ever"}', "arguments")
    grouped = ToolSpec("now", namespace="clock")
    assert Bench(WEATHER, grouped).policy.callable_names == ("get_weather", "clock__now", "now")
    assert Bench(choice=ToolChoice("named", "search")).policy.callable_names == ("search",)
    assert Bench(any_name=True).policy.callable_names == ()


def test_of_several_readings_the_first_that_fits() -> None:
    # By its name this is a call of `search`, whose arguments do not fit; `get_time` is what stands under `tool`.
    found = Bench().call('{"name": "search", "tool": "get_time", "arguments": {"timezone": "UTC"}}')
    assert (found.name, found.arguments) == ("get_time", '{"timezone": "UTC"}')
    nested = '{"name": "search", "arguments": "{\\"query\\":1}"}'
    assert Bench().call(f'{{"type": "function", "id": "1", "function": {nested}}}')


def test_arguments_are_mended_before_they_are_judged() -> None:
    bench = Bench()
    text = '{"name": "search", "arguments": {"query": "x", "limit": "5"}}'
    assert bench.call(text).arguments == '{"query": "x", "limit": 5}'
    assert bench.counts == {"calls": 1, "recognised": 1, "coerced": 1}
    assert bench.labels[("coerced", "number")] == 1
    Bench(coerce="off").is_text(text, "schema")
    Bench(tool("search", strict=True)).is_text(text, "schema")


@every(
    ("text", "kinds"),
    [
        ("{'name': 'search', 'arguments': {'query': 'it\\'s', 'kinds': ['code']}}", {"quotes"}),
        ('{"name": "search", "arguments": {"query": "two\nlines"}}', {"controls"}),
        ('{"name": "search", "arguments": {"query": "x",},}', {"commas"}),
        ('{"name": "search", "arguments": {"query": "x"}', {"brackets"}),
        ('```json\n{"name": "search", "arguments": {"query": "x"}\n```', {"fence", "brackets"}),
    ],
)
def test_json_is_repaired_but_not_for_a_strict_tool(text: str, kinds: set[str]) -> None:
    bench = Bench()
    assert bench.call(text, broken=True).name == "search"
    assert {label for name, label in bench.labels if name == "repaired"} == kinds
    assert Bench(repair="off").block(text, broken=True) == AS_TEXT
    assert Bench(tool("search", strict=True)).block(text, broken=True) == AS_TEXT


def test_what_is_not_closed_is_repaired_only_where_that_is_wanted() -> None:
    text = '{"name": "get_time", "arguments": {}}'
    syntax = HERMES.syntaxes[0]
    untaught = BlockSyntax(opener=syntax.opener, closer=syntax.closer, family="hermes", untaught=True)
    bench = Bench()
    assert bench.call(text, untaught, closed=False)
    assert bench.counts == {"calls": 1, "recognised": 1, "unclosed_repaired": 1, "repaired": 1}
    for unclosed in ("text", "error"):
        Bench(tool("get_time", strict=True), unclosed=unclosed).is_text(text, None, untaught, closed=False)


@every("why", ["end", "truncated", "oversize"])
@every("strict", [None, True])
def test_what_has_no_end_is_text(why: Why, strict: bool | None) -> None:
    bench = Bench(tool("search", strict=strict))
    assert bench.policy.unfinished(OBJECT, '{"name": "search", "argu', why) == AS_TEXT
    assert bench.policy.unfinished(UNTAUGHT_TAGS, "seek", why) == AS_TEXT
    assert not bench.counts
    assert bench.policy.unfinished(UNTAUGHT_TAGS, "search", why) == AS_TEXT
    assert bench.counts == ({"unrecognised": 1} if why == "end" else {})


# --- several calls --------------------------------------------------------------------------------------------------


IN_TAGS: tuple[tuple[Field, str], ...] = (
    *(("name", "get_weather"), ("arguments", '{"city": "Oslo"}')),
    *(("name", "search"), ("arguments", '{"query": "x"}')),
)


@every(
    ("syntax", "pieces"),
    [
        (OBJECT, (("call", ONE), ("call", TWO))),
        (LIST, (("calls", f"[{ONE}, {TWO}]"),)),
        (OBJECT, (("call", f'{{"tool_calls": [{ONE}, {TWO}]}}'),)),
        (PYTHON, (("calls", "[get_weather(city='Oslo'), search('x')]"),)),
        (UNTAUGHT_TAGS, IN_TAGS),
    ],
)
def test_all_calls_of_a_block_or_none(syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> None:
    bench = Bench()
    found = [(call.name, json.loads(call.arguments)) for call in bench.pieces(*pieces, syntax=syntax).calls]
    assert found == [("get_weather", {"city": "Oslo"}), ("search", {"query": "x"})]
    assert bench.counts["recognised"] == bench.labels["recognised", syntax.family] == 2
    only_one = Bench(WEATHER)
    assert only_one.pieces(*pieces, syntax=syntax) == AS_TEXT
    assert only_one.labels == {("unrecognised", "name"): 1}


@every(
    ("text", "syntax", "field"),
    [("[]", LIST, "calls"), ('{"tool_calls": []}', OBJECT, "call"), ("[]", PYTHON, "calls")],
)
def test_a_list_of_nothing_is_text(text: str, syntax: BlockSyntax, field: Field) -> None:
    Bench().is_text(text, None, syntax, field)
    Bench().is_text(text, None, BlockSyntax(opener="<calls>", closer="</calls>", family="x", untaught=True), "calls")
    Bench().is_text("Hello", None, UNTAUGHT_TAGS, "said")


def test_the_rules_of_other_calls_hold() -> None:
    alone = Bench(parallel=False)
    assert [call.name for call in alone.block(f"[{ONE}, {TWO}]", LIST, "calls").calls] == ["get_weather"]
    assert alone.block('{"name": "search"}') == AS_TEXT  # not dropped: it is no call
    assert alone.block(TWO) == DROPPED
    assert alone.counts == {"calls": 1, "recognised": 1, "dropped_parallel": 2, "unrecognised": 1}

    once = Bench(dedupe_calls=True)
    assert len(once.block(f"[{ONE}, {ONE}]", LIST, "calls").calls) == 1
    assert once.block(ONE) == DROPPED
    assert once.counts == {"calls": 1, "recognised": 1, "deduped": 2}

    few = Bench(tool("get_weather", strict=True), most=1)
    assert few.block(f"[{ONE}, {ONE}]", LIST, "calls") == AS_TEXT
    assert few.counts == {"excess_calls": 1}


# --- Python ---------------------------------------------------------------------------------------------------------


@every(
    "given",
    ["search(query='x', limit=3)", "search('x', 3)", "print(await search('x', 3))", "search('x', '3')", "search(f'x', 3)"],
)  # fmt: skip
def test_a_python_call(given: str) -> None:
    assert json.loads(Bench().call(given, PYTHON).arguments) == {"query": "x", "limit": 3}


@every(
    ("text", "reason"),
    [
        ("print(search('x'), get_time())", "arguments"),
        ("search()", "schema"),
        ("search('x', 1, [], 4)", "arguments"),
        ("search(query)", "arguments"),
        ("[search('x'), search(f'{y}')]", "arguments"),
        ("print(search)", None),
    ],
)
def test_python_that_is_no_call(text: str, reason: str | None) -> None:
    Bench().is_text(text, reason, PYTHON)


def test_what_is_printed() -> None:
    spec = ToolSpec("print", parameters={"type": "object", "properties": {"text": {"type": "string"}}})
    assert Bench(spec).call("print('x')", PYTHON).arguments == '{"text":"x"}'
    taught = BlockSyntax(opener="", anchor="answer", body=PYTHON.body, family="pythonic")
    assert Bench().block("print(search('x'))", taught) == AS_TEXT
    words = Bench(tool("build")).call("{'name': 'build', 'arguments': {'clean': True}}", broken=True)
    assert json.loads(words.arguments) == {"clean": True}


# --- what is known of the tools -------------------------------------------------------------------------------------


def test_a_custom_tools_input_is_its_text() -> None:
    patch = ToolSpec("patch", kind="custom")
    assert Bench(patch).call('{"name": "patch", "arguments": {"input": "a\\nb"}}').arguments == "a\nb"
    assert Bench(patch).call('{"name": "patch", "arguments": "a b"}').kind == "custom"
    Bench(patch).is_text('{"name": "patch", "arguments": {"text": "a"}}', "arguments")


def test_which_schemas_arguments_have_to_fit() -> None:
    for arguments, reason in (('{"limit": 1}', "schema"), ('"x"', "arguments")):
        ours = ToolSpec("search", parameters=SEARCH.parameters, server=True)
        Bench(ours).is_text(f'{{"name": "search", "arguments": {arguments}}}', reason)
    unusable = ToolSpec("bad", parameters={"type": "object", "properties": {"a": {"type": "no type"}}})
    Bench(unusable).is_text('{"name": "bad", "arguments": {"a": 1}}', "schema")
