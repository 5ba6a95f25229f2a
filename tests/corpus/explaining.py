"""Answers that explain how tools are called, quote their definitions or hold JSON of its own: none is a call, and none
is an attempt (R30.3). All of them are about `TOOLS`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from toolwire.formats.base import ToolFormat
from toolwire.model import ToolSpec, ToolUse


def _tool(name: str, **parameters: str) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in parameters.items()},
        "required": [*parameters][:1],
    }
    return ToolSpec(name, f"The tool {name}.", schema)


TOOLS: Final = (
    _tool("read_file", path="string"),
    _tool("write_file", path="string", content="string"),
    _tool("get_weather", city="string", days="integer"),
    _tool("search", query="string", limit="integer"),
    _tool("run_command", command="string"),
    _tool("list_files", folder="string"),
    _tool("send_email", to="string", subject="string", body="string"),
)


def definition(tool: ToolSpec) -> dict[str, Any]:
    """What a list of tools says of one."""
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


_READ: Final = json.dumps(definition(TOOLS[0]))
_MESSAGE: Final = json.dumps(
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
        ],
    }
)
_ALL: Final = json.dumps([definition(tool) for tool in TOOLS], indent=2)

PLAIN: Final = (
    f"The tool is defined like this:\n{_READ}",
    f"The tool is defined like this:\n```json\n{_READ}\n```\nThe path is required.",
    f"{_READ}\n\nThat is how the server lists it.",
    f"These are the tools that I have:\n```json\n{_ALL}\n```",
    _ALL,
    f"```json\n{_ALL}\n```",
    '{"name": "search", "version": "1.4.0", "description": "Searches.", "main": "index.js", "scripts": {"test": "jest"}}',
    '{"name": "search", "version": "1.4.0", "dependencies": {"lodash": "^4"}, // comment\n "private": true}',
    '{"name": "read_file", "description": "Reads a file from the disk."}',
    '{"name": "read_file", "parameters": ["path"], "returns": "string"}',
    '{"name": "get_weather", "input": "a city", "output": "the weather of some days"}',
    '{"name": "Ada Lovelace", "born": 1815, "search": true}',
    '{"tools": ["read_file", "write_file"], "name": "files"}',
    '[{"name": "read_file", "calls": 12}, {"name": "search", "calls": 3}]',
    '```json\n{"name": "search", "calls": 3, "errors": 0}\n```',
    "Call it like this:\n```python\nread_file(path)\n```",
    "Call it like this:\n```python\nresult = search(query=query, limit=10)\nprint(result)\n```\nand read what it prints.",
    "```python\ndef read_file(path: str) -> str:\n    with open(path) as file:\n        return file.read()\n```",
    "A small implementation:\n```python\ndef search(query, limit=5):\n    return index.find(query)[:limit]\n```\nIt is lazy.",
    "You can use `read_file(path)` for that, or `search(query)`.",
    "read_file takes a path and gives the text of that file.",
    "read_file(path) gives the text of a file, search(query) looks for words.",
    "search: looks for words. read_file: gives the text of a file. Which one do you want?",
    'The arguments are JSON: {"name": "read_file", "arguments": {"path": "..."}} is a call.',
    'A call is JSON such as\n{"name": "read_file", "arguments": {"path": "<path>"}}',
    'A call is JSON such as\n```json\n{"name": "read_file", "arguments": {"path": "..."}}\n```',
    'A call is JSON such as\n```json\n{"name": "<tool>", "arguments": {"<key>": "<value>"}}\n```\nand nothing else.',
    '{"name": "read_file", "arguments": {...}}',
    '{"name": "read_file", "arguments": {"path": string}}\n\nis what the server expects.',
    '{"name": "read_file", "arguments": {"path": <path>}}',
    '```\n{"name": "<tool>", "arguments": {...}}\n```',
    '{"name": "TOOL", "arguments": {"KEY": "VALUE"}}',
    "<read_file> is the name of the tool, and <path> its argument.",
    "Tools: [read_file, write_file, search]. I would begin with the first one.",
    "| Tool | Arguments |\n| --- | --- |\n| read_file | path |\n| search | query, limit |",
    "1. read_file(path)\n2. write_file(path, content)\n3. search(query)\n\nThese are all.",
    '- `name`: `read_file`\n- `arguments`: `{"path": string}`',
    'curl -d \'{"name": "read_file", "arguments": {"path": "a"}}\' http://localhost/call sends a call.',
    # whole messages
    f"The server answers:\n\n{_MESSAGE}",
    f"The server answers:\n\n```json\n{_MESSAGE}\n```",
    f"The server answers:\n\n```json\n[{_MESSAGE}]\n```\n",
    f"The server answers:\n\n```json\n{_MESSAGE[:-1]}\n```",
    f"The server answers:\n\n```python\n{_MESSAGE.replace('null', 'None')}\n```",
    f'The conversation:\n\n{{"role": "user", "content": "Read a."}}\n{_MESSAGE}',
    f'{{"role": "user", "content": "Read a."}}\n{_MESSAGE}',
)
"""Without markers of a family."""


def with_markers(tool_format: ToolFormat) -> Iterator[str]:
    """Answers that explain the calls of a format, with its markers."""

    def call(name: str, **arguments: str) -> str:
        return tool_format.render_call(ToolUse("call_1", name, json.dumps(arguments)))

    template = call("TOOL_NAME", PARAMETER="...")
    yield f"To call a tool I write this:\n\n{template}\n\nwith the name of the tool and its arguments."
    yield f"To call a tool I write this:\n\n{template}"
    yield f"{template}\n\nis the form of a call."
    whole = call("read_file", path="PLACE")
    for stand_in in ("{...}", "<path>", "string"):
        broken = whole.replace('"PLACE"', stand_in).replace("PLACE", stand_in)
        broken = broken.replace(f'\\"{stand_in}\\"', stand_in)
        if broken.count('"') % 2 or broken == whole:
            continue
        if tool_format.render_call(ToolUse("call_1", "read_file", json.dumps({"path": stand_in}))) == broken:
            continue  # the format writes strings as they are, so that this is a call
        yield f"The form is:\n\n{broken}\n\nwhere the path is yours."
