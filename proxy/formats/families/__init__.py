"""The formats, one module for each family of models.

A module defines one or more `toolwire.formats.base.ToolFormat`. They are found here, so a new format needs its module
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from ..base import ToolFormat
from ..engine.templates import WITHOUT_FORMAT

_AUTO: Final = "auto"
"""The module of the format that is made of the others."""


def _formats_of(module: str) -> dict[str, ToolFormat]:
    """Returns the formats that a module defines, by their dotted paths."""
    name = f"{__name__}.{module}"
    found = vars(import_module(name)).items()
    return {f"{name}:{attribute}": value for attribute, value in found if isinstance(value, ToolFormat)}


@cache
def families() -> tuple[ToolFormat, ...]:
    """Returns the built-in formats except `auto`: modules by name, in each the formats as they are defined."""
    modules = sorted(module.name for module in iter_modules(__path__) if module.name != _AUTO)
    return tuple(value for module in modules for value in _formats_of(module).values())


@cache
def control_tokens() -> frozenset[str]:
    """Returns the control tokens of all known models, for a format that may be taught to any model."""
    return WITHOUT_FORMAT.union(*(made.own_tokens or () for made in families()))


def paths() -> Mapping[str, str]:
    """Returns the dotted paths of the built-in formats by their names and aliases."""
    modules = sorted(module.name for module in iter_modules(__path__))
    found = {path: made for module in modules for path, made in _formats_of(module).items()}
    return {name: path for path, made in found.items() for name in (made.name, *made.aliases)}
