"""What only the first request of a process would have to wait for is done when it starts: a conversation that nobody
sees.

It goes through what reads, writes and scans: the schemas of requests are compiled (50 ms each), the patterns of a
format and what its grammar amounts to are made, what is imported on use is imported, and there is a thread. Nothing is
sent, and what is counted is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ..config import LimitsConfig, PromptConfig, RouteOptions
from ..events import BlockKind, Close, Delta, Finish, Open, Start
from ..folding import fold
from ..formats.base import ToolFormat
from ..model import Text, ToolResult, ToolUse, Usage
from ..pipeline.exchange import OfferedTools
from ..pipeline.routing import Route
from ..pipeline.scanning import ScanStage
from ..prompting.prompt import segment
from ..prompting.transcript import inject
from ..protocols.base import ClientSide, ServerSide, WriteOptions
from ..schemas.schema import compile_schema

LOG: Final = logging.getLogger("toolwire")


async def warm_up(clients: Iterable[ClientSide], routes: Iterable[Route]) -> None:
    """Have what these need. A failure is a plug-in's, or a mistake here: the first request will show it."""
    await asyncio.to_thread(_rehearse_all, tuple(clients), tuple(routes))


def _rehearse_all(clients: tuple[ClientSide, ...], routes: tuple[Route, ...]) -> None:
    for route in routes:
        server = route.pool.protocol
        for client in clients:
            try:
                _rehearse(type(client), None if server is None else type(server), route.format)
            except Exception as error:
                LOG.debug("the rehearsal of %s in %s failed", client.name, route.format.name, exc_info=error)


@lru_cache(maxsize=256)  # several applications of one process, as in tests, need it once
def _rehearse(client: type[ClientSide], server: type[ServerSide] | None, tool_format: ToolFormat) -> None:
    protocol = client()
    "localhost".encode("idna")  # as names of servers are looked up
    body = {"model": "m", **protocol.example}
    request = protocol.read_request(body, b"")
    compile_schema(request.tools[0].parameters)
    text = segment(request, tool_format, PromptConfig())
    call = ToolUse("call_1", "look", '{"at":"it"}')
    tool_format.render_result(ToolResult("call_1", (Text("There."),)))
    sent = inject(request, text, tool_format)
    offer = OfferedTools(request.tools, request.tool_choice, True, tool_format, request.tools)
    stage = ScanStage(offer, RouteOptions(), LimitsConfig(), lambda what: None)
    answer = f"So.\n{tool_format.render_call(call)}"
    events = [Start("r", "m", 0), Open(0, BlockKind.TEXT), Delta(0, answer), Close(0), Finish("stop", Usage(1, 1))]
    found = stage.feed(list(events))
    options = WriteOptions(request=request, created=0, body=body)
    protocol.writer(options).feed(found)
    protocol.write_reply(fold(found), options)
    if server is not None:
        servers = server()
        servers.write_request(sent)
        frames = servers.writer(WriteOptions(request=sent, created=0)).feed(events)
        servers.reader(frame_bytes=LimitsConfig().frame_bytes).feed(frames)
