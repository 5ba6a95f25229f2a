"""toolwire: exact, structured tool calls from models that only write text.

The public names of the package: what middlewares receive and return, what starts the server, and the scanner. Each is
loaded when it is first used, so a program that only scans text never imports the server. OpenAI's own tool objects,
some of which have the same names, are in `toolwire.openai_types`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .app import create_app
    from .config import GatewayConfig, MiddlewareConfig, RouteOptions
    from .configuration.settings import load
    from .errors import BackendFault, ClientFault, GatewayError, ModelFault
    from .events import BlockKind, Call, Close, Delta, Event, Fault, Finish, Kind, Open, Start
    from .folding import fold, unfold
    from .model import (
        FinishReason,
        Image,
        Message,
        ModelReply,
        ModelRequest,
        Part,
        Reasoning,
        Refusal,
        ReplyChoice,
        Sampling,
        Text,
        ToolChoice,
        ToolResult,
        ToolSpec,
        ToolUse,
        Usage,
    )
    from .pipeline.answers.reply import Reply
    from .pipeline.chain.middleware import ChainPlace, Handler, Middleware
    from .pipeline.exchange.request_state import EXCHANGE, Exchange
    from .record import AccessField, CounterSpec
    from .scanner import open_scanner
    from .schemas.schema import validate_tool_name, validate_tool_schema
    from .testing import run_chain

_HOME = {
    "app": ("create_app",),
    "config": ("GatewayConfig", "MiddlewareConfig", "RouteOptions"),
    "errors": ("BackendFault", "ClientFault", "GatewayError", "ModelFault"),
    "events": (
        "BlockKind",
        "Call",
        "Close",
        "Delta",
        "Event",
        "Fault",
        "Finish",
        "Kind",
        "Open",
        "Start",
    ),
    "folding": ("fold", "unfold"),
    "pipeline.exchange.request_state": ("EXCHANGE", "Exchange"),
    "pipeline.chain.middleware": ("Handler", "Middleware", "ChainPlace"),
    "model": (
        "FinishReason",
        "Image",
        "Message",
        "ModelReply",
        "ModelRequest",
        "Part",
        "Reasoning",
        "Refusal",
        "ReplyChoice",
        "Sampling",
        "Text",
        "ToolChoice",
        "ToolResult",
        "ToolSpec",
        "ToolUse",
        "Usage",
    ),
    "pipeline.answers.reply": ("Reply",),
    "record": ("AccessField", "CounterSpec"),
    "scanner": ("open_scanner",),
    "schemas.schema": ("validate_tool_name", "validate_tool_schema"),
    "configuration.settings": ("load",),
    "testing": ("run_chain",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "EXCHANGE",
    "AccessField",
    "BackendFault",
    "BlockKind",
    "Call",
    "ChainPlace",
    "ClientFault",
    "Close",
    "CounterSpec",
    "Delta",
    "Event",
    "Exchange",
    "Fault",
    "Finish",
    "FinishReason",
    "GatewayConfig",
    "GatewayError",
    "Handler",
    "Image",
    "Kind",
    "Message",
    "Middleware",
    "MiddlewareConfig",
    "ModelFault",
    "ModelReply",
    "ModelRequest",
    "Open",
    "Part",
    "Reasoning",
    "Refusal",
    "Reply",
    "ReplyChoice",
    "RouteOptions",
    "Sampling",
    "Start",
    "Text",
    "ToolChoice",
    "ToolResult",
    "ToolSpec",
    "ToolUse",
    "Usage",
    "__version__",
    "create_app",
    "fold",
    "load",
    "open_scanner",
    "run_chain",
    "unfold",
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
