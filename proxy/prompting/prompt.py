"""Builds the prompt segment that teaches tools: a template, filled with the tools and with sentences on what may be
called (R5.2 to R5.5).

Rules of this module:

1. The segment depends only on tools, choice, parallel and template: equal input gives equal bytes, tools in the
   client's order.
2. A template is text with four placeholders. Nothing else in it needs escaping: braces in schemas and descriptions
   stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import orjson

from ..config import PromptConfig
from ..formats.base import ToolFormat, call_form, escaping_for
from ..formats.engine.longjson import compact
from ..formats.engine.rendering import prompt_name, taught_description, with_groups
from ..formats.engine.values import Escape
from ..model import ModelRequest, ToolChoice, ToolSpec, replace
from .placing import Placement, placed

PLACEHOLDERS: Final = ("tools", "policy", "format", "examples")
"""The placeholders that a template must contain, in braces."""

_SLOT: Final = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")

REMINDER: Final = "If a tool of the list fits, answer only with a call in the form that was shown; else in plain text."
"""The built-in reminder at the end of the user's message, if the model may choose whether to call."""
REMINDER_OF_ANY: Final = "Answer with a call of a tool of the list, in the form that was shown."
"""The reminder if a call is demanded."""
REMINDER_OF_ONE: Final = "Answer with a call of the tool {tools}, in the form that was shown."
"""The reminder if a certain tool is demanded."""

_SHORT_SLOT: Final = re.compile(r"\{(tools|format)\}")

MAY: Final = "Call a function only if it does what the user asks; otherwise answer directly in plain text."
"""The sentence for `tool_choice: auto`. Without it models call tools on questions that no tool fits (R31.4)."""
SEVERAL: Final = "Several calls may follow one another in one answer."
"""The sentence for `parallel_tool_calls: true`."""

NEVER: Final = "Do not call a tool in this answer: write no tool call block. Answer in plain text."
"""The sentence for `tool_choice: none`."""


def check_template(text: str) -> list[str]:
    """Returns the placeholders missing in `text`, such as `{tools}`. Each one is a configuration error (R5.4)."""
    present = set(_SLOT.findall(text))
    return [f"{{{name}}}" for name in PLACEHOLDERS if name not in present]


def policy(
    tools: Sequence[ToolSpec],
    choice: ToolChoice,
    parallel: bool,
    escape: Escape = str,
    *,
    free: str = MAY,
    several: str = SEVERAL,
) -> str:
    """Returns sentences that say what may and must be called (R5.3). `tools` are the callable ones; `escape` is applied
    to their names. `free` is the sentence if the model may choose, `several` if it may make several calls."""
    if choice.mode == "none":
        return NEVER

    def named(those: Sequence[ToolSpec]) -> str:
        return ", ".join(f"`{escape(prompt_name(tool))}`" for tool in those)

    names = named(tools)
    sentences = []
    match choice.mode:
        case "required":
            sentences.append("You must call at least one tool in this answer.")
        case "named":
            sentences.append(f"You must call the tool {names} in this answer, and no other tool.")
        case _:
            sentences.append(free)
    if choice.allowed is not None:
        sentences.append(f"Only these tools may be called: {names}.")
    if parallel:
        sentences.append(several)
    else:
        sentences.append("Make only one call in an answer.")
    strict = [tool for tool in tools if tool.strict is True]
    if strict:
        those = "" if len(strict) == len(tools) else f" for {named(strict)}"
        sentences.append(
            f"The arguments{those} must conform exactly to the JSON Schema: every required property, right types, "
            "nothing that is not declared."
        )
    return " ".join(filter(None, sentences))


def segment(request: ModelRequest, tool_format: ToolFormat, prompt: PromptConfig, also: tuple[str, ...] = ()) -> str:
    """Returns the text that teaches the tools of `request`; empty if there are none. `also`: further markers that the
    route reads; for a format without a layout only its own markers are escaped.

    Under `tool_choice: none` it is only the sentence that forbids calls, unless `inject_when_none` asks for the tools
    too.
    """
    tools = request.callable_tools
    if request.tool_choice.mode == "none":
        tools = tuple(tool for tool in request.tools if tool.kind != "hosted")
        if tools and not prompt.inject_when_none:
            return NEVER
    if not tools:
        return ""
    shown, listing = with_groups(tools), tool_format.listing
    values = {
        "tools": tool_format.render_tools(shown)
        if listing is None
        else listing(shown, escaping_for(tool_format, also)),
        "policy": policy(tools, request.tool_choice, request.parallel_tool_calls, escaping_for(tool_format).value),
        "format": tool_format.instructions,
        "examples": prompt.examples,
    }
    # One pass: inserted text is never searched for placeholders.
    return _SLOT.sub(lambda slot: values[slot[1]], prompt.template or tool_format.template).strip()


def reminder(request: ModelRequest, tool_format: ToolFormat, prompt: PromptConfig) -> str:
    """Returns the reminder at the end of the user's message (R23.7); empty if there is none, or if no tool can be
    called.

    In a configured text, `{tools}` is replaced by the names of the callable tools, and `{format}` by the form of a
    call.
    """
    tools, chosen = request.callable_tools, prompt.reminder
    if not tools or chosen in (False, "off", ""):
        return ""
    if chosen in (True, "on"):
        chosen = {"required": REMINDER_OF_ANY, "named": REMINDER_OF_ONE}.get(request.tool_choice.mode, REMINDER)
    escape = escaping_for(tool_format).value
    values = {
        "tools": ", ".join(f"`{escape(prompt_name(tool))}`" for tool in tools),
        "format": call_form(tool_format),
    }
    return _SHORT_SLOT.sub(lambda slot: values[slot[1]], str(chosen))


def form_sentence(form: Mapping[str, Any], tool_format: ToolFormat) -> str:
    """Returns the prompt's sentence for `response_format`, if the backend has no field for it (R2.22)."""
    schema = (form.get("json_schema") or {}).get("schema") if form.get("type") == "json_schema" else None
    if schema is None:
        return (
            "When you answer in text, the whole answer is one JSON object and nothing else, without a Markdown fence."
        )
    shown = escaping_for(tool_format).json(compact(schema))
    return (
        "When you answer in text, the whole answer is one JSON value that fits this JSON Schema and nothing else, without a "
        f"Markdown fence:\n{shown}"
    )


def with_form(request: ModelRequest, tool_format: ToolFormat, placement: Placement) -> ModelRequest:
    """Returns the request with a sentence for its `response_format` in the prompt."""
    assert request.response_format is not None
    words = form_sentence(request.response_format, tool_format)
    return replace(request, messages=tuple(placed(request.messages, words, placement)))


def content_key(request: ModelRequest, *more: object) -> bytes:
    """Returns a digest of everything that decides how the tools of `request` are taught. `more` must have a stable
    `repr`."""
    digest = blake2b(digest_size=16)
    choice = request.tool_choice
    digest.update(repr((choice.mode, choice.name, choice.allowed, request.parallel_tool_calls, more)).encode())
    described: set[str | None] = set()  # groups, whose description is shown once
    for tool in request.tools:
        group = (tool.namespace, None if tool.namespace in described else tool.namespace_description)
        described.add(tool.namespace)
        shown = (tool.name, taught_description(tool), tool.parameters, tool.strict, tool.kind, *group)
        try:
            digest.update(b"\0" + orjson.dumps(shown))
        except TypeError:  # half a character, a huge number, a mapping of another class: rare, and slower
            digest.update(b"\0" + compact(shown).encode(errors="surrogatepass"))
    return digest.digest()
