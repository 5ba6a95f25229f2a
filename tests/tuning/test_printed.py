"""Corners of the naive reader that the corpora do not have."""

from __future__ import annotations

from tests.cases import every
from tests.corpus.answers import all_tools
from toolwire.extras.tune.printed import MAX_CHARS, printed

SCHEMAS = {name: tool["parameters"] for name, tool in all_tools().items()}


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
        "x" * MAX_CHARS + '\n{"name": "list_files"}',
    ],
)
def test_what_is_broken_or_hostile_is_no_call(text: str) -> None:
    assert printed(text, SCHEMAS) == []


def test_a_fence_of_a_family_around_nothing_but_its_call_is_a_call() -> None:
    text = '```\n<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>\n```'
    assert [call.name for call in printed(text, SCHEMAS)] == ["search"]
    assert printed(text.replace("```\n<", "```\n# an example\n<"), SCHEMAS) == []
