"""The types of items in an input. Later code need not search all items for a type that does not occur."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...known.past import KnownItems, fold_items

_NONE: Final = frozenset[Any]()


def types_in(items: Any) -> frozenset[Any]:
    """Returns the `type`s of all items of an input; an empty set if the input is a string."""
    if isinstance(items, KnownItems):
        return fold_items(items.past, "responses.types", items, _NONE, _more)[1]
    return frozenset([item.get("type") for item in items]) if isinstance(items, list) else _NONE


def _more(before: frozenset[Any], items: Sequence[Mapping[str, Any]], start: int, made: list[None]) -> frozenset[Any]:
    return before.union([item.get("type") for item in items])
