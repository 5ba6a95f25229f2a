"""Texts that are rich in markers, and ways to cut them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random

from hypothesis import strategies as st

from tests.parse.oracle import Settings, valid
from toolwire.formats.families import bare_json, fenced_json, sentinel
from toolwire.scan._grammar import END, BlockSyntax, Branch, Grammar, Node


def _later(branch: Branch) -> Branch:
    """The branch in a body that has one node more in front."""
    return branch if branch.then == END else replace(branch, then=branch.then + 1)


ARGS = Branch(literal="[ARGS]", read="object", field="arguments")
TAGGED: tuple[Node, ...] = (
    (Branch(literal="<function=", read="name", field="name", then=1),),
    (Branch(literal=">", then=2),),
    (Branch(literal="<parameter=", read="word", field="key", then=3), Branch(literal="</function>", then=5)),
    (Branch(literal=">", read="text", field="value", then=4),),
    (
        Branch(literal="</parameter>", then=2),
        Branch(literal="\n<parameter=", read="word", field="key", then=3),
        Branch(literal="</function>", then=5),
    ),
    (Branch(literal="</tool_call>"),),
)
SECTION_CALL: tuple[Node, ...] = (
    (Branch(read="name", field="id", then=1),),
    (Branch(literal="<|args|>", read="object", field="arguments", then=2),),
    (Branch(literal="<|end|>"),),
)


def printed(base: int, *ends: Branch) -> tuple[Node, ...]:
    """Calls one after another, then what ends them."""
    call = Branch(read="printed", field="calls", then=base + 1)
    return ((call,), (Branch(literal=";", then=base), *ends, call))


ENDS = Branch(read="end")
BARE = BlockSyntax(opener="", anchor="answer", body=printed(0, ENDS), first_keys=("name", "x"), untaught=True)
BEHIND = replace(
    BARE,
    anchor="margin",
    body=(
        (Branch(read="object", field="calls", then=1),),
        (ENDS, Branch(read="object", field="calls", then=1)),
    ),
)
FENCED = replace(
    BARE,
    anchor="margin",
    body=(
        (Branch(literal="```", read="word", then=1),),
        (Branch(literal="\n", then=2),),
        *printed(2, Branch(literal="```", then=4), ENDS),
        (Branch(literal="```", read="word", then=1), ENDS),
    ),
)
FUNCTION = BlockSyntax(
    opener="<function=",
    closer="</function>",
    body=((Branch(read="name", field="name", then=1),), (Branch(literal=">", then=2),), *TAGGED[2:5], (Branch(),)),
    family="tagged",
    untaught=True,
)
MARKED = (
    FUNCTION,
    BlockSyntax(opener="<tool_call>", closer="</tool_call>", body=TAGGED, family="tagged", untaught=True),
    BlockSyntax(opener="[CALLS]", body=((Branch(read="array", field="calls"),),), family="calls", untaught=True),
    BlockSyntax(opener="<tag>", closer="</tag>", family="tag", untaught=True),
)
FRAME = BlockSyntax(opener="<|start|>", body=((Branch(),),), family="tagged", untaught=True)

GRAMMARS = {
    "sentinel": sentinel.GRAMMAR,
    "fenced_json": fenced_json.GRAMMAR,
    "bare_json": bare_json.GRAMMAR,
    "several": Grammar(
        syntaxes=(*sentinel.GRAMMAR.syntaxes, *fenced_json.GRAMMAR.syntaxes, *bare_json.GRAMMAR.syntaxes),
    ),
    "not ascii": Grammar(
        syntaxes=(BlockSyntax(opener="<｜opén｜>", closer="ü|"), BlockSyntax(opener="§", closer="</tool_call>"))
    ),
    "none": Grammar(syntaxes=()),
    "tagged": Grammar(
        syntaxes=(
            BlockSyntax(opener="<tool_call>", closer="</tool_call>", body=TAGGED),
            BlockSyntax(
                opener="<function=",
                closer="</function>",
                body=((Branch(read="name", field="name", then=1),), (Branch(literal=">", then=2),), *TAGGED[2:5], ()),
            ),
        )
    ),
    "framed": Grammar(
        syntaxes=(
            BlockSyntax(opener="<tool_call>", closer="</tool_call>", body=TAGGED, framed=True),
            BlockSyntax(
                opener="<function=",
                closer="</function>",
                framed=True,
                body=(
                    (Branch(read="name", field="name", then=1),),
                    (Branch(literal=">", then=2),),
                    *TAGGED[2:5],
                    (Branch(literal="</tool_call>"), Branch()),
                ),
            ),
        )
    ),
    "pairs": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<tool_call>",
                closer="</tool_call>",
                body=(
                    (Branch(read="name", field="name", then=1), Branch(read="object", field="call", then=3)),
                    (Branch(literal="<k>", read="text", field="key", then=2), Branch(literal="</tool_call>")),
                    (Branch(literal="</k>", then=4),),
                    (Branch(literal="</tool_call>"),),
                    (Branch(literal="<v>", read="text", field="value", then=5),),
                    (Branch(literal="</v>", then=1),),
                ),
            ),
        )
    ),
    "section": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<|section|>",
                closer="<|end|>",
                body=((Branch(literal="<|call|>", then=1),), *(tuple(_later(b) for b in p) for p in SECTION_CALL)),
            ),
            BlockSyntax(opener="<|call|>", closer="<|end|>", body=SECTION_CALL),
            BlockSyntax(opener="<|section_end|>", anchor="after", body=((Branch(),),)),
            BlockSyntax(opener="<|start|>", body=((Branch(),),)),
        )
    ),
    "mistral": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="[CALLS]", body=((Branch(read="array", field="calls"), Branch(read="object", field="call")),)
            ),
            BlockSyntax(
                opener="[CALLS]",
                body=(
                    (Branch(read="name", field="name", then=1),),
                    (ARGS, Branch(literal="[ID]", read="word", field="id", then=2)),
                    (ARGS,),
                ),
            ),
        )
    ),
    "code": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<|start|>",
                closer="<|end|>",
                body=((Branch(read="list", field="calls", then=1),), (Branch(literal="<|end|>"),)),
            ),
            BlockSyntax(opener="", anchor="answer", body=((Branch(read="list", field="calls", then=1),), ())),
            BlockSyntax(
                opener="<calls>",
                closer="</calls>",
                body=(
                    (Branch(read="call", field="call", then=1),),
                    (Branch(literal="</calls>"), Branch(read="call", field="call", then=1)),
                ),
            ),
        )
    ),
    "braces": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<call>",
                closer="</call>",
                quote="<q>",
                body=(
                    (Branch(literal="call:", read="name", field="name", then=1),),
                    (Branch(read="braces", field="arguments", then=2),),
                    (Branch(literal="</call>"),),
                ),
            ),
        )
    ),
    "separated": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="",
                anchor="answer",
                first_keys=("name", "a"),
                body=(
                    (Branch(read="object", field="call", then=1),),
                    (Branch(literal=";", then=2), Branch()),
                    (Branch(read="object", field="call", then=1),),
                ),
            ),
            BlockSyntax(opener="<tag>", body=((Branch(read="array", field="calls"),),), first_keys=("name",)),
        )
    ),
    "verbatim": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<call ",
                closer="</call>",
                body=(
                    (Branch(read="word", field="name", then=1),),
                    (Branch(literal=">", then=2),),
                    (
                        Branch(literal="<q>", read="text", field="value", then=3),
                        Branch(read="text", field="value", then=4),
                    ),
                    (Branch(literal="</q>", then=4),),
                    (Branch(literal="</call>"), Branch(literal="<v>", then=2)),
                ),
            ),
        )
    ),
    "endings": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<tool_call>",
                closer="</tool_call>",
                body=((Branch(read="object", field="call", then=1),), (Branch(literal="</tool_call>"), Branch())),
            ),
            BlockSyntax(opener="]<x<tool_call>", closer="]<x</tool_call>"),
            BlockSyntax(opener="<end>", body=((Branch(),),)),
            BlockSyntax(opener="/<end>", anchor="after", body=((Branch(),),)),
        )
    ),
    "headers": Grammar(
        syntaxes=(
            BlockSyntax(
                opener="",
                anchor="answer",
                body=(
                    (Branch(literal="all\n"), Branch(read="name", field="name", then=1)),
                    (Branch(read="object", field="arguments"),),
                ),
            ),
            BlockSyntax(
                opener="<to ",
                body=(
                    (Branch(literal="self<think>", ahead=True), Branch(read="word", then=1)),
                    (Branch(literal="<|m|>"), Branch(literal="<think>", ahead=True)),
                ),
            ),
            BlockSyntax(
                opener="<|section|>",
                closer="<|end|>",
                body=(
                    (
                        Branch(literal="<|call|>", read="object", field="call", then=2),
                        Branch(literal="<|section_end|>"),
                        Branch(read="word", field="said", then=1),
                    ),
                    (
                        Branch(literal="<|call|>", read="object", field="call", then=2),
                        Branch(literal="<|section_end|>"),
                    ),
                    (Branch(literal="<|end|>"),),
                ),
            ),
        )
    ),
    "families": Grammar(
        syntaxes=(
            BlockSyntax(opener="<tool_call>", closer="</tool_call>", fence=True, family="a"),
            BlockSyntax(opener="[CALLS]", family="b", body=((Branch(read="array", field="calls"),),)),
            BlockSyntax(opener="```json", closer="```", anchor="line", first_keys=("name",), family="c"),
            BlockSyntax(opener="", anchor="answer", family="d", first_keys=("name",)),
            BlockSyntax(opener="<|start|>", family="b", body=((Branch(),),)),
        ),
        exclusive=True,
    ),
    "recognised": Grammar(
        syntaxes=(*sentinel.GRAMMAR.syntaxes, *MARKED, BARE, BEHIND, FENCED),
        families={"tagged": Grammar(syntaxes=(*sentinel.GRAMMAR.syntaxes, FRAME, FUNCTION, FENCED))},
    ),
    "recognised beside others": Grammar(
        syntaxes=(*fenced_json.GRAMMAR.syntaxes, *bare_json.GRAMMAR.syntaxes, FUNCTION, BARE, BEHIND, FENCED)
    ),
    "recognised beside answers": Grammar(
        syntaxes=(
            BlockSyntax(opener="", anchor="answer", body=((Branch(read="list", field="calls", then=1),), ())),
            BlockSyntax(
                opener="[CALLS",
                closer="]",
                body=((Branch(read="object", field="call", then=1),), (Branch(literal="]"),)),
            ),
            BlockSyntax(opener="[C", closer="]", untaught=True),
            BlockSyntax(opener="[CALLS", closer="]", body=TAGGED, untaught=True),
            BARE,
            FENCED,
        )
    ),
    "nothing taught": Grammar(syntaxes=(*MARKED, BARE, replace(FENCED, anchor="answer"))),
}

PIECES = [
    *[
        "<tool_call>",
        "</tool_call>",
        "<tool_c",
        "</tool_",
        "all>",
        "<",
        "</",
        ">",
        "<think>",
        "</think>",
        "<thi",
        "nk>",
    ],
    *[
        "```json",
        "```",
        "``",
        "`",
        "json",
        "\n```",
        "````",
        "`\n",
        "<function=f>",
        '"tool_calls"',
        '"name"',
        '"tool_',
        "<｜opén｜>",
        "<｜op",
        "§",
        "ü|",
    ],
    *["[THINK]", "[/THINK]", "[CALLS]", "[CALLS", "'", "(", ")", "f(x=1)", ";", "=", "name"],
    *["{", "}", "[", "]", ":", ",", '"', "\\", '\\"', "1", "-2e3", "true", "\x01"],
    *["a", "x", "xx", "d", "r", "w ", " ", "\n", "\t", "\r\n", " " * 25, " " * 50],
    *["ü", "\U0001f600", "\ud83d", "\ude00", "\ufffd", "\x00"],
    *['{"name":"x"}', '{"tool_calls":[]}', '{"a":"', '"}', '{"a":"</tool_call>"}', '{"x":1,}', "{}", "[1,2]"],
    *['<tool_call>{"x":"</tool_call>', '<tool_call>{"d":1}</tool_call>', '<tool_call>\n{"x": 1}\n</tool_call>\n'],
    *[
        '<tool_call>```json\n{"x":{}}\n```</tool_call>',
        '\n```json\n{"tool_calls":["x"]}\n```\n',
        "<think>\nx</think>\n",
    ],
]

FIELDS = {
    "nothing": [""],
    "name": ["x", "d", " ns.x-y:1/2\n", "é", "x y", "x<", "\n x", "", "a" * 260],
    "word": ["x", "d", "name x", "x\n", "\n x", "n\nx", "é" * 130, "", "<", "a" * 260],
    "text": ["x", "", "\n x \n", "\nx", "<", "\n<x", "d</", "é\n\n"],
    "object": [
        '{"x":1}',
        '{"name":"x"}',
        '{"a":"x\\"}"}',
        '{ "a" : ["}", {}] }',
        '{"d":"</tool_call>"}',
        '{"x":',
        '{"x"}',
        '{"x":"\\"',
    ],
    "array": ["[]", '[{"x":1}]', '[{"name":"x"}, {}]', '["]",[1]]', "[1", "[x,]", "[}"],
    "list": [
        "[f(x=1)]",
        "[f(), g.x(a='it's', b=[1, {'k': \")\"}])]",
        '[{"name":"x"}]',
        "[]",
        "[f",
        "[f(]",
        "[1]",
        "[x]",
    ],
    "call": ["f(x='\\'', a=')')", "x(a='b', c=\"d'e\")", "é.x(')')", "f(a=[)", "f(a='", "1()", "f x()", "[f()]"],
    "printed": [
        '{"name":"x"}',
        "f(x='`')",
        "[get(a=1), {'x': 1}]",
        "print(await f('x'))",
        "{'name': 'x', 'a': [True]}",
        '[{"x":"<tool_call>{}</tool_call>"}]',
        '{"x":"`"',
        "await get(x",
        "await x()",
        "fx(",
    ],
    "end": ["", "\n", " \n\n", "x"],
    "braces": ["{x:1}", "{x:<q>}<q>}", "{x:<q>}<q>,y:[{},<q><q><<q>]}", "{}", "{x:<q>a", "{<}", "{[}", "{x:<qq>}"],
}
"""Texts that a field may be taken for: right, wrong, and cut short."""


def literals_of(grammar: Grammar) -> list[str]:
    """Every literal of a grammar."""
    syntaxes = grammar.syntaxes
    inside = [branch.literal for syntax in syntaxes for node in syntax.nodes for branch in node]
    found = [*(syntax.opener for syntax in syntaxes), *(syntax.closer for syntax in syntaxes), *inside]
    return sorted({literal for literal in found if literal})


def literals_of_syntax(syntax: BlockSyntax) -> list[str]:
    """The literals between a syntax's fields."""
    return sorted({branch.literal for node in syntax.nodes for branch in node if branch.literal})


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
        yield branch.literal
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
        yield option.literal
        yield random.choice(["", "", " ", "\n", "\n\n"])
        if option.then == END or option.read != "nothing" or not syntax.nodes[option.then]:
            break
        branch = option
    yield random.choice(
        ["x", " x", "<", "\n", option.literal[:-1], *(literal[:-1] for literal in literals_of_syntax(syntax))]
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
