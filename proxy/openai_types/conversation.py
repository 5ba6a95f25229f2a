"""Requests and answers of Chat Completions, whole and streamed, and the accumulator of streamed calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from ..protocols.shared.call_deltas import CallDeltas
from ..support.decoding import DecodeError, Fields, Wire, present
from .calls import ToolCall, ToolCallFunction, ToolChoice, ToolDefinition
from .messages import Message

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
