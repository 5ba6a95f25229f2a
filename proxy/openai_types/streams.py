"""The pieces in which Chat Completions streams calls, and what puts them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self

from toolwire.openai_types.calls import ToolCall, ToolCallFunction
from toolwire.protocols.shared.call_deltas import CallDeltas
from toolwire.support.decoding import Fields, Wire, present


@dataclass(frozen=True, slots=True)
class ToolCallFunctionDelta(Wire):
    """A piece of a call's function: the name comes whole, the arguments in fragments."""

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
    """A piece of a call. `index` is None where a server leaves it out; then the place in the chunk counts."""

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
    """What a chunk adds to a message."""

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
    """Folds the call deltas of one answer to calls (R4.5).

    Forgives repeated ids and names, a missing index (the place in the chunk counts), several calls on one index with
    different ids (each is a call), and arguments that repeat everything so far.
    """

    def __init__(self) -> None:
        self._drafts = CallDeltas()

    def add(self, deltas: Iterable[ToolCallDelta]) -> None:
        """Take the call deltas of one chunk, in order."""
        given = list(deltas)
        for place, delta in enumerate(given):
            function = delta.function or ToolCallFunctionDelta()
            id, name, text = delta.id or "", function.name or "", function.arguments or ""
            self._drafts.of(delta.index, None if len(given) == 1 else place, id, name, text).take(text)

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls so far, in index order; no arguments are `{}`. Ids and names that never came are empty."""
        drafts = sorted(self._drafts.drafts, key=lambda draft: draft.slot)
        return tuple(
            ToolCall(draft.id, ToolCallFunction(draft.name, "{}" if draft.is_blank else draft.arguments))
            for draft in drafts
        )
