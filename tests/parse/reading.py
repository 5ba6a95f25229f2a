"""An answer through a scanner, and what it says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.options import route_options
from toolwire.config import RouteOptions
from toolwire.events import BlockKind, Delta, Event, Fault, Open
from toolwire.scanner import open_scanner

WHOLE = 1 << 20
"""The size of pieces of which each text is one."""

Calls = list[tuple[str | None, Any]]
"""Names and arguments."""


@dataclass
class Block:
    """A block of an answer. `kind`: as on the wire."""

    kind: str
    name: str | None = None
    text: str = ""

    @property
    def is_call(self) -> bool:
        return self.kind == BlockKind.TOOL_CALL.value


def in_pieces(text: str, size: int) -> list[str]:
    """The text cut into pieces of a size."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def scanned(
    twin: ModuleType,
    format: Any,
    tools: Any,
    pieces: Iterable[Any],
    *,
    options: RouteOptions | None = None,
    truncated: bool = False,
    count: Any = None,
    **fields: Any,
) -> list[Event]:
    """The events of an answer that comes in these pieces. Options of the route: whole, or those with other values."""
    scanner = open_scanner(
        format, tools, options=options or route_options(**fields), count=count, scanner=twin.CallScanner
    )
    return [*(event for piece in pieces for event in scanner.feed(piece)), *scanner.finish(truncated)]


def blocks(events: Iterable[Event]) -> list[Block]:
    """The blocks, in their order. A fault fails."""
    found: dict[int, Block] = {}
    for event in events:
        assert not isinstance(event, Fault), event.error
        if isinstance(event, Open):
            found[event.block] = Block(event.kind.value, event.name)
        elif isinstance(event, Delta):
            found[event.block].text += event.text
    return list(found.values())


def calls_and_text(events: Iterable[Event]) -> tuple[Calls, str]:
    """The calls, and everything else."""
    found = blocks(events)
    calls = [(block.name, json.loads(block.text or "{}")) for block in found if block.is_call]
    return calls, "".join(block.text for block in found if not block.is_call)
