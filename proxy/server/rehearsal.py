"""Before a process says that it serves, it answers requests that nobody has sent.

What is imported on use is imported then, what is compiled or made once is made, and the interpreter has seen the way of
a request often enough to have it specialised (PEP 659). Without it the first request costs ten to a
hundred times what the hundredth does. They are asked of an application of their own, which plays both ends of its
connections and keeps nothing, so that no plug-in, no store, no metric, no log and no model server sees them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

import orjson

from ..config import BackendConfig, GatewayConfig, StoreConfig
from ..model import ToolUse
from ..observability.telemetry import ACCESS
from ..pipeline.delivery import CLIENTS
from ..protocols.base import ClientSide
from ..registry import registries
from .hosting import AppFactory
from .played import Answer, PlayedGateway

LOG: Final = logging.getLogger("toolwire")
TIMES: Final = 4
"""Each kind of request is asked so often."""
MOST_S: Final = 5.0
"""It takes a quarter of a second. A machine that needs much more is not held up."""

_CALL: Final = ToolUse("call_1", "look", '{"at":"it"}')
_USAGE: Final = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"


async def rehearse(create: AppFactory, config: GatewayConfig) -> None:
    """Answer each kind of request some times, with the limits and the options of `config`. A failure is logged for who
    looks for it: the first request will show it."""
    gateway = PlayedGateway(create, _of_its_own(config), _answered(config))
    silent = _Silent()
    ACCESS.addFilter(silent)
    try:
        async with asyncio.timeout(MOST_S), gateway:
            ask = gateway.client()
            for request in _requests(gateway.app[CLIENTS].sides):
                for _ in range(TIMES):
                    await ask(request)
    except Exception as error:
        LOG.debug("the rehearsal failed", exc_info=error)
    finally:
        ACCESS.removeFilter(silent)


class _Silent(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Nobody sees it."""
        return False


def _of_its_own(config: GatewayConfig) -> GatewayConfig:
    return GatewayConfig(
        limits=config.limits,
        defaults=config.defaults,
        backends={"default": BackendConfig(url="http://127.0.0.1:9", identify_s=0)},
        store=StoreConfig(kind="memory"),
    )


def _requests(clients: Sequence[ClientSide]) -> Iterator[bytes]:
    for client in clients:
        for stream in (False, True):
            for tools in (True, False):
                example = {name: value for name, value in client.example.items() if tools or name != "tools"}
                body = orjson.dumps({**example, "model": "m", "stream": stream})
                yield (
                    b"POST /v1%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (client.path.encode(), len(body), body)
                )


def _answered(config: GatewayConfig) -> Answer:
    """What the model server says: prose and, where there are tools, a call in the words of the default format."""
    call = registries().formats.get(config.defaults.format).render_call(_CALL)
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}

    def answer(request: bytes) -> list[bytes]:
        texts = ["So ", "be ", "it.", *((f"\n{call[:9]}", call[9:]) if _CALL.name.encode() in request else ())]
        if b'"stream":true' not in request:
            said = {"role": "assistant", "content": "".join(texts)}
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            body = orjson.dumps({**frame, "object": "chat.completion", "choices": [choice], "usage": _USAGE})
            return [_HEAD % (b"application/json", len(body)) + body]
        choices = [
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
            *({"index": 0, "delta": {"content": text}, "finish_reason": None} for text in texts),
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        chunks = [*({**frame, "choices": [choice]} for choice in choices), {**frame, "choices": [], "usage": _USAGE}]
        frames = [b"data: %s\n\n" % orjson.dumps(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"]
        return [_HEAD % (b"text/event-stream", sum(map(len, frames))), *frames]

    return answer
