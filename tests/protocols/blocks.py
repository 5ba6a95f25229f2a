"""Whole blocks of events: prose and calls."""

from __future__ import annotations

from typing import Any

from toolwire.events import BlockKind, Close, Delta, Event, Open


def text(block: int, *pieces: str, kind: BlockKind = BlockKind.TEXT) -> list[Event]:
    """A block of prose that comes in these pieces."""
    return [Open(block, kind), *(Delta(block, piece) for piece in pieces), Close(block)]


def call(block: int, call_id: str, name: str, *pieces: str, **fields: Any) -> list[Event]:
    """A call whose arguments come in these pieces."""
    opened = Open(block, BlockKind.TOOL_CALL, name=name, call_id=call_id, **fields)
    return [opened, *(Delta(block, piece) for piece in pieces), Close(block)]
