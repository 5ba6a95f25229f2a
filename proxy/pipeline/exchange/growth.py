"""Limits of a request including everything that the gateway adds to it, such as stored turns: the same as those of a
body (R33.2)."""

from __future__ import annotations

from typing import Literal

from ...config import LimitsConfig
from ...errors import ClientFault
from ...model import ModelRequest
from ...store.base import ReadBudget


def read_budget(request: ModelRequest, limits: LimitsConfig) -> ReadBudget:
    """Returns the number of bytes and JSON values that may still be read from a store for this request."""
    return ReadBudget(max(0, limits.body_bytes - request.size), limits.json_values)


def too_much(kind: Literal["bytes", "values"], limits: LimitsConfig, param: str | None) -> ClientFault:
    """Returns the error for a request that would exceed the limits of a body. `param` is the field that refers to the
    added content."""
    option = "body_bytes" if kind == "bytes" else "json_values"
    limit = f"{limits.body_bytes} bytes" if kind == "bytes" else f"{limits.json_values} JSON values"
    return ClientFault(
        f"The request, with the stored content that it refers to, is larger than {limit}.",
        code="request_too_large",
        param=param,
        hint=f"Begin a new conversation, or refer to less. The limit is `limits.{option}`.",
    )
