"""The keys with which models write calls as JSON objects. All of them are read; the first ones are taught."""

from __future__ import annotations

from typing import Final

NAMES: Final = ("name", "tool", "tool_name", "function", "function_name", "action")
"""Keys of a call's name, besides the syntax's."""

ARGUMENTS: Final = (
    "arguments",
    "parameters",
    "args",
    "input",
    "inputs",
    "arguments_json",
    "action_input",
    "tool_arguments",
    "tool_args",
    "tool_input",
    "params",
)
"""Keys of its arguments, besides the syntax's."""

WRAPPERS: Final = ("function", "function_call", "tool_call")
"""Keys of an object that is the call itself."""

METADATA: Final = frozenset(("id", "type", "call_id", "tool_call_id", "index"))
"""Keys that say nothing about what is called, and with what."""
