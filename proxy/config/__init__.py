"""The configuration as frozen dataclasses, with defaults and descriptions. `toolwire.configuration.settings` loads it.

Rules of this package:

1. Each section of the file is one dataclass; attribute names are the keys of the file. The configuration reference and
   the JSON Schema are generated from the types, defaults and `doc(...)` texts, so they always match.
2. Creating a section has no side effects; nothing here reads a file, an environment variable or a clock.
3. Times are seconds (`_s`) and sizes are bytes (`_bytes`), unless the name says otherwise.
"""

from toolwire.config.backend import BackendConfig as BackendConfig
from toolwire.config.backend import BreakerConfig as BreakerConfig
from toolwire.config.backend import CodexConfig as CodexConfig
from toolwire.config.backend import Pool as Pool
from toolwire.config.backend import Timeouts as Timeouts
from toolwire.config.chain import DEFAULT_CHAIN as DEFAULT_CHAIN
from toolwire.config.chain import ON_DEMAND as ON_DEMAND
from toolwire.config.chain import MiddlewareConfig as MiddlewareConfig
from toolwire.config.chain import default_chain as default_chain
from toolwire.config.documented import doc as doc
from toolwire.config.gateway import GatewayConfig as GatewayConfig
from toolwire.config.keeping import BackgroundConfig as BackgroundConfig
from toolwire.config.keeping import CaptureConfig as CaptureConfig
from toolwire.config.keeping import InspectConfig as InspectConfig
from toolwire.config.keeping import McpServerConfig as McpServerConfig
from toolwire.config.keeping import StoreConfig as StoreConfig
from toolwire.config.keeping import TelemetryConfig as TelemetryConfig
from toolwire.config.keeping import ToolsConfig as ToolsConfig
from toolwire.config.listening import AuthConfig as AuthConfig
from toolwire.config.listening import CorsConfig as CorsConfig
from toolwire.config.listening import KeyConfig as KeyConfig
from toolwire.config.listening import LimitsConfig as LimitsConfig
from toolwire.config.listening import RateLimitConfig as RateLimitConfig
from toolwire.config.listening import RateLimitsConfig as RateLimitsConfig
from toolwire.config.listening import ServerConfig as ServerConfig
from toolwire.config.listening import WebsocketConfig as WebsocketConfig
from toolwire.config.options import BadAnswersConfig as BadAnswersConfig
from toolwire.config.options import CallsConfig as CallsConfig
from toolwire.config.options import DecodingConfig as DecodingConfig
from toolwire.config.options import LoopDetectConfig as LoopDetectConfig
from toolwire.config.options import PromptConfig as PromptConfig
from toolwire.config.options import ReasoningConfig as ReasoningConfig
from toolwire.config.options import RequestsConfig as RequestsConfig
from toolwire.config.options import ResponsesConfig as ResponsesConfig
from toolwire.config.options import RetryConfig as RetryConfig
from toolwire.config.options import RouteOptions as RouteOptions
from toolwire.config.options import ToolLoopConfig as ToolLoopConfig
from toolwire.config.options import UsageConfig as UsageConfig
from toolwire.config.route import EndpointConfig as EndpointConfig
from toolwire.config.route import RouteConfig as RouteConfig
