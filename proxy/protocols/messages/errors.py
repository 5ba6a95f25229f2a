"""Errors and limits in Messages' words: types by status, the envelope, what a server's error means, and what of a limit
is left.

Source: R13.1 and the table of types in Anthropic's reference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolwire.errors import BackendFault, ClientFault, GatewayError, quote
from toolwire.protocols.base import Allowance
from toolwire.protocols.chat.reply import text_of
from toolwire.protocols.shared import openai, overflow
from toolwire.protocols.shared.in_band import fault_of, status_in
from toolwire.protocols.shared.wire import dump, shorten

OVERLOADED: Final = 529
"""The status that says `overloaded` here."""

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
"""What the SDK looks for in `details.error_code`."""
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
    """The HTTP status that an error has here."""
    return OVERLOADED if error.code == "overloaded" else error.status


def error_object(error: GatewayError) -> dict[str, Any]:
    """The `error` of an envelope, or of an event. A field that the message does not name is put in front of it."""
    status = status_of(error)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    if error.code == "context_length_exceeded":
        return {"type": kind, "message": overflow_message(error.message)}
    named = error.param is None or error.param in error.message
    written = {"type": kind, "message": error.message if named else f"{error.param}: {error.message}"}
    details = _DETAILS.get(error.code)
    return written if details is None else {**written, "details": {"error_code": details}}


def overflow_message(said: str) -> str:
    """A context overflow in Anthropic's words, by which Claude Code compacts the conversation, or asks for a shorter
    answer (R28.6). `said` is the server's own message; it stays where it names no counts."""
    counts = overflow.read_overflow(said)
    if counts is None:
        return said if "prompt is too long" in said else f"prompt is too long: {said}"
    if counts.prompt > counts.window or not counts.output:
        return f"prompt is too long: {counts.prompt} tokens > {counts.window} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {counts.prompt} + {counts.output} > {counts.window},"
        " decrease input length or `max_tokens` and try again"
    )


def write_error(error: GatewayError, request_id: str) -> bytes:
    """The envelope (R13.1)."""
    return dump({"type": "error", "error": error_object(error), "request_id": request_id})


def write_limits(allowances: Sequence[Allowance], now: float) -> dict[str, str]:
    """See `ClientSide.write_limits`."""
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
    """The error in a body or in a frame, None if it holds none. The server's message is kept, shortened (R10.8)."""
    error = value.get("error")
    if not error and value.get("type") != "error":
        return None
    kind = text_of(error.get("type")) if isinstance(error, dict) else ""
    said = text_of(error.get("message")) if isinstance(error, dict) else text_of(error)
    message = shorten(said) or f"The model server reported {quote(error)}."
    if overflow.is_overflow(message):
        return ClientFault(message, code="context_length_exceeded", param="messages")
    given = error if isinstance(error, dict) else {}
    fault: GatewayError
    if kind in _CLIENTS:
        fault = ClientFault(message, code=_CLIENTS[kind], transient=kind == "rate_limit_error")
    elif kind in _CODES or kind == "api_error":
        fault = BackendFault(message, code=_CODES.get(kind), transient=kind in ("overloaded_error", "api_error"))
    else:
        return fault_of(given, message)
    fault.upstream_status = status_in(given)
    return fault


def read_refusal(body: bytes) -> tuple[str, str | None]:
    """See `ServerSide.read_refusal`: the envelope has its message where OpenAI's has it."""
    return openai.read_refusal(body)
