"""The model servers: whether they can be reached, what they are and can do, their clocks and their certificates.

Each is asked what `/ready`, the start and `toolwire check --probe` ask as well, all of them at once, and each within
limits of its own: one that is dead holds up nobody.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
from yarl import URL

from toolwire.config import BackendConfig, GatewayConfig, RouteConfig
from toolwire.configuration.checks import effective_routes
from toolwire.errors import GatewayError, quote
from toolwire.extras.doctor.finding import Finding, ok, problem, warning
from toolwire.model import ModelRequest
from toolwire.registry import Registries
from toolwire.startup.enforceable import why_not
from toolwire.startup.probed import WORDS, asked_model
from toolwire.startup.template_use import format_of_served
from toolwire.support.conversion import ConfigError
from toolwire.upstream.client.connections import disconnected
from toolwire.upstream.client.tls import tls_context
from toolwire.upstream.pool.pool import UpstreamServer, WeightedServer, pool_of
from toolwire.upstream.pool.probing import ASKED, Probed, probe
from toolwire.upstream.pool.template_probing import WORDS as TEMPLATE_WORDS
from toolwire.upstream.pool.template_probing import probe_template
from toolwire.upstream.servers.adapt import adapt
from toolwire.upstream.servers.base import Backend, TokenCounter
from toolwire.upstream.servers.http import HttpBackend
from toolwire.upstream.servers.identity import ENGINES, Identity
from toolwire.upstream.servers.presets import AUTO, preset_of

LOOK_S: Final = 5.0
"""Limit for a look at a clock, and for one at a certificate."""

START_S: Final = 10.0
"""Limit for a backend to start: one runs a program."""

SKEW_S: Final = 60.0
"""Clocks that differ by more than this are wrong."""

SOON_DAYS: Final = 21
"""A certificate that is good for fewer days ends soon."""

SHOWN: Final = 5
"""So many models are named."""

_CURE: Final[Mapping[str, str]] = {
    "upstream_auth": "Set `api_key` of the backend to a key that the server takes.",
    "upstream_disconnected": "Start the server, or mend `url`; a firewall, a proxy or a container's network may stand in between.",
    "upstream_invalid_response": "Mend `url`, `kind`: it should be a model server. `health_path` is for one without /v1/models.",
    "backend_loop": "Point `url` at the model server, not at a gateway that asks this one.",
}


def servers(
    config: GatewayConfig, plugins: Registries, broken: Mapping[str, bool], probe_s: float | None
) -> list[Finding]:
    """What there is to say of each backend but those that are `broken` by a mistake in the configuration. `probe_s`: so
    long a model may take for a small call; None: it is not asked."""
    return asyncio.run(_servers(config, plugins, broken, probe_s))


async def _servers(
    config: GatewayConfig, plugins: Registries, broken: Mapping[str, bool], probe_s: float | None
) -> list[Finding]:
    endpoints: dict[str, UpstreamServer] = {}
    found: dict[str, list[Finding]] = {}
    for name, backend in config.backends.items():
        area = f"backend {name}"
        try:
            if broken.get(name):
                raise ConfigError("see the mistakes of the configuration")
            endpoints[name] = UpstreamServer(
                name, plugins.backends.get(backend.kind)(name, backend, config.limits), backend
            )
        except (ConfigError, ValueError) as error:
            found[name] = [
                warning(area, f"It was not looked at: {error}.", "Nothing is known of it.", "Mend that first.")
            ]
    looks = {name: _look(config, endpoint, endpoints, plugins, probe_s) for name, endpoint in endpoints.items()}
    found |= dict(zip(looks, await asyncio.gather(*looks.values()), strict=True))
    return [finding for name in config.backends for finding in found[name]]


async def _look(
    config: GatewayConfig,
    endpoint: UpstreamServer,
    endpoints: Mapping[str, UpstreamServer],
    plugins: Registries,
    probe_s: float | None,
) -> list[Finding]:
    area = f"backend {endpoint.name}"
    backend = endpoint.backend
    try:
        try:
            async with asyncio.timeout(START_S):
                await backend.start()
        except Exception as error:  # a program that is not there, a plug-in's own
            said = str(error) or type(error).__name__
            return [problem(area, f"It does not start: {said}", "Requests for it fail.", "Mend what is named there.")]
        found = [finding async for finding in _from_outside(area, endpoint)]
        return found + [finding async for finding in _from_inside(area, config, endpoint, endpoints, plugins, probe_s)]
    finally:
        await _closed(backend)


async def _closed(backend: Backend) -> None:
    try:
        async with asyncio.timeout(START_S):
            await backend.close()
    except Exception:  # it has said all that is wanted of it
        return


# --- seen from outside ----------------------------------------------------------------------------------------------


async def _from_outside(area: str, endpoint: UpstreamServer) -> AsyncIterator[Finding]:
    if not isinstance(endpoint.backend, HttpBackend):
        return
    url, config = endpoint.backend.base, endpoint.config
    certificate = await _certificate(area, url, config) if url.scheme == "https" and not config.trust_env else None
    if certificate is not None:
        yield certificate
    skew = await _skew(url, config)
    if skew is None:
        return
    if abs(skew) > SKEW_S:
        yield warning(
            area,
            f"Its clock is {abs(skew):,.0f} s {'before' if skew > 0 else 'behind'} the one of this machine.",
            "Times in logs and answers do not fit together; with a wrong clock certificates are refused.",
            "Set both by NTP.",
        )
    else:
        yield ok(area, "Its clock and that of this machine agree.")


async def _skew(url: URL, config: BackendConfig) -> float | None:
    """Seconds by which the server's clock is before that of this machine; None if it does not say. Asked without the
    key: any answer has the date."""
    verify: ssl.SSLContext | bool = tls_context(verify=config.verify_tls) if url.scheme == "https" else True
    try:
        async with (
            asyncio.timeout(LOOK_S),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=verify), trust_env=config.trust_env) as session,
            session.get(url.with_user(None).joinpath("models"), allow_redirects=False) as response,
        ):
            said = parsedate_to_datetime(response.headers.get("Date", ""))
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    said = said if said.tzinfo else said.replace(tzinfo=UTC)
    return (said - datetime.now(UTC)).total_seconds()


async def _certificate(area: str, url: URL, config: BackendConfig) -> Finding | None:
    """What is to be said of the certificate of a server; None if there is no connection, which is said elsewhere."""
    if not config.verify_tls:
        return warning(
            area,
            "Its certificate is not checked (`verify_tls: false`).",
            "Whoever stands in between can read the key and all that is said.",
            "Have it checked; a certificate authority of your own goes into SSL_CERT_FILE.",
        )
    try:
        async with asyncio.timeout(LOOK_S):
            _, writer = await asyncio.open_connection(url.raw_host, url.port, ssl=tls_context(verify=True))
    except ssl.SSLCertVerificationError as error:
        return problem(
            area,
            f"Its certificate is not trusted: {error.verify_message}.",
            "Requests for it fail.",
            "Renew it; a certificate authority of your own goes into SSL_CERT_FILE. Names count that stand in its subjectAltName.",
        )
    except (OSError, ssl.SSLError):
        return None
    try:
        seen = writer.get_extra_info("peercert") or {}
    finally:
        writer.close()
    ends = seen.get("notAfter")
    if not isinstance(ends, str):
        return None
    days = int((ssl.cert_time_to_seconds(ends) - datetime.now(UTC).timestamp()) // 86400)
    if days < SOON_DAYS:
        return warning(area, f"Its certificate ends in {days} days.", "Then requests for it fail.", "Renew it.")
    return ok(area, f"Its certificate is trusted, and good for {days} more days.")


# --- what it says itself --------------------------------------------------------------------------------------------


async def _from_inside(
    area: str,
    config: GatewayConfig,
    endpoint: UpstreamServer,
    endpoints: Mapping[str, UpstreamServer],
    plugins: Registries,
    probe_s: float | None,
) -> AsyncIterator[Finding]:
    said = Identity()
    try:
        if hasattr(endpoint.backend, "identify"):
            said = await endpoint.identify()
            endpoint.learn(said)
            models = [served.name for served in said.models]
        elif await _ready(endpoint.backend):
            models = await endpoint.models()
        else:
            raise disconnected()
    except GatewayError as error:
        if endpoint.config.health_path is None or not await _ready(endpoint.backend):
            code = "upstream_invalid_response" if error.upstream_status == 404 else error.code
            todo = _CURE.get(code, "Look at the server's log.")
            yield problem(area, f"{error.message} It is asked{_at(endpoint.config)}.", "Requests for it fail.", todo)
            return
        models = []
    yield ok(area, f"It answers{_at(endpoint.config)}, as {_named(endpoint, said)}.")
    for finding in _serving(area, config, endpoint.name, said, models):
        yield finding
    model = None
    for route, member in _members(config, endpoint, endpoints):
        for finding in _enforcing(area, endpoint, route):
            yield finding
        model = model or await _asked(member, route)
    if model is not None:
        yield await _counting(area, endpoint, model)
        if probe_s is not None:
            called = await _calling(area, config, endpoint, model, probe_s)
            yield called
            if called.level != "warning":  # a server that did not answer that will not answer this
                async for finding in _template(area, config, endpoint, model, plugins, probe_s):
                    yield finding


async def _ready(backend: Backend) -> bool:
    try:
        async with asyncio.timeout(LOOK_S):
            return await backend.ready()
    except Exception:  # a plug-in's own
        return False


def _named(endpoint: UpstreamServer, said: Identity) -> str:
    config = endpoint.config
    if not isinstance(endpoint.backend, HttpBackend):
        return f"a backend of the kind {config.kind!r}"
    if said.engine is not None:
        what = f"{ENGINES[said.engine]}{f' {said.version}' if said.version else ''}"
    else:
        what = "a server of no known engine"
    return f"{what} (preset {preset_of(config, said)}{', by what it says' if config.preset == AUTO else ''})"


def _serving(area: str, config: GatewayConfig, name: str, said: Identity, models: list[str]) -> Iterator[Finding]:
    if not models:
        yield ok(area, "It lists no models.")
        return
    more = f" and {len(models) - SHOWN} more" if len(models) > SHOWN else ""
    yield ok(area, f"It serves {', '.join(map(quote, models[:SHOWN]))}{more}.")
    for route in effective_routes(config):
        named = {
            entry.upstream_model or route.upstream_model
            for entry in (*route.backends, *route.fallback)
            if entry.backend == name
        }
        if not route.backends and route.backend == name:
            named.add(route.upstream_model)
        for wanted in filter(None, named):
            if wanted not in models and not said.any_name:
                yield warning(
                    area,
                    f"The route {quote(route.model)} asks it for {quote(wanted)}, which it does not list.",
                    "Servers refuse models that they do not have.",
                    "Set `upstream_model` to one that it serves.",
                )


def _members(
    config: GatewayConfig, endpoint: UpstreamServer, endpoints: Mapping[str, UpstreamServer]
) -> Iterator[tuple[RouteConfig, WeightedServer]]:
    """The routes that ask this server, each with it as their member."""
    for route in effective_routes(config):
        named = {entry.backend for entry in (*route.backends, *route.fallback)}
        named |= set() if route.backends else {route.backend}
        if endpoint.name not in named or not named <= endpoints.keys():
            continue
        try:
            yield from ((route, one) for one in pool_of(route, endpoints).every if one.endpoint is endpoint)
        except ValueError:
            continue  # a mistake of the configuration


def _enforcing(area: str, endpoint: UpstreamServer, route: RouteConfig) -> Iterator[Finding]:
    options = route.options
    if options.mode == "native" or options.decoding.constrain == "off":
        return
    feature = endpoint.backend.capabilities.constrain
    reason = why_not(feature, None)
    if reason is None:
        yield ok(area, f"Route {quote(route.model)}: demanded calls are enforced while decoding ({feature}).")
    elif options.decoding.constrain == "required":
        yield problem(
            area,
            f"Route {quote(route.model)}: `constrain: required`, and {reason}.",
            "Requests that demand a call are refused.",
            "Use `constrain: auto`, or name the server's feature (`preset`, `constrain` of the backend).",
        )
    else:
        yield ok(area, f"Route {quote(route.model)}: demanded calls are not enforced while decoding: {reason}.")


async def _asked(member: WeightedServer, route: RouteConfig) -> str | None:
    try:
        return await asked_model(member, route)
    except GatewayError:
        return None


async def _counting(area: str, endpoint: UpstreamServer, model: str) -> Finding:
    backend = endpoint.backend
    tokens = None
    if isinstance(backend, TokenCounter):
        request = adapt(ModelRequest(model, (ASKED,)), backend.capabilities, wire=backend.protocol)
        tokens = await backend.count(request)
    if tokens is None:
        return ok(
            area, "It has no path that counts a prompt's tokens: the gateway estimates where it is asked for a count."
        )
    return ok(area, "It counts a prompt's tokens.")


async def _calling(area: str, config: GatewayConfig, endpoint: UpstreamServer, model: str, probe_s: float) -> Finding:
    """Whether the server's own template takes tools, and the model calls."""
    try:
        async with asyncio.timeout(probe_s):
            found = await probe(endpoint, model)
    except TimeoutError:
        found = Probed(None, None, f"it did not answer within {probe_s:g} s")
    except Exception as error:  # a plug-in's own
        found = Probed(None, None, f"it failed: {type(error).__name__}")
    said = f"{quote(model)}, asked for a call of a tool: {WORDS.get(found.cause or '', 'nothing is known')}"
    said += f": {found.said}" if found.said else "."
    native = _any_mode(config, endpoint, "native")
    if found.mode is None:
        return warning(
            area, said, "Requests may fail in the same way.", "Look at the server's log; --timeout gives it longer."
        )
    if found.mode == "prompt" and native:
        return problem(
            area,
            said,
            "A route leaves tools to it (`mode: native`).",
            "Use `mode: prompt`, `hybrid` or `auto`, or start the server with its tool parser.",
        )
    return ok(area, said)


async def _template(
    area: str, config: GatewayConfig, endpoint: UpstreamServer, model: str, plugins: Registries, probe_s: float
) -> AsyncIterator[Finding]:
    """Whether the model's chat template can teach tools; nothing where nobody asks and its family is not known."""
    wanted = _any_mode(config, endpoint, "template")
    tool_format = format_of_served(endpoint, model, plugins)
    if tool_format is None and not wanted:
        return
    special = tool_format is not None and tool_format.special_tokens
    try:
        async with asyncio.timeout(probe_s):
            found = await probe_template(endpoint, model, special_tokens=special)
    except TimeoutError:
        found = Probed(None, None, f"it did not answer within {probe_s:g} s")
    except Exception as error:  # a plug-in's own
        found = Probed(None, None, f"it failed: {type(error).__name__}")
    words = "nothing is known of its chat template" if found.cause is None else TEMPLATE_WORDS[found.cause]
    said = f"{quote(model)}: {words}{': ' + found.said if found.said else '.'}"
    if found.mode == "prompt" and wanted:
        yield problem(
            area,
            said,
            "A route has the tools written by it (`mode: template`).",
            "Use `mode: prompt` or `text`, or start the server without its tool parser and with its chat template.",
        )
    else:
        yield ok(area, said)


def _any_mode(config: GatewayConfig, endpoint: UpstreamServer, mode: str) -> bool:
    """Whether a route that asks this server has this mode."""
    return any(
        route.options.mode == mode
        for route in effective_routes(config)
        if endpoint.name in {route.backend, *(entry.backend for entry in (*route.backends, *route.fallback))}
    )


def _at(config: BackendConfig) -> str:
    """Where it is asked, without what may be secret in the address."""
    if config.command:
        return f" as the program {config.command[0]}"
    return f" at {URL(config.url).with_user(None).with_query(None)}" if config.url else ""
