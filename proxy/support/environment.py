"""The environment of subprocesses. Only listed variables of the gateway's environment are inherited, because the others
may hold API keys. And the reason why a system cannot run tool modules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

INHERITED: Final = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TEMP",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "SYSTEMROOT",
    "USERPROFILE",
)
"""Variables that every program may need."""

INTERPRETER: Final = (
    "DYLD_LIBRARY_PATH",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "PYTHONHASHSEED",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONUSERBASE",
    "PYTHONUTF8",
    "VIRTUAL_ENV",
)
"""Inherited by programs that run on the gateway's own Python interpreter: variables that it needs to find itself and
its packages."""

PROXIES: Final = tuple(
    name for word in ("http", "https", "all", "no") for name in (f"{word}_proxy", f"{word}_PROXY".upper())
)
"""Proxy variables, which are inherited where `trust_env` is set."""


def environment(own: Mapping[str, str], inherit: Sequence[str], *, proxies: bool) -> dict[str, str]:
    """Returns the environment of a subprocess: `own`, the variables that every program may need, those named in
    `inherit`, and with `proxies` the proxy settings."""
    names = (*INHERITED, *(PROXIES if proxies else ()), *inherit)
    return {**{name: os.environ[name] for name in names if name in os.environ}, **own}


# --- systems without tool modules -------------------------------------------------------------------------------------


NO_TOOLS: Final = (
    "tool modules need forks and groups of processes, which this system does not have (Windows); offer the tools by an MCP "
    "server (`tools.mcp`)"
)


def has_groups() -> bool:
    """True if the system has `fork` and process groups, which end several processes at once. Windows has neither."""
    return hasattr(os, "fork") and hasattr(os, "killpg")
