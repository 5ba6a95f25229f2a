"""Runs all checks of the doctor, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ...config import GatewayConfig
from ...configuration.checks import effective_routes
from ...configuration.mistakes import Mistakes
from ...registry import Registries
from ...servertools.joined import tools_status
from ...servertools.pool import LoadState
from ...startup.examination import examined
from ...support.conversion import ConfigError
from .files import files
from .finding import Finding, clean_findings, in_area, ok, problem, warning
from .installation import installation
from .machine import machine
from .servers import servers
from .stores import stores

COVER: Final = "***"
SHORT: Final = 4
"""Shorter secrets are not hidden, because they may be ordinary words."""


def examine_all(
    file: str | None,
    overrides: Mapping[str, Any],
    plugins: Registries,
    env: Mapping[str, str],
    *,
    probe_s: float | None,
    tell: Callable[[str], object],
) -> list[Finding]:
    """Returns the findings for the installation that `file` and `overrides` describe, with secrets hidden. `probe_s`:
    see `servers`. `tell` is called with what is being waited for."""
    try:
        config, mistakes = examined(file, plugins, overrides)
    except ConfigError as error:
        found = in_area("configuration", map(_mistake, error.problems))
        return clean_findings([*found, *in_area("installation", installation(GatewayConfig()))], str)
    broken = {name: mistakes.below(f"backends.{name}") for name in config.backends}
    tell(_waiting(config, probe_s))
    with _quiet(), ThreadPoolExecutor() as at_once:  # these checks wait for other programs
        of_servers = at_once.submit(servers, config, plugins, broken, probe_s)
        of_stores = at_once.submit(lambda: list(stores(config, mistakes)))
        findings = [
            *in_area("configuration", _configuration(config, mistakes, file)),
            *in_area("installation", installation(config)),
            *in_area("machine", machine(config, env)),
            *in_area("files", files(config, file)),
        ]
        of_tools = in_area("tools", _tools(config, mistakes))
        findings += [*in_area("stores", of_stores.result()), *of_tools, *of_servers.result()]
    secrets = sorted(_secrets(config), key=len, reverse=True)

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, COVER)
        return text

    return clean_findings(findings, clean)


def _waiting(config: GatewayConfig, probe_s: float | None) -> str:
    """Returns what the checks wait for, and how long at most."""
    asked = [f"backend {name}" for name in config.backends]
    asked += [f"MCP server {server.name}" for server in config.tools.mcp]
    limit = "a few seconds" if probe_s is None else f"{probe_s:g} s for a model's small tool call (--no-probe skips it)"
    return f"asking {', '.join(asked)}; at most {limit}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses log lines of the gateway's code during the checks: the findings report the same."""
    logger, handler = logging.getLogger("toolwire"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _configuration(config: GatewayConfig, mistakes: Mistakes, file: str | None) -> Iterator[Finding]:
    yield from map(_mistake, mistakes.lines)
    for line in mistakes.warnings:
        yield warning(line, "The option has no effect, or will be removed.", "Change it as the message says.")
    if not mistakes.lines:
        routes = len(effective_routes(config))
        where = f"{file} is valid" if file is not None else "There is no configuration file, and none is needed"
        yield ok(f"{where}; backends: {len(config.backends)}, routes: {routes}.")


def _mistake(line: str) -> Finding:
    return problem(line, "With this mistake the gateway does not start, or ignores the option.", "Correct it.")


def _tools(config: GatewayConfig, mistakes: Mistakes) -> Iterator[Finding]:
    tools = config.tools
    if (tools.folder is None and not tools.mcp) or mistakes.below("tools"):
        return
    shown = tools_status(tools)
    bad = [module for module in shown["modules"] if module["state"] == LoadState.FAILED_VALIDATION.value]
    for module in bad:
        error = f"{module['error']['kind']}: {module['error']['message']}"
        yield problem(f"{module['file']}: {error}", "Its tools are not offered.", "Correct the module.")
    if tools.folder is not None and not bad:
        yield _folder(tools.folder, shown["modules"])
    for server in shown.get("mcp", ()):
        name = f"MCP server {server['name']}"
        if server["state"] == "up":
            yield ok(f"{name}: {len(server['tools'])} tool(s).")
        else:
            yield problem(
                f"{name}: {server['error']}",
                "Its tools are not offered.",
                f"Correct `tools.mcp` {server['name']}; if it is a command, run it by hand to see its output.",
            )


def _folder(folder: str, modules: Sequence[Mapping[str, Any]]) -> Finding:
    """Returns the finding for a folder whose modules could all be loaded."""
    tools = sum(len(module["tools"]) for module in modules)
    summary = f"{folder}: {len(modules)} module(s), {tools} tool(s)."
    if tools:
        return ok(summary)
    todo = "Add `TOOLS` or `get_tools()`, and `handle_tool_call`, to a module; or remove `tools.folder`."
    return warning(summary, "No tool of this folder is offered to models.", todo)


def _secrets(config: GatewayConfig) -> set[str]:
    """Returns the secrets of the configuration that are hidden in all findings."""
    secrets: set[str | None] = {key.key for key in config.auth.keys}
    for backend in config.backends.values():
        secrets |= {backend.api_key, *backend.headers.values(), *backend.codex.env.values()}
    for url in (*(backend.url for backend in config.backends.values()), config.store.url, config.rate_limits.url):
        try:
            password = urlsplit(url or "").password
        except ValueError:
            continue
        if password:
            secrets |= {password, unquote(password)}
    return {secret for secret in secrets if secret and len(secret) >= SHORT}
