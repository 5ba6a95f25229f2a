"""Converts an app-server's errors, of requests and of turns, to errors for the client.

An error with an HTTP status, or with the meaning of one, is treated like that status from any model server
(`upstream_errors`). The server's own text is kept, cleaned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from ...errors import BackendFault, ClientFault, GatewayError
from ...model import FinishReason
from ...protocols.shared.server_errors import overflow_fault
from ...upstream.servers.private_data import PrivateData
from ...upstream.servers.upstream_errors import clean_text, read_refusal
from .rpc import RpcError

OVERLOADED: Final = -32001
WRONG_VALUE: Final = -32602

_STATUS: Final[Mapping[str, int]] = {
    "badRequest": 400,
    "cyberPolicy": 400,
    "flexUnavailable": 529,
    "inferenceHookDenied": 400,
    "internalServerError": 500,
    "misalignmentPolicyViolation": 400,
    "modelNotFound": 404,
    "policyCapacityUnavailable": 529,
    "rateLimitExceeded": 429,
    "serverOverloaded": 529,
    "sessionBudgetExceeded": 429,
    "unauthorized": 401,
    "usageLimitExceeded": 429,
}
"""Maps `codexErrorInfo` to the HTTP status with the same meaning."""

_CODE: Final[Mapping[str, str]] = {
    "contextWindowExceeded": "context_length_exceeded",
    "modelNotFound": "model_not_found",
}

_INCOMPLETE: Final = re.compile(r"Incomplete response returned, reason: (\w+)")
_ENDS: Final[Mapping[str, str]] = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_IMAGE_URL: Final = re.compile(r"image URL", re.IGNORECASE)
_CUT: Final = re.compile(r"stream disconnected|stream closed", re.IGNORECASE)


def request_error(error: RpcError, private: PrivateData) -> GatewayError:
    """Returns the error for a request that was answered with an error."""
    if error.code == OVERLOADED:
        return _with_status(529, error.message, private)
    data = error.data if isinstance(error.data, dict) else {}
    text = clean_text(error.message, private=private)
    if data.get("input_error_code") == "input_too_large":
        return overflow_fault(text, upstream_status=400)
    if _IMAGE_URL.search(error.message):
        return ClientFault(text, code="unsupported_content", upstream_status=400)
    if error.code == WRONG_VALUE:
        return ClientFault(
            text or "The model server refused the request.", code="upstream_rejected", upstream_status=400
        )
    return BackendFault(f"The model server answered with an error: {text}" if text else "The model server failed.")


def finish_reason(error: Mapping[str, Any]) -> str | None:
    """Returns the finish reason if a turn's error only means that the answer was truncated (C18) or filtered; else
    None."""
    match = _INCOMPLETE.search(str(error.get("message")))
    return None if match is None else _ENDS.get(match[1])


def turn_error(error: Mapping[str, Any], private: PrivateData) -> GatewayError:
    """Returns the error for a failed turn (`TurnError`)."""
    text = str(error.get("message") or "")
    info = error.get("codexErrorInfo")
    if info == "contextWindowExceeded":
        return _with_status(400, text, private, _CODE[info])
    if isinstance(info, str) and info in _STATUS:
        return _with_status(_STATUS[info], text, private, _CODE.get(info))
    if isinstance(info, dict):
        details = next((value for value in info.values() if isinstance(value, dict)), {})
        status = details.get("httpStatusCode")
        if isinstance(status, int) and 300 <= status < 600:
            return _with_status(status, text, private)
        if not isinstance(status, int):
            return broken_off(text, private)
    if info in ("other", None) and _is_json(text):  # the model's own server refused, and this is its answer
        return read_refusal(400, {}, text.encode(), private=private)
    if _CUT.search(text):
        return broken_off(text, private)
    return _with_status(500, text, private)


def broken_off(text: str, private: PrivateData) -> BackendFault:
    """Returns the error for an answer that ended before it was complete."""
    shown = clean_text(text, private=private)
    return BackendFault(
        f"The model's answer broke off: {shown}" if shown else "The model's answer broke off.",
        code="upstream_disconnected",
        transient=True,
    )


def compacted() -> ClientFault:
    """Returns the error for a conversation that the server has summarised to make it fit."""
    return overflow_fault("The model's server would replace the conversation by a summary.", upstream_status=400)


def _with_status(status: int, text: str, private: PrivateData, code: str | None = None) -> GatewayError:
    body = text.encode() if _is_json(text) else orjson.dumps({"error": {"message": text, "code": code}})
    return read_refusal(status, {}, body, private=private)


def _is_json(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False
