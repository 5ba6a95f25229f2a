"""Structural tags in xgrammar's form, which vLLM, SGLang and others read: text is free, and calls are enforced from
their opener on (R23.2).

Published at xgrammar.mlc.ai, "Structural Tag": `triggered_tags` lists the tags allowed after a trigger, `at_least_one`
forbids text before the first tag, `stop_after_first` text after it. Arguments are a `json_schema` (for tagged arguments
in one of its styles), or a `grammar` where they are JSON in a string. Other layouts have no structural tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...scan._grammar import Grammar
from ..engine.layout import Layout, Tagged
from ..engine.longjson import compact
from .arguments import arguments, rules_for
from .notation import Inexpressible
from .rules import STANDARD, GrammarBounds

_STYLES: Final[Mapping[str, str]] = {
    '<parameter name="': "minimax_xml",
    '<｜DSML｜parameter name="': "deepseek_xml",
    "<arg_key>": "glm_xml",
    '<|open|>argument key="': "kimi_k3_xml",
}
"""The beginning of an argument, and xgrammar's name for that style."""
_QWEN: Final = "<parameter="
"""The opener of the style that has a structural-tag type of its own, known to older versions of xgrammar too."""

Json = dict[str, Any]


def structural_tag(
    tools: Iterable[tuple[str, Mapping[str, Any]]],
    parallel: bool,
    layout: Layout,
    bounds: GrammarBounds = STANDARD,
    *,
    reads: Grammar,
    demanded: bool = False,
) -> Json:
    """Returns the structural tag of an answer that may call one of `tools` (name, schema of the arguments), or several
    if `parallel`; with `demanded` it must call one.

    Raises `Inexpressible` if there are no tools, the layout has no structural tag, or no literal begins a call.
    """
    closer = layout.closer
    end: str | list[str] = closer
    if layout.last and not layout.first:  # `last` follows the last call only
        end = [closer + layout.last, closer + layout.separator] if parallel else closer + layout.last
    calls = [_call(name, schema, layout, end, bounds) for name, schema in tools]
    if not calls:
        raise Inexpressible("there is no tool to call")
    begin = layout.first or layout.opener
    openers = (s.opener for s in reads.syntaxes if s.opener and s.anchor == "anywhere" and not s.first_keys)
    trigger = next(filter(begin.startswith, openers), begin if demanded else "")
    if not trigger:
        raise Inexpressible("no literal says that a call begins")
    if layout.first:
        listed = _several("tags_with_separator", calls, True, not parallel, separator=layout.separator)
        calls, parallel = [_tag(layout.first, listed, layout.last)], False
    return {
        "type": "structural_tag",
        "format": _several("triggered_tags", calls, demanded, not parallel, triggers=[trigger]),
    }


def _several(kind: str, tags: Sequence[Json], at_least_one: bool, stop_after_first: bool, **more: Any) -> Json:
    return {"type": kind, **more, "tags": tags, "at_least_one": at_least_one, "stop_after_first": stop_after_first}


def _tag(begin: str, content: Json, end: str | list[str]) -> Json:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _call(name: str, schema: Mapping[str, Any], layout: Layout, end: str | list[str], bounds: GrammarBounds) -> Json:
    shown = name if layout.name == "plain" else compact(name)
    content = _content(schema, layout, bounds)
    if layout.numbered:
        number: Json = {"type": "regex", "pattern": "[0-9]+"}
        middle: Json = {"type": "const_string", "value": layout.middle}
        content = {"type": "sequence", "elements": [number, middle, content]}
        return _tag(layout.opener + shown + layout.numbered, content, end)
    return _tag(layout.opener + shown + layout.middle, content, end)


def _content(schema: Mapping[str, Any], layout: Layout, bounds: GrammarBounds) -> Json:
    """Returns the arguments of a call."""
    match layout.arguments:
        case "object":
            return {"type": "json_schema", "json_schema": schema}
        case "string":
            rules = rules_for(layout, bounds)
            return {"type": "grammar", "grammar": rules.text(arguments(schema, rules, layout))}
        case Tagged(opener=opener) if opener == _QWEN:
            return {"type": "qwen_xml_parameter", "json_schema": schema}
        case Tagged(opener=opener) if opener in _STYLES:
            return {"type": "json_schema", "style": _STYLES[opener], "json_schema": schema}
    raise Inexpressible("no structural tag has arguments of this form")
