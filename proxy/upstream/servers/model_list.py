"""Parses the model list of a server: pure functions. Anything else shows that the server is no model server, or that
its URL is wrong."""

from __future__ import annotations

from typing import Any, Final

from ...errors import BackendFault
from ...protocols.shared.wire import BOUNDS
from ...support.bounded_json import loads
from .hops import loop

MOST_MODELS: Final = 10_000
"""Maximum number of models in one list. All are read whenever a client asks for the models."""

HINT: Final = "Check the backend's `url`: is that a model server with OpenAI's protocol?"


def read_model_list(status: int, body: bytes) -> list[Any]:
    """Returns the entries of the list. Accepts `{"data": [...]}`, or the list alone; null is an empty one. Raises
    `BackendFault` for anything else."""
    if status in (401, 403):
        raise BackendFault(
            f"The model server refused the gateway's key (status {status}).",
            code="upstream_auth",
            hint="Check the backend's `api_key`.",
        )
    if status == 508:
        raise loop()
    if status != 200:
        message = f"The model server answered {status} when it was asked for its models."
        raise BackendFault(message, hint=HINT, upstream_status=status)
    try:
        listed = loads(body, BOUNDS)
    except ValueError:
        raise no_list() from None
    if isinstance(listed, dict) and "data" in listed:
        listed = listed["data"] or []
    if not isinstance(listed, list):
        raise no_list()
    if len(listed) > MOST_MODELS:
        raise BackendFault(
            f"The model server gave a list of more than {MOST_MODELS} models.", code="upstream_invalid_response"
        )
    return listed


def model_names(listed: list[Any]) -> list[str]:
    """Returns the model names in the entries of a list."""
    return [entry["id"] for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def no_list() -> BackendFault:
    """Returns the error for an answer that is no model list."""
    return BackendFault("The model server gave no list of models.", code="upstream_invalid_response", hint=HINT)
