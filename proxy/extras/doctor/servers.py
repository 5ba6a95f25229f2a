"""Checks of the model servers: connection, type and abilities, clocks and certificates.

Each server gets the same requests as from `/ready`, the start of the gateway and `toolwire check --probe`. All servers
are checked at the same time, each with its own time limits, so a dead server delays no other, and a silent one is
noticed within a few seconds. Only the tool call may take longer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Final

import aiohttp
from yarl import URL

from ...config import BackendConfig, GatewayConfig, RouteConfig
from ...configuration.checks import effective_routes
from ...errors import GatewayError, quote
from ...model import ModelRequest
from ...registry import Registries
from ...startup.enforceable import why_not
from ...startup.probe_report import WORDS, known_model_name
from ...startup.template_use import format_of_served
from ...support.conversion import ConfigError
from ...upstream.client.connections import disconnected
from ...upstream.client.tls import tls_context
from ...upstream.client.wire_proxy import proxy_for
from ...upstream.pool.probing import ASKED, ProbeResult, probe
from ...upstream.pool.server import UpstreamServer
from ...upstream.pool.server_pool import WeightedServer, pool_of
from ...upstream.pool.template_probing import WORDS as TEMPLATE_WORDS
from ...upstream.pool.template_probing import probe_template
from ...upstream.servers.adapt import adapt
from ...upstream.servers.base import Backend, TokenCounter
from ...upstream.servers.http import HttpBackend
from ...upstream.servers.identity import ENGINES, Identity
from ...upstream.servers.presets import AUTO, preset_of
from .finding import Finding, advice, in_area, ok, problem, warning

LOOK_S: Final = 2.0
"""The time limit for reading a clock or a certificate."""

START_S: Final = 5.0
"""The time limit for the start of a backend, which may run a program."""

SKEW_S: Final = 60.0
"""A larger difference between two clocks is a warning."""

SOON_DAYS: Final = 21
"""A certificate that expires in fewer days is a warning."""

SHOWN: Final = 5
"""Maximum number of models that a finding names."""

_CURE: Final[Mapping[str, str]] = {
    "upstream_auth": "Set `api_key` of the backend to a key that the server accepts.",
    "upstream_disconnected": "Start the server, or correct `url`; a firewall, a proxy or a container's network may block the connection.",
    "upstream_invalid_response": "Correct `url` or `kind`: they must name a model server. Set `health_path` for a server without /v1/models.",
    "backend_loop": "Point `url` at the model server, not at a gateway that leads back to this one.",
}


def servers(
    config: GatewayConfig, plugins: Registries, broken: Mapping[str, bool], probe_s: float | None
) -> list[Finding]:
    """Returns the findings for each backend, except those marked as `broken` by mistakes of the configuration.
    `probe_s` is the time limit for a small tool call of a model; None skips the call."""
    return asyncio.run(_servers(config, plugins, broken, probe_s))


async def _servers(
    config: GatewayConfig, plugins: Registries, broken: Mapping[str, bool], probe_s: float | None
) -> list[Finding]:
    endpoints: dict[str, UpstreamServer] = {}
    findings: dict[str, list[Finding]] = {}
    for name, backend in config.backends.items():
        try:
            if broken.get(name):
                raise ConfigError("see the mistakes of the configuration")
            endpoints[name] = UpstreamServer(
                name, plugins.backends.get(backend.kind)(name, backend, config.limits), backend
            )
        except (ConfigError, ValueError) as error:
            findings[name] = [warning(f"It was not checked: {error}.", "Its state is unknown.", "Correct that first.")]
    looks = {name: _look(config, endpoint, endpoints, plugins, probe_s) for name, endpoint in endpoints.items()}
    findings |= dict(zip(looks, await asyncio.gather(*looks.values()), strict=True))
    return [finding for name in config.backends for finding in in_area(f"backend {name}", findings[name])]


async def _look(
    config: GatewayConfig,
    endpoint: UpstreamServer,
    endpoints: Mapping[str, UpstreamServer],
    plugins: Registries,
    probe_s: float | None,
) -> list[Finding]:
    backend = endpoint.backend
    try:
        try:
            async with asyncio.timeout(START_S):
                await backend.start()
        except Exception as error:  # a missing program, or an error of a plug-in
            message = str(error) or type(error).__name__
            return [problem(f"It does not start: {message}", "Requests to it fail.", "Correct what the message names.")]
        outside, inside = await asyncio.gather(
            _listed(_from_outside(endpoint)),
            _listed(_from_inside(config, endpoint, endpoints, plugins, probe_s)),
        )
        return outside + inside
    finally:
        await _closed(backend)


async def _listed(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in findings]


async def _closed(backend: Backend) -> None:
    try:
        async with asyncio.timeout(START_S):
            await backend.close()
    except Exception:  # all findings are complete by now
        return


# --- connection ----------------------------------------------------------------------------------------------------


async def _from_outside(endpoint: UpstreamServer) -> AsyncIterator[Finding]:
    if not isinstance(endpoint.backend, HttpBackend):
        return
    url, config = endpoint.backend.base, endpoint.config
    certificate = await _certificate(url, config) if url.scheme == "https" and not config.trust_env else None
    if certificate is not None:
        yield certificate
    skew = await _skew(url, config)
    if skew is None:
        return
    if abs(skew) > SKEW_S:
        yield warning(
            f"Its clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the clock of this machine.",
            "Times in logs do not match, and with a wrong clock certificates are refused.",
            "Set both by NTP.",
        )
    else:
        yield ok("Its clock and that of this machine agree.")


async def _skew(url: URL, config: BackendConfig) -> float | None:
    """Returns the seconds by which the server's clock is ahead of this machine's; None if its response has no date.
    Sent without the key, because every response has a date."""
    verify: ssl.SSLContext | bool = tls_context(verify=config.verify_tls) if url.scheme == "https" else True
    try:
        async with (
            asyncio.timeout(LOOK_S),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=verify), proxy=proxy_for(url, config)) as session,
            session.get(url.with_user(None).joinpath("models"), allow_redirects=False) as response,
        ):
            date = parsedate_to_datetime(response.headers.get("Date", ""))
    except (aiohttp.ClientError, OSError, ValueError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return (date - datetime.now(UTC)).total_seconds()


async def _certificate(url: URL, config: BackendConfig) -> Finding | None:
    """Returns the finding for a server's certificate; None if there is no connection, which another check reports."""
    if not config.verify_tls:
        return warning(
            "Its certificate is not checked (`verify_tls: false`).",
            "Anyone on the network path can read the key and all conversations.",
            "Set `verify_tls: true`; name your own certificate authority in SSL_CERT_FILE.",
        )
    try:
        async with asyncio.timeout(LOOK_S):
            _, writer = await asyncio.open_connection(url.raw_host, url.port, ssl=tls_context(verify=True))
    except ssl.SSLCertVerificationError as error:
        return problem(
            f"Its certificate is not trusted: {error.verify_message}.",
            "Requests to it fail.",
            "Renew it, or name your own certificate authority in SSL_CERT_FILE. The host name must be in its subjectAltName.",
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
        return warning(f"Its certificate expires in {days} days.", "Then requests to it fail.", "Renew it.")
    return ok(f"Its certificate is trusted, and valid for {days} more days.")


# --- its own reports -----------------------------------------------------------------------------------------------


async def _from_inside(
    config: GatewayConfig,
    endpoint: UpstreamServer,
    endpoints: Mapping[str, UpstreamServer],
    plugins: Registries,
    probe_s: float | None,
) -> AsyncIterator[Finding]:
    identity = Identity()
    try:
        if hasattr(endpoint.backend, "identify"):
            identity = await endpoint.identify()
            endpoint.learn(identity)
            models = [served.name for served in identity.models]
        elif await _ready(endpoint.backend):
            models = await endpoint.models()
        else:
            raise disconnected()
    except GatewayError as error:
        if endpoint.config.health_path is None or not await _ready(endpoint.backend):
            code = "upstream_invalid_response" if error.upstream_status == 404 else error.code
            todo = _CURE.get(code, "Look at the server's log.")
            yield problem(f"{error.message} It was contacted{_at(endpoint.config)}.", "Requests to it fail.", todo)
            return
        models = []
    yield ok(f"It answers{_at(endpoint.config)}, as {_named(endpoint, identity)}.")
    for finding in _serving(config, endpoint.name, identity, models):
        yield finding
    model = None
    for route, member in _members(config, endpoint, endpoints):
        for finding in _enforcing(endpoint, route):
            yield finding
        model = model or await _asked(member, route)
    if model is not None:
        yield await _counting(endpoint, model)
        if probe_s is not None:
            async for finding in _calling(config, endpoint, model, plugins, probe_s):
                yield finding


async def _ready(backend: Backend) -> bool:
    try:
        async with asyncio.timeout(LOOK_S):
            return await backend.ready()
    except Exception:  # an error of a plug-in
        return False


def _named(endpoint: UpstreamServer, identity: Identity) -> str:
    config = endpoint.config
    if not isinstance(endpoint.backend, HttpBackend):
        return f"a backend of the kind {config.kind!r}"
    if identity.engine is not None:
        what = f"{ENGINES[identity.engine]}{f' {identity.version}' if identity.version else ''}"
    else:
        what = "a server of an unknown engine"
    return f"{what} (preset {preset_of(config, identity)}{', detected' if config.preset == AUTO else ''})"


def _serving(config: GatewayConfig, name: str, identity: Identity, models: list[str]) -> Iterator[Finding]:
    if not models:
        yield ok("It lists no models.")
        return
    more = f" and {len(models) - SHOWN} more" if len(models) > SHOWN else ""
    yield ok(f"It serves {', '.join(map(quote, models[:SHOWN]))}{more}.")
    for route in effective_routes(config):
        named = {server.upstream_model or route.upstream_model for server in route.servers if server.backend == name}
        for wanted in filter(None, named):
            if wanted not in models and not identity.any_name:
                yield warning(
                    f"The route {quote(route.model)} requests {quote(wanted)} from it, which it does not list.",
                    "Servers refuse models that they do not have.",
                    "Set `upstream_model` to one that it serves.",
                )


def _members(
    config: GatewayConfig, endpoint: UpstreamServer, endpoints: Mapping[str, UpstreamServer]
) -> Iterator[tuple[RouteConfig, WeightedServer]]:
    """Yields the routes that use this server, each with the server as a member."""
    for route in effective_routes(config):
        named = {server.backend for server in route.servers}
        if endpoint.name not in named or not named <= endpoints.keys():
            continue
        try:
            yield from ((route, one) for one in pool_of(route, endpoints).every if one.endpoint is endpoint)
        except ValueError:
            continue  # a mistake of the configuration, which is reported elsewhere


def _enforcing(endpoint: UpstreamServer, route: RouteConfig) -> Iterator[Finding]:
    options = route.options
    if options.mode == "native" or options.decoding.constrain == "off":
        return
    feature = endpoint.backend.capabilities.constrain
    reason = why_not(feature, None)
    if reason is None:
        yield ok(f"Route {quote(route.model)}: required calls are enforced while decoding ({feature}).")
    elif options.decoding.constrain == "required":
        yield problem(
            f"Route {quote(route.model)}: `constrain: required`, but {reason}.",
            "Requests that require a call are refused.",
            "Use `constrain: auto`, or name the server's feature (`preset`, `constrain` of the backend).",
        )
    else:
        yield advice(
            f"Route {quote(route.model)}: required calls are not enforced while decoding: {reason}.",
            "Name a feature that the server has (`preset` or `constrain` of the backend), or another `format`.",
        )


async def _asked(member: WeightedServer, route: RouteConfig) -> str | None:
    try:
        return await known_model_name(member, route)
    except GatewayError:
        return None


async def _counting(endpoint: UpstreamServer, model: str) -> Finding:
    backend = endpoint.backend
    tokens = None
    if isinstance(backend, TokenCounter):
        request = adapt(ModelRequest(model, (ASKED,)), backend.capabilities, wire=backend.protocol)
        tokens = await backend.count(request)
    if tokens is None:
        estimated = "It cannot count the tokens of a prompt; the gateway estimates them for requests that count tokens."
        if find_spec("tiktoken") is not None:
            return ok(estimated)
        return advice(estimated, "Install tiktoken for closer estimates: pip install 'toolwire[tokens]'")
    return ok("It counts a prompt's tokens.")


async def _calling(
    config: GatewayConfig, endpoint: UpstreamServer, model: str, plugins: Registries, probe_s: float
) -> AsyncIterator[Finding]:
    """Yields the findings on tool calls: whether the server accepts tools and the model calls one, and whether its chat
    template can describe tools. The template is not tested if no route uses `mode: template` and the model's family is
    unknown."""
    called = await _probed(probe(endpoint, model), probe_s)
    by_template = None
    wanted, tool_format = _any_mode(config, endpoint, "template"), format_of_served(endpoint, model, plugins)
    # A server that did not answer the first request will not answer the second one.
    if called.mode is not None and (wanted or tool_format is not None):
        special = tool_format is not None and tool_format.special_tokens
        by_template = await _probed(probe_template(endpoint, model, special_tokens=special), probe_s)

    what = f"{quote(model)}, asked for a call of a tool: {WORDS.get(called.cause or '', 'no result')}{_said(called)}"
    if called.mode is None:
        yield warning(what, "Requests may fail in the same way.", "Read the server's log, or raise --timeout.")
    elif called.mode == "prompt" and _any_mode(config, endpoint, "native"):
        yield problem(
            what,
            "A route uses its native tool calls (`mode: native`).",
            "Use `mode: prompt`, `hybrid` or `auto`, or start the server with its tool parser.",
        )
    elif called.cause == "silent" and (by_template is None or by_template.mode != "template"):
        yield _silent(what)
    else:
        yield ok(what)

    if by_template is None:
        return
    cause = by_template.cause
    words = "its chat template is unknown" if cause is None else TEMPLATE_WORDS[cause]
    what = f"{quote(model)}: {words}{_said(by_template)}"
    if by_template.mode is None:
        yield advice(what, "Read the server's log, or raise --timeout. Without a result the template is not used.")
    elif by_template.mode == "prompt" and wanted:
        yield problem(
            what,
            "A route uses it to describe tools (`mode: template`).",
            "Use `mode: prompt` or `text`, or start the server without its tool parser and with its chat template.",
        )
    else:
        yield _silent(what) if cause == "silent" else ok(what)


async def _probed(probing: Awaitable[ProbeResult], probe_s: float) -> ProbeResult:
    """Returns the result of a test request, for which the server has `probe_s`."""
    try:
        async with asyncio.timeout(probe_s):
            return await probing
    except TimeoutError:
        return ProbeResult(None, None, f"it did not answer within {probe_s:g} s")
    except Exception as error:  # an error of a plug-in
        return ProbeResult(None, None, f"it failed: {type(error).__name__}")


def _said(result: ProbeResult) -> str:
    return f": {result.said}" if result.said else "."


def _silent(what: str) -> Finding:
    """Returns the finding for a model that was told to call a tool, and answered without a call."""
    return warning(
        what,
        "The model is too weak for tools, or the server does not pass on its calls.",
        "Run `toolwire tune`: it shows whether the model calls when the gateway describes tools, and with which options.",
    )


def _any_mode(config: GatewayConfig, endpoint: UpstreamServer, mode: str) -> bool:
    """Returns True if a route that uses this server has this mode."""
    return any(
        route.options.mode == mode
        for route in effective_routes(config)
        if endpoint.name in {server.backend for server in route.servers}
    )


def _at(config: BackendConfig) -> str:
    """Returns the address for messages, without parts that may be secret; empty if there is none."""
    if config.command:
        return f" as the program {config.command[0]}"
    return f" at {config.public_url}" if config.public_url else ""
