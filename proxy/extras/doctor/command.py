"""All that the doctor looks at, in order."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from toolwire.config import GatewayConfig
from toolwire.configuration.checks import effective_routes
from toolwire.configuration.mistakes import Mistakes
from toolwire.extras.doctor.files import files
from toolwire.extras.doctor.finding import Finding, cleaned, ok, problem, warning
from toolwire.extras.doctor.installation import installation
from toolwire.extras.doctor.machine import machine
from toolwire.extras.doctor.servers import servers
from toolwire.extras.doctor.stores import stores
from toolwire.registry import Registries
from toolwire.servertools.listing import look
from toolwire.servertools.loading import LoadState
from toolwire.startup.examination import examined
from toolwire.support.conversion import ConfigError

AREA: Final = "configuration"
COVER: Final = "***"
SHORT: Final = 4
"""A secret of fewer characters is a word that may stand anywhere."""


def examine_all(
    file: str | None,
    overrides: Mapping[str, Any],
    plugins: Registries,
    env: Mapping[str, str],
    *,
    probe_s: float | None,
) -> list[Finding]:
    """What is right and wrong with the set-up that `file` and `overrides` describe. `probe_s`: see `servers`."""
    try:
        config, mistakes = examined(file, plugins, overrides)
    except ConfigError as error:
        found = [_mistake(line) for line in error.problems]
        return cleaned([*found, *installation(GatewayConfig())], str)
    with _quiet():
        findings = [
            *_configuration(config, mistakes, file),
            *installation(config),
            *machine(config, env),
            *files(config, file),
            *stores(config, mistakes),
            *_tools(config, mistakes),
        ]
        broken = {name: mistakes.below(f"backends.{name}") for name in config.backends}
        findings += servers(config, plugins, broken, probe_s)
    secrets = sorted(_secrets(config), key=len, reverse=True)

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, COVER)
        return text

    return cleaned(findings, clean)


@contextmanager
def _quiet() -> Iterator[None]:
    """What the gateway's parts log does not stand among the findings, which say it."""
    logger, handler = logging.getLogger("toolwire"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _configuration(config: GatewayConfig, mistakes: Mistakes, file: str | None) -> Iterator[Finding]:
    yield from map(_mistake, mistakes.lines)
    for line in mistakes.warnings:
        yield warning(AREA, line, "It does nothing, or will mean nothing one day.", "Change it as it says.")
    if not mistakes.lines:
        routes = len(effective_routes(config))
        where = f"{file} is valid" if file is not None else "There is no file, and none is needed"
        yield ok(AREA, f"{where}; backends: {len(config.backends)}, routes: {routes}.")


def _mistake(line: str) -> Finding:
    return problem(
        AREA, line, "With a mistake in it the gateway does not start, or does not do what it says.", "Mend it."
    )


def _tools(config: GatewayConfig, mistakes: Mistakes) -> Iterator[Finding]:
    tools = config.tools
    if (tools.folder is None and not tools.mcp) or mistakes.below("tools"):
        return
    shown = look(tools)
    bad = [module for module in shown["modules"] if module["state"] == LoadState.FAILED_VALIDATION.value]
    for module in bad:
        error = f"{module['error']['kind']}: {module['error']['message']}"
        yield problem("tools", f"{module['file']}: {error}", "Its tools are not offered.", "Mend the module.")
    if tools.folder is not None and not bad:
        yield _folder(tools.folder, shown["modules"])
    for server in shown.get("mcp", ()):
        name = f"MCP server {server['name']}"
        if server["state"] == "up":
            yield ok("tools", f"{name}: {len(server['tools'])} tool(s).")
        else:
            yield problem(
                "tools",
                f"{name}: {server['error']}",
                "Its tools are not offered.",
                f"Mend `tools.mcp` {server['name']}; where it is a command, run it by hand to see what it says.",
            )


def _folder(folder: str, modules: Sequence[Mapping[str, Any]]) -> Finding:
    """Of a folder whose modules can all be loaded."""
    tools = sum(len(module["tools"]) for module in modules)
    found = f"{folder}: {len(modules)} module(s), {tools} tool(s)."
    if tools:
        return ok("tools", found)
    todo = "Give a module `TOOLS`, or `get_tools()`, and a `handle_tool_call`; or leave `tools.folder` out."
    return warning("tools", found, "Nothing of it is offered to models.", todo)


def _secrets(config: GatewayConfig) -> set[str]:
    """What must not be shown, whoever repeats it."""
    found: set[str | None] = {key.key for key in config.auth.keys}
    for backend in config.backends.values():
        found |= {backend.api_key, *backend.headers.values(), *backend.codex.env.values()}
    for url in (*(backend.url for backend in config.backends.values()), config.store.url, config.rate_limits.url):
        try:
            password = urlsplit(url or "").password
        except ValueError:
            continue
        if password:
            found |= {password, unquote(password)}
    return {secret for secret in found if secret and len(secret) >= SHORT}
