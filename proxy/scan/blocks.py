"""Finished blocks: the value for the call policy, and the event that opens a call. Both scanners use this module: it
runs once per block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from ..events import BlockKind, Open
from ._grammar import AS_TEXT, DROPPED, Block, BlockSyntax, Decision, Field, FoundCall

Piece = tuple[Field, int, int]
"""A field with its start and end offset in the block."""

TO_CLOSER: Final = -1
"""The end offset of a field that extends to the block's closer."""


def dropped() -> Decision:
    """Returns the decision that removes a block, because it is framing."""
    return DROPPED


def as_text() -> Decision:
    """Returns the decision that a block is text, because it is framing without an opener."""
    return AS_TEXT


def ended(
    syntax: BlockSyntax,
    raw: bytes,
    start: int,
    end: int,
    pieces: Sequence[Piece],
    closed: bool,
    broken: bool,
    more: bool,
    first: bool = False,
) -> Block:
    """Returns a finished block for the call policy. `raw` is the whole block; the body is between the offsets `start`
    and `end`."""
    body = raw[start:end].decode()
    inside = [piece for piece in pieces if piece[1] <= end and piece[2] <= end]
    whole = _whole(syntax)
    if whole and len(inside) < 2:
        return Block(syntax, body, ((whole, body),), closed, broken, more=more, first=first)
    fields = ((field, raw[begin : end if last == TO_CLOSER else last].decode()) for field, begin, last in inside)
    return Block(syntax, body, tuple(fields), closed, broken, more=more, first=first)


@lru_cache(maxsize=256)  # a pure function of frozen values, which goes through all places
def _whole(syntax: BlockSyntax) -> Field | None:
    return syntax.whole


def opening(block: int, call: FoundCall, choice: int, source: str | None) -> Open:
    """Returns the event that opens a call. `source` is its text, or None if the text is still coming."""
    return Open(
        block,
        BlockKind.TOOL_CALL,
        name=call.name,
        call_id=call.call_id,
        choice=choice,
        call_kind=call.kind,
        namespace=call.namespace,
        extra={"live": True} if source is None else {"source": source},
    )
