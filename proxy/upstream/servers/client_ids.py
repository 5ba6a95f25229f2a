"""`x-client-request-id`: the name that a client gives to its request, handed on to whoever answers it.

OpenAI's and Anthropic's SDKs, Codex and Claude Code send it, because they know it even if no answer comes. It names the
request beside `X-Request-Id`, which is the gateway's. Source of the form: OpenAI's API reference, "Debugging requests":
ASCII, at most 512 characters, anything else is an error.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

from multidict import CIMultiDictProxy

from toolwire.errors import ClientFault

HEADER: Final = "x-client-request-id"

CLIENT_ID: Final[ContextVar[str]] = ContextVar("toolwire.client_id", default="")
"""What the client calls the current request; empty if it says nothing."""

_FORM: Final = re.compile(r"[ -~]{1,512}")


def client_id(headers: CIMultiDictProxy[str]) -> str:
    """What a client calls its request; empty if the header is. Raises `ClientFault`."""
    values = headers.getall(HEADER, ())
    if len(values) > 1:
        raise ClientFault(f"The header `{HEADER}` is there more than once.", code="malformed_request", hint="Send one.")
    value = values[0] if values else ""
    if value and not _FORM.fullmatch(value):
        raise ClientFault(
            f"The header `{HEADER}` is not 1 to 512 characters of printable ASCII.",
            hint="Send such a one, or none.",
        )
    return value
