"""What a process that the gateway starts gets of the gateway's environment: never what is not listed, since that is
where keys are."""

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
"""Inherited where the program is the gateway's own interpreter: what that may need to find itself and its packages."""

PROXIES: Final = tuple(
    name for word in ("http", "https", "all", "no") for name in (f"{word}_proxy", f"{word}_PROXY".upper())
)
"""Inherited where `trust_env` is set."""


def environment(own: Mapping[str, str], inherit: Sequence[str], *, proxies: bool) -> dict[str, str]:
    """The environment of the process: `own`, and of the gateway's what is inherited."""
    names = (*INHERITED, *(PROXIES if proxies else ()), *inherit)
    return {**{name: os.environ[name] for name in names if name in os.environ}, **own}
