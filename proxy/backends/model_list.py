"""The list of a server's models, read from its answer: pure functions. What is no such list tells that it is no model server, or that its
address is wrong."""

from __future__ import annotations

from typing import Any, Final

import orjson

from ..errors import BackendFault

HINT: Final = "Check the backend's `url`: is that a model server with OpenAI's protocol?"


def read_model_list(status: int, body: bytes) -> list[str]:
    """The names. `{"data": [...]}`, or the list alone; null is an empty one. Raises `BackendFault` for anything else."""
    if status in (401, 403):
        raise BackendFault(
            f"The model server refused the gateway's key (status {status}).",
            code="upstream_auth",
            hint="Check the backend's `api_key`.",
        )
    if status != 200:
        raise BackendFault(f"The model server answered {status} when it was asked for its models.", hint=HINT)
    try:
        listed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise no_list() from None
    if isinstance(listed, dict) and "data" in listed:
        listed = listed["data"] or []
    if not isinstance(listed, list):
        raise no_list()
    return [entry["id"] for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def no_list() -> BackendFault:
    """The answer is something else."""
    return BackendFault("The model server gave no list of models.", code="upstream_invalid_response", hint=HINT)
