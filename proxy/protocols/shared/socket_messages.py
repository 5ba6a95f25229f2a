"""Responses over WebSocket: a client's messages, and errors as events.

A client sends `response.create`: the body of an HTTP request together with `stream_id`. It gets the events of the
stream, one in each frame, with the same `stream_id`. Source: OpenAI's guide "WebSocket mode".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...errors import CODES, ClientFault, GatewayError, quote
from .wire import dump, load

CREATE: Final = "response.create"
STREAM_ID_CHARS: Final = 128
MEMBERS: Final = ("type", "stream", "stream_id")
"""Members of a message that do not belong to the body of an HTTP request."""
SUCCEEDED: Final = frozenset({"response.completed", "response.incomplete"})
"""Types of events that end a response which can be continued."""
REQUEST_ID: Final = "x-request-id"
HEADERS: Final = ("retry-after", "x-should-retry", REQUEST_ID)
"""Headers of an HTTP error answer that are copied to its event, besides those that begin with `x-ratelimit-`."""


@dataclass(frozen=True, slots=True)
class CreateMessage:
    """A `response.create` message. `body` is the body of an HTTP request, always streamed."""

    body: Mapping[str, Any]
    stream_id: str | None

    @property
    def previous(self) -> str | None:
        """The id of the response that it continues; None if it names none."""
        previous = self.body.get("previous_response_id")
        return previous if isinstance(previous, str) else None


def read_create(message: Mapping[str, Any]) -> CreateMessage:
    """Returns the `response.create` in a client's message. Raises `ClientFault` for other messages and wrong fields."""
    kind, generate = message.get("type"), message.get("generate")
    if kind != CREATE:
        message_text = (
            "Missing required parameter: 'type'."
            if kind is None
            else f"The message type {quote(kind)} is not supported."
        )
        code = "missing_required_parameter" if kind is None else "invalid_value"
        raise ClientFault(message_text, code=code, param="type", hint=f"Send '{CREATE}'.")
    if generate is not None and not isinstance(generate, bool):
        raise ClientFault("'generate' must be true or false.", code="invalid_type", param="generate")
    stream_id = read_stream_id(message)
    body = {name: value for name, value in message.items() if name not in MEMBERS}
    if generate is not False:
        body.pop("generate", None)
    return CreateMessage({**body, "stream": True}, stream_id)


def read_stream_id(message: Mapping[str, Any]) -> str | None:
    """Returns the stream id of a message, or None. Raises `ClientFault` for an invalid one."""
    stream_id = message.get("stream_id")
    if stream_id is None or (isinstance(stream_id, str) and 0 < len(stream_id) <= STREAM_ID_CHARS):
        return stream_id
    raise ClientFault(
        f"'stream_id' must be a text of 1 to {STREAM_ID_CHARS} characters, not {quote(stream_id)}.",
        code="invalid_value" if isinstance(stream_id, str) else "invalid_type",
        param="stream_id",
    )


def named(event: bytes, stream_id: str | None) -> bytes:
    """Returns the JSON of an event with the stream id added."""
    if stream_id is None or not event.startswith(b"{"):
        return event
    return b'{"stream_id":%b,%b' % (dump(stream_id), event[1:])


def error_event(status: int | None, body: bytes, headers: Mapping[str, str], stream_id: str | None = None) -> bytes:
    """Returns the event for an HTTP error answer with this status, body and head; a status of None is replaced by that
    of the error's code. The body may also be an `error` event of a stream, nested or flat."""
    try:
        value = load(body)
    except ValueError:  # a middleware's own text
        value = None
    error = value.get("error", value) if isinstance(value, dict) else None
    if not isinstance(error, dict):
        text = error if isinstance(error, str) else body[:1000].decode("utf-8", "replace")
        error = {"type": "server_error", "code": "internal_error", "message": text}
    detail = {key: error.get(key) for key in ("type", "code", "message", "param")}
    if status is None:
        code = detail["code"]
        status = CODES[code].status if isinstance(code, str) and code in CODES else 500
    known = {name.lower(): value for name, value in headers.items()}
    copied = {name: known[name] for name in known if name in HEADERS or name.startswith("x-ratelimit-")}
    if copied.keys() - {REQUEST_ID}:
        detail["headers"] = copied  # where the `openai` package expects them
    event = {"type": "error", "status": status, "error": detail, **({"headers": copied} if copied else {})}
    return named(dump(event), stream_id)


def fault_event(error: GatewayError, stream_id: str | None = None) -> bytes:
    """Returns the event for an error of the gateway."""
    return error_event(error.status, dump(error.envelope()), error.headers, stream_id)
