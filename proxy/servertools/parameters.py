"""Arguments as a model wrote them, to the values that a handler gets (R15.6). Built once per tool, at load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from toolwire.schemas.schema import ToolSchema, compile_schema
from toolwire.servertools.shape import Shape, fill, known_members, shaped

MAX_ARGUMENTS_BYTES: Final = 2048

_JSON_TYPES: Final[Mapping[type, str]] = {
    list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null",
}  # fmt: skip


class BadArguments(ValueError):
    """Arguments that no handler may see. The message is for the model."""


class Parameters:
    """The parameters of one tool.

    `schema` is a JSON Schema whose root has the type `object`, private to this object. Raises `SchemaProblem` if it
    cannot be compiled, and `ValueError` if a `default` does not fit the parameter that has it.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._checker: ToolSchema = compile_schema(schema)
        self._required: tuple[str, ...] = tuple(schema.get("required") or ())
        self._shape = (Shape(schema, schema.get("$schema")),)
        # A tool that lists nothing takes nothing: its handler gets what is declared.
        self._takes_some = known_members(self._shape) != frozenset()

    def values(self, arguments: str) -> dict[str, Any]:
        """The validated values, the handler's own to change (see `shape.py`). No text means no arguments (R9.5).
        Raises `BadArguments`."""
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
        # Only now: what fits is not too deep for it.
        written = json.loads(arguments, parse_float=str)
        found: dict[str, Any] = shaped(self._shape, values, written)
        return found


def read_arguments(arguments: str, most: int = MAX_ARGUMENTS_BYTES) -> dict[str, Any]:
    """The object that a model wrote, of at most so many bytes. No text means no arguments (R9.5). Raises
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
