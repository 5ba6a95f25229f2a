"""Names, parameters and results as the built-in formats show them to a model.

Rules of this module:

1. Everything from a client or tool is data: when rendered, it contains no marker of the format (R5.6).
2. Rendering is deterministic: the same values give the same bytes (R5.5). JSON is compact and keeps the order of keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from ...model import Image, OpaquePart, Refusal, Text, ToolResult, ToolSpec, ToolUse
from ...support.legible import without_files
from .escaping import Escaping
from .longjson import compact
from .toolset import NAME_BYTES, note, note_of
from .values import read_object

CUSTOM_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The schema with which a `custom` tool, which takes free text, is taught (R8.9)."""

_NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_PLAIN: Final = re.compile(r"[\w.:/+-]+", re.ASCII)


def prompt_name(item: ToolSpec | ToolUse) -> str:
    """Returns the name under which the model knows a tool, including its group, so that equal names stay distinct
    (R8.16).

    They are joined by two underscores, because hosted servers allow only letters, digits, `_` and `-` in names.
    """
    return item.name if item.namespace is None else f"{item.namespace}__{item.name}"


SHORT_NAME_CHARS: Final = 64
"""Maximum number of characters of a tool's name at servers that limit names."""


def short_name(name: str) -> str:
    """Returns a name of at most `SHORT_NAME_CHARS` characters: the name itself, or its beginning and a hash of all of
    it, so that different names stay different and equal names equal (R3.2)."""
    if len(name) <= SHORT_NAME_CHARS:
        return name
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{name[: SHORT_NAME_CHARS - len(digest) - 1]}_{digest}"


def by_prompt_name(tools: Sequence[ToolSpec]) -> Mapping[str, ToolSpec]:
    """Returns the tools by every name under which the model may call them: the taught name, the short form that some
    servers get, and the name without its group if it is unique (weak models omit the group). Cached with the `ToolSet`.
    """
    noted: Mapping[str, ToolSpec] | None = note_of(tools, by_prompt_name)
    return noted if noted is not None else note(tools, by_prompt_name, _by_taught_name(tools), NAME_BYTES * len(tools))


def _by_taught_name(tools: Sequence[ToolSpec]) -> Mapping[str, ToolSpec]:
    known = {prompt_name(tool): tool for tool in tools}
    for name, tool in list(known.items()):
        if len(name) > SHORT_NAME_CHARS:
            known.setdefault(short_name(name), tool)
    if not any(tool.namespace for tool in tools):
        return known
    times = Counter(tool.name for tool in tools)
    for tool in tools:
        if times[tool.name] == 1:
            known.setdefault(tool.name, tool)
    return known


def prompt_parameters(tool: ToolSpec) -> Mapping[str, Any]:
    """Returns the schema that the model is shown."""
    if tool.kind == "custom":
        return CUSTOM_PARAMETERS
    return _NO_PARAMETERS if tool.parameters is None else tool.parameters


def taught_description(tool: ToolSpec) -> str | None:
    """Returns the description shown to the model; for free text with a grammar, including that grammar (R8.9)."""
    received = tool.received
    form = received.get("format") or (received.get("custom") or {}).get("format")
    if tool.kind != "custom" or not isinstance(form, Mapping) or form.get("type") != "grammar":
        return tool.description
    inner = form.get("grammar")
    grammar = inner if isinstance(inner, Mapping) else form
    grammar_note = f"`input` must follow this grammar ({grammar.get('syntax')}):\n{grammar.get('definition')}"
    return f"{tool.description}\n{grammar_note}" if tool.description else grammar_note


def with_groups(tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    """Returns the tools, where the first tool of each group also has the client's description of the group (R8.16).
    Returns the same object if there is none."""
    if not any(tool.namespace_description for tool in tools):
        return tools
    described: set[str | None] = set()
    out: list[ToolSpec] = []
    for tool in tools:
        if tool.namespace_description and tool.namespace not in described:
            described.add(tool.namespace)
            about = f"All tools whose names begin with `{tool.namespace}__`: {tool.namespace_description}"
            tool = replace(tool, description=f"{tool.description}\n{about}" if tool.description else about)
        out.append(tool)
    return out


def as_taught(tool: ToolSpec) -> ToolSpec:
    """Returns the tool as the model knows it: a function with the taught name, description and parameters."""
    return replace(
        tool,
        name=prompt_name(tool),
        description=taught_description(tool),
        parameters=prompt_parameters(tool),
        kind="function",
        namespace=None,
    )


def taught_arguments(use: ToolUse) -> str:
    """Returns the arguments of an earlier call as the model should have written them: JSON text, `{}` for none."""
    if use.kind == "custom":
        return compact({"input": use.arguments})
    return use.arguments if use.arguments.strip() else "{}"


def is_json_object(text: str) -> bool:
    """Returns True if `text` is a JSON object."""
    return read_object(text) is not None


def json_value(text: str) -> str:
    """Returns JSON text that can stand inside other JSON: unchanged if it is an object, else as a JSON string, so that
    a call with broken arguments remains readable."""
    return text.strip() if is_json_object(text) else compact(text)


def attribute(value: str, escaping: Escaping) -> str:
    """Returns a name or id for markup: unchanged if it is plain, else as JSON."""
    plain = _PLAIN.fullmatch(value) and not escaping.holds(value)
    return value if plain else escaping.json(compact(value))


def result_text(result: ToolResult) -> str:
    """Returns the text of a result. An image becomes `[image]`; the image itself follows as a part of the message.
    Blank lines separate this, and parts of other protocols, from the texts."""
    paragraphs: list[list[str]] = [[]]
    for part in result.parts:
        match part:
            case Text() | Refusal():
                paragraphs[-1].append(part.text)
            case Image():
                paragraphs += ["[image]"], []
            case OpaquePart():
                paragraphs += [compact(without_files(part.payload))], []
            case _:
                pass
    return "\n\n".join(filter(None, map("".join, paragraphs)))
