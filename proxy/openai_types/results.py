"""Tool results, as values and as messages of Chat Completions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from ..protocols.shared.wire import dump
from ..support.decoding import DecodeError, Fields, Wire
from .messages import Message


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
