"""Draws what the pages show, in Mermaid: the scanner's states, and the way of a request.

Rules:

1. A drawing stands in its page between `<!-- drawn: NAME -->` and `<!-- end of drawing -->`; `docs/generate.py` writes
   it there, a test compares.
2. What is drawn is in tables. The states are those of `toolwire.scan.transitions`, the chain is that of
   `toolwire.config`, the hooks are those that the middlewares define, the arrows are drawn by who imports whom. The
   steps around the chain stand here, and a test follows a request to see that it takes them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
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
    Step("toolwire.pipeline.sending.delivery", "request id, key, boundary of errors"),
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
    """The steps as a flowchart. A solid arrow comes from the last step before whose module imports that of the step;
    where there is none, a dotted one from the step before: it hands on to something that it knows by an interface
    only."""
    lines = ["flowchart TB", "    client([client]) -.-> s1"]
    arrows: list[str] = []
    steps: list[Step] = []
    for title, part in way().items():
        lines.append(f'    subgraph "{title}"')
        for step in part:
            number = len(steps) + 1
            name = f"{number} <b>{step.module.removeprefix('toolwire.')}</b>"
            lines.append(f'        s{number}["{"<br/>".join(filter(None, (name, step.what)))}"]')
            knows = [n for n, before in enumerate(steps, 1) if step.module in imported(before.module)]
            if steps:
                arrows.append(f"    s{knows[-1]} --> s{number}" if knows else f"    s{number - 1} -.-> s{number}")
            steps.append(step)
        lines.append("    end")
    return mermaid(*lines, *arrows)


@cache
def imported(module: str) -> frozenset[str]:
    """What a module imports, anywhere in it: modules, and names in modules."""
    file = ROOT / (module.replace(".", "/") + ".py")
    return frozenset(_imported(ast.parse(file.read_text("utf-8")), module.rpartition(".")[0]))


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


DRAWN: Final[Mapping[str, Callable[[], str]]] = {"requests": request_way, "scanning": scanner_states}
"""The drawings by their names."""
