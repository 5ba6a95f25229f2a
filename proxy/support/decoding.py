"""Reads the wire objects of `toolwire.openai_types` from JSON, field by field. Each field is type-checked; errors name
its path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import orjson

from ..errors import quote

T = TypeVar("T")


class DecodeError(ValueError):
    """A JSON value has the wrong type. `path` says where, for example `ChatRequest.tools[0].function.name`."""

    def __init__(self, path: str, expected: str, value: object) -> None:
        self.path = path
        super().__init__(f"{path}: expected {expected}, got {quote(value)}")


def encode(value: Wire) -> Any:
    """Returns the JSON value of a wire object."""
    return value.encode()


def decode(cls: type[W], value: Any) -> W:
    """Returns an object of class `cls` from a JSON value or from JSON text (str or bytes). Raises `DecodeError`."""
    return cls.decode(value)


class Wire:
    """Base class of the wire objects. A subclass implements `_read`, which takes the parsed JSON value, and
    `encode`."""

    __slots__ = ()

    @classmethod
    def decode(cls, value: Any) -> Self:
        """Returns an object from a JSON value or from JSON text (str or bytes). Raises `DecodeError`."""
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
        """Returns the JSON value of this object."""
        raise NotImplementedError  # each wire object has its own fields


W = TypeVar("W", bound=Wire)


class Fields:
    """Type-checked access to the fields of a JSON object. Every method raises `DecodeError` for a value of the wrong
    type."""

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise DecodeError(path, "an object", value)
        self._value: dict[str, Any] = value
        self._path = path

    def opt(self, key: str, kind: type[T]) -> T | None:
        """Returns an optional field, or None if it is absent or null."""
        value = self._value.get(key)
        if value is None:
            return None
        wrong = not isinstance(value, (int, float) if kind is float else kind)
        if wrong or (isinstance(value, bool) and kind is not bool):
            raise DecodeError(f"{self._path}.{key}", _WORDS[kind], value)
        return value  # type: ignore[no-any-return]  # checked above

    def get(self, key: str, kind: type[T]) -> T:
        """Returns a required field. Raises `DecodeError` if it is absent or null."""
        value = self.opt(key, kind)
        if value is None:
            raise DecodeError(f"{self._path}.{key}", _WORDS[kind], None)
        return value

    def sub(self, key: str, cls: type[W]) -> W | None:
        """Returns an optional field as an object of class `cls`, or None."""
        value = self._value.get(key)
        return None if value is None else cls._read(value, f"{self._path}.{key}")

    def each(self, key: str, cls: type[W]) -> tuple[W, ...]:
        """Returns an array field as a tuple of `cls` objects; an absent field gives an empty tuple."""
        items = self.opt(key, list) or ()
        return tuple(cls._read(item, f"{self._path}.{key}[{i}]") for i, item in enumerate(items))

    def one_of(self, key: str, words: tuple[str, ...], default: str | None = None) -> Any:
        """Returns a field whose value must be one of `words`; `default` if it is absent or null and a default is
        given."""
        value = self._value.get(key)
        if value is None and default is not None:
            return default
        if value not in words:
            raise DecodeError(f"{self._path}.{key}", "one of " + ", ".join(map(repr, words)), value)
        return value

    def rest(self, known: Iterable[str]) -> dict[str, Any]:
        """Returns the fields whose names are not in `known`, without those that are null."""
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
    """Returns the keyword arguments that are not None, as a dict."""
    return {key: value for key, value in fields.items() if value is not None}
