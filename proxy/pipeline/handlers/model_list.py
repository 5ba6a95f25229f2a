"""`GET /v1/models`: the models that a client may request, with what is known of each (R28.8)."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from ...errors import ClientFault, GatewayError, quote
from ...protocols.base import ListedModel
from ..exchange.routing import ROUTER, Route
from ..sending.delivery import API_KEY, CLIENTS

STARTED: Final = web.AppKey("toolwire.started", int)
"""The start of the application in Unix seconds: the `created` of its models."""


async def list_models(request: web.Request) -> web.Response:
    """Returns the list of models in the client's protocol. Raises the error of a server that cannot list its models, if
    the list would be empty."""
    models, fault = await _models(request)
    if fault is not None and not models:  # an empty list would be wrong
        raise fault
    client = request.app[CLIENTS].of(request.path, request.headers)
    body = client.write_models(list(models.values()), for_codex="client_version" in request.query)
    return web.Response(body=body, content_type="application/json")


async def show_model(request: web.Request) -> web.Response:
    """Returns one model. Raises `ClientFault` `model_not_found`, or the error of a server that cannot list its
    models."""
    name = request.match_info["id"]
    models, fault = await _models(request)
    if name not in models:
        raise fault or ClientFault(
            f"The model {quote(name)} does not exist here.", code="model_not_found", param="model"
        )
    client = request.app[CLIENTS].of(request.path, request.headers)
    return web.Response(body=client.write_model(models[name]), content_type="application/json")


async def _models(request: web.Request) -> tuple[dict[str, ListedModel], GatewayError | None]:
    """Returns the models that the client may use, by name: the names and aliases of routes, and for a route with globs
    the models of its server. Also returns the error of a server that cannot list its models."""
    found: dict[str, ListedModel] = {}
    fault: GatewayError | None = None
    key = request.get(API_KEY)
    created = request.app[STARTED]
    for route in request.app[ROUTER].routes:
        if key is not None and not key.may_use(route.config.model):
            continue
        names = route.names
        if not names:
            try:
                known = await route.pool.models()
            except GatewayError as error:
                fault = fault or error
                continue
            names = tuple(known) if route.config.upstream_model is None else (route.config.upstream_model,)
        for name in names:
            if name not in found:
                found[name] = _listed(route, name, created)
    return found, fault


def _listed(route: Route, name: str, created: int) -> ListedModel:
    """Returns the entry for a name, from what the servers of its route report about the model. The context is the
    smallest one, because any of the servers may answer."""
    contexts = []
    for member in route.pool.members:
        identity = member.endpoint.identity
        served = None if identity is None else identity.find(member.name_of(name, route.config.upstream_model))
        contexts.append(None if served is None else served.context)
    known = [context for context in contexts if context]
    takes = route.pool.capabilities
    return ListedModel(
        name,
        created,
        context=min(known) if len(known) == len(contexts) else None,
        images=None if takes.images_unknown else takes.images,
    )
