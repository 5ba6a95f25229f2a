"""Shared parts of OpenAI's protocols: errors, durations, an example tool."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from .server_errors import OVERFLOW_CODES, SLIP, error_object

PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
TOOL: Final[Mapping[str, Any]] = {"type": "function", "name": "look", "description": "Looks.", "parameters": PARAMETERS}
"""The tool of `ClientSide.example`."""

FORMAT_NAME: Final = "answer"
"""Name of an answer's schema where the client gave none: OpenAI's APIs require one."""

TIME_HEADER: Final = "openai-processing-ms"
"""Response header with the milliseconds between request and answer."""

_DATA: Final = re.compile(rb"\s*(?:event:[^\n]*\n)?data:([^\n]*)")
"""Matches the first frame in the body of an error."""

_KNOWN_CODES: Final = OVERFLOW_CODES | {"model_not_found", SLIP}


def read_refusal(body: bytes) -> tuple[str, str | None]:
    """Returns the message and the code of an error body (see `ServerSide.read_refusal`): OpenAI's error object,
    `{"error": "..."}`, `{"message": ...}`, `{"detail": ...}`, one of these as a frame of a stream, or short plain
    text."""
    framed = _DATA.match(body)
    try:
        parsed: Any = orjson.loads(body if framed is None else framed[1])
    except orjson.JSONDecodeError:
        text = body.decode("utf-8", "replace").strip()
        return ("" if text.startswith("<") else text), None
    error = error_object(parsed)
    code: str | None = None
    if isinstance(error, dict):
        words = [error["code"], error.get("type")]
        code = next((w for w in words if isinstance(w, str) and w in _KNOWN_CODES), None)
        code = "context_length_exceeded" if code in OVERFLOW_CODES else code
        if error.get("param") == "model":
            code = code or "model_not_found"
        error = error["message"]
    return error or "", code


def duration(seconds: float) -> str:
    """Returns a time in OpenAI's form: `0s`, `6ms`, `1.5s`, `6m0s`, `1h0m0s`. Rounded up to milliseconds."""
    ms = math.ceil(seconds * 1000 - 1e-6)
    if ms < 1000:
        return f"{ms}ms" if ms > 0 else "0s"
    minutes, rest = divmod(ms, 60_000)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text
