"""`x-client-request-id`: the client's own request id, which is passed on to the model server.

OpenAI's and Anthropic's SDKs, Codex and Claude Code send it, because they know it even if no answer arrives. It is
independent of `X-Request-Id`, which the gateway assigns. OpenAI's API reference ("Debugging requests") defines the
form: ASCII, at most 512 characters; anything else is an error.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Final

from multidict import CIMultiDictProxy

from ...errors import ClientFault

HEADER: Final = "x-client-request-id"

CLIENT_ID: Final[ContextVar[str]] = ContextVar("toolwire.client_id", default="")
"""The client's id of the current request; empty if there is none."""

_FORM: Final = re.compile(r"[ -~]{1,512}")


def client_id(headers: CIMultiDictProxy[str]) -> str:
    """Returns the client's request id, or an empty text. Raises `ClientFault` if the header is malformed or
    repeated."""
    values = headers.getall(HEADER, ())
    if len(values) > 1:
        raise ClientFault(f"The header `{HEADER}` was sent more than once.", code="malformed_request", hint="Send one.")
    value = values[0] if values else ""
    if value and not _FORM.fullmatch(value):
        raise ClientFault(
            f"The header `{HEADER}` must be 1 to 512 characters of printable ASCII.",
            hint="Correct it, or leave it out.",
        )
    return value
