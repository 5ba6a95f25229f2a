"""The test that a call in a form which nobody taught has to pass (R23.1), on blocks as a scanner gives them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases import every
from tests.corpus.answers import Answer, PrintedCalls, all_tools, no_calls, printed_calls
from tests.options import route_options
from toolwire.call_policy.ids import CallIds
from toolwire.call_policy.policy import CallPolicy
from toolwire.call_policy.recognised import REASONS
from toolwire.config import LimitsConfig
from toolwire.formats.families.hermes import GRAMMAR as HERMES
from toolwire.model import ToolChoice, ToolSpec
from toolwire.scan._grammar import AS_TEXT, DROPPED, Block, BlockSyntax, Branch, Decision, Field, FoundCall, Why
from toolwire.schemas.schema import ToolSchema, compile_schema

OBJECT = BlockSyntax(
    opener="",
    anchor="answer",
    body=((Branch(read="object", field="call", then=1),), (Branch(read="object", field="call", then=1), Branch())),
    family="object",
    untaught=True,
)
LIST = BlockSyntax(
    opener="", anchor="answer", body=((Branch(read="array", field="calls"),),), family="list", untaught=True
)
PYTHON = BlockSyntax(
    opener="",
    anchor="answer",
    body=((Branch(read="call", field="call"), Branch(read="list", field="calls")),),
    family="python",
    untaught=True,
)
TAGS = BlockSyntax(
    opener="<call>",
    closer="</call>",
    body=(
        (Branch(read="word", field="name", then=1),),
        (Branch(literal=">", read="object", field="arguments", then=2),),
        (Branch(literal="</call>"),),
    ),
    family="tags",
    untaught=True,
)


def tool(name: str, *, strict: bool | None = None) -> ToolSpec:
    """A tool of the corpus."""
    return ToolSpec(name, parameters=all_tools()[name]["parameters"], strict=strict)


WEATHER, SEARCH, TIME = tool("get_weather"), tool("search"), tool("get_time")


class Bench:
    """A call policy with counted ids and counters to look at."""

    def __init__(self, *tools: ToolSpec, any_name: bool = False, most: int = 64, **options: Any) -> None:
        parallel = options.pop("parallel", True)
        choice = options.pop("choice", None) or ToolChoice()
        schemas = options.pop("schemas", None)
        self.counts: Counter[str] = Counter()
        self.labels: Counter[tuple[str, str]] = Counter()
        numbers = itertools.count(1)
        self.policy = CallPolicy(
            None if any_name else tools or (WEATHER, SEARCH, TIME),
            choice=choice,
            parallel=parallel,
            options=route_options(**options),
            limits=LimitsConfig(calls_per_response=most),
            count=lambda name: self.counts.update([name]),
            label=lambda name, label: self.labels.update([(name, label)]),
            ids=CallIds(new_id=lambda: f"call_{next(numbers)}"),
            schemas=schemas,
        )

    def read(self, text: str, syntax: BlockSyntax = OBJECT, field: Field = "call", **block: Any) -> Decision:
        """The decision on a block that is one text."""
        return self.policy.block(Block(syntax, text, ((field, text),), **block))

    def call(self, text: str, syntax: BlockSyntax = OBJECT, field: Field = "call", **block: Any) -> FoundCall:
        """The one call that the text must be."""
        decision = self.read(text, syntax, field, **block)
        assert len(decision.calls) == 1, decision
        return decision.calls[0]

    def is_text(
        self, text: str, reason: str | None, syntax: BlockSyntax = OBJECT, field: Field = "call", **block: Any
    ) -> None:
        """It must be ordinary text, and nothing else may have happened."""
        assert self.read(text, syntax, field, **block) == AS_TEXT
        assert self.counts == ({"unrecognised": 1} if reason else {})
        assert self.labels == ({("unrecognised", reason): 1} if reason else {})


def test_what_passes_is_a_call_and_its_form_is_counted() -> None:
    bench = Bench()
    assert bench.call('{"name": "search", "arguments": {"query":  "x"}}') == FoundCall(
        "search", "call_1", '{"query":  "x"}'
    )
    assert bench.counts == {"calls": 1, "recognised": 1}
    assert bench.labels == {("recognised", "object"): 1}


@every(
    ("text", "reason"),
    [
        ('{"name": "other", "arguments": {"query": "x"}}', None),
        ('{"name": "Search", "arguments": {"query": "x"}}', "name"),
        ('{"name": "search ", "arguments": {"query": "x"}}', "name"),
        ('{"name": "Search", "query": "x"}', None),
        ('{"arguments": {"query": "x"}}', None),
        ('{"name": 5, "arguments": {"query": "x"}}', None),
        ("{}", None),
        ('{"name": "search", "arguments": {}}', "schema"),
        ('{"name": "search"}', "schema"),
        ('{"name": "search", "arguments": null}', "schema"),
        ('{"name": "search", "arguments": {"query": "x", "limit": "many"}}', "schema"),
        ('{"name": "search", "arguments": {"query": "x", "more": 1}}', "schema"),
        ('{"name": "search", "arguments": {"query": null}}', "schema"),
        ('{"name": "search", "arguments": "all of it"}', "arguments"),
        ('{"name": "search", "arguments": ["x"]}', "arguments"),
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
    ],
)
@every("strict", [None, True])
def test_what_fails_is_text_and_never_a_failure(text: str, reason: str | None, strict: bool | None) -> None:
    tools = [tool(name, strict=strict) for name in ("get_weather", "search", "get_time")]
    Bench(*tools, strict_failure="error").is_text(text, reason, closed=not text.endswith('"x"}'))


def test_a_tool_that_needs_nothing_is_called_by_its_name() -> None:
    for text in (
        '{"name": "get_time"}',
        '{"name": "get_time", "arguments": ""}',
        '{"name": "get_time", "parameters": {}}',
    ):
        assert Bench().call(text).arguments == "{}"
    assert Bench(ToolSpec("ping")).call('{"name":"ping"}').arguments == "{}"
    Bench(ToolSpec("ping")).is_text('{"name": "ping", "version": "1"}', "arguments")


def test_properties_may_be_called_as_those_of_a_schema() -> None:
    schema = {"type": "object", "properties": {"type": {"type": "string"}, "properties": {"type": "object"}}}
    arguments = '{"type": "object", "properties": {"a": 1}}'
    assert (
        Bench(ToolSpec("make", parameters=schema)).call(f'{{"name": "make", "arguments": {arguments}}}').arguments
        == arguments
    )


def test_only_tools_that_may_be_called() -> None:
    text = '{"name": "search", "arguments": {"query": "x"}}'
    Bench(choice=ToolChoice("named", "get_time")).is_text(text, None)
    Bench(choice=ToolChoice("none")).is_text(text, None)
    assert Bench(choice=ToolChoice("named", "search")).call(text)


def test_with_nothing_known_of_the_tools_arguments_only_have_to_parse() -> None:
    bench = Bench(any_name=True)
    assert bench.call('{"name": "what", "arguments": {"ever": 1}}').name == "what"
    Bench(any_name=True).is_text('{"name": "what", "arguments": "ever"}', "arguments")


def test_of_several_readings_the_first_that_fits() -> None:
    # By its name this is a call of `search`, whose arguments do not fit; `get_time` is what stands under `tool`.
    found = Bench().call('{"name": "search", "tool": "get_time", "arguments": {"timezone": "UTC"}}')
    assert (found.name, found.arguments) == ("get_time", '{"timezone": "UTC"}')
    assert Bench().call(
        '{"type": "function", "id": "1", "function": {"name": "search", "arguments": "{\\"query\\":1}"}}'
    )


def test_arguments_are_mended_before_they_are_judged() -> None:
    bench = Bench()
    text = '{"name": "search", "arguments": {"query": "x", "limit": "5"}}'
    assert bench.call(text).arguments == '{"query": "x", "limit": 5}'
    assert bench.counts == {"calls": 1, "recognised": 1, "coerced": 1}
    assert bench.labels[("coerced", "number")] == 1
    Bench(coerce="off").is_text(text, "schema")
    Bench(tool("search", strict=True)).is_text(text, "schema")


@pytest.mark.parametrize(
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
    assert Bench(repair="off").read(text, broken=True) == AS_TEXT
    assert Bench(tool("search", strict=True)).read(text, broken=True) == AS_TEXT


def test_true_of_python_is_true() -> None:
    assert json.loads(
        Bench(tool("build")).call("{'name': 'build', 'arguments': {'clean': True}}", broken=True).arguments
    ) == {"clean": True}


def test_what_is_not_closed_is_repaired_only_where_that_is_wanted() -> None:
    text = '{"name": "get_time", "arguments": {}}'
    syntax = HERMES.syntaxes[0]
    untaught = BlockSyntax(opener=syntax.opener, closer=syntax.closer, family="hermes", untaught=True)
    bench = Bench()
    assert bench.call(text, untaught, closed=False)
    assert bench.counts == {"calls": 1, "recognised": 1, "unclosed_repaired": 1, "repaired": 1}
    for unclosed in ("text", "error"):
        Bench(tool("get_time", strict=True), unclosed=unclosed).is_text(text, None, untaught, closed=False)


@pytest.mark.parametrize("why", ["end", "truncated", "oversize"])
@pytest.mark.parametrize("strict", [None, True])
def test_what_has_no_end_is_text(why: Why, strict: bool | None) -> None:
    bench = Bench(tool("search", strict=strict))
    assert bench.policy.unfinished(OBJECT, '{"name": "search", "argu', why) == AS_TEXT
    assert bench.policy.unfinished(TAGS, "seek", why) == AS_TEXT
    assert not bench.counts
    assert bench.policy.unfinished(TAGS, "search", why) == AS_TEXT
    assert bench.counts == ({"unrecognised": 1} if why == "end" else {})


# --- several calls --------------------------------------------------------------------------------------------------

ONE = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
TWO = '{"name": "search", "arguments": {"query": "x"}}'


@pytest.mark.parametrize(
    ("syntax", "pieces"),
    [
        (OBJECT, (("call", ONE), ("call", TWO))),
        (LIST, (("calls", f"[{ONE}, {TWO}]"),)),
        (OBJECT, (("call", f'{{"tool_calls": [{ONE}, {TWO}]}}'),)),
        (PYTHON, (("calls", "[get_weather(city='Oslo'), search('x')]"),)),
        (
            TAGS,
            (
                ("name", "get_weather"),
                ("arguments", '{"city": "Oslo"}'),
                ("name", "search"),
                ("arguments", '{"query": "x"}'),
            ),
        ),
    ],
)
def test_all_calls_of_a_block_or_none(syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> None:
    bench = Bench()
    found = bench.policy.block(Block(syntax, "", pieces)).calls
    assert [(call.name, json.loads(call.arguments)) for call in found] == [
        ("get_weather", {"city": "Oslo"}),
        ("search", {"query": "x"}),
    ]
    assert bench.counts["recognised"] == bench.labels["recognised", syntax.family] == 2
    only_one = Bench(WEATHER)
    assert only_one.policy.block(Block(syntax, "", pieces)) == AS_TEXT
    assert only_one.labels == {("unrecognised", "name"): 1}


@pytest.mark.parametrize(
    ("text", "syntax", "field"),
    [("[]", LIST, "calls"), ('{"tool_calls": []}', OBJECT, "call"), ("[]", PYTHON, "calls")],
)
def test_a_list_of_nothing_is_text(text: str, syntax: BlockSyntax, field: Field) -> None:
    Bench().is_text(text, None, syntax, field)
    tagged = BlockSyntax(opener="<calls>", closer="</calls>", family="x", untaught=True)
    Bench().is_text(text, None, tagged, "calls")


def test_what_is_said_in_a_form_that_was_not_taught_is_text() -> None:
    assert Bench().policy.block(Block(TAGS, "", (("said", "Hello"),))) == AS_TEXT


def test_the_rules_of_other_calls_hold() -> None:
    alone = Bench(parallel=False)
    assert [call.name for call in alone.read(f"[{ONE}, {TWO}]", LIST, "calls").calls] == ["get_weather"]
    assert alone.read('{"name": "search"}') == AS_TEXT  # not dropped: it is no call
    assert alone.read(TWO) == DROPPED
    assert alone.counts == {"calls": 1, "recognised": 1, "dropped_parallel": 2, "unrecognised": 1}

    once = Bench(dedupe_calls=True)
    assert len(once.read(f"[{ONE}, {ONE}]", LIST, "calls").calls) == 1
    assert once.read(ONE) == DROPPED
    assert once.counts == {"calls": 1, "recognised": 1, "deduped": 2}

    few = Bench(tool("get_weather", strict=True), most=1)
    assert few.read(f"[{ONE}, {ONE}]", LIST, "calls") == AS_TEXT
    assert few.counts == {"excess_calls": 1}


# --- Python ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "search(query='x', limit=3)",
        "search('x', 3)",
        "search('x', limit=3)",
        "print(search('x', 3))",
        "await search('x', 3)",
        "print(await search('x', 3))",
        "print( search('x', 3) )",
        "search('x', '3')",
        "search(f'x', 3)",
    ],
)
def test_a_python_call(text: str) -> None:
    assert json.loads(Bench().call(text, PYTHON).arguments) == {"query": "x", "limit": 3}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print('x')", None),
        ("print(search('x'), get_time())", "arguments"),
        ("search()", "schema"),
        ("search('x', 1, [], 4)", "arguments"),
        ("search('x', query='y')", "arguments"),
        ("search(query)", "arguments"),
        ('search(f"{query} of today")', "arguments"),
        ("[search('x'), search(f'{y}')]", "arguments"),
        ("find(query)", None),
        ("print(search)", None),
    ],
)
def test_python_that_is_no_call(text: str, reason: str | None) -> None:
    Bench().is_text(text, reason, PYTHON)


def test_a_tool_that_is_called_print() -> None:
    spec = ToolSpec("print", parameters={"type": "object", "properties": {"text": {"type": "string"}}})
    assert Bench(spec).call("print('x')", PYTHON).arguments == '{"text":"x"}'


def test_only_untaught_python_may_be_printed() -> None:
    taught = BlockSyntax(opener="", anchor="answer", body=PYTHON.body, family="pythonic")
    assert Bench().read("print(search('x'))", taught) == AS_TEXT


# --- what is known of the tools -------------------------------------------------------------------------------------


def test_a_custom_tools_input_is_its_text() -> None:
    patch = ToolSpec("patch", kind="custom")
    assert Bench(patch).call('{"name": "patch", "arguments": {"input": "a\\nb"}}').arguments == "a\nb"
    assert Bench(patch).call('{"name": "patch", "arguments": "a b"}').kind == "custom"
    Bench(patch).is_text('{"name": "patch", "arguments": {"text": "a"}}', "arguments")


def test_a_tool_that_the_gateway_runs_has_to_fit_as_well() -> None:
    spec = ToolSpec("search", parameters=SEARCH.parameters, server=True)
    Bench(spec).is_text('{"name": "search", "arguments": {"limit": 1}}', "schema")
    Bench(spec).is_text('{"name": "search", "arguments": "x"}', "arguments")


def test_a_schema_that_cannot_be_used_recognises_nothing() -> None:
    spec = ToolSpec("bad", parameters={"type": "object", "properties": {"a": {"type": "no type"}}})
    Bench(spec).is_text('{"name": "bad", "arguments": {"a": 1}}', "schema")


def test_schemas_are_asked_for_once_and_only_if_needed() -> None:
    asked: list[str] = []

    def schemas(spec: ToolSpec) -> ToolSchema:
        asked.append(spec.name)
        return compile_schema(spec.parameters)

    bench = Bench(schemas=schemas)
    assert bench.read('{"name": "other"}') == AS_TEXT
    assert asked == []
    bench.call(TWO)
    bench.read(TWO)
    assert asked == ["search"]


# --- the corpora ----------------------------------------------------------------------------------------------------

PRINTED = BlockSyntax(
    opener="", anchor="answer", body=((Branch(read="printed", field="calls"),),), family="bare", untaught=True
)


ALONE = [
    answer
    for answer in printed_calls()
    if answer.id.startswith(("bare-", "key-", "flat-", "list-", "object-", "mend-", "repair-", "python-"))
    and answer.text.strip()[0] not in "<`"
]
"""Answers that are one value, or one call, and nothing else."""


def judged(answer: Answer, text: str) -> list[tuple[str, Any]]:
    """What a text becomes if a scanner takes it for printed calls, with the tools of an answer."""
    specs = [tool(name) for name in answer.offered]
    found = Bench(*specs).policy.block(Block(PRINTED, text, (("calls", text),), broken=True)).calls
    return [(call.name, json.loads(call.arguments)) for call in found]


@every("answer", no_calls())
def test_what_is_no_call_does_not_pass_as_a_whole(answer: Answer) -> None:
    assert judged(answer, answer.text.strip()) == []


@every("answer", ALONE)
def test_what_is_printed_passes(answer: PrintedCalls) -> None:
    assert judged(answer, answer.text.strip()) == [(call.name, call.arguments) for call in answer.calls]


def test_names_that_may_be_called() -> None:
    grouped = ToolSpec("now", namespace="clock")
    assert Bench(WEATHER, grouped).policy.callable_names == ("get_weather", "clock__now", "now")
    assert Bench(choice=ToolChoice("named", "search")).policy.callable_names == ("search",)
    assert Bench(any_name=True).policy.callable_names == ()


def test_nothing_is_recognised_while_that_is_off() -> None:
    bench = Bench()
    bench.policy.recognises = False
    bench.is_text(ONE, None)


def test_every_reason_has_a_test() -> None:
    def reasons() -> Iterator[str]:
        for text, spec in (
            (f"[{TWO}, {ONE}]", SEARCH),
            ('{"name": "search", "arguments": "x"}', SEARCH),
            ('{"name": "search"}', SEARCH),
            ('{"name": "get_time", "description": "It.", "parameters": {}}', TIME),
        ):
            bench = Bench(spec)
            bench.read(text, LIST, "calls")
            yield from (label for name, label in bench.labels if name == "unrecognised")

    assert tuple(reasons()) == REASONS
