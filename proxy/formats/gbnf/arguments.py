"""Translates a tool's JSON Schema into GBNF for the arguments of its calls (R10.10).

Rules of this module:

1. Data is never shortened: length, number and depth are unlimited where the schema does not limit them, unless
   `GrammarBounds` say otherwise. A length that would take thousands of rules is not limited either: arguments are
   checked later anyway.
2. Otherwise sound: every text of a grammar is arguments that fit the schema, even if not every fitting text can then be
   written. Ignored, because omitting such properties would be worse: `pattern`, `format`, ranges of numbers,
   `multipleOf`, `not`, `if`, `contains`, `uniqueItems`, `dependent*`, `patternProperties`, `minProperties` beside
   declared properties, and that `oneOf` allows exactly one.
3. Properties come in the order of the schema, and only declared ones. Outside strings there is at most the one space
   that models write after a comma or colon.
4. The cost is limited by `MAX_STEPS`. A schema that needs more, or cannot be expressed, allows arguments of any form:
   omitting the tool would silently forbid it.

Why no library: docs/adr/0004.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from ...scan._grammar import valid_text
from ...support.cache import chars_of
from ..engine.layout import Layout, Tagged, json_type, keyword
from ..engine.longjson import compact
from ..engine.values import PYTHON, Syntax
from .notation import Expression, Inexpressible, Rule, choice, literal, optional, sequence
from .rules import MAX_STEPS, GrammarBounds, GrammarTooLarge
from .schemas import JSON_TYPES, NOTES, has_type, merge, sizes, type_names
from .text import CONTROLS, Pattern, TextWithout
from .values import CHARS_PER_STEP, FREE_KEY, ValueRules, integers, numbers


def rules_for(layout: Layout, bounds: GrammarBounds) -> ValueRules:
    """Returns an empty set of rules for the arguments of this layout."""
    match layout.arguments:
        case Syntax():
            return ValueRules(bounds, syntax=layout.arguments, spaced=False)
        case Tagged():
            return ValueRules(bounds, stops=layout.arguments.stops)
        case "keywords":
            return ValueRules(bounds, syntax=PYTHON)
    return ValueRules(bounds, quoted=layout.arguments == "string")


def arguments(schema: Mapping[str, Any], rules: ValueRules, layout: Layout) -> Expression:
    """Returns an expression for the arguments of a tool with this schema; arguments of any form if the schema cannot be
    expressed."""
    try:
        expression = _Compiler(schema, rules, layout).arguments()
        if rules.is_possible(expression):
            return expression
    except (Inexpressible, GrammarTooLarge, RecursionError):
        pass
    return _anything(rules, layout)


def _anything(rules: ValueRules, layout: Layout) -> Expression:
    """Returns an expression for arguments of any form."""
    bounds = rules.bounds
    match layout.arguments:
        case "keywords":
            entry = sequence(FREE_KEY, literal("="), rules.value())
            more = sequence(literal(", "), entry)
            return optional(sequence(entry, rules.repeat(more, 0, bounds.items and bounds.items - 1)))
        case Tagged() as row:
            text = _raw_text(row).rule(rules, 0, bounds.string)
            behind, again, rest = row.closer[_read_end(row) :].partition("{key}")
            # A grammar cannot repeat a free key; readers do not compare the key of the closing tag.
            closer = sequence(literal(behind), FREE_KEY if again else "", literal(rest))
            entry = sequence(literal(row.opener), FREE_KEY, literal(row.strings), text, closer)
            return rules.repeat(entry, 0, bounds.items)
        case "string":
            return sequence(literal('"'), rules.anything(), literal('"'))
    return rules.anything()


def _raw_text(row: Tagged) -> TextWithout:
    """Returns the text of an unquoted string, including the part of its closing tag that ends it: up to the first of
    the row's stops."""
    at = _read_end(row)
    ends = Pattern.of(row.closer[:at], "")
    barred = tuple(Pattern.of(stop, None) for stop in row.stops if stop != row.closer[:at])
    # The line end before a value may be the one with which a stop begins.
    begun = row.strings[-1:] if any(stop[0] == row.strings[-1:] for stop in row.stops) else ""
    return TextWithout((ends, *barred), without=CONTROLS, begun=begun)


def _read_end(row: Tagged) -> int:
    """Returns how many characters of the closing tag are read before the value is known to have ended. The key is never
    among them."""
    same = row.closer.partition("{key}")[0]
    stop = next((stop for stop in row.stops if stop in same), same)
    return row.closer.index(stop) + len(stop)


class _Compiler:
    """Compiles one schema document into shared rules."""

    def __init__(self, document: Mapping[str, Any], rules: ValueRules, layout: Layout) -> None:
        self.document = document
        self.rules = rules
        self.layout = layout
        self._text: TextWithout | None = None
        self.level = 0
        self.shared: dict[tuple[object, ...], Rule | None] = {}
        self.unopened: set[tuple[object, ...]] = set()
        """Shared rules under construction, as long as no bracket has been written in them."""

    def arguments(self) -> Expression:
        """Returns the document as the arguments of a call: an object, empty if it declares no properties."""
        root = {"properties": {}, "required": (), **self.document}
        expression = self.schema({**root, "type": "object"})
        return sequence(literal('"'), expression, literal('"')) if self.layout.arguments == "string" else expression

    def schema(self, schema: Any) -> Expression:
        """Returns a schema as an expression. Raises `Inexpressible`."""
        self.rules.step()
        if schema is True:
            return self.rules.value()
        if not isinstance(schema, Mapping):
            raise Inexpressible("nothing fits")
        if "$ref" in schema:
            return self.reference(schema)
        for word in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(word), Sequence):
                return self.combined(schema, word, self.schema)
        if "const" in schema:
            return self.constant(schema["const"])
        if isinstance(schema.get("enum"), Sequence):
            values = [value for value in schema["enum"] if has_type(value, schema.get("type"))]
            return self.either(self.constant, values)
        names = type_names(schema)
        if names is None:
            return self.rules.value()
        return self.either(lambda name: self.typed(name, schema), names)

    def constant(self, value: Any) -> Expression:
        """Returns a value that the schema names."""
        self.rules.step(1 + chars_of(value, CHARS_PER_STEP * MAX_STEPS) // CHARS_PER_STEP)
        return self.rules.constant(value)

    def either(self, build: Callable[[Any], Expression], options: Iterable[Any]) -> Expression:
        """Returns a choice of all options that can be built. Raises `Inexpressible` if none can."""
        built: list[Expression] = []
        for option in options:
            try:
                built.append(build(option))
            except Inexpressible:
                continue
        alternatives = choice(built)
        return alternatives if len(built) == 1 else self.rules.name("any", alternatives)

    # --- several schemas in one, and references ---------------------------------------------------------------------

    def combined(self, schema: Mapping[str, Any], word: str, build: Callable[[Any], Expression]) -> Expression:
        """Returns `allOf`, `anyOf` or `oneOf`, merged with the keywords beside it."""
        rest = {key: value for key, value in schema.items() if key != word}
        if word == "allOf":
            return self.joined([rest, *schema[word]], build)
        if not rest.keys() - NOTES:
            return self.either(build, schema[word])
        return self.either(lambda branch: self.joined([rest, branch], build), schema[word])

    def joined(self, schemas: Sequence[Any], build: Callable[[Any], Expression]) -> Expression:
        """Returns an expression that fits all of `schemas`."""
        plain = merge([self.plain(schema) for schema in schemas])
        if not any(isinstance(schema, Mapping) and "$ref" in schema for schema in schemas):
            return build(plain)
        key = compact(plain)
        self.rules.step(len(key) // 1000)
        return self.once((build.__name__, key), lambda: build(plain))

    def reference(self, schema: Mapping[str, Any]) -> Expression:
        """Returns the target of a `$ref`, merged with the keywords beside it."""
        if schema.keys() - NOTES - {"$ref"}:
            return self.joined([schema], self.schema)
        pointer = schema["$ref"]
        return self.once(("$ref", pointer), lambda: self.schema(self.target(pointer)))

    def once(self, key: tuple[object, ...], build: Callable[[], Expression]) -> Rule:
        """Returns the rule under `key`, built on first use. The rule may refer to itself."""
        key = (*key, self.level == 0)
        if key in self.unopened:
            raise Inexpressible("a reference that says nothing but itself")
        if key in self.shared:
            known = self.shared[key]
            if known is None:
                raise Inexpressible("nothing fits")
            return known
        rule = self.shared[key] = self.rules.reserve("ref")
        self.unopened.add(key)
        try:
            self.rules.define(rule, build())
        except Inexpressible:
            self.shared[key] = None
            raise
        finally:
            self.unopened.discard(key)
        return rule

    def plain(self, schema: Any) -> Any:
        """Returns the schema with references at its top level resolved."""
        while isinstance(schema, Mapping) and "$ref" in schema:
            self.rules.step()
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = merge([self.target(schema["$ref"]), rest])
        return schema

    def target(self, pointer: Any) -> Any:
        """Returns the target of a local JSON pointer. Raises `Inexpressible`."""
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise Inexpressible("not a local reference")
        target: Any = self.document
        for key in pointer.split("/")[1:]:
            key = unquote(key).replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(key)] if isinstance(target, list) else target[key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise Inexpressible("a reference leads nowhere") from None
        return target

    # --- one type ---------------------------------------------------------------------------------------------------

    def typed(self, kind: str, schema: Mapping[str, Any]) -> Expression:
        """Returns an expression for the type `kind` of a schema."""
        bounds = self.rules.bounds
        match kind:
            case "null":
                return self.rules.constant(None)
            case "boolean":
                return self.rules.name("boolean", choice(map(self.rules.constant, (True, False))))
            case "string":
                return self.rules.string(*sizes(schema, "minLength", "maxLength", bounds.string))
            case "integer" | "number":
                return self.rules.name(kind, (integers if kind == "integer" else numbers)(bounds.digits))
            case "array":
                return self.bracketed(self.array, schema)
            case "object":
                return self.bracketed(self.row if self.level == 0 and self._in_row else self.braces, schema)
        raise Inexpressible("unknown type")

    def bracketed(self, build: Callable[[Mapping[str, Any]], Expression], schema: Mapping[str, Any]) -> Expression:
        """Builds an expression inside brackets, where a reference may be recursive."""
        outside, self.unopened = self.unopened, set()
        self.level += 1
        try:
            return build(schema)
        finally:
            self.level -= 1
            self.unopened = outside

    @property
    def _in_row(self) -> bool:
        """True if arguments are a row of names and values instead of an object."""
        return self.layout.arguments == "keywords" or isinstance(self.layout.arguments, Tagged)

    def array(self, schema: Mapping[str, Any]) -> Expression:
        """Returns a list. Raises `Inexpressible`."""
        items = schema.get("items", True)
        prefix = schema.get("prefixItems") or (items if isinstance(items, list) else ())
        low, high = sizes(schema, "minItems", "maxItems", self.rules.bounds.items)
        if prefix:
            return self.fixed(prefix, schema, low)
        if high == 0:
            return self.rules.mark("[]")
        try:
            item = self.schema(items)
        except Inexpressible:
            if low:
                raise
            return self.rules.mark("[]")
        return self.rules.name("list", self.rules.sequence("[", item, low, high, "]"))

    def fixed(self, prefix: Sequence[Any], schema: Mapping[str, Any], low: int) -> Expression:
        """Returns a list with fixed first items. Further items are allowed only if the schema describes them."""
        most = schema.get("maxItems", len(prefix))
        rest = schema.get("items" if "prefixItems" in schema else "additionalItems")
        open_end = isinstance(rest, Mapping) or rest is True
        if most < len(prefix) or (low > len(prefix) and not open_end):
            raise Inexpressible("a list with a fixed part of another length")
        comma = self.rules.mark(",")
        inner = [self.schema(item) for item in prefix]
        parts: list[Expression] = [inner[0], *(sequence(comma, item) for item in inner[1:])]
        if open_end and ("maxItems" not in schema or most > len(prefix)):
            high = schema["maxItems"] - len(prefix) if "maxItems" in schema else self.rules.bounds.items
            more = sequence(comma, self.schema(rest))
            parts.append(self.rules.repeat(more, max(low - len(prefix), 0), high))
        return self.rules.name("list", sequence(self.rules.mark("["), *parts, self.rules.mark("]")))

    # --- objects ----------------------------------------------------------------------------------------------------

    def braces(self, schema: Mapping[str, Any]) -> Expression:
        """Returns an object. Raises `Inexpressible`."""
        declared = schema.get("properties")
        others = schema.get("additionalProperties", True)
        if not declared and not schema.get("required"):
            if declared is not None or others is False:
                return self.rules.mark("{}")
            low, high = sizes(schema, "minProperties", "maxProperties", self.rules.bounds.items)
            return self.rules.name("map", self.rules.map(self.schema(others), low, high))
        entries = self.entries(schema, lambda name, inner: sequence(self.rules.key(name), self.schema(inner)))
        body = sequence(self.rules.mark("{"), self._entries(entries, self.rules.mark(",")), self.rules.mark("}"))
        return self.rules.name("object", body)

    def row(self, schema: Mapping[str, Any]) -> Expression:
        """Returns arguments as a row of names and values; empty if there are none."""
        form = self.layout.arguments
        if isinstance(form, Tagged):

            def tagged(name: str, inner: Any) -> Expression:
                if form.key(name) != name:
                    raise Inexpressible("a name that tags cannot hold")
                return sequence(
                    literal(form.opener + name), self.tagged(inner), literal(form.behind(name)[_read_end(form) :])
                )

            entries = self.entries(schema, tagged)
            return sequence(*(entry if needed else optional(entry) for entry, needed in entries))

        def named(name: str, inner: Any) -> Expression:
            if keyword(name) != name:
                raise Inexpressible("a name that Python cannot hold")
            return sequence(literal(name + "="), self.schema(inner))

        return self._entries(self.entries(schema, named), literal(", "))

    def tagged(self, schema: Any) -> Expression:
        """Returns the text after a key: the value, and its closing tag as far as `_read_end`. Raises
        `Inexpressible`."""
        row = self.layout.arguments
        assert isinstance(row, Tagged)
        self.rules.step()
        schema = self.plain(schema)
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise Inexpressible("nothing fits")
        for word in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(word), Sequence):
                branches = schema[word]
                if word != "allOf":
                    kinds = [type_names(self.plain(branch)) or () for branch in branches]
                    branches = _apart(branches, kinds, row)
                return self.combined({**schema, word: branches}, word, self.tagged)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, Sequence):
            fitting = [value for value in values if has_type(value, schema.get("type"))]
            distinct = _apart(fitting, [[json_type(value)] for value in fitting], row)
            return self.either(lambda value: self._tagged_constant(value, row), distinct)
        names = type_names(schema)
        if names is None:
            names = list(JSON_TYPES) if row.typed else ["any"]
        distinct = _apart(names, [[name] for name in names], row)
        return self.either(lambda name: self._tagged_value(name, schema, row), distinct)

    def _tagged_value(self, kind: str, schema: Mapping[str, Any], row: Tagged) -> Expression:
        """Returns a value of one type."""
        if kind == "string":
            text = _raw_text(row).rule(self.rules, *sizes(schema, "minLength", "maxLength", self.rules.bounds.string))
            return sequence(literal(row.strings), text)
        shown = "number" if kind == "integer" else kind
        value = self.rules.value() if kind == "any" else self.typed(kind, schema)
        return sequence(literal(row.others.replace("{type}", shown)), value, literal(row.closer[: _read_end(row)]))

    def _tagged_constant(self, value: Any, row: Tagged) -> Expression:
        if not isinstance(value, str):
            shown = literal(row.others.replace("{type}", json_type(value)))
            return sequence(shown, self.constant(value), literal(row.closer[: _read_end(row)]))
        self.rules.step(1 + len(value) // CHARS_PER_STEP)
        text, closer = self._raw_text(row), row.closer[: _read_end(row)]
        state, checked = text.first, value + closer
        if (text.chars(text.first) | text.chars(text.anew)).isdisjoint(value):
            state, checked = text.anew if value else text.first, closer
        for char in checked[:-1]:
            state = text.next_state(state, char)
            if text.complete(state):
                raise Inexpressible("a string holds what ends it")
        if valid_text(value) != value:
            raise Inexpressible("a lone surrogate")
        return literal(row.strings + value + closer)

    def _raw_text(self, row: Tagged) -> TextWithout:
        if self._text is None:
            self._text = _raw_text(row)
        return self._text

    def entries(
        self, schema: Mapping[str, Any], build: Callable[[str, Any], Expression]
    ) -> list[tuple[Expression, bool]]:
        """Returns the declared properties in order, and whether each is required. Optional properties that cannot be
        expressed are omitted. Raises `Inexpressible` if a required one cannot."""
        required = schema.get("required") or ()
        properties = {**(schema.get("properties") or {})}
        for name in required:
            properties.setdefault(name, schema.get("additionalProperties", True))
        entries: list[tuple[Expression, bool]] = []
        for name, inner in properties.items():
            try:
                entry = build(name, inner)
            except Inexpressible:
                if name in required:
                    raise
                continue
            entries.append((self.rules.name("entry", entry), name in required))
        return entries

    def _entries(self, entries: list[tuple[Expression, bool]], comma: Expression) -> Expression:
        """Returns the entries in order, each optional one omissible, with commas between them."""
        anchor = next((index for index, (_, needed) in enumerate(entries) if needed), None)
        if anchor is not None:
            before = [optional(sequence(entry, comma)) for entry, _ in entries[:anchor]]
            after = [
                sequence(comma, entry) if needed else optional(sequence(comma, entry))
                for entry, needed in entries[anchor + 1 :]
            ]
            return sequence(*before, entries[anchor][0], *after)
        # Without a required entry any entry may come first, without a comma: one alternative for each.
        options: list[Expression] = []
        tail: Expression = ""
        for entry, _ in reversed(entries):
            options.append(sequence(entry, tail))
            tail = self.rules.name("more", sequence(optional(sequence(comma, entry)), tail))
        return optional(choice(reversed(options))) if options else ""


def _apart(options: Sequence[Any], kinds: Sequence[Sequence[str]], row: Tagged) -> Sequence[Any]:
    """Returns the options that a reader can tell apart. Without types in the tags, text that looks like a number or
    object cannot be a string, so strings are dropped if other types are allowed."""
    others = {name for names in kinds for name in names} - {"string", "null", "boolean"}
    if row.typed or not others:
        return options
    return [option for option, names in zip(options, kinds, strict=True) if "string" not in names] or options
