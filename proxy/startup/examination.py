"""Everything that is wrong with a configuration: what `toolwire check` and `toolwire doctor` say of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..config import GatewayConfig
from ..configuration.mistakes import Mistakes
from ..configuration.settings import examine
from ..registry import Registries
from .circles import leading_back
from .names import name_mistakes
from .useless import idle_parts, useless


def examined(
    file: str | os.PathLike[str] | None, plugins: Registries, overrides: Mapping[str, Any] | None = None
) -> tuple[GatewayConfig, Mistakes]:
    """The configuration, with stand-ins for what cannot be used, and all mistakes in it. Imports the plug-ins that it
    names and makes them, looks up names of hosts that come with the gateway's own port, opens nothing. Raises
    `ConfigError` for a file that cannot be read or is no YAML."""
    config, mistakes = examine(file, overrides=overrides)
    mistakes.add(name_mistakes(config, plugins, mistakes, make_middlewares=True))
    mistakes.add(leading_back(config, config.server.port))
    mistakes.add(list(useless(config, plugins, mistakes)))
    mistakes.warnings += idle_parts(config, mistakes)
    return config, mistakes
