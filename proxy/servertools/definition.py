"""Checks of what a tool module declares (R15.3). Pure: runs no module and reads no file."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from ..errors import quote
from ..model import ToolSpec
from ..schemas._schema_walk import Graph, SchemaProblem, private_copy
from ..schemas.schema import ToolSchema, compile_schema
from .shape import Shape, fill, known_members, shaped
from .source import Result

MAX_TOOLS: Final = 10
MAX_NAME_CHARS: Final = 50
MAX_DESCRIPTION_CHARS: Final = 200
MAX_PROPERTIES: Final = 10
MAX_ENUM_VALUES: Final = 10

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
_MOST_SCHEMAS: Final = 1000
_MOST_VALUES: Final = 20_000
_MOST_LEVELS: Final = 250
"""Deeper values are refused by the JSON encoder itself."""

TIMED_OUT: Final = "Error: Tool execution timed out"

Handler = Callable[[str, dict[str, Any], float, float], Awaitable[Result]]
"""Runs a call. Arguments: the tool's name, the values, the time limit of the handler in seconds, and the seconds left
for the whole call. Never raises; a cancellation aborts the call."""

ErrorKind = Literal["TypeError", "ValueError", "DuplicateName", "InvalidName", "ValidationError", "MissingMethod"]


class ToolModuleError(Exception):
    """A module that cannot be used. `kind` is an `ErrorKind`, or the name of the exception class that the module
    raised."""

    def __init__(self, kind: ErrorKind | str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class NotRun(ToolModuleError):
    """A module that was not run because the system had no free process. Loading it is retried."""


@dataclass(frozen=True, slots=True)
class ModuleContents:
    """The contents of a module: its `TOOLS`, not yet checked, and the handler that runs calls of them."""

    tools: Any
    handler: Handler | None


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool that the gateway runs. `spec` is the definition sent to models, `module` the name of its file."""

    spec: ToolSpec
    parameters: Parameters
    handler: Handler
    module: str

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.spec.name


def read_tools(declared: Any, handler: Handler | None, module: str) -> tuple[ServerTool, ...]:
    """Returns the tools in `TOOLS` (or in the result of `get_tools()`). Raises `ToolModuleError` for the first
    mistake."""
    if declared is None:
        return ()
    if not isinstance(declared, list):
        raise ToolModuleError("TypeError", f"TOOLS must be a list or None, not {type(declared).__name__}.")
    if len(declared) > MAX_TOOLS:
        raise ToolModuleError("ValueError", f"TOOLS has {len(declared)} tools; the most is {MAX_TOOLS}.")
    if not declared:
        return ()
    found: dict[str, tuple[ToolSpec, Parameters]] = {}
    for index, item in enumerate(declared):
        spec, parameters = _read_tool(item, f"TOOLS[{index}]")
        if spec.name in found:
            raise ToolModuleError("DuplicateName", f"TOOLS[{index}]: there is another tool named {quote(spec.name)}.")
        found[spec.name] = spec, parameters
    if handler is None:
        raise ToolModuleError(
            "MissingMethod",
            "There is no handle_tool_call(tool_name, tool_input), neither in the module nor in a class PromptGenerator.",
        )
    return tuple(ServerTool(spec, parameters, handler, module) for spec, parameters in found.values())


def _read_tool(item: Any, where: str) -> tuple[ToolSpec, Parameters]:
    if not isinstance(item, dict):
        raise ToolModuleError("ValueError", f"{where} must be a dict, not {type(item).__name__}.")
    if item.get("type") != "function":
        raise ToolModuleError("ValueError", f'{where}["type"] must be "function", not {quote(item.get("type"))}.')
    function = item.get("function")
    if not isinstance(function, dict):
        raise ToolModuleError("ValueError", f'{where}["function"] must be a dict, not {type(function).__name__}.')
    name = _read_name(function.get("name"), where)
    where = f"{where} ({name})"
    description = _read_description(function.get("description"), where)
    schema, parameters = _read_parameters(function.get("parameters"), where)
    return ToolSpec(name, description, schema, server=True), parameters


def _read_name(name: Any, where: str) -> str:
    if not isinstance(name, str) or len(name) > MAX_NAME_CHARS or _NAME.fullmatch(name) is None:
        raise ToolModuleError(
            "InvalidName",
            f"{where}: the name must be a letter followed by letters, digits and underscores, at most {MAX_NAME_CHARS}"
            f" characters, not {quote(name)}.",
        )
    return name


def _read_description(description: Any, where: str) -> str:
    if not isinstance(description, str) or not description.strip():
        raise ToolModuleError("ValueError", f"{where}: the description must be a text that is not empty.")
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise ToolModuleError(
            "ValueError",
            f"{where}: the description has {len(description)} characters; the most is {MAX_DESCRIPTION_CHARS}.",
        )
    return description


def _read_parameters(given: Any, where: str) -> tuple[Mapping[str, Any], Parameters]:
    """Returns a private copy of the schema, and the checker of arguments. Raises `ToolModuleError`
    (`ValidationError`)."""
    if given is None:
        given = _NO_PARAMETERS
    try:
        if not isinstance(given, dict):
            raise ValueError(f"they must be a JSON Schema (a dict), not {type(given).__name__}.")
        _check_written_size(given)
        _, schema = private_copy(given)
        if schema.get("type") != "object":
            raise ValueError(f'their root must have the type "object", not {quote(schema.get("type"))}.')
        parameters = Parameters(schema)
        _check_size(private_copy(schema)[1])
    except SchemaProblem as problem:
        place = f"at `{problem.where.removeprefix('.')}`: " if problem.path else ""
        raise ToolModuleError("ValidationError", f"{where}, parameters: {place}{problem.message}") from None
    except (ValueError, RecursionError) as error:
        raise ToolModuleError("ValidationError", f"{where}, parameters: {error}") from None
    return schema, parameters


def _check_written_size(given: Any) -> None:
    """Raises `ValueError` if a schema would be too large as JSON. Checked before encoding, because JSON repeats a dict
    each time it is used: thirty dicts, each used twice in the next, give a billion copies."""
    count, level = 0, [given]
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        for part in level:
            count += len(part)
            if count > _MOST_VALUES:
                raise ValueError(f"they have more than {_MOST_VALUES} values, each counted wherever it is used.")
            items = part.values() if isinstance(part, dict) else part
            inner += [item for item in items if isinstance(item, dict | list | tuple)]
        level = inner


def _check_size(schema: dict[str, Any]) -> None:
    """Raises `SchemaProblem` for references, and for too many properties or enumerated values at any level."""
    for node in Graph(schema, most=_MOST_SCHEMAS).nodes:
        part = node.schema
        for keyword in _REFERENCES:
            if keyword in part:
                raise SchemaProblem(f"`{keyword}` is not allowed: write the schema out.", node.path)
        if (count := len(part.get("properties") or ())) > MAX_PROPERTIES:
            raise SchemaProblem(f"there are {count} properties; the most is {MAX_PROPERTIES}.", node.path)
        if (count := len(part.get("enum") or ())) > MAX_ENUM_VALUES:
            raise SchemaProblem(f"`enum` has {count} values; the most is {MAX_ENUM_VALUES}.", node.path)


# --- parameters of a call ---------------------------------------------------------------------------------------------


MAX_ARGUMENTS_BYTES: Final = 2048

_JSON_TYPES: Final[Mapping[type, str]] = {
    list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null",
}  # fmt: skip


class BadArguments(ValueError):
    """Invalid arguments of a call. The message is for the model."""


class Parameters:
    """The parameters of one tool.

    `schema` is a JSON Schema whose root has the type `object`, private to this object. Raises `SchemaProblem` if it
    cannot be compiled, and `ValueError` if a `default` does not fit its parameter.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._checker: ToolSchema = compile_schema(schema)
        self._required: tuple[str, ...] = tuple(schema.get("required") or ())
        self._shape = (Shape(schema, schema.get("$schema")),)
        # The handler of a tool that lists no parameters gets no arguments.
        self._takes_some = known_members(self._shape) != frozenset()

    def values(self, arguments: str) -> dict[str, Any]:
        """Returns the validated values, which the handler may change (see `shape`). Empty text means no arguments
        (R9.5). Raises `BadArguments`."""
        values = read_arguments(arguments)
        arguments = arguments if arguments.strip() else "{}"
        for name in self._required:
            if name not in values:
                raise BadArguments(f"Invalid parameters - Missing required parameter: {name}")
        filled = fill(self._shape, values)
        flaw = self._checker.check(orjson.dumps(values).decode() if filled else arguments)
        if flaw is not None:
            raise BadArguments(f"Invalid parameters - {flaw}")
        if not self._takes_some:
            return {}
        # After the check, because only valid values are known not to be too deep.
        written = json.loads(arguments, parse_float=str)
        typed: dict[str, Any] = shaped(self._shape, values, written)
        return typed


def read_arguments(arguments: str, most: int = MAX_ARGUMENTS_BYTES) -> dict[str, Any]:
    """Returns the object that a model wrote, of at most `most` bytes. Empty text means no arguments (R9.5). Raises
    `BadArguments`."""
    size = len(arguments.encode("utf-8", "surrogatepass"))
    if size > most:
        raise BadArguments(f"Invalid JSON arguments - {size} bytes, the most is {most}")
    if not arguments.strip():
        return {}
    try:
        values = orjson.loads(arguments)
    except orjson.JSONDecodeError as error:
        raise BadArguments(f"Invalid JSON arguments - {error}") from None
    if not isinstance(values, dict):
        raise BadArguments(f"Invalid JSON arguments - expected an object, not {_JSON_TYPES[type(values)]}")
    return values
