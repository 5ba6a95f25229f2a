"""Arguments as a model wrote them, to the values that a handler gets (R15.6). Built once per tool, at load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from ..schemas.schema import ToolSchema, compile_schema

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
        properties: Mapping[str, Any] = schema.get("properties") or {}
        self._required: tuple[str, ...] = tuple(schema.get("required") or ())
        optional = ((name, part) for name, part in properties.items() if name not in self._required)
        self._defaults = {name: part["default"] for name, part in optional if _has_default(part)}
        # A tool that says nothing of further arguments does not know them: its handler gets what is declared.
        says = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
        self._declared = None if says else frozenset(properties)
        for name, value in self._defaults.items():
            flaw = compile_schema({"type": "object", "properties": {name: properties[name]}}).check(
                _text({name: value})
            )
            if flaw is not None:
                raise ValueError(f"the default does not fit: {flaw}")

    def values(self, arguments: str) -> dict[str, Any]:
        """The validated values, the handler's own to change. No text means no arguments (R9.5). Raises
        `BadArguments`."""
        values = read_arguments(arguments)
        for name in self._required:
            if name not in values:
                raise BadArguments(f"Invalid parameters - Missing required parameter: {name}")
        if self._defaults:
            values = {**orjson.loads(_text(self._defaults)), **values}
            arguments = _text(values)
        flaw = self._checker.check(arguments if arguments.strip() else "{}")
        if flaw is not None:
            raise BadArguments(f"Invalid parameters - {flaw}")
        return values if self._declared is None else {k: v for k, v in values.items() if k in self._declared}


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


def _has_default(part: Any) -> bool:
    return isinstance(part, Mapping) and "default" in part


def _text(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()
