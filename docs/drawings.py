"""Draws what the pages show: the scanner's states in Mermaid, and the way of a request as a list.

Rules:

1. A drawing stands in its page between `<!-- drawn: NAME -->` and `<!-- end of drawing -->`; `docs/generate.py` writes
   it there, a test compares.
2. What is drawn is in tables. The states are those of `toolwire.scan.transitions`, the chain is that of
   `toolwire.config`, the hooks are those that the middlewares define. The steps around the chain stand here, and a test
   follows a request to see that it takes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from toolwire.config import DEFAULT_CHAIN
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.registry import MIDDLEWARES
from toolwire.scan._grammar import DONE, STATES
from toolwire.scan.transitions import INSIDE, OUTSIDE, TRANSITIONS

ROOT: Final = Path(__file__).resolve().parent.parent
REGION: Final = re.compile(r"(<!-- drawn: (\w+) -->\n).*?(<!-- end of drawing -->)", re.DOTALL)
GROUPS: Final[Mapping[str, tuple[int, ...]]] = {"outside": OUTSIDE, "inside": INSIDE, STATES[DONE]: (DONE,)}


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


def redrawn(page: str) -> str:
    """The page with its drawings as they are now. Raises `KeyError` for one that nobody draws."""
    return REGION.sub(lambda region: region[1] + DRAWN[region[2]]() + region[3], page)


def mermaid(*lines: str) -> str:
    return "\n".join(("```mermaid", *lines, "```", ""))


# --- the scanner's states -------------------------------------------------------------------------------------------


def scanner_states() -> str:
    """The table of transitions: inside the two groups between states, else between groups."""
    within: dict[str, list[str]] = {"outside": [], "inside": []}
    between = ["[*] --> outside"]
    for row in TRANSITIONS:
        source, target = _group(row.sources), _group(row.targets)
        if source == target:
            within[source] += (f"{STATES[a]} --> {STATES[b]}: {row.on}" for a, b in row)
            continue
        if row.sources != GROUPS[source]:
            raise ValueError(f"{row.on}: leaves a group, and not from all of its states")
        between.append(f"{source} --> {target}: {row.on}")
        if row.targets != GROUPS[target]:
            within[target][:0] = (f"[*] --> {STATES[state]}" for state in row.targets)
    return mermaid(
        "stateDiagram-v2",
        '    state "outside of blocks" as outside {',
        *(f"        {line}" for line in within["outside"]),
        "    }",
        '    state "in a block" as inside {',
        *(f"        {line}" for line in within["inside"]),
        "    }",
        *(f"    {line}" for line in (*between, f"{STATES[DONE]} --> [*]")),
    )


def _group(states: tuple[int, ...]) -> str:
    return next(name for name, members in GROUPS.items() if set(states) <= set(members))


# --- a request's way ------------------------------------------------------------------------------------------------


def way() -> dict[str, tuple[Step, ...]]:
    """The steps of a streamed Chat request with tools to a server that speaks Chat, by the parts of the way."""
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


def request_way() -> str:
    """The steps as a numbered list, part by part. The chain's part has only the names of the middlewares."""
    lines: list[str] = []
    number = 0
    for title, part in way().items():
        names = [f"`{step.module.removeprefix('toolwire.').removeprefix('middlewares.')}`" for step in part]
        if part[0].what:
            rows = [f"{number + place}. {name} {part[place - 1].what}" for place, name in enumerate(names, 1)]
            lines += [f"**{title}**", "", *rows, ""]
            number += len(part)
        else:
            lines += [f"**{title}**: {', '.join(names)}", ""]
    return "\n" + "\n".join(lines) + "\n"


DRAWN: Final[Mapping[str, Callable[[], str]]] = {"requests": request_way, "scanning": scanner_states}
"""The drawings by their names."""
