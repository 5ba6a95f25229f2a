"""OpenAI's tool objects as values, for programs that use this package without its server (R4).

These are the wire objects of Chat Completions, one class each, named as OpenAI names them. Some names also stand in
`toolwire.model`, on purpose: there they are what the gateway thinks in, here they are what is on the wire. Whole
requests and answers are translated between the two by `toolwire.protocols.chat.protocol` (`read_request`,
`write_request`, `read_reply`, `write_reply`); `ToolCall.to_model` and `ToolCall.from_model` do it for a single call.

Every class has `encode()` (a JSON value) and `decode(value)` (a JSON value, or JSON text as str or bytes);
`decode(encode(x)) == x`. Absent fields are None and are not written. Fields that a class does not know are ignored when
decoding, except by `ChatRequest`, which keeps them in `extra`. `decode` raises `DecodeError`, a `ValueError` that names
the path of what is wrong.
"""

from __future__ import annotations

from toolwire.openai_types.calls import ToolCall, ToolCallFunction
from toolwire.openai_types.conversation import ChatRequest, ChatResponse, Choice, Usage
from toolwire.openai_types.messages import Message
from toolwire.openai_types.results import ToolResult, ToolResultContent
from toolwire.openai_types.streams import Delta, ToolCallAccumulator, ToolCallDelta, ToolCallFunctionDelta
from toolwire.openai_types.tools import FunctionDefinition, ToolChoice, ToolDefinition
from toolwire.support.decoding import DecodeError, decode, encode

__all__ = [
    "ChatRequest", "ChatResponse", "Choice", "DecodeError", "Delta", "FunctionDefinition", "Message", "ToolCall",
    "ToolCallAccumulator", "ToolCallDelta", "ToolCallFunction", "ToolCallFunctionDelta", "ToolChoice", "ToolDefinition",
    "ToolResult", "ToolResultContent", "Usage", "decode", "encode",
]  # fmt: skip
