"""What the corpus calls: tools with schemas, and arguments that fit them, drawn with a seed.

A number is its text (`Number`), so that `1.0`, `1e-07` and twenty digits are told apart all the way. Nothing here comes
from the package under test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

Json = Any
"""A JSON value whose numbers are `Number`."""


@dataclass(frozen=True)
class Number:
    """A JSON number as it is written."""

    text: str


@dataclass(frozen=True)
class Call:
    """A call that a model makes. `id` is what the format calls it by, where it does."""

    name: str
    arguments: Mapping[str, Json]
    id: str | None = None


def read_json(text: str) -> Json:
    """The value of a JSON text. Raises `ValueError` if it is none, by the letter of the standard."""
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def write_json(value: Json, *, spaced: bool = True, ascii: bool = False) -> str:
    """A JSON text of the value; `spaced` as Python's and Jinja's writers do it, `ascii` with everything else
    escaped."""
    comma, colon = (", ", ": ") if spaced else (",", ":")
    if isinstance(value, Number):
        return value.text
    if isinstance(value, Mapping):
        members = (
            write_json(k, spaced=spaced, ascii=ascii) + colon + write_json(v, spaced=spaced, ascii=ascii)
            for k, v in value.items()
        )
        return "{" + comma.join(members) + "}"
    if isinstance(value, list):
        return "[" + comma.join(write_json(v, spaced=spaced, ascii=ascii) for v in value) + "]"
    return json.dumps(value, ensure_ascii=ascii)


PLAIN = ["Oslo", "a b", "x", "some longer text, with punctuation. And more", "2024-01-31", "true", "17", "null", "[1]"]
UNICODE = ["Zürich", "東京", "😀 é", "naïve café", "Ω≈ç√", "𝔘𝔫𝔦", "שלום", "a\u2028b", "｜▁｜"]
ESCAPES = [
    *('say "hi"', "it's", "back\\slash", "C:\\new\\table", "line\nline\n\nline", "\ttab", '\\"', "\\\\", "a/b"),
    *("\\u00e9", "  spaces around  ", "both ' and \"", "if a < b:\n    print('</b>')", "ends with \\"),
    "a, b) c] d} e",
]
NUMBERS = ["1.0", "1e-07", "12345678901234567890", "0", "-3", "0.10", "1E5", "-0.0", "3.14159265358979323846", "1e400"]
WHOLE = [text for text in NUMBERS if text.lstrip("-").isdigit()]

_VERBS = ["get", "set", "find", "write", "list"]
_NOUNS = ["weather", "file", "user", "invoice", "route", "note"]
_KEYS = ["city", "path", "unit", "query", "limit", "mode", "items", "filter", "flag", "ratio", "target", "body_text"]
_TYPES = ["string", "integer", "number", "boolean", "array", "object"]


@dataclass(frozen=True)
class Tool:
    """A tool on offer: `schemas` are those of its arguments."""

    name: str
    schemas: Mapping[str, Mapping[str, Any]]

    def spec(self) -> dict[str, Any]:
        """As the Chat API wants it."""
        parameters = {"type": "object", "properties": dict(self.schemas), "additionalProperties": False}
        return {"type": "function", "function": {"name": self.name, "description": "A tool.", "parameters": parameters}}


def tool(random: Random, types: list[str]) -> Tool:
    """A tool with an argument of each of these types."""
    name = f"{random.choice(_VERBS)}_{random.choice(_NOUNS)}{random.choice(['', '2', '_v1'])}"
    keys = random.sample(_KEYS, len(types))
    return Tool(name, {key: _schema(random, kind, 2) for key, kind in zip(keys, types, strict=True)})


def any_tool(random: Random) -> Tool:
    """A tool with a few arguments of any types."""
    return tool(random, random.sample(_TYPES, random.randint(1, 4)))


def _schema(random: Random, kind: str, depth: int) -> dict[str, Any]:
    inner = _TYPES if depth else _TYPES[:4]
    if kind == "array":
        return {"type": kind, "items": _schema(random, random.choice(inner), depth - 1)}
    if kind == "object":
        keys = random.sample(_KEYS, random.randint(1, 2))
        return {"type": kind, "properties": {key: _schema(random, random.choice(inner), depth - 1) for key in keys}}
    return {"type": kind}


def arguments(random: Random, called: Tool, strings: list[str]) -> dict[str, Json]:
    """Arguments that fit the tool's schemas, in any order, strings out of `strings`."""
    keys = list(called.schemas)
    random.shuffle(keys)
    return {key: _value(random, called.schemas[key], strings) for key in keys}


def _value(random: Random, schema: Mapping[str, Any], strings: list[str]) -> Json:
    kind = schema["type"]
    if kind == "string":
        return random.choice(strings)
    if kind == "integer":
        return Number(random.choice(WHOLE))
    if kind == "number":
        return Number(random.choice(NUMBERS))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "array":
        return [_value(random, schema["items"], strings) for _ in range(random.randint(0, 3))]
    return {key: _value(random, inner, strings) for key, inner in schema["properties"].items()}
