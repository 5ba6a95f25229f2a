"""Messages of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

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
