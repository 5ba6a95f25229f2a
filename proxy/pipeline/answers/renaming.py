"""The model's name in an answer that is sent unchanged. If a route renames the model, the client reads the name that it
asked for, and no other byte changes (R28.8).

A name is replaced only where the protocol has the model: in the outermost object (`ServerSide.model_in` is None), or in
the object under that key. Keys and values are found by brackets and strings, so a `"model"` in a text or in arguments
stays.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_KEY: Final = re.compile(rb"\s*:\s*")
_SPACE: Final = b" \t\r\n"
_MODEL: Final = b'"model"'


class Renaming:
    """Replaces the model in the bytes of one answer by `name`. `model_in`: see `ServerSide.model_in`."""

    def __init__(self, name: str, model_in: str | None) -> None:
        self._name = orjson.dumps(name)
        self._parent = None if model_in is None else orjson.dumps(model_in)
        self._known: tuple[bytes, bytes] | None = None

    def frames(self, data: bytes) -> bytes:
        """Returns complete frames of a stream with the new name. If the name is in the outermost object, the first
        frame shows the bytes to replace. Later frames are parsed only if a nested object has these bytes too: no text
        holds them unescaped."""
        if self._known is not None and data.count(self._known[0]) <= data.count(b"data:"):
            return data.replace(*self._known)
        if data.find(_MODEL) < 0 or (self._parent is not None and data.find(self._parent) < 0):
            return data
        changed = []
        for line in data.splitlines(keepends=True):
            found = find_model(line, self._parent) if line.startswith(b"data:") else None
            if found is not None and self._parent is None:
                begin, end = found
                member = line[begin:end]
                self._known = member, member.removesuffix(_value(line, found)) + self._name
            changed.append(line if found is None else self._replaced(line, found))
        return b"".join(changed)

    def whole(self, body: bytes) -> bytes:
        """Returns a whole answer, or its beginning, with the new name. Every protocol has the name in the outermost
        object."""
        found = find_model(body, None)
        return body if found is None else self._replaced(body, found)

    def _replaced(self, data: bytes, found: tuple[int, int]) -> bytes:
        end = found[1]
        value = _value(data, found)
        return data[: end - len(value)] + self._name + data[end:]


def _value(data: bytes, found: tuple[int, int]) -> bytes:
    """Returns the quoted name between the positions that `find_model` returned."""
    begin, end = found
    return data[begin + len(_MODEL) : end].lstrip(_SPACE + b":")


def find_model(data: bytes, parent: bytes | None) -> tuple[int, int] | None:
    """Returns the start of the key `"model"`, and the end of its value, a string. `parent`: the key of the object that
    has it, None for the outermost object. Returns None if there is no such key or value."""
    depth, wanted = 0, 1 if parent is None else 2
    under: bytes | None = None
    at = 0
    while (token := _TOKEN.search(data, at)) is not None:
        at = token.end()
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        elif (colon := _KEY.match(data, at)) is not None:
            if depth == 1:
                under = mark
            if mark == _MODEL and depth == wanted and (parent is None or under == parent):
                value = _TOKEN.match(data, colon.end())
                return None if value is None or value[0][:1] != b'"' else (token.start(), value.end())
            at = colon.end()
    return None
