"""The patterns of a schema: which are enforced, and how much memory they take.

A pattern is enforced if the linear engine can compile it within its limits. Any other pattern (with look-around or back
references, too large, or not a regular expression) is dropped where that only makes the schema less strict. Elsewhere
(`strict` schemas, `not`, `patternProperties`, ...) the schema is refused.

Source: R3.4, R33.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import jsonschema_rs

from ..errors import quote
from ._schema_walk import Graph, Path, SchemaProblem, Uncheckable

MAX_PATTERNS: Final = 32
"""Maximum number of different patterns compiled for one schema: each takes up to 1.5 ms."""
MAX_PATTERN_CHARS: Final = 4096
MAX_PATTERN_BYTES: Final = 2 * 1024 * 1024
"""Maximum memory of one schema's compiled patterns, in bytes. It also limits how long one compilation holds the
interpreter lock: to about 15 ms."""

_PATTERN_SIZES: Final[Mapping[int, int]] = {1 << 11: 32_000, 1 << 13: 72_000, 1 << 15: 240_000, 1 << 16: 384_000}
"""The smallest `size_limit` under which the engine accepts a pattern, and the maximum bytes it then keeps. Measured as
growth of the process with patterns that just fit, compiled and matched (jsonschema-rs 0.61). The limit covers only one
of the engine's automata, and matching adds a cache of states."""
LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=max(_PATTERN_SIZES), dfa_size_limit=1 << 16)
_BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=1_000, size_limit=1 << 18)


def settle_patterns(graph: Graph, *, strict: bool, enforce: bool) -> tuple[int, int]:
    """Keeps the patterns that can be matched in linear time and little memory. The others are dropped where that only
    makes the schema less strict; without `enforce`, all such patterns are. Returns the bytes of the kept patterns, and
    the number of dropped ones. Raises `SchemaProblem` for a pattern that can be neither kept nor dropped."""
    if not graph.patterns:
        return 0, 0
    negated = graph.negated()
    bound: dict[str, Path] = {}  # patterns that cannot be dropped, and where
    free: dict[str, None] = {}
    for node in graph.nodes:
        keyed = node.schema.get("patternProperties")
        for key in keyed if isinstance(keyed, dict) else ():
            bound.setdefault(key, (*node.path, "patternProperties", key))
        if isinstance(own := node.schema.get("pattern"), str):
            if strict or id(node.schema) in negated:
                bound.setdefault(own, (*node.path, "pattern"))
            else:
                free.setdefault(own)
    total = _bytes_of_all(bound)
    fits = set(bound)
    tried = [pattern for pattern in free if pattern not in bound][: MAX_PATTERNS - len(bound)] if enforce else []
    for pattern in tried:
        size = _pattern_bytes(pattern)
        if size is not None and total + size <= MAX_PATTERN_BYTES:
            fits.add(pattern)
            total += size
    for node in graph.nodes:
        if isinstance(own := node.schema.get("pattern"), str) and own not in fits:
            node.drop_pattern()
    return total, len(free.keys() - fits)


def _bytes_of_all(patterns: Mapping[str, Path]) -> int:
    """Returns the bytes that these patterns take when compiled. Raises `SchemaProblem` if one cannot be enforced, or if
    they are too many or too large."""
    if len(patterns) > MAX_PATTERNS:
        raise Uncheckable(
            f"The schema has {len(patterns)} different patterns that must be enforced; the most is {MAX_PATTERNS}."
        )
    total = 0
    for pattern, where in patterns.items():
        size = _pattern_bytes(pattern)
        if size is None:
            raise _unusable(pattern, where)
        total += size
        if total > MAX_PATTERN_BYTES:  # before more of them are compiled
            raise Uncheckable(
                f"The patterns of the schema take more than {MAX_PATTERN_BYTES} bytes when compiled. Use fewer or"
                " smaller repetitions, or leave out patterns."
            )
    return total


def _unusable(pattern: str, where: Path) -> SchemaProblem:
    """Returns the problem of a pattern that must be enforced but cannot be compiled by the linear engine."""
    if len(pattern) > MAX_PATTERN_CHARS or not _matchable(pattern, _BACKTRACKING):
        return Uncheckable(f"{quote(pattern)} is not a regular expression, or too large a one.", where)
    return Uncheckable(
        f"The pattern {quote(pattern)} cannot be enforced here: look-around, back references and huge repetitions"
        " take unbounded time. Write it without them.",
        where,
    )


def _pattern_bytes(pattern: str) -> int | None:
    """Returns the maximum bytes of a compiled pattern, or None if the linear engine cannot compile it."""
    for limit, size in _PATTERN_SIZES.items():
        if _matchable(pattern, jsonschema_rs.RegexOptions(size_limit=limit, dfa_size_limit=1 << 16)):
            return size
    return None


def _matchable(pattern: str, options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions) -> bool:
    if len(pattern) > MAX_PATTERN_CHARS:
        return False
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options, offline=True)
    except ValueError:
        return False
    return True
