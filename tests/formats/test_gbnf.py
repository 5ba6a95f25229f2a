"""Grammars for constrained decoding: whatever they allow is a call that fits the schema (R10.10)."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema_rs
import pytest

from tests.formats.cases import FORMATS, SEARCH, STOPS, WEATHER, every_format, scan, share
from tests.formats.sampler import Acceptor, Grammar, GrammarError
from toolwire.formats.base import ToolFormat
from toolwire.formats.engine.layout import Layout
from toolwire.formats.gbnf.grammar import STANDARD, GrammarBounds, Inexpressible, answer_grammar
from toolwire.formats.gbnf.rules import MAX_COUNTING, MAX_STEPS
from toolwire.model import ToolSpec, ToolUse

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False, **more}


BARE = Layout(opener="", middle="", closer="", name="plain")
"""A call is its name and its arguments."""


def arguments_of(text: str) -> Any:
    """The arguments in a text of `arguments_grammar`."""
    return json.loads(text.removeprefix("t"))


def arguments_grammar(schema: dict[str, Any], bounds: GrammarBounds = GrammarBounds(string=9, items=4)) -> str:  # noqa: B008
    """The grammar of a call `t{...}`."""
    return answer_grammar([("t", schema)], False, BARE, bounds)


SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {}},
    {"type": "object"},
    closed({"a": {"type": "string"}}, "a"),
    closed({"a": {"type": "string", "minLength": 2, "maxLength": 4}, "b": {"type": "string", "maxLength": 0}}, "b"),
    closed({name: {"type": "boolean"} for name in "abcd"}),
    closed({name: {"type": "null"} for name in "abcd"}, "c"),
    closed({name: {"type": "boolean"} for name in "abcd"}, "a", "d"),
    closed({"e": {"enum": ["x", 1, 1.5, None, True, {"k": ["</tool_call>"]}]}, "s": {"type": "string", "enum": ["x", 1]}}, "e", "s"),
    closed({"n": {"type": "integer"}, "m": {"type": ["integer", "null"]}}, "n", "m"),
    closed({"n": {"type": "number"}, "i": {"type": "integer"}, "x": {"type": ["string", "number"]}}, "n", "i", "x"),
    closed({"c": {"type": "number"}, "t": {"type": ["string", "null"]}}, "c", "t"),
    closed({"l": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3}}, "l"),
    closed({"l": {"type": "array", "items": {"type": "string"}, "minItems": 1}, "o": {"type": "array", "maxItems": 0}}, "l", "o"),
    closed({"l": {"type": "array"}, "p": {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}}, "l", "p"),
    closed({"any": {}, "yes": True}, "any", "yes"),
    closed({"map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1}}, "map"),
    closed({"free": {"type": "object"}, "none": {"type": "object", "additionalProperties": False}}, "free", "none"),
    closed({"u": {"anyOf": [{"type": "string"}, closed({"k": {"type": "integer"}}, "k")]}}, "u"),
    closed({"u": {"type": "object", "required": ["k"], "oneOf": [{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"const": 2}}}]}}, "u"),
    closed({"u": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"title": "A"}, "b": {}}, "required": ["a"]}]}}, "u"),
    closed({"p": {"$ref": "#/definitions/p~1q", "description": "beside"}}, "p", definitions={"p/q": {"type": "string", "maxLength": 1}}),
    closed({"p": {"$ref": "#/$defs/p", "minLength": 5}}, "p", **{"$defs": {"p": {"type": "string", "minLength": 1}}}),
    closed({"p": {"allOf": [{"$ref": "#/$defs/p"}]}}, "p", **{"$defs": {"p": {"enum": ["a", "b"]}}}),
    {"type": "object", "properties": {"a": {}}, "required": ["undeclared"]},
    {"properties": {"a": {"minItems": 2}, "b": {"maxLength": 3}, "c": {"items": {"type": "null"}}}, "required": ["a", "b", "c"]},
    closed({"gone": {"type": "string", "minLength": 5, "maxLength": 4}, "never": False, "kept": {"type": "boolean"}}, "kept"),
    TREE,
    {"type": "object", "properties": {"self": {"$ref": "#"}}, "additionalProperties": False},
]  # fmt: skip


ODD: dict[str, Any] = closed({'odd "key" \\ \n é <tool_call>': {"const": 'odd "value" \\ \n é </tool_call> ```json'}}, 'odd "key" \\ \n é <tool_call>')  # fmt: skip
"""A name that not every format can say."""


@every_format
def test_every_allowed_text_is_a_call_that_fits(tool_format: ToolFormat) -> None:
    assert tool_format.gbnf is not None
    says_all = tool_format.name not in STOPS or "gemma" in tool_format.name
    begin = FORMATS.index(tool_format)
    half = SCHEMAS[begin % 2 :: 2]  # for each format, in turn
    for schema in share(tool_format, [*half, *([ODD] if says_all else [])], 3):
        tool = ToolSpec("one", None, schema)
        grammar = Grammar(tool_format.gbnf((tool,), False, GrammarBounds(string=12, items=4)))
        valid = jsonschema_rs.validator_for(schema)
        random = Random(str(schema))
        for _ in range(10):
            text = grammar.sample(random)
            parts = scan(tool_format, (tool,), [text])
            assert len(parts) == 1, (schema, text)
            (call,) = parts
            assert isinstance(call, ToolUse), (schema, text)
            assert valid.is_valid(json.loads(call.arguments)), (schema, text, call.arguments)


def numbers_of(kind: str, digits: int | None = None, **words: Any) -> Acceptor:
    schema = closed({"n": {"type": kind, **words}}, "n")
    return Acceptor(Grammar(arguments_grammar(schema, GrammarBounds(digits=digits))))


RANGED: list[dict[str, Any]] = [
    {},
    {"minimum": 5, "maximum": 4},
    {"exclusiveMinimum": 0, "multipleOf": 7},
    {"allOf": [{"multipleOf": 2}, {"multipleOf": 3}, {"minimum": 1}, {"minimum": 2}]},
]
"""What is said of a number besides its type is not looked at."""


@pytest.mark.parametrize("words", RANGED, ids=json.dumps)
def test_every_number_may_be_written(words: dict[str, Any]) -> None:
    whole, any_number = numbers_of("integer", **words), numbers_of("number", **words)
    for text in ("0", "1", "-7", "100", "12345678901234567890"):
        assert whole.accepts(f't{{"n":{text}}}'), text
        assert any_number.accepts(f't{{"n":{text}}}'), text
    for text in ("-0.5", "1e10", "1.5E-300", f"{'123456789' * 5}.{'5' * 40}", "9.75e307", "12e34"):
        assert any_number.accepts(f't{{"n":{text}}}'), text
        assert not whole.accepts(f't{{"n":{text}}}'), text
    for text in ("", "-", ".5", "1.", "01", "-01", "1e", "+1", "NaN", "1e9999", "12e307", "--1"):
        assert not any_number.accepts(f't{{"n":{text}}}'), text
        assert not whole.accepts(f't{{"n":{text}}}'), text


def test_digits_may_be_bounded() -> None:
    for kind in ("integer", "number"):
        bounded = numbers_of(kind, 3)
        assert all(bounded.accepts(f't{{"n":{text}}}') for text in ("0", "7", "-10", "999"))
        assert not any(bounded.accepts(f't{{"n":{text}}}') for text in ("1000", "-1000", "007", "1e3"))
    assert numbers_of("number", 3).accepts('t{"n":-999.123456}')
    assert not numbers_of("number", 3).accepts('t{"n":0.1234567}')
    assert numbers_of("integer", 1).accepts('t{"n":9}')
    assert not numbers_of("integer", 1).accepts('t{"n":10}')


@every_format
def test_parallel_allows_several_calls_and_no_text(tool_format: ToolFormat) -> None:
    assert tool_format.gbnf is not None
    grammar = Grammar(tool_format.gbnf((WEATHER, SEARCH), True, GrammarBounds(string=5, calls=3)))
    random = Random(0)
    counts = set()
    for number in range(60):
        parts = scan(tool_format, (WEATHER, SEARCH), [grammar.sample(random)])
        assert all(isinstance(part, ToolUse) for part in parts)
        counts.add(len(parts))
        if number > 10 and len(counts) > 2:
            break
    assert counts == {1, 2, 3}


@pytest.mark.parametrize(
    "schema",
    [
        closed({"a": False}, "a"),
        closed({"a": {"$ref": "https://example.com/schema"}}, "a"),
        closed({"a": {"$ref": "#/nowhere"}}, "a"),
        closed({"a": {"type": "string", "minLength": 5, "maxLength": 4}}, "a"),
        closed({"a": {"enum": []}}, "a"),
        closed({"a": {"allOf": [{"type": "string"}, {"type": "integer"}]}}, "a"),
        closed({"a": {"$ref": "#/$defs/a"}}, "a", **{"$defs": {"a": {"$ref": "#/$defs/a"}}}),
        closed({"a": {"$ref": "#/$defs/a"}}, "a", **{"$defs": {"a": closed({"a": {"$ref": "#/$defs/a"}}, "a")}}),
        closed({f"p{index}": {"type": "string"} for index in range(MAX_STEPS + 1)}),
    ],
    ids=lambda s: json.dumps(s)[:70],
)
def test_what_nothing_fits_may_have_any_arguments(schema: dict[str, Any]) -> None:
    grammar = Grammar(arguments_grammar(schema))
    random = Random(7)
    values = [arguments_of(grammar.sample(random)) for _ in range(30)]
    assert all(isinstance(value, dict) for value in values)
    assert any(value and not value.keys() & {"a", "p0"} for value in values)


def test_there_is_no_grammar_without_tools_or_for_a_name_that_is_not_unicode() -> None:
    for tools in ([], [("\ud800", {})]):
        with pytest.raises(Inexpressible):
            answer_grammar(tools, False, Layout(opener="", middle="", closer=""))


UNSAYABLE = [closed({"a": {"const": "\ud800"}}, "a"), closed({"a": False}, "a"), ODD]


@every_format
def test_a_tool_that_cannot_be_said_is_still_called(tool_format: ToolFormat) -> None:
    assert tool_format.gbnf is not None
    for schema in share(tool_format, UNSAYABLE, 3):
        tool = ToolSpec("one", None, schema)
        grammar = Grammar(tool_format.gbnf((tool,), False, GrammarBounds(string=12, items=4)))
        random = Random(1)
        for _ in range(12):
            (call,) = scan(tool_format, (tool,), [grammar.sample(random)])
            assert isinstance(call, ToolUse), schema


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
def test_hostile_references_end(word: str) -> None:
    """Six ways on from each of nine definitions, around and around: about 10^7 paths if nothing stopped it."""
    nodes = {
        f"n{i}": {
            "type": "object",
            "properties": {k: {word: [{"$ref": f"#/$defs/n{(i + 1) % 9}"}, {}]} for k in "abcdef"},
        }
        for i in range(9)
    }
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n0"}}, "required": ["a"], "$defs": nodes}
    random = Random(3)
    assert isinstance(arguments_of(Grammar(arguments_grammar(schema)).sample(random)), dict)
    loop = {"properties": {"a": {word: [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}}, "required": ["a"]}
    assert isinstance(arguments_of(Grammar(arguments_grammar(loop)).sample(random)), dict)


def test_the_text_is_deterministic_and_ordered_like_the_schema() -> None:
    schema = closed({"z": {"type": "null"}, "a": {"type": "null"}}, "z", "a")
    assert arguments_grammar(schema) == arguments_grammar(json.loads(json.dumps(schema)))
    assert Acceptor(Grammar(arguments_grammar(schema))).accepts('t{"z":null,"a":null}')
    assert not Acceptor(Grammar(arguments_grammar(schema))).accepts('t{"a":null,"z":null}')


# --- nothing is cut short (R10.10) ----------------------------------------------------------------------------------

LINE = 'def f(a, b):\n\tif a < b << 2 and "x" != \'y\': return `a` + {"k": [1, 2]} # <b>é</b> \\n 😀 ``` < \n'
LONG = (LINE * 400)[:20_000]

ANYTHING = ToolSpec(
    "write_file",
    None,
    closed(
        {
            "path": {"type": "string"},
            "content": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "string"}},
            "size": {"type": "integer"},
            "ratio": {"type": "number"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "tree": {"$ref": "#/$defs/node"},
            "free": {},
        },
        "path",
        **{"$defs": TREE["$defs"]},
    ),
)


def nested(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {"value": levels}
    return node if levels == 0 else {**node, "children": [nested(levels - 1)]}


KINDS = ("sentinel", "hermes", "pythonic", "gemma4", "qwen3_coder", "glm47", "deepseek_v32")
"""A format for each way in which arguments are written."""
every_kind = pytest.mark.parametrize("tool_format", [f for f in FORMATS if f.name in KINDS], ids=lambda f: f.name)

MUCH: dict[str, Any] = {
    "20,000 characters": {"content": LONG},
    "1,500 items": {"lines": ["<", *(f"{n} <b>" for n in range(1500))]},
    "270 digits": {"size": int("123456789" * 30)},
    "17 decimals": {"ratio": 0.12345678901234567},
    "1,500 properties": {"env": {f"KEY_{n}": "x" for n in range(1500)}},
    "50 levels": {"tree": nested(50)},
    "free": {"free": {"a": [[[[[[[{"b": {"c": {"d": {"e": [None, True, 1.5]}}}}]]]]]]]}},
}


@every_format
def test_what_a_format_writes_can_be_written_under_its_grammar(tool_format: ToolFormat) -> None:
    """Exactly so, however much it is; and no more ways have to be followed than for a little of it."""
    assert tool_format.gbnf is not None
    acceptor = Acceptor(Grammar(tool_format.gbnf((ANYTHING,), False)))
    for what, more in share(tool_format, [*MUCH.items()], 3):
        arguments = json.dumps({"path": "a.py", **more}, ensure_ascii=False)
        text = tool_format.render_call(ToolUse("call_1", ANYTHING.name, arguments))
        refused = acceptor.refused_at(text)
        assert refused is None, (what, text[max(0, refused - 60) : refused + 20])
    assert acceptor.most <= 25


@every_format
def test_as_many_calls_as_one_likes(tool_format: ToolFormat) -> None:
    assert tool_format.gbnf is not None
    assert tool_format.render_calls is not None
    text = tool_format.render_calls([ToolUse(f"call_{n}", "get_weather", '{"city":"Oslo"}') for n in range(300)])
    assert Acceptor(Grammar(tool_format.gbnf((WEATHER, SEARCH), True))).accepts(text)
    assert not Acceptor(Grammar(tool_format.gbnf((WEATHER, SEARCH), False))).accepts(text)
    few = tool_format.render_calls([ToolUse(f"call_{n}", "get_weather", '{"city":"Oslo"}') for n in range(4)])
    assert Acceptor(Grammar(tool_format.gbnf((WEATHER, SEARCH), True, GrammarBounds(calls=4)))).accepts(few)
    assert not Acceptor(Grammar(tool_format.gbnf((WEATHER, SEARCH), True, GrammarBounds(calls=3)))).accepts(few)


LENGTHS: list[tuple[dict[str, int], tuple[int, ...], tuple[int, ...]]] = [
    ({"maxLength": 100_000}, (100_001,), ()),  # too long to count: whoever gets the call says so
    ({"minLength": 30_000}, (30_000,), ()),
    ({"maxLength": 40}, (0, 40), (41, 2000)),
    ({"minLength": 3}, (3, 20_000), (0, 2)),
    ({"minLength": 3, "maxLength": 5000}, (3, 5000), (2,)),
]
"""Limits, and lengths that fit and do not."""


@every_kind
def test_a_length_that_cannot_be_counted_is_left_open(tool_format: ToolFormat) -> None:
    assert tool_format.gbnf is not None
    properties = {f"s{n}": {"type": "string", **bound} for n, (bound, _, _) in enumerate(LENGTHS)}
    acceptor = Acceptor(Grammar(tool_format.gbnf((ToolSpec("one", None, closed(properties)),), False)))
    for number, (bound, fitting, others) in enumerate(LENGTHS):
        for length in (*fitting, *others):
            arguments = json.dumps({f"s{number}": "a" * length})
            text = tool_format.render_call(ToolUse("call_1", "one", arguments))
            assert acceptor.accepts(text) is (length in fitting), (bound, length)


@every_format
def test_a_string_may_end_like_the_beginning_of_what_ends_it(tool_format: ToolFormat) -> None:
    assert tool_format.gbnf is not None
    for schema in ({"type": "string"}, {"type": "string", "maxLength": 4000}):
        tool = ToolSpec("one", None, closed({"s": schema}, "s"))
        acceptor = Acceptor(Grammar(tool_format.gbnf((tool,), False)))
        for tail in ("<", "</", "a </b", "\n", "<<", "```", "\n\n<"):
            for text in (tail, f"x{tail}", f"{tail}{tail}"):
                written = tool_format.render_call(ToolUse("call_1", "one", json.dumps({"s": text})))
                assert acceptor.accepts(written), written


def test_bounds_are_kept_where_they_are_set() -> None:
    schema = closed({"s": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}}, "n": {"type": "number"}}, "s", "l", "n")  # fmt: skip
    bounded = Acceptor(Grammar(arguments_grammar(schema, GrammarBounds(string=5, items=2, digits=3))))
    for arguments, fits in (
        ('t{"s":"12345","l":[1,2],"n":998.123456}', True),
        ('t{"s":"123456","l":[1,2],"n":999}', False),
        ('t{"s":"12345","l":[1,2,3],"n":999}', False),
        ('t{"s":"12345","l":[1,2],"n":1000}', False),
        ('t{"s":"12345","l":[1,2],"n":1.1234567}', False),
    ):
        assert bounded.accepts(arguments) is fits, arguments


@pytest.mark.parametrize(
    ("schema", "fitting", "others"),
    [
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, ['[1]', '[1,"a","b"]'], ["[]", "[1,2]"]),
        ({"prefixItems": [{"type": "integer"}]}, ["[1]"], ["[1,2]"]),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "minItems": 2, "maxItems": 3}, ["[1,null]", "[1,null,null]"], ["[1]", "[1,null,null,null]"]),
        ({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}}, ["[1]", "[1,null]"], ["[null]"]),
    ],
)  # fmt: skip
def test_lists_with_a_fixed_beginning(schema: dict[str, Any], fitting: list[str], others: list[str]) -> None:
    acceptor = Acceptor(Grammar(arguments_grammar(closed({"a": {"type": "array", **schema}}, "a"))))
    for text in fitting:
        assert acceptor.accepts(f't{{"a":{text}}}'), text
    for text in others:
        assert not acceptor.accepts(f't{{"a":{text}}}'), text


def test_definitions_that_need_each_other() -> None:
    """As tools for editing syntax trees have them."""
    kinds = ["binary", "call", "unary", "list", "index"]
    one = [{"$ref": f"#/$defs/{kind}"} for kind in kinds]
    nodes: dict[str, Any] = {
        kind: closed({"kind": {"const": kind}, "of": {"type": "array", "items": {"anyOf": [*one, {"type": "integer"}]}}}, "kind", "of")
        for kind in kinds
    }  # fmt: skip
    acceptor = Acceptor(Grammar(arguments_grammar(closed({"a": {"anyOf": one}}, "a", **{"$defs": nodes}), STANDARD)))
    value: Any = 1
    for level in range(40):
        value = {"kind": kinds[level % 5], "of": [value, 7]}
    assert acceptor.accepts("t" + json.dumps({"a": value}, separators=(",", ":")))
    assert not acceptor.accepts('t{"a":{"kind":"other","of":[]}}')


def test_an_alias_of_an_alternative_of_itself() -> None:
    """Read as it is written this is left recursion, which llama.cpp refuses."""
    schema = closed({"a": {"$ref": "#/$defs/a"}}, "a", **{"$defs": {
        "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "string"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]},
    }})  # fmt: skip
    acceptor = Acceptor(Grammar(arguments_grammar(schema)))
    assert acceptor.accepts('t{"a":"x"}')
    assert acceptor.accepts('t{"a":null}')


# --- the reader -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "root ::= missing\n", 'root ::= "a\n', "root ::= ()\n", "root\n", 'root ::= "a" |\n', 'root ::= "a"{3,2}\n', 'root ::= "a"{2000}\n',
        'root ::= (a b "c"){1000}\na ::= "a"\nb ::= "b"\n', 'root ::= root "a" | "b"\n', 'root ::= a root | "b"\na ::= "x"?\n', 'root ::= "a" root\n',
    ],
)  # fmt: skip
def test_the_reader_refuses_what_is_not_gbnf(text: str) -> None:
    with pytest.raises(GrammarError):
        Grammar(text)


def test_the_acceptor_follows_every_way() -> None:
    acceptor = Acceptor(Grammar('root ::= ("a" | "ab")* [^a-y]{1,2} "\\\\"? (x | "")\nx ::= "(" x? ")"\n'))
    assert acceptor.accepts("abaab z\\((()))")
    assert acceptor.accepts("zz")
    assert not acceptor.accepts("zzz")
    assert not acceptor.accepts("abb z")
    assert not acceptor.accepts("zz(()")
    assert acceptor.may_begin("z((")
    assert acceptor.refused_at("abc") == 2


# --- hostile schemas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tool_format",
    [f for f in FORMATS if f.name in ("sentinel", "qwen3_coder")],
    ids=lambda f: f.name,
)
@pytest.mark.parametrize(
    "schema",
    [
        closed({f"p{n}": {"type": "string", "maxLength": n} for n in range(300)}),
        closed({f"p{n}": {"type": "array", "items": {"type": "string", "minLength": n, "maxLength": n + 5}} for n in range(300)}),
        closed({f"p{n}": {"$ref": "#/$defs/big", "title": str(n)} for n in range(300)}, **{"$defs": {"big": closed({f"q{n}": {"type": "string"} for n in range(300)})}}),
        closed({f"p{n}": {"$ref": "#/$defs/big", "minProperties": n} for n in range(300)}, **{"$defs": {"big": closed({f"q{n}": {"type": "string"} for n in range(300)})}}),
    ],
    ids=["lengths", "lengths in lists", "one big definition", "many big definitions"],
)  # fmt: skip
def test_the_size_of_a_grammar_is_bounded_by_that_of_its_schema(
    tool_format: ToolFormat, schema: dict[str, Any]
) -> None:
    """And so is the work: counted in rules, since nobody knows how fast a machine is."""
    assert tool_format.gbnf is not None
    source = tool_format.gbnf((ToolSpec("one", None, schema),), False)
    assert source.count("\n") <= MAX_COUNTING + 30 * MAX_STEPS
    assert len(source) <= 100 * len(json.dumps(schema))
