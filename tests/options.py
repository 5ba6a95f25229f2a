"""Options of a route, each by its own name: tests that are about one need not say in which section it stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.config import MOVED_OPTIONS, RouteOptions


def route_options(**options: Any) -> RouteOptions:
    """The defaults but for these: keys of sections as they were called before they had one, and sections."""
    out = RouteOptions(**{key: value for key, value in options.items() if key not in MOVED_OPTIONS})
    for key in filter(MOVED_OPTIONS.__contains__, options):
        section, _, name = MOVED_OPTIONS[key].partition(".")
        changed: dict[str, Any] = {section: replace(getattr(out, section), **{name: options[key]})}
        out = replace(out, **changed)
    return out
