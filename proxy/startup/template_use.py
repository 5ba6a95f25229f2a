"""Tests at the start whether models' chat templates can describe tools, for the routes that use that (R31.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..formats.base import ToolFormat
from ..formats.model_families import format_for
from ..pipeline.exchange.routing import Route
from ..registry import Registries
from ..upstream.pool.server import UpstreamServer
from ..upstream.pool.template_probing import WORDS

MODES = ("template", "text", "auto")
"""The modes in which a chat template may describe tools."""


def begin_template_probes(routes: Sequence[Route], endpoint: UpstreamServer) -> None:
    """Starts to test the chat template of an identified server's model, for the routes that need it. A model whose name
    comes only from clients is tested at its first request."""
    for route in routes:
        templates = route.pool.templates
        for model, tool_format in _probed(route, endpoint):
            if templates.known(endpoint, model) is None:
                templates.begin(endpoint, model, special_tokens=tool_format.special_tokens)


def use_of_template(route: Route, endpoint: UpstreamServer) -> str:
    """Returns the sentence of the start-up line about the model's chat template; empty if the route does not use it."""
    probed = next(_probed(route, endpoint), None)
    if probed is None:
        return ""
    verdict = route.pool.templates.known(endpoint, probed[0])
    if verdict is not None:
        return f" Test of its chat template: {WORDS[verdict.cause]}."
    return " A test request shows whether the model's chat template can describe tools."


def format_of_served(endpoint: UpstreamServer, model: str, plugins: Registries) -> ToolFormat | None:
    """Returns the format of the model's family, from the server's names for the model; None if they do not show the
    family."""
    served = None if endpoint.identity is None else endpoint.identity.find(model)
    names = (model,) if served is None else (model, served.name, *served.names)
    family = next(filter(None, map(format_for, names)), None)
    return None if family is None else plugins.formats.get(family)


def _probed(route: Route, endpoint: UpstreamServer) -> Iterator[tuple[str, ToolFormat]]:
    """Yields the models of a server whose chat templates the route may use: the server's name for each, and its format.
    Skips models without a known format, because their templates would not be used."""
    wire, mode = route.pool.protocol, route.options.mode
    if mode not in MODES or wire is None or not wire.takes_tools:
        return
    for member in route.pool.every:
        if member.endpoint is not endpoint:
            continue
        identity = endpoint.identity
        sole = None if identity is None or identity.sole is None else identity.sole.name
        model = member.upstream_model or route.config.upstream_model or sole or next(iter(route.names), None)
        known = None
        if model is not None:
            known = route.format_for(model) if mode == "template" else route.known_format(model)
        if model is not None and known is not None:
            yield model, known
