"""The log line about a model server: its type, its models, and the effect on the routes.

It quotes what the server reports, with limits, so that it cannot look like another line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import quote
from ..formats.base import ToolFormat
from ..formats.recognised import auto
from ..pipeline.exchange.routing import Route
from ..upstream.pool.server import UpstreamServer
from ..upstream.servers.identity import ENGINES, Identity, ServedModel
from ..upstream.servers.presets import AUTO, PROVEN, preset_of
from .description import CONTROL_TOKEN
from .enforceable import why_not
from .template_use import use_of_template

SHOWN: Final = 4
"""Maximum number of models, and of routes, that the line names."""

SHOWN_CHARS: Final = 100
"""The most characters shown of a name."""


def introduction(routes: Sequence[Route], endpoint: UpstreamServer) -> str:
    """Returns the line about a server that has been identified."""
    identity = endpoint.identity or Identity()
    config = endpoint.config
    engine = "an OpenAI-compatible server" if identity.engine is None else ENGINES[identity.engine]
    version = f" {identity.version}" if identity.version else ""
    preset = preset_of(config, identity)
    words = [
        f"Backend {quote(endpoint.name)} at {config.public_url or 'its address'} is {engine}{version}; {_models(identity)}."
    ]
    if config.preset == AUTO:
        words.append(f"Preset: {preset}.")
    elif preset != identity.engine and identity.engine is not None:
        words.append(f"Preset: {preset}, as configured.")
    using = [route for route in routes if any(member.endpoint is endpoint for member in route.pool.every)]
    lines = list(dict.fromkeys(_calls(route, endpoint, named=len(using) > 1) for route in using))
    words += lines[:SHOWN]
    if len(lines) > SHOWN:
        words.append(f"And {len(lines) - SHOWN} more routes.")
    return " ".join(words)


def _models(identity: Identity) -> str:
    if not identity.models:
        return "it lists no model"
    sole = identity.sole
    if sole is not None:
        others = len(identity.models) - 1
        return f"it serves {_model(sole)}, {f'and {others} more by name' if others else 'whatever model is asked for'}"
    named = ", ".join(_model(served) for served in identity.models[:SHOWN])
    more = f" and {len(identity.models) - SHOWN} more" if len(identity.models) > SHOWN else ""
    return f"it serves {named}{more}"


def _model(served: ServedModel) -> str:
    name = served.name if len(served.name) <= SHOWN_CHARS else served.name[:SHOWN_CHARS] + "…"
    return quote(name) + (f" (context {served.context})" if served.context is not None else "")


def _calls(route: Route, endpoint: UpstreamServer, *, named: bool) -> str:
    """Returns a sentence on how calls are made on a route."""
    where = f"Route {quote(route.config.model)}: calls" if named else "Calls"
    options = route.options
    if options.mode == "native":
        others = "" if options.calls.recognise == "taught" else ", and those that it leaves in the text"
        return f"{where} are the server's own (`mode: native`){others}."
    how = {
        "hybrid": " if the server does not make them itself",
        "auto": " if the server does not make them itself",
        "template": ", described by the model's chat template (`mode: template`)",
    }.get(options.mode, "")
    name, why = options.format, "as configured"
    tool_format: ToolFormat = route.format
    if route.by_family is not None:
        asked = route.config.upstream_model or _default(endpoint) or route.config.model
        family, why = route.family(asked)
        tool_format = route.format if family is None else route.by_family(family)
        name = auto.TAUGHT if family is None else tool_format.name
    enforced = _enforced(route, tool_format)
    seen = use_of_template(route, endpoint)
    return f"{where} in {name} ({why}){how}, {enforced}.{seen}{_hidden(endpoint, tool_format)}"


def _default(endpoint: UpstreamServer) -> str | None:
    identity = endpoint.identity
    return None if identity is None or identity.sole is None else identity.sole.name


def _enforced(route: Route, tool_format: ToolFormat) -> str:
    feature = route.pool.capabilities.constrain
    options = route.options.decoding
    under_auto = options.constrain_auto == "on" or (options.constrain_auto is None and feature in PROVEN)
    if options.constrain == "off":
        return "not enforced (`decoding.constrain: off`)"
    reason = why_not(feature, tool_format)
    if reason is not None:
        return f"not enforced: {reason}"
    return f"enforced ({feature}) {'in every call' if under_auto else 'where a call is required'}"


def _hidden(endpoint: UpstreamServer, tool_format: ToolFormat) -> str:
    identity = endpoint.identity
    if identity is None or identity.engine != "llamacpp":
        return ""
    if not (tool_format.special_tokens and CONTROL_TOKEN.search(tool_format.instructions)):
        return ""
    return " Its markers are control tokens, which llama.cpp shows only if it was started with --special."
