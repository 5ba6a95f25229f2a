"""Responses over WebSocket: the messages of a client, and errors as events.

A client sends `response.create`: the body of a request over HTTP, and beside it `stream_id`. It gets the
events of the stream, one in each frame, with the `stream_id` that it gave. Source: OpenAI's guide "WebSocket mode".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolwire.errors import CODES, ClientFault, GatewayError, quote
from toolwire.protocols.shared.wire import dump, load

CREATE: Final = "response.create"
STREAM_ID_CHARS: Final = 128
MEMBERS: Final = ("type", "stream", "stream_id")
"""Members of a message that are not members of the body of a request over HTTP."""
SUCCEEDED: Final = frozenset({"response.completed", "response.incomplete"})
"""The types of events that end a response which may be continued."""
REQUEST_ID: Final = "x-request-id"
HEADERS: Final = ("retry-after", "x-should-retry", REQUEST_ID)
"""Headers of an error answer that its event has, beside those that begin with `x-ratelimit-`."""


@dataclass(frozen=True, slots=True)
class Create:
    """A `response.create`. `body` is that of a request over HTTP, always streamed."""

    body: Mapping[str, Any]
    stream_id: str | None

    @property
    def previous(self) -> str | None:
        """The id of the response that it continues."""
        previous = self.body.get("previous_response_id")
        return previous if isinstance(previous, str) else None


def read_create(message: Mapping[str, Any]) -> Create:
    """The `response.create` in a client's message. Raises `ClientFault` for any other one."""
    kind, generate = message.get("type"), message.get("generate")
    if kind != CREATE:
        said = "Missing required parameter: 'type'." if kind is None else f"No message has the type {quote(kind)} here."
        code = "missing_required_parameter" if kind is None else "invalid_value"
        raise ClientFault(said, code=code, param="type", hint=f"Send '{CREATE}'.")
    if generate is not None and not isinstance(generate, bool):
        raise ClientFault("'generate' must be true or false.", code="invalid_type", param="generate")
    stream_id = read_stream_id(message)
    body = {name: value for name, value in message.items() if name not in MEMBERS}
    if generate is not False:
        body.pop("generate", None)
    return Create({**body, "stream": True}, stream_id)


def read_stream_id(message: Mapping[str, Any]) -> str | None:
    """The lane that a message names. Raises `ClientFault`."""
    stream_id = message.get("stream_id")
    if stream_id is None or (isinstance(stream_id, str) and 0 < len(stream_id) <= STREAM_ID_CHARS):
        return stream_id
    raise ClientFault(
        f"'stream_id' must be a text of 1 to {STREAM_ID_CHARS} characters, not {quote(stream_id)}.",
        code="invalid_value" if isinstance(stream_id, str) else "invalid_type",
        param="stream_id",
    )


def named(event: bytes, stream_id: str | None) -> bytes:
    """The JSON of an event with the lane that it belongs to."""
    if stream_id is None or not event.startswith(b"{"):
        return event
    return b'{"stream_id":%b,%b' % (dump(stream_id), event[1:])


def error_event(status: int | None, body: bytes, headers: Mapping[str, str], stream_id: str | None = None) -> bytes:
    """The event for an error answer over HTTP with this status, body and head; None: the status of its code. The body
    may also be an `error` event of a stream, nested or flat."""
    try:
        value = load(body)
    except ValueError:  # a middleware's own words
        value = None
    found = value.get("error", value) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        text = found if isinstance(found, str) else body[:1000].decode("utf-8", "replace")
        found = {"type": "server_error", "code": "internal_error", "message": text}
    detail = {key: found.get(key) for key in ("type", "code", "message", "param")}
    if status is None:
        code = detail["code"]
        status = CODES[code].status if isinstance(code, str) and code in CODES else 500
    known = {name.lower(): value for name, value in headers.items()}
    told = {name: known[name] for name in known if name in HEADERS or name.startswith("x-ratelimit-")}
    if told.keys() - {REQUEST_ID}:
        detail["headers"] = told  # where the `openai` package has them
    event = {"type": "error", "status": status, "error": detail, **({"headers": told} if told else {})}
    return named(dump(event), stream_id)


def fault_event(error: GatewayError, stream_id: str | None = None) -> bytes:
    """The event for an error of the gateway."""
    return error_event(error.status, dump(error.envelope()), error.headers, stream_id)
