"""Converts the failure of a model server to an error for the client (R10.8). Pure functions, without I/O.

Rule: the server's own message is kept, but shortened and without addresses, keys and stack traces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final

from ...errors import MAX_VALUE_CHARS, BackendFault, ClientFault, GatewayError
from ...protocols.shared import openai
from ...protocols.shared.server_errors import SLIP, is_overflow, lacks_model, no_model_fault, overflow_fault, slip_fault
from ..client.connections import redirected
from .hops import loop_fault
from .private_data import ADDRESS, NOTHING, PrivateData
from .refusals import own_words, says_no_tools
from .retry_after import as_headers

MAX_MESSAGE_CHARS: Final = 500
"""A server's message is shortened to this many characters."""

MOST_READ_CHARS: Final = 4 * MAX_MESSAGE_CHARS
"""Characters of a message that are read at most."""

TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses after which a request may be retried (R10.5)."""

_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://(?:\[[^\[\]\s]*+\]|[^\s\"'<>)\]])++", re.IGNORECASE)
_ADDRESS: Final = re.compile(
    r"(?:\b(?:\d{1,3}\.){3}\d{1,3}\b|\blocalhost\b|\[(?=[0-9a-f]*+:)[0-9a-f:.]++(?:%[\w.-]++)?\]"
    r"|(?<![\w-])(?<![\w-]\.)(?:[\w-]++\.)++[a-z][\w-]*+(?=:\d{2,5}\b))(?::\d{1,5}\b)?",
    re.IGNORECASE,
)
_BARE: Final = re.compile(r"(?<![\w:.])[0-9a-f:.]{3,45}(?:%\w+)?(?!\w)", re.IGNORECASE)
"""Matches a possible IPv6 address without brackets."""
_KEY: Final = re.compile(r"\b(?:sk|pk|key|hf|gsk)[-_][\w*.-]{6,}|\bBearer\s+\S+", re.IGNORECASE)
_TRACE: Final = re.compile(
    r"Traceback \(most recent call last\)|^goroutine \d+ \[|^[ \t]+at [\w.$<>]+[ (]|^[ \t]*File \"[^\"]+\", line \d+",
    re.MULTILINE,
)
_BORDERS: Final = " \t\r\n\"'{}[](),:"
_PYTHON_ERROR: Final = re.compile(r"^(?:[\w.]+(?:Error|Exception|Warning)|[\w.]+Exit): (?P<text>.+)$")


def read_refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    private: PrivateData = NOTHING,
    read: Callable[[bytes], tuple[str, str | None]] = openai.read_refusal,
) -> GatewayError:
    """Returns the error for an answer whose status is not 200.

    `body` is the part of the answer that was read; `read` extracts message and code from it, as the server's protocol
    has them (`ServerSide.read_refusal`).
    """
    text, code = read(body)
    text = clean_text(text, private=private)
    if code == SLIP:
        return slip_fault(text)
    if status >= 500 and says_no_tools(status, text):  # the request's fault, so a retry is useless
        transient = False
        error: GatewayError = ClientFault(text, code="upstream_rejected")
    else:
        error = _refusal(status, headers, text, code)
        transient = status in TRANSIENT and error.code != "context_length_exceeded"
    error.upstream_status, error.transient = status, transient
    return error


def _refusal(status: int, headers: Mapping[str, str], text: str, code: str | None) -> GatewayError:
    suffix = f": {text}" if text else "."
    match status:
        case 400 | 413 | 422 | 500 if code == "context_length_exceeded" or is_overflow(text):
            return overflow_fault(text)
        case 400 | 404 | 422 if lacks_model(status, own_words(text)) or (status == 404 and code == "model_not_found"):
            return no_model_fault(text)
        case 400 | 422:
            return ClientFault(
                text or f"The model server refused the request with status {status}.", code="upstream_rejected"
            )
        case 401 | 403:
            return BackendFault(
                f"The model server refused the gateway's key (status {status}){suffix}", code="upstream_auth"
            )
        case 408 | 504:
            return BackendFault(f"The model server answered {status}{suffix}", code="upstream_timeout")
        case 413:
            return ClientFault(text or "The request is too large for the model server.", code="request_too_large")
        case 429:
            return ClientFault(
                text or "The model server takes no more requests now.",
                code="rate_limit_exceeded",
                headers=as_headers(headers, text),
            )
        case 508:
            return loop_fault()
        case 529:
            return BackendFault(f"The model server is overloaded{suffix}", code="overloaded")
        case _ if 300 <= status < 400:
            return redirected(status)
        case 404:
            return BackendFault(
                f"The model server answered 404{suffix}", hint="Check the backend's `url` and model name."
            )
        case _:
            return BackendFault(f"The model server answered {status}{suffix}")


def clean_text(text: str, *, private: PrivateData = NOTHING) -> str:
    """Returns `text` as a client may see it: one paragraph without stack traces, addresses and keys, shortened."""
    trace = _TRACE.search(text)
    if trace is not None:
        last = _PYTHON_ERROR.match(text.strip().rsplit("\n", 1)[-1].strip())
        text = f"{text[: trace.start()].strip()} {last['text'] if last else ''}".strip()
    if len(text) > MAX_VALUE_CHARS and text.removesuffix(".").endswith("…"):
        text = _without_last_word(text)
    shown = _hidden(text[:MOST_READ_CHARS], private)
    if len(text) > MOST_READ_CHARS and len(shown) <= MAX_MESSAGE_CHARS:
        shown = _hidden(_without_last_word(text[:MOST_READ_CHARS]), private)
    return shown if len(shown) <= MAX_MESSAGE_CHARS else shown[: MAX_MESSAGE_CHARS - 1] + "…"


def _hidden(text: str, private: PrivateData) -> str:
    text = private.hide(text)
    text = _URL.sub(ADDRESS, text)
    text = private.hide_hosts(text)
    text = _ADDRESS.sub(ADDRESS, text)
    text = _BARE.sub(_without_address, text)
    text = _KEY.sub("[key]", text)
    return " ".join(private.show(text).split())


def _without_address(match: re.Match[str]) -> str:
    word = match[0].rstrip(".")
    for address in (word, word.removesuffix(":")):
        try:
            if ":" in address:
                ip_address(address)
                return ADDRESS + match[0][len(address) :]
        except ValueError:
            pass  # something else with colons, such as a time
    return match[0]


def _without_last_word(text: str) -> str:
    """Returns a truncated text without its last word, which may be the beginning of a secret or an address."""
    end = len(text.removesuffix(".").removesuffix("…"))
    while end and text[end - 1].isascii() and text[end - 1] not in _BORDERS:
        end -= 1
    return text[:end] + "…"


def clean_error(error: GatewayError, *, private: PrivateData = NOTHING) -> GatewayError:
    """Returns the error with a message that a client may see (`clean_text`). For errors inside a stream with status
    200."""
    return _with_message(clean_text(error.message, private=private), error)


def hide_private(error: GatewayError, *, private: PrivateData) -> GatewayError:
    """Returns the error with private data removed from its message. For messages that were cleaned without knowing all
    private data."""
    return _with_message(private.show(private.hide_hosts(private.hide(error.message))), error)


def _with_message(message: str, error: GatewayError) -> GatewayError:
    if message == error.message:
        return error
    return type(error)(
        message,
        code=error.code,
        param=error.param,
        status=error.status,
        type=error.type,
        headers=error.headers,
        upstream_status=error.upstream_status,
        transient=error.transient,
    )
