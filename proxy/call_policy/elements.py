"""Arguments as elements named after them, which may be nested (MiniMax M3).

    PREFIX<city>OsloPREFIX</city>PREFIX<tags>PREFIX<item>aPREFIX</item>PREFIX<item>bPREFIX</item>PREFIX</tags>

Rules of this module:

1. The tool's schema decides whether an element is an array, an object or a scalar (`untyped.py`). Without a schema,
   elements that are all called `item` are an array, and others an object.
2. One pass. Depth and number are bounded (`MAX_DEPTH`, `MAX_VALUES`). Exceeding them, or an element that is not closed,
   raises `ValueError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ..repair.literals import MAX_VALUES, json_string
from ..scan._grammar import SPACE
from .untyped import ParameterTypes, Types, typed_value

MAX_DEPTH: Final = 100
"""Maximum nesting of arguments; deeper ones are malformed."""

_ITEM: Final = "item"
_TEXT: Final = "$text"
"""The key for text beside elements, so that it is not lost."""


@dataclass(slots=True)
class Element:
    """An element: its name, its text, and the elements in it."""

    name: str
    text: list[str] = field(default_factory=list)
    inner: list[Element] = field(default_factory=list)


def read_elements(text: str, prefix: str) -> list[Element]:
    """Returns the elements in a text. Raises `ValueError` if they are not properly nested."""
    top = Element("")
    open = [top]
    before, *tags = text.split(prefix)
    top.text.append(before)
    if len(tags) > 2 * MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES} values")
    for tag in tags:
        name, bracket, behind = tag.lstrip(SPACE).partition(">")
        if name[:1] != "<" or not bracket:
            raise ValueError("a tag in it is not closed")
        if name[1:2] == "/":
            if len(open) == 1 or open[-1].name != name[2:].strip():
                raise ValueError("its elements are not closed in the order in which they were opened")
            open.pop()
        else:
            element = Element(name[1:].strip())
            open[-1].inner.append(element)
            open.append(element)
            if len(open) > MAX_DEPTH:
                raise ValueError("its elements are nested too deep")
        open[-1].text.append(behind)
    if len(open) > 1:
        raise ValueError("an element in it is not closed")
    return top.inner


def element_value(element: Element, types: Types | None, schemas: ParameterTypes) -> str:
    """Returns an element as JSON text. It may be one of `types`; `schemas` describe its content."""
    text = "".join(element.text)
    if not element.inner:
        return text_value(text, types)
    inner = element.inner if not text.strip(SPACE) else [*element.inner, Element(_TEXT, [text])]
    either = not types or types >= {"array", "object"}
    if all(one.name == _ITEM for one in inner) if either else "array" in (types or ()):
        items = schemas.items()
        return f"[{','.join([element_value(one, *items) for one in inner])}]"
    return object_of(inner, schemas)


def object_of(elements: list[Element], schemas: ParameterTypes) -> str:
    """Returns elements as a JSON object. Several elements of one name become a list."""
    members: dict[str, list[str]] = {}
    for element in elements:
        value = element_value(element, schemas.of(element.name), schemas.inside(element.name))
        members.setdefault(element.name, []).append(value)
    texts = [
        f"{json_string(name)}:{values[0] if len(values) == 1 else '[' + ','.join(values) + ']'}"
        for name, values in members.items()
    ]
    return f"{{{','.join(texts)}}}"


def text_value(text: str, types: Types | None) -> str:
    """Returns an element without inner elements as JSON text."""
    if types and "string" not in types and not text.strip(SPACE):
        if "array" in types:
            return "[]"
        if "object" in types:
            return "{}"
    return typed_value(text, types)
