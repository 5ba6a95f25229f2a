"""The paths at which requests pass as they are."""

from __future__ import annotations

from toolwire.config import GatewayConfig
from toolwire.protocols.shared.passed import PassedProtocol
from toolwire.protocols.sides import ClientSides
from toolwire.support.conversion import ConfigError


def passed_paths(config: GatewayConfig, clients: ClientSides) -> list[PassedProtocol]:
    """What passes as it is. Raises `ConfigError` for a path at which something else is served."""
    passed = [PassedProtocol(path) for path in config.server.pass_through]
    taken = {path for client in clients.sides for path in (client.path, client.count_path)} | {"/models"}
    names = {client.name for client in clients.sides}
    for index, one in enumerate(passed):
        if one.path in taken or one.name in names:
            raise ConfigError(f"server.pass_through[{index}]: something else is served at {one.path}")
        taken.add(one.path)
    return passed
