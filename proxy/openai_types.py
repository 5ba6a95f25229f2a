"""OpenAI's tool objects as values, for programs that use this package without its server (R4).

These are the wire objects of Chat Completions, one class each, named as OpenAI names them. Some names also stand in
`proxy.model`, on purpose: there they are what the gateway thinks in, here they are what is on the wire. Whole requests and
answers are translated between the two by `proxy.protocols.chat.protocol` (`read_request`, `write_request`, `read_reply`,
`write_reply`); `ToolCall.to_model` and `ToolCall.from_model` do it for a single call.

Every class has `encode()` (a JSON value) and `decode(value)` (a JSON value, or JSON text as str or bytes);
`decode(encode(x)) == x`. Absent fields are None and are not written. Fields that a class does not know are ignored when
decoding, except by `ChatRequest`, which keeps them in `extra`. `decode` raises `DecodeError`, a `ValueError` that names
the path of what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import orjson

from .model import ToolUse
from .protocols.call_deltas import CallDeltas
from .protocols.wire import dump
from .support.decoding import DecodeError, Fields, Wire, decode, encode, present

__all__ = [
    "ChatRequest", "ChatResponse", "Choice", "DecodeError", "Delta", "FunctionDefinition", "Message", "ToolCall",
    "ToolCallAccumulator", "ToolCallDelta", "ToolCallFunction", "ToolCallFunctionDelta", "ToolChoice", "ToolDefinition",
    "ToolResult", "ToolResultContent", "Usage", "decode", "encode",
]  # fmt: skip

_FinishWord = Literal["stop", "length", "tool_calls", "content_filter"]

# --- tools ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FunctionDefinition(Wire):
    """The function of a tool. `parameters` is a JSON Schema, None for no parameters; `strict` None for unset."""

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
    """A function tool. Reads the nested shape and the flat one, the outer field winning (R3.1); writes the first."""

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
    """`auto`, `none`, `required`, or one function by name (R4.3)."""

    mode: Literal["auto", "none", "required", "function"] = "auto"
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.mode == "function") != (self.name is not None):
            raise ValueError("a ToolChoice has a name exactly when its mode is 'function'")

    @classmethod
    def function(cls, name: str) -> Self:
        """The choice of the function `name`."""
        return cls("function", name)

    @classmethod
    def decode(cls, value: Any) -> Self:
        """Also takes the bare words. Raises `DecodeError` for all but the four exact forms."""
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


# --- calls and results ----------------------------------------------------------------------------------------------


class ToolCallFunction(Wire):
    """Name and arguments of a call.

    `arguments` is JSON text; a dict or list given instead is stored as its compact JSON text (R4.4). Immutable by
    convention.
    """

    __slots__ = ("_parsed", "arguments", "name")

    def __init__(self, name: str, arguments: str | Mapping[str, Any] | list[Any]) -> None:
        self.name = name
        self.arguments = arguments if isinstance(arguments, str) else dump(arguments).decode()
        self._parsed: tuple[Any] | None = None

    def arguments_json(self) -> Any:
        """The parsed arguments, parsed on first use. Raises `ValueError` if they are not JSON."""
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
    """A call that an assistant made."""

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
        """The same call in the gateway's own model."""
        return ToolUse(self.id, self.function.name, self.function.arguments)

    @classmethod
    def from_model(cls, use: ToolUse) -> Self:
        """The wire form of a function call. Raises `ValueError` for a custom tool's."""
        if use.kind != "function":
            raise ValueError(f"{use.name!r} is a call of a custom tool, which has no arguments but free text")
        return cls(use.call_id, ToolCallFunction(use.name, use.arguments))


@dataclass(frozen=True, slots=True)
class ToolResultContent(Wire):
    """What a tool gave back: text (`kind` "text", `value` a str) or any JSON value (`kind` "json") (R4.2).

    `encode` gives a JSON string for text and the value itself for JSON. On the Chat wire, where content must be a string,
    `chat_text` is what is sent. A JSON string is the same as text and is stored as text.
    """

    kind: Literal["text", "json"]
    value: Any

    def __post_init__(self) -> None:
        if isinstance(self.value, str) != (self.kind == "text"):
            raise ValueError("the value of a text is a str, and a str is always a text")

    @classmethod
    def text(cls, text: str) -> Self:
        """A text."""
        return cls("text", text)

    @classmethod
    def json(cls, value: Any) -> Self:
        """A JSON value; a str becomes a text."""
        return cls("text" if isinstance(value, str) else "json", value)

    @property
    def chat_text(self) -> str:
        """The text itself, or the compact JSON text of the value."""
        return self.value if self.kind == "text" else dump(self.value).decode()

    @classmethod
    def decode(cls, value: Any) -> Self:
        """The content in a JSON value. A str is itself the text, not JSON text; bytes are JSON text."""
        return cls.json(value) if isinstance(value, str) else super(ToolResultContent, cls).decode(value)

    @classmethod
    def _read(cls, value: Any, path: str) -> Self:
        return cls.json(value)

    def encode(self) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class ToolResult(Wire):
    """The answer to the call `tool_call_id`. `message()` is its form on the Chat wire."""

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
        """The `tool` message that brings this result to a model."""
        return Message("tool", self.content.chat_text, tool_call_id=self.tool_call_id)


# --- messages, requests, answers ------------------------------------------------------------------------------------


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
class Usage(Wire):
    """Token counts; `total_tokens` is always the sum."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def total_tokens(self) -> int:
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
    """A Chat Completions request. Fields without a place here are kept in `extra` under their wire names."""

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
    """One answer, whole (`message`) or streamed (`delta`): exactly one of the two is set.

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
            said = {"message": {"refusal": None, **self.message.encode()}}
        else:
            said = {"delta": self.delta.encode() if self.delta else {}}
        return {"index": self.index, **said, "logprobs": None, "finish_reason": self.finish_reason}


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


# --- streams --------------------------------------------------------------------------------------------------------


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
        for place, delta in enumerate(deltas):
            function = delta.function or ToolCallFunctionDelta()
            self._drafts.of(delta.index, place, delta.id or "", function.name or "").take(function.arguments or "")

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls so far, in index order; no arguments are `{}`. Ids and names that never came are empty."""
        drafts = sorted(self._drafts.drafts, key=lambda draft: draft.slot)
        return tuple(
            ToolCall(draft.id, ToolCallFunction(draft.name, "{}" if draft.is_blank else draft.arguments))
            for draft in drafts
        )
