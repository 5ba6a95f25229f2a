"""The order of the middlewares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolwire.config.documented import doc

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
"""Outermost first. See docs/explanation for why this order."""

ON_DEMAND: tuple[str, ...] = ("rate_limit",)
"""Outermost in every chain that does not name them, where they have something to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddlewareConfig:
    """One entry of a chain. In the file: a name, or a mapping with `use` and the options."""

    use: str = doc("Built-in name, entry-point name, or dotted path `package.module:Attribute`.")
    on_failure: Literal["fail", "skip"] = doc(
        "An unexpected exception fails the request, or the middleware is skipped.", default="fail"
    )
    options: Mapping[str, Any] = doc("Options of the middleware, checked by its own model.", default_factory=dict)


def default_chain() -> tuple[MiddlewareConfig, ...]:
    """The built-in chain as configuration."""
    return tuple(MiddlewareConfig(use=name) for name in DEFAULT_CHAIN)
