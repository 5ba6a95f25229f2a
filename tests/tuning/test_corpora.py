"""The corpora of answers keep their own rules, and the naive reader reads them right. The gateway is not asked here."""

from __future__ import annotations

import json

from tests.corpus.answers import Answer, Call, all_tools, no_calls, printed_calls
from toolwire.extras.tune.printed import printed
from toolwire.schemas.schema import compile_schema, validate_tool_name, validate_tool_schema

DOCUMENTATION = ("doc-", "quoted/", "tool-definition", "openapi", "package-json", "config-")
MADE = ("quoted/", "family/")
EVERYTHING: list[Answer] = [*no_calls(), *printed_calls()]


def read(answer: Answer) -> list[Call]:
    return [Call(call.name, dict(call.arguments)) for call in printed(answer.text, answer.schemas)]


def test_there_are_enough_and_each_once() -> None:
    assert len(no_calls()) >= 300
    assert sum(answer.id.startswith(DOCUMENTATION) for answer in no_calls()) >= len(no_calls()) / 2
    assert len(printed_calls()) >= 150
    ids = [answer.id for answer in EVERYTHING]
    assert len(set(ids)) == len(ids)
    texts = [answer.text for answer in EVERYTHING if not answer.id.startswith(MADE)]
    assert len(set(texts)) == len(texts)


def test_the_tools_can_be_used() -> None:
    for name, tool in all_tools().items():
        assert validate_tool_name(name)
        assert validate_tool_schema(tool["parameters"]) is None
        assert tool["description"]


def test_every_entry_is_whole() -> None:
    for answer in EVERYTHING:
        assert answer.text.strip(), answer.id
        assert answer.why, answer.id
        assert "\n=== " not in f"\n{answer.text}", f"a head that could not be read, in {answer.id}"
        assert answer.offered, answer.id
        assert set(answer.offered) <= set(all_tools()), answer.id
        assert [tool["function"]["name"] for tool in answer.tools] == list(answer.offered)


def test_expected_calls_fit_their_tools() -> None:
    for answer in printed_calls():
        assert answer.calls, answer.id
        for call in answer.calls:
            assert call.name in answer.offered, answer.id
            flaw = compile_schema(answer.schemas[call.name]).check(json.dumps(call.arguments))
            assert flaw is None, f"{answer.id}: {flaw}"


# --- the naive reader -------------------------------------------------------------------------------------------------


def test_no_call_is_read_as_one() -> None:
    assert {answer.id: calls for answer in no_calls() if (calls := read(answer))} == {}


def test_printed_calls_are_read() -> None:
    assert {a.id: read(a) for a in printed_calls() if read(a) != ([] if a.mended else list(a.calls))} == {}


def test_without_its_tools_nothing_is_a_call() -> None:
    assert [answer.id for answer in printed_calls() if printed(answer.text, {})] == []
