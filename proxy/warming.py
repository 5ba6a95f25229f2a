"""What only the first request of a process would have to wait for is done when it starts: a conversation that nobody sees.

It goes through what reads, writes and scans: the schemas of requests are compiled (50 ms each), the patterns of a format and what its
grammar amounts to are made, what is imported on use is imported, and there is a thread. Nothing is sent, and what is counted is
forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from .config import LimitsConfig, PromptConfig, RouteOptions
from .events import BlockKind, Close, Delta, Finish, Open, Start, fold
from .exchange import Offer
from .formats.base import ToolFormat
from .model import Text, ToolResult, ToolUse, Usage
from .prompt import segment
from .protocols.base import WireProtocol, WriteOptions
from .routing import Route
from .scanning import ScanStage
from .schema import compile_schema
from .transcript import inject

LOG: Final = logging.getLogger("toolwire")

_PARAMETERS: Final = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
_FUNCTION: Final = {"type": "function", "name": "look", "description": "Looks.", "parameters": _PARAMETERS}
_SAID: Final[Mapping[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Look."}]},
    "responses": {"input": "Look."},
}
"""By protocol: how somebody says something."""


async def warm_up(protocols: Iterable[WireProtocol], routes: Iterable[Route]) -> None:
    """Have what these need. A failure is a plug-in's, or a mistake here: the first request will show it."""
    await asyncio.to_thread(_rehearse_all, tuple(protocols), tuple(routes))


def _rehearse_all(protocols: tuple[WireProtocol, ...], routes: tuple[Route, ...]) -> None:
    for route in routes:
        servers = route.targets.protocol
        for protocol in protocols:
            try:
                _rehearse(protocol.name, type(protocol), None if servers is None else type(servers), route.format)
            except Exception as error:
                LOG.debug("the rehearsal of %s in %s failed", protocol.name, route.format.name, exc_info=error)


@lru_cache(maxsize=256)  # several applications of one process, as in tests, need it once
def _rehearse(
    name: str, client: type[WireProtocol], server: type[WireProtocol] | None, tool_format: ToolFormat
) -> None:
    protocol = client()
    said = _SAID.get(name)
    if said is None:
        return
    "localhost".encode("idna")  # as names of servers are looked up
    compile_schema(_PARAMETERS)
    body = {"model": "m", "stream": True, "tools": [_FUNCTION], **said}
    request = protocol.read_request(body, b"")
    text = segment(request, tool_format, PromptConfig())
    call = ToolUse("call_1", "look", '{"at":"it"}')
    tool_format.render_result(ToolResult("call_1", (Text("There."),)))
    sent = inject(request, text, tool_format)
    offer = Offer(request.tools, request.tool_choice, True, tool_format, request.tools)
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
