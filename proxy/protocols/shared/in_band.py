"""Errors inside an answer whose HTTP status was 200, and the status that they would have had (R29.3).

Such a server reports the error in the body: `{"error": {"code": 400, "type": "BadRequestError"}}`. The code, as a
number or a word, decides, then the type. An error with neither is a final error of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...errors import BackendFault, ClientFault, GatewayError

_WORDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("badrequest", "invalidrequest", "validation", "unprocessableentity", "invalidprompt"), 400),
    **dict.fromkeys(("authentication", "unauthorized", "permission", "permissiondenied", "forbidden"), 401),
    **dict.fromkeys(("requesttoolarge", "payloadtoolarge"), 413),
    **dict.fromkeys(("ratelimit", "ratelimitexceeded", "toomanyrequests", "insufficientquota"), 429),
    **dict.fromkeys(("overloaded", "serviceunavailable", "serverisoverloaded", "slowdown"), 503),
    **dict.fromkeys(("timeout", "gatewaytimeout"), 504),
}
"""Statuses by the words of codes and types, in lower case, without separators and the ending `error`."""
_FINAL: Final = frozenset({"insufficientquota"})
"""Limits for which a retry is useless."""


def status_in(error: Mapping[str, Any]) -> int | None:
    """Returns the HTTP status that fits an error object; None if it has neither a known code nor type."""
    codes = (error.get("code"), error.get("status"), error.get("status_code"))
    numbers = (int(word) if isinstance(word, str) and word.isdecimal() and len(word) == 3 else word for word in codes)
    for number in numbers:
        if type(number) is int and 400 <= number < 600:
            return number
    return next((_WORDS[word] for word in _words(error) if word in _WORDS), None)


def fault_of(error: Mapping[str, Any], message: str) -> GatewayError:
    """Returns the gateway's error for a server's error object; `message` is the server's text, shortened."""
    status = status_in(error)
    fault = _fault(status, message, lasting=not _FINAL.isdisjoint(_words(error)))
    fault.upstream_status = status
    return fault


def _words(error: Mapping[str, Any]) -> Iterable[str]:
    for key in ("code", "type", "status"):
        word = error.get(key)
        if isinstance(word, str):
            yield word.lower().replace("_", "").replace(" ", "").replace("-", "").removesuffix("error")


def _fault(status: int | None, message: str, *, lasting: bool) -> GatewayError:
    match status:
        case 400 | 422:
            return ClientFault(message, code="upstream_rejected")
        case 401 | 403:
            return BackendFault(message, code="upstream_auth")
        case 408 | 504:
            return BackendFault(message, code="upstream_timeout", transient=True)
        case 413:
            return ClientFault(message, code="request_too_large")
        case 429:
            return ClientFault(message, code="rate_limit_exceeded", transient=not lasting)
        case 503 | 529:
            return BackendFault(message, code="overloaded" if status == 529 else None, transient=True)
        case _:
            return BackendFault(message, transient=status in (500, 502))
