"""Malformed input for SC-009: a seeded generator of blocks, arguments and schemas that are each wrong in a known way.

Every item says which mutation made it and what was meant. It is *detected* if the gateway notices: the block becomes
text or a failure, or the very call that was meant comes out and is counted as repaired; the arguments or the schema are
refused. It is missed if something else than what was meant comes out and nobody noticed.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from toolwire.model import ToolSpec

Json = Any


def _tool(name: str, required: list[str], **properties: Json) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(name, parameters=schema)


TOOLS = (
    _tool("read_file", ["path"], path={"type": "string", "minLength": 1}, limit={"type": "integer", "minimum": 1}),
    _tool("write_file", ["path", "content"], path={"type": "string", "minLength": 1}, content={"type": "string"}),
    _tool(
        "search",
        ["query", "kinds"],
        query={"type": "string", "pattern": "^[a-z ]+$"},
        kinds={"type": "array", "items": {"enum": ["code", "docs", "tests"]}, "minItems": 1, "uniqueItems": True},
        deep={"type": "boolean"},
    ),
    _tool("weather", ["city", "unit"], city={"type": "string"}, unit={"enum": ["celsius", "fahrenheit"]}),
    _tool("move", ["x", "y"], x={"type": "number", "minimum": -100, "maximum": 100}, y={"type": "number"}),
    _tool(
        "patch",
        ["path", "edits"],
        path={"type": "string"},
        edits={
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"line": {"type": "integer"}, "text": {"type": "string"}},
                "required": ["line", "text"],
                "additionalProperties": False,
            },
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Meant:
    """The call that a model wanted to make."""

    tool: ToolSpec
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class BadBlock:
    """`answer` is what the model wrote, tags included; `truncated` if the backend stopped for length in the middle."""

    mutation: str
    answer: str
    meant: Meant
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class BadArguments:
    """`arguments` is JSON, but not what the tool's schema wants."""

    mutation: str
    tool: ToolSpec
    arguments: str


@dataclass(frozen=True, slots=True)
class BadTool:
    """A tool that no client may offer."""

    mutation: str
    tool: ToolSpec


# --- what is meant --------------------------------------------------------------------------------------------------


def _phrase(rng: random.Random) -> str:
    """Text with what hurts: quotes, line breaks, brackets, tags, other alphabets."""
    pieces = ['say "hi"', "it's", "a\nb", "{x: [1]}", "</tool_call>", "C:\\tmp", "naïve ✓", "plain words", "a, b: c"]
    return " ".join(rng.sample(pieces, rng.randint(1, 3)))


def _path(rng: random.Random) -> str:
    return "/".join("".join(rng.choices(string.ascii_lowercase, k=5)) for _ in range(rng.randint(1, 3))) + ".py"


def meant(rng: random.Random) -> Meant:
    """A random call that fits its tool's schema."""
    tool = rng.choice(TOOLS)
    arguments: dict[str, Json]
    match tool.name:
        case "read_file":
            arguments = {"path": _path(rng), "limit": rng.randint(1, 5000)}
        case "write_file":
            arguments = {"path": _path(rng), "content": _phrase(rng)}
        case "search":
            kinds = rng.sample(["code", "docs", "tests"], rng.randint(1, 3))
            arguments = {"query": "find this", "kinds": kinds, "deep": rng.random() < 0.5}
        case "weather":
            arguments = {"city": rng.choice(["Oslo", "São Paulo"]), "unit": rng.choice(["celsius", "fahrenheit"])}
        case "move":
            arguments = {"x": rng.uniform(-100, 100), "y": rng.randint(-9, 9)}
        case _:
            edits = [{"line": rng.randint(1, 99), "text": _phrase(rng)} for _ in range(rng.randint(1, 2))]
            arguments = {"path": _path(rng), "edits": edits}
    return Meant(tool, arguments)


def written(call: Meant, *, as_string: bool) -> str:
    """The body of a block that makes the call."""
    arguments: Json = json.dumps(call.arguments, ensure_ascii=False) if as_string else call.arguments
    return json.dumps({"name": call.tool.name, "arguments": arguments}, ensure_ascii=False)


def block(body: str) -> str:
    """A whole block around a body."""
    return f"<tool_call>{body}</tool_call>"


# --- blocks ---------------------------------------------------------------------------------------------------------


def _structural(body: str) -> list[int]:
    """Offsets of the structural characters and quotes of a JSON text."""
    found: list[int] = []
    inside = False
    at = 0
    while at < len(body):
        char = body[at]
        if inside and char == "\\":
            at += 2
            continue
        if char == '"':
            inside = not inside
            found.append(at)
        elif not inside and char in "{}[]:,":
            found.append(at)
        at += 1
    return found


def _spot(rng: random.Random, body: str, chars: str) -> int:
    return rng.choice([at for at in _structural(body) if body[at] in chars])


def _without(rng: random.Random, body: str, chars: str) -> str:
    at = _spot(rng, body, chars)
    return body[:at] + body[at + 1 :]


def _with(rng: random.Random, body: str, chars: str, extra: str) -> str:
    at = _spot(rng, body, chars)
    return body[: at + 1] + extra + body[at + 1 :]


def _swapped(rng: random.Random, body: str) -> str:
    at = _spot(rng, body, "{}[]")
    return body[:at] + {"{": "[", "}": "]", "[": "{", "]": "}"}[body[at]] + body[at + 1 :]


def _unescaped(rng: random.Random, body: str) -> str:
    spots = [at for at in range(len(body) - 1) if body[at] == "\\" and body[at + 1] == '"']
    if not spots:
        return _without(rng, body, '"')
    at = rng.choice(spots)
    return body[:at] + body[at + 1 :]


def _cut(rng: random.Random, body: str) -> str:
    return body[: rng.randint(1, len(body) - 1)]


def _renamed(name: Json) -> Callable[[random.Random, str], str]:
    def mutate(rng: random.Random, body: str) -> str:
        value = json.loads(body)
        return json.dumps({"name": name, "arguments": value["arguments"]})

    return mutate


def _nameless(rng: random.Random, body: str) -> str:
    return json.dumps({"arguments": json.loads(body)["arguments"]})


def _misspelt(rng: random.Random, body: str) -> str:
    value = json.loads(body)
    name = value["name"]
    wrong = rng.choice([name.upper(), name + "s", name[:-1], f" {name}", f"functions.{name}", f"{name}?"])
    return json.dumps({"name": wrong, "arguments": value["arguments"]})


def _arguments(*choices: Json) -> Callable[[random.Random, str], str]:
    def mutate(rng: random.Random, body: str) -> str:
        return json.dumps({"name": json.loads(body)["name"], "arguments": rng.choice(choices)})

    return mutate


def _broken_inside(mutate: Callable[[random.Random, str], str]) -> Callable[[random.Random, str], str]:
    """Break the JSON text inside the arguments string, leave the body in order."""

    def outer(rng: random.Random, body: str) -> str:
        value = json.loads(body)
        arguments = value["arguments"]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return json.dumps({"name": value["name"], "arguments": mutate(rng, text)})

    return outer


def _deep(rng: random.Random, body: str) -> str:
    levels = rng.choice([200, 1_000, 5_000])
    name = json.loads(body)["name"]
    return f'{{"name":"{name}","arguments":{"[" * levels}{"]" * levels}}}'


def _as_python(rng: random.Random, body: str) -> str:
    return repr(json.loads(body))


CONSTANTS = ("NaN", "-Infinity", "undefined")
COMMENTS = ("// note\n", "/* note */", "# note\n")

CLOSED: dict[str, Callable[[random.Random, str], str]] = {
    "quote removed": lambda rng, body: _without(rng, body, '"'),
    "colon removed": lambda rng, body: _without(rng, body, ":"),
    "comma removed": lambda rng, body: _without(rng, body, ","),
    "bracket removed": lambda rng, body: _without(rng, body, "{}[]"),
    "bracket swapped": _swapped,
    "bracket doubled": lambda rng, body: _with(rng, body, "{}[]", rng.choice("{}[]")),
    "comma doubled": lambda rng, body: _with(rng, body, ",", ","),
    "comma before the end": lambda rng, body: body[:-1] + ",}",
    "quote unescaped": _unescaped,
    "inner text unescaped": lambda rng, body: body.replace('\\"', '"'),
    "cut, then closed": _cut,
    "closing braces missing": lambda rng, body: body.rstrip("}"),
    "written as Python": _as_python,
    "single quotes throughout": lambda rng, body: body.replace('"', "'"),
    "typographic quotes": lambda rng, body: body.replace('"', "”"),
    "keys without quotes": lambda rng, body: body.replace('"name"', "name").replace('"arguments"', "arguments"),
    "line breaks in strings": lambda rng, body: body.replace("\\n", "\n"),
    "control character between tokens": lambda rng, body: _with(rng, body, ":,{", rng.choice("\0\1\x0b\x7f")),
    "constant that is no JSON": lambda rng, body: f'{body[:-1]}, "extra": {rng.choice(CONSTANTS)}}}',
    "comment": lambda rng, body: _with(rng, body, ",:", rng.choice(COMMENTS)),
    "ellipsis": lambda rng, body: _with(rng, body, ",", " ..., "),
    "escape that is no JSON": lambda rng, body: body.replace(": ", ': "\\x41", ', 1),
    "prose before": lambda rng, body: f"Here you go: {body}",
    "prose after": lambda rng, body: f"{body} Done.",
    "fence": lambda rng, body: f"\n```json\n{body}\n```\n",
    "fence left open": lambda rng, body: f"```json\n{body}",
    "object and a half": lambda rng, body: body + body[: rng.randrange(1, len(body))],
    "array around": lambda rng, body: f"[{body}]",
    "string around": lambda rng, body: json.dumps(body),
    "deep nesting": _deep,
    "nothing": lambda rng, body: rng.choice(["", " ", "\n", "null", "{}", "0"]),
    "name missing": _nameless,
    "name misspelt": _misspelt,
    "name null": _renamed(None),
    "name a number": _renamed(7),
    "name an array": _renamed(["read_file"]),
    "name an object": _renamed({"read_file": 1}),
    "name empty": _renamed(""),
    "arguments of a wrong kind": _arguments([1], 7, True, False, [[]], 0.5),
    "arguments are prose": _arguments("the file please", "path=x", "<xml/>", "yes", "{", "]", "'x'", "{path}"),
    "arguments cut": _broken_inside(_cut),
    "arguments: quote removed": _broken_inside(lambda rng, text: _without(rng, text, '"')),
    "arguments: bracket swapped": _broken_inside(_swapped),
    "arguments: comma before the end": _broken_inside(lambda rng, text: text[:-1] + ",}"),
    "arguments: prose after": _broken_inside(lambda rng, text: text + " please"),
    "arguments as Python": _broken_inside(_as_python),
}
"""Mutations of the body of a block that is closed all the same."""

OPEN: dict[str, Callable[[random.Random, str], str]] = {
    "answer ends in the block": _cut,
    "answer ends before the closer": lambda rng, body: body.rstrip("}"),
    "answer ends in the closer": lambda rng, body: _without(rng, body, "{}:,") + "</tool_ca",
}
"""Mutations of a block that is never closed."""


def bad_blocks(seed: int, each: int) -> Iterator[BadBlock]:
    """`each` items for every mutation, half of them with the arguments as a string, half as an object."""
    rng = random.Random(seed)
    for name, mutate in (CLOSED | OPEN).items():
        for index in range(each):
            call = meant(rng)
            body = written(call, as_string=index % 2 == 0)
            broken = mutate(rng, body)
            if broken == body:
                broken = _without(rng, body, ":")
            answer = block(broken) if name in CLOSED else f"<tool_call>{broken}"
            yield BadBlock(name, answer, call)
            if name in OPEN:
                yield BadBlock(f"{name}, for length", answer, call, truncated=True)


# --- arguments ------------------------------------------------------------------------------------------------------

_WRONG: dict[str, tuple[Json, ...]] = {
    "string": (7, None, True, ["x"], {"x": 1}),
    "integer": ("7", 1.5, None, True, [1]),
    "number": ("7", None, False, {"x": 1}),
    "boolean": ("true", 1, None, []),
    "array": ("x", {"0": "x"}, None, 1),
    "enum": ("nonsense", "", None, 3, "Celsius"),
}


def _kind(schema: dict[str, Json]) -> str:
    return str(schema.get("type", "enum"))


def _changed(call: Meant, **members: Json) -> dict[str, Json]:
    return {**call.arguments, **members}


def bad_arguments(seed: int, calls: int) -> Iterator[BadArguments]:
    """Every way to miss a schema, for so many random calls each."""
    rng = random.Random(seed)
    for _ in range(calls):
        call = meant(rng)
        tool, schema = call.tool, call.tool.parameters or {}

        def item(mutation: str, value: Json, tool: ToolSpec = tool) -> BadArguments:
            return BadArguments(mutation, tool, json.dumps(value))

        name = rng.choice(schema["required"])
        yield item("required missing", {k: v for k, v in call.arguments.items() if k != name})
        name = rng.choice([key for key in call.arguments if key in schema["properties"]])
        yield item("wrong type", _changed(call, **{name: rng.choice(_WRONG[_kind(schema["properties"][name])])}))
        yield item("extra property", _changed(call, **{rng.choice(["Path", "x_", "", "__proto__"]): 1}))
        yield item("no object", rng.choice([[], [call.arguments], "x", 7, True, None, json.dumps(call.arguments)]))
        yield item("empty object", {})
        last = json.dumps(call.arguments)[:-1]
        yield BadArguments("last of equal keys is wrong", tool, f'{last}, "{schema["required"][0]}": {{}}}}')
    for call in (meant(rng) for _ in range(calls * 4)):
        match call.tool.name:
            case "read_file":
                yield BadArguments("out of range", call.tool, json.dumps(_changed(call, limit=rng.randint(-9, 0))))
                yield BadArguments("too short", call.tool, json.dumps(_changed(call, path="")))
            case "search":
                yield BadArguments("pattern", call.tool, json.dumps(_changed(call, query="UPPER 1")))
                yield BadArguments("too few items", call.tool, json.dumps(_changed(call, kinds=[])))
                yield BadArguments("repeated items", call.tool, json.dumps(_changed(call, kinds=["code", "code"])))
                yield BadArguments(
                    "enum inside an array", call.tool, json.dumps(_changed(call, kinds=["code", "pictures"]))
                )
            case "move":
                yield BadArguments("out of range", call.tool, json.dumps(_changed(call, x=rng.choice([1e9, -100.5]))))
            case "patch":
                for edit in ({"line": 1}, {"line": "1", "text": ""}, {"line": 1, "text": "", "more": 1}, "1: x", None):
                    edits = [*call.arguments["edits"], edit]
                    yield BadArguments("wrong item inside an array", call.tool, json.dumps(_changed(call, edits=edits)))
            case _:
                pass


# --- schemas --------------------------------------------------------------------------------------------------------


def _nested(levels: int) -> Json:
    inner: Json = {"type": "string"}
    for _ in range(levels):
        inner = {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False}
    return inner


def _root(**keywords: Json) -> Json:
    return {"type": "object", "properties": {"a": {"type": "string"}}, **keywords}


def _property(**keywords: Json) -> Json:
    return {"type": "object", "properties": {"a": keywords}}


SCHEMAS: dict[str, tuple[Json, ...]] = {
    "root is no object": tuple({"type": wrong} for wrong in ("string", "array", "null", ["object", "null"], 7)),
    "no schema": ([], "object", 7, True, [{"type": "object"}]),
    "unknown type": tuple(_property(type=wrong) for wrong in ("strnig", "String", "int", ["string", "x"])),
    "type of a wrong kind": tuple(_property(type=wrong) for wrong in (7, {}, None, [], [1])),
    "properties of a wrong kind": tuple(
        {"type": "object", "properties": wrong} for wrong in ([], "a", 7, ["a"], {"a": 7}, {"a": "x"})
    ),
    "required of a wrong kind": tuple(
        _root(required=wrong) for wrong in ("a", True, {"a": 1}, [1], [None], 7, ["a", "a"])
    ),
    "enum of a wrong kind": tuple(_property(enum=wrong) for wrong in ("a", {"a": 1}, 7, None, True)),
    "bound of a wrong kind": tuple(
        _property(**{keyword: wrong})
        for keyword, wrong in (
            *(("minimum", "0"), ("maximum", None), ("minLength", -1), ("maxLength", "7"), ("minItems", 1.5)),
            *(("multipleOf", 0), ("multipleOf", -2), ("uniqueItems", "yes")),
        )
    ),
    "pattern that does not compile": tuple(
        _property(patternProperties={wrong: {}}) for wrong in ("(", "[a", "*", "(?P<", "a{2,1}", "\\")
    )
    + tuple(_property(pattern=wrong) for wrong in (7, None)),
    "items of a wrong kind": tuple(_property(type="array", items=wrong) for wrong in ("string", 7, None, "x")),
    "additionalProperties of a wrong kind": tuple(_root(additionalProperties=wrong) for wrong in ("no", 7, None, [])),
    "combinator of a wrong kind": (
        _root(anyOf={}),
        _root(anyOf=[]),
        _root(oneOf="x"),
        _root(allOf=[7]),
        _root(allOf=[{"type": "x"}]),
        {"type": "object", "not": 7},
        {"type": "object", "if": "x"},
    ),
    "remote reference": tuple(
        _property(**{"$ref": wrong})
        for wrong in (
            *(
                "http://example.com/s.json",
                "https://example.com/s.json#/a",
                "file:///etc/passwd",
                "ftp://example.com/x",
            ),
            *("//example.com/x", "other.json", "other.json#/a", "urn:example:x", "/etc/passwd"),
        )
    ),
    "reference to nothing": tuple(
        _property(**{"$ref": wrong}) for wrong in ("#/$defs/none", "#/nope", "#nope", "#/$defs/a/b")
    ),
    "reference of a wrong kind": tuple(_property(**{"$ref": wrong}) for wrong in (7, None, {}, [])),
    "nested too deep": (_nested(100), _nested(1_000)),
    "too many properties": (
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(10_000)}},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {f"p{i}": {} for i in range(5_000)}}}},
    ),
    "too large": (_property(description="x" * 1_000_000), _property(enum=["x" * 300_000])),
}
"""Parameters that no tool may have (R3.4)."""

_OPEN: Json = {"type": "object", "properties": {}}


def _closed(properties: Json, **more: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
        **more,
    }


STRICT_SCHEMAS: dict[str, tuple[Json, ...]] = {
    "strict: not all required": (
        _closed({"a": {}, "b": {}}, required=["a"]),
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        _closed({"a": {}}, required=[]),
    ),
    "strict: open object": (
        {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        _closed({"a": {}}, additionalProperties=True),
        _closed({"a": {}}, additionalProperties={}),
        _closed({"a": _OPEN}),
        _closed({"a": {"type": "array", "items": _OPEN}}),
    ),
    "strict: too many properties": (_closed({f"p{i}": {"type": "string"} for i in range(101)}),),
    "strict: too many levels": (_nested(6), _nested(7), _nested(20)),
}
"""Parameters that no strict tool may have (R3.6)."""

NAMES = (*("", " ", "a b", "a.b", "a/b", "a:b", "naïve", "x" * 129, "a\n", "\0", "a\u200b", "<tool_call>", "🛠"),)
"""Names that no tool may have (R3.2)."""


def bad_tools() -> Iterator[BadTool]:
    """All of them; nothing here is random."""
    good = ToolSpec("tool", parameters=_root())
    for mutation, schemas in SCHEMAS.items():
        for parameters in schemas:
            yield BadTool(mutation, replace(good, parameters=parameters))
    for mutation, schemas in STRICT_SCHEMAS.items():
        for parameters in schemas:
            yield BadTool(mutation, replace(good, parameters=parameters, strict=True))
    for name in NAMES:
        yield BadTool("name", replace(good, name=name))
