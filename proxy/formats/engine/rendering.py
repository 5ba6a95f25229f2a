"""What the built-in formats share: names, parameters and results as a model is shown them.

Rules of this module:

1. Whatever comes from a client or a tool is data: rendered, it holds no marker of the format (R5.6).
2. Rendering is deterministic: the same values give the same bytes (R5.5). JSON is compact and keeps the order of its
   keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final

from toolwire.formats.engine.escaping import Escaping
from toolwire.formats.engine.longjson import compact
from toolwire.formats.engine.toolset import NAME_BYTES, note, note_of
from toolwire.formats.engine.values import read_object
from toolwire.model import Image, OpaquePart, Refusal, Text, ToolResult, ToolSpec, ToolUse
from toolwire.support.legible import without_files

CUSTOM_PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
"""How a `custom` tool, which takes free text, is taught (R8.9)."""

_NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_PLAIN: Final = re.compile(r"[\w.:/+-]+", re.ASCII)


def prompt_name(item: ToolSpec | ToolUse) -> str:
    """The name under which the model knows a tool: with its group, so that equal names stay apart (R8.16).

    Two underscores stand between, because hosted servers take only letters, digits, `_` and `-` in a name."""
    return item.name if item.namespace is None else f"{item.namespace}__{item.name}"


SHORT_NAME_CHARS: Final = 64
"""Longest name of a tool for servers that take no longer one."""


def short_name(name: str) -> str:
    """A name for servers that take `SHORT_NAME_CHARS` characters: itself, or its beginning and a hash of all of it, so
    that two names stay two and the same name is always the same (R3.2)."""
    if len(name) <= SHORT_NAME_CHARS:
        return name
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{name[: SHORT_NAME_CHARS - len(digest) - 1]}_{digest}"


def by_prompt_name(tools: Sequence[ToolSpec]) -> Mapping[str, ToolSpec]:
    """The tools by the names under which the model may call them: as it was taught, in the short form that some servers
    get, and without the group where no other tool has that name, since weak models leave the group out. Noted with a
    `ToolSet`."""
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
    """The schema that the model is shown."""
    if tool.kind == "custom":
        return CUSTOM_PARAMETERS
    return _NO_PARAMETERS if tool.parameters is None else tool.parameters


def taught_description(tool: ToolSpec) -> str | None:
    """What the model is told of a tool; for free text also its grammar, where the client sent one (R8.9)."""
    received = tool.received
    form = received.get("format") or (received.get("custom") or {}).get("format")
    if tool.kind != "custom" or not isinstance(form, Mapping) or form.get("type") != "grammar":
        return tool.description
    inner = form.get("grammar")
    grammar = inner if isinstance(inner, Mapping) else form
    told = f"`input` must follow this grammar ({grammar.get('syntax')}):\n{grammar.get('definition')}"
    return f"{tool.description}\n{told}" if tool.description else told


def with_groups(tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    """The tools, of which the first one of each group says also what the client says of the group (R8.16). The same
    object if there is nothing to say."""
    if not any(tool.namespace_description for tool in tools):
        return tools
    told: set[str | None] = set()
    out: list[ToolSpec] = []
    for tool in tools:
        if tool.namespace_description and tool.namespace not in told:
            told.add(tool.namespace)
            about = f"All tools whose names begin with `{tool.namespace}__`: {tool.namespace_description}"
            tool = replace(tool, description=f"{tool.description}\n{about}" if tool.description else about)
        out.append(tool)
    return out


def as_taught(tool: ToolSpec) -> ToolSpec:
    """The tool as the model knows it: a function with this name and these parameters."""
    return replace(
        tool,
        name=prompt_name(tool),
        description=taught_description(tool),
        parameters=prompt_parameters(tool),
        kind="function",
        namespace=None,
    )


def taught_arguments(use: ToolUse) -> str:
    """The arguments of an earlier call as the model should have written them: JSON text, `{}` for none."""
    if use.kind == "custom":
        return compact({"input": use.arguments})
    return use.arguments if use.arguments.strip() else "{}"


def is_json_object(text: str) -> bool:
    """Whether `text` is a JSON object."""
    return read_object(text) is not None


def json_value(text: str) -> str:
    """JSON text as it can stand in other JSON: unchanged if it is an object, else as a string that holds it, so that a
    call with broken arguments stays a block that can be read."""
    return text.strip() if is_json_object(text) else compact(text)


def attribute(value: str, escaping: Escaping) -> str:
    """A name or an id in markup: as it is if it is plain, else as JSON."""
    plain = _PLAIN.fullmatch(value) and not escaping.holds(value)
    return value if plain else escaping.json(compact(value))


def result_text(result: ToolResult) -> str:
    """The text of a result, in order. Images only leave a mark: they follow as parts of the message."""
    texts = []
    for part in result.parts:
        match part:
            case Text() | Refusal():
                texts.append(part.text)
            case Image():
                texts.append("[image]")
            case OpaquePart():
                texts.append(compact(without_files(part.payload)))
            case _:
                pass
    return "".join(texts)
