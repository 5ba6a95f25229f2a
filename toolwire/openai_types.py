"""OpenAI's tool objects as values, for programs that use this package without its server: `proxy.openai_types` says all
about them."""

from proxy.openai_types import *  # noqa: F403
from proxy.openai_types import __all__ as __all__
