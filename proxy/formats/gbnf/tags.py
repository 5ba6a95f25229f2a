"""Structural tags: free text in which calls are enforced from their opener on, in the form of xgrammar, which vLLM,
SGLang and others read (R23.2).

Published at xgrammar.mlc.ai, "Structural Tag": `triggered_tags` hold the tags that may follow a trigger, `at_least_one`
forbids text before the first, `stop_after_first` what comes behind it. Arguments are `json_schema`, for the models that
write them in tags in one of its styles, and a `grammar` where they are JSON in a string. Layouts that none of these can
say have no structural tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolwire.formats.engine.layout import Layout, Tagged
from toolwire.formats.engine.longjson import compact
from toolwire.formats.gbnf.arguments import arguments, rules_for
from toolwire.formats.gbnf.notation import Inexpressible
from toolwire.formats.gbnf.rules import STANDARD, Bounds
from toolwire.scan._grammar import Grammar

_STYLES: Final[Mapping[str, str]] = {
    '<parameter name="': "minimax_xml",
    '<｜DSML｜parameter name="': "deepseek_xml",
    "<arg_key>": "glm_xml",
    '<|open|>argument key="': "kimi_k3_xml",
}
"""How an argument begins, and what xgrammar calls this style."""
_QWEN: Final = "<parameter="
"""The style that came first has a type of its own, which older versions know as well."""

Json = dict[str, Any]


def structural_tag(
    tools: Iterable[tuple[str, Mapping[str, Any]]],
    parallel: bool,
    layout: Layout,
    bounds: Bounds = STANDARD,
    *,
    reads: Grammar,
    demanded: bool = False,
) -> Json:
    """The structural tag of an answer that may call one of `tools` (name, schema of the arguments), or several if
    `parallel`; with `demanded` it must.

    Raises `Inexpressible` if there is none: no tool, or a layout that the form cannot say, or a call that no literal
    announces.
    """
    closer = layout.closer
    end: str | list[str] = closer
    if layout.last and not layout.first:  # it stands behind the last call only
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


def _call(name: str, schema: Mapping[str, Any], layout: Layout, end: str | list[str], bounds: Bounds) -> Json:
    shown = name if layout.name == "plain" else compact(name)
    content = _content(schema, layout, bounds)
    if layout.numbered:
        number: Json = {"type": "regex", "pattern": "[0-9]+"}
        middle: Json = {"type": "const_string", "value": layout.middle}
        content = {"type": "sequence", "elements": [number, middle, content]}
        return _tag(layout.opener + shown + layout.numbered, content, end)
    return _tag(layout.opener + shown + layout.middle, content, end)


def _content(schema: Mapping[str, Any], layout: Layout, bounds: Bounds) -> Json:
    """The arguments."""
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
