"""JSON Schema to GBNF, llama.cpp's grammar notation, for constrained decoding (R10.10).

Rules of this module:

1. Sound before complete: every text of a grammar is a call whose arguments fit the schema, also where that means that
   not every fitting text can be written. Not looked at, because leaving such properties out would be worse: `pattern`,
   `format`, `not`, `if`, `contains`, `uniqueItems`, `dependent*`, `patternProperties`, `minProperties` beside declared
   properties, and that `oneOf` wants exactly one.
2. Everything is bounded: a small model fills whatever room it gets. Bounds stand in the schema or in `Bounds`.
3. Properties come in the order of the schema; only declared ones are written. No whitespace outside strings.
4. The cost is bounded by `MAX_STEPS`. A tool whose schema needs more, or cannot be said at all, gets arguments of any form:
   leaving it out would silently forbid it.

Why not a library: docs/adr/0004.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, floor
from typing import Any, Final
from urllib.parse import unquote

from .._grammar import valid_text
from ..formats.layout import Layout, Tagged, json_type, keyword
from ..formats.rendering import compact
from ..formats.values import PYTHON, Syntax
from .rules import (
    FREE_KEY,
    STANDARD,
    Bounds,
    Inexpressible,
    Rules,
    TooLarge,
    integers,
    literal,
    numbers,
    raw_text,
    repeat,
)
from .schemas import NOTES, has_type, merge, sizes, type_names

__all__ = ["STANDARD", "Bounds", "Inexpressible", "answer_grammar"]

MAX_LISTED: Final = 256
"""Multiples that are listed one by one for `multipleOf`."""


def answer_grammar(
    tools: Iterable[tuple[str, Mapping[str, Any]]], parallel: bool, layout: Layout, bounds: Bounds = STANDARD
) -> str:
    """The grammar of an answer that calls one of `tools` (name, schema of the arguments), or several if `parallel`.

    Raises `Inexpressible` if there is no tool, or a lone surrogate in one.
    """
    rules = _rules(layout, bounds)
    calls: list[str] = []
    for name, schema in tools:
        try:
            arguments = _Compiler(schema, rules, layout).arguments()
        except (Inexpressible, TooLarge, RecursionError):
            arguments = _anything(rules, layout)
        calls.append(rules.name("call", _sequence(_head(name, layout), arguments, literal(layout.closer))))
    if not calls:
        raise Inexpressible("there is no tool to call")
    call = rules.name("any-call", " | ".join(calls))
    more = ""
    if parallel and bounds.calls > 1:
        more = f"({_sequence(literal(layout.separator), call)}){{0,{bounds.calls - 1}}}"
    root = _sequence(literal(layout.first), call, more, literal(layout.last))
    text = "\n".join((f"root ::= {root}", *(f"{name} ::= {body}" for name, body in rules.bodies.items()), ""))
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise Inexpressible("a schema holds a lone surrogate")
    return text


# --- calls ----------------------------------------------------------------------------------------------------------


def _rules(layout: Layout, bounds: Bounds) -> Rules:
    match layout.arguments:
        case Syntax():
            return Rules(bounds, syntax=layout.arguments)
        case Tagged():
            return Rules(bounds, stops=_barred(layout.arguments))
        case "keywords":
            return Rules(bounds, syntax=PYTHON)
    return Rules(bounds, quoted=layout.arguments == "string")


def _barred(row: Tagged) -> tuple[str, ...]:
    """What must not stand in a value: `stops`, and what would become one behind the line end that frames it."""
    framed = [stop[1:] for stop in row.stops if stop[0] == "\n"] if row.strings.endswith("\n") else []
    return (*row.stops, *framed)


def _sequence(*items: str) -> str:
    return " ".join(filter(None, items))


def _head(name: str, layout: Layout) -> str:
    """A call up to its arguments."""
    shown = name if layout.name == "plain" else compact(name)
    if layout.numbered:
        return f"{literal(layout.opener + shown + layout.numbered)} [0-9]{{1,3}} {literal(layout.middle)}".rstrip()
    return literal(f"{layout.opener}{shown}{layout.middle}")


def _anything(rules: Rules, layout: Layout) -> str:
    """Arguments of any form."""
    match layout.arguments:
        case "keywords":
            entry = f"{FREE_KEY} {literal('=')} {rules.value(rules.bounds.depth - 1)}"
            more = f"({literal(', ')} {entry})"
            return f"({entry} {repeat(more, 0, rules.bounds.items - 1)})?"
        case Tagged() as row:
            if row.closer != row.behind(""):
                return ""  # the closer repeats the key, which no grammar says of a key of any form
            text = raw_text(_barred(row), 0, rules.bounds.string, None)
            entry = _sequence(literal(row.opener), FREE_KEY, literal(row.strings), text, literal(row.closer))
            return repeat(f"({entry})", 0, rules.bounds.items)
        case "string":
            return f"{literal(chr(34))} {rules.anything()} {literal(chr(34))}"
    return rules.anything()


# --- schemas --------------------------------------------------------------------------------------------------------


class _Compiler:
    """One schema document, compiled into shared rules."""

    def __init__(self, document: Mapping[str, Any], rules: Rules, layout: Layout) -> None:
        self.document = document
        self.rules = rules
        self.layout = layout
        self.level = 0
        self.refs: dict[tuple[str, int, bool], str] = {}

    def arguments(self) -> str:
        """The document as the arguments of a call: an object, empty if it declares no properties."""
        root = {"properties": {}, "required": (), **self.document}
        # Recursion is cut by counting references; a chain through every definition once must still fit.
        chain = sum(len(self.document.get(key) or ()) for key in ("$defs", "definitions"))
        arguments = self.schema({**root, "type": "object"}, self.rules.bounds.depth + min(chain, 16))
        return f"{literal(chr(34))} {arguments} {literal(chr(34))}" if self.layout.arguments == "string" else arguments

    def schema(self, schema: Any, depth: int) -> str:
        """A schema as an expression that can stand in a sequence."""
        self.rules.step()
        if schema is True:
            return self.rules.value(self.rules.bounds.depth)
        if not isinstance(schema, Mapping):
            raise Inexpressible("nothing fits")
        if "$ref" in schema:
            return self.reference(schema, depth)
        for word in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(word), Sequence):
                return self.combined(schema, word, depth, self.schema)
        if "const" in schema:
            return self.rules.constant(schema["const"])
        if isinstance(schema.get("enum"), Sequence):
            values = [value for value in schema["enum"] if has_type(value, schema.get("type"))]
            return self.either(self.rules.constant, values)
        names = type_names(schema)
        if names is None:
            return self.rules.value(self.rules.bounds.depth)
        return self.either(lambda name: self.typed(name, schema, depth), names)

    def either(self, build: Callable[[Any], str], options: Iterable[Any]) -> str:
        """Any of the options that can be built."""
        built: dict[str, None] = {}
        for option in options:
            try:
                built[build(option)] = None
            except Inexpressible:
                continue
        if not built:
            raise Inexpressible("no alternative is left")
        if len(built) == 1:
            return next(iter(built))
        name = self.rules.name("any", " | ".join(filter(None, built)))
        return f"{name}?" if "" in built else name

    def combined(self, schema: Mapping[str, Any], word: str, depth: int, build: Callable[[Any, int], str]) -> str:
        """`allOf`, `anyOf` or `oneOf`, joined with what stands beside it."""
        rest = {key: value for key, value in schema.items() if key != word}
        if word == "allOf":
            plain = [self.plain(branch, depth) for branch in schema[word]]
            return build(merge([rest, *(part for part, _ in plain)]), min([depth, *(left for _, left in plain)]))
        if not rest.keys() - NOTES:
            return self.either(lambda branch: build(branch, depth), schema[word])

        def joined(branch: Any) -> str:
            part, left = self.plain(branch, depth)
            return build(merge([rest, part]), left)

        return self.either(joined, schema[word])

    def reference(self, schema: Mapping[str, Any], depth: int) -> str:
        pointer = schema["$ref"]
        if depth <= 0:
            raise Inexpressible("too deep")
        if not schema.keys() - NOTES - {"$ref"}:
            key = (pointer, depth, self.level == 0)
            if key not in self.refs:
                body = self.schema(self.target(pointer), depth - 1)
                self.refs[key] = self.rules.name("ref", body) if body else ""
            return self.refs[key]
        return self.schema(*self.plain(schema, depth))

    def plain(self, schema: Any, depth: int) -> tuple[Any, int]:
        """The schema with references at its top replaced by what they point to, and the depth that is left."""
        while isinstance(schema, Mapping) and "$ref" in schema:
            self.rules.step()
            if depth <= 0:
                raise Inexpressible("too deep")
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = merge([self.target(schema["$ref"]), rest])
            depth -= 1
        return schema, depth

    def target(self, pointer: Any) -> Any:
        """What a local JSON pointer points to."""
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise Inexpressible("not a local reference")
        found: Any = self.document
        for key in pointer.split("/")[1:]:
            key = unquote(key).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise Inexpressible("a reference leads nowhere") from None
        return found

    def typed(self, kind: str, schema: Mapping[str, Any], depth: int) -> str:
        """A schema of one type."""
        bounds = self.rules.bounds
        match kind:
            case "null":
                return self.rules.constant(None)
            case "boolean":
                return self.rules.name("boolean", " | ".join(map(self.rules.constant, (True, False))))
            case "string":
                low, high = sizes(schema, "minLength", "maxLength", bounds.string)
                return self.rules.string(low, high, schema.get("maxLength"))
            case "integer" | "number":
                return self.rules.name(kind, _numeric(kind, schema, bounds.digits))
            case "array":
                return self.array(schema, depth)
            case "object":
                return self.object(schema, depth)
        raise Inexpressible("unknown type")

    def array(self, schema: Mapping[str, Any], depth: int) -> str:
        items = schema.get("items", True)
        prefix = schema.get("prefixItems") or (items if isinstance(items, list) else ())
        if prefix:
            if schema.get("minItems", 0) > len(prefix) or schema.get("maxItems", len(prefix)) < len(prefix):
                raise Inexpressible("a list with a fixed part of another length")
            inner = f" {self.rules.mark(',')} ".join(self.schema(item, depth) for item in prefix)
            return self.rules.name("list", f"{self.rules.mark('[')} {inner} {self.rules.mark(']')}")
        low, high = sizes(schema, "minItems", "maxItems", self.rules.bounds.items)
        if high:
            try:
                item = self.schema(items, depth)
            except Inexpressible:
                if low:
                    raise
                item, high = "", 0
            return self.rules.name("list", self.rules.sequence("[", item, low, high, "]"))
        return self.rules.mark("[]")

    def object(self, schema: Mapping[str, Any], depth: int) -> str:
        top = self.level == 0
        self.level += 1
        try:
            return self.row(schema, depth) if top and self._in_row else self.braces(schema, depth)
        finally:
            self.level -= 1

    @property
    def _in_row(self) -> bool:
        """Whether arguments are not an object, but a row of names and values."""
        return self.layout.arguments == "keywords" or isinstance(self.layout.arguments, Tagged)

    def braces(self, schema: Mapping[str, Any], depth: int) -> str:
        declared = schema.get("properties")
        others = schema.get("additionalProperties", True)
        if not declared and not schema.get("required"):
            if declared is not None or others is False:
                return self.rules.mark("{}")
            low, high = sizes(schema, "minProperties", "maxProperties", self.rules.bounds.items)
            value = self.schema(others, depth) if others is not True else self.rules.value(self.rules.bounds.depth - 1)
            return self.rules.name("map", self.rules.map(value, low, high))
        entries = self.entries(schema, lambda name, inner: f"{self.rules.key(name)} {self.schema(inner, depth)}")
        body = f"{self.rules.mark('{')} {self._entries(entries)} {self.rules.mark('}')}"
        return self.rules.name("object", body)

    def row(self, schema: Mapping[str, Any], depth: int) -> str:
        """Arguments that are not an object; nothing if there are none."""
        form = self.layout.arguments
        if isinstance(form, Tagged):

            def tagged(name: str, inner: Any) -> str:
                if form.key(name) != name:
                    raise Inexpressible("a name that tags cannot hold")
                return _sequence(
                    literal(form.opener + name), self.tagged(inner, depth, form), literal(form.behind(name))
                )

            entries = self.entries(schema, tagged)
            return _sequence(*(entry if needed else f"({entry})?" for entry, needed in entries))

        def named(name: str, inner: Any) -> str:
            if keyword(name) != name:
                raise Inexpressible("a name that Python cannot hold")
            return f"{literal(name + '=')} {self.schema(inner, depth)}"

        return self._entries(self.entries(schema, named), ", ")

    def tagged(self, schema: Any, depth: int, row: Tagged) -> str:
        """What stands between a key and the tag behind its value. Raises `Inexpressible`."""
        self.rules.step()
        schema, depth = self.plain(schema, depth)
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise Inexpressible("nothing fits")
        for word in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(word), Sequence):
                branches = schema[word]
                if word != "allOf":
                    kinds = [type_names(self.plain(branch, depth)[0]) or () for branch in branches]
                    branches = _apart(branches, kinds, row)
                return self.combined({**schema, word: branches}, word, depth, lambda s, d: self.tagged(s, d, row))
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, Sequence):
            fitting = [value for value in values if has_type(value, schema.get("type"))]
            kept = _apart(fitting, [[json_type(value)] for value in fitting], row)
            return self.either(lambda value: self._tagged_constant(value, row), kept)
        names = type_names(schema)
        if names is None:
            names = ["string"] if row.typed else ["any"]
        kept = _apart(names, [[name] for name in names], row)
        return self.either(lambda name: self._tagged_value(name, schema, depth, row), kept)

    def _tagged_value(self, kind: str, schema: Mapping[str, Any], depth: int, row: Tagged) -> str:
        """A value of one type."""
        if kind == "string":
            low, high = sizes(schema, "minLength", "maxLength", self.rules.bounds.string)
            text = raw_text(_barred(row), low, high, schema.get("maxLength"))
            return self.rules.name("text", _sequence(literal(row.strings), text) or '""')
        shown = "number" if kind == "integer" else kind
        value = self.rules.value(self.rules.bounds.depth) if kind == "any" else self.typed(kind, schema, depth)
        return _sequence(literal(row.others.replace("{type}", shown)), value)

    def _tagged_constant(self, value: Any, row: Tagged) -> str:
        if not isinstance(value, str):
            return _sequence(literal(row.others.replace("{type}", json_type(value))), self.rules.constant(value))
        if any(stop in f"{value}{row.closer}"[: len(value) + len(stop) - 1] for stop in _barred(row)):
            raise Inexpressible("a string holds what ends it")
        if valid_text(value) != value:
            raise Inexpressible("a lone surrogate")
        return literal(row.strings + value)

    def entries(self, schema: Mapping[str, Any], build: Callable[[str, Any], str]) -> list[tuple[str, bool]]:
        """The declared properties in order, and whether each is required. Those that cannot be said are left out.

        Raises `Inexpressible` if such a one is required.
        """
        required = schema.get("required") or ()
        properties = {**(schema.get("properties") or {})}
        for name in required:
            properties.setdefault(name, schema.get("additionalProperties", True))
        entries: list[tuple[str, bool]] = []
        for name, inner in properties.items():
            try:
                entry = build(name, inner)
            except Inexpressible:
                if name in required:
                    raise
                continue
            entries.append((self.rules.name("entry", entry), name in required))
        return entries

    def _entries(self, entries: list[tuple[str, bool]], between: str = ",") -> str:
        """Entries in order, optional ones left out at will, with a comma between any two."""
        comma = self.rules.mark(between)
        anchor = next((index for index, (_, needed) in enumerate(entries) if needed), None)
        if anchor is not None:
            before = [f"({entry} {comma})?" for entry, _ in entries[:anchor]]
            after = [f"{comma} {entry}" if needed else f"({comma} {entry})?" for entry, needed in entries[anchor + 1 :]]
            return " ".join((*before, entries[anchor][0], *after))
        # Without a required entry the first one written decides about the commas: one alternative for each.
        options: list[str] = []
        tail = ""
        for entry, _ in reversed(entries):
            options.append(f"{entry} {tail}".strip())
            tail = self.rules.name("more", f"({comma} {entry})? {tail}".strip())
        return f"({' | '.join(reversed(options))})?" if options else ""


def _apart(options: Sequence[Any], kinds: Sequence[Sequence[str]], row: Tagged) -> Sequence[Any]:
    """Those of several options that can be told apart when they are read: where nothing says what a value is, a text that
    looks like a number or an object is none of the strings."""
    others = {name for names in kinds for name in names} - {"string", "null", "boolean"}
    if row.typed or not others:
        return options
    return [option for option, names in zip(options, kinds, strict=True) if "string" not in names] or options


def _numeric(kind: str, schema: Mapping[str, Any], digits: int) -> str:
    lows = [ceil(schema["minimum"])] if "minimum" in schema else []
    highs = [floor(schema["maximum"])] if "maximum" in schema else []
    if "exclusiveMinimum" in schema:
        lows.append(floor(schema["exclusiveMinimum"]) + 1)
    if "exclusiveMaximum" in schema:
        highs.append(ceil(schema["exclusiveMaximum"]) - 1)
    low, high = max(lows, default=None), min(highs, default=None)
    step = schema.get("multipleOf")
    if step is None:
        return integers(low, high, digits) if kind == "integer" else numbers(low, high, digits)
    if step < 1 and (1 / step).is_integer():
        return integers(low, high, digits)  # every integer is a multiple
    if step != int(step):
        raise Inexpressible("multiples of a fraction")
    step = int(step)
    first = ceil(low / step) if low is not None else min(0, floor(high / step) if high is not None else 0)
    last = floor(high / step) if high is not None else first + MAX_LISTED - 1
    values = [str(step * k) for k in range(first, min(last, first + MAX_LISTED - 1) + 1)]
    if not values:
        raise Inexpressible("no multiple is in range")
    return f"({' | '.join(map(literal, values))})"
