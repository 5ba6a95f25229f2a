"""The configuration as frozen dataclasses, with defaults and descriptions. `toolwire.configuration.settings` loads it.

Rules of this package:

1. Each section of the file is one dataclass; attribute names are the keys of the file. The configuration reference and
   the JSON Schema are generated from the types, defaults and `doc(...)` texts, so they always match.
2. Creating a section has no side effects; nothing here reads a file, an environment variable or a clock.
3. Times are seconds (`_s`) and sizes are bytes (`_bytes`), unless the name says otherwise.
"""

from .backend import BackendConfig as BackendConfig
from .backend import BreakerConfig as BreakerConfig
from .backend import CodexConfig as CodexConfig
from .backend import Pool as Pool
from .backend import Timeouts as Timeouts
from .chain import DEFAULT_CHAIN as DEFAULT_CHAIN
from .chain import ON_DEMAND as ON_DEMAND
from .chain import MiddlewareConfig as MiddlewareConfig
from .chain import default_chain as default_chain
from .documented import doc as doc
from .gateway import GatewayConfig as GatewayConfig
from .options import BadAnswersConfig as BadAnswersConfig
from .options import CallsConfig as CallsConfig
from .options import DecodingConfig as DecodingConfig
from .options import LoopDetectConfig as LoopDetectConfig
from .options import PromptConfig as PromptConfig
from .options import ReasoningConfig as ReasoningConfig
from .options import RequestsConfig as RequestsConfig
from .options import ResponsesConfig as ResponsesConfig
from .options import RetryConfig as RetryConfig
from .options import RouteOptions as RouteOptions
from .options import ToolLoopConfig as ToolLoopConfig
from .options import UsageConfig as UsageConfig
from .route import EndpointConfig as EndpointConfig
from .route import RouteConfig as RouteConfig
from .server import AuthConfig as AuthConfig
from .server import CorsConfig as CorsConfig
from .server import KeyConfig as KeyConfig
from .server import LimitsConfig as LimitsConfig
from .server import RateLimitConfig as RateLimitConfig
from .server import RateLimitsConfig as RateLimitsConfig
from .server import ServerConfig as ServerConfig
from .server import WebsocketConfig as WebsocketConfig
from .services import BackgroundConfig as BackgroundConfig
from .services import CaptureConfig as CaptureConfig
from .services import InspectConfig as InspectConfig
from .services import McpServerConfig as McpServerConfig
from .services import StoreConfig as StoreConfig
from .services import TelemetryConfig as TelemetryConfig
from .services import ToolsConfig as ToolsConfig
