"""What this system can do with processes."""

from __future__ import annotations

import os


def has_groups() -> bool:
    """Whether there are forks, and groups of processes that can be ended together. Windows has neither."""
    return hasattr(os, "fork") and hasattr(os, "killpg")
