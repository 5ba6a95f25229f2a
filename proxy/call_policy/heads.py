"""What the beginning of a block says: whether its calls are objects, and which tool its name means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from toolwire.call_policy.written import Written
from toolwire.model import ToolSpec
from toolwire.scan._grammar import BlockSyntax


def is_object(syntax: BlockSyntax) -> bool:
    """Its calls are JSON objects, or calls in Python."""
    return any(branch.field in ("call", "calls") for node in syntax.nodes for branch in node)


def is_only_a_name(syntax: BlockSyntax, body: str) -> bool:
    """Of a call that an answer begins with, nothing has come but what may be the first word of a text."""
    if syntax.opener:
        return False
    begun = [branch.then for node in syntax.body[:1] for branch in node if branch.read == "name" and not branch.literal]
    return bool(begun) and not any(
        (branch.literal or ("[" if branch.read in ("array", "list") else "{")) in body
        for then in begun
        for branch in syntax.body[then]
    )


def reading_on_offer(written: Written, known: Mapping[str, ToolSpec]) -> Written:
    """The first reading of a call that names a tool; if there is none the first."""
    reading: Written | None = written
    while reading is not None and reading.name not in known:
        if reading.alias is not None and (reading.alias in known or reading.otherwise is None):
            return replace(reading, name=reading.alias)
        reading = reading.otherwise
    return written if reading is None else reading
