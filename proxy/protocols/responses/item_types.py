"""Types of the items of an input, so that who looks for one of them need not look at every item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...known.past import KnownItems, fold

_NONE: Final = frozenset[Any]()


def types_in(items: Any) -> frozenset[Any]:
    """The `type` of each item of an input; none of an input that is a text."""
    if isinstance(items, KnownItems):
        return fold(items.past, "responses.types", items, _NONE, _more)[1]
    return frozenset([item.get("type") for item in items]) if isinstance(items, list) else _NONE


def _more(before: frozenset[Any], items: Sequence[Mapping[str, Any]], start: int, made: list[None]) -> frozenset[Any]:
    return before.union([item.get("type") for item in items])
