"""Registries of plug-ins by name: built-ins, installed entry points, and those that a program registers itself.

Rules of this module:

1. Installing a plug-in enables nothing: a plug-in is imported only when its name is looked up. Client protocols are the
   exception: a configuration does not name them, so all that are installed are served.
2. A name means one thing. A second plug-in with the same name is an error at start-up, used or not.
3. No registry is global: `registries()` makes new ones, so two applications in a process share no registrations.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar, cast

from .config import DEFAULT_CHAIN, ON_DEMAND, BackendConfig, LimitsConfig
from .formats.base import ToolFormat, builtin_formats
from .protocols.base import ClientSide, ClientSides, ServerSide
from .support.conversion import ConfigError, suggestion
from .upstream.servers.base import Backend

T = TypeVar("T")

BackendFactory = Callable[[str, BackendConfig, LimitsConfig], Backend]
"""Function that makes a backend from its name, its section of the configuration and the limits. It must not open
connections."""

OPTIONAL: Final = ("cache", "model_alias", "prompt_guard", "redact", "request_log", "tool_filter")
"""Built-in middlewares that are not in the default chain."""

MIDDLEWARES: Final[Mapping[str, str]] = {
    name: f"toolwire.{folder}.{name}:{name.title().replace('_', '')}"
    for folder, names in (("middlewares", (*ON_DEMAND, *DEFAULT_CHAIN)), ("extras.middlewares", OPTIONAL))
    for name in names
}
"""Dotted paths of the built-in middlewares: the module has the middleware's name, the class the same in CamelCase."""

CLIENT_PROTOCOLS: Final[Mapping[str, str]] = {
    "chat": "toolwire.protocols.chat.protocol:ChatProtocol",
    "responses": "toolwire.protocols.responses.protocol:ResponsesProtocol",
    "messages": "toolwire.protocols.messages.protocol:MessagesProtocol",
}
"""Dotted paths of the built-in client protocols. The first one is used for clients whose protocol is unknown."""

SERVER_PROTOCOLS: Final[Mapping[str, str]] = {
    "openai_chat": "toolwire.protocols.chat.protocol:ChatProtocol",
    "openai_completions": "toolwire.protocols.completions.protocol:CompletionsProtocol",
    "openai_responses": "toolwire.protocols.responses.protocol:ResponsesProtocol",
    "anthropic_messages": "toolwire.protocols.messages.protocol:MessagesProtocol",
}
"""Dotted paths of the built-in server protocols, by kind of backend. All of them speak HTTP."""

BACKENDS: Final[Mapping[str, str]] = {
    "codex_app_server": "toolwire.extras.codex_app.backend:CodexAppBackend",
    "mock": "toolwire.upstream.servers.mock:MockBackend",
}
"""Dotted paths of the built-in backends that are not a server protocol over HTTP, by kind."""

TOOL_SOURCES: Final[Mapping[str, str]] = {
    "mcp": "toolwire.extras.mcp.server:McpServer",
    "mcp_from_clients": "toolwire.extras.mcp.from_clients:ClientServers",
}
"""Dotted paths of the tools of MCP servers: of those in the configuration, and of those that clients name."""

FEATURES: Final[Mapping[str, str]] = {
    "telemetry": "toolwire.extras.otel.otlp:Telemetry",
    "capture": "toolwire.extras.capture.feature:Capturing",
    "inspect": "toolwire.extras.inspector.feature:Inspector",
}
"""Dotted paths of the built-in features (`toolwire.features`), by section of the configuration."""


@cache  # it looks at every installed package, and `open_scanner` may call it while an answer begins
def _installed(group: str) -> tuple[EntryPoint, ...]:
    """Returns the installed entry points of a group, read once."""
    return tuple(entry_points(group=group))


class Registry(Generic[T]):
    """The plug-ins of one kind.

    `kind` is the word for messages ("middleware"), `builtins` maps names to dotted paths. `plugins` are entry points;
    default: the installed ones of `group`. Raises `ConfigError` if two of them, or one and a built-in, share a name.
    """

    def __init__(
        self, kind: str, group: str, builtins: Mapping[str, str], plugins: Iterable[EntryPoint] | None = None
    ) -> None:
        self.kind = kind
        self.group = group
        self.builtins = tuple(builtins)
        self._paths: dict[str, str] = dict(builtins)
        self._values: dict[str, T] = {}
        for plugin in _installed(group) if plugins is None else plugins:
            # The same package may be found twice on the path.
            if self._paths.get(plugin.name) != plugin.value:
                self._claim(plugin.name, plugin.value)
                self._paths[plugin.name] = plugin.value

    def register(self, name: str, value: T) -> None:
        """Adds a value. Raises `ConfigError` if the name is taken."""
        self._claim(name, "register()")
        self._values[name] = value

    def names(self) -> list[str]:
        """Returns all names, sorted."""
        return sorted({*self._paths, *self._values})

    def get(self, name: str) -> T:
        """Returns the plug-in with this name, or at this dotted path `package.module:Attribute`.

        Raises `ConfigError` if there is none, or if importing it fails.
        """
        if name in self._values:
            return self._values[name]
        path = self._paths.get(name, name)
        if ":" not in path:
            raise ConfigError(
                f"unknown {self.kind} {name!r}{suggestion(name, self.names())}"
                f" (a plug-in is found by entry point in {self.group!r} or as 'package.module:Attribute')"
            )
        return self._import(name, path)

    def _claim(self, name: str, claimant: str) -> None:
        if name in self._paths or name in self._values:
            holder = self._paths.get(name, "register()")
            raise ConfigError(f"two {self.kind}s are called {name!r}: {holder} and {claimant}")

    def _import(self, name: str, path: str) -> T:
        module_name, _, attribute = path.partition(":")
        what = f"{self.kind} {name!r}" + ("" if name == path else f" ({path})")
        try:
            value: Any = import_module(module_name)
        except ModuleNotFoundError as error:
            top = module_name.partition(".")[0]
            where = f". {_searched(top)}" if error.name == top else ""
            raise ConfigError(f"cannot import {what}: {error}{where}") from error
        except Exception as error:  # importing a plug-in may raise anything
            raise ConfigError(f"cannot import {what}: {type(error).__name__}: {error}") from error
        file = getattr(value, "__file__", None) or module_name
        for part in attribute.split("."):
            if not hasattr(value, part):
                public = [known for known in dir(value) if not known.startswith("_")]
                raise ConfigError(f"cannot import {what}: there is no {part!r} in {file}{suggestion(part, public)}")
            value = getattr(value, part)
        return cast(T, value)


def _searched(module: str) -> str:
    """Returns the sentence that names the folders where a module was looked for, without those of Python itself. The
    folder of the configuration file is the last one."""
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    folders = [place for place in sys.path if os.path.isdir(place) and place not in own and "lib-dynload" not in place]
    return f"Looked for {module}.py and for a package {module} in: {', '.join(folders)}"


class BackendRegistry(Registry[BackendFactory]):
    """The kinds of backends: each server protocol over HTTP, and the others."""

    def __init__(
        self, servers: Registry[Callable[[], ServerSide]], plugins: Iterable[EntryPoint] | None = None
    ) -> None:
        self._servers = servers
        super().__init__("backend", "toolwire.backends", BACKENDS, plugins)

    def names(self) -> list[str]:
        return sorted({*super().names(), *self._servers.names()})

    def get(self, name: str) -> BackendFactory:
        if name in self._servers.names():
            return partial(_over_http, self._servers.get(name))
        return super().get(name)

    def _claim(self, name: str, claimant: str) -> None:
        if name in self._servers.names():
            raise ConfigError(f"two backends are called {name!r}: a server protocol and {claimant}")
        super()._claim(name, claimant)


def _over_http(protocol: Callable[[], ServerSide], name: str, config: BackendConfig, limits: LimitsConfig) -> Backend:
    from .upstream.servers.http import HttpBackend  # imported here because only HTTP backends need the client

    try:
        wire = protocol().configured(config)
    except ValueError as error:
        raise ConfigError(f"backends.{name}.template: {error}") from error
    return HttpBackend(name, config, limits, wire)


def _clients() -> Registry[Callable[[], ClientSide]]:
    return Registry("client protocol", "toolwire.client_protocols", CLIENT_PROTOCOLS)


def _servers() -> Registry[Callable[[], ServerSide]]:
    return Registry("server protocol", "toolwire.server_protocols", SERVER_PROTOCOLS)


def builtin_tool_sources() -> Registry[Any]:
    """Returns a registry of the built-in sources of tools, without the folder of modules."""
    return Registry("tool source", "toolwire.tool_sources", TOOL_SOURCES, ())


def _features() -> Registry[Any]:
    return Registry("feature", "toolwire.features", FEATURES, ())


@dataclass(frozen=True, slots=True)
class Registries:
    """The registries of one application. A middleware is anything that `toolwire.pipeline.chain.middleware.instantiate`
    takes; a protocol is a class or another callable without arguments that returns one."""

    middlewares: Registry[Any]
    formats: Registry[ToolFormat]
    backends: Registry[BackendFactory]
    clients: Registry[Callable[[], ClientSide]] = field(default_factory=_clients)
    servers: Registry[Callable[[], ServerSide]] = field(default_factory=_servers)
    tool_sources: Registry[Any] = field(default_factory=builtin_tool_sources)
    features: Registry[Any] = field(default_factory=_features)

    def client_sides(self) -> ClientSides:
        """Returns one instance of each client protocol, the built-in ones first. Raises `ConfigError`."""
        names = self.clients.names()
        own = [name for name in CLIENT_PROTOCOLS if name in names]
        try:
            return ClientSides([self.clients.get(name)() for name in (*own, *(n for n in names if n not in own))])
        except ValueError as error:
            raise ConfigError(str(error)) from error


def registries() -> Registries:
    """Returns new registries with the built-ins and the installed entry points. Raises `ConfigError` for a name used
    twice."""
    servers = _servers()
    return Registries(
        Registry("middleware", "toolwire.middlewares", MIDDLEWARES),
        Registry("format", "toolwire.formats", builtin_formats()),
        BackendRegistry(servers),
        _clients(),
        servers,
    )


def usual_client() -> ClientSide:
    """Returns the default client protocol (Chat), for requests whose protocol is not given."""
    return _clients().get(next(iter(CLIENT_PROTOCOLS)))()


def usual_server(kind: str | None = None) -> ServerSide:
    """Returns the server protocol of this kind of backend, built in or installed; None: of the default kind. Raises
    `ConfigError`."""
    return _servers().get(BackendConfig().kind if kind is None else kind)()


def load_attribute(path: str) -> Any:
    """Returns the object at a dotted path `package.module:attribute`. Raises `ConfigError` if it cannot be imported."""
    return Registry[Any]("attribute", "", {}, ()).get(path)
