"""Tool modules as text, and a folder of them that is loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from proxy.config import ToolsConfig
from proxy.model import ToolUse
from proxy.servertools.folder import ToolFolder
from tests.waiting import GUARD_S

ONE = {"type": "function", "function": {"name": "one", "description": "Does one thing."}}
HANDLER = "def handle_tool_call(tool_name, tool_input):\n    return repr((tool_name, tool_input))\n"
PATIENT: dict[str, Any] = {"timeout_s": GUARD_S, "load_timeout_s": GUARD_S, "wait_s": GUARD_S, "watch_s": 0.0}
"""Nothing here is to run into a time limit, however slow the machine is."""


def tool(name: str = "one", parameters: Any = None, **more: Any) -> dict[str, Any]:
    """An item of `TOOLS`."""
    function = {"name": name, "description": "Does one thing.", **more}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


def module(*tools: Any, handler: str = HANDLER) -> str:
    """A module with these tools."""
    return f"TOOLS = {list(tools)!r}\n{handler}"


Start = Callable[..., Awaitable[ToolFolder]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Load a folder: `await start({"a.py": text}, timeout_s=...)`."""
    async with AsyncExitStack() as stack:

        async def starting(files: dict[str, str], **config: Any) -> ToolFolder:
            for name, text in files.items():
                (tmp_path / name).write_text(text, "utf-8", errors="surrogatepass")
            tools = ToolFolder(ToolsConfig(folder=str(tmp_path), **{**PATIENT, **config}))
            return await stack.enter_async_context(tools.running())

        yield starting


async def call(tools: ToolFolder, name: str = "one", arguments: str = "{}", limit_s: float = 60.0) -> str:
    """The text that the model gets."""
    result = await tools.tools.run(ToolUse("call_1", name, arguments), limit_s, lambda state: None)
    return result.text
