"""Whether a value fits one of the gateway's own schemas: a quick yes, made of the schema, in front of the library that
has the words for what is wrong.

Law: what fits here fits the schema. What does not may fit all the same (1.0 is a whole number).

The library finds out by exceptions which branch of an `if` holds, and writes down where it is for each entry of a list:
70,000 instructions for a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from math import inf
from typing import Any, Final

from ..model import EMPTY

Test = Callable[[Any], bool]

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_SAYS_NOTHING: Final = frozenset({"$schema", "title", "definitions", "then", "else"})
_BRANCHES: Final = frozenset({"if", "then", "else"})
_FEW: Final = 3
"""Of more properties those are looked at that are there."""
_BOUNDS: Final[Mapping[str, tuple[tuple[type, ...], Callable[[Any], Any]]]] = {
    "imum": (_KINDS["number"], lambda value: value),
    "Length": (_KINDS["string"], len),
    "Items": (_KINDS["array"], len),
    "Properties": (_KINDS["object"], len),
}
"""What has a `min` and a `max`: of which types, and how much it is."""


def compiled(schema: Mapping[str, Any]) -> Test:
    """The test for a schema. Raises `ValueError` for one with a keyword that is not known here."""
    return _Tests(schema.get("definitions", EMPTY)).of(schema)


class _Tests:
    """The tests of one schema, and those of its definitions by name."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[str, Test] = {}

    def of(self, schema: Mapping[str, Any]) -> Test:
        """The test for a part of it."""
        return _all_of(list(self._tests(schema)))

    def _tests(self, schema: Mapping[str, Any]) -> Iterator[Test]:
        rest = schema.keys() - _SAYS_NOTHING
        named = schema.get("type", [*_KINDS])
        kinds = {kind for name in ([named] if isinstance(named, str) else named) for kind in _KINDS[name]}
        if "enum" in rest or "const" in rest:
            yield _one_of([value for value in _values(schema) if type(value) in kinds])
        elif "type" in rest:
            yield _of_type(kinds)
        rest -= {"enum", "const", "type"}
        if "$ref" in rest:
            yield self._named(schema["$ref"].removeprefix("#/definitions/"))
            rest.remove("$ref")
        for what, (sized, size) in _BOUNDS.items():
            bounds = {f"min{what}", f"max{what}"} & rest
            if bounds:
                yield _within(sized, size, schema.get(f"min{what}", -inf), schema.get(f"max{what}", inf))
                rest -= bounds
        if "required" in rest:
            yield _has(schema["required"])
        inside = {name: self.of(inner) for name, inner in schema.get("properties", EMPTY).items()}
        if "additionalProperties" in rest:
            yield _fields(inside, self.of(schema["additionalProperties"]))
        elif len(inside) > _FEW:
            yield _fields(inside, None)
        else:
            yield from (_field(name, test) for name, test in inside.items())
        rest -= {"required", "properties", "additionalProperties"}
        for keyword, each in (("items", _each_item), ("propertyNames", _each_name)):
            if keyword in rest:
                yield each(self.of(schema[keyword]))
                rest.remove(keyword)
        if "if" in rest:
            yield self._by_field(schema)
            rest.remove("if")
        if rest:
            raise ValueError(f"no test for {', '.join(sorted(rest))}")

    def _by_field(self, schema: Mapping[str, Any]) -> Test:
        """That of an `if` about the value of one field, and of those about the same that stand in its `else`."""
        (field,) = schema["if"]["properties"]
        tests: dict[object, Test] = {}
        absent: Test | None = None
        while "if" in schema and [*schema["if"]["properties"]] == [field]:
            if schema["if"].keys() - {"properties", "required"} or schema["if"].get("required", [field]) != [field]:
                raise ValueError(f"no test for the condition {schema['if']}")
            then = self.of(schema.get("then", EMPTY))
            for value in _values(schema["if"]["properties"][field]):
                tests.setdefault(value, then)
            if "required" not in schema["if"]:
                absent = absent or then  # of what is not there nothing is said
            schema = schema.get("else", EMPTY)
            if schema.keys() - _BRANCHES:
                break
        others = self.of(schema)
        return _by_field(field, tests, absent or others, others)

    def _named(self, name: str) -> Test:
        """That of a definition, which may be under way: one that leads to itself."""
        known = self._known
        if name not in known:
            known[name] = lambda value: known[name](value)
            known[name] = self.of(self._definitions[name])
        return known[name]


def _values(schema: Mapping[str, Any]) -> Sequence[str | None]:
    """Those that an `enum` or a `const` allows: texts, or none."""
    values: Sequence[str | None] = schema["enum"] if "enum" in schema else [schema["const"]]
    if not all(value is None or isinstance(value, str) for value in values):
        raise ValueError(f"no test for one of {values}")
    return values


def _all_of(tests: Sequence[Test]) -> Test:
    if not tests:
        return lambda value: True
    if len(tests) == 1:
        return tests[0]
    first, others = tests[0], _all_of(tests[1:])
    return lambda value: first(value) and others(value)


def _one_of(values: Sequence[str | None]) -> Test:
    allowed, kinds = frozenset(values), frozenset(map(type, values))
    return lambda value: type(value) in kinds and value in allowed


def _of_type(kinds: Set[type]) -> Test:
    allowed = frozenset(kinds)
    return lambda value: type(value) in allowed


def _within(kinds: tuple[type, ...], size: Callable[[Any], Any], least: float, most: float) -> Test:
    return lambda value: type(value) not in kinds or least <= size(value) <= most


def _has(required: Sequence[str]) -> Test:
    wanted = frozenset(required)
    return lambda value: type(value) is not dict or value.keys() >= wanted


def _field(name: str, test: Test) -> Test:
    return lambda value: type(value) is not dict or name not in value or test(value[name])


def _fields(inside: Mapping[str, Test], others: Test | None) -> Test:
    def test(value: Any) -> bool:
        if type(value) is dict:
            for name, item in value.items():
                known = inside.get(name, others)
                if known is not None and not known(item):
                    return False
        return True

    return test


def _each_item(test: Test) -> Test:
    return lambda value: type(value) is not list or all(map(test, value))


def _each_name(test: Test) -> Test:
    return lambda value: type(value) is not dict or all(map(test, value))


def _by_field(field: str, tests: Mapping[object, Test], absent: Test, others: Test) -> Test:
    def test(value: Any) -> bool:
        if type(value) is not dict or field not in value:
            return absent(value)
        said = value[field]
        return (tests.get(said, others) if said is None or type(said) is str else others)(value)

    return test
