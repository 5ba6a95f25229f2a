"""The naive reader of printed calls: the corpora of answers, and corners that they do not have. The gateway is not
asked."""

from __future__ import annotations

import json
from typing import Any

from tests.cases import every
from tests.corpus.answers import Answer, Call, all_tools, no_calls, printed_calls
from toolwire.extras.tune.printed import MAX_CHARS, printed
from toolwire.schemas.schema import compile_schema

SCHEMAS = {name: tool["parameters"] for name, tool in all_tools().items()}


def read(answer: Answer) -> list[Call]:
    return [Call(call.name, dict(call.arguments)) for call in printed(answer.text, answer.schemas)]


def test_expected_calls_fit_their_tools() -> None:
    for answer in printed_calls():
        assert answer.calls, answer.id
        for call in answer.calls:
            assert call.name in answer.offered, answer.id
            flaw = compile_schema(answer.schemas[call.name]).check(json.dumps(call.arguments))
            assert flaw is None, f"{answer.id}: {flaw}"


def test_no_call_is_read_as_one() -> None:
    assert len(no_calls()) >= 300
    assert {answer.id: calls for answer in no_calls() if (calls := read(answer))} == {}


def test_printed_calls_are_read() -> None:
    assert len(printed_calls()) >= 150
    assert {a.id: read(a) for a in printed_calls() if read(a) != ([] if a.mended else list(a.calls))} == {}


def test_without_its_tools_nothing_is_a_call() -> None:
    assert [answer.id for answer in printed_calls() if printed(answer.text, {})] == []


@every(
    "text",
    [
        "",
        "{",
        "[" * 5_000,
        "(" * 5_000,
        "{" * 5_000,
        "get_weather(city={1, 2})",
        "get_weather(city=b'x')",
        "get_weather(city=1j)",
        "get_weather(*cities)",
        "get_weather(**{'city': 'Oslo'})",
        "get_weather(city='Oslo', city='Rome')",
        "get_weather('Oslo', city='Rome')",
        f"delete_user(id={'9' * 5_000})",
        '{"name": "get_weather", "arguments": {"city": "\\ud800"}}',
        '{"name": "convert", "arguments": {"amount": NaN, "source": "a", "target": "b"}}',
        "<tool_call>" * 500,
        "<function=get_weather>" * 500,
        "`" * 5_000,
        'There is one.\n[{"name": "list_files", "arguments": {}}]',  # behind prose a list is text
        'So:\n  > <tool_call>{"name": "list_files", "arguments": {}}</tool_call>',  # a quotation that is indented
        "x" * MAX_CHARS + '\n{"name": "list_files"}',
    ],
)
def test_what_is_broken_or_hostile_is_no_call(text: str) -> None:
    assert printed(text, SCHEMAS) == []


@every(
    ("written", "value"),
    [
        ("true", True),
        (" True ", True),
        ("\nNone\n", None),
        (" {'a': 1} ", {"a": 1}),
        ("\ttext ", "\ttext "),
    ],
)
def test_a_value_without_quotes_may_have_space_around_it(written: str, value: Any) -> None:
    schemas = {"f": {"type": "object", "properties": {"x": {"type": ["boolean", "object", "string", "null"]}}}}
    (call,) = printed(f"<function=f><parameter=x>{written}</parameter></function>", schemas)
    assert call.arguments == {"x": value}


def test_a_fence_of_a_family_around_nothing_but_its_call_is_a_call() -> None:
    text = '```\n<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>\n```'
    assert [call.name for call in printed(text, SCHEMAS)] == ["search"]
    assert printed(text.replace("```\n<", "```\n# an example\n<"), SCHEMAS) == []
