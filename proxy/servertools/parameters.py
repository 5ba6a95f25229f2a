"""Reads a model's arguments into the values that a handler gets (R15.6). Built once per tool, when it is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from ..schemas.schema import ToolSchema, compile_schema
from .shape import Shape, fill, known_members, shaped

MAX_ARGUMENTS_BYTES: Final = 2048

_JSON_TYPES: Final[Mapping[type, str]] = {
    list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null",
}  # fmt: skip


class BadArguments(ValueError):
    """Invalid arguments of a call. The message is for the model."""


class Parameters:
    """The parameters of one tool.

    `schema` is a JSON Schema whose root has the type `object`, private to this object. Raises `SchemaProblem` if it
    cannot be compiled, and `ValueError` if a `default` does not fit its parameter.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._checker: ToolSchema = compile_schema(schema)
        self._required: tuple[str, ...] = tuple(schema.get("required") or ())
        self._shape = (Shape(schema, schema.get("$schema")),)
        # The handler of a tool that lists no parameters gets no arguments.
        self._takes_some = known_members(self._shape) != frozenset()

    def values(self, arguments: str) -> dict[str, Any]:
        """Returns the validated values, which the handler may change (see `shape`). Empty text means no arguments
        (R9.5). Raises `BadArguments`."""
        values = read_arguments(arguments)
        arguments = arguments if arguments.strip() else "{}"
        for name in self._required:
            if name not in values:
                raise BadArguments(f"Invalid parameters - Missing required parameter: {name}")
        filled = fill(self._shape, values)
        flaw = self._checker.check(orjson.dumps(values).decode() if filled else arguments)
        if flaw is not None:
            raise BadArguments(f"Invalid parameters - {flaw}")
        if not self._takes_some:
            return {}
        # After the check, because only valid values are known not to be too deep.
        written = json.loads(arguments, parse_float=str)
        typed: dict[str, Any] = shaped(self._shape, values, written)
        return typed


def read_arguments(arguments: str, most: int = MAX_ARGUMENTS_BYTES) -> dict[str, Any]:
    """Returns the object that a model wrote, of at most `most` bytes. Empty text means no arguments (R9.5). Raises
    `BadArguments`."""
    size = len(arguments.encode("utf-8", "surrogatepass"))
    if size > most:
        raise BadArguments(f"Invalid JSON arguments - {size} bytes, the most is {most}")
    if not arguments.strip():
        return {}
    try:
        values = orjson.loads(arguments)
    except orjson.JSONDecodeError as error:
        raise BadArguments(f"Invalid JSON arguments - {error}") from None
    if not isinstance(values, dict):
        raise BadArguments(f"Invalid JSON arguments - expected an object, not {_JSON_TYPES[type(values)]}")
    return values
