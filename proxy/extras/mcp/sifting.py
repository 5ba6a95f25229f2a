"""Lists of tools of which the SDK would take all or none. Runs in the host.

The SDK checks a list as a whole, so that one tool that breaks the rules costs all of them. Here such a tool is taken
out of the list before the SDK sees it, and is told of. A schema that only lacks its `type` is given one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from toolwire.extras.mcp.pipes import Streams

_LIST = "tools/list"


class Sieve:
    """Takes broken tools out. `version` is the protocol that was agreed upon; `left_out` are the names of what was
    taken out of the lists that came since it was looked at last."""

    def __init__(self) -> None:
        self.version = LATEST_HANDSHAKE_VERSION
        self.left_out: list[str] = []

    def sift(self, message: object) -> None:
        """Look at a message, and change it if it is a list with broken tools."""
        if not isinstance(message, SessionMessage) or not isinstance(message.message, types.JSONRPCResponse):
            return
        result = message.message.result
        tools = result.get("tools")
        if not isinstance(tools, list) or "content" in result or self._fits(result):
            return
        kept = []
        for tool in tools:
            if isinstance(tool, dict):
                schema = tool.get("inputSchema")
                if schema is None or (isinstance(schema, dict) and "type" not in schema):
                    tool = {**tool, "inputSchema": {"type": "object", **(schema or {})}}
            if self._fits({**result, "tools": [tool]}):
                kept.append(tool)
            else:
                self.left_out.append(str(tool.get("name") if isinstance(tool, dict) else tool))
        message.message.result = {**result, "tools": kept}

    def _fits(self, result: dict[str, Any]) -> bool:
        try:
            methods.validate_server_result(_LIST, self.version, result)
        except ValueError:
            return False
        except KeyError:
            pass  # of a version that the SDK knows no list of
        return True


@asynccontextmanager
async def sifted(transport: AbstractAsyncContextManager[Any], sieve: Sieve) -> AsyncGenerator[Streams, None]:
    """A transport whose messages pass a sieve."""
    async with transport as (source, target), anyio.create_task_group() as tasks:
        into, out = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def pump(source: MemoryObjectReceiveStream[SessionMessage | Exception]) -> None:
            async with into:
                async for message in source:
                    sieve.sift(message)
                    try:
                        await into.send(message)
                    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                        return

        tasks.start_soon(pump, source)
        try:
            yield out, target
        finally:
            out.close()
            tasks.cancel_scope.cancel()
