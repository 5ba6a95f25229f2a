"""A parameter that is called like a key of calls is an ordinary parameter in every format (R30.5): what the format's
own writer writes is read back, whatever the schema says, at every split and by both scanners."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from types import ModuleType
from typing import Any

from tests.cases import every
from tests.parse.conftest import some
from tests.parse.reading import Calls, calls_and_text, scanned
from toolwire.formats.base import ToolFormat
from toolwire.formats.engine.keys import ARGUMENTS, METADATA, NAMES, WRAPPERS
from toolwire.model import ToolSpec, ToolUse
from toolwire.registry import registries

KEYS = tuple(
    dict.fromkeys((*ARGUMENTS, *NAMES, *WRAPPERS, *sorted(METADATA), "value", "key", "tool_calls", "parameter"))
)
FORMATS = tuple(name for name in registries().formats.names() if name != "auto")
PLAIN: Any = {"a": 1, "b": {"c": "x"}}
VALUES: tuple[Any, ...] = (PLAIN, '{"a": 1}', {"name": "run", "arguments": {"a": 1}})


def schemas(key: str, value: Any) -> Iterator[Mapping[str, Any]]:
    """A schema that says all, one that knows one of two members, and one that wants more."""
    kind = {"type": "object" if isinstance(value, dict) else "string"}
    yield {"type": "object", "properties": {key: kind, "cwd": {"type": "string"}}, "required": [key, "cwd"]}
    yield {"type": "object", "properties": {key: kind}, "required": [key]}
    yield {
        "type": "object",
        "properties": {key: kind, "cwd": {"type": "string"}, "more": {}},
        "required": [key, "more"],
    }


def written(chosen: ToolFormat, arguments: Mapping[str, Any], name: str = "run") -> str:
    use = ToolUse("call_1", name, json.dumps(arguments))
    return (chosen.render_calls or (lambda uses: "".join(map(chosen.render_call, uses))))([use])


def read(twin: ModuleType, name: str, tool: ToolSpec, pieces: Sequence[str], **options: Any) -> Calls:
    return calls_and_text(scanned(twin, name, [tool], pieces, recognise="taught", coerce="off", **options))[0]


def test_it_is_read_back(twin: ModuleType) -> None:
    for (m, name), (n, key) in product(some(twin, enumerate(FORMATS)), enumerate(KEYS)):
        chosen = registries().formats.get(name)
        value = VALUES[(n + m) % 3]
        schema = list(schemas(key, value))[(n // 3 + m) % 3]  # each format with each schema of each value
        arguments = {key: value, "cwd": "/"} if n % 2 else {"cwd": "/", key: value}
        text = written(chosen, arguments)
        assert read(twin, name, ToolSpec("run", parameters=schema), [text]) == [("run", arguments)], (schema, text)


def test_it_is_read_back_at_every_split(twin: ModuleType) -> None:
    keys = ("arguments", "name", "parameters", "input", "type")
    for (n, name), key in product(some(twin, enumerate(FORMATS)), keys):
        chosen = registries().formats.get(name)
        arguments = {key: PLAIN, "cwd": "/"}
        text = written(chosen, arguments)
        tool = ToolSpec("run", parameters=list(schemas(key, PLAIN))[1])
        for streaming in ("buffered", 0):
            # Of the others one of each character says enough.
            splits = range(1 + n % 3, len(text), 3) if (key, streaming) == ("arguments", 0) else ()
            for pieces in (list(text), *([text[:at], text[at:]] for at in splits)):
                found = read(twin, name, tool, pieces, argument_streaming=streaming)
                assert found == [("run", arguments)], (streaming, pieces)


SYNONYMS = [
    ("arguments", {"name": "run", "args": {"arguments": PLAIN, "cwd": "/"}}),
    ("input", {"tool": "run", "input": {"input": PLAIN, "cwd": "/"}}),
    ("action", {"action": "run", "action_input": {"action": PLAIN, "cwd": "/"}}),
    ("args", {"function": {"name": "run", "args": {"args": PLAIN, "cwd": "/"}}}),
    ("args", {"name": "run", "arguments": json.dumps({"args": PLAIN, "cwd": "/"})}),
]


@every(("key", "block"), SYNONYMS)
@every("name", ["hermes", "sentinel"])
def test_under_other_keys_than_the_taught_one(twin: ModuleType, name: str, key: str, block: dict[str, Any]) -> None:
    text = f"<tool_call>{json.dumps(block)}</tool_call>"
    for schema in schemas(key, PLAIN):
        found = read(twin, name, ToolSpec("run", parameters=schema), [text])
        assert found == [("run", {key: PLAIN, "cwd": "/"})], schema
