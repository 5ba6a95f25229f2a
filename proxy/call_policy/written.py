"""Calls and arguments as a model wrote them, before it is known whether the tool may be called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from ..repair.literals import json_string
from ..repair.relaxed_json import RepairKind


class ParsedArguments(NamedTuple):
    """Arguments as JSON text, how they were repaired (R9.3), and whether they were an object where a string is taught
    (C2)."""

    text: str
    repaired: tuple[RepairKind, ...] = ()
    unwrapped: bool = False


NAMESPACE: Final = "functions."
"""The prefix that harmony and Kimi write before every function's name. Other models write it too."""


class WrittenArguments(Protocol):
    """The arguments of a call, as the model wrote them."""

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        """Returns the arguments for a tool with this schema (None: unknown). With `repair`, almost valid JSON is
        accepted; with `objects`, an object where a string is taught. Raises `ValueError` if they cannot be read."""


@dataclass(slots=True)
class WrittenCall:
    """A call as a model wrote it. `name` is empty if it has none. `source` is the call's own text if a block holds
    several. `alias` is the name to try if no tool has `name`; `otherwise` is the next reading to try. `slipped`: no
    format asks for the `NAMESPACE` that the name has; its alias is the name without it, but not for a strict tool."""

    name: str
    arguments: WrittenArguments
    call_id: str | None = None
    source: str | None = None
    alias: str | None = None
    otherwise: WrittenCall | None = None
    slipped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.alias is None and self.name.startswith(NAMESPACE):
            self.alias = self.name.removeprefix(NAMESPACE)
            self.slipped = True


@dataclass(slots=True)
class UnreadableArguments:
    """Arguments that cannot be read; `flaw` says why."""

    flaw: str

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        raise ValueError(self.flaw)


def object_text(members: Iterable[tuple[str, str]]) -> str:
    """Returns a JSON object with these members, whose values are JSON texts."""
    return f"{{{','.join([f'{json_string(key)}:{text}' for key, text in members])}}}"
