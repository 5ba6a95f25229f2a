"""What this system can do with processes."""

from __future__ import annotations

import os
from typing import Final

NO_TOOLS: Final = (
    "tool modules need forks and groups of processes, which this system does not have (Windows); offer the tools by an MCP "
    "server (`tools.mcp`)"
)


def has_groups() -> bool:
    """Whether there are forks, and groups of processes that can be ended together. Windows has neither."""
    return hasattr(os, "fork") and hasattr(os, "killpg")
