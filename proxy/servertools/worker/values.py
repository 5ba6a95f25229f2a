"""Encodes a module's declarations as JSON and back, exactly: with shared and circular parts, tuples, and the type names
of objects that are not JSON. So the gateway finds the same mistakes as in the original object.

The JSON is a flat list of nodes. A node refers to others by their index; the first one is the whole value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

MAX_NODES: Final = 20_000
MAX_TEXT: Final = 200_000
"""Maximum number of characters of all texts in a value."""


class NotDeclarable(ValueError):
    """A value that is too large, or an invalid list of nodes."""


def encode(value: Any) -> list[list[Any]]:
    """Returns the nodes of a value. Raises `NotDeclarable` if it is too large."""
    nodes: list[list[Any]] = []
    parts: list[Any] = []  # so that no `id` is given twice
    places: dict[int, int] = {}
    left = MAX_TEXT

    def place(part: Any) -> int:
        if (known := places.get(id(part))) is not None:
            return known
        if len(parts) >= MAX_NODES:
            raise NotDeclarable(f"TOOLS has more than {MAX_NODES} values.")
        places[id(part)] = len(parts)
        parts.append(part)
        return len(parts) - 1

    place(value)
    for part in parts:  # grows during the loop
        node = _node(part, place)
        left -= sum(len(item) for item in node if isinstance(item, str))
        if left < 0:
            raise NotDeclarable(f"TOOLS has more than {MAX_TEXT} characters.")
        nodes.append(node)
    return nodes


def _node(part: Any, place: Any) -> list[Any]:
    if part is None or part is True or part is False:
        return ["value", part]
    # The methods of the types themselves, because a subclass may override them.
    if isinstance(part, str):
        return ["text", str.__str__(part)]
    if isinstance(part, int):
        return ["int", format(int.__index__(part), "x")]
    if isinstance(part, float):
        number = float.__float__(part)
        return ["value", number] if math.isfinite(number) else ["float", float.__repr__(part)]
    if isinstance(part, list):
        return ["list", *map(place, list.__iter__(part))]
    if isinstance(part, tuple):
        return ["tuple", *map(place, tuple.__iter__(part))]
    if isinstance(part, dict):
        return ["dict", *(place(item) for pair in dict.items(part) for item in pair)]
    return ["other", type.__getattribute__(type(part), "__name__")]


def decode(nodes: Any) -> Any:
    """Returns the value of a list of nodes. Raises `NotDeclarable` if the list is invalid."""
    try:
        return _decode(nodes)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise NotDeclarable(f"no list of nodes: {error}") from None


def _decode(nodes: Sequence[Sequence[Any]]) -> Any:
    if len(nodes) > MAX_NODES:
        raise ValueError("too many")
    made: list[Any] = [_leaf(*node) if node[0] in _LEAVES else [] if node[0] == "list" else {} for node in nodes]
    _fill_tuples(nodes, made)
    for node, whole in zip(nodes, made, strict=True):
        if node[0] == "list":
            whole.extend(made[_index(item)] for item in node[1:])
        elif node[0] == "dict":
            items = [made[_index(item)] for item in node[1:]]
            whole.update(zip(items[::2], items[1::2], strict=True))
        elif node[0] not in _LEAVES and node[0] != "tuple":
            raise ValueError("no such node")
    return made[0]


def _fill_tuples(nodes: Sequence[Sequence[Any]], made: list[Any]) -> None:
    """Builds each tuple after the tuples it contains, in time linear in the references. A circle needs a list or a dict
    in it, which are filled later."""
    lacks: dict[int, int] = {}
    holders: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        if node[0] == "tuple":
            inner = [item for item in map(_index, node[1:]) if nodes[item][0] == "tuple"]
            lacks[index] = len(inner)
            for item in inner:
                holders.setdefault(item, []).append(index)
    ready = [index for index, lack in lacks.items() if not lack]
    for index in ready:  # grows during the loop
        made[index] = tuple([made[item] for item in nodes[index][1:]])
        for holder in holders.get(index, ()):
            lacks[holder] -= 1
            if not lacks[holder]:
                ready.append(holder)
    if len(ready) < len(lacks):
        raise ValueError("tuples in a circle")


_LEAVES: Final = ("value", "text", "int", "float", "other")


def _leaf(kind: str, value: Any) -> Any:
    if kind == "value":
        if value is not None and not isinstance(value, bool | float):
            raise ValueError("no such value")
        return value
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError("no text")
    if kind == "int":
        return int(value, 16)
    if kind == "float":
        return float(value)
    if kind == "other":
        shown = value.encode("utf-8", "replace").decode()[:100]
        return type(shown.replace("\0", "?"), (), {"__repr__": lambda self: f"<{shown}>"})()
    return value


def _index(item: Any) -> int:
    if type(item) is not int or item < 0:
        raise ValueError("no index")
    return item
