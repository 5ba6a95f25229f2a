"""The law of recovery (R30.1): whatever the tool, the values and the damage, a damaged call is read as the same call,
or stays text to the last byte; never as another call."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.options import route_options
from tests.parse.test_damaged import read
from toolwire.scanner import open_scanner

KEYS = ("path", "name", "type", "query", "arguments", "input", "limit", "from", "text", "flag")
NAMES = ("run", "find_page", "set-light", "a.b", "Read")

TEXTS = st.one_of(
    st.text(alphabet="abc xyz,:;.-_/\\'\"<>{}[]()=|`\n", min_size=1, max_size=24).filter(lambda t: t == t.strip("\n")),
    st.sampled_from(
        ("ls -la", "a, b: c", "</parameter>", "<b>x</b>", '{"a": 1}', "x = {y}", "line 1\nline 2", "run", "5", "true")
    ),
)
VALUES = st.one_of(
    TEXTS, st.integers(-99, 99), st.booleans(), st.lists(st.integers(0, 9), max_size=3), st.just({"a": "b"})
)


def type_of(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (str, "string"), (int, "integer"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def tags(arguments: Mapping[str, Any], form: str) -> str:
    return "".join(form.format(key=key, value=plain(value)) for key, value in arguments.items())


def members(arguments: Mapping[str, Any], quote: str, colon: str) -> str:
    """Members with raw quotation marks and line ends in their strings. A backslash is escaped between quotes that know
    escapes: it has two readings else."""

    def raw(value: str) -> str:
        return value.replace("\\", "\\\\") if quote in ("'", '"') else value

    return ",".join(
        f"{key}{colon}{quote}{raw(value)}{quote}" if isinstance(value, str) else f"{key}{colon}{json.dumps(value)}"
        for key, value in arguments.items()
    )


Writer = Callable[[str, Mapping[str, Any]], str]

WRITERS: dict[str, Writer] = {
    "name tag": lambda name, a: f"<tool_use>\n<name>{name}</name>\n{tags(a, PARAMETER)}</tool_use>",
    "parameter as name": lambda name, a: f"<parameter={name}>\n{tags(a, PARAMETER)}</function>",
    "mixed": lambda name, a: f"<function={name}>\n{tags(a, ATTRIBUTE)}</function>",
    "bars": lambda name, a: f'<|DSML|invoke name="{name}">\n{tags(a, BARRED)}</|DSML|invoke>',
    "keys": lambda name, a: f"<tool_call>{name}{tags(a, PAIR).replace('<arg_key>', '<tool_call>', 1)}</tool_call>",
    "no closers": lambda name, a: f"<tool>{name}{tags(a, PAIR)}",
    "own tags": lambda name, a: f"<{name}>\n{tags(a, OWN)}</{name}>",
    "json": lambda name, a: f"{name}\n{json.dumps(a)}",
    "json in a tag": lambda name, a: f"<call>{name}{json.dumps(a)}</call>",
    "json behind >": lambda name, a: f"{name}>{json.dumps(a)}",
    "bracket": lambda name, a: f"[Calling tool: {name}({json.dumps(a)})]",
    "braces": lambda name, a: "call:%s{%s}" % (name, members(a, '<|"|>', ":")),  # noqa: UP031
    "double quotes": lambda name, a: "call:%s{%s}" % (name, members(a, '"', ": ")),  # noqa: UP031
    "single quotes": lambda name, a: "<call>%s{%s}</call>" % (name, members(a, "'", ": ")),  # noqa: UP031
    "no quotes": lambda name, a: "<|tool_call>call:%s{%s}<tool_call|>" % (name, members(a, "", ":")),  # noqa: UP031
    "lost tag": lambda name, a: f"<function={name}>{''.join(map(plain, a.values()))}</parameter></function>",
    "python": lambda name, a: f"<tool_call>{name}({members(a, repr('')[0], '=')})</tool_call>",
    "envelope": lambda name, a: f'<tool_use>{{"name="{name}", "arguments": {json.dumps(a)}}}</tool_use>',
}
PARAMETER = "<parameter={key}>\n{value}\n</parameter>\n"
ATTRIBUTE = '<parameter name="{key}">{value}</parameter>\n'
BARRED = '<|DSML|parameter name="{key}" string="true">{value}</|DSML|parameter>\n'
PAIR = "<arg_key>{key}</arg_key><arg_value>{value}</arg_value>"
OWN = "<{key}>{value}</{key}>\n"


@given(
    st.sampled_from(sorted(WRITERS)),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3),
    st.sets(st.sampled_from(KEYS), max_size=2),
    st.integers(1, 60),
)
def test_the_same_call_or_text(
    twin: ModuleType, writer: str, name: str, arguments: dict[str, Any], more: set[str], size: int
) -> None:
    properties = {key: {"type": type_of(value)} for key, value in arguments.items()}
    properties |= {key: {"type": "string"} for key in sorted(more - arguments.keys())}
    judge(twin, writer, name, arguments, properties, size)


def judge(
    twin: ModuleType, writer: str, name: str, arguments: dict[str, Any], properties: dict[str, Any], size: int
) -> bool:
    """The law for one damaged call. Returns whether it was read."""
    tool = {"name": name, "parameters": {"type": "object", "properties": properties, "required": list(arguments)}}
    tools = [{"type": "function", "function": tool}]
    text = WRITERS[writer](name, arguments)
    counted: list[str] = []
    options = route_options(recognise="any")
    scanner = open_scanner("sentinel", tools, options=options, count=counted.append, scanner=twin.CallScanner)
    scanner.feed(text)
    scanner.finish()
    calls, visible = read(twin, text, size, "sentinel", tools)
    if writer in ("no quotes", "lost tag"):  # blanks around a value are the layout's
        arguments = {key: value.strip() if isinstance(value, str) else value for key, value in arguments.items()}
    if "recovered" in counted:
        assert calls == [(name, arguments)]
        assert not visible.strip()
    elif not calls:
        assert visible == text
    return bool(calls)


def test_most_are_read(twin: ModuleType) -> None:
    """Each writer's damage is read where the values are simple."""
    arguments = {"path": "a.txt", "limit": 5, "flag": True}
    properties = {key: {"type": type_of(value)} for key, value in arguments.items()}
    for title, writer in WRITERS.items():
        given_ = {"path": "a.txt"} if title == "lost tag" else arguments
        schema = {"type": "object", "properties": {key: properties[key] for key in given_}, "required": ["path"]}
        tools = [{"type": "function", "function": {"name": "run", "parameters": schema}}]
        assert read(twin, writer("run", given_), 3, "sentinel", tools) == ([("run", given_)], ""), title


def test_no_bracket_or_quote_of_a_value_is_lost(twin: ModuleType) -> None:
    """Values that end with what may also end their call."""
    read_whole = 0
    for writer in ("no quotes", "double quotes", "single quotes", "python"):
        for value in map("".join, itertools.product("a:{}[]()\"'<", repeat=2)):
            read_whole += judge(twin, writer, "run", {"path": value}, {"path": {"type": "string"}}, 99)
    assert read_whole > 300


def test_a_bracket_in_the_text_of_an_earlier_call_does_not_matter(twin: ModuleType) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tools = [{"type": "function", "function": {"name": "run", "parameters": schema}}]
    for form in ("<tool_call>run(path='{}')</tool_call>\n", "call:run{{path: '{}'}}\n"):
        for value in ("x :)", "a}", "it]"):
            text = form.format(value) + form.format("y")
            assert read(twin, text, 5, "sentinel", tools)[0] == [("run", {"path": value}), ("run", {"path": "y"})], text
