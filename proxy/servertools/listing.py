"""What `toolwire tools list` and `toolwire check` show of server-side tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..config import ToolsConfig
from .folder import ToolFolder
from .loading import LoadState


def look(config: ToolsConfig) -> dict[str, Any]:
    """The modules of the folder, loaded once: what `GET /admin/tools` of a gateway that has just started shows. Runs
    their code."""

    async def once() -> dict[str, Any]:
        async with ToolFolder(replace(config, watch_s=0.0)).running() as tools:
            return tools.shown()

    return asyncio.run(once())


def failed(shown: Mapping[str, Any]) -> bool:
    """Whether a module cannot be used."""
    return any(module["state"] == LoadState.FAILED_VALIDATION.value for module in shown["modules"])


def lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """For people."""
    if not shown["modules"]:
        yield f"no module in {shown['folder']}"
    for module in shown["modules"]:
        yield f"{module['file']}: {module['state']}"
        if module["error"] is not None:
            yield f"  {module['error']['kind']}: {module['error']['message']}"
        for tool in module["tools"]:
            yield f"  {tool['name']}({', '.join(_parameters(tool['parameters']))}): {tool['description']}"


def _parameters(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required") or ()
    for name, part in (schema.get("properties") or {}).items():
        default = f" = {part['default']!r}" if isinstance(part, Mapping) and "default" in part else ""
        yield f"{name}{'' if name in required or default else '?'}{default}"
