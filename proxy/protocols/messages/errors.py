"""Errors and limits of Messages: error types by status, the error object, the meaning of a server's error, and headers
of remaining limits.

Source: R13.1 and the table of types in Anthropic's reference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import BackendFault, ClientFault, GatewayError, quote
from ..base import Allowance
from ..chat.reply import text_of
from ..shared.server_errors import UNCOUNTED, error_in, fault_of, is_overflow, overflow_fault, read_overflow, status_in
from ..shared.wire import dump, fields_in, shorten

OVERLOADED: Final = 529
"""The status of `overloaded` in this protocol."""

_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
_DETAILS: Final[Mapping[str, str]] = {"previous_response_not_found": "thread_not_found"}
"""Values of `details.error_code`, which the SDK looks for."""
_CODES: Final[Mapping[str, str]] = {
    "overloaded_error": "overloaded",
    "timeout_error": "upstream_timeout",
    "authentication_error": "upstream_auth",
    "permission_error": "upstream_auth",
}
_CLIENTS: Final[Mapping[str, str]] = {
    "invalid_request_error": "upstream_rejected",
    "request_too_large": "request_too_large",
    "rate_limit_error": "rate_limit_exceeded",
}


def status_of(error: GatewayError) -> int:
    """Returns the HTTP status of an error in this protocol."""
    return OVERLOADED if error.code == "overloaded" else error.status


def error_object(error: GatewayError) -> dict[str, Any]:
    """Returns the `error` of an error body or event. If the message does not name the field in `param`, the field is
    put before it."""
    status = status_of(error)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    if error.code == "context_length_exceeded":
        return {"type": kind, "message": overflow_message(error.message)}
    named = error.param is None or error.param in error.message
    written = {"type": kind, "message": error.message if named else f"{error.param}: {error.message}"}
    details = _DETAILS.get(error.code)
    return written if details is None else {**written, "details": {"error_code": details}}


def overflow_message(message: str) -> str:
    """Returns a server's message about a context overflow in Anthropic's words, after which Claude Code compacts the
    conversation, or asks for a shorter answer (R28.6). A message without token counts keeps its text."""
    counts = read_overflow(message)
    if counts is None:
        message = message.removeprefix(f"{UNCOUNTED} ")
        return message if "prompt is too long" in message else f"prompt is too long: {message}"
    if counts.prompt > counts.window or not counts.output:
        return f"prompt is too long: {counts.prompt} tokens > {counts.window} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {counts.prompt} + {counts.output} > {counts.window},"
        " decrease input length or `max_tokens` and try again"
    )


def write_error(error: GatewayError, request_id: str) -> bytes:
    """Returns the body of an error answer (R13.1)."""
    return dump({"type": "error", "error": error_object(error), "request_id": request_id})


def write_limits(allowances: Sequence[Allowance], now: float) -> dict[str, str]:
    """Returns Anthropic's `anthropic-ratelimit-*` headers; see `ClientSide.write_limits`."""
    return {
        f"anthropic-ratelimit-{allowance.kind}-{what}": value
        for allowance in allowances
        for what, value in (
            ("limit", str(allowance.most)),
            ("remaining", str(allowance.left)),
            ("reset", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.ceil(now + allowance.reset_s)))),
        )
    }


def read_error(value: Mapping[str, Any]) -> GatewayError | None:
    """Returns the error in a body or a frame; None if it holds none. It has the server's message, shortened (R10.8)."""
    error = error_in(value)
    if error is None:
        return None
    fields = fields_in(error)
    kind = text_of(fields.get("type"))
    text = text_of(fields.get("message")) or text_of(error)
    message = shorten(text) or f"The model server reported {quote(error)}."
    if is_overflow(message):
        return overflow_fault(message, param="messages")
    fault: GatewayError
    if kind in _CLIENTS:
        fault = ClientFault(message, code=_CLIENTS[kind], transient=kind == "rate_limit_error")
    elif kind in _CODES or kind == "api_error":
        fault = BackendFault(message, code=_CODES.get(kind), transient=kind in ("overloaded_error", "api_error"))
    else:
        return fault_of(fields, message)
    fault.upstream_status = status_in(fields)
    return fault
