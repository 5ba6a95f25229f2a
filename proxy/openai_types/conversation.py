"""Requests and answers of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from ..support.decoding import DecodeError, Fields, Wire, present
from .messages import Message
from .streams import Delta
from .tools import ToolChoice, ToolDefinition

_FinishWord = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class Usage(Wire):
    """Token counts; `total_tokens` is always the sum."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """The sum of both counts."""
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        return cls(fields.get("prompt_tokens", int), fields.get("completion_tokens", int))

    def encode(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
        }


@dataclass(frozen=True, slots=True)
class ChatRequest(Wire):
    """A Chat Completions request. Fields that this class does not have are kept in `extra` under their wire names."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_completion_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        choice = fields.sub("tool_choice", ToolChoice)
        fields.get("messages", list)
        return cls(
            model=fields.get("model", str),
            messages=fields.each("messages", Message),
            tools=fields.each("tools", ToolDefinition),
            tool_choice=choice,
            parallel_tool_calls=fields.opt("parallel_tool_calls", bool),
            stream=fields.opt("stream", bool),
            temperature=fields.opt("temperature", float),
            top_p=fields.opt("top_p", float),
            max_completion_tokens=fields.opt("max_completion_tokens", int),
            extra=fields.rest({*cls.__slots__} - {"extra"}),
        )

    def encode(self) -> dict[str, Any]:
        """Returns the JSON object; fields in `extra` are written unchanged."""
        return {
            **self.extra,
            "model": self.model,
            "messages": [message.encode() for message in self.messages],
            **present(
                tools=[tool.encode() for tool in self.tools] or None,
                tool_choice=None if self.tool_choice is None else self.tool_choice.encode(),
                parallel_tool_calls=self.parallel_tool_calls,
                stream=self.stream,
                temperature=self.temperature,
                top_p=self.top_p,
                max_completion_tokens=self.max_completion_tokens,
            ),
        }


_REASONS: tuple[str, ...] = ("stop", "length", "tool_calls", "content_filter")


@dataclass(frozen=True, slots=True)
class Choice(Wire):
    """One answer, either whole (`message`) or streamed (`delta`). Raises `ValueError` unless exactly one of the two is
    set.

    `finish_reason` is None only in chunks before the last.
    """

    index: int
    message: Message | None = None
    delta: Delta | None = None
    finish_reason: _FinishWord | None = None

    def __post_init__(self) -> None:
        if (self.message is None) == (self.delta is None):
            raise ValueError("a Choice has either a message or a delta")

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        message, delta = fields.sub("message", Message), fields.sub("delta", Delta)
        if (message is None) == (delta is None):
            raise DecodeError(path, "either a message or a delta", value)
        reason = None if value.get("finish_reason") is None else fields.one_of("finish_reason", _REASONS)
        return cls(fields.get("index", int), message, delta, reason)

    def encode(self) -> dict[str, Any]:
        if self.message is not None:
            content = {"message": {"refusal": None, **self.message.encode()}}
        else:
            content = {"delta": self.delta.encode() if self.delta else {}}
        return {"index": self.index, **content, "logprobs": None, "finish_reason": self.finish_reason}


@dataclass(frozen=True, slots=True)
class ChatResponse(Wire):
    """A whole answer (`chat.completion`) or one chunk of a streamed one (`chat.completion.chunk`)."""

    id: str
    model: str
    created: int
    choices: tuple[Choice, ...]
    usage: Usage | None = None
    object: Literal["chat.completion", "chat.completion.chunk"] = "chat.completion"

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        fields = Fields(value, path)
        kind = fields.one_of("object", ("chat.completion", "chat.completion.chunk"), "chat.completion")
        fields.get("choices", list)
        return cls(
            fields.get("id", str),
            fields.get("model", str),
            fields.get("created", int),
            fields.each("choices", Choice),
            fields.sub("usage", Usage),
            kind,
        )

    def encode(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "choices": [choice.encode() for choice in self.choices],
            **present(usage=None if self.usage is None else self.usage.encode()),
        }
