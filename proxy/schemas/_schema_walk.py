"""A JSON Schema as a graph, to find its references and the maximum cost of a check before compiling.

Rules:

1. Nothing is fetched. A reference that does not start in the document itself is a `SchemaProblem`, whatever its scheme.
2. An edge is *in place* (`allOf`, `$ref`, ...: the same value is checked again) or leads to a *child* of the value. A
   loop of in-place edges never ends and is a problem; a loop through children is a recursive type and is allowed.
3. Costs are upper bounds, in units of one schema checking one value (about 30 ns). `Graph.work` itself never takes
   longer than the budget allows, although the number it computes may be exponential.

Source: R3.4 and docs/adr/0003.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, Literal
from urllib.parse import unquote

import orjson

from ..errors import quote

Path = tuple[str | int, ...]

BUDGET: Final = 1_000_000
"""Maximum units of work for one check of arguments."""
PATTERN_UNITS: Final = 50
"""Units per character matched against a pattern: the linear engine needs up to 2.5 us in the worst case measured."""
MAX_FAN_OUT: Final = 10_000
"""Maximum number of schemas that check the same value."""
MAX_CHAIN: Final = 256
"""Maximum number of in-place edges (`$ref`, `allOf`, ...) in a row."""

_LAST: Final = 1 << 60
_STEP: Final = 20
"""Units that one step of the counting itself costs."""

Edge = Literal["in_place", "named", "members", "items", "none"]

EDGES: Final[Mapping[str, tuple[Edge, bool]]] = {
    **dict.fromkeys(("not", "if", "then", "else", "allOf", "anyOf", "oneOf"), ("in_place", False)),
    **dict.fromkeys(("dependentSchemas", "dependencies"), ("in_place", True)),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "propertyNames"), ("members", False)),
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"), ("items", False)),
    "properties": ("named", True),
    "patternProperties": ("members", True),
    "$defs": ("none", True),
    "definitions": ("none", True),
}
"""Keywords that contain schemas: the kind of edge, and whether the value maps names to schemas. Other values are one
schema or a list of schemas."""

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef"})
_NAMES: Final = frozenset({"$id", "$anchor", "$dynamicAnchor"})
_LISTS: Final = frozenset({"enum", "required", "type"})


class SchemaProblem(ValueError):
    """A problem in a schema. `path` leads to it from the root."""

    def __init__(self, message: str, path: Iterable[str | int] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path: Path = tuple(path)

    @property
    def where(self) -> str:
        """The path as the end of a `param`, such as `.properties.a.anyOf[1]`; empty for the root."""
        return path_text(self.path)


class Uncheckable(SchemaProblem):
    """The problem of a schema that may be valid but cannot be checked here, because of its patterns, its names, or the
    cost of a check."""


def path_text(path: Iterable[str | int]) -> str:
    """Returns `path` in the notation of `param`: `.name`, `[0]`, and `["any other name"]`."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" if _plain(step) else f"[{quote(step)}]" for step in path
    )


def _plain(step: str) -> bool:
    return bool(step) and len(step) <= 64 and step.isascii() and step.replace("$", "_").replace("-", "_").isidentifier()


def pointed(value: Any, pointer: str) -> tuple[Any, Path]:
    """Returns the part of `value` to which a JSON Pointer such as `/$defs/a` leads, and its path. Raises
    `LookupError`."""
    path: list[str | int] = []
    for token in pointer.split("/")[1:]:
        step: str | int = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and token.isdecimal() and len(token) < 9:
            step = int(token)
        elif not isinstance(value, Mapping):
            raise LookupError(token)
        value = value[step]
        path.append(step)
    return value, tuple(path)


@dataclass(slots=True, eq=False)
class SchemaNode:
    """One schema of the document. Edges lead to other nodes: `named` are children by property name, `members` apply to
    every property, `items` to every item. `keys` is the number of patterns that every key is matched against."""

    path: Path
    schema: dict[str, Any]
    resource: dict[str, Any]
    in_place: list[SchemaNode] = field(default_factory=list)
    named: dict[str, SchemaNode] = field(default_factory=dict)
    members: list[SchemaNode] = field(default_factory=list)
    items: list[SchemaNode] = field(default_factory=list)
    cost: int = 1
    pattern: bool = False
    keys: int = 0
    order: int = -1
    """Position in topological order: in-place edges lead to larger numbers."""

    def drop_pattern(self) -> None:
        """Removes the pattern from the schema."""
        del self.schema["pattern"]
        self.pattern = False

    def children(self) -> Iterator[SchemaNode]:
        """Yields the targets of edges that lead into the value."""
        yield from self.named.values()
        yield from self.members
        yield from self.items


Entries = dict[int, tuple[SchemaNode, int]]
"""Schemas that check one value, by identity, each with the number of paths that lead to it."""


class Graph:
    """The graph of `schema`, which must be private JSON: no object occurs twice in it, and its depth is limited.

    Raises `SchemaProblem` for a reference out of the document or to nothing, a duplicate name, an endless loop, more
    schemas than `most`, or a fan-out that no check could afford.
    """

    def __init__(self, schema: dict[str, Any], *, most: int) -> None:
        self._most = most
        self._nodes: dict[int, SchemaNode] = {}
        self._ids: dict[str, dict[str, Any]] = {}
        self._anchors: dict[str, dict[str, Any]] = {}
        self._queue: deque[SchemaNode] = deque()
        self._refs: list[tuple[SchemaNode, str, str]] = []
        self._document = schema
        root_id = schema.get("$id")
        if isinstance(root_id, str) and root_id:
            self._ids[root_id.rstrip("#")] = schema
        self.root = self._node(schema, (), schema)
        self._expand()
        while self._refs:
            refs, self._refs = self._refs, []
            for node, keyword, ref in refs:
                node.in_place.append(self._target(node, keyword, ref))
            self._expand()
        self.patterns = sorted({p for node in self._nodes.values() for p in _patterns(node.schema)})
        self._check_loops()
        self._check_fan_out()
        self.paths = self._count_paths()

    def __len__(self) -> int:
        """The number of subschemas."""
        return len(self._nodes)

    @property
    def properties(self) -> int:
        """The number of properties defined at all levels."""
        return sum(
            len(node.schema["properties"]) for node in self.nodes if isinstance(node.schema.get("properties"), dict)
        )

    @property
    def nodes(self) -> Iterable[SchemaNode]:
        """All schemas, in document order."""
        return self._nodes.values()

    # --- building ---------------------------------------------------------------------------------------------------

    def _node(self, schema: dict[str, Any], path: Path, resource: dict[str, Any]) -> SchemaNode:
        node = self._nodes.get(id(schema))
        if node is None:
            if len(self._nodes) >= self._most:
                raise SchemaProblem(f"The schema holds more than {self._most} subschemas. Split the tool.")
            node = self._nodes[id(schema)] = SchemaNode(path, schema, resource)
            self._queue.append(node)
        return node

    def _expand(self) -> None:
        while self._queue:
            self._visit(self._queue.popleft())

    def _visit(self, node: SchemaNode) -> None:
        if not _NAMES.isdisjoint(node.schema):
            self._names(node)
        for keyword, value in node.schema.items():
            if (rule := EDGES.get(keyword)) is not None:
                edge, mapped = rule
                found: Iterable[tuple[Any, Any]] = ()
                if isinstance(value, dict) and not mapped:
                    self._link(node, edge, None, value, (keyword,))
                elif isinstance(value, dict):
                    found = value.items()
                elif isinstance(value, list) and not mapped:
                    found = enumerate(value)
                for key, item in found:
                    if isinstance(item, dict):
                        self._link(node, edge, key, item, (keyword, key))
                if keyword == "patternProperties" and isinstance(value, dict):
                    node.keys = len(value)
            elif keyword in _REFERENCES and isinstance(value, str):
                self._refs.append((node, keyword, value))
            elif keyword == "pattern":
                node.pattern = isinstance(value, str)
            elif keyword in _LISTS and isinstance(value, list):
                node.cost += len(value) // 4

    def _link(self, node: SchemaNode, edge: Edge, key: Any, schema: dict[str, Any], steps: Path) -> None:
        child = self._node(schema, node.path + steps, node.resource)
        match edge:
            case "named":
                node.named[key] = child
            case "in_place":
                node.in_place.append(child)
            case "members":
                node.members.append(child)
            case "items":
                node.items.append(child)
            case "none":
                pass

    def _names(self, node: SchemaNode) -> None:
        """Registers the names of `node`. Names must be unique, so that a reference has one meaning."""
        own = node.schema.get("$id")
        if isinstance(own, str) and own and node.schema is not self._document:
            if own.startswith("#"):  # Draft 7's form of an anchor.
                self._register(self._anchors, own[1:], node, "$id")
            elif not _is_plain_id(own):
                raise Uncheckable(
                    f"`$id` of a subschema must be a plain name, not {quote(own)}: nothing outside the schema is known.",
                    (*node.path, "$id"),
                )
            else:
                node.resource = node.schema
                self._register(self._ids, own, node, "$id")
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.schema.get(keyword), str):
                self._register(self._anchors, name, node, keyword)

    def _register(self, names: dict[str, dict[str, Any]], name: str, node: SchemaNode, keyword: str) -> None:
        if names.setdefault(name, node.schema) is not node.schema:
            raise Uncheckable(f"{keyword} {quote(name)} occurs twice.", (*node.path, keyword))

    def _target(self, node: SchemaNode, keyword: str, ref: str) -> SchemaNode:
        where = (*node.path, keyword)
        base, _, fragment = ref.partition("#")
        resource = self._ids.get(base) if base else node.resource
        if resource is None or (base and not _is_plain_id(base)):
            raise SchemaProblem(
                f"{keyword} {quote(ref)} leads out of the schema. Nothing is fetched: put the definition under `$defs` and refer"
                " to it as `#/$defs/<name>`.",
                where,
            )
        fragment = unquote(fragment)
        if not fragment:
            return self._node(resource, (), resource)
        if not fragment.startswith("/"):
            anchored = self._anchors.get(fragment)
            if anchored is None:
                raise Uncheckable(f"{keyword} {quote(ref)}: no schema has this anchor.", where)
            return self._node(anchored, (), resource)
        try:
            value, path = pointed(resource, fragment)
        except LookupError:
            raise SchemaProblem(f"{keyword} {quote(ref)} points to nothing in the schema.", where) from None
        if isinstance(value, bool):
            return SchemaNode(path, {}, resource, order=_LAST)
        if not isinstance(value, dict):
            raise SchemaProblem(f"{keyword} {quote(ref)} points to something that is no schema.", where)
        return self._node(value, path, resource)

    # --- the cost of a check ----------------------------------------------------------------------------------------

    def _check_loops(self) -> None:
        """Numbers the nodes so that in-place edges lead to larger numbers. Raises `Uncheckable` for a loop of such
        edges."""
        number = len(self._nodes)
        entered: set[int] = set()
        chain: dict[int, int] = {}
        for start in self.nodes:
            if start.order >= 0:
                continue
            stack = [(start, iter(start.in_place))]
            entered.add(id(start))
            while stack:
                node, edges = stack[-1]
                for target in edges:
                    if target.order >= 0:
                        continue
                    if id(target) in entered:
                        raise Uncheckable(
                            "The references form an endless loop: this schema leads back to itself without looking at a property"
                            " or an item.",
                            target.path,
                        )
                    entered.add(id(target))
                    stack.append((target, iter(target.in_place)))
                    break
                else:
                    number -= 1
                    node.order = number
                    chain[id(node)] = 1 + max((chain.get(id(t), 0) for t in node.in_place), default=0)
                    if chain[id(node)] > MAX_CHAIN:
                        raise Uncheckable(f"More than {MAX_CHAIN} references or combinations in a row.", node.path)
                    stack.pop()

    def negated(self) -> set[int]:
        """Returns the identities of schemas whose failure may make a value valid: those under `not`, `if`, `oneOf`,
        `contains`."""
        found: set[int] = set()
        stack: list[SchemaNode] = []
        for node in self.nodes:
            schema = node.schema
            subs = [schema.get("not"), schema.get("if"), schema.get("contains"), *_list(schema.get("oneOf"))]
            stack += (self._nodes[id(sub)] for sub in subs if id(sub) in self._nodes)
        while stack:
            node = stack.pop()
            if id(node.schema) not in found:
                found.add(id(node.schema))
                stack += (*node.in_place, *node.children())
        return found

    def _check_fan_out(self) -> None:
        weight: dict[int, int] = {}
        for node in sorted(self.nodes, key=lambda n: -n.order):
            weight[id(node)] = 1 + sum(weight.get(id(target), 1) for target in node.in_place)
            if weight[id(node)] > MAX_FAN_OUT:
                raise Uncheckable(
                    f"The combinations unfold to more than {MAX_FAN_OUT} schemas for one value. Simplify them.",
                    node.path,
                )

    def _count_paths(self) -> int | None:
        """Returns the size of the schema with all references expanded, or None if that is infinite or beyond the
        budget."""
        size: dict[int, int] = {}
        open_: set[int] = set()
        stack: list[tuple[SchemaNode, bool]] = [(self.root, False)]
        while stack:
            node, done = stack.pop()
            if done:
                open_.discard(id(node))
                total = node.cost
                for target in (*node.in_place, *node.children()):
                    total += size.get(id(target), 1)
                if total > BUDGET:
                    return None
                size[id(node)] = total
            elif id(node) in open_:
                return None
            elif id(node) not in size:
                open_.add(id(node))
                stack.append((node, True))
                stack += ((target, False) for target in (*node.in_place, *node.children()) if id(target) not in size)
        return size[id(self.root)]

    def work(self, value: Any, *, values: int, chars: int, budget: int = BUDGET) -> bool:
        """Returns True if checking `value` costs at most `budget` units. The value was parsed from JSON text of `chars`
        characters with at most `values` values."""
        if self.paths is not None and self.paths * values + PATTERN_UNITS * len(self.patterns) * chars <= budget:
            return True
        return self._exact(value, budget)

    def _exact(self, value: Any, budget: int) -> bool:
        """Counts how many schemas check each part of `value`, over all paths. Returns True if the budget suffices."""
        stack: list[tuple[Any, Entries]] = [(value, {id(self.root): (self.root, 1)})]
        while stack:
            value, entries = stack.pop()
            looking = _closure(entries)
            chars = len(value) if isinstance(value, str) else 0
            keys = sum(map(len, value)) if isinstance(value, dict) else 0
            for node, times in looking:
                budget -= times * (node.cost + PATTERN_UNITS * (chars * node.pattern + keys * node.keys))
            budget -= _STEP * (1 + len(looking))
            if isinstance(value, dict):
                budget -= _STEP * len(value) * (1 + len(looking))
                if budget >= 0:
                    stack += ((item, _entries(looking, partial(_member, key=key))) for key, item in value.items())
            elif isinstance(value, list) and (below := _entries(looking, _items)):
                budget -= _STEP * len(value)
                if budget >= 0:
                    stack += ((item, below) for item in value)
            if budget < 0:
                return False
        return True


def _items(node: SchemaNode) -> Iterable[SchemaNode]:
    return node.items


def _member(node: SchemaNode, key: str) -> Iterable[SchemaNode]:
    named = node.named.get(key)
    return node.members if named is None else (named, *node.members)


def _entries(looking: list[tuple[SchemaNode, int]], below: Callable[[SchemaNode], Iterable[SchemaNode]]) -> Entries:
    out: Entries = {}
    for node, times in looking:
        for child in below(node):
            known = out.get(id(child))
            out[id(child)] = (child, times if known is None else known[1] + times)
    return out


def _closure(entries: Entries) -> list[tuple[SchemaNode, int]]:
    """Returns `entries` and everything reachable from them in place, with multiplicities, in topological order."""
    times = {key: count for key, (_, count) in entries.items()}
    heap = [(node.order, key, node) for key, (node, _) in entries.items()]
    heap.sort(key=lambda item: item[:2])
    out: list[tuple[SchemaNode, int]] = []
    while heap:
        _, key, node = heappop(heap)
        out.append((node, times[key]))
        for target in node.in_place:
            if id(target) not in times:
                times[id(target)] = 0
                heappush(heap, (target.order, id(target), target))
            times[id(target)] += times[key]
    return out


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_plain_id(name: str) -> bool:
    """Returns True for a name without scheme, authority or directories, such as `T0`."""
    return not set(name) & set(":/\\?#% ") and name not in (".", "..")


def _patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern
    if isinstance(mapped := schema.get("patternProperties"), dict):
        yield from mapped


def depth_of(value: Any) -> int:
    """Returns the nesting depth of objects and arrays in `value`; 0 for a scalar."""
    depth = 0
    level: list[Any] = [value]
    while level := [v for v in level if isinstance(v, (dict, list))]:
        depth += 1
        level = [child for v in level for child in (v.values() if isinstance(v, dict) else v)]
    return depth


def json_text(value: object) -> bytes:
    """Returns `value` as compact JSON; mappings of any class are objects. Raises `TypeError`."""
    return orjson.dumps(value, default=_as_dict)


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON type")


def private_copy(schema: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Returns the JSON text of `schema` and a copy of it. Raises `SchemaProblem` if it cannot be written as JSON."""
    try:
        text = json_text(schema)
        copy: dict[str, Any] = orjson.loads(text)
    except (TypeError, ValueError) as error:
        if "ecursion" in str(error):
            raise SchemaProblem("The schema is nested without end, or more than 250 levels deep.") from None
        raise SchemaProblem(f"The schema cannot be written as JSON: {error}.") from None
    return text, copy
