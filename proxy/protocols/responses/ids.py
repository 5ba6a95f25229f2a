"""Ids of responses and of their items.

An item's id follows from its response's id and its place, so it is the same wherever it is computed. And it leads back:
the last digits of a response's id are zero, an item's id counts there. So `item_reference` needs no table of items.
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
"""Of ids, by type of item."""

_DIGITS: Final = 3
_GIVEN: Final = 16**_DIGITS // 2
"""Items of the input count from here, those of the output from 1."""
_ROOM: Final = _GIVEN - 1
_RESPONSE: Final = re.compile(rf"resp_([0-9a-f]{{{32 - _DIGITS}}})0{{{_DIGITS}}}")
_ITEM: Final = re.compile(rf"(?:{'|'.join(PREFIXES.values())}|item)_([0-9a-f]{{{32 - _DIGITS}}})[0-9a-f]{{{_DIGITS}}}")


def new_response_id() -> str:
    """A fresh id for a response."""
    return f"resp_{token_hex(16)[:-_DIGITS]}{'0' * _DIGITS}"


def derived_id(kind: str, response_id: str, place: int, *, given: bool = False) -> str:
    """The id of the item of type `kind` at `place` of a response's output, or of its input if `given`."""
    prefix = PREFIXES.get(kind, "item")
    stem = _stem(response_id) if len(response_id) <= 64 else None
    if stem is not None and place < _ROOM:
        return f"{prefix}_{stem}{place + (_GIVEN if given else 1):0{_DIGITS}x}"
    where = f"input:{place}" if given else place  # an id from elsewhere, or more items than digits: no way back
    return f"{prefix}_{uuid5(NAMESPACE_OID, f'{response_id}:{where}').hex}"


@lru_cache(maxsize=16)
def _stem(response_id: str) -> str | None:
    """What a response's id has in common with those of its items; None if it was not made here."""
    found = _RESPONSE.fullmatch(response_id)
    return None if found is None else found[1]


def response_of(item_id: str) -> str | None:
    """The id of the response that an item belongs to, if its id was made here and leads back."""
    found = _ITEM.fullmatch(item_id)
    return None if found is None else f"resp_{found[1]}{'0' * _DIGITS}"
