"""Errors that a Responses server reports inside an answer: in a body, in an `error` event, nested or flat, or in a
failed response.

Source: the list of codes in OpenAI's reference, and additional codes seen from the live service.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...errors import BackendFault, ClientFault, GatewayError
from ..chat.reply import read_error, text_of

_OVERLOADED: Final = frozenset({"server_is_overloaded", "slow_down"})


def read_fault(answer: Mapping[str, Any]) -> GatewayError | None:
    """Returns the error in a body or a response object; None if it holds none. It has the server's message, shortened
    (R10.8)."""
    error = read_error(answer)
    details = answer.get("error")
    if error is None or isinstance(error, ClientFault) or not isinstance(details, dict):
        return error
    code = text_of(details.get("code"))
    if code in _OVERLOADED:
        return BackendFault(error.message, code="overloaded", transient=True)
    if "image" in code:
        return ClientFault(error.message, code="upstream_rejected")
    error.transient = error.transient or code == "server_error"
    return error
