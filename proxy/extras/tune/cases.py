"""The questions of `toolwire tune`, each with the expected answer: the built-in ones (`cases.json`), or a user's file.

Rules:

1. A file is JSON or YAML and fits `cases.schema.json`. Further checks: ids are unique, tools are known and their
   schemas valid, expected arguments are declared, messages are valid in Chat. All mistakes are reported at once, each
   with its path.
2. Cases are ordered so that the first few cover every topic, and an early stop has tested a bit of each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import orjson

from ...errors import ClientFault
from ...formats.engine.longjson import compact
from ...registry import usual_client
from ...schemas.schema import validate_tool_name, validate_tool_schema
from ...support.conversion import ConfigError, suggestion
from ...support.plainyaml import parse_yaml
from .matching import problem

MESSAGE_CHARS: Final = 300
"""Maximum number of characters of a message about a mistake in a file, which may quote a part of it."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """An expected call: of one of these tools, with these arguments (see `matching`). Other arguments may have any
    value."""

    names: tuple[str, ...]
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation and the tools on offer, as in Chat, and the expected answer: these calls in any order, or no call
    if there are none. `says`: the expected text (see `matching`), None for any."""

    id: str
    topic: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    calls: tuple[ExpectedCall, ...]
    says: Any = None

    @property
    def turns(self) -> int:
        """2 if the conversation already contains a tool result, else 1."""
        return 2 if any(message["role"] == "tool" for message in self.messages) else 1

    @property
    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """The tools' parameters by name."""
        return {tool["function"]["name"]: tool["function"]["parameters"] for tool in self.tools}


def own_cases() -> tuple[Case, ...]:
    """Returns the built-in cases."""
    return read_cases(_shipped("cases.json"), "cases.json")


def load_cases(path: Path) -> tuple[Case, ...]:
    """Returns the cases of a file. Raises `ConfigError` with every mistake."""
    try:
        text = path.read_text("utf-8")
        document = orjson.loads(text) if path.suffix == ".json" else parse_yaml(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    return read_cases(document, str(path))


def read_cases(document: Any, source: str) -> tuple[Case, ...]:
    """Returns the cases of a document from `source`, spread by topic (rule 2). Raises `ConfigError` with every
    mistake."""
    checker = jsonschema_rs.Draft202012Validator(_shipped("cases.schema.json"))
    problems = [_described(error) for error in checker.iter_errors(document)]
    if not problems:
        reader = _Reader(document)
        cases = [reader.case(index, item) for index, item in enumerate(document["cases"])]
        problems = reader.problems
        if not problems:
            return spread(cases)
    raise ConfigError(*(f"{source}: {text}" for text in problems))


def spread(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Returns the cases with each topic spread evenly; the order within a topic stays."""
    topics: dict[str, list[Case]] = {}
    for case in cases:
        topics.setdefault(case.topic, []).append(case)
    places = [
        ((index + 0.5) / len(group), number, case)
        for number, group in enumerate(topics.values())
        for index, case in enumerate(group)
    ]
    ordered = [case for _, _, case in sorted(places, key=lambda place: place[:2])]
    firsts = [group[0] for group in topics.values()]
    return (*firsts, *(case for case in ordered if case not in firsts))


@cache
def _shipped(name: str) -> Any:
    return json.loads(resources.files(__package__).joinpath(name).read_text("utf-8"))


def _described(error: jsonschema_rs.ValidationError) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path).lstrip(".")
    either = "oneOf" in str(error.schema_path[-1:])
    message = "give either `ask` or `messages`" if either else error.message
    return f"{path or 'the document'}: {message if len(message) < MESSAGE_CHARS else message[:MESSAGE_CHARS] + '...'}"


class _Reader:
    """Reads the cases of a document that fits the schema; collects mistakes in `problems`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.problems: list[str] = []
        self._ids: dict[str, int] = {}
        self._protocol = usual_client()
        self._shared = {
            name: self._tool({"name": name, **tool}, f"tools.{name}")
            for name, tool in (document.get("tools") or {}).items()
        }

    def case(self, index: int, item: Mapping[str, Any]) -> Case:
        """Returns one case. Adds its mistakes to `problems`."""
        path = f"cases[{index}]"
        if (before := self._ids.setdefault(item["id"], index)) != index:
            self._wrong(path, f"the id {item['id']!r} is taken by cases[{before}]")
        tools = tuple(self._tools(item["tools"], path))
        messages = tuple(map(_message, item.get("messages") or [{"role": "user", "content": item.get("ask")}]))
        case = Case(
            id=item["id"],
            topic=item["topic"],
            messages=messages,
            tools=tools,
            calls=tuple(ExpectedCall(_names(call), call.get("arguments") or {}) for call in item["calls"]),
            says=item.get("says"),
        )
        self._check(case, path)
        return case

    def _wrong(self, path: str, what: str) -> None:
        self.problems.append(f"{path}: {what}")

    def _tools(self, given: Sequence[Any], path: str) -> Iterator[Mapping[str, Any]]:
        for number, tool in enumerate(given):
            if not isinstance(tool, str):
                yield self._tool(tool, f"{path}.tools[{number}]")
            elif tool in self._shared:
                yield self._shared[tool]
            else:
                self._wrong(f"{path}.tools[{number}]", f"no tool {tool!r}{suggestion(tool, self._shared)}")

    def _tool(self, given: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        parameters = given.get("parameters") or {"type": "object", "properties": {}}
        if not validate_tool_name(given["name"]):
            self._wrong(path, f"{given['name']!r} cannot be a tool's name: letters, digits, `_` and `-`, at most 64")
        if (flaw := validate_tool_schema(parameters)) is not None:
            self._wrong(f"{path}.parameters", flaw)
        function = {"name": given["name"], "description": given.get("description", ""), "parameters": parameters}
        return {"type": "function", "function": function}

    def _check(self, case: Case, path: str) -> None:
        schemas = case.schemas
        if len(schemas) < len(case.tools):
            self._wrong(f"{path}.tools", "a tool is there twice")
        for number, call in enumerate(case.calls):
            where = f"{path}.calls[{number}]"
            for name in call.names:
                if name not in schemas:
                    self._wrong(where, f"no tool {name!r} is on offer{suggestion(name, schemas)}")
                    continue
                known = schemas[name].get("properties", {})
                for key, value in call.arguments.items():
                    if known and key not in known and len(call.names) == 1:
                        self._wrong(f"{where}.arguments.{key}", f"{name} has no such argument{suggestion(key, known)}")
                    if (flaw := problem(value)) is not None:
                        self._wrong(f"{where}.arguments.{key}", flaw)
        if case.says is not None and (flaw := problem(case.says)) is not None:
            self._wrong(f"{path}.says", flaw)
        body = {"model": "m", "messages": case.messages, "tools": case.tools}
        try:
            self._protocol.read_request(body, orjson.dumps(body))
        except ClientFault as fault:
            self._wrong(f"{path}.{fault.param or 'messages'}", fault.message)


def _names(call: Mapping[str, Any]) -> tuple[str, ...]:
    name = call["name"]
    return (name,) if isinstance(name, str) else tuple(name)


def _message(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a Chat message. Arguments of earlier calls and results may be JSON values, which become text."""
    message = dict(given)
    calls = message.get("tool_calls")
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": compact(call.get("arguments") or {})},
            }
            for call in calls
        ]
        message.setdefault("content", None)
    elif message["role"] == "tool" and not isinstance(message.get("content"), str | None):
        message["content"] = compact(message["content"])
    return message
