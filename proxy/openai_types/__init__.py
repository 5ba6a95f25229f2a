"""OpenAI's tool objects as values, for programs that use this package without its server (R4).

These are the wire objects of Chat Completions, one class each, named as OpenAI names them. Some classes of
`toolwire.model` have the same names: those are the gateway's protocol-independent values, these are the wire objects.
`toolwire.protocols.chat.protocol` converts whole requests and answers between the two (`read_request`, `write_request`,
`read_reply`, `write_reply`); `ToolCall.to_model` and `ToolCall.from_model` convert a single call.

Every class has `encode()` (returns a JSON value) and `decode(value)` (takes a JSON value, or JSON text as str or
bytes); `decode(encode(x)) == x`. Absent fields are None and are not written. Decoding ignores fields that a class does
not know, except for `ChatRequest`, which keeps them in `extra`. `decode` raises `DecodeError`, a `ValueError` with the
path of the mistake.
"""

from __future__ import annotations

from ..support.decoding import DecodeError, decode, encode
from .calls import FunctionDefinition, ToolCall, ToolCallFunction, ToolChoice, ToolDefinition
from .conversation import (
    ChatRequest,
    ChatResponse,
    Choice,
    Delta,
    ToolCallAccumulator,
    ToolCallDelta,
    ToolCallFunctionDelta,
    Usage,
)
from .messages import Message, ToolResult, ToolResultContent

__all__ = [
    "ChatRequest", "ChatResponse", "Choice", "DecodeError", "Delta", "FunctionDefinition", "Message", "ToolCall",
    "ToolCallAccumulator", "ToolCallDelta", "ToolCallFunction", "ToolCallFunctionDelta", "ToolChoice", "ToolDefinition",
    "ToolResult", "ToolResultContent", "Usage", "decode", "encode",
]  # fmt: skip
