"""The call policy (R9): every row of the table, both columns, both policies."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.unit.json_values import OBJECTS
from toolwire.call_policy.candidate import JUDGED
from toolwire.call_policy.ids import new_call_id
from toolwire.errors import ModelFault
from toolwire.formats.families import fenced_json, hermes, sentinel
from toolwire.model import ToolChoice, ToolSpec
from toolwire.repair.relaxed_json import compact_json
from toolwire.scan._grammar import (
    AS_TEXT,
    DROPPED,
    Block,
    BlockSyntax,
    Decision,
    Field,
    FoundCall,
    Grammar,
    Why,
)

from .policy_bench import TAGS, PolicyBench

SENTINEL = sentinel.GRAMMAR
HERMES = hermes.GRAMMAR
LISTS = fenced_json.GRAMMAR

SOFT = ToolSpec("soft")
STRICT = ToolSpec("hard", strict=True)


class Bench(PolicyBench):
    def __init__(self, *tools: ToolSpec, grammar: Grammar = SENTINEL, any_name: bool = False, **options: Any) -> None:
        super().__init__(*(() if any_name else tools or (SOFT,)), syntax=grammar.syntaxes[0], **options)


def failure(decision: Decision) -> ModelFault:
    """The error that the decision must be."""
    assert isinstance(decision.error, ModelFault)
    assert decision == Decision(error=decision.error)
    return decision.error


def written(name: Any = "soft", arguments: Any = "{}") -> str:
    return json.dumps({"name": name, "arguments": arguments})


# --- what is a call -------------------------------------------------------------------------------------------------


AS_WRITTEN = ["{}", '{"a": 1}', '{"a":1.50e+01,"b":12345678901234567890}', ' {"a" :\t1}\n', '{"é":"\\ud83d"}']


@every(
    ("body", "arguments"),
    [
        *((written(arguments=text), text) for text in AS_WRITTEN),
        # Extra keys and whitespace are ignored.
        ('\n\t {"id": 7, "name" : "soft" , "arguments":"{}", "why": {"x": []}}\r\n', "{}"),
        # Of equal keys the last one counts. Clients get the value that is judged.
        ('{"name":"x","arguments":"{}","name":"soft","arguments":{"a":1},"arguments":"{\\"a\\": 2}"}', '{"a": 2}'),
        (written(arguments='{"a":1.0, "\\u0061":2}'), '{"a":2}'),
        # No arguments are an empty object.
        ('{"name":"soft"}', "{}"),
        *((written(arguments=nothing), "{}") for nothing in (None, "", " \n")),
        # Lone surrogates become replacement characters.
        (
            '{"name":"soft","arguments":"{\\"a\\": \\"\\ud800x\\udc00\\ud83d\\ude00\\ud83d\\"}"}',
            '{"a": "\ufffdx\ufffd\U0001f600\ufffd"}',
        ),
    ],
)
@every("grammar", [SENTINEL, HERMES])
def test_what_is_a_call(grammar: Grammar, body: str, arguments: str) -> None:
    bench = Bench(grammar=grammar)
    assert bench.call(body) == FoundCall("soft", "call_1", arguments)
    assert bench.counts == {"calls": 1}


@every(
    ("arguments", "compact"),
    [
        ('{ "a" : [ 1.0 , 2e5 ],\n "b c": " x  \\" y " , "c": null }', '{"a":[1.0,2e5],"b c":" x  \\" y ","c":null}'),
        ('{"a":1,"a":2}', '{"a":2}'),
    ],
)
def test_an_object_is_made_compact_where_a_string_is_taught(arguments: str, compact: str) -> None:
    body = f'{{"name":"soft","arguments": {arguments} }}'
    bench, taught = Bench(), Bench(grammar=HERMES)
    assert bench.call(body).arguments == compact
    assert bench.counts == {"calls": 1, "object_arguments": 1}
    assert taught.call(body).arguments == (compact if '"a":2' in compact else arguments)
    assert taught.counts == {"calls": 1}


def test_arguments_with_too_many_values_are_no_call() -> None:
    text = '{"a":[' + "[]," * 60_000 + "0]}"
    for body in (written(arguments=text), '{"name":"soft","arguments":' + text + "}"):
        assert not Bench().block(body).calls
        assert "100000 values" in failure(Bench(STRICT).block(body.replace("soft", "hard"))).message


def test_an_object_is_malformed_if_only_strings_are_wanted() -> None:
    assert Bench(sentinel_arguments="string").block(written(arguments={})) == AS_TEXT
    assert Bench(sentinel_arguments="string", grammar=HERMES).call(written(arguments={})).arguments == "{}"
    error = failure(Bench(STRICT, sentinel_arguments="string").block(written("hard", {})))
    assert error.code == "malformed_tool_arguments"


def test_ids_are_fresh_uuids() -> None:
    made = {new_call_id() for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"call_[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}", one) for one in made)


def test_without_an_offer_any_name_is_a_call() -> None:
    bench = Bench(any_name=True)
    assert bench.call(written("whatever")).name == "whatever"
    assert bench.call('{"name":"\\udc00"}').name == "\ufffd"
    assert bench.block('{"name":""}') == AS_TEXT
    assert bench.block("{") == AS_TEXT


def test_a_group_is_told_by_the_name() -> None:
    """R8.16. A name without its group will do where no other tool has it: weak models leave the group out."""
    tools = [ToolSpec("read", namespace="a"), ToolSpec("read", namespace="b"), ToolSpec("list", namespace="b")]
    bench = Bench(*tools)
    assert bench.call(written("a__read")) == FoundCall("read", "call_1", "{}", "function", "a")
    assert bench.call(written("b__read")) == FoundCall("read", "call_2", "{}", "function", "b")
    for number, name in enumerate(("list", "b__list"), 3):
        assert bench.call(written(name)) == FoundCall("list", f"call_{number}", "{}", "function", "b")
    assert bench.block(written("read")) == AS_TEXT
    assert bench.counts["unknown_names"] == 1
    assert Bench(*tools, ToolSpec("read")).call(written("read")).namespace is None
    only = Bench(*tools, choice=ToolChoice(allowed=("list",)))
    assert only.call(written("b__list")).name == "list"
    assert only.block(written("a__read")) == AS_TEXT


# --- R9.1: the block is malformed -----------------------------------------------------------------------------------


def test_malformed_block_soft_is_repaired_or_text() -> None:
    bench = Bench()
    assert bench.call("{'name': 'soft', 'arguments': {'a': 1,},}").arguments == '{"a":1}'
    assert bench.call('```json\n{"name":"soft","arguments":"{}"}\n```').arguments == "{}"
    assert bench.call('{"name":"soft","arguments":{"a":"x\ny"').arguments == '{"a":"x\\ny"}'
    assert bench.block('{"name":"soft","arguments":"{"a": 1}"}') == AS_TEXT
    assert bench.counts == {"calls": 3, "repaired": 3, "object_arguments": 2, "parse_failures": 1}


def test_brackets_are_not_closed_over_arguments_that_never_came() -> None:
    for tool in (SOFT, STRICT):
        decision = Bench(tool).block(f'{{"name":"{tool.name}"')
        assert decision == AS_TEXT if tool is SOFT else failure(decision).code == "malformed_tool_arguments"
    assert Bench(grammar=LISTS).block('{"tool_calls":[{"name":"soft","arguments":{}},{"name":"soft"') == AS_TEXT


def test_repair_can_be_turned_off() -> None:
    bench = Bench(repair="off")
    assert bench.block('{"name":"soft","arguments":{},}') == AS_TEXT
    assert bench.block(written(arguments="{a: 1}")) == AS_TEXT
    assert bench.counts == {"parse_failures": 2}


NO_CALLS = [
    *(
        (body, "parse_failures")
        for body in ("[]", "1", '"soft"', "null", "", "   ", "hello", '[{"name":"soft"}]', '{"name":')
    ),
    *((body, "unknown_names") for body in ('{"arguments":"{}"}', written("other"), written(7), '{"name":["soft"]}')),
    *(
        (written(arguments=arguments), "parse_failures")
        for arguments in ("hello", "{a", [1], 7, True, '{"a": "say "hi""}')
    ),
    (written(""), "unknown_names"),
]


@every(("body", "counter"), NO_CALLS)
def test_what_is_no_call_is_text_or_a_strict_failure(body: str, counter: str) -> None:
    soft, strict = Bench(), Bench(SOFT, STRICT)
    assert soft.block(body) == AS_TEXT
    assert soft.counts == {counter: 1}
    error = failure(strict.block(body.replace('"soft"', '"hard"')))
    assert error.code == ("unknown_tool_call" if counter == "unknown_names" else "malformed_tool_arguments")
    assert (error.status, error.type, error.headers) == (500, "model_error", {"x-should-retry": "false"})
    assert strict.counts == {counter: 1, "strict_failures": 1}


@every(
    ("body", "words"),
    [
        ('{"name":"hard"', '"hard" is malformed'),
        ('{"name":', "not valid JSON"),
        (written("hard", "{'a': 1}"), 'call of "hard" is malformed: its arguments'),
    ],
)
def test_a_strict_failure_says_what_is_wrong(body: str, words: str) -> None:
    """Arguments that could be repaired are wrong too."""
    assert words in failure(Bench(SOFT, STRICT).block(body)).message
    assert len(failure(Bench(SOFT, STRICT).block(written("x" * 10_000))).message) < 300


# --- R9.2: the name -------------------------------------------------------------------------------------------------


@every("choice", [ToolChoice("named", "other"), ToolChoice("auto", allowed=("other",)), ToolChoice("none")])
def test_names_that_the_choice_excludes(choice: ToolChoice) -> None:
    other = ToolSpec("other")
    assert Bench(SOFT, other, choice=choice).block(written("soft")) == AS_TEXT
    error = failure(Bench(STRICT, other, choice=choice).block(written("hard")))
    assert error.code == "unknown_tool_call"
    assert '"hard"' in error.message
    assert Bench(SOFT, other, STRICT, choice=choice).block(written("soft")) == AS_TEXT, "its own strictness counts"


# --- R9.3: the arguments --------------------------------------------------------------------------------------------


def test_malformed_arguments_soft_are_repaired_or_text() -> None:
    bench = Bench()
    assert bench.call(written(arguments="{'a': 1}")).arguments == '{"a": 1}'
    assert bench.call(written(arguments='{"a": [1')).arguments == '{"a": [1]}'
    assert bench.block(written(arguments="NaN")) == AS_TEXT
    assert bench.counts == {"calls": 2, "repaired": 2, "parse_failures": 1}


# --- R9.6: strict failures ------------------------------------------------------------------------------------------


@every(
    ("body", "code"),
    [(written("other"), "unknown_tool_call"), (written("hard", "{"), "malformed_tool_arguments")],
)
def test_a_strict_failure_as_a_message(body: str, code: str) -> None:
    bench = Bench(STRICT, strict_failure="assistant_message")
    decision = bench.block(body)
    error = failure(Bench(STRICT).block(body))
    assert error.code == code
    assert decision == Decision(replacement=f"[tool call rejected: {code}: {error.message}]")
    assert bench.counts["strict_failures"] == 1


# --- R6.8, R6.9: blocks without an end ------------------------------------------------------------------------------


def test_a_whole_call_without_closer_is_repaired() -> None:
    for tool in (SOFT, STRICT):
        bench = Bench(tool)
        assert bench.call(written(tool.name), closed=False).name == tool.name
        assert bench.counts == {"calls": 1, "repaired": 1, "unclosed_repaired": 1}


@every("body", ['{"name":"soft","arguments":{"a":1}', '{"name":"soft","arguments":"{}"', '{"name":"soft","arg', "x"])
def test_without_closer_only_a_complete_object_is_a_call(body: str) -> None:
    assert Bench().block(body, closed=False) == AS_TEXT
    assert failure(Bench(STRICT).block(body, closed=False)).code == "malformed_tool_arguments"


def test_other_answers_to_a_missing_closer() -> None:
    assert Bench(STRICT, unclosed="text").block(written("hard"), closed=False) == AS_TEXT
    assert failure(Bench(unclosed="error").block(written(), closed=False)).code == "malformed_tool_arguments"
    assert Bench(unclosed="error").call(written()).name == "soft", "closed blocks are not concerned"


def test_unfinished_blocks() -> None:
    for tool in (SOFT, STRICT):
        bench = Bench(tool)
        assert bench.policy.unfinished(bench.syntax, '{"name', "truncated") == DROPPED
        assert bench.counts == {"truncated_calls": 1}
        reasons: tuple[tuple[Why, str], ...] = (("end", "ended"), ("oversize", "1048576 bytes"))
        for why, word in reasons:
            decision = bench.policy.unfinished(bench.syntax, '{"name', why)
            assert decision == AS_TEXT if tool is SOFT else word in failure(decision).message
        assert bench.counts["parse_failures"] == 2


@every("depth", [200, 200_000])
def test_deep_nesting_is_malformed_and_never_an_exception(depth: int) -> None:
    bomb = '{"a":' * depth + "1" + "}" * depth
    for bench in (Bench(), Bench(grammar=HERMES)):
        assert bench.block(f'{{"name":"soft","arguments":{bomb}}}') == AS_TEXT
        assert bench.block(written(arguments=bomb)) == AS_TEXT
        assert bench.block("[" * depth) == AS_TEXT


# --- number of calls ------------------------------------------------------------------------------------------------


def test_without_parallel_calls_only_the_first_is_emitted() -> None:
    bench = Bench(SOFT, STRICT, parallel=False)
    assert bench.block("{nonsense") != DROPPED, "nothing was called yet"
    assert bench.call(written()).name == "soft"
    assert bench.block(written()) == DROPPED
    assert bench.block("{nonsense") == DROPPED
    assert bench.block(written("other")) == DROPPED
    assert bench.counts["dropped_parallel"] == 3
    assert bench.counts["calls"] == 1


def test_too_many_calls() -> None:
    bench = Bench(SOFT, STRICT, most=2)
    bench.call(written())
    bench.call(written())
    assert bench.block(written()) == AS_TEXT
    error = failure(bench.block(written("hard")))
    assert "more than 2" in error.message
    assert bench.counts == {"calls": 2, "excess_calls": 2, "strict_failures": 1}


def test_repeated_calls() -> None:
    twice = Bench()
    assert twice.call(written()).call_id != twice.call(written()).call_id
    once = Bench(dedupe_calls=True)
    once.call(written(arguments='{"a": 1}'))
    assert once.block(written(arguments='{"a":1}')) == DROPPED
    once.call(written(arguments='{"a":2}'))
    assert once.counts == {"calls": 2, "deduped": 1}


# --- several calls in a block ---------------------------------------------------------------------------------------


def listed(*elements: str) -> str:
    return '{"tool_calls": [' + ", ".join(elements) + "]}"


def test_a_list_of_calls_in_both_forms() -> None:
    bench = Bench(grammar=LISTS)
    first = '{"name": "soft", "arguments": {"a": 1}}'
    second = '{"id":"x","type":"function","function":{"name":"soft","arguments":"{\\"b\\": 2}"}}'
    found = [("call_1", '{"a": 1}', first), ("call_2", '{"b": 2}', second)]
    calls = tuple(FoundCall("soft", ident, arguments, source=source) for ident, arguments, source in found)
    assert bench.block(listed(first, second)) == Decision(calls=calls)
    alone = bench.call(listed(first))
    assert alone == FoundCall("soft", "call_3", '{"a": 1}'), "the source of a lone call is the block"
    assert bench.counts == {"calls": 3}


def test_a_list_with_a_bad_element_is_text_as_a_whole() -> None:
    bench = Bench(grammar=LISTS)
    bad = [listed(written(), written("other")), listed(written(), "7"), '{"tool_calls": {}}', '{"tool_calls": []}']
    assert [bench.block(body) for body in bad] == [AS_TEXT] * len(bad)
    assert bench.counts == {"unknown_names": 1, "parse_failures": 2}


def test_a_list_with_a_strict_failure_fails() -> None:
    tools = (SOFT, STRICT)
    bench = Bench(*tools, grammar=LISTS, choice=ToolChoice(allowed=("hard",)))
    error = failure(bench.block(listed(written("soft"), written("hard", "{"))))
    assert error.code == "malformed_tool_arguments", "the strict failure counts, not the soft one before it"


def test_limits_hold_inside_a_list() -> None:
    single = Bench(grammar=LISTS, parallel=False)
    assert len(single.block(listed(written(), written(), written())).calls) == 1
    assert single.counts == {"calls": 1, "dropped_parallel": 2}
    few = Bench(grammar=LISTS, most=2)
    assert few.block(listed(written(), written(), written())) == AS_TEXT
    different = Bench(grammar=LISTS, dedupe_calls=True)
    assert len(different.block(listed(written(), written())).calls) == 1
    assert different.block(listed(written())) == DROPPED


# --- calls in tags --------------------------------------------------------------------------------------------------


def test_a_prefix_is_dropped_if_no_tool_has_the_full_name() -> None:
    bench = Bench(SOFT, ToolSpec("functions.odd"))
    assert bench.pieces(("name", "functions.soft <|constrain|>json"), ("arguments", "{}")).calls[0].name == "soft"
    assert bench.pieces(("name", "functions.odd"), ("arguments", "{}")).calls[0].name == "functions.odd"
    assert bench.pieces(("name", "functions.other"), ("arguments", "{}")) == AS_TEXT
    assert bench.block(written("functions.soft")).calls[0].name == "soft"
    assert bench.block(written("tools.soft")) == AS_TEXT
    assert Bench(any_name=True).pieces(("name", "functions.x")).calls[0].name == "x"
    assert bench.counts["unknown_names"] == 2


def test_ids_that_a_model_writes_are_handed_on_once() -> None:
    bench = Bench()
    ids = ["functions.soft:0", "functions.soft:0", "functions.soft:1", "functions.soft:" + "1" * 256]
    found = [bench.pieces(("id", one), ("arguments", "{}")).calls[0] for one in ids]
    assert [call.call_id for call in found] == ["functions.soft:0", "call_1", "functions.soft:1", "call_2"]
    assert {call.name for call in found} == {"soft"}
    named = bench.pieces(("name", "soft"), ("id", "abc123def"), ("arguments", "{}")).calls
    assert named == (FoundCall("soft", "abc123def", "{}"),)


def test_several_calls_in_one_section_are_judged_as_one_block() -> None:
    assert Bench().pieces(("name", "soft"), ("name", "other")) == AS_TEXT
    bench = Bench(SOFT, STRICT)
    assert len(bench.pieces(("name", "soft"), ("name", "hard")).calls) == 2
    assert failure(bench.pieces(("name", "soft"), ("name", "hard"), ("key", "a"))).code == "malformed_tool_arguments"


def test_a_strict_failure_counts_behind_many_calls() -> None:
    bench = Bench(SOFT, STRICT)
    many: list[tuple[Field, str]] = [("name", "soft"), ("key", "a"), *[("name", "soft")] * 2 * JUDGED]
    assert bench.pieces(*many, ("name", "hard")) == AS_TEXT
    assert '"hard"' in failure(bench.pieces(*many, ("name", "hard"), ("key", "a"))).message


# --- calls that are given out while they come (R6.13) ---------------------------------------------------------------


def opening(bench: Bench, syntax: BlockSyntax, *pieces: tuple[Field, str]) -> FoundCall | None:
    call = bench.policy.opening(syntax, pieces)
    return None if call is None else call.open()


def test_a_call_may_be_opened_once_its_name_is_known() -> None:
    bench = Bench(SOFT, ToolSpec("read", namespace="a"))
    opened = opening(bench, TAGS, ("id", "functions.soft:0"))
    assert opened == FoundCall("soft", "functions.soft:0", "")
    block = Block(TAGS, "", (("id", "functions.soft:0"), ("arguments", '{"a": 1}')), opened=opened)
    assert bench.policy.block(block).calls == (FoundCall("soft", "functions.soft:0", '{"a": 1}'),)
    assert opening(bench, HERMES.syntaxes[0], ("name", "a__read")) == FoundCall("read", "call_1", "", namespace="a")
    assert opening(Bench(any_name=True), TAGS, ("name", "x")) == FoundCall("x", "call_1", "")
    assert bench.counts == {"calls": 1}


def test_calls_that_wait_for_their_end() -> None:
    """Strict, of the gateway, wanted in one piece, unknown."""
    bench = Bench(SOFT, STRICT, ToolSpec("ours", server=True), ToolSpec("whole", buffered=True))
    for name in ("hard", "ours", "whole", "other", "", "tools.soft"):
        assert bench.policy.opening(HERMES.syntaxes[0], (("name", name),)) is None, name
    assert not bench.counts


def test_no_call_is_opened_that_may_vanish() -> None:
    pieces: tuple[tuple[Field, str], ...] = (("name", "soft"),)
    assert Bench(dedupe_calls=True).policy.opening(TAGS, pieces) is None
    for bench in (Bench(most=1), Bench(parallel=False)):
        assert bench.policy.opening(TAGS, pieces) is not None
        bench.call(written())
        assert bench.policy.opening(TAGS, pieces) is None


def test_an_opened_call_counts_once() -> None:
    """While it is open and after it has ended: as many calls are opened as an answer may have."""
    bench, name = Bench(most=2), ("name", "soft")
    for _ in range(2):
        opened = opening(bench, TAGS, name)
        assert opened is not None
        ended = Block(TAGS, "", (name, ("arguments", '{"a": 1}')), opened=opened)
        assert len(bench.policy.block(ended).calls) == 1
    assert opening(bench, TAGS, name) is None


def test_a_call_that_did_not_end_as_it_began_is_an_error() -> None:
    error = Bench().policy.withdrawn(FoundCall("soft", "call_1", ""), cut=False)
    assert (error.code, error.type) == ("malformed_tool_arguments", "model_error")
    assert '"soft"' in error.message


# --- laws -----------------------------------------------------------------------------------------------------------


@given(OBJECTS, st.sampled_from([None, 2]), st.booleans())
def test_writing_and_judging_is_identity(value: dict[str, Any], indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped)
    assert Bench().call(written(arguments=text)).arguments == text
    assert Bench(grammar=HERMES).call(f'{{"name":"soft","arguments": {text} }}').arguments == text
    compact = Bench().call(f'{{"name":"soft","arguments":{text}}}').arguments
    assert compact == json.dumps(value, separators=(",", ":"), ensure_ascii=escaped)
    assert compact_json(compact) == compact


NEARLY = st.text("{}[]:,'\"\\` \nnamerguts01soft", max_size=60)


@given(NEARLY, st.booleans(), st.booleans(), st.sampled_from([SENTINEL, LISTS]))
def test_no_text_makes_it_raise_or_emit_what_is_no_json(
    text: str, closed: bool, strict: bool, grammar: Grammar
) -> None:
    bench = Bench(dataclasses.replace(SOFT, strict=strict), grammar=grammar)
    for body in (text, "{" + text + "}", '{"name":"soft","arguments":' + text + "}"):
        decision = bench.block(body, closed=closed)
        assert (decision.error is not None) <= strict
        for found in decision.calls:
            assert found.name == "soft"
            json.loads(found.arguments)
