"""What a schema says of values besides whether they fit: what is filled in, which numbers are integers, and which
members are known.

Rules:

1. All schemas that hold for a value are asked: that of its place, each part of its `allOf`, and of an `anyOf` or
   `oneOf` the one branch that the value fits. Where it fits several, nothing is filled in from any. Nothing follows
   from `if` and `not`.
2. A `default` is filled in where the object is there, lacks the member and does not require it; not if two schemas have
   different ones. What was filled in is filled as well.
3. A number without a fraction is an `int` where a schema takes integers and no other numbers, or lists that integer:
   JSON has one kind of number, and `5.0` is an integer there. It is the number that was written, however large.
4. An object keeps the members that any schema for it lists, if one lists any and none says anything of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import Any, Final

import orjson

from toolwire.schemas.schema import SchemaProblem, ToolSchema, compile_schema

_OTHERS: Final = ("additionalProperties", "unevaluatedProperties", "patternProperties")

_Branch = tuple["Shape", ToolSchema | None]
"""With what checks whether a value fits it; None: nobody can say."""


class Shape:
    """What one schema says, which is valid. `dialect` is the `$schema` of its document, `where` its place there as
    dotted names. Raises `ValueError` if a default does not fit its own schema."""

    def __init__(self, schema: Any, dialect: str | None = None, where: str = "") -> None:
        said: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}

        def inside(part: Any, name: str = "") -> Shape:
            return Shape(part, dialect, _below(where, name))

        def branches(keyword: str) -> list[_Branch]:
            return [(inside(part), _checker(part, dialect)) for part in said.get(keyword) or ()]

        kinds = said.get("type", ())
        kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        listed = [*(said.get("enum") or ()), said.get("const")]
        self._only_integers = "integer" in kinds and "number" not in kinds
        self._integers = frozenset(value for value in listed if type(value) is int)

        properties: Mapping[str, Any] = said.get("properties") or {}
        self.required = frozenset(said.get("required") or ())
        self.defaults = {
            name: part["default"]
            for name, part in properties.items()
            if isinstance(part, Mapping) and "default" in part and name not in self.required
        }
        for name, value in self.defaults.items():
            if flaw := _flaw(_checker(properties[name], dialect, name), value, name):
                raise ValueError(f"the default of `{_below(where, name)}` does not fit: {flaw}")
        self._named = {name: inside(part, name) for name, part in properties.items()}
        patterns = said.get("patternProperties") or {}
        self._patterns = [(_matcher(pattern, dialect), inside(part, pattern)) for pattern, part in patterns.items()]
        others = said.get("additionalProperties")
        self._others = [inside(others)] if isinstance(others, Mapping) else []

        items, first = said.get("items"), said.get("prefixItems") or ()
        if isinstance(items, list):  # as in Draft 7
            items, first = said.get("additionalItems"), items
        self._first = [inside(part, "[]") for part in first]
        self._rest = inside(items, "[]") if isinstance(items, Mapping) else None

        self._all = [inside(part) for part in said.get("allOf") or ()]
        self._groups = [branches("anyOf"), branches("oneOf")]
        conditions = [said[keyword] for keyword in ("if", "then", "else") if keyword in said]
        maybe = [inside(part) for part in (*conditions, *(said.get("dependentSchemas") or {}).values())]
        self.members = self._known(said, maybe)
        self._is_free = not self.members and ("object" in kinds or not said)

    def _known(self, said: Mapping[str, Any], maybe: Iterable[Shape]) -> frozenset[str] | None:
        """Rule 4."""
        either = [shape for group in self._groups for shape, _ in group]
        parts = [shape.members for shape in (*self._all, *either, *maybe)]
        if None in parts or any(said.get(word, False) is not False for word in _OTHERS):
            return None
        if any(shape._is_free for shape in either):
            return None
        names = frozenset(self._named).union(*filter(None, parts))
        return names | self.required if names else names

    # --- rule 1 -----------------------------------------------------------------------------------------------------

    def holding(self, value: Any) -> Iterator[Shape]:
        """The schemas that hold for this value, this one first."""
        yield self
        for part in self._all:
            yield from part.holding(value)
        for group in self._groups:
            fitting = _fitting(group, value)
            if len(fitting) == 1:
                yield from fitting[0].holding(value)

    def of_member(self, name: str) -> list[Shape]:
        """The schemas of a member of this name."""
        found = [shape for matcher, shape in self._patterns if _flaw(matcher, None, name) is not None]
        if name in self._named:
            found.append(self._named[name])
        return found or self._others

    def of_element(self, index: int) -> list[Shape]:
        """The schemas of an element at this place."""
        if index < len(self._first):
            return [self._first[index]]
        return [] if self._rest is None else [self._rest]

    # --- rule 3 -----------------------------------------------------------------------------------------------------

    def is_integer(self, value: float) -> bool:
        """Whether this number, which fits and has no fraction, is an integer here."""
        if self._only_integers or value in self._integers or any(part.is_integer(value) for part in self._all):
            return True
        groups = (_fitting(group, value) for group in self._groups)
        return any(fitting and all(shape.is_integer(value) for shape in fitting) for fitting in groups)


def fill(shapes: Iterable[Shape], value: Any) -> bool:
    """Fill in defaults, in place; whether there were any to fill in."""
    if not isinstance(value, dict | list):
        return False
    holding = [shape for given in shapes for shape in given.holding(value)]
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
    """What a handler gets of a value that fits. `written` is the same value as it was written, with the text of each
    number that has a fraction or an exponent; what it lacks was filled in."""
    if isinstance(value, float):
        is_whole = value.is_integer() and any(shape.is_integer(value) for shape in shapes)
        return _whole(value, written) if is_whole else value
    if not isinstance(value, dict | list):
        return value
    holding = [shape for given in shapes for shape in given.holding(value)]
    if isinstance(value, list):
        return [shaped(_at(holding, at), inner, _part(written, at)) for at, inner in _inner(value)]
    known = known_members(shapes)
    return {
        at: shaped(_at(holding, at), inner, _part(written, at))
        for at, inner in _inner(value)
        if not known or at in known
    }


def known_members(shapes: Iterable[Shape]) -> frozenset[str] | None:
    """Those that an object may have for its handler; None: any (rule 4)."""
    listed = [shape.members for shape in shapes]
    return None if None in listed else frozenset().union(*filter(None, listed))


def _defaults(holding: Iterable[Shape], value: Mapping[str, Any]) -> dict[str, Any]:
    """What is filled into an object (rule 2)."""
    holding = list(holding)
    found: dict[str, Any] = {}
    unclear = set(value).union(*(shape.required for shape in holding))
    for shape in holding:
        for name, default in shape.defaults.items():
            if name in found and _text(found[name]) != _text(default):
                unclear.add(name)
            found.setdefault(name, default)
    return {name: deepcopy(default) for name, default in found.items() if name not in unclear}


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
    """The integer that was written; where that has a fraction too small for a float, the one that the check saw."""
    if isinstance(written, int):
        return written
    exact = Decimal(written) if isinstance(written, str) and value else None
    return int(exact) if exact is not None and exact == exact.to_integral_value() else int(value)


def _fitting(group: Iterable[_Branch], value: Any) -> list[Shape]:
    """The branches that a value fits; none if that cannot be said of all."""
    found = []
    for shape, checker in group:
        if checker is None:
            return []
        if _flaw(checker, value) is None:
            found.append(shape)
    return found


def _checker(schema: Any, dialect: str | None, name: str = "value") -> ToolSchema | None:
    """What checks whether values fit a schema, as the member `name` of an object; None if it cannot be taken out of its
    document."""
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
    """What no object fits that has a member with such a name: names are matched by the engine that checks."""
    nothing = {"type": "object", "patternProperties": {pattern: False}}
    try:
        return compile_schema(nothing if dialect is None else {"$schema": dialect, **nothing})
    except SchemaProblem:
        return None


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
