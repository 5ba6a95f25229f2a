"""Texts that are rich in markers, and ways to cut them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.parse.oracle import Settings, valid
from toolwire.formats.families import bare_json, fenced_json, sentinel
from toolwire.scan._grammar import END, KEY_CLOSER, BlockSyntax, Branch, Field, Grammar, Node, Read


def lit(literal: str, then: int = END, read: Read = "nothing", field: Field = "") -> Branch:
    """A literal, then perhaps a field."""
    return Branch(literal=literal, read=read, field=field, then=then)


def get(read: Read, field: Field = "", then: int = END) -> Branch:
    """A field without a literal before it."""
    return Branch(read=read, field=field, then=then)


def block(opener: str, closer: str = "", *body: Branch | Node, **more: Any) -> BlockSyntax:
    """A syntax; a node may be given as its only branch."""
    nodes = tuple((node,) if isinstance(node, Branch) else node for node in body)
    return BlockSyntax(opener=opener, closer=closer, body=nodes, **more)


def grammar(*syntaxes: BlockSyntax, **more: Any) -> Grammar:
    return Grammar(syntaxes=syntaxes, **more)


def _later(branch: Branch) -> Branch:
    """The branch in a body that has one node more in front."""
    return branch if branch.then == END else replace(branch, then=branch.then + 1)


ARGS = lit("[ARGS]", END, "object", "arguments")
TAGGED: tuple[Node, ...] = (
    (lit("<function=", 1, "name", "name"),),
    (lit(">", 2),),
    (lit("<parameter=", 3, "word", "key"), lit("</function>", 5)),
    (lit(">", 4, "text", "value"),),
    (lit("</parameter>", 2), lit("\n<parameter=", 3, "word", "key"), lit("</function>", 5), lit(KEY_CLOSER, 2)),
    (lit("</tool_call>"),),
)
SECTION_CALL: tuple[Node, ...] = (
    (get("name", "id", 1),),
    (lit("<|args|>", 2, "object", "arguments"),),
    (lit("<|end|>"),),
)


def printed(base: int, *ends: Branch) -> tuple[Node, ...]:
    """Calls one after another, then what ends them."""
    call = get("printed", "calls", base + 1)
    return ((call,), (lit(";", base), *ends, call))


ENDS = get("end")
BARE = block("", "", *printed(0, ENDS), anchor="answer", first_keys=("name", "x"), untaught=True)
BEHIND = replace(BARE, anchor="margin", body=((get("object", "calls", 1),), (ENDS, get("object", "calls", 1))))
FENCED = replace(
    BARE,
    anchor="margin",
    body=((lit("```", 1, "word"),), (lit("\n", 2),), *printed(2, lit("```", 4), ENDS), (lit("```", 1, "word"), ENDS)),
)
FUNCTION = block(
    "<function=",
    "</function>",
    get("name", "name", 1),
    lit(">", 2),
    *TAGGED[2:5],
    Branch(),
    family="tagged",
    untaught=True,
)
MARKED = (
    FUNCTION,
    block("<tool_call>", "</tool_call>", *TAGGED, family="tagged", untaught=True),
    block("[CALLS]", "", get("array", "calls"), family="calls", untaught=True),
    block("<tag>", "</tag>", family="tag", untaught=True),
)
FRAME = block("<|start|>", "", Branch(), family="tagged", untaught=True)

GRAMMARS = {
    "sentinel": sentinel.GRAMMAR,
    "fenced_json": fenced_json.GRAMMAR,
    "bare_json": bare_json.GRAMMAR,
    "several": grammar(*sentinel.GRAMMAR.syntaxes, *fenced_json.GRAMMAR.syntaxes, *bare_json.GRAMMAR.syntaxes),
    "not ascii": grammar(block("<｜opén｜>", "ü|"), block("§", "</tool_call>")),
    "none": grammar(),
    "tagged": grammar(
        block("<tool_call>", "</tool_call>", *TAGGED),
        block("<function=", "</function>", get("name", "name", 1), lit(">", 2), *TAGGED[2:5], ()),
    ),
    "framed": grammar(
        block("<tool_call>", "</tool_call>", *TAGGED, framed=True),
        block(
            "<function=",
            "</function>",
            get("name", "name", 1),
            lit(">", 2),
            *TAGGED[2:5],
            (lit("</tool_call>"), Branch()),
            framed=True,
        ),
    ),
    "pairs": grammar(
        block(
            "<tool_call>",
            "</tool_call>",
            (get("name", "name", 1), get("object", "call", 3)),
            (lit("<k>", 2, "text", "key"), lit("</tool_call>")),
            lit("</k>", 4),
            lit("</tool_call>"),
            lit("<v>", 5, "text", "value"),
            lit("</v>", 1),
        )
    ),
    "section": grammar(
        block("<|section|>", "<|end|>", lit("<|call|>", 1), *(tuple(_later(b) for b in p) for p in SECTION_CALL)),
        block("<|call|>", "<|end|>", *SECTION_CALL),
        block("<|section_end|>", "", Branch(), anchor="after"),
        block("<|start|>", "", Branch()),
    ),
    "mistral": grammar(
        block("[CALLS]", "", (get("array", "calls"), get("object", "call"))),
        block("[CALLS]", "", get("name", "name", 1), (ARGS, lit("[ID]", 2, "word", "id")), ARGS),
    ),
    "code": grammar(
        block("<|start|>", "<|end|>", get("list", "calls", 1), lit("<|end|>")),
        block("", "", get("list", "calls", 1), (), anchor="answer"),
        block("<calls>", "</calls>", get("call", "call", 1), (lit("</calls>"), get("call", "call", 1))),
    ),
    "braces": grammar(
        block(
            "<call>",
            "</call>",
            lit("call:", 1, "name", "name"),
            get("braces", "arguments", 2),
            lit("</call>"),
            quote="<q>",
        )
    ),
    "separated": grammar(
        block(
            "",
            "",
            get("object", "call", 1),
            (lit(";", 2), Branch()),
            get("object", "call", 1),
            anchor="answer",
            first_keys=("name", "a"),
        ),
        block("<tag>", "", get("array", "calls"), first_keys=("name",)),
    ),
    "verbatim": grammar(
        block(
            "<call ",
            "</call>",
            get("word", "name", 1),
            lit(">", 2),
            (lit("<q>", 3, "text", "value"), get("text", "value", 4)),
            lit("</q>", 4),
            (lit("</call>"), lit("<v>", 2)),
        )
    ),
    "endings": grammar(
        block("<tool_call>", "</tool_call>", get("object", "call", 1), (lit("</tool_call>"), Branch())),
        block("]<x<tool_call>", "]<x</tool_call>"),
        block("<end>", "", Branch()),
        block("/<end>", "", Branch(), anchor="after"),
    ),
    "headers": grammar(
        block("", "", (lit("all\n"), get("name", "name", 1)), get("object", "arguments"), anchor="answer"),
        block(
            "<to ",
            "",
            (Branch(literal="self<think>", ahead=True), get("word", "", 1)),
            (lit("<|m|>"), Branch(literal="<think>", ahead=True)),
        ),
        block(
            "<|section|>",
            "<|end|>",
            (lit("<|call|>", 2, "object", "call"), lit("<|section_end|>"), get("word", "said", 1)),
            (lit("<|call|>", 2, "object", "call"), lit("<|section_end|>")),
            lit("<|end|>"),
        ),
    ),
    "families": grammar(
        block("<tool_call>", "</tool_call>", fence=True, family="a"),
        block("[CALLS]", "", get("array", "calls"), family="b"),
        block("```json", "```", anchor="line", first_keys=("name",), family="c"),
        block("", anchor="answer", family="d", first_keys=("name",)),
        block("<|start|>", "", Branch(), family="b"),
        exclusive=True,
    ),
    "recognised": grammar(
        *sentinel.GRAMMAR.syntaxes,
        *MARKED,
        BARE,
        BEHIND,
        FENCED,
        families={"tagged": grammar(*sentinel.GRAMMAR.syntaxes, FRAME, FUNCTION, FENCED)},
    ),
    "recognised beside others": grammar(
        *fenced_json.GRAMMAR.syntaxes, *bare_json.GRAMMAR.syntaxes, FUNCTION, BARE, BEHIND, FENCED
    ),
    "recognised beside answers": grammar(
        block("", "", get("list", "calls", 1), (), anchor="answer"),
        block("[CALLS", "]", get("object", "call", 1), lit("]")),
        block("[C", "]", untaught=True),
        block("[CALLS", "]", *TAGGED, untaught=True),
        BARE,
        FENCED,
    ),
    "nothing taught": grammar(*MARKED, BARE, replace(FENCED, anchor="answer")),
}

PIECES = [
    *("<tool_call>", "</tool_call>", "<tool_c", "</tool_", "all>", "<", "</", ">", "<think>", "</think>", "<thi"),
    *("nk>", "```json", "```", "``", "`", "json", "\n```", "````", "`\n", "<function=f>", '"tool_calls"', '"name"'),
    *('"tool_', "<｜opén｜>", "<｜op", "§", "ü|", "[THINK]", "[/THINK]", "[CALLS]", "[CALLS", "'", "(", ")", "f(x=1)"),
    *(";", "=", "name", "{", "}", "[", "]", ":", ",", '"', "\\", '\\"', "1", "-2e3", "true", "\x01", "a", "x", "xx"),
    *("d", "r", "w ", " ", "\n", "\t", "\r\n", " " * 25, " " * 50, "ü", "\U0001f600", "\ud83d", "\ude00", "\ufffd"),
    *("\x00", '{"name":"x"}', '{"tool_calls":[]}', '{"a":"', '"}', '{"a":"</tool_call>"}', '{"x":1,}', "{}"),
    *("[1,2]", '<tool_call>{"x":"</tool_call>', '<tool_call>{"d":1}</tool_call>'),
    *('<tool_call>\n{"x": 1}\n</tool_call>\n', '<tool_call>```json\n{"x":{}}\n```</tool_call>'),
    *('\n```json\n{"tool_calls":["x"]}\n```\n', "<think>\nx</think>\n"),
]

FIELDS = {
    "nothing": [""],
    "name": ["x", "d", " ns.x-y:1/2\n", "é", "x y", "x<", "\n x", "", "a" * 260],
    "word": ["x", "d", "name x", "x\n", "\n x", "n\nx", "é" * 130, "", "<", "a" * 260],
    "text": ["x", "", "\n x \n", "\nx", "<", "\n<x", "d</", "é\n\n"],
    "object": [
        *('{"x":1}', '{"name":"x"}', '{"a":"x\\"}"}', '{ "a" : ["}", {}] }', '{"d":"</tool_call>"}', '{"x":'),
        *('{"x"}', '{"x":"\\"'),
    ],
    "array": ["[]", '[{"x":1}]', '[{"name":"x"}, {}]', '["]",[1]]', "[1", "[x,]", "[}"],
    "list": [
        *("[f(x=1)]", "[f(), g.x(a='it's', b=[1, {'k': \")\"}])]", '[{"name":"x"}]', "[]", "[f", "[f(]", "[1]"),
        "[x]",
    ],
    "call": ["f(x='\\'', a=')')", "x(a='b', c=\"d'e\")", "é.x(')')", "f(a=[)", "f(a='", "1()", "f x()", "[f()]"],
    "printed": [
        *('{"name":"x"}', "f(x='`')", "[get(a=1), {'x': 1}]", "print(await f('x'))", "{'name': 'x', 'a': [True]}"),
        *('[{"x":"<tool_call>{}</tool_call>"}]', '{"x":"`"', "await get(x", "await x()", "fx("),
    ],
    "end": ["", "\n", " \n\n", "x"],
    "braces": ["{x:1}", "{x:<q>}<q>}", "{x:<q>}<q>,y:[{},<q><q><<q>]}", "{}", "{x:<q>a", "{<}", "{[}", "{x:<qq>}"],
}
"""Texts that a field may be taken for: right, wrong, and cut short."""


def written(branch: Branch) -> str:
    """A branch's literal, for a value with the key `x`."""
    return branch.literal.replace(KEY_CLOSER, "</x>")


def literals_of(grammar: Grammar) -> list[str]:
    """Every literal of a grammar."""
    syntaxes = grammar.syntaxes
    inside = [written(branch) for syntax in syntaxes for node in syntax.nodes for branch in node]
    found = [*(syntax.opener for syntax in syntaxes), *(syntax.closer for syntax in syntaxes), *inside]
    return sorted({literal for literal in found if literal})


def literals_of_syntax(syntax: BlockSyntax) -> list[str]:
    """The literals between a syntax's fields."""
    return sorted({written(branch) for node in syntax.nodes for branch in node if branch.literal})


@cache
def texts_of(grammar: Grammar) -> st.SearchStrategy[str]:
    """Texts that are rich in a grammar's markers: blocks as it wants them, spoilt here and there. Drawn by seed, since
    what shrinks well seldom comes far into a block."""
    return st.integers(0, 2**32).map(lambda seed: text_of(grammar, Random(seed)))


def text_of(grammar: Grammar, random: Random) -> str:
    own = literals_of(grammar)
    some = [*own, *(literal[:-1] for literal in own), *PIECES]
    parts: list[str] = []
    for _ in range(random.randint(1, 4)):
        if grammar.syntaxes and random.random() < 0.75:
            parts += walk(random, grammar)
        else:
            parts += random.choices(some, k=random.randint(0, 4))
    if random.random() < 0.4:
        at = random.randrange(len(parts) + 1)
        parts[at : at + random.randint(0, 1)] = random.choices(some, k=random.randint(0, 2))
    text = "".join(parts)
    return text[: random.randint(0, len(text))] if random.random() < 0.3 else text


def walk(random: Random, grammar: Grammar) -> Iterator[str]:
    """A way through the nodes of one syntax, which may stop anywhere."""
    syntax = random.choice(grammar.syntaxes)
    if syntax.untaught:
        yield random.choice(["", "\n", "\n  ", "`", "``", "\n```\n", "\n````x\n", "\n```\n```\n", "``` `\n"])
    yield syntax.opener
    spaces = ["", "", "", "", "\n", " \n", " " * 30, *(["```", "```json\n"] * 2 if syntax.fence else [])]
    right = random.random() < 0.6
    at = 0
    for _ in range(random.randint(1, 14)):
        yield random.choice(spaces)
        if not syntax.nodes[at]:
            return
        branch = random.choice(syntax.nodes[at])
        yield written(branch)
        fields = FIELDS[branch.read]
        yield random.choice(fields[:4] if right else fields)
        while branch.read == "text" and random.random() < 0.3:
            yield from closers_as_data(random, syntax, branch)
        if branch.then == END:
            return
        at = branch.then


def closers_as_data(random: Random, syntax: BlockSyntax, branch: Branch) -> Iterator[str]:
    """What would end a value, and then nothing that may follow it; or something that may, for once."""
    for _ in range(random.randint(1, 3)):
        option = random.choice(syntax.nodes[branch.then])
        yield written(option)
        yield random.choice(["", "", " ", "\n", "\n\n"])
        if option.then == END or option.read != "nothing" or not syntax.nodes[option.then]:
            break
        branch = option
    yield random.choice(
        ["x", " x", "<", "\n", written(option)[:-1], *(literal[:-1] for literal in literals_of_syntax(syntax))]
    )


texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.text(alphabet='<>/{}[]":,\\`tolcah_x \n', max_size=60),
)

settings = st.builds(
    Settings,
    block_bytes=st.sampled_from([1 << 20, 1 << 20, 1 << 20, 90, 40, 20]),
    trim_edges=st.booleans(),
    reasoning=st.sampled_from([(), (("<think>", "</think>"),), (("<think>", "</think>"), ("[THINK]", "[/THINK]"))]),
    preopened=st.booleans(),
    scan_calls=st.booleans(),
)


SIZES = st.sampled_from([1, 2, 3, 5, 13, 1000])


@st.composite
def cuts(draw: st.DrawFn, text: str) -> list[str] | list[bytes]:
    """The text in pieces: of characters, or of bytes cut anywhere."""
    whole: str | bytes = valid(text).encode() if draw(st.booleans()) else text
    size = draw(SIZES)
    if size < 1000:
        return [whole[at : at + size] for at in range(0, len(whole), size)]  # type: ignore[return-value]  # one kind
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    edges = [0, *places, len(whole)]
    return [whole[a:b] for a, b in pairwise(edges)]  # type: ignore[return-value]  # one kind
