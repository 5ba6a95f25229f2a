r"""Lists of the tools on offer, in the forms that families of models were trained to read.

Rules of this module:

1. Tool text is data: a listing contains no marker of the route (R5.6). In JSON one character of each is written as
   `\uXXXX`, elsewhere a backslash is inserted.
2. JSON is compact, keys in their order, tools in the client's order (R5.5).
3. A family's listing does not look like its calls: a model that recites a definition writes no call (R31.5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...model import ToolSpec
from .escaping import Escaping, Markup, Pieces
from .longjson import compact
from .rendering import prompt_name, prompt_parameters, taught_description
from .values import Syntax

Listing = Callable[[Sequence[ToolSpec], Escaping], str]
"""Returns the tools on offer as text, for the placeholder `{tools}` of a prompt."""

_XML_KNOWN: Final = frozenset({"type", "description"})
"""Keys of a parameter that have a fixed place in `elements`."""


def functions(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
    """Returns `{"type":"function","function":{"name":...}}` for each tool, one per line, as OpenAI's clients send
    them."""
    return "\n".join([_json({"type": "function", "function": _signature(tool)}, escaping) for tool in tools])


def function_list(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
    """Returns the objects of `functions` as one JSON array on one line."""
    return _json([{"type": "function", "function": _signature(tool)} for tool in tools], escaping)


def signatures(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
    """Returns `{"name":...,"description":...,"parameters":...}` for each tool, one per line."""
    return "\n".join([_json(_signature(tool), escaping) for tool in tools])


def signature_list(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
    """Returns the objects of `signatures` as one JSON array on one line."""
    return _json([_signature(tool) for tool in tools], escaping)


def tagged_functions(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
    """Returns `<tool>{"name":...}</tool>` for each tool, one per line (MiniMax)."""
    return "\n".join([f"<tool>{_json(_signature(tool), escaping)}</tool>" for tool in tools])


def headings(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
    """Returns a heading with the name, a description and a JSON Schema for each tool (DeepSeek V3.1)."""
    return "\n\n".join([escaping.compose(_section(tool, escaping)) for tool in tools])


def elements(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
    """Returns the tools as XML elements (Qwen3-Coder). Further keywords of a parameter are elements that contain
    JSON."""
    return "\n".join([escaping.compose(_element(tool)) for tool in tools])


def declarations(opener: str, closer: str, syntax: Syntax) -> Listing:
    """Returns a listing that writes `declaration:NAME{description:...,parameters:{...}}` between two tags for each tool
    (Gemma). JSON type names are in capitals."""

    def written(tools: Sequence[ToolSpec], escaping: Escaping) -> str:
        return "".join([escaping.compose(_declaration(tool, opener, closer, syntax, escaping)) for tool in tools])

    return written


def _json(value: Any, escaping: Escaping) -> str:
    return escaping.json(compact(value))


def _signature(tool: ToolSpec) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": prompt_name(tool)}
    if description := taught_description(tool):
        shown["description"] = description
    shown["parameters"] = prompt_parameters(tool)
    return shown


def _section(tool: ToolSpec, escaping: Escaping) -> Pieces:
    schema = Markup(_json(prompt_parameters(tool), escaping))
    description = taught_description(tool)
    about = (Markup("\nDescription: "), description) if description else ()
    return Markup("### "), prompt_name(tool), *about, Markup("\n\nParameters: "), schema


def _element(tool: ToolSpec) -> Pieces:
    pieces = [Markup("<function>\n<name>"), prompt_name(tool), Markup("</name>")]
    if description := taught_description(tool):
        pieces += Markup("\n<description>"), description.strip(), Markup("</description>")
    parameters = prompt_parameters(tool)
    properties = parameters.get("properties")
    pieces.append(Markup("\n<parameters>"))
    for name, schema in properties.items() if isinstance(properties, Mapping) else ():
        pieces += Markup("\n<parameter>\n<name>"), str(name), Markup("</name>")
        known = schema if isinstance(schema, Mapping) else {}
        for key in ("type", "description"):
            if key in known:
                value = known[key]
                pieces += Markup(f"\n<{key}>"), value if isinstance(value, str) else compact(value), Markup(f"</{key}>")
        pieces += [*_keywords(known, _XML_KNOWN), Markup("\n</parameter>")]
    pieces += [*_keywords(parameters, frozenset({"type", "properties"})), Markup("\n</parameters>\n</function>")]
    return pieces


def _keywords(schema: Mapping[str, Any], known: frozenset[str]) -> Pieces:
    pieces: list[str] = []
    for key, value in schema.items():
        if key not in known:
            pieces += Markup("\n<"), str(key), Markup(">"), compact(value), Markup("</"), str(key), Markup(">")
    return pieces


def _declaration(tool: ToolSpec, opener: str, closer: str, syntax: Syntax, escaping: Escaping) -> Pieces:
    shown = {"description": taught_description(tool) or "", "parameters": _in_capitals(prompt_parameters(tool))}
    body = syntax.write(shown, escaping.value)
    return Markup(f"{opener}declaration:"), prompt_name(tool), Markup(f"{body}{closer}")


def _in_capitals(value: Any) -> Any:
    """Returns a schema with its `type` names in capitals."""
    match value:
        case Mapping():
            return {key: _capital(inner) if key == "type" else _in_capitals(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_in_capitals(inner) for inner in value]
    return value


def _capital(kind: Any) -> Any:
    """Returns the value of `type` in capitals: a word or several. A parameter called `type` has a schema there
    instead."""
    match kind:
        case str():
            return kind.upper()
        case list() | tuple():
            return [_capital(word) for word in kind]
    return _in_capitals(kind)
