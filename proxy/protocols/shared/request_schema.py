"""Validation of request bodies by compiled JSON Schemas, with errors in the words of `toolwire.errors` (R13.3).

Two engines read each schema. `jsonschema-rs` decides whether a body fits. `fastjsonschema` finds the first mistake in a
body that does not fit, and takes a hundred times as long. Law: both agree for every JSON value
(`tests/protocols/test_request_schema.py`; docs/adr/0063).

Only the gateway's own schemas (`schemas/*.json`) are compiled here; `toolwire.schemas.schema` compiles those that
clients send.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final

import fastjsonschema
import jsonschema_rs
import orjson

from ...errors import ClientFault, quote
from ...fastparse import with_own_texts
from ...known.past import Past, fold_items, past_of

LARGE_BYTES: Final = 64 * 1024
"""Longer bodies are checked in pieces, so that other threads can run in between: the engine holds the interpreter lock,
up to 60 ms for a body of 100,000 values."""
PIECE_ITEMS: Final = 5_000
"""Items of a list in one piece; more than any `maxItems` of a field."""

_ARTICLES = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


class RequestSchema:
    """Checks bodies against `schemas/<name>.json`.

    `code_of` takes a path and the general error code and returns the protocol's code for that path. A schema is
    compiled on first use, once in a process (about 30 ms).
    """

    def __init__(self, name: str, code_of: Callable[[str, str], str]) -> None:
        self._name = name
        self._code_of = code_of

    @property
    def properties(self) -> Collection[str]:
        """The fields in the schema."""
        return frozenset(_schema(self._name)["properties"])

    def check(self, body: Mapping[str, Any], size: int = 0, field: str | None = None) -> None:
        """Raises `ClientFault` for the first mistake in `body`. Does not change the body. `size` is the approximate
        number of bytes of its JSON. `field` is the name of the field with the conversation, whose known items were
        checked before and are skipped."""
        is_valid, validate = _compiled(self._name)
        past = None if field is None else past_of(body.get(field))
        try:
            if past is not None and field is not None:
                if _fits(self._name, body, field, past):
                    return
                body = {**body, field: list(body[field])}
            if is_valid(body) if size <= LARGE_BYTES else all(map(is_valid, _pieces(body))):
                return
        except ValueError:
            pass  # not plain JSON values, such as subclasses, which fastjsonschema accepts
        try:
            validate(body if isinstance(body, dict) else dict(body))
        except fastjsonschema.JsonSchemaValueException as error:
            raise self._fault(error) from None

    def _fault(self, error: fastjsonschema.JsonSchemaValueException) -> ClientFault:
        param = (error.name or "").removeprefix("data").removeprefix(".")
        value, rule, wanted = error.value, error.rule or "", error.rule_definition
        if rule == "required":
            missing = next(key for key in wanted if key not in value)
            return self.missing(f"{param}.{missing}" if param else missing)
        if rule == "type" and value is None:
            return self.missing(param)
        code = "invalid_type" if rule == "type" else "invalid_value"
        message = f"Invalid '{param}': expected {_expectation(rule, wanted)}, got {quote(value)}."
        return ClientFault(message, code=self._code_of(param, code), param=param)

    def missing(self, param: str) -> ClientFault:
        """Returns the error for a required field that is absent or null."""
        code = self._code_of(param, "missing_required_parameter")
        return ClientFault(f"Missing required parameter: '{param}'.", code=code, param=param)


@cache  # a file of the package
def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = orjson.loads(files("toolwire.protocols").joinpath("schemas", f"{name}.json").read_bytes())
    return schema


@cache  # made by pure functions
def _compiled(name: str) -> tuple[Callable[[Any], bool], Callable[[Any], Any]]:
    """Returns the function that checks whether a body fits, and the function that raises if it does not."""
    schema = _schema(name)
    return jsonschema_rs.Draft7Validator(schema).is_valid, fastjsonschema.compile(schema, use_default=False)


class _Misfit(Exception):
    """An item is not valid by the schema."""


def _fits(name: str, body: Mapping[str, Any], field: str, past: Past) -> bool:
    """Returns True if `body` is valid by its schema. Checks only the new items in `field`."""
    is_valid, _ = _compiled(name)
    items = body[field]
    own = with_own_texts({**body, field: []})

    def step(carried: int, items: Sequence[Any], start: int, made: list[None]) -> int:
        if not is_valid({**own, field: with_own_texts(list(items))}):
            raise _Misfit
        return carried

    try:
        fold_items(past, ("fits", name), items, 0, step)
    except _Misfit:
        return False
    return is_valid({**own, field: with_own_texts(items[-1:])})


def _pieces(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields bodies with pieces of the long lists of `body`; all of them fit if and only if `body` fits."""
    long = [name for name, value in body.items() if isinstance(value, list) and len(value) > PIECE_ITEMS]
    first = {**body, **{name: body[name][:PIECE_ITEMS] for name in long}}
    yield first
    for name in long:
        for start in range(PIECE_ITEMS, len(body[name]), PIECE_ITEMS):
            yield {**first, name: body[name][start : start + PIECE_ITEMS]}


def _expectation(rule: str, wanted: Any) -> str:
    match rule:
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            return _any_of([_ARTICLES[kind] for kind in kinds])
        case "enum":
            return "one of " + ", ".join(quote(value) for value in wanted if value is not None)
        case "minimum":
            return f"at least {wanted}"
        case "maximum":
            return f"at most {wanted}"
        case "minItems":
            return f"at least {wanted} item{'s'[: wanted != 1]}"
        case "maxItems":
            return f"at most {wanted} items"
        case "minLength":
            return "a string that is not empty"
        case "maxLength":
            return f"at most {wanted} characters"
        case "maxProperties":
            return f"at most {wanted} entries"
        case _:
            return f"a value that satisfies `{rule}`"


def _any_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
