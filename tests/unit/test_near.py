"""What counts as a near miss (R23.4): names one edit away, blocks that were meant as calls, and what the call policy
tells of them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.call_policy.near import NAME_CHARS, is_near, near_name, tries_to_call
from proxy.call_policy.policy import CallPolicy
from proxy.config import LimitsConfig, RouteOptions
from proxy.formats import bare_json, fenced_json, hermes, sentinel
from proxy.model import ToolChoice, ToolSpec
from proxy.scan._grammar import Block, BlockSyntax, Grammar
from tests.options import route_options

READ, WRITE = ToolSpec("read_file"), ToolSpec("write_file")
BOTH = {tool.name: tool for tool in (READ, WRITE)}


@pytest.mark.parametrize(
    "name",
    [
        *("red_file", "rread_file", "raed_file", "read_fila", "ead_file", "read_files"),
        *("read-file", "READ_FILE", "readFile", "Read.File", "read file"),
    ],
)
def test_one_edit(name: str) -> None:
    assert is_near(name, "read_file")
    assert is_near("read_file", name)


@pytest.mark.parametrize("name", ["", "read", "rd_file", "red_filee", "xead_filx", "reed-fil", "file_read", "r" * 9])
def test_more_than_one_edit(name: str) -> None:
    assert not is_near(name, "read_file")
    assert not is_near("read_file", name)


def test_a_name_that_is_no_name_costs_nothing() -> None:
    assert not is_near("a" * (NAME_CHARS + 1), "a" * NAME_CHARS)


def test_exactly_one_tool_has_to_be_meant() -> None:
    known = {name: ToolSpec(name) for name in ("get_a", "get_b", "put")}
    assert near_name(["get_c"], known, known) is None
    assert near_name(["get_c", "putt"], known, known) == "put"
    assert near_name(["Put", None], known, known) == "put"
    assert near_name(["Put"], known, {"get_a"}) is None, "it may not be called"
    grouped = {"files__read": READ, "read": READ}
    assert near_name(["reed"], grouped, grouped) == "read"
    assert near_name(["fileX__read"], grouped, grouped) == "files__read"


def test_text_that_was_meant_as_a_call() -> None:
    (tag,), fence, bare = sentinel.GRAMMAR.syntaxes, fenced_json.GRAMMAR.syntaxes[0], bare_json.GRAMMAR.syntaxes[0]
    assert tries_to_call(tag, '{"nam', BOTH)
    assert tries_to_call(tag, '{"name":"write_file","arguments":{"text":"Well ... "so"}}', BOTH)
    assert not tries_to_call(tag, " \n", BOTH), "a mention"
    for explained in ("{...}", "...", '{"name": "TOOL", "arguments": {...}}', '{"name": …, "arguments": …}', "{}"):
        assert not tries_to_call(tag, explained, BOTH)
    for syntax in (fence, bare):
        assert tries_to_call(syntax, '{"name": "read_file", "arguments": {"a', BOTH)
        assert tries_to_call(syntax, "[read_file(path=", BOTH)
        assert not tries_to_call(syntax, '{"name": "my-package", "version', BOTH)
        assert not tries_to_call(syntax, '{"name": "the read_file of old', BOTH)


def told(body: str, *tools: ToolSpec, grammar: Grammar = sentinel.GRAMMAR, **options: Any) -> list[str]:
    """What the call policy tells of a block with this body, and that has an end."""
    near: list[str] = []
    policy = CallPolicy(
        tools or (READ, WRITE),
        choice=ToolChoice(),
        parallel=True,
        options=route_options(**options),
        limits=LimitsConfig(),
        near=near.append,
    )
    policy.block(Block(grammar.syntaxes[0], body, (("call", body),)))
    return near


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"name":"read_file","arguments":{"path":}', "cannot be read: it is not valid JSON"),
        (
            '{"name":"read_file","arguments":"{a b}"}',
            'call of "read_file" is malformed: its arguments are not valid JSON',
        ),
        ('{"name":"red_file","arguments":{}}', '"red_file", which is not on offer. Its name is "read_file".'),
        ('{"arguments":{}}', "has no name"),
    ],
)
@pytest.mark.parametrize("grammar", [sentinel.GRAMMAR, hermes.GRAMMAR])
def test_the_judge_says_what_was_wrong(body: str, said: str, grammar: Grammar) -> None:
    (why,) = told(body, grammar=grammar)
    assert said in why


@pytest.mark.parametrize(
    "body",
    ['{"name":"read_file","arguments":{}}', '{"name":"delete_all","arguments":{}}', '{"name":"read_file","path":1}'],
)
def test_good_calls_and_calls_of_nothing_are_none(body: str) -> None:
    assert told(body, ToolSpec("read_file", parameters={"type": "object", "properties": {"path": {}}})) == []


@pytest.mark.parametrize("body", ['{"name":5,"version":"1"}', '{"name":"Bob","age":}'])
def test_json_for_its_own_sake_is_none(body: str) -> None:
    assert told(body, grammar=bare_json.GRAMMAR) == []


def test_what_a_strict_tool_fails_with_is_a_failure_and_no_near_miss() -> None:
    assert told('{"name":"read_file","arguments":"{a b}"}', ToolSpec("read_file", strict=True)) == []


@pytest.mark.parametrize(("why", "near"), [("end", True), ("truncated", False), ("oversize", False)])
def test_blocks_without_an_end(why: Any, near: bool) -> None:
    syntax: BlockSyntax = sentinel.GRAMMAR.syntaxes[0]
    said: list[str] = []
    policy = CallPolicy(
        (READ,),
        choice=ToolChoice(),
        parallel=True,
        options=RouteOptions(),
        limits=LimitsConfig(),
        near=said.append,
    )
    policy.unfinished(syntax, '{"name":"read_file","argum', why)
    assert bool(said) is near
    policy.unfinished(syntax, "", why)
    assert len(said) == near, "nothing but an opener is a mention"
