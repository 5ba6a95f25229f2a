"""Compiles the schemas that clients send, finds what is wrong with them, and checks arguments against them.

Rules:

1. Nothing outside the schema is ever read: no reference is followed out of the document, and the engine has a retriever
   that refuses.
2. Every step is limited in advance: size, depth and number before compiling, the cost of a check before checking. The
   engine holds the interpreter lock, so these limits are also limits on how long other requests wait.
3. The memory of compiled schemas is limited and counted too: a pattern of 20 characters can take 400 kB. Patterns
   beyond the limits are dropped where that only makes the schema less strict; `strict` schemas are refused.
4. An error names the position: `SchemaProblem.path` from the schema's root, and the path in the arguments for a check.

Formats are not asserted, and neither are some patterns (`toolwire.schemas.patterns`). Source: R3.4, R3.6, R3.9, R3.10,
R33.1; the choice of the engine: docs/adr/0003.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote as percent_encoded

import jsonschema_rs
import orjson

from ..config import LimitsConfig
from ..errors import quote
from ..support.cache import BudgetedCache, CacheBudget, chars_of, weight_of
from ._schema_walk import (
    BUDGET,
    Graph,
    SchemaNode,
    SchemaProblem,
    Uncheckable,
    depth_of,
    json_text,
    path_text,
    private_copy,
)
from .patterns import LINEAR, settle_patterns

__all__ = [
    "NotCompiled",
    "SchemaCache",
    "SchemaProblem",
    "ToolSchema",
    "ToolSchemas",
    "Uncheckable",
    "check_tool_schema",
    "compile_schema",
    "validate_tool_name",
    "validate_tool_schema",
]

STRICT_PROPERTIES: Final = 100
STRICT_LEVELS: Final = 5
FURTHER_CHECKS: Final = 20
MOST_FLAWS: Final = 1000
"""Limits for converting arguments that do not fit: `FURTHER_CHECKS` times the cost of one check, and `MOST_FLAWS`
flaws."""

_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_DRAFT_2020: Final = "https://json-schema.org/draft/2020-12/schema"
_DIALECT: Final = re.compile(r"https?://json-schema\.org/(?:(?P<early>draft-0[467])|draft/20(?:19-09|20-12))/schema#?")
"""The two dialects (R3.4). Tool servers still name older drafts: each is read as the nearer of the two."""
_SUBSCHEMAS_PER_PROPERTY: Final = 2
_VALUES_PER_PROPERTY: Final = 20
_ROOT: Final = "urn:toolwire:tool"
"""The URI of a tool's schema in `$ref`s of its separately compiled parts."""
_SUBSCHEMA_BYTES: Final = 2_500
_COMPILED_VALUE_BYTES: Final = 300
_TEXT_COPIES: Final = 4
"""Maximum memory of a compiled schema, measured as growth of the process: `_SUBSCHEMA_BYTES` per subschema,
`_COMPILED_VALUE_BYTES` per JSON value, and `_TEXT_COPIES` times the bytes of its text."""
_FIXED_BYTES: Final = 4_096
_PRIVATE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the cache for separately compiled parts of schemas, where no application's cache is given."""
_TYPES: Final = "array, boolean, integer, null, number, object, string"
_NAME: Final = re.compile(r"[a-zA-Z0-9_]+")
_NAME_HYPHEN: Final = re.compile(r"[a-zA-Z0-9_-]+")
_NAME_RELAXED: Final = re.compile(r"[a-zA-Z0-9_./:-]+")


def validate_tool_name(name: object, *, allow_hyphen: bool = True, relaxed: bool = False, longest: int = 64) -> bool:
    """Returns True if `name` may be a tool's name: 1 to `longest` letters, digits and `_`; with `allow_hyphen` also
    `-`, with `relaxed` also `-`, `.`, `/` and `:` (R3.2, C3)."""
    pattern = _NAME_RELAXED if relaxed else _NAME_HYPHEN if allow_hyphen else _NAME
    return isinstance(name, str) and 1 <= len(name) <= longest and pattern.fullmatch(name) is not None


def validate_tool_schema(schema: object) -> str | None:
    """Returns what is wrong with `schema` as a tool's `parameters` under the default limits, or None (R3.10)."""
    try:
        check_tool_schema(schema)
    except SchemaProblem as problem:
        return f"At `{problem.where.removeprefix('.')}`: {problem.message}" if problem.path else problem.message
    return None


def check_tool_schema(schema: object, limits: LimitsConfig | None = None, *, strict: bool = False) -> None:
    """Raises `SchemaProblem` if `schema` cannot be a tool's `parameters` (R3.4); with `strict` also if it breaks a rule
    of R3.6."""
    if schema is not None and not isinstance(schema, Mapping):
        raise SchemaProblem(f"The schema must be a JSON object, not {quote(schema)}.")
    compile_schema(schema, limits, strict=strict)


def compile_schema(
    parameters: Mapping[str, Any] | None,
    limits: LimitsConfig | None = None,
    *,
    strict: bool = False,
    optional: bool = False,
    patterns: bool = True,
    parts: BudgetedCache[jsonschema_rs.Validator] | None = None,
) -> ToolSchema:
    """Returns the checker for a tool's `parameters`; None means "no parameters". Raises as `check_tool_schema`.

    With `optional`, a strict schema need not require every property, as at Anthropic. Without `patterns`, those that
    can be dropped are not enforced. `parts` caches what `ToolSchema.flaws` compiles.
    Takes up to 40 ms for a schema at the default limits and 0.1 ms for an ordinary one, so keep the result
    (`SchemaCache`).
    """
    if parameters is None:
        return ToolSchema({"type": "object"}, LimitsConfig(), strict=False, parts=parts)
    return ToolSchema(
        parameters, limits or LimitsConfig(), strict=strict, optional=optional, patterns=patterns, parts=parts
    )


Path = tuple[str | int, ...]


class Flaw(NamedTuple):
    """A value that does not fit: its path in the value, the path in the schema, and the keyword there that it
    violates."""

    path: Path
    where: Path
    keyword: str


class ToolSchema:
    """A compiled schema. It may be shared by concurrent requests.

    `weight` is the maximum of its memory in bytes, `pattern_bytes` the part for its patterns, `dropped` the number of
    patterns that are not enforced.
    """

    __slots__ = (
        "__weakref__",
        "_dialect",
        "_engine",
        "_graph",
        "_name",
        "_names_parts",
        "_parts",
        "_schema",
        "dropped",
        "pattern_bytes",
        "weight",
    )

    def __init__(
        self,
        parameters: Mapping[str, Any],
        limits: LimitsConfig,
        *,
        strict: bool,
        optional: bool = False,
        patterns: bool = True,
        parts: BudgetedCache[jsonschema_rs.Validator] | None = None,
    ) -> None:
        if chars_of(parameters, 4 * limits.schema_bytes) > 4 * limits.schema_bytes:  # `chars_of` overestimates up to 4x
            raise SchemaProblem(f"The schema is far too large; the most is {limits.schema_bytes} bytes.")
        text, schema = private_copy(parameters)
        if len(text) > limits.schema_bytes:
            raise SchemaProblem(f"The schema has {len(text)} bytes; the most is {limits.schema_bytes}.")
        values = text.count(b",") + text.count(b"[") + text.count(b"{")
        if values > limits.schema_properties * _VALUES_PER_PROPERTY:
            raise SchemaProblem(
                f"The schema holds about {values} values; the most is {limits.schema_properties * _VALUES_PER_PROPERTY}."
            )
        if (depth := depth_of(schema)) > limits.schema_depth:
            raise SchemaProblem(f"The schema is nested {depth} deep; the most is {limits.schema_depth}.")
        kind = schema.setdefault("type", "object")
        if kind != "object":
            raise SchemaProblem(
                f'The root of a tool\'s schema must have the type "object", not {quote(kind)}.', ("type",)
            )
        dialect = _dialect(schema)
        self._graph = Graph(schema, most=limits.schema_properties * _SUBSCHEMAS_PER_PROPERTY)
        if (properties := self._graph.properties) > limits.schema_properties:
            raise SchemaProblem(f"The schema has {properties} properties; the most is {limits.schema_properties}.")
        _check_against_meta_schema(schema)
        if strict:
            _check_strict(self._graph, optional=optional)
        self.pattern_bytes, self.dropped = settle_patterns(self._graph, strict=strict, enforce=patterns)
        self._engine = _compile(schema, dialect)
        self._schema = schema
        self._dialect = dialect
        self._names_parts = b'"$id"' in text
        self._parts = parts
        self._name = object()
        size = _SUBSCHEMA_BYTES * len(self._graph) + _COMPILED_VALUE_BYTES * values + _TEXT_COPIES * len(text)
        self.weight = _FIXED_BYTES + size + self.pattern_bytes

    def check(self, arguments: str) -> str | None:
        """Returns why the JSON text `arguments` does not fit, with the path of the first flaw, or None if it fits.

        Arguments that would take too long to check do not fit.
        """
        try:
            value = _loads(arguments)
        except ValueError as error:
            return f"The arguments are not valid JSON: {error}."
        values = 1 + arguments.count(",") + arguments.count("[") + arguments.count("{")
        if not self._graph.work(value, values=values, chars=len(arguments)):
            return "The arguments are too large or too deeply nested to be checked against this schema."
        try:
            self._engine.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _shorten(f"`${path_text(error.instance_path)}`: {error.message}.")
        except ValueError as error:  # The engine follows at most 255 levels.
            return f"The arguments cannot be checked: {error}."
        return None

    def can_coerce(self, arguments: str, value: Any) -> bool:
        """Returns True if checking `arguments` (with this value) `FURTHER_CHECKS` times is within the budget. False if
        parts of the schema have names of their own (`$id`), because `flaws` could not locate them."""
        values = 1 + arguments.count(",") + arguments.count("[") + arguments.count("{")
        return not self._names_parts and self._graph.work(
            value, values=values, chars=len(arguments), budget=BUDGET // FURTHER_CHECKS
        )

    def flaws(self, value: Any, where: Path = ()) -> list[Flaw]:
        """Returns the flaws of a value under the part of the schema at `where`, at most the first `MOST_FLAWS`."""
        errors = self._part(where).iter_errors(value)
        return [
            Flaw(tuple(error.instance_path), tuple(error.schema_path[:-1]), str(error.schema_path[-1]))
            for error in islice(errors, MOST_FLAWS)
        ]

    def at(self, where: Path) -> Any:
        """Returns the part of the schema at this path."""
        part: Any = self._schema
        for step in where:
            part = part[step]
        return part

    def _part(self, where: Path) -> jsonschema_rs.Validator:
        if not where:
            return self._engine
        if self._parts is None:
            self._parts = CacheBudget(_PRIVATE_BYTES).cache("schema_parts")
        found = self._parts.get((self._name, where))
        if found is None:
            draft = (
                jsonschema_rs.Draft7 if self._dialect is jsonschema_rs.Draft7Validator else jsonschema_rs.Draft202012
            )
            registry = jsonschema_rs.Registry([(_ROOT, self._schema)], draft=draft)
            steps = (str(step).replace("~", "~0").replace("/", "~1") for step in where)
            part = {"$ref": f"{_ROOT}#/{'/'.join(percent_encoded(step, safe='~') for step in steps)}"}
            found = self._dialect(part, validate_formats=False, pattern_options=LINEAR, registry=registry)
            self._parts.put((self._name, where), found, self.weight)  # it may be as large as the whole
        return found


MAX_PATTERN_BYTES: Final = 4 * 1024 * 1024
"""Maximum memory of the compiled patterns of one request's tools, in bytes."""


class ToolSchemas(dict[str, ToolSchema]):
    """Compiled schemas by tool name. Validation stores those of a request in `exchange.state[ToolSchemas]`.

    Their compiled patterns take at most `MAX_PATTERN_BYTES`. Beyond that, the patterns of tools that are not strict are
    dropped.
    """

    _pattern_bytes = 0
    _is_full = False

    def put(self, name: str, get: Callable[..., ToolSchema], *, strict: bool) -> ToolSchema:
        """Adds the schema that `get` compiles, without its patterns if they do not fit. Raises `SchemaProblem` if they
        must not be dropped."""
        schema = get(patterns=strict or not self._is_full)
        left = MAX_PATTERN_BYTES - self._pattern_bytes
        if schema.pattern_bytes > left and not (strict or self._is_full):
            self._is_full = True
            schema = get(patterns=False)
        if schema.pattern_bytes > left:
            raise SchemaProblem(
                f"The patterns of this and earlier tools take more than {MAX_PATTERN_BYTES} bytes when compiled. Use"
                " fewer patterns or smaller repetitions, or offer fewer strict tools."
            )
        self._pattern_bytes += schema.pattern_bytes
        self[name] = schema
        return schema

    @property
    def weight(self) -> int:
        """The maximum memory of all these schemas, in bytes."""
        return weight_of(dict.fromkeys(self)) + sum(schema.weight for schema in self.values())

    def of(self, name: str, parameters: Mapping[str, Any] | None) -> ToolSchema:
        """Returns the checker for the tool of this name, compiled on first use. Raises `SchemaProblem`."""
        schema = self.get(name)
        if schema is None:
            schema = self[name] = compile_schema(parameters)
        return schema


# --- steps of compiling ---------------------------------------------------------------------------------------------


def _dialect(schema: dict[str, Any]) -> type[jsonschema_rs.Validator]:
    """Returns the validator class for the schema's dialect. Normalises `$schema`, and removes an `$id` that would
    change the base of references."""
    own_id = schema.get("$id")
    if isinstance(own_id, str) and set(own_id) & set(":/\\?#%"):
        del schema["$id"]
    named = schema.pop("$schema", _DRAFT_2020)
    found = _DIALECT.fullmatch(named) if isinstance(named, str) else None
    if found is None:
        raise SchemaProblem(
            f"`$schema` {quote(named)} is not known. Use {_DRAFT_2020} (the default) or {_DRAFT_7}#.", ("$schema",)
        )
    if found["early"]:
        schema["$schema"] = _DRAFT_7 + "#"
        return jsonschema_rs.Draft7Validator
    return jsonschema_rs.Draft202012Validator


def _check_against_meta_schema(schema: dict[str, Any]) -> None:
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        _reject(error, error.instance_path)
    except ValueError as error:
        raise SchemaProblem(f"The schema cannot be read: {error}.") from None


def _reject(error: jsonschema_rs.ValidationError, path: list[str | int]) -> NoReturn:
    if path and path[-1] == "type":
        raise SchemaProblem(f"{quote(error.instance)} is not a type. The types are {_TYPES}.", path) from None
    raise SchemaProblem(_shorten(f"The schema is not valid JSON Schema: {error.message}."), path) from None


def _compile(schema: dict[str, Any], dialect: type[jsonschema_rs.Validator]) -> jsonschema_rs.Validator:
    try:
        return dialect(schema, validate_formats=False, pattern_options=LINEAR, retriever=_refuse)
    except jsonschema_rs.ValidationError as error:
        _reject(error, error.instance_path)
    except ValueError as error:
        raise SchemaProblem(f"The schema cannot be compiled: {error}.") from None


def _refuse(uri: str) -> NoReturn:
    raise LookupError("nothing outside the schema is read")


def _check_strict(graph: Graph, *, optional: bool) -> None:
    """Checks the rules for `strict: true` (R3.6), outer objects first. Raises `SchemaProblem`."""
    for node in sorted(graph.nodes, key=lambda n: len(n.path)):
        if not _is_object(node):
            continue
        schema = node.schema
        required = schema.get("required") or ()
        for name in schema.get("properties") or ():
            if name not in required and not optional:
                raise SchemaProblem(
                    f"strict: every property must be listed in `required`; {quote(name)} is not."
                    " To make it optional, let its type include null.",
                    (*node.path, "required"),
                )
        if schema.get("additionalProperties") is not False:
            raise SchemaProblem(
                "strict: every object needs `additionalProperties: false`.", (*node.path, "additionalProperties")
            )
    if (total := graph.properties) > STRICT_PROPERTIES:
        raise SchemaProblem(f"strict: {total} properties in total; the most is {STRICT_PROPERTIES}.", ("properties",))
    _check_levels(graph)


def _is_object(node: SchemaNode) -> bool:
    kind = node.schema.get("type")
    return kind == "object" or "properties" in node.schema or (isinstance(kind, list) and "object" in kind)


def _check_levels(graph: Graph) -> None:
    """Checks the nesting of objects, the root being the first level. References are not followed, because recursion is
    allowed."""
    by_path = {node.path: node for node in graph.nodes}
    for path in by_path:
        prefixes = (path[:length] for length in range(len(path) + 1))
        levels = sum(1 for prefix in prefixes if prefix in by_path and _is_object(by_path[prefix]))
        if levels - (path[:1] in (("$defs",), ("definitions",))) > STRICT_LEVELS:
            raise SchemaProblem(f"strict: {levels} levels of objects; the most is {STRICT_LEVELS}.", path)


def _shorten(text: str) -> str:
    return text if len(text) <= 400 else text[:399] + "…"


# --- caches ---------------------------------------------------------------------------------------------------------


class NotCompiled(Exception):
    """The schema is not cached, and compiling it may take milliseconds."""


class SchemaCache:
    """Compiled schemas by the hash of their JSON text (R3.9). `compiles` counts the misses. Problems are cached too, so
    that each schema is compiled once. Threads may share it."""

    def __init__(self, budget: CacheBudget) -> None:
        self.compiles = 0
        self._known: BudgetedCache[ToolSchema | SchemaProblem] = budget.cache("schemas")
        self._parts: BudgetedCache[jsonschema_rs.Validator] = budget.cache("schema_parts")

    def __len__(self) -> int:
        return len(self._known)

    def get(
        self,
        parameters: Mapping[str, Any] | None,
        limits: LimitsConfig | None = None,
        *,
        strict: bool = False,
        optional: bool = False,
        patterns: bool = True,
        compile_new: bool = True,
    ) -> ToolSchema:
        """Returns the checker for `parameters`, as from `compile_schema`. `limits` must be the same in all calls.

        Raises `SchemaProblem`, and `NotCompiled` if it is not cached and `compile_new` is False.
        """
        try:
            text = json_text(parameters)
        except TypeError as error:
            raise SchemaProblem(f"The schema cannot be written as JSON: {error}.") from None
        kind = (b"strict" if strict else b"") + (b"opt" if optional else b"") + (b"" if patterns else b"laxer")
        key = blake2b(text, digest_size=16, salt=kind).digest()
        known = self._known.get(key)
        if known is None:
            if not compile_new:
                raise NotCompiled
            self.compiles += 1
            try:
                known = compile_schema(
                    parameters, limits, strict=strict, optional=optional, patterns=patterns, parts=self._parts
                )
                weight = known.weight
            except SchemaProblem as problem:
                known = type(problem)(problem.message, problem.path)  # without the traceback, which holds the schema
                weight = weight_of(known.message, known.path)
            self._known.put(key, known, weight)
        if isinstance(known, SchemaProblem):
            raise type(known)(known.message, known.path)
        return known


_BEYOND: Final = re.compile(r"[0-9][eE]\+?[0-9]{3}|(?<![0-9])[0-9]{309}")
"""A number that may exceed the range of a float."""


def _loads(text: str) -> Any:
    """Returns the value of a JSON text. A number beyond the range of a float becomes the largest float. Raises
    `ValueError`."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if _BEYOND.search(text) is None:
            raise
    try:
        return json.loads(text, parse_float=_bounded, parse_int=_whole, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _bounded(text: str) -> float:
    return max(-sys.float_info.max, min(sys.float_info.max, float(text)))


def _whole(text: str) -> float:
    return int(text) if len(text) < 309 else _bounded(text)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
