"""What counts as a near miss (R23.4): names one edit away, blocks that were meant as calls, and what the call policy
tells of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.cases import every
from toolwire.call_policy.candidate import names_on_offer
from toolwire.call_policy.near import NAME_CHARS, NearMiss, is_near, near_name, stand, unreadable_block
from toolwire.formats.families import bare_json, deepseek, fenced_json, hermes, invoke, qwen, sentinel
from toolwire.model import ToolChoice, ToolSpec
from toolwire.scan._grammar import BlockSyntax, Grammar

from .policy_bench import PolicyBench

READ, WRITE = ToolSpec("read_file"), ToolSpec("write_file")
QWEN, INVOKE, DEEPSEEK = (
    next(syntax for syntax in known.grammar.syntaxes if syntax.body and syntax.opener)
    for known in (qwen.QWEN3_CODER, invoke.MINIMAX_M2, deepseek.V31)
)


ONE_EDIT = [
    *("red_file", "rread_file", "raed_file", "read_fila", "ead_file", "read_files"),
    *("read-file", "READ_FILE", "readFile", "Read.File", "read file"),
]
MORE = ["", "read", "rd_file", "red_filee", "xead_filx", "reed-fil", "file_read", "r" * 9]


@every(("name", "near"), [*((name, True) for name in ONE_EDIT), *((name, False) for name in MORE)])
def test_one_edit(name: str, near: bool) -> None:
    assert is_near(name, "read_file") is near
    assert is_near("read_file", name) is near


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


TAG, FENCE, BARE = sentinel.GRAMMAR.syntaxes[0], fenced_json.GRAMMAR.syntaxes[0], bare_json.GRAMMAR.syntaxes[0]
NAMES = names_on_offer((READ, WRITE), ToolChoice())


@every(
    ("syntax", "body", "tools"),
    [
        (TAG, '{"name": "read_file", "argum', ["read_file"]),
        (TAG, '{"name":"write_fil","arguments":{"text":}}', ["write_file"]),
        (TAG, "read_file(path=2*pi)", ["read_file"]),
        (TAG, '[{"name": "read_file", "arguments": {]}, {"name": "write_file"}]', ["read_file", "write_file"]),
        (QWEN, "<function=read_file>\n<parameter=path", ["read_file"]),
        (INVOKE, '<invoke name="read_file">\n<param', ["read_file"]),
        (DEEPSEEK, "<｜tool▁call▁begin｜>read_file<｜tool▁sep｜>{", ["read_file"]),
        (BARE, '{"name": "read_file", "arguments": {"end": 2*pi}}', ["read_file"]),
        (BARE, "{'tool': 'read_file', 'args': {'path': [\"I\", 'V']}}", ["read_file"]),
        (FENCE, "[read_file(path=", ["read_file"]),
    ],
)
def test_text_that_was_meant_as_a_call(syntax: BlockSyntax, body: str, tools: list[str]) -> None:
    miss = unreadable_block("so", syntax, body, NAMES)
    assert miss is not None
    assert ([*miss.tools], miss.why, miss.text) == (tools, "so", body)


@every(
    ("syntax", "body"),
    [
        (TAG, " \n"),
        (TAG, "{...}"),
        (TAG, '{"name": "read_file", "arguments": {...}}'),
        (TAG, '{"name": "read_file", "arguments": {"path": <the path>}}'),
        (TAG, "then a call of read_file, as JSON"),
        (TAG, '{"name": "delete_all", "arguments": {"name": "read_file", }, }}'),
        (BARE, '{"name": "read_file", "version": "1.0",, }'),
        (BARE, '{"title": "read_file", "arguments": {,}}'),
        (FENCE, "See read_file(path)."),
    ],
)
def test_text_that_was_not(syntax: BlockSyntax, body: str) -> None:
    assert unreadable_block("so", syntax, body, NAMES) is None


ATTEMPT = NearMiss("so", ("read_file",), "{2*pi}")


@every(
    ("place", "before", "behind", "counts"),
    [
        ("anywhere", "", "", True),
        ("anywhere", "Let me see.\n<tool_call>", "</tool_call>", True),
        ("anywhere", "Write\n<tool_call>", "</tool_call>\nto read it.", False),
        ("first", "Write ", "", False),
        ("alone", "```json\n", "\n```\n", True),
        ("alone", "", "\nThat is it.", False),
    ],
)
def test_where_it_stands(place: Any, before: str, behind: str, counts: bool) -> None:
    miss = replace(ATTEMPT, place=place)
    assert stand([miss], before + miss.text + behind) is counts
    assert stand([miss, miss], before + miss.text + "\n" + miss.text + behind) is counts


def test_what_is_not_in_the_text_stands_anywhere() -> None:
    assert stand([NearMiss("so", ("read_file",))], "Said before.")
    assert stand([ATTEMPT], "What was escaped is put back.")


DEFINITION = '{"name":"read_file","description":"Reads.","parameters":{"type":"object","properties":{"path":{}}}}'


def told(body: str, *tools: ToolSpec, grammar: Grammar = sentinel.GRAMMAR, **options: Any) -> list[NearMiss]:
    """What the call policy tells of a block with this body, and that has an end."""
    bench = PolicyBench(*(tools or (READ, WRITE)), syntax=grammar.syntaxes[0], **options)
    bench.block(body)
    return bench.near


@every(
    ("body", "said"),
    [
        ('{"name":"read_file","arguments":{"path":}', "cannot be read: it is not valid JSON"),
        (
            '{"name":"read_file","arguments":"{a b}"}',
            'call of "read_file" is malformed: its arguments are not valid JSON',
        ),
        ('{"name":"rread_file","arguments":{}}', '"rread_file", which is not on offer. Its name is "read_file".'),
        (DEFINITION, 'wrote the definition of the tool "read_file" in place of a call'),
        (DEFINITION.replace("parameters", "arguments"), "wrote the definition"),
    ],
)
@every("grammar", [sentinel.GRAMMAR, hermes.GRAMMAR])
def test_the_policy_says_what_was_wrong(body: str, said: str, grammar: Grammar) -> None:
    (miss,) = told(body, grammar=grammar)
    assert said in miss.why
    assert (miss.tools, miss.text) == (("read_file",), body)


LOOSE = Grammar(syntaxes=(replace(bare_json.GRAMMAR.syntaxes[0], untaught=True, family="bare"),))
NEEDS = ToolSpec(
    "read_file",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@every(
    ("body", "place"),
    [
        ('{"name":"read_file","arguments":{"path":2*pi}}', "anywhere"),
        ('{"name":"read_file","arguments":{"path":@,"more":path}}', "alone"),
        ('{"name":"read_file","arguments":{"path":{}}}', "anywhere"),
        ('{"name":"read_file","arguments":{}}', "anywhere"),
        ('{"name":"read_file","arguments":"a b"}', "anywhere"),
        ('{"name":"readFile","arguments":{"path":"a"}}', "anywhere"),
        ('{"type":"function","function":{"name":"read_fil","parameters":{"path":"a"}}}', "anywhere"),
        (DEFINITION, "alone"),
        (DEFINITION.replace("parameters", "input_schema"), "alone"),
        (f'{{"type":"function","function":{DEFINITION}}}', "alone"),
    ],
)
def test_near_misses_without_markers(body: str, place: str) -> None:
    (miss,) = told(body, NEEDS, WRITE, grammar=LOOSE, coerce="off")
    assert (miss.tools, miss.place, miss.text) == (("read_file",), place, body)


def test_data_is_none() -> None:
    for body in (
        '{"name":"read_file","version":"1.0","description":"Reads.","scripts":{}}',
        '{"name":"read_file","description":"Reads."}',
        '{"name":"read_file","parameters":["path"]}',
        '{"name":"read_file","input":"a path","output":"text"}',
        '{"name":"reads","arguments":{"path":"a"}}',
        '{"name":"readFile","path":"a"}',
        '{"name":"read_file","arguments":{"path":...}}',
        '{"name":"read_file","arguments":{"file":"<path>"}}',
        f'{{"tool_calls":[{DEFINITION},{DEFINITION}]}}',
    ):
        assert told(body, NEEDS, WRITE, grammar=LOOSE) == [], body
    for body in ('{"name":5,"version":"1"}', '{"name":"Bob","age":}'):
        assert told(body, grammar=bare_json.GRAMMAR) == [], body


def test_good_calls_and_calls_of_nothing_are_none() -> None:
    takes_anything = ToolSpec("read_file", parameters={"type": "object", "properties": {"path": {}}})
    for body in (
        '{"name":"read_file","arguments":{}}',
        '{"name":"delete_all","arguments":{}}',
        '{"name":"read_file","path":1}',
        '{"arguments":{}}',
        '{"arguments":{"name":"read_file"}}',
    ):
        assert told(body, takes_anything) == [], body
    assert told('{"name":"read_file","arguments":"{a b}"}', ToolSpec("read_file", strict=True)) == [], "it is a failure"


def test_all_tools_of_a_block_are_named() -> None:
    body = '{"tool_calls":[{"name":"write_file","arguments":{}},{"name":"read_file","arguments":"a b"}]}'
    for grammar in (LOOSE, hermes.GRAMMAR):
        (miss,) = told(body, NEEDS, WRITE, grammar=grammar)
        assert sorted(miss.tools) == ["read_file", "write_file"]


@every(
    ("syntax", "body", "called"),
    [
        (TAG, '{"name": "nothing", "arguments": {}}', True),
        (TAG, '{"name": "nothing", "arguments": {"path": "..."}}', False),
        (TAG, "...", False),
        (BARE, '{"name": "nothing", "arguments": {}}', True),
        (BARE, '{"name": "Ann", "age": 7}', False),
        (BARE, '{"name": "Ann Lee", "arguments": {}}', False),
        (BARE, '{"name": "x", "arguments": [1]}', False),
    ],
)
def test_a_call_of_nothing_where_the_gateway_runs_all_tools(syntax: BlockSyntax, body: str, called: bool) -> None:
    bench = PolicyBench(replace(READ, server=True), syntax=syntax)
    assert bool(bench.block(body).calls) is called
    assert bench.policy.may_call("nothing", untaught=False)
    assert not bench.policy.may_call("nothing", untaught=True)
    untaught = PolicyBench(replace(READ, server=True), syntax=replace(syntax, untaught=True))
    assert not untaught.block(body).calls, "what nobody taught has to name a tool"


@every(("why", "near"), [("end", True), ("truncated", False), ("oversize", False)])
def test_blocks_without_an_end(why: Any, near: bool) -> None:
    bench = PolicyBench(READ, syntax=sentinel.GRAMMAR.syntaxes[0])
    bench.policy.unfinished(bench.syntax, '{"name":"read_file","argum', why)
    assert bool(bench.near) is near
    bench.policy.unfinished(bench.syntax, "", why)
    assert len(bench.near) == near, "nothing but an opener is a mention"
