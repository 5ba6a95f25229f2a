"""toolwire: exact, structured tool calls from models that only write text.

Exports the public names of `proxy`, loaded at their first use. OpenAI's own tool objects are in
`toolwire.openai_types`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proxy
from proxy import __all__ as __all__

if TYPE_CHECKING:
    from proxy import *  # noqa: F403  # its `__all__` is the one list


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(proxy, name)


def __dir__() -> list[str]:
    return sorted(__all__)
