"""Structural tags in the bodies that vLLM and SGLang get (R23.2), against JSON Schemas written after what these servers
publish.

Sources: xgrammar's documentation, "Structural Tag Usage", for the formats; vLLM's, "Structured Outputs", for
`structured_outputs`; SGLang's, "Structured Outputs", for `response_format`.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.cases import every
from tests.formats.cases import FORMATS, every_format
from tests.formats.sampler import Acceptor, Grammar
from toolwire.formats.base import ToolFormat, tagged_answer
from toolwire.formats.engine.rendering import as_taught
from toolwire.formats.gbnf.grammar import Inexpressible
from toolwire.model import Constraint, Message, ModelRequest, Text, ToolSpec, ToolUse
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.upstream.servers.adapt import adapt
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.presets import PRESETS

STRINGS = {"type": "array", "items": {"type": "string"}}


def kind(name: str, *required: str, **properties: Any) -> dict[str, Any]:
    """One format object: nothing in it that is not published."""
    return {
        "type": "object",
        "properties": {"type": {"const": name}, **properties},
        "required": ["type", *required],
        "additionalProperties": False,
    }


ANY = {"$ref": "#/$defs/format"}
TAG = {"$ref": "#/$defs/tag"}
FLAGS = {"at_least_one": {"type": "boolean"}, "stop_after_first": {"type": "boolean"}}
STYLES = ["json", "qwen_xml", "minimax_xml", "deepseek_xml", "glm_xml", "cohere_xml", "kimi_k3_xml"]
DEFINITIONS = {
    "tag": kind("tag", "begin", "content", "end", begin={"type": "string"}, content=ANY, end={"anyOf": [{"type": "string"}, STRINGS]}),
    "format": {
        "oneOf": [
            kind("const_string", "value", value={"type": "string"}),
            kind("json_schema", "json_schema", json_schema={"type": "object"}, style={"enum": STYLES}, any_order={"type": "boolean"}),
            kind("qwen_xml_parameter", "json_schema", json_schema={"type": "object"}),
            kind("grammar", "grammar", grammar={"type": "string"}),
            kind("regex", "pattern", pattern={"type": "string", "format": "regex"}),
            kind("any_text", excludes=STRINGS),
            kind("sequence", "elements", elements={"type": "array", "items": ANY, "minItems": 1}),
            kind("or", "elements", elements={"type": "array", "items": ANY, "minItems": 1}),
            TAG,
            kind("triggered_tags", "triggers", "tags", triggers={**STRINGS, "minItems": 1}, tags={"type": "array", "items": TAG, "minItems": 1}, excludes=STRINGS, **FLAGS),
            kind("tags_with_separator", "tags", "separator", tags={"type": "array", "items": TAG, "minItems": 1}, separator={"type": "string"}, **FLAGS),
        ]
    },
}  # fmt: skip
STRUCTURAL_TAG = {**kind("structural_tag", "format", format=ANY), "$defs": DEFINITIONS}
ONE_OF_MANY = {
    name: {"type": "object"} if name == "json" else {"type": "string"}
    for name in ("json", "regex", "grammar", "structural_tag")
}
VLLM = {
    "type": "object",
    "properties": {
        "structured_outputs": {
            "type": "object",
            "properties": {**ONE_OF_MANY, "choice": STRINGS, "whitespace_pattern": {"type": "string"}},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
    },
    "required": ["structured_outputs"],
    "not": {"required": ["response_format"]},
}
SGLANG = {
    "type": "object",
    "required": ["response_format"],
    "not": {"anyOf": [{"required": [name]} for name in ("regex", "ebnf", "json_schema")]},
}

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
TOOLS = (ToolSpec("get_weather", None, CITY), ToolSpec("note", None, None, kind="custom"))
NOT_SAID = {
    *("functiongemma", "gemma4", "lfm2", "minicpm5", "olmo3", "pythonic", "step3"),
    *("beam", "deepseek_v41", "gigachat35", "k2_horizon", "minimax_m3", "muse", "solar_open2"),
    *("cwm", "sarashina", "telechat4", "ui_tars"),
}
"""Formats whose arguments no content of a structural tag is: Python's words, tags in no published style, and JSON in
which the format's own literals are escaped."""
NO_OPENER = {"fenced_json", "bare_json", "functionary", "llama3_json", "xlam"}
"""Formats in which no literal says that a call begins."""


def body(feature: str, constraint: Constraint) -> dict[str, Any]:
    """What is sent to a server with this feature."""
    asked = ModelRequest(
        "m",
        (Message("user", (Text("hi"),)),),
        constraint=constraint,
        extra={"regex": "x", "grammar": "y", "structured_outputs": {"regex": "x"}},
    )
    takes = Capabilities(constrain=feature, extra_parameters=frozenset(asked.extra))
    written: dict[str, Any] = ChatProtocol().write_request(adapt(asked, takes))
    return json.loads(json.dumps(written, default=dict))  # type: ignore[no-any-return]


def check(schema: dict[str, Any], value: Any) -> None:
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value)


@every_format
@every("demanded", [False, True])
@every("parallel", [False, True])
def test_bodies_are_as_published(tool_format: ToolFormat, demanded: bool, parallel: bool) -> None:
    if tool_format.name in NOT_SAID or (tool_format.name in NO_OPENER and not demanded):
        with pytest.raises(Inexpressible):
            tagged_answer(tool_format, TOOLS, parallel, demanded=demanded)
        return
    tags = tagged_answer(tool_format, TOOLS, parallel, demanded=demanded)
    constraint = Constraint("", tuple(map(as_taught, TOOLS)), tags, free=not demanded)
    written = json.loads(json.dumps(tags, default=dict))
    check(STRUCTURAL_TAG, written)
    for feature in ("guided_tag", *([] if demanded else ["guided"])):
        sent = body(feature, constraint)
        check(VLLM, sent)
        assert json.loads(sent["structured_outputs"]["structural_tag"]) == written
    for feature in ("structural_tag", *([] if demanded else ["ebnf"])):
        sent = body(feature, constraint)
        check(SGLANG, sent)
        assert sent["response_format"] == written


@every_format
def test_a_tag_is_put_together_to_what_the_format_writes(tool_format: ToolFormat) -> None:
    """Begin, content and end, with the triggers at the beginning: that is what xgrammar does with them."""
    if tool_format.name in NOT_SAID:
        return
    tags = tagged_answer(tool_format, TOOLS, True, demanded=True)["format"]
    use = ToolUse("call_1", "get_weather", '{"city":"Oslo"}')
    written = tool_format.render_call(use)
    (trigger,) = tags["triggers"]
    assert all(tag["begin"].startswith(trigger) for tag in tags["tags"])
    assert written in set(texts(tags, use))
    assert (tags["at_least_one"], tags["stop_after_first"]) == (
        True,
        bool(tool_format.layout and tool_format.layout.first),
    )


def texts(one: dict[str, Any], use: ToolUse) -> list[str]:
    """Some texts that a format object allows, arguments being those of `use`."""
    match one["type"]:
        case "triggered_tags" | "tags_with_separator":
            return [text for tag in one["tags"] for text in texts(tag, use)]
        case "tag":
            ends = [one["end"]] if isinstance(one["end"], str) else one["end"]
            return [f"{one['begin']}{text}{end}" for text in texts(one["content"], use) for end in ends]
        case "sequence":
            found = [""]
            for element in one["elements"]:
                found = [before + text for before in found for text in texts(element, use)]
            return found
        case "const_string":
            return [one["value"]]
        case "regex":
            return ["0", "1"]  # a number
        case "grammar":
            quoted = json.dumps(use.arguments)
            return [quoted] if Acceptor(Grammar(one["grammar"])).accepts(quoted) else []
        case "json_schema" if one.get("style", "json") == "json":
            return (
                [use.arguments]
                if jsonschema.Draft202012Validator(one["json_schema"]).is_valid({"city": "Oslo"})
                else []
            )
    city = {
        "minimax_xml": '<parameter name="city">Oslo</parameter>\n',
        "deepseek_xml": '<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\n',
        "kimi_k3_xml": '<|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>',
    }
    # Whitespace around a value is free in these two.
    qwen = ["<parameter=city>\nOslo\n</parameter>\n", "<parameter=city>Oslo</parameter>\n"]
    glm = [
        "<arg_key>city</arg_key><arg_value>Oslo</arg_value>",
        "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n",
    ]
    style = one.get("style", one["type"])
    return {"glm_xml": glm, "qwen_xml_parameter": qwen}.get(style) or [city[style]]


def test_references_stay_inside_the_schema_they_point_into() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    hermes = next(f for f in FORMATS if f.name == "hermes")
    (tag,) = tagged_answer(hermes, (ToolSpec("t", None, node),), True)["format"]["tags"]
    assert tag["content"]["json_schema"] == node


def test_without_a_tag_nothing_is_sent() -> None:
    for feature in ("guided", "ebnf", "guided_tag", "structural_tag", "json_schema", "format", "none"):
        free = Constraint('root ::= "x"', TOOLS[:1], free=True)
        sent = body(feature, free)
        assert sent.keys() <= {"model", "messages", "regex", "grammar", "structured_outputs"}, feature
        assert sent["structured_outputs"] == {"regex": "x"}  # what the client said stays
    assert body("gbnf", free)["grammar"] == 'root ::= "x"'


def test_no_preset_sends_what_nobody_ran() -> None:
    assert {takes.constrain for takes in PRESETS.values()} == {"none", "gbnf", "guided", "ebnf", "json_schema"}
