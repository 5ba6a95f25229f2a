"""Writes the path of a request, module by module, into its page.

The chain is that of `toolwire.config`, with the hooks that the middlewares define. The steps around it are here; a test
follows a request to see that it takes them.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final, NamedTuple

from toolwire.config import DEFAULT_CHAIN
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.registry import MIDDLEWARES

REGION: Final = re.compile(r"(<!-- the path of a request -->\n).*?(<!-- end of the path -->)", re.DOTALL)


class Step(NamedTuple):
    """A module that a request comes to, and what it does there; nothing for middlewares, whose pages say it."""

    module: str
    what: str = ""


IN: Final = (
    Step("toolwire.server.dispatch", "finds the handler of the path"),
    Step(
        "toolwire.pipeline.sending.delivery", "gives the request its id, checks the key, turns exceptions into errors"
    ),
    Step("toolwire.ingress.receiving", "reads the body"),
    Step("toolwire.pipeline.exchange.routing", "finds the route of the model"),
    Step("toolwire.protocols.chat.request", "reads the body's JSON as a request"),
)
ASKED: Final = (
    Step("toolwire.upstream.pool.attempts", "asks until a server answers"),
    Step("toolwire.upstream.pool.server_pool", "picks the server"),
    Step("toolwire.upstream.servers.http", "opens an answer"),
    Step("toolwire.protocols.chat.request_writer", "writes the request in the server's protocol"),
    Step("toolwire.upstream.client.wire_client", "sends it, and reads the head of the answer"),
    Step("toolwire.pipeline.answers.reply", "is the answer, not sent yet"),
)
OUT: Final = (
    Step("toolwire.pipeline.sending.stream_sender", "sends the reply"),
    Step("toolwire.pipeline.paths.stream_paths", "chooses the stream path"),
    Step("toolwire.upstream.servers.http_source", "gives the bytes of each read"),
    Step("toolwire.upstream.pool.first_content", "waits until the server has said something"),
    Step("toolwire.pipeline.paths.stream_paths", "takes the bytes"),
    Step("toolwire.protocols.chat.reader", "reads them as events"),
    Step("toolwire.pipeline.answers.stage_chain", "runs what the middlewares declared"),
    Step("toolwire.pipeline.scanning.scan_stage", "shows text to the scanner"),
    Step("toolwire.call_policy.policy", "decides what a block is"),
    Step("toolwire.call_policy.assembly", "makes calls of its fields"),
    Step("toolwire.protocols.chat.writer", "writes the events in the client's protocol"),
    Step("toolwire.pipeline.sending.stream_sender", "writes once per read"),
    Step("toolwire.observability.telemetry", "counts the exchange"),
)
WAY_IN: Final = ("on_request",)
WAY_OUT: Final = ("declare", "review", "on_event", "on_reply")


def rewritten(page: str) -> str:
    """Returns the page with the path as it is now."""
    return REGION.sub(lambda region: region[1] + as_list() + region[2], page)


def parts() -> dict[str, tuple[Step, ...]]:
    """The steps of a streamed Chat request with tools to a server that speaks Chat, part by part."""
    chain = [MIDDLEWARES[name].split(":") for name in DEFAULT_CHAIN]
    asking = tuple(Step(module) for module, kind in chain if _has_part(module, kind, WAY_IN))
    declaring = tuple(Step(module) for module, kind in chain if _has_part(module, kind, WAY_OUT))
    return {
        "The request is read": IN,
        "The chain, on the way in": asking,
        "A server is asked": ASKED,
        "The chain, on the way out": tuple(step for step in reversed(declaring) if step.module != asking[-1].module),
        "The answer is sent": OUT,
    }


def _has_part(module: str, kind: str, hooks: tuple[str, ...]) -> bool:
    """Whether the middleware does something in one of these hooks, or around the rest of the chain."""
    middleware: type[Middleware] = getattr(import_module(module), kind)
    return any(middleware.defines(hook) for hook in (*hooks, "__call__"))


def as_list() -> str:
    """The steps as a numbered list, part by part. The chain's part has only the names of the middlewares."""
    lines: list[str] = []
    number = 0
    for title, part in parts().items():
        names = [f"`{step.module.removeprefix('toolwire.').removeprefix('middlewares.')}`" for step in part]
        if part[0].what:
            rows = [f"{number + place}. {name} {part[place - 1].what}" for place, name in enumerate(names, 1)]
            lines += [f"**{title}**", "", *rows, ""]
            number += len(part)
        else:
            lines += [f"**{title}**: {', '.join(names)}", ""]
    return "\n" + "\n".join(lines) + "\n"
