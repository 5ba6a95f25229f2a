"""Call deltas of Chat Completions' streams, and their accumulator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

from ..protocols.shared.call_deltas import CallDeltas
from ..support.decoding import Fields, Wire, present
from .calls import ToolCall, ToolCallFunction


@dataclass(frozen=True, slots=True)
class ToolCallFunctionDelta(Wire):
    """A delta of a call's function: the complete name, a fragment of the arguments."""

    name: str | None = None
    arguments: str | None = None

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        return cls(fields.opt("name", str), fields.opt("arguments", str))

    def encode(self) -> dict[str, Any]:
        return present(name=self.name, arguments=self.arguments)


@dataclass(frozen=True, slots=True)
class ToolCallDelta(Wire):
    """A delta of a call. `index` is None if a server omits it; then the delta's position in the chunk is used."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: ToolCallFunctionDelta | None = None

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        return cls(
            fields.opt("index", int),
            fields.opt("id", str),
            fields.opt("type", str),
            fields.sub("function", ToolCallFunctionDelta),
        )

    def encode(self) -> dict[str, Any]:
        function = None if self.function is None else self.function.encode()
        return present(index=self.index, id=self.id, type=self.type, function=function)


@dataclass(frozen=True, slots=True)
class Delta(Wire):
    """The delta of a message in one chunk."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()
    refusal: str | None = None

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        role = None if value.get("role") is None else fields.one_of("role", ("assistant",))
        calls = fields.each("tool_calls", ToolCallDelta)
        return cls(role, fields.opt("content", str), calls, fields.opt("refusal", str))

    def encode(self) -> dict[str, Any]:
        calls = [call.encode() for call in self.tool_calls] or None
        return present(role=self.role, content=self.content, tool_calls=calls, refusal=self.refusal)


class ToolCallAccumulator:
    """Merges the call deltas of one answer into calls (R4.5).

    Tolerates repeated ids and names, a missing index (the position in the chunk is used), several calls with different
    ids on one index, and arguments that repeat everything so far.
    """

    def __init__(self) -> None:
        self._drafts = CallDeltas()

    def add(self, deltas: Iterable[ToolCallDelta]) -> None:
        """Adds the call deltas of one chunk, in order."""
        chunk_deltas = list(deltas)
        for place, delta in enumerate(chunk_deltas):
            function = delta.function or ToolCallFunctionDelta()
            id, name, text = delta.id or "", function.name or "", function.arguments or ""
            self._drafts.of(delta.index, None if len(chunk_deltas) == 1 else place, id, name, text).take(text)

    def calls(self) -> tuple[ToolCall, ...]:
        """Returns the calls so far, in index order. Empty arguments become `{}`; missing ids and names are empty."""
        drafts = sorted(self._drafts.drafts, key=lambda draft: draft.slot)
        return tuple(
            ToolCall(draft.id, ToolCallFunction(draft.name, "{}" if draft.is_blank else draft.arguments))
            for draft in drafts
        )
