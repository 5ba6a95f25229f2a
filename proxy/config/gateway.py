"""The root section of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .backend import BackendConfig
from .chain import MiddlewareConfig, default_chain
from .documented import doc
from .options import RouteOptions
from .route import RouteConfig
from .server import (
    AuthConfig,
    CorsConfig,
    LimitsConfig,
    RateLimitsConfig,
    ServerConfig,
    WebsocketConfig,
)
from .services import (
    BackgroundConfig,
    CaptureConfig,
    InspectConfig,
    StoreConfig,
    TelemetryConfig,
    ToolsConfig,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The whole configuration."""

    server: ServerConfig = doc("Listening.", default_factory=ServerConfig)
    auth: AuthConfig = doc("Keys of clients.", default_factory=AuthConfig)
    cors: CorsConfig = doc("Access from web pages.", default_factory=CorsConfig)
    websocket: WebsocketConfig = doc("Responses over WebSocket.", default_factory=WebsocketConfig)
    limits: LimitsConfig = doc("Upper bounds.", default_factory=LimitsConfig)
    rate_limits: RateLimitsConfig = doc("Rate limits.", default_factory=RateLimitsConfig)
    store: StoreConfig = doc("Storage of responses.", default_factory=StoreConfig)
    background: BackgroundConfig = doc("Responses that are made in the background.", default_factory=BackgroundConfig)
    telemetry: TelemetryConfig = doc("OpenTelemetry.", default_factory=TelemetryConfig)
    tools: ToolsConfig = doc("Server-side tools.", default_factory=ToolsConfig)
    capture: CaptureConfig = doc("Recordings for bug reports.", default_factory=CaptureConfig)
    inspect: InspectConfig = doc("The inspector, a page for debugging.", default_factory=InspectConfig)
    backends: Mapping[str, BackendConfig] = doc("Model servers by name.", default_factory=dict)
    defaults: RouteOptions = doc("Default options of all routes.", default_factory=RouteOptions)
    chain: tuple[MiddlewareConfig, ...] = doc("Middlewares, outermost first.", default_factory=default_chain)
    routes: tuple[RouteConfig, ...] = doc("Routes; default: every model to the only backend.", default=())
