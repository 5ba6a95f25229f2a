"""Checks of the installed package: the scanner, and optional packages that the configuration uses. A missing required
package is a mistake of the configuration."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator

from ..._version import __version__
from ...config import GatewayConfig
from ...configuration.checks import effective_routes
from ...fastparse import IMPLEMENTATION
from ...server.starting import NOT_BUILT, SWITCHED_OFF
from .finding import Finding, ok, warning


def installation(config: GatewayConfig) -> Iterator[Finding]:
    """Yields the findings for the package."""
    yield ok(f"toolwire {__version__} on Python {platform.python_version()}")
    if IMPLEMENTATION == "python":
        off = bool(os.environ.get("TOOLWIRE_NO_EXTENSIONS"))
        yield warning(
            "The compiled scanner is not in use.",
            "The scanner in Python is used, which needs many times the CPU.",
            SWITCHED_OFF if off else NOT_BUILT,
        )
    else:
        yield ok("The compiled scanner is in use.")
    yield from _counting(config)


def _counting(config: GatewayConfig) -> Iterator[Finding]:
    routes = effective_routes(config)
    if importlib.util.find_spec("tiktoken") is None:
        if any("estimate" in (route.options.usage.source, route.options.usage.count) for route in routes):
            yield warning(
                "tiktoken is not installed, and a route estimates `usage`.",
                "Tokens are estimated from bytes.",
                "Install it: pip install 'toolwire[tokens]'",
            )
        return
    from tiktoken import list_encoding_names

    known = list_encoding_names()
    for encoding in dict.fromkeys(route.options.usage.encoding for route in routes):
        if encoding not in known:
            yield warning(
                f"tiktoken has no encoding {encoding!r} (`usage.encoding`).",
                "If a server reports no token counts, they are estimated from bytes.",
                f"Use one of {', '.join(known)}.",
            )
