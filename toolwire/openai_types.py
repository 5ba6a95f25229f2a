"""OpenAI's tool objects as values, for programs without the server. See `proxy.openai_types`."""

from proxy.openai_types import *  # noqa: F403
from proxy.openai_types import __all__ as __all__
