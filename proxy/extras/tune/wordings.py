"""Wordings of the tool description, which `toolwire tune` tries instead of the built-in prompt segment.

A wording is a few route options below `prompt`. All except the standard one begin with the list of tools, so that a
server with a prefix cache reads the list once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...formats.base import ToolFormat
from ...model import ToolUse

_LIST: Final = """# Tools

You can call these tools:
<tools>
{tools}
</tools>
"""

SHORT: Final = f"""{_LIST}
{{format}}
{{policy}} {{examples}}"""

FIRM: Final = f"""{_LIST}
If one of these tools can do what the user asks, call it: then your whole answer is the call, without a word before or after
it. Copy names and values from the user's words exactly. Leave out parameters that the user did not mention. If no tool
fits, answer in plain text and do not mention the tools.

{{format}}

{{policy}}

{{examples}}"""

STEPS: Final = f"""{_LIST}
For every message of the user:
1. Is there a tool in the list that does this? If not, answer in plain text.
2. If there is, take its name and the names of its parameters exactly as they are listed.
3. Write the call and stop. You will be told the result.

{{format}}

{{policy}}

{{examples}}"""

_EXAMPLE: Final = """Example. With a tool `add_task` that has the parameters `title` and `day`, to the message "Remind me on Friday
to water the plants" the right answer would be:
{call}
(`add_task` is only an example. Call the tools of the list.)"""

Wording = Callable[[ToolFormat], Mapping[str, Any]]
"""Returns the route options, by key path, that describe tools in a format."""


def _example(tool_format: ToolFormat) -> Mapping[str, Any]:
    call = tool_format.render_call(ToolUse("call_1", "add_task", '{"title":"water the plants","day":"Friday"}'))
    return {"prompt.examples": _EXAMPLE.format(call=call)}


def from_template(text: str) -> Wording:
    """Returns the wording that uses `text` as the prompt's template."""
    return lambda tool_format: {"prompt.template": text}


WORDINGS: Final[Mapping[str, Wording]] = {
    "standard": lambda tool_format: {},
    "short": from_template(SHORT),
    "firm": from_template(FIRM),
    "steps": from_template(STEPS),
    "example": _example,
    "user": lambda tool_format: {"prompt.placement": "user"},
}
"""The wordings by name; `standard` is the built-in one, `user` the same at the head of the first user message."""
