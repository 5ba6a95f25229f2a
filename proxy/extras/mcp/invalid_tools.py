"""Removes invalid tools from lists, so that the SDK accepts the rest. Runs in the host.

The SDK validates a list as a whole: one invalid tool would cost all of them. An invalid tool is removed before the SDK
sees the list, and is reported. A schema that only lacks `type` gets it.
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

from .pipes import Streams

_LIST = "tools/list"


class InvalidToolFilter:
    """Removes invalid tools. `version` is the negotiated protocol; `left_out` collects the names of the
    removed tools."""

    def __init__(self) -> None:
        self.version = LATEST_HANDSHAKE_VERSION
        self.left_out: list[str] = []

    def sift(self, message: object) -> None:
        """Changes the message if it is a list with invalid tools."""
        if not isinstance(message, SessionMessage) or not isinstance(message.message, types.JSONRPCResponse):
            return
        result = message.message.result
        tools = result.get("tools")
        if not isinstance(tools, list) or "content" in result or self._fits(result):
            return
        valid = []
        for tool in tools:
            if isinstance(tool, dict):
                schema = tool.get("inputSchema")
                if schema is None or (isinstance(schema, dict) and "type" not in schema):
                    tool = {**tool, "inputSchema": {"type": "object", **(schema or {})}}
            if self._fits({**result, "tools": [tool]}):
                valid.append(tool)
            else:
                self.left_out.append(str(tool.get("name") if isinstance(tool, dict) else tool))
        message.message.result = {**result, "tools": valid}

    def _fits(self, result: dict[str, Any]) -> bool:
        try:
            methods.validate_server_result(_LIST, self.version, result)
        except ValueError:
            return False
        except KeyError:
            pass  # a protocol version for which the SDK has no list of tools
        return True


@asynccontextmanager
async def filtered_streams(
    transport: AbstractAsyncContextManager[Any], sieve: InvalidToolFilter
) -> AsyncGenerator[Streams, None]:
    """Yields the transport's streams; received messages pass through the sieve."""
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
