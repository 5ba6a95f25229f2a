"""A gateway's process that is killed: keeps an MCP server connected and says so."""

import asyncio
import sys

from tests.mcp.conftest import connected, raw, settings


async def main() -> None:
    async with connected(settings(raw(mode="immortal", pids=sys.argv[1]))) as server:
        host = server._host
        assert host is not None
        print(host._process.pid, flush=True)
        await asyncio.sleep(600)


asyncio.run(main())
