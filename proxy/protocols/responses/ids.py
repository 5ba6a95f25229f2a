"""Ids of responses and of their items.

An item's id is computed from its response's id and its position, so it is the same wherever it is computed, and the
response's id can be computed from it: the last digits of a response's id are zero, and an item's id counts there. So
`item_reference` needs no table of items.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from secrets import token_hex
from typing import Final
from uuid import NAMESPACE_OID, uuid5

PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "computer_call": "cu",
    "computer_call_output": "cuo",
    "mcp_list_tools": "mcpl",
    "mcp_call": "mcp",
    "mcp_approval_request": "mcpr",
    "mcp_approval_response": "mcpa",
}
"""Prefixes of ids by type of item."""

_DIGITS: Final = 3
_GIVEN: Final = 16**_DIGITS // 2
"""Items of the input count from here, those of the output from 1."""
_ROOM: Final = _GIVEN - 1
_RESPONSE: Final = re.compile(rf"resp_([0-9a-f]{{{32 - _DIGITS}}})0{{{_DIGITS}}}")
_ITEM: Final = re.compile(rf"(?:{'|'.join(PREFIXES.values())}|item)_([0-9a-f]{{{32 - _DIGITS}}})[0-9a-f]{{{_DIGITS}}}")


def new_response_id() -> str:
    """Returns a new id for a response."""
    return f"resp_{token_hex(16)[:-_DIGITS]}{'0' * _DIGITS}"


def derived_id(kind: str, response_id: str, place: int, *, of_input: bool = False) -> str:
    """Returns the id of the item of type `kind` at position `place` of a response's output, or of its input if
    `of_input`."""
    prefix = PREFIXES.get(kind, "item")
    stem = _stem(response_id) if len(response_id) <= 64 else None
    if stem is not None and place < _ROOM:
        return f"{prefix}_{stem}{place + (_GIVEN if of_input else 1):0{_DIGITS}x}"
    # an id from elsewhere, or more items than the digits can count: the response's id cannot be computed from this one
    where = f"input:{place}" if of_input else place
    return f"{prefix}_{uuid5(NAMESPACE_OID, f'{response_id}:{where}').hex}"


@lru_cache(maxsize=16)
def _stem(response_id: str) -> str | None:
    """Returns the common part of a response's id and its items' ids; None if the gateway did not make the id."""
    match = _RESPONSE.fullmatch(response_id)
    return None if match is None else match[1]


def response_of(item_id: str) -> str | None:
    """Returns the id of the response that an item belongs to; None if it cannot be computed from the item's id."""
    match = _ITEM.fullmatch(item_id)
    return None if match is None else f"resp_{match[1]}{'0' * _DIGITS}"
