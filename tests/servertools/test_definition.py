"""Declarations of modules (R15.3): for every rule, values just inside and outside of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import every
from tests.servertools.conftest import tool
from toolwire.servertools.definition import ToolModuleError, read_tools


def handler(name: str, values: dict[str, Any]) -> str:
    return name


def schema(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


def properties(count: int) -> dict[str, Any]:
    return {f"p{i}": {"type": "string"} for i in range(count)}


CYCLE: dict[str, Any] = {"type": "object", "properties": {}}
CYCLE["properties"]["again"] = CYCLE
REFERENCE = schema(properties={"a": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"type": "string"}}})

GOOD: dict[str, Any] = {
    "None": None,
    "an empty list": [],
    "one tool": [tool()],
    "no parameters": [tool(parameters=None)],
    "ten tools": [tool(f"t{i}") for i in range(10)],
    "a name of 50 characters": [tool("a" * 50)],
    "a name with digits and underscores": [tool("aB_9")],
    "a description of 200 characters": [tool(description="x" * 200)],
    "ten properties": [tool(parameters=schema(properties=properties(10)))],
    "an enum of ten values": [tool(parameters=schema(properties={"a": {"enum": list(range(10))}}))],
    "a property that is called $ref": [tool(parameters=schema(properties={"$ref": {"type": "string"}}))],
    "a default that fits": [tool(parameters=schema(properties={"a": {"enum": ["x"], "default": "x"}}))],
}

BAD: dict[str, tuple[Any, str]] = {
    "TOOLS a dict": ({}, "TypeError"),
    "TOOLS a tuple": ((tool(),), "TypeError"),
    "TOOLS a text": ("one", "TypeError"),
    "TOOLS false": (False, "TypeError"),
    "item no dict": (["one"], "ValueError"),
    "item without type": ([{"function": {"name": "one", "description": "x"}}], "ValueError"),
    "item of another type": ([{"type": "custom", "function": {}}], "ValueError"),
    "item without function": ([{"type": "function"}], "ValueError"),
    "function no dict": ([{"type": "function", "function": "one"}], "ValueError"),
    "name twice": ([tool(), tool("two"), tool()], "DuplicateName"),
    "no name": ([{"type": "function", "function": {"description": "x"}}], "InvalidName"),
    "name empty": ([tool("")], "InvalidName"),
    "name no text": ([tool(name=7)], "InvalidName"),  # type: ignore[arg-type]
    "name with a leading underscore": ([tool("_one")], "InvalidName"),
    "name with a leading digit": ([tool("1one")], "InvalidName"),
    "name with a hyphen": ([tool("one-two")], "InvalidName"),
    "name with a letter beyond ASCII": ([tool("önë")], "InvalidName"),
    "name with a line end": ([tool("one\n")], "InvalidName"),
    "name of 51 characters": ([tool("a" * 51)], "InvalidName"),
    "no description": ([{"type": "function", "function": {"name": "one"}}], "ValueError"),
    "description empty": ([tool(description="")], "ValueError"),
    "description blank": ([tool(description=" \n")], "ValueError"),
    "description no text": ([tool(description=["x"])], "ValueError"),
    "description of 201 characters": ([tool(description="x" * 201)], "ValueError"),
    "parameters a list": ([tool(parameters=[])], "ValidationError"),
    "parameters without type": ([tool(parameters={})], "ValidationError"),
    "root an array": ([tool(parameters={"type": "array"})], "ValidationError"),
    "root two types": ([tool(parameters={"type": ["object", "null"]})], "ValidationError"),
    "no JSON Schema": ([tool(parameters=schema(properties={"a": {"type": "text"}}))], "ValidationError"),
    "properties no object": ([tool(parameters=schema(properties=["a"]))], "ValidationError"),
    "no JSON": ([tool(parameters=schema(properties={"a": {"default": object()}}))], "ValidationError"),
    "eleven properties": ([tool(parameters=schema(properties=properties(11)))], "ValidationError"),
    "eleven properties inside": (
        [tool(parameters=schema(properties={"a": schema(properties=properties(11))}))],
        "ValidationError",
    ),
    "an enum of eleven values": (
        [tool(parameters=schema(properties={"a": {"enum": list(range(11))}}))],
        "ValidationError",
    ),
    "an enum of eleven values inside": (
        [tool(parameters=schema(properties={"a": {"items": {"enum": list(range(11))}}}))],
        "ValidationError",
    ),
    "a reference": ([tool(parameters=REFERENCE)], "ValidationError"),
    "a recursion": ([tool(parameters=schema(properties={"a": {"$ref": "#"}}))], "ValidationError"),
    "a dict in itself": ([tool(parameters=CYCLE)], "ValidationError"),
    "a default that does not fit": (
        [tool(parameters=schema(properties={"a": {"type": "string", "default": 1}}))],
        "ValidationError",
    ),
    "eleven tools": ([tool(f"t{i}") for i in range(11)], "ValueError"),
}


@every("declared", GOOD.values())
def test_what_is_allowed(declared: Any) -> None:
    tools = read_tools(declared, handler, "module")
    assert [tool.name for tool in tools] == [item["function"]["name"] for item in declared or ()]
    assert all(tool.spec.server and tool.spec.strict is None for tool in tools)


@every(("declared", "kind"), BAD.values())
def test_what_is_not(declared: Any, kind: str) -> None:
    with pytest.raises(ToolModuleError) as caught:
        read_tools(declared, handler, "module")
    assert caught.value.kind == kind
    assert caught.value.message


def test_tools_need_a_handler() -> None:
    with pytest.raises(ToolModuleError) as caught:
        read_tools([tool()], None, "module")
    assert caught.value.kind == "MissingMethod"
    assert read_tools([], None, "module") == read_tools(None, None, "module") == ()


def test_what_a_module_changes_later_changes_no_tool() -> None:
    declared = [tool(parameters=schema(properties={"a": {"type": "string"}}))]
    (read,) = read_tools(declared, handler, "module")
    declared[0]["function"]["parameters"]["properties"]["b"] = {}
    assert read.spec.parameters == schema(properties={"a": {"type": "string"}})


def test_what_is_shared_is_not_written_out_a_million_times() -> None:
    shared: dict[str, Any] = {"type": "string"}
    for _ in range(60):  # as JSON these are 2 ** 60 values
        shared = {"type": "object", "properties": {"a": shared, "b": shared}}
    with pytest.raises(ToolModuleError, match="more than 20000 values") as caught:
        read_tools([tool(parameters=shared)], handler, "m")
    assert caught.value.kind == "ValidationError"
