"""Documents of applications, and what their schemas say of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from toolwire.app import create_app
from toolwire.openapi.routes import OPENAPI
from toolwire.registry import Registries

PLAIN: Mapping[str, Any] = {"backends": {"m": {"kind": "mock"}}}
FULL: Mapping[str, Any] = {
    **PLAIN,
    "auth": {"keys": [{"key": "k", "requests_per_min": 1000, "tokens_per_min": 1_000_000}]},
    "capture": {"keep": 3},
    "inspect": True,
    "server": {"pass_through": ["/v1/embeddings", "/tokenize"]},
    "cors": {"origins": ["https://page.example"]},
    "store": {"kind": "memory"},
}
"""Everything that has a path."""

EVENTS: Mapping[str, str] = {"chat": "ChatEvent", "responses": "ResponseEvent", "messages": "MessagesEvent"}
WHOLE: Mapping[str, str] = {"chat": "ChatCompletion", "responses": "ResponseResource", "messages": "MessageAnswer"}
ERRORS: Mapping[str, str] = {"chat": "Error", "responses": "Error", "messages": "MessagesError"}
"""The schemas of each protocol's answers."""


def made(config: Mapping[str, Any] = PLAIN, plugins: Registries | None = None) -> dict[str, Any]:
    """The document of a gateway that does not run."""
    app = create_app(config, plugins=plugins)
    return app[OPENAPI].of(app)


@cache
def _schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = made()["components"]["schemas"]
    return schemas


@cache
def validator(name: str) -> Draft202012Validator:
    """What one schema of the document says of a value."""
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": _schemas()}})


def conforms(name: str, value: object) -> None:
    """Assert that a value is what the document says."""
    problems = [f"{error.instance_path}: {error.message}" for error in validator(name).iter_errors(value)]
    assert not problems, problems
