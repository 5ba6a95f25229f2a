"""Applies a JSON Schema to values that fit it: fills in defaults, makes integers, and drops unknown members.

Rules:

1. All schemas that apply to a value count: the schema at its place, each part of its `allOf`, and the branch of an
   `anyOf` or `oneOf` that the value fits. If it fits several branches, none of them fills in anything. `if` and `not`
   have no effect.
2. A `default` is filled in if the object is present, lacks the member and does not require it, and no other schema has
   a different default. Objects that were filled in are filled as well.
3. A number without a fraction becomes an `int` if a schema takes integers and no other numbers, or lists this integer:
   JSON has one kind of number, and `5.0` is an integer. Its value is exactly the written one, however large.
4. An object keeps the members that any of its schemas lists, if one lists any and none allows others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import Any, Final

import orjson

from ..schemas.schema import SchemaProblem, ToolSchema, compile_schema

_OTHERS: Final = ("additionalProperties", "unevaluatedProperties", "patternProperties")

_Branch = tuple["Shape", ToolSchema | None]
"""A branch, and its checker; None if the branch cannot be compiled alone."""


class Shape:
    """The rules of one valid schema. `dialect` is the `$schema` of its document, `where` its place there in dotted
    names. Raises `ValueError` if a default does not fit its own schema."""

    def __init__(self, schema: Any, dialect: str | None = None, where: str = "") -> None:
        keywords: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}

        def inside(part: Any, name: str = "") -> Shape:
            return Shape(part, dialect, _below(where, name))

        def branches(keyword: str) -> list[_Branch]:
            return [(inside(part), _checker(part, dialect)) for part in keywords.get(keyword) or ()]

        kinds = keywords.get("type", ())
        kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        listed = [*(keywords.get("enum") or ()), keywords.get("const")]
        self._only_integers = "integer" in kinds and "number" not in kinds
        self._integers = frozenset(value for value in listed if type(value) is int)

        properties: Mapping[str, Any] = keywords.get("properties") or {}
        self.required = frozenset(keywords.get("required") or ())
        self.defaults = {
            name: part["default"]
            for name, part in properties.items()
            if isinstance(part, Mapping) and "default" in part and name not in self.required
        }
        for name, value in self.defaults.items():
            if flaw := _flaw(_checker(properties[name], dialect, name), value, name):
                raise ValueError(f"the default of `{_below(where, name)}` does not fit: {flaw}")
        self._named = {name: inside(part, name) for name, part in properties.items()}
        patterns = keywords.get("patternProperties") or {}
        self._patterns = [(_matcher(pattern, dialect), inside(part, pattern)) for pattern, part in patterns.items()]
        others = keywords.get("additionalProperties")
        self._others = [inside(others)] if isinstance(others, Mapping) else []

        items, first = keywords.get("items"), keywords.get("prefixItems") or ()
        if isinstance(items, list):  # as in Draft 7
            items, first = keywords.get("additionalItems"), items
        self._first = [inside(part, "[]") for part in first]
        self._rest = inside(items, "[]") if isinstance(items, Mapping) else None

        self._all = [inside(part) for part in keywords.get("allOf") or ()]
        self._groups = [branches("anyOf"), branches("oneOf")]
        conditions = [keywords[name] for name in ("if", "then", "else") if name in keywords]
        maybe = [inside(part) for part in (*conditions, *(keywords.get("dependentSchemas") or {}).values())]
        self.members = self._known(keywords, maybe)
        self._is_free = not self.members and ("object" in kinds or not keywords)

    def _known(self, keywords: Mapping[str, Any], maybe: Iterable[Shape]) -> frozenset[str] | None:
        """Returns the known members by rule 4; None if any member is allowed."""
        either = [shape for group in self._groups for shape, _ in group]
        parts = [shape.members for shape in (*self._all, *either, *maybe)]
        if None in parts or any(keywords.get(word, False) is not False for word in _OTHERS):
            return None
        if any(shape._is_free for shape in either):
            return None
        names = frozenset(self._named).union(*filter(None, parts))
        return names | self.required if names else names

    # --- rule 1 -----------------------------------------------------------------------------------------------------

    def holding(self, value: Any) -> Iterator[Shape]:
        """Yields the schemas that apply to this value (rule 1), this one first."""
        yield self
        for part in self._all:
            yield from part.holding(value)
        for group in self._groups:
            fitting = _fitting(group, value)
            if len(fitting) == 1:
                yield from fitting[0].holding(value)

    def of_member(self, name: str) -> list[Shape]:
        """Returns the schemas of the member `name`."""
        schemas = [shape for matcher, shape in self._patterns if _flaw(matcher, None, name) is not None]
        if name in self._named:
            schemas.append(self._named[name])
        return schemas or self._others

    def of_element(self, index: int) -> list[Shape]:
        """Returns the schemas of the element `index`."""
        if index < len(self._first):
            return [self._first[index]]
        return [] if self._rest is None else [self._rest]

    # --- rule 3 -----------------------------------------------------------------------------------------------------

    def is_integer(self, value: float) -> bool:
        """Returns True if this number, which fits and has no fraction, is an integer here (rule 3)."""
        if self._only_integers or value in self._integers or any(part.is_integer(value) for part in self._all):
            return True
        groups = (_fitting(group, value) for group in self._groups)
        return any(fitting and all(shape.is_integer(value) for shape in fitting) for fitting in groups)


def fill(shapes: Iterable[Shape], value: Any) -> bool:
    """Fills in defaults, in place (rule 2). Returns True if it filled in any."""
    if not isinstance(value, dict | list):
        return False
    holding = [shape for outer in shapes for shape in outer.holding(value)]
    filled = False
    if isinstance(value, dict):
        defaults = _defaults(holding, value)
        if defaults:
            filled = True
            written = dict(value)
            value.clear()
            value |= {**defaults, **written}
    for at, inner in _inner(value):
        filled |= fill(_at(holding, at), inner)
    return filled


def shaped(shapes: Sequence[Shape], value: Any, written: Any) -> Any:
    """Returns the value for a handler: integers by rule 3, members by rule 4. `written` is the same value as the model
    wrote it, with the text of each number that has a fraction or an exponent; it lacks filled-in defaults."""
    if isinstance(value, float):
        is_whole = value.is_integer() and any(shape.is_integer(value) for shape in shapes)
        return _whole(value, written) if is_whole else value
    if not isinstance(value, dict | list):
        return value
    holding = [shape for outer in shapes for shape in outer.holding(value)]
    if isinstance(value, list):
        return [shaped(_at(holding, at), inner, _part(written, at)) for at, inner in _inner(value)]
    known = known_members(shapes)
    return {
        at: shaped(_at(holding, at), inner, _part(written, at))
        for at, inner in _inner(value)
        if not known or at in known
    }


def known_members(shapes: Iterable[Shape]) -> frozenset[str] | None:
    """Returns the members that an object keeps; None if it keeps all (rule 4)."""
    listed = [shape.members for shape in shapes]
    return None if None in listed else frozenset().union(*filter(None, listed))


def _defaults(holding: Iterable[Shape], value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults to fill into an object (rule 2)."""
    holding = list(holding)
    defaults: dict[str, Any] = {}
    unclear = set(value).union(*(shape.required for shape in holding))
    for shape in holding:
        for name, default in shape.defaults.items():
            if name in defaults and _text(defaults[name]) != _text(default):
                unclear.add(name)
            defaults.setdefault(name, default)
    return {name: deepcopy(default) for name, default in defaults.items() if name not in unclear}


def _inner(value: dict[str, Any] | list[Any]) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, dict) else enumerate(value))


def _at(holding: Iterable[Shape], at: str | int) -> list[Shape]:
    found = (shape.of_member(at) if isinstance(at, str) else shape.of_element(at) for shape in holding)
    return [shape for shapes in found for shape in shapes]


def _part(written: Any, at: str | int) -> Any:
    if isinstance(written, dict):
        return written.get(at)
    return written[at] if isinstance(written, list) and isinstance(at, int) and at < len(written) else None


def _whole(value: float, written: Any) -> int:
    """Returns the integer that was written, or the rounded float if the text has a fraction that a float
    cannot hold."""
    if isinstance(written, int):
        return written
    exact = Decimal(written) if isinstance(written, str) and value else None
    return int(exact) if exact is not None and exact == exact.to_integral_value() else int(value)


def _fitting(group: Iterable[_Branch], value: Any) -> list[Shape]:
    """Returns the branches that a value fits; empty if a branch cannot be checked."""
    fitting = []
    for shape, checker in group:
        if checker is None:
            return []
        if _flaw(checker, value) is None:
            fitting.append(shape)
    return fitting


def _checker(schema: Any, dialect: str | None, name: str = "value") -> ToolSchema | None:
    """Returns a checker of values of a schema, given as the member `name` of an object. None if the schema cannot be
    compiled outside of its document."""
    whole = {"type": "object", "properties": {name: schema}}
    try:
        return compile_schema(whole if dialect is None else {"$schema": dialect, **whole})
    except SchemaProblem:
        return None


def _flaw(checker: ToolSchema | None, value: Any, name: str = "value") -> str | None:
    return None if checker is None else checker.check(_text({name: value}))


def _below(where: str, name: str) -> str:
    return f"{where}.{name}".strip(".")


def _matcher(pattern: str, dialect: str | None) -> ToolSchema | None:
    """Returns a checker that refuses objects with a member whose name matches: names are matched by the engine that
    validates. None if the pattern cannot be compiled."""
    nothing = {"type": "object", "patternProperties": {pattern: False}}
    try:
        return compile_schema(nothing if dialect is None else {"$schema": dialect, **nothing})
    except SchemaProblem:
        return None


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
