"""Reads written calls back with a scanner, to check that a value survives unchanged."""

from __future__ import annotations

from typing import Any, Final, cast

from ...events import Delta, Open
from ...fastparse import CallScanner
from ...scan._grammar import DROPPED, Block, BlockPolicy, BlockSyntax, Decision, Field, Grammar, Why

_SLICE_CHARS: Final = 64 * 1024

Fields = list[tuple[Field, str]]


class _Recorder:
    """A call policy that only records the fields it is shown."""

    strict = False
    unwrap = True
    callable_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.fields: Fields = []
        self.failed = False

    def block(self, block: Block) -> Decision:
        self.fields += block.pieces
        self.failed = self.failed or block.broken or not block.closed
        return DROPPED

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        self.failed = True
        return DROPPED

    def may_call(self, name: str, untaught: bool) -> bool:
        return True

    def opening(self, syntax: BlockSyntax, pieces: Any) -> None:
        return None


def fields_of(grammar: Grammar, text: str) -> Fields | None:
    """Returns the fields of all blocks in a text that consists of blocks only, or None for any other text."""
    recorder = _Recorder()
    scanner = CallScanner(grammar, cast(BlockPolicy, recorder), block_bytes=4 * len(text) + 1)
    events = [
        event
        for start in range(0, len(text), _SLICE_CHARS)
        for event in scanner.feed(text[start : start + _SLICE_CHARS])
    ]
    events += scanner.finish()
    if recorder.failed or any(isinstance(event, Open | Delta) for event in events):
        return None
    return recorder.fields
