"""Selects the tools of a server that are offered, with their names, and the reasons why others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...errors import quote
from ...model import ToolSpec
from ...schemas.schema import SchemaProblem, ToolSchema, compile_schema
from ...servertools.names import offered_name

MAX_DESCRIPTION_CHARS: Final = 2000


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool of a server. `name` is the server's name for it, `spec` the definition sent to models, `listed` the
    server's entry (`name`, `title`, `description`, `inputSchema`, `annotations`, as far as present)."""

    name: str
    spec: ToolSpec
    schema: ToolSchema
    listed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A tool that is not offered, and why. `name` is the server's name for it."""

    name: str
    why: str


def read_listing(
    prefix: str, listed: Sequence[Mapping[str, Any]], left_out: Sequence[Mapping[str, str]]
) -> tuple[tuple[McpTool, ...], tuple[LeftOut, ...]]:
    """Returns the tools that are offered, in the server's order, and the others. Slow: compiles every schema, so run it
    outside of the event loop."""
    tools: dict[str, McpTool] = {}
    others = [LeftOut(item["name"], item["why"]) for item in left_out]
    for item in listed:
        name = item["name"]
        offered = offered_name(name, prefix)
        if offered in tools:
            others.append(LeftOut(name, f"the server has another tool that is called {quote(offered)}"))
            continue
        try:
            schema = compile_schema(item["inputSchema"])
        except (SchemaProblem, ValueError, RecursionError) as error:
            others.append(LeftOut(name, f"its schema cannot be used: {_why(error)}"))
            continue
        description = (item.get("description") or item.get("title") or "")[:MAX_DESCRIPTION_CHARS]
        parameters = {"type": "object", "properties": {}, **item["inputSchema"]}
        spec = ToolSpec(offered, description or None, parameters, server=True)
        tools[offered] = McpTool(name, spec, schema, item)
    return tuple(tools.values()), tuple(others)


def _why(error: Exception) -> str:
    if isinstance(error, SchemaProblem) and error.path:
        return f"at `{error.where.removeprefix('.')}`: {error.message}"
    return str(error)[:500]
