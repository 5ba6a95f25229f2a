"""The shape of a request body, checked by a compiled JSON Schema, with errors in the words of `proxy.errors` (R13.3).

Only the gateway's own schemas (`schemas/*.json`) are compiled here. Schemas that clients send are
`proxy.schemas.schema`'s affair.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import fastjsonschema
import orjson

from ..errors import ClientFault, quote
from .schema_fits import Test, compiled

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

    `code_of` may replace the code of an error by the word that the protocol has for its path; it gets the path and the
    general code. A schema is compiled on first use, once in a process (about 30 ms).
    """

    def __init__(self, name: str, code_of: Callable[[str, str], str]) -> None:
        self._name = name
        self._code_of = code_of

    @property
    def properties(self) -> Collection[str]:
        """The fields that the schema knows."""
        return frozenset(_schema(self._name)["properties"])

    def fits(self, body: Mapping[str, Any]) -> bool:
        """Whether it is certain at once that nothing in `body` has the wrong shape."""
        return _compiled(self._name)[0](body)

    def check(self, body: Mapping[str, Any]) -> None:
        """Raise `ClientFault` for the first thing in `body` that has the wrong shape. The body is not changed."""
        fits, validate = _compiled(self._name)
        if fits(body):
            return
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
        """The error for a field that must be there and is not, or is null."""
        code = self._code_of(param, "missing_required_parameter")
        return ClientFault(f"Missing required parameter: '{param}'.", code=code, param=param)


@cache  # a file of the package
def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = orjson.loads(files(__package__).joinpath("schemas", f"{name}.json").read_bytes())
    return schema


@cache  # what pure functions make of it
def _compiled(name: str) -> tuple[Test, Callable[[Any], Any]]:
    """The quick test, and what has the words for one who fails."""
    return compiled(_schema(name)), fastjsonschema.compile(_schema(name), use_default=False)


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
