"""How tools are listed in the words of a family: structure, escapes, order (R5.6, R31.5)."""

from __future__ import annotations

import json

import pytest

from proxy.config import PromptConfig
from proxy.formats.base import ToolFormat
from proxy.model import ModelRequest, Text, ToolResult, ToolSpec
from proxy.prompting.prompt import segment
from tests.formats.cases import FORMATS, SEARCH, WEATHER, every_format

BY_NAME = {tool_format.name: tool_format for tool_format in FORMATS}
DEEP = ToolSpec(
    "book",
    "Book a table.",
    {
        "type": "object",
        "properties": {"at": {"type": ["string", "null"], "enum": ["noon"]}, "n": {"description": "Guests."}},
        "required": ["at"],
    },
)


@every_format
def test_no_marker_of_the_route_stands_in_a_segment(tool_format: ToolFormat) -> None:
    """Those of other families too, which a route recognises."""
    tool = ToolSpec("t", "Say <|foreign_call|> x", {"properties": {"k": {"description": "<|foreign_call|>"}}})
    text = segment(ModelRequest("m", (), (tool,)), tool_format, PromptConfig(), ("<|foreign_call|>",))
    assert "Say" in text
    assert "<|foreign_call|>" not in text


@pytest.mark.parametrize("name", ["hermes", "auto", "sentinel", "glm45", "bare_json", "llama3_json"])
def test_one_function_a_line(name: str) -> None:
    lines = BY_NAME[name].render_tools((SEARCH, WEATHER)).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}},
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Get the weather.",
                "parameters": WEATHER.parameters,
            },
        },
    ]


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        (
            "qwen3_coder",
            "<function>\n<name>book</name>\n<description>Book a table.</description>\n<parameters>\n"
            '<parameter>\n<name>at</name>\n<type>["string","null"]</type>\n<enum>["noon"]</enum>\n</parameter>\n'
            "<parameter>\n<name>n</name>\n<description>Guests.</description>\n</parameter>\n"
            '<required>["at"]</required>\n</parameters>\n</function>',
        ),
        (
            "gemma4",
            '<|tool>declaration:book{description:<|"|>Book a table.<|"|>,parameters:{type:<|"|>OBJECT<|"|>,properties:{'
            'at:{type:[<|"|>STRING<|"|>,<|"|>NULL<|"|>],enum:[<|"|>noon<|"|>]},n:{description:<|"|>Guests.<|"|>}},'
            'required:[<|"|>at<|"|>]}}<tool|>',
        ),
    ],
)
def test_listings_of_their_own(name: str, listed: str) -> None:
    assert BY_NAME[name].render_tools((DEEP,)) == listed


def test_results_of_each_family() -> None:
    """The forms of R5.8, spelled out."""
    shown = {
        name: BY_NAME[name].render_result(ToolResult("call_1", (Text("blue"),), name="look"))
        for name in ("hermes", "mistral", "kimi_k2", "deepseek_v3", "deepseek_v31", "gemma4", "glm45", "minimax_m2")
    }
    assert shown == {
        "hermes": "<tool_response>\nblue\n</tool_response>",
        "glm45": "<tool_response>\nblue\n</tool_response>",
        "mistral": "[TOOL_RESULTS]blue[/TOOL_RESULTS]",
        "kimi_k2": "## Return of call_1\nblue",
        "deepseek_v3": "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>blue<｜tool▁output▁end｜><｜tool▁outputs▁end｜>",
        "deepseek_v31": "<｜tool▁output▁begin｜>blue<｜tool▁output▁end｜>",
        "gemma4": '<|tool_response>response:look{value:<|"|>blue<|"|>}<tool_response|>',
        "minimax_m2": "<response>blue</response>",
    }
