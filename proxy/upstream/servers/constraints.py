"""Writes a constraint for constrained decoding (a grammar, or a JSON Schema of a call) as request fields of each
server's feature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...formats.engine.longjson import compact
from ...model import Constraint, ToolSpec


def constraint_fields(constraint: Constraint, feature: str) -> dict[str, Any]:
    """Returns the request fields with which a server that has `feature` enforces `constraint` (R10.10, R23.2); empty if
    it cannot. Raises `ValueError` for an unknown feature."""
    if constraint.free:
        # A grammar for answers with or without a call was tested with llama.cpp only; others use structural tags.
        feature = {"guided": "guided_tag", "ebnf": "structural_tag", "json_schema": "none", "format": "none"}.get(
            feature, feature
        )
    match feature:
        case "none":
            return {}
        case "gbnf":
            return {"grammar": constraint.gbnf}
        case "guided":
            return {"structured_outputs": {"grammar": constraint.gbnf}}
        case "ebnf":
            return {"ebnf": constraint.gbnf}
        case "guided_tag" | "structural_tag" if constraint.tags is None:
            return {}
        case "guided_tag":
            return {"structured_outputs": {"structural_tag": compact(constraint.tags)}}
        case "structural_tag":
            return {"response_format": constraint.tags}
        case "json_schema":
            schema = {"name": "tool_call", "schema": call_schema(constraint.calls), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case "format":
            return {"format": call_schema(constraint.calls)}
        case _:
            raise ValueError(f"unknown feature for constrained decoding: {feature!r}")


def call_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Returns the JSON Schema of one call, `{"name": ..., "arguments": {...}}`, of any of the tools."""
    if len(tools) == 1:
        return _one_call(tools[0], "#/properties/arguments")
    return {"anyOf": [_one_call(tool, f"#/anyOf/{i}/properties/arguments") for i, tool in enumerate(tools)]}


def _one_call(tool: ToolSpec, place: str) -> dict[str, Any]:
    parameters = _moved(tool.parameters or {"type": "object", "properties": {}}, place)
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """Returns a schema whose local references are adjusted for its new position `place`."""
    if isinstance(schema, Mapping):
        return {
            key: place + value[1:]
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _moved(value, place)
            for key, value in schema.items()
        }
    if isinstance(schema, list | tuple):
        return [_moved(value, place) for value in schema]
    return schema
