"""Checks of the MCP servers of a configuration. Contacts no server: connection errors are reported at run time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final
from urllib.parse import urlsplit

from ..config import McpServerConfig, ToolsConfig
from ..support.locations import AllowList

INSTALL: Final = "pip install 'toolwire[mcp]'"
SDK: Final = 2
"""The major version of the SDK that the gateway uses."""
MAX_RESULT_CHARS: Final = 4_000_000
MAX_CONCURRENT: Final = 1000

_NAME: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)
_PREFIX: Final = re.compile(r"[a-zA-Z0-9_-]{0,32}")
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def missing() -> str | None:
    """Returns why MCP servers cannot be used here, with the remedy; None if they can."""
    try:
        installed = version("mcp")
    except PackageNotFoundError:
        return f"the MCP SDK is not installed; install it with: {INSTALL}"
    if installed.partition(".")[0] != str(SDK):
        return f"the MCP SDK {installed} is installed, version {SDK} is needed: {INSTALL}"
    return None


def mcp_mistakes(tools: ToolsConfig) -> Iterator[str]:
    """Yields a line for each mistake, beginning with the key path."""
    if (tools.mcp or tools.mcp_from_clients) and (why := missing()) is not None:
        yield f"tools.mcp{'' if tools.mcp else '_from_clients'}: {why}"
    for index, pattern in enumerate(tools.mcp_from_clients):
        try:
            AllowList((pattern,))
        except ValueError as error:
            yield f"tools.mcp_from_clients[{index}]: {error}"
    taken: dict[str, str] = {}
    for index, server in enumerate(tools.mcp):
        path = f"tools.mcp[{index}]"
        if not _NAME.fullmatch(server.name):
            yield f"{path}.name: expected 1 to 64 letters, digits, '_', '-' and '.', got {server.name!r}"
        elif server.name in taken:
            yield f"{path}.name: {server.name!r} is already taken by {taken[server.name]}"
        taken.setdefault(server.name, f"{path}.name")
        yield from _way(server, path)
        if not _PREFIX.fullmatch(server.prefix):
            yield f"{path}.prefix: expected at most 32 letters, digits, '_' and '-', got {server.prefix!r}"
        for key in ("timeout_s", "connect_timeout_s"):
            if getattr(server, key) == 0:
                yield f"{path}.{key}: expected more than 0"
        if not 1 <= server.concurrent <= MAX_CONCURRENT:
            yield f"{path}.concurrent: expected 1 to {MAX_CONCURRENT}, got {server.concurrent}"
        if not 1 <= server.max_result_chars <= MAX_RESULT_CHARS:
            yield f"{path}.max_result_chars: expected 1 to {MAX_RESULT_CHARS}, got {server.max_result_chars}"


def _way(server: McpServerConfig, path: str) -> Iterator[str]:
    """Yields the mistakes in how the server is reached. Values are never quoted, because any of them may be a key."""
    if server.command and server.url is not None:
        yield f"{path}: give either `command` or `url`"
        return
    if server.url is None:
        if not server.command:
            yield f"{path}: needs `command`, such as `npx -y some-server`, or the `url` of a server"
            return
        try:
            argv = server.argv
        except ValueError:
            yield f"{path}.command: a quotation mark is not closed"
            return
        if not argv or not argv[0]:
            yield f"{path}.command: expected a program and its arguments"
        if any("\0" in text for text in (*argv, *server.env, *server.env.values())):
            yield f"{path}: a null character cannot be given to a program"
        if server.headers:
            yield f"{path}.headers: only for a `url`; variables for a program belong in `env`"
        return
    if not is_address(server.url):
        yield f"{path}.url: expected an address such as 'https://mcp.example.org/mcp'"
    if server.env or server.inherit:
        yield f"{path}.{'env' if server.env else 'inherit'}: only for a `command`; values for a server at a `url` belong in `headers`"
    for name, value in server.headers.items():
        if not HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            yield f"{path}.headers: {name!r} cannot be sent as a header"


def is_address(text: str, schemes: tuple[str, ...] = ("http", "https")) -> bool:
    """Returns True for a URL with one of these schemes, a host, and a port that can be connected to."""
    try:
        url = urlsplit(text)
        return url.scheme in schemes and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
