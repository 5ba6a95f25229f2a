"""Detects request loops between gateways with a header, and ends them with status 508.

Every request to a model server names this gateway in `X-Toolwire-Hops`, after the gateways that it came through. A
gateway that reads its own name, or too many names, refuses the request. Names are random and made at the start.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

from multidict import CIMultiDictProxy

from ...errors import BackendFault, GatewayError

HEADER: Final = "X-Toolwire-Hops"

MOST: Final = 16
"""Maximum number of gateways in a row. More are taken for a loop of gateways that do not recognise themselves."""

LOOP: Final = "backend_loop"
"""Error code of a request that came back."""

_NAMES: Final = re.compile(r"[0-9a-f]{16}(?:, ?[0-9a-f]{16})*")

HOPS: Final[ContextVar[str]] = ContextVar("toolwire.hops", default="")
"""The gateways that the current request came through before this one, in the header's form."""


def read_hops(headers: CIMultiDictProxy[str], own: str) -> str:
    """Returns the gateways that a request came through, or an empty text. A malformed header is ignored. Raises
    `BackendFault` `backend_loop` if `own`, the name of this gateway, is among them, or if there are too many."""
    text = ", ".join(headers.getall(HEADER, ()))
    if not _NAMES.fullmatch(text):
        return ""
    names = dict.fromkeys(text.replace(" ", "").split(","))
    if own in names or len(names) > MOST:
        raise loop_fault()
    return ", ".join(names)


def loop_fault() -> GatewayError:
    """Returns the error for a request that came back."""
    return BackendFault(
        "The gateway's own request came back to it.",
        code=LOOP,
        hint="Check the backend's `url`: it leads to this gateway, or to another gateway that sends requests to this one.",
    )
