"""A request that comes back to the gateway that sent it: noticed by a header, and ended with 508.

Every request to a model server names the gateway in `X-Toolwire-Hops`, behind those that it came through. Whoever finds
his own name in it, or too many, has been here before. The names are made at the start and say nothing.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

from multidict import CIMultiDictProxy

from toolwire.errors import BackendFault, GatewayError

HEADER: Final = "X-Toolwire-Hops"

MOST: Final = 16
"""Gateways in a row; more are a ring of which none knows its name."""

LOOP: Final = "backend_loop"
"""Code of the error of a request that comes back."""

_NAMES: Final = re.compile(r"[0-9a-f]{16}(?:, ?[0-9a-f]{16})*")

HOPS: Final[ContextVar[str]] = ContextVar("toolwire.hops", default="")
"""The gateways that the current request came through before this one, as they are told of further on."""


def came_through(headers: CIMultiDictProxy[str], own: str) -> str:
    """The gateways that a request came through; empty if there is none. `own` is the name of this one. Raises
    `BackendFault` `backend_loop` for a request that was here before. What has not the form is none of ours, and goes no
    further."""
    text = ", ".join(headers.getall(HEADER, ()))
    if not _NAMES.fullmatch(text):
        return ""
    names = dict.fromkeys(text.replace(" ", "").split(","))
    if own in names or len(names) > MOST:
        raise loop()
    return ", ".join(names)


def loop() -> GatewayError:
    """The error of a request that comes back."""
    return BackendFault(
        "The gateway's own request came back to it.",
        code=LOOP,
        hint="Check the backend's `url`: it leads to this gateway, or to another one that asks this one.",
        headers={"x-should-retry": "false"},
    )
