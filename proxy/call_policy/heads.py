"""Questions about the beginning of a block: are its calls objects, and which tool does its name mean?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..model import ToolSpec
from ..scan._grammar import BlockSyntax
from .written import WrittenCall


def is_object(syntax: BlockSyntax) -> bool:
    """Returns True if the calls of this syntax are JSON objects or Python calls."""
    return any(branch.field in ("call", "calls") for node in syntax.nodes for branch in node)


def is_only_a_name(syntax: BlockSyntax, body: str) -> bool:
    """Returns True if a syntax without an opener has matched only a word so far, which may be the start of ordinary
    text."""
    if syntax.opener:
        return False
    begun = [branch.then for node in syntax.body[:1] for branch in node if branch.read == "name" and not branch.literal]
    return bool(begun) and not any(
        (branch.literal or ("[" if branch.read in ("array", "list") else "{")) in body
        for then in begun
        for branch in syntax.body[then]
    )


def reading_on_offer(written: WrittenCall, known: Mapping[str, ToolSpec]) -> WrittenCall:
    """Returns the first reading of a call that names a known tool, else the first reading."""
    reading: WrittenCall | None = written
    while reading is not None and reading.name not in known:
        if reading.alias is not None and (reading.alias in known or reading.otherwise is None):
            return replace(reading, name=reading.alias)
        reading = reading.otherwise
    return written if reading is None else reading
