"""The wording in which a family's own chat template lists tools and hands over results; used in the gateway's prompts
(R5.8, R31.5).

Rules of this module:

1. The wording is that of published chat templates. A family whose template is unknown, or lists tools in a separate
   turn, gets the common wording.
2. Instructions contain nothing that can be copied as a name or value: `<function-name>` is neither, and is not JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .listing import Listing, functions
from .results import TOOL_RESPONSE, ResultForm


def around(before: str, behind: str = "") -> str:
    """Returns a prompt segment with these texts before and behind the list of tools."""
    return f"{{policy}}\n\n# Tools\n\n{before}{{tools}}{behind}\n\n{{format}}\n\n{{examples}}"


COMMON: Final = around(
    "You may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n",
    "\n</tools>",
)
"""The prompt segment of Qwen, GLM and many others, in the order of their templates. The policy comes first, like the
application's system message: after the list, it makes small models call a tool on every question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The wording for tools. `template` is the prompt segment with its four placeholders, `tools` writes the tools on
    offer, `form` says how to write a call (None: derived from the format's layout), `results` is the form of results.
    """

    template: str = COMMON
    tools: Listing = functions
    form: str | None = None
    results: ResultForm = TOOL_RESPONSE


QWEN: Final = Words(
    form="""For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
Put no Markdown fence around it."""
)
"""The wording of Hermes, Qwen 2.5 and 3, and Granite 4."""
