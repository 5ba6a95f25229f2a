"""Which models' chat templates may teach tools on the routes of an application, and what is said of that at the start
(R31.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolwire.formats.base import ToolFormat
from toolwire.formats.model_families import format_for
from toolwire.pipeline.exchange.routing import Route
from toolwire.registry import Registries
from toolwire.upstream.pool.pool import UpstreamServer
from toolwire.upstream.pool.template_probing import WORDS

MODES = ("template", "text", "auto")
"""Under these a chat template may teach tools."""


def begin_template_probes(routes: Sequence[Route], endpoint: UpstreamServer) -> None:
    """Begin to probe the model of a server, which has said what it is, on behalf of the routes that want to know.
    Models of which only a client's request tells the name are probed when that comes."""
    for model, tool_format in _probed(routes, endpoint):
        if endpoint.templates.known(endpoint, model) is None:
            endpoint.templates.begin(endpoint, model, special_tokens=tool_format.special_tokens)


def use_of_template(route: Route, endpoint: UpstreamServer) -> str:
    """The verdict on the model's chat template on a route: the sentence for the start-up line; empty if the route does
    not want to know."""
    found = next(_probed([route], endpoint), None)
    if found is None:
        return ""
    verdict = endpoint.templates.known(endpoint, found[0])
    if verdict is not None:
        return f" The probe of the model: {WORDS[verdict.cause]}."
    return " A probe finds out whether the model's own chat template can teach the tools."


def format_of_served(endpoint: UpstreamServer, model: str, plugins: Registries) -> ToolFormat | None:
    """The format of the family of a server's model, by the names that the server has for it; None if they do not tell
    the family."""
    served = None if endpoint.identity is None else endpoint.identity.find(model)
    names = (model,) if served is None else (model, served.name, *served.names)
    found = next(filter(None, map(format_for, names)), None)
    return None if found is None else plugins.formats.get(found)


def _probed(routes: Sequence[Route], endpoint: UpstreamServer) -> Iterator[tuple[str, ToolFormat]]:
    """The models of a server that routes want to know of: the name that the server has for each, and the format of its
    calls. Without a format, nothing is left to find out."""
    for route in routes:
        wire, mode = route.pool.protocol, route.options.mode
        if mode not in MODES or wire is None or not wire.takes_tools:
            continue
        for member in route.pool.every:
            if member.endpoint is not endpoint:
                continue
            said = endpoint.identity
            sole = None if said is None or said.sole is None else said.sole.name
            model = member.upstream_model or route.config.upstream_model or sole or next(iter(route.names), None)
            known = None
            if model is not None:
                known = route.format_for(model) if mode == "template" else route.known_format(model)
            if model is not None and known is not None:
                yield model, known
