"""Options of a route, each by its own name: tests that are about one need not say in which section it stands. And the
middlewares that work only under an option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from toolwire.config import DEFAULT_CHAIN, RouteOptions
from toolwire.registry import registries

IDLE: Final = {name for name in DEFAULT_CHAIN if "idle" in vars(registries().middlewares.get(name))} - {"reask"}
"""Middlewares of the default chain that are left out unless the configuration has work for them."""

_SECTION_OF: Final = {
    inner.name: section.name
    for section in fields(RouteOptions)
    if is_dataclass(getattr(RouteOptions(), section.name))
    for inner in fields(getattr(RouteOptions(), section.name))
}


def in_sections(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` as a configuration file has them; those that stand in no section yet are put into theirs."""
    whole = {field.name for field in fields(RouteOptions)}
    out = {key: value for key, value in options.items() if key in whole or key not in _SECTION_OF}
    for key in options.keys() - out.keys():
        section = _SECTION_OF[key]
        out[section] = {**out.get(section, {}), key: options[key]}
    return out


def route_options(**options: Any) -> RouteOptions:
    """The defaults but for these: options, or whole sections."""
    out = RouteOptions(**{key: value for key, value in options.items() if is_dataclass(value)})
    for key, value in in_sections({key: value for key, value in options.items() if not is_dataclass(value)}).items():
        out = replace(out, **{key: replace(getattr(out, key), **value) if isinstance(value, dict) else value})
    return out
