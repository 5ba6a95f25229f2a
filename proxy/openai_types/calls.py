"""Tool calls of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import orjson

from ..model import ToolUse
from ..protocols.shared.wire import dump
from ..support.decoding import Fields, Wire


class ToolCallFunction(Wire):
    """The name and arguments of a call.

    `arguments` is JSON text; a dict or list is stored as its compact JSON text (R4.4). Immutable by convention.
    """

    __slots__ = ("_parsed", "arguments", "name")

    def __init__(self, name: str, arguments: str | Mapping[str, Any] | list[Any]) -> None:
        self.name = name
        self.arguments = arguments if isinstance(arguments, str) else dump(arguments).decode()
        self._parsed: tuple[Any] | None = None

    def arguments_json(self) -> Any:
        """Returns the parsed arguments; they are parsed on first use. Raises `ValueError` if they are not JSON."""
        if self._parsed is None:
            self._parsed = (orjson.loads(self.arguments),)
        return self._parsed[0]

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        return cls(fields.get("name", str), fields.get("arguments", str))

    def encode(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": self.arguments}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCallFunction):
            return NotImplemented
        return (self.name, self.arguments) == (other.name, other.arguments)

    def __hash__(self) -> int:
        return hash((self.name, self.arguments))

    def __repr__(self) -> str:
        return f"ToolCallFunction(name={self.name!r}, arguments={self.arguments!r})"


@dataclass(frozen=True, slots=True)
class ToolCall(Wire):
    """A tool call of an assistant."""

    id: str
    function: ToolCallFunction
    type: ClassVar[str] = "function"

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        fields.one_of("type", ("function",))
        function = ToolCallFunction._read(fields.get("function", dict), f"{path}.function")
        return cls(fields.get("id", str), function)

    def encode(self) -> dict[str, Any]:
        return {"id": self.id, "type": "function", "function": self.function.encode()}

    def to_model(self) -> ToolUse:
        """Returns the same call as a `ToolUse` of `toolwire.model`."""
        return ToolUse(self.id, self.function.name, self.function.arguments)

    @classmethod
    def from_model(cls, use: ToolUse) -> Self:
        """Returns the wire form of a function call. Raises `ValueError` for a call of a custom tool."""
        if use.kind != "function":
            raise ValueError(f"{use.name!r} is a call of a custom tool, which has no arguments but free text")
        return cls(use.call_id, ToolCallFunction(use.name, use.arguments))
