"""What a block comes to once it has ended: what the call policy is shown, and how a call is announced. Both scanners
use this as it is: it happens once for each block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from toolwire.events import BlockKind, Open
from toolwire.scan._grammar import AS_TEXT, DROPPED, Block, BlockSyntax, Decision, Field, Found

Piece = tuple[Field, int, int]
"""A field, and between which offsets of the block it stands."""

TO_CLOSER: Final = -1
"""The end of a field that reaches up to the closer."""


def dropped() -> Decision:
    """What becomes of framing."""
    return DROPPED


def as_text() -> Decision:
    """What becomes of framing that nothing opened."""
    return AS_TEXT


def ended(
    syntax: BlockSyntax, raw: bytes, start: int, end: int, pieces: Sequence[Piece], closed: bool, broken: bool
) -> Block:
    """A block for the call policy: `raw` is all of it, the body stands between `start` and `end`."""
    body = raw[start:end].decode()
    inside = [piece for piece in pieces if piece[1] <= end and piece[2] <= end]
    whole = _whole(syntax)
    if whole and len(inside) < 2:
        return Block(syntax, body, ((whole, body),), closed, broken)
    fields = ((field, raw[first : end if last == TO_CLOSER else last].decode()) for field, first, last in inside)
    return Block(syntax, body, tuple(fields), closed, broken)


@lru_cache(maxsize=256)  # a pure function of frozen values, which goes through all places
def _whole(syntax: BlockSyntax) -> Field | None:
    return syntax.whole


def opening(block: int, call: Found, choice: int, source: str | None) -> Open:
    """The event with which a call begins. `source` is the text in which it was written, None if that is still
    coming."""
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
