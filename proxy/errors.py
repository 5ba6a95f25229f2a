"""Errors: who is to blame, what was wrong, where, and what to do next.

Rules of this module:

1. `CODES` is the one table of error codes (status and `type`). The error reference in the docs is generated from it.
2. The exception class says who is to blame: `ClientFault` the caller, `BackendFault` the model server, `ModelFault` the
   text a model wrote, `Unavailable` the gateway's own load or state, `Defect` a bug here.
3. A message never holds a stack trace, an internal address, a key or a whole body. Values are shortened by `quote`.
4. Headers that cannot be sent are dropped, so an error can be sent whatever it was made of.

Source of the table: R13 (docs/requirements.md) and the published OpenAI error envelope.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

MAX_VALUE_CHARS: Final = 200
"""Maximum length of a value quoted in a message."""


class ErrorCode(NamedTuple):
    """One row of the error table: when the error occurs, and what to do about it; empty if that is plain."""

    status: int
    type: str
    when: str
    remedy: str = ""


_CLIENT = "invalid_request_error"

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")

CODES: Final[Mapping[str, ErrorCode]] = {
    "invalid_json": ErrorCode(400, _CLIENT, "the body is not a JSON object"),
    "malformed_request": ErrorCode(400, _CLIENT, "the request is not valid HTTP, or uses TLS"),
    "missing_required_parameter": ErrorCode(400, _CLIENT, "a required field is absent"),
    "invalid_type": ErrorCode(400, _CLIENT, "a field has the wrong JSON type"),
    "invalid_value": ErrorCode(400, _CLIENT, "a field is out of range, or not one of the allowed values"),
    "invalid_tool_schema": ErrorCode(
        400,
        _CLIENT,
        "a tool has a bad name or schema, breaks the strict rules, or occurs twice",
        "Correct the one at `param`; `toolwire.validate_tool_schema` checks a schema offline.",
    ),
    "invalid_tool_choice": ErrorCode(
        400,
        _CLIENT,
        "`tool_choice` has a bad form or names a tool that is not offered",
        "Use `auto`, `none`, `required`, or a tool in `tools`.",
    ),
    "invalid_tool_call_id": ErrorCode(
        400,
        _CLIENT,
        "a tool result refers to no earlier call, or an id occurs twice",
        "Send each assistant message with its `tool_calls` before the results, with the same ids.",
    ),
    "invalid_message_order": ErrorCode(
        400,
        _CLIENT,
        "a tool message does not follow `tool_calls`",
        "Put it right after the assistant message with its call.",
    ),
    "unsupported_parameter": ErrorCode(
        400,
        _CLIENT,
        "the route cannot honour a known field",
        "Leave it out, or set `requests.unsupported: ignore`.",
    ),
    "unsupported_content": ErrorCode(
        400,
        _CLIENT,
        "the backend cannot take a content part",
        "Leave it out, use another backend, or set the backend's `images: false`.",
    ),
    "context_length_exceeded": ErrorCode(
        400, _CLIENT, "the prompt does not fit the model's context", "Shorten the conversation or offer fewer tools."
    ),
    "previous_response_not_found": ErrorCode(
        400, _CLIENT, "`previous_response_id` is unknown or expired", "Send the whole conversation as `input`."
    ),
    "tool_loop_detected": ErrorCode(
        400,
        _CLIENT,
        "the model makes the same call turn after turn",
        "Change the conversation; `loop_detect.policy: notice` tells the model instead.",
    ),
    "too_many_tool_calls": ErrorCode(
        400,
        _CLIENT,
        "the conversation exceeds `limits.calls_per_conversation`",
        "Begin a new one.",
    ),
    "duplicate_tool_name": ErrorCode(
        400,
        _CLIENT,
        "a client's tool has the name of a server-side tool",
        "Rename it, or set `tool_loop.tool_conflict`.",
    ),
    "tool_server_not_allowed": ErrorCode(
        400,
        _CLIENT,
        "`tools.mcp_from_clients` does not permit a server in `tools`",
        "Add its URL there, or leave it out.",
    ),
    "websocket_stream_limit_reached": ErrorCode(
        400,
        _CLIENT,
        "a WebSocket has more lanes or running responses than `websocket` allows",
        "Wait, reuse a `stream_id`, or open another connection.",
    ),
    "websocket_connection_limit_reached": ErrorCode(
        400,
        _CLIENT,
        "a WebSocket is older than `websocket.max_age_s`",
        "Open a new one and send the whole conversation.",
    ),
    "upstream_rejected": ErrorCode(
        400,
        _CLIENT,
        "the model server answered 400",
        "Read its words in the message; often its `preset` does not fit.",
    ),
    "invalid_api_key": ErrorCode(
        401,
        "authentication_error",
        "the key is missing or wrong",
        "Send `Authorization: Bearer KEY` with a key of `auth`.",
    ),
    "model_not_allowed": ErrorCode(
        403, "permission_error", "the key may not use this route", "Use another key or model."
    ),
    "origin_not_allowed": ErrorCode(
        403,
        "permission_error",
        "`cors.origins` does not list the web page",
        "Add its origin, or send the request from a server.",
    ),
    "tool_not_allowed": ErrorCode(
        403,
        "permission_error",
        "the route's `tool_filter` refuses a tool",
        "Leave out the one that `param` names, or use another route.",
    ),
    "model_not_found": ErrorCode(
        404,
        _CLIENT,
        "no route serves this model",
        "Take a name from `/v1/models`, or add a route, an alias or a route for `*`.",
    ),
    "not_found": ErrorCode(404, _CLIENT, "no such path or object", "OpenAI clients need the base URL with `/v1`."),
    "method_not_allowed": ErrorCode(405, _CLIENT, "wrong HTTP method"),
    "request_timeout": ErrorCode(
        408,
        _CLIENT,
        "the request came too slowly",
        "Raise `server.head_s` or `server.body_s` for a slow network.",
    ),
    "request_too_large": ErrorCode(
        413,
        _CLIENT,
        "the body, with everything it refers to, exceeds `limits.body_bytes` or another limit, which the message names",
    ),
    "unsupported_media_type": ErrorCode(415, _CLIENT, "the body is not `application/json`"),
    "expectation_failed": ErrorCode(417, _CLIENT, "`Expect` is not `100-continue`"),
    "websocket_not_served": ErrorCode(426, _CLIENT, "a WebSocket where only HTTP is served"),
    "rate_limit_exceeded": ErrorCode(
        429,
        "rate_limit_error",
        "a limit of the key, the route or the model server is reached, which the message names",
        "Wait as long as `Retry-After` says.",
    ),
    "headers_too_large": ErrorCode(431, _CLIENT, "the head exceeds `limits.head_bytes` or `limits.header_fields`"),
    "client_closed_request": ErrorCode(
        499,
        _CLIENT,
        "the client disconnected (log and metrics only)",
        "If this is frequent, raise the client's timeout.",
    ),
    "response_cancelled": ErrorCode(499, _CLIENT, "the client cancelled the response"),
    "malformed_tool_arguments": ErrorCode(
        500,
        "model_error",
        "the call of a strict tool is not valid JSON",
        "Use `strict: true` only where needed, or `decoding.constrain`.",
    ),
    "invalid_tool_arguments": ErrorCode(
        500,
        "model_error",
        "the arguments of a strict tool do not fit its schema",
        "Simpler schemas and constrained decoding help small models.",
    ),
    "unknown_tool_call": ErrorCode(
        500,
        "model_error",
        "strict: the model called a tool that was not offered",
        "Check that tools called earlier in the conversation are still offered.",
    ),
    "tool_choice_not_satisfied": ErrorCode(
        500,
        "model_error",
        "a required call was not made",
        "Use constrained decoding, or set `bad_answers.choice_miss: pass`.",
    ),
    "output_format_not_satisfied": ErrorCode(
        500,
        "model_error",
        "the final text does not have the requested form",
        "Use another model, or a backend with constrained decoding.",
    ),
    "internal_error": ErrorCode(
        500,
        "server_error",
        "a bug in the gateway or in a middleware",
        "Look for the request id in the log, and report it.",
    ),
    "response_lost": ErrorCode(
        500,
        "server_error",
        "the process of a background response ended before it",
        "Retry; the log says why the worker ended.",
    ),
    "upstream_error": ErrorCode(502, "upstream_error", "the model server failed", "Look at its log, and retry."),
    "upstream_auth": ErrorCode(
        502, "upstream_error", "the model server refused the gateway's key", "Set the backend's `api_key`."
    ),
    "upstream_invalid_response": ErrorCode(
        502,
        "upstream_error",
        "the model server's answer cannot be read",
        "Check that the backend's `url` and `kind` fit the server.",
    ),
    "upstream_disconnected": ErrorCode(
        502,
        "upstream_error",
        "the model server cannot be reached, or the connection broke",
        "Check that it runs, and retry.",
    ),
    "overloaded": ErrorCode(503, "server_error", "too many requests at once", "Wait as long as `Retry-After` says."),
    "no_backend_available": ErrorCode(
        503, "server_error", "no server of the route is up", "`/ready` shows which are down."
    ),
    "store_unavailable": ErrorCode(
        503,
        "server_error",
        "stored responses or shared counts of limits are unavailable",
        "Wait as long as `Retry-After` says, or send the whole conversation; the operator checks the store.",
    ),
    "shutting_down": ErrorCode(
        503, "server_error", "the gateway is stopping", "Retry: another instance or worker takes over."
    ),
    "upstream_timeout": ErrorCode(
        504,
        "upstream_error",
        "the model server took too long",
        "Raise the backend's `timeouts`, or lower `max_tokens`.",
    ),
    "backend_loop": ErrorCode(
        508,
        "upstream_error",
        "a backend's `url` leads back to this gateway",
        "Point it at a model server.",
    ),
}


_LASTING: Final = frozenset({"invalid_api_key", "upstream_auth", "backend_loop"})
"""Codes with which the same request fails again, besides those of the type `model_error`. Clients are told not to
retry: Claude Code otherwise retries a wrong key for three minutes."""


class GatewayError(Exception):
    """An error that is shown to the client.

    `code` is a key of `CODES`; with a plug-in's own code, `status` and `type` are required (else `ValueError`). `param`
    is the path of the offending field, such as `tools[1].function.parameters`. `hint` says what to do and is appended
    to the message. `headers` are added to the HTTP answer if nothing was sent yet; invalid ones are dropped.
    `upstream_status` is the model server's status, if it answered. `transient`: a retry, or another server, may succeed
    (R10.5).
    """

    default_code: str = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
        upstream_status: int | None = None,
        transient: bool = False,
    ) -> None:
        self.code = code or self.default_code
        row = CODES.get(self.code)
        if row is None and (status is None or type is None):
            raise ValueError(f"error code {self.code!r} is not in CODES: give status and type as well")
        self.message = f"{message} {hint}" if hint else message
        self.param = param
        self.status = status if status is not None else row.status if row else 500
        self.type = type if type is not None else row.type if row else "server_error"
        self.headers = sendable(headers) if headers else {}
        if self.type == "model_error" or self.code in _LASTING:
            self.headers["x-should-retry"] = "false"
        self.upstream_status = upstream_status
        self.transient = transient
        super().__init__(self.message)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.status}, {self.code!r}, {self.message!r}, param={self.param!r})"

    def envelope(self) -> dict[str, Any]:
        """Returns OpenAI's error object; it always has the same four keys (R13.1)."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class ClientFault(GatewayError):
    """The request was wrong: 4xx."""

    default_code = "invalid_value"


class Cancelled(GatewayError):
    """The client cancelled its response."""

    default_code = "response_cancelled"

    def __init__(self, message: str = "The response was cancelled.", **fields: Any) -> None:
        super().__init__(message, **fields)


class BackendFault(GatewayError):
    """The model server failed or sent an invalid answer: 502 or 504."""

    default_code = "upstream_error"


class ModelFault(GatewayError):
    """The model's text breaks a rule that the client made strict (R9.6): 500, and clients are told not to retry."""

    default_code = "malformed_tool_arguments"


class Unavailable(GatewayError):
    """The gateway cannot take the request now: 503 with `Retry-After`. `wait_s` is the exact waiting time if it is
    known; otherwise the guess `retry_after_s` is sent."""

    default_code = "overloaded"

    def __init__(
        self, message: str, *, code: str | None = None, retry_after_s: int = 1, wait_s: float | None = None
    ) -> None:
        wait = {"Retry-After": str(retry_after_s)} if wait_s is None else retry_after(wait_s)
        super().__init__(message, code=code, headers=wait)


class Defect(GatewayError):
    """A bug in the gateway or in a plug-in: 500. The traceback goes to the log only (R13.5)."""


def retry_after(wait_s: float) -> dict[str, str]:
    """Returns the headers that say how long to wait: `Retry-After` in whole seconds (RFC 9110, 10.2.3), at least one,
    and `retry-after-ms`, which OpenAI's and Anthropic's SDKs prefer."""
    exact = wait_s - 1e-6  # sums of floats may be a little too large
    return {"Retry-After": str(max(1, math.ceil(exact))), "retry-after-ms": str(max(1, math.ceil(exact * 1000)))}


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the header fields that can be sent: the name a token, the value one line of visible ASCII (RFC 9110, 5.1
    and 5.5)."""
    fields = ((name, str(value)) for name, value in headers.items())
    return {name: value for name, value in fields if _NAME.fullmatch(name) and _VALUE.fullmatch(value)}


def _beginning(value: object, room: list[int]) -> object:
    """Returns the beginning of `value` that fits into about `room[0]` characters of JSON, because a client's value may
    have megabytes. Subtracts the used characters from `room[0]`."""
    if isinstance(value, str):
        room[0] -= len(value) + 2
        return value[: MAX_VALUE_CHARS + 1]
    room[0] -= 2
    if type(value) is list:
        # Every item takes at least two characters, so later items cannot be visible.
        return [_beginning(item, room) for item in value[:MAX_VALUE_CHARS] if room[0] >= 0]
    if type(value) is dict:
        shown: dict[object, object] = {}
        for key, item in value.items():
            if room[0] < 0:
                break
            shown[_beginning(key, room) if isinstance(key, str) else key] = _beginning(item, room)
        return shown
    return value


def quote(value: object) -> str:
    """Returns `value` as JSON text for a message, shortened to `MAX_VALUE_CHARS` characters."""
    try:
        text = orjson.dumps(_beginning(value, [MAX_VALUE_CHARS])).decode()
    except (TypeError, ValueError, RecursionError):
        text = ascii(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"
