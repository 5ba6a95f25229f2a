"""Whether JSON that a page shows is what the gateway reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from toolwire import validate_tool_schema
from toolwire.errors import CODES, GatewayError
from toolwire.protocols.shared.request_schema import RequestSchema

SCHEMAS: Final = {
    "/chat/completions": "chat_request",
    "/responses": "responses_request",
    "/messages": "messages_request",
}


def documents(text: str) -> Iterator[Any]:
    """The JSON values in a block, one behind the other. Raises `ValueError`."""
    decoder = json.JSONDecoder()
    rest = text.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        yield value
        rest = rest[end:].lstrip()


def request_faults(body: Any, path: str) -> str | None:
    """What is wrong with a request that is sent to this path; nothing for paths that take no such body."""
    schema = next((name for end, name in SCHEMAS.items() if path.endswith(end)), None)
    if schema is None:
        return None
    try:
        RequestSchema(schema, lambda _, code: code).check(body)
    except GatewayError as error:
        return f"{error.param}: {error}"
    return None


def faults(value: Any) -> Iterator[str]:
    """What is wrong with a value that is shown: a request, a tool, or an error."""
    match value:
        case {"model": str(), "messages": list(), "max_tokens": _, "tools": [{"input_schema": _}, *_]}:
            yield from filter(None, [request_faults(value, "/messages")])
        case {"model": str(), "messages": list()}:
            yield from filter(None, [request_faults(value, "/chat/completions")])
        case {"model": str(), "input": _}:
            yield from filter(None, [request_faults(value, "/responses")])
        case {"error": {"code": str(code)}} if code not in CODES:
            yield f"no error has the code {code}"
        case {"type": "function", "function": {"parameters": dict(schema)}} | {
            "type": "function",
            "parameters": dict(schema),
        }:
            yield from filter(None, [validate_tool_schema(schema)])
