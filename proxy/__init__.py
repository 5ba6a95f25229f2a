"""toolwire: exact, structured tool calls from models that only write text.

The public names of the package. They are loaded when first used, so that `import proxy` does nothing else: a program that
only scans text never imports the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .app import create_app
    from .config import GatewayConfig
    from .errors import BackendFault, ClientFault, GatewayError, ModelFault
    from .exchange import EXCHANGE, Exchange
    from .middleware import Middleware
    from .reply import Reply
    from .scanner import open_scanner
    from .schema import validate_tool_name, validate_tool_schema
    from .settings import load
    from .toolapi import (
        ChatRequest,
        ChatResponse,
        Choice,
        Delta,
        FunctionDefinition,
        Message,
        ToolCall,
        ToolCallAccumulator,
        ToolCallDelta,
        ToolCallFunction,
        ToolCallFunctionDelta,
        ToolChoice,
        ToolDefinition,
        ToolResult,
        ToolResultContent,
        Usage,
        decode,
        encode,
    )

_HOME = {
    "app": ("create_app",),
    "config": ("GatewayConfig",),
    "errors": ("BackendFault", "ClientFault", "GatewayError", "ModelFault"),
    "exchange": ("EXCHANGE", "Exchange"),
    "middleware": ("Middleware",),
    "reply": ("Reply",),
    "scanner": ("open_scanner",),
    "schema": ("validate_tool_name", "validate_tool_schema"),
    "settings": ("load",),
    "toolapi": (
        "ChatRequest",
        "ChatResponse",
        "Choice",
        "Delta",
        "FunctionDefinition",
        "Message",
        "ToolCall",
        "ToolCallAccumulator",
        "ToolCallDelta",
        "ToolCallFunction",
        "ToolCallFunctionDelta",
        "ToolChoice",
        "ToolDefinition",
        "ToolResult",
        "ToolResultContent",
        "Usage",
        "decode",
        "encode",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "EXCHANGE",
    "BackendFault",
    "ChatRequest",
    "ChatResponse",
    "Choice",
    "ClientFault",
    "Delta",
    "Exchange",
    "FunctionDefinition",
    "GatewayConfig",
    "GatewayError",
    "Message",
    "Middleware",
    "ModelFault",
    "Reply",
    "ToolCall",
    "ToolCallAccumulator",
    "ToolCallDelta",
    "ToolCallFunction",
    "ToolCallFunctionDelta",
    "ToolChoice",
    "ToolDefinition",
    "ToolResult",
    "ToolResultContent",
    "Usage",
    "__version__",
    "create_app",
    "decode",
    "encode",
    "load",
    "open_scanner",
    "validate_tool_name",
    "validate_tool_schema",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
