"""Reads calls in JSON and Python as models write them, for `printed`. Independent of the gateway's scanner and
policy."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

NAME_KEYS: Final = ("name", "tool", "tool_name", "function", "action")
ARGUMENT_KEYS: Final = (
    "arguments",
    "parameters",
    "args",
    "input",
    "inputs",
    "action_input",
    "tool_arguments",
    "arguments_json",
)

Schemas = Mapping[str, Mapping[str, Any]]
"""Parameters of the tools on offer, by name."""


@dataclass(frozen=True, slots=True)
class PrintedCall:
    """A call that stayed text."""

    name: str
    arguments: Mapping[str, Any]


# --- JSON -------------------------------------------------------------------------------------------------------------


def json_value(text: str, start: int) -> tuple[Any, int]:
    """Returns the object or array at `start`, and its end. Accepts frequent mistakes of models: single quotes, Python's
    constants, extra commas, missing brackets at the end. Raises `ValueError`."""
    if text[start : start + 1] not in ("{", "["):
        raise ValueError("neither an object nor an array")
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, start)
    except ValueError:
        end = balanced(text, start)
        piece = re.sub(r",(\s*[}\]])", r"\1", text[start:end])
        if end == len(text):
            piece += _missing(text[start:])
        try:
            return json.loads(piece, strict=False), end
        except ValueError:
            try:
                (statement,) = _parse(piece.strip())
                return ast.literal_eval(words(statement.value)), end  # type: ignore[attr-defined]  # an `AttributeError` is handled below
            except (SyntaxError, MemoryError, RecursionError, TypeError, AttributeError) as error:
                raise ValueError("not JSON") from error


def _brackets(text: str, start: int) -> Iterator[tuple[int, str]]:
    """Yields the brackets of a text outside of strings, with their positions."""
    quote = ""
    skip = False
    for place in range(start, len(text)):
        char = text[place]
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "()[]{}":
            yield place, char


def balanced(text: str, start: int) -> int:
    """Returns the position after the bracket that closes the one at `start`; the end of the text if there is none."""
    depth = 0
    for place, char in _brackets(text, start):
        depth += 1 if char in "([{" else -1
        if depth == 0:
            return place + 1
    return len(text)


def _missing(text: str) -> str:
    """Returns the closing brackets that are missing at the end of a text."""
    waiting: list[str] = []
    for _, char in _brackets(text, 0):
        if char in "([{":
            waiting.append({"(": ")", "[": "]", "{": "}"}[char])
        elif waiting:
            waiting.pop()
    return "".join(reversed(waiting))


def calls_of(value: Any, schemas: Schemas) -> Iterator[PrintedCall]:
    """Yields the calls that a JSON value represents."""
    if isinstance(value, list):
        made = [[*calls_of(item, schemas)] for item in value]
        if all(made):
            yield from (call for calls in made for call in calls)
        return
    if not isinstance(value, dict):
        return
    if isinstance(value.get("tool_calls"), list):
        yield from calls_of(value["tool_calls"], schemas)
        return
    if isinstance(value.get("function"), dict):
        yield from calls_of(value["function"], schemas)
        return
    for key in NAME_KEYS:
        if isinstance(name := value.get(key), str) and name in schemas:
            arguments = _arguments_of({k: v for k, v in value.items() if k != key}, schemas[name])
            if arguments is not None:
                yield PrintedCall(name, arguments)
            return


def _arguments_of(rest: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the arguments in an object without its name key; None if it has none."""
    argument_key = next((key for key in ARGUMENT_KEYS if key in rest), None)
    if argument_key is None:
        properties = schema.get("properties", {})
        rest = {key: value for key, value in rest.items() if key in properties or key not in ("id", "type", "call_id")}
        flat = all(key in properties for key in rest) and all(key in rest for key in schema.get("required", ()))
        return rest if flat else None
    value = rest[argument_key]
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value, strict=False)
        except ValueError:
            return None
    if value is None or value == "":
        return {}
    return value if isinstance(value, dict) else None


# --- Python -----------------------------------------------------------------------------------------------------------


def _parse(text: str) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # about escapes that Python does not know
        return ast.parse(text).body


def python_calls(text: str, schemas: Schemas) -> list[PrintedCall] | None:
    """Returns the calls of a text that consists of Python calls; None for any other text."""
    try:
        statements = _parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    calls: list[PrintedCall] = []
    for statement in statements:
        if not isinstance(statement, ast.Expr):
            return None
        value = statement.value
        for item in value.elts if isinstance(value, ast.List) else [value]:
            call = _python_call(item, schemas)
            if call is None:
                return None
            calls.append(call)
    return calls or None


def _python_call(node: ast.expr, schemas: Schemas) -> PrintedCall | None:
    if isinstance(node, ast.Await):
        return _python_call(node.value, schemas)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    name = node.func.id
    if name == "print" and "print" not in schemas and len(node.args) == 1 and not node.keywords:
        return _python_call(node.args[0], schemas)
    if name not in schemas:
        return None
    properties = schemas[name].get("properties", {})
    order = list(properties)
    if len(node.args) == 1 and not node.keywords and isinstance(node.args[0], ast.Dict):
        try:
            value = ast.literal_eval(words(node.args[0]))
        except (ValueError, TypeError, MemoryError, RecursionError):
            return None
        if (
            value
            and value.keys() <= properties.keys()
            and "object" not in str(properties[order[0]].get("type", "object"))
        ):
            return PrintedCall(name, value)  # all arguments in one object
    if len(node.args) > len(order):
        return None
    arguments = {**dict(zip(order, node.args, strict=False)), **{k.arg: k.value for k in node.keywords if k.arg}}
    if len(arguments) < len(node.args) + len(node.keywords):
        return None
    try:
        return PrintedCall(name, {key: ast.literal_eval(words(value)) for key, value in arguments.items()})
    except (ValueError, TypeError, MemoryError, RecursionError):
        return None


class _JsonWords(ast.NodeTransformer):
    """Replaces `true`, `false` and `null` by Python's constants."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        words: dict[str, Any] = {"true": True, "false": False, "null": None}
        return ast.Constant(words[node.id]) if node.id in words else node


def words(node: ast.expr) -> ast.expr:
    converted: ast.expr = _JsonWords().visit(node)
    return converted
