"""Keys that models use in calls written as JSON objects. All are read; prompts teach the first of each list."""

from __future__ import annotations

from typing import Final

NAMES: Final = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name")
"""Keys of a call's name, besides those of the syntax."""

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
"""Keys of a call's arguments, besides those of the syntax."""

WRAPPERS: Final = ("function", "function_call", "tool_call", "tool")
"""Keys whose value is an object with the call itself."""

LISTINGS: Final = ("tool_calls", "tool_uses", "function_calls")
"""Keys whose value is a list of calls."""

METADATA: Final = frozenset(("id", "type", "call_id", "tool_call_id", "index"))
"""Keys that are neither the call's name nor its arguments."""
