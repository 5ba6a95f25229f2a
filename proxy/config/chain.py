"""The order of the middlewares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .documented import doc

DEFAULT_CHAIN: tuple[str, ...] = (
    "conversation",
    "validation",
    "loop_detection",
    "execution",
    "output_format",
    "reask",
    "tool_mode",
    "arguments",
    "transformation",
    "injection",
    "forwarding",
)
"""Names of the middlewares of the default chain, outermost first. docs/explanation gives the reasons for this order."""

ON_DEMAND: tuple[str, ...] = ("rate_limit",)
"""Middlewares that are added outermost to chains that do not name them, if they have work to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareConfig:
    """A middleware of a chain. In the file: a name, or a mapping with `use` and the options."""

    use: str = doc("A built-in name, an entry-point name, or a dotted path `package.module:Attribute`.")
    on_failure: Literal["fail", "skip"] = doc(
        "After an unexpected exception: the request fails, or the middleware is skipped.",
        default="fail",
    )
    options: Mapping[str, Any] = doc("Options of the middleware.", default_factory=dict)


def default_chain() -> tuple[MiddlewareConfig, ...]:
    """Returns the built-in chain as configuration."""
    return tuple(MiddlewareConfig(use=name) for name in DEFAULT_CHAIN)
