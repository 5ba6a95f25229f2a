"""Tools, tool choices and tool calls of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import orjson

from ..model import ToolUse
from ..protocols.shared.wire import dump
from ..support.decoding import DecodeError, Fields, Wire, present


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


@dataclass(frozen=True, slots=True)
class FunctionDefinition(Wire):
    """The function of a tool. `parameters` is a JSON Schema or None for no parameters; `strict` is None if unset."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        return cls(
            fields.get("name", str),
            fields.opt("description", str),
            fields.opt("parameters", dict),
            fields.opt("strict", bool),
        )

    def encode(self) -> dict[str, Any]:
        return present(name=self.name, description=self.description, parameters=self.parameters, strict=self.strict)


@dataclass(frozen=True, slots=True)
class ToolDefinition(Wire):
    """A function tool. Decodes the nested form and the flat one (R3.1), in which an outer field wins; encodes the
    nested form."""

    function: FunctionDefinition
    type: ClassVar[str] = "function"

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        fields.one_of("type", ("function",))
        inner = fields.opt("function", dict)
        outer = fields.rest(("type", "function"))
        where = path if inner is None else f"{path}.function"
        return cls(FunctionDefinition._read({**(inner or {}), **outer}, where))

    def encode(self) -> dict[str, Any]:
        return {"type": "function", "function": self.function.encode()}


@dataclass(frozen=True, slots=True)
class ToolChoice(Wire):
    """A tool choice: `auto`, `none`, `required`, or one function by name (R4.3). Raises `ValueError` unless a name is
    set exactly when `mode` is `function`."""

    mode: Literal["auto", "none", "required", "function"] = "auto"
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.mode == "function") != (self.name is not None):
            raise ValueError("a ToolChoice has a name exactly when its mode is 'function'")

    @classmethod
    def function(cls, name: str) -> Self:
        """Returns the choice of the function `name`."""
        return cls("function", name)

    @classmethod
    def decode(cls, value: Any) -> Self:
        """Returns the choice in a JSON value or a bare word. Raises `DecodeError` for anything except the four exact
        forms."""
        if isinstance(value, str) and value in ("auto", "none", "required"):
            return cls._read(value, cls.__name__)
        return super(ToolChoice, cls).decode(value)

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        match value:
            case "auto" | "none" | "required":
                return cls(value)
            case {"type": "function", "function": {"name": str(name), **inner}, **outer} if not inner and not outer:
                return cls("function", name)
            case _:
                expected = '"auto", "none", "required" or {"type":"function","function":{"name":...}}'
                raise DecodeError(path, expected, value)

    def encode(self) -> Any:
        return self.mode if self.name is None else {"type": "function", "function": {"name": self.name}}
