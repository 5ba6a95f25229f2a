"""The paths whose requests are forwarded unchanged (`server.pass_through`)."""

from __future__ import annotations

from ..config import GatewayConfig
from ..protocols.base import ClientSides
from ..protocols.proxied.protocol import ProxiedProtocol
from ..support.conversion import ConfigError


def proxied_protocols(config: GatewayConfig, clients: ClientSides) -> list[ProxiedProtocol]:
    """Returns the protocols of the forwarded paths. Raises `ConfigError` for a path that the gateway serves itself."""
    proxied = [ProxiedProtocol(path) for path in config.server.pass_through]
    taken = {path for client in clients.sides for path in (client.path, client.count_path)} | {"/models"}
    names = {client.name for client in clients.sides}
    for index, one in enumerate(proxied):
        if one.path in taken or one.name in names:
            raise ConfigError(f"server.pass_through[{index}]: the gateway serves {one.path} itself")
        taken.add(one.path)
    return proxied
