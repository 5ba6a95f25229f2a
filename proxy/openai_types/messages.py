"""Messages and tool results of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from ..protocols.shared.wire import dump
from ..support.decoding import DecodeError, Fields, Wire, present
from .calls import ToolCall


@dataclass(frozen=True, slots=True)
class Message(Wire):
    """A message. `content` is text, content parts as JSON objects, or None."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[Mapping[str, Any], ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    refusal: str | None = None

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        content = value.get("content")
        if isinstance(content, list) and all(isinstance(part, dict) for part in content):
            content = tuple(content)
        elif content is not None and not isinstance(content, str):
            raise DecodeError(f"{path}.content", "a string, content parts or null", content)
        return cls(
            fields.one_of("role", ("system", "developer", "user", "assistant", "tool")),
            content,
            fields.opt("name", str),
            fields.each("tool_calls", ToolCall),
            fields.opt("tool_call_id", str),
            fields.opt("refusal", str),
        )

    def encode(self) -> dict[str, Any]:
        content = self.content if isinstance(self.content, str) or self.content is None else list(self.content)
        return {
            "role": self.role,
            "content": content,
            **present(
                name=self.name,
                tool_calls=[call.encode() for call in self.tool_calls] or None,
                tool_call_id=self.tool_call_id,
                refusal=self.refusal,
            ),
        }


@dataclass(frozen=True, slots=True)
class ToolResultContent(Wire):
    """The content of a tool result: text (`kind` "text", `value` a str) or any JSON value (`kind` "json") (R4.2).

    `encode` returns a JSON string for text and the value itself for JSON. Content on the Chat wire has to be a string:
    `chat_text`. A JSON string is stored as text. Raises `ValueError` if `kind` and `value` do not match.
    """

    kind: Literal["text", "json"]
    value: Any

    def __post_init__(self) -> None:
        if isinstance(self.value, str) != (self.kind == "text"):
            raise ValueError("the value of a text is a str, and a str is always a text")

    @classmethod
    def text(cls, text: str) -> Self:
        """Returns the content with this text."""
        return cls("text", text)

    @classmethod
    def json(cls, value: Any) -> Self:
        """Returns the content with this JSON value; a str becomes a text."""
        return cls("text" if isinstance(value, str) else "json", value)

    @property
    def chat_text(self) -> str:
        """The content as a string: the text itself, or the compact JSON text of the value."""
        return self.value if self.kind == "text" else dump(self.value).decode()

    @classmethod
    def decode(cls, value: Any) -> Self:
        """Returns the content of a JSON value. A str is the text itself, not JSON text; bytes are JSON text."""
        return cls.json(value) if isinstance(value, str) else super(ToolResultContent, cls).decode(value)

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        return cls.json(value)

    def encode(self) -> Any:
        """Returns the JSON value; text is a string."""
        return self.value


@dataclass(frozen=True, slots=True)
class ToolResult(Wire):
    """The result of the call `tool_call_id`. `message()` is its form on the Chat wire."""

    tool_call_id: str
    content: ToolResultContent

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        if "content" not in value:
            raise DecodeError(f"{path}.content", "text or a JSON value", None)
        return cls(fields.get("tool_call_id", str), ToolResultContent.json(value["content"]))

    def encode(self) -> dict[str, Any]:
        return {"tool_call_id": self.tool_call_id, "content": self.content.encode()}

    def message(self) -> Message:
        """Returns the `tool` message with this result."""
        return Message("tool", self.content.chat_text, tool_call_id=self.tool_call_id)
