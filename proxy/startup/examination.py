"""Finds all mistakes of a configuration, for `toolwire check` and `toolwire doctor`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..config import GatewayConfig
from ..configuration.mistakes import Mistakes
from ..configuration.settings import examine
from ..configuration.telemetry_variables import unmet_variables
from ..registry import Registries
from .backend_loops import loop_mistakes
from .ineffective import idle_parts, ineffective_parts
from .names import name_mistakes


def examined(
    file: str | os.PathLike[str] | None, plugins: Registries, overrides: Mapping[str, Any] | None = None
) -> tuple[GatewayConfig, Mistakes]:
    """Returns the configuration, with default values in place of invalid ones, and all its mistakes. Imports and
    creates the plug-ins that it names and looks up host names that are used with the gateway's own port; opens no
    connection. Raises `ConfigError` if the file cannot be read or is not YAML."""
    config, mistakes = examine(file, overrides=overrides)
    mistakes.add(name_mistakes(config, plugins, mistakes, make_middlewares=True))
    mistakes.add(loop_mistakes(config, config.server.port))
    mistakes.add(list(ineffective_parts(config, plugins, mistakes)))
    mistakes.warnings += idle_parts(config, mistakes)
    mistakes.warnings += unmet_variables(config.telemetry, os.environ)
    return config, mistakes
