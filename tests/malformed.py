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
Mutate = Callable[[random.Random, str], str]


def _tool(name: str, required: list[str], **properties: Json) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(name, parameters=schema)


_EDIT = {"line": {"type": "integer"}, "text": {"type": "string"}}
_EDITS = {"type": "object", "properties": _EDIT, "required": ["line", "text"], "additionalProperties": False}
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
    _tool("patch", ["path", "edits"], path={"type": "string"}, edits={"type": "array", "minItems": 1, "items": _EDITS}),
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


def _remade(change: Callable[[random.Random, str, Json], Json]) -> Mutate:
    """Another body in order, of the name and the arguments that were meant."""

    def mutate(rng: random.Random, body: str) -> str:
        value = json.loads(body)
        return json.dumps(change(rng, value["name"], value["arguments"]))

    return mutate


def _renamed(name: Json) -> Mutate:
    return _remade(lambda rng, _, arguments: {"name": name, "arguments": arguments})


def _misspelt(rng: random.Random, name: str, arguments: Json) -> Json:
    wrong = rng.choice([name.upper(), name + "s", name[:-1], f" {name}", f"functions.{name}", f"{name}?"])
    return {"name": wrong, "arguments": arguments}


def _arguments(*choices: Json) -> Mutate:
    return _remade(lambda rng, name, _: {"name": name, "arguments": rng.choice(choices)})


def _broken_inside(mutate: Mutate) -> Mutate:
    """Break the JSON text inside the arguments string, leave the body in order."""

    def change(rng: random.Random, name: str, arguments: Json) -> Json:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return {"name": name, "arguments": mutate(rng, text)}

    return _remade(change)


def _deep(rng: random.Random, body: str) -> str:
    levels = rng.choice([200, 1_000, 5_000])
    return f'{{"name":"{json.loads(body)["name"]}","arguments":{"[" * levels}{"]" * levels}}}'


def _as_python(rng: random.Random, body: str) -> str:
    return repr(json.loads(body))


CONSTANTS = ("NaN", "-Infinity", "undefined")
COMMENTS = ("// note\n", "/* note */", "# note\n")

CLOSED: dict[str, Mutate] = {
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
    "name missing": _remade(lambda rng, name, arguments: {"arguments": arguments}),
    "name misspelt": _remade(_misspelt),
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

OPEN: dict[str, Mutate] = {
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

    def item(mutation: str, call: Meant, value: Json) -> BadArguments:
        return BadArguments(mutation, call.tool, json.dumps(value))

    for _ in range(calls):
        call = meant(rng)
        schema = call.tool.parameters or {}
        name = rng.choice(schema["required"])
        yield item("required missing", call, {k: v for k, v in call.arguments.items() if k != name})
        name = rng.choice([key for key in call.arguments if key in schema["properties"]])
        wrong = rng.choice(_WRONG[_kind(schema["properties"][name])])
        yield item("wrong type", call, _changed(call, **{name: wrong}))
        yield item("extra property", call, _changed(call, **{rng.choice(["Path", "x_", "", "__proto__"]): 1}))
        no_object = [[], [call.arguments], "x", 7, True, None, json.dumps(call.arguments)]
        yield item("no object", call, rng.choice(no_object))
        yield item("empty object", call, {})
        last = json.dumps(call.arguments)[:-1]
        yield BadArguments("last of equal keys is wrong", call.tool, f'{last}, "{schema["required"][0]}": {{}}}}')
    for call in (meant(rng) for _ in range(calls * 4)):
        changes: list[tuple[str, Json]] = []
        match call.tool.name:
            case "read_file":
                changes = [("out of range", {"limit": rng.randint(-9, 0)}), ("too short", {"path": ""})]
            case "search":
                changes = [("pattern", {"query": "UPPER 1"}), ("too few items", {"kinds": []})]
                changes += [("repeated items", {"kinds": ["code", "code"]})]
                changes += [("enum inside an array", {"kinds": ["code", "pictures"]})]
            case "move":
                changes = [("out of range", {"x": rng.choice([1e9, -100.5])})]
            case "patch":
                odd = ({"line": 1}, {"line": "1", "text": ""}, {"line": 1, "text": "", "more": 1}, "1: x", None)
                edits = call.arguments["edits"]
                changes = [("wrong item inside an array", {"edits": [*edits, edit]}) for edit in odd]
        for mutation, change in changes:
            yield item(mutation, call, _changed(call, **change))


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


def _roots(keyword: str, *values: Json) -> tuple[Json, ...]:
    """An object for each value of a keyword."""
    return tuple(_root(**{keyword: value}) for value in values)


def _properties(keyword: str, *values: Json, **more: Json) -> tuple[Json, ...]:
    """An object with a property for each value of a keyword."""
    return tuple(_property(**more, **{keyword: value}) for value in values)


BOUNDS = {
    "minimum": ["0"],
    "maximum": [None],
    "minLength": [-1],
    "maxLength": ["7"],
    "minItems": [1.5],
    "multipleOf": [0, -2],
    "uniqueItems": ["yes"],
}
SCHEMAS: dict[str, tuple[Json, ...]] = {
    "root is no object": tuple({"type": wrong} for wrong in ("string", "array", "null", ["object", "null"], 7)),
    "no schema": ([], "object", 7, True, [{"type": "object"}]),
    "unknown type": _properties("type", "strnig", "String", "int", ["string", "x"]),
    "type of a wrong kind": _properties("type", 7, {}, None, [], [1]),
    "properties of a wrong kind": _roots("properties", [], "a", 7, ["a"], {"a": 7}, {"a": "x"}),
    "required of a wrong kind": _roots("required", "a", True, {"a": 1}, [1], [None], 7, ["a", "a"]),
    "enum of a wrong kind": _properties("enum", "a", {"a": 1}, 7, None, True),
    "bound of a wrong kind": tuple(one for keyword, wrong in BOUNDS.items() for one in _properties(keyword, *wrong)),
    "pattern that does not compile": (
        *_properties("patternProperties", *({wrong: {}} for wrong in ("(", "[a", "*", "(?P<", "a{2,1}", "\\"))),
        *_properties("pattern", 7, None),
    ),
    "items of a wrong kind": _properties("items", "string", 7, None, "x", type="array"),
    "additionalProperties of a wrong kind": _roots("additionalProperties", "no", 7, None, []),
    "combinator of a wrong kind": (
        *(*_roots("anyOf", {}, []), *_roots("oneOf", "x"), *_roots("allOf", [7], [{"type": "x"}])),
        *({"type": "object", "not": 7}, {"type": "object", "if": "x"}),
    ),
    "remote reference": _properties(
        "$ref",
        *("http://example.com/s.json", "https://example.com/s.json#/a", "file:///etc/passwd", "ftp://example.com/x"),
        *("//example.com/x", "other.json", "other.json#/a", "urn:example:x", "/etc/passwd"),
    ),
    "reference to nothing": _properties("$ref", "#/$defs/none", "#/nope", "#nope", "#/$defs/a/b"),
    "reference of a wrong kind": _properties("$ref", 7, None, {}, []),
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
    required = {"required": [*properties], "additionalProperties": False}
    return {"type": "object", "properties": properties, **required, **more}


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
    for table, strict in ((SCHEMAS, None), (STRICT_SCHEMAS, True)):
        for mutation, schemas in table.items():
            for parameters in schemas:
                yield BadTool(mutation, replace(good, parameters=parameters, strict=strict))
    for name in NAMES:
        yield BadTool("name", replace(good, name=name))
