"""How the values of `toolwire.openai_types` are taken out of JSON: one field at a time, each with a check and a path
for its error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import orjson

from toolwire.errors import quote

T = TypeVar("T")


class DecodeError(ValueError):
    """A value is not what its class expects. `path` says where: `ChatRequest.tools[0].function.name`."""

    def __init__(self, path: str, expected: str, value: object) -> None:
        self.path = path
        super().__init__(f"{path}: expected {expected}, got {quote(value)}")


def encode(value: Wire) -> Any:
    """The JSON value of a wire object."""
    return value.encode()


def decode(cls: type[W], value: Any) -> W:
    """The wire object in a JSON value, or in JSON text (str or bytes). Raises `DecodeError`."""
    return cls.decode(value)


class Wire:
    """Base of all: JSON text is parsed first, then `_read` takes the value."""

    __slots__ = ()

    @classmethod
    def decode(cls, value: Any) -> Self:
        """The object in `value`: a JSON value, or JSON text. Raises `DecodeError`."""
        if isinstance(value, (str, bytes)):
            try:
                value = orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise DecodeError(cls.__name__, f"JSON text ({error})", value) from None
        return cls._read(value, cls.__name__)

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        raise NotImplementedError  # each wire object has its own fields

    def encode(self) -> Any:
        """The JSON value of this object."""
        raise NotImplementedError  # each wire object has its own fields


W = TypeVar("W", bound=Wire)


class Fields:
    """A JSON object whose fields are taken out one by one, each with a check of its type."""

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise DecodeError(path, "an object", value)
        self._value: dict[str, Any] = value
        self._path = path

    def opt(self, key: str, kind: type[T]) -> T | None:
        """A field that may be absent or null."""
        value = self._value.get(key)
        if value is None:
            return None
        wrong = not isinstance(value, (int, float) if kind is float else kind)
        if wrong or (isinstance(value, bool) and kind is not bool):
            raise DecodeError(f"{self._path}.{key}", _WORDS[kind], value)
        return value  # type: ignore[no-any-return]  # checked above

    def get(self, key: str, kind: type[T]) -> T:
        """A field that must be there."""
        value = self.opt(key, kind)
        if value is None:
            raise DecodeError(f"{self._path}.{key}", _WORDS[kind], None)
        return value

    def sub(self, key: str, cls: type[W]) -> W | None:
        """An object of class `cls`, or None."""
        value = self._value.get(key)
        return None if value is None else cls._read(value, f"{self._path}.{key}")

    def each(self, key: str, cls: type[W]) -> tuple[W, ...]:
        """An array of `cls`; absent is empty."""
        items = self.opt(key, list) or ()
        return tuple(cls._read(item, f"{self._path}.{key}[{i}]") for i, item in enumerate(items))

    def one_of(self, key: str, words: tuple[str, ...], default: str | None = None) -> Any:
        """One of a few words."""
        value = self._value.get(key)
        if value is None and default is not None:
            return default
        if value not in words:
            raise DecodeError(f"{self._path}.{key}", "one of " + ", ".join(map(repr, words)), value)
        return value

    def rest(self, known: Iterable[str]) -> dict[str, Any]:
        """What is left, nulls excepted."""
        return {key: value for key, value in self._value.items() if key not in known and value is not None}


_WORDS: Mapping[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "an array",
}


def present(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
