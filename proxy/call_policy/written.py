"""A call as a model wrote it, before anybody knows whether it may be made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from toolwire.repair.literals import json_string
from toolwire.repair.repair import RepairKind


class Settled(NamedTuple):
    """Arguments as JSON text, how they were repaired (R9.3), and whether an object stood where a string is taught
    (C2)."""

    text: str
    repaired: tuple[RepairKind, ...] = ()
    unwrapped: bool = False


class Arguments(Protocol):
    """The arguments of a call, as they were written."""

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """The arguments of a tool with this schema (None: unknown). `repair` what is nearly JSON; take `objects` where
        a string is taught. Raises `ValueError`."""


@dataclass(slots=True)
class Written:
    """A call as a model wrote it. `name` is empty if it has none. `source` is its own text where a block holds several.
    `alias` is what it means if there is no tool of its full name; `otherwise` how else it can be read, if there is
    none."""

    name: str
    arguments: Arguments
    call_id: str | None = None
    source: str | None = None
    alias: str | None = None
    otherwise: Written | None = None


@dataclass(slots=True)
class Unreadable:
    """Arguments that cannot be read, and why."""

    flaw: str

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        raise ValueError(self.flaw)


def object_text(members: Iterable[tuple[str, str]]) -> str:
    """An object of JSON texts."""
    return f"{{{','.join([f'{json_string(key)}:{text}' for key, text in members])}}}"
