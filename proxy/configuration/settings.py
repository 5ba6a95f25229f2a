"""Loads `GatewayConfig`: defaults, then the file, then the environment, then flags; later ones override earlier ones.

Rules:

1. `load` reads the configuration file and the files that it names. It imports nothing: names of formats, backends and
   middlewares are checked by `toolwire.startup.names.check_names`, which needs the registries.
2. `${NAME}` and `${NAME:-default}` work in every text of the file; `$${` is a literal `${`. The default also replaces
   an empty variable.
3. Every key has a variable, `TOOLWIRE_` and the path joined by `__`: `TOOLWIRE_SERVER__PORT`,
   `TOOLWIRE_BACKENDS__MAIN__URL`, `TOOLWIRE_ROUTES__0__MODEL`. Lists and mappings are YAML. A variable without `__`
   counts only if it is a top-level key, so that `TOOLWIRE_NO_EXTENSIONS` is not a mistake.
4. Relative paths in a file (`script`, `folder`, and keys that end in `_file`) are relative to the file's folder.
5. Modules in the file's folder can be imported by `package.module:Attribute`: the folder goes to the end of `sys.path`,
   where it hides no installed module. Worker processes inherit the path.

Source: R17.2.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from ..config import (
    CaptureConfig,
    EndpointConfig,
    GatewayConfig,
    InspectConfig,
    KeyConfig,
    MiddlewareConfig,
    RouteConfig,
    RouteOptions,
)
from ..support.conversion import ConfigError, ConversionRules, EnvText, from_mapping, join
from ..support.plainyaml import parse_yaml, read_yaml
from .checks import value_mistakes
from .mistakes import Mistakes
from .telemetry_variables import with_variables

T = TypeVar("T")

PREFIX: Final = "TOOLWIRE_"
SHORTHAND: Final[Mapping[type, str]] = {
    MiddlewareConfig: "use",
    KeyConfig: "key",
    EndpointConfig: "backend",
    CaptureConfig: "keep",
    InspectConfig: "on",
}
"""Sections that may be written as one value, and the key of that value."""

_EXPANSION: Final = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*+))?+(?:(\})|\Z)?+")
"""A variable whose brace is never closed has no group 4 and stays unchanged."""
_ONLY: Final = "*"
"""In the path of an override: the only entry of the mapping, or `default`."""


def load(
    path: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> GatewayConfig:
    """Returns the configuration in the YAML file at `path`; None means no file.

    `env` is the environment (default: the process's). `overrides` maps key paths such as `server.port` to values that
    override everything; None values are ignored, and `*` in a path means the mapping's only entry, or `default`.

    Raises `ConfigError` with every mistake.
    """
    config, mistakes = examine(path, env, overrides)
    mistakes.check()
    return config


def examine(
    path: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[GatewayConfig, Mistakes]:
    """Loads like `load`, but returns the mistakes: the configuration, with default values in place of invalid ones, and
    the mistakes. Raises `ConfigError` only if the file cannot be read or is not YAML."""
    env = os.environ if env is None else env
    mistakes = Mistakes()
    tree: Any = {} if path is None else _read_file(Path(path), mistakes)
    tree = _expand(tree, env, mistakes)
    if path is not None:
        _anchor(tree, Path(path).resolve().parent)
        _search_modules_beside(Path(path))
    # Variables of a whole section come before those of its parts, which override them.
    for name, segments in sorted(_variables(env), key=lambda item: (len(item[1]), item[0])):
        with mistakes.noted():
            path = _place(tree, segments, _variable(name, env[name], section=len(segments) == 1), name)
            mistakes.origins[path] = name
    for key, value in (overrides or {}).items():
        if value is not None:
            with mistakes.noted():
                mistakes.origins.pop(_place(tree, key.split("."), value, key), None)
    config, problems = _convert(tree)
    config = dataclasses.replace(config, telemetry=with_variables(config.telemetry, env))
    mistakes.add(problems)
    mistakes.add(value_mistakes(config, mistakes))
    return config, mistakes


def read_section(kind: type[T], mapping: Mapping[str, Any], path: str = "") -> T:
    """Returns the options of a plug-in as the dataclass `kind`; `path` precedes every message. Raises `ConfigError`."""
    return from_mapping(kind, mapping, path)


def has_backends(env: Mapping[str, str] | None = None) -> bool:
    """Returns True if the environment configures a backend."""
    return any(segments[0] == "backends" for _, segments in _variables(os.environ if env is None else env))


def is_set(key: str) -> bool:
    """Returns True if the environment sets this key, or a section that contains it."""
    wanted = key.split(".")
    return any(segments == wanted[: len(segments)] for _, segments in _variables(os.environ))


# --- from the file and the environment to one tree ------------------------------------------------------------------


def _read_file(path: Path, mistakes: Mistakes) -> dict[str, Any]:
    try:
        tree, repeated = read_yaml(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    mistakes.add(f"{path}: {what}" for what in repeated)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a mapping with keys such as 'backends', got a {type(tree).__name__}")
    return tree


def _expand(tree: Any, env: Mapping[str, str], mistakes: Mistakes) -> Any:
    """Returns the tree with variables replaced by their values; a variable that is not set becomes empty and is a
    mistake."""
    problems: list[str] = []

    def scalar(text: str, path: str) -> str:
        def value(match: re.Match[str]) -> str:
            literal, name, default, closed = match.groups()
            if literal is not None:
                return "${"
            if closed is None:
                return match[0]
            setting = env.get(name)
            if default is not None:
                return setting or default
            if setting is None:
                problems.append(f"{path}: the variable {name} is not set; a default is written ${{{name}:-default}}")
            return setting or ""

        expanded = _EXPANSION.sub(value, text)
        return text if expanded == text else EnvText(expanded, f"the file's {text}")

    def walk(node: Any, path: str) -> Any:
        if isinstance(node, dict):
            return {key: walk(item, join(path, str(key))) for key, item in node.items()}
        if isinstance(node, list):
            return [walk(item, f"{path}[{index}]") for index, item in enumerate(node)]
        return scalar(node, path) if isinstance(node, str) and "${" in node else node

    try:
        tree = walk(tree, "")
    except RecursionError as error:
        raise ConfigError("the file: nested too deeply, or an anchor that contains itself") from error
    mistakes.add(problems)
    return tree


def _anchor(node: Any, folder: Path) -> None:
    """Makes the relative paths of a file absolute (rule 4)."""
    if isinstance(node, dict):
        for key, item in node.items():
            if (
                isinstance(item, str)
                and isinstance(key, str)
                and (key.endswith("_file") or key in ("script", "folder"))
            ):
                node[key] = str(folder / item) if item else item
            else:
                _anchor(item, folder)
    elif isinstance(node, list):
        for item in node:
            _anchor(item, folder)


def _search_modules_beside(file: Path) -> None:
    """Adds the file's folder to the module search path (rule 5). For a link, that is both the link's folder and the
    target's: Kubernetes replaces the target's folder on every change of a ConfigMap."""
    for folder in (file.absolute().parent, file.resolve().parent):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    importlib.invalidate_caches()  # a module may have been written since the last load


def _variables(env: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yields the environment variables that are settings, with their key paths."""
    top = {f.name for f in dataclasses.fields(GatewayConfig)}
    prefixed = [(name, name.removeprefix(PREFIX).lower().split("__")) for name in env if name.startswith(PREFIX)]
    yield from (item for item in prefixed if len(item[1]) > 1 or item[1][0] in top)


def _variable(name: str, text: str, *, section: bool) -> Any:
    """Returns the value of a variable: parsed YAML for a whole section, else a text that is converted later."""
    if not section:
        return EnvText(text, name)
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error


def _place(node: Any, segments: list[str], value: Any, source: str) -> str:
    """Sets `value` at the path `segments` below `node`, and creates missing sections. Returns the key path, as it is in
    messages, of the outermost section created, else of the value."""
    first, *rest = segments
    before = len(node)
    key = _slot(node, first, source)
    path = f"[{key}]" if isinstance(node, list) else str(key)
    if not rest:
        node[key] = value
        return path
    below = node[key]
    if isinstance(below, EnvText):
        try:
            below = parse_yaml(below)
        except ValueError as error:
            raise ConfigError(f"{source}: it is a part of {first!r}, whose value is not valid YAML: {error}") from error
    if below is None:
        below = [] if rest[0] == "0" else {}
    if not isinstance(below, dict | list):
        raise ConfigError(f"{source}: {first!r} is neither a mapping nor a list, so it has no {rest[0]!r}")
    node[key] = below
    is_new = len(node) > before
    inner = _place(below, rest, value, source)
    return path if is_new else join(path, inner) if isinstance(below, dict) else path + inner


def _slot(node: Any, segment: str, source: str) -> str | int:
    """Returns the key or index in `node` for a part of a path, and adds it with the value None if it is missing."""
    if isinstance(node, list):
        if not segment.isdecimal() or int(segment) > len(node):
            raise ConfigError(f"{source}: {segment!r} is not an index from 0 to {len(node)}")
        if int(segment) == len(node):
            node.append(None)
        return int(segment)
    key = segment
    if segment == _ONLY:
        key = next(iter(node)) if len(node) == 1 else "default"
    else:
        # Names of variables are case-insensitive and have no dashes.
        key = next((k for k in node if isinstance(k, str) and k.lower().replace("-", "_") == segment), segment)
    node.setdefault(key, None)
    return key


# --- from the tree to the configuration -----------------------------------------------------------------------------


def _convert(tree: Mapping[str, Any]) -> tuple[GatewayConfig, list[str]]:
    """Returns the tree as `GatewayConfig`, and the mistakes. Options of a route start from `defaults`; its backend is
    the only one by default."""
    problems: list[str] = []
    defaults = from_mapping(
        RouteOptions, tree.get("defaults"), "defaults", ConversionRules(found=[])
    )  # reported below, with the rest
    backends = tree.get("backends")
    only = next(iter(backends)) if isinstance(backends, dict) and len(backends) == 1 else "default"
    # A route starts from these values, so that it can override single keys.
    bases: Mapping[type, Any] = {RouteOptions: defaults, RouteConfig: RouteConfig(backend=only, options=defaults)}
    config = from_mapping(GatewayConfig, tree, rules=ConversionRules(shorthand=SHORTHAND, bases=bases, found=problems))
    return config, problems
