"""The published OpenAPI document as JSON Schema validators, and the folder it is in."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

SHARED = Path(os.environ.get("TOOLWIRE_SHARED", Path(__file__).parents[2].parent / "shared"))


def _nullable(node: Any) -> Any:
    """OpenAPI 3.0's `nullable` in JSON Schema's words; the chunk schema still uses it."""
    if isinstance(node, list):
        return [_nullable(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _nullable(value) for key, value in node.items()}
    if node.pop("nullable", False):
        return {"anyOf": [node, {"type": "null"}]}
    return node


@cache
def validator(name: str, document: str = "openai-openapi-subset") -> Draft202012Validator:
    """The validator of one schema of a document (jsonschema-rs: an event takes it a microsecond, jsonschema two
    milliseconds). Skips the test if the document is not there."""
    return Draft202012Validator(published_schema(name, document))


def published_schema(name: str, document: str = "openai-openapi-subset") -> dict[str, Any]:
    """One schema of a document, with all that it refers to. Skips the test if the document is not there."""
    path = SHARED / f"spec/data/{document}.json"
    if not path.exists():
        pytest.skip(f"the published schemas are not at {path}; set TOOLWIRE_SHARED")
    schemas = _nullable(json.loads(path.read_bytes())["components"]["schemas"])
    return {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}


def captured_chat_requests() -> list[Path]:
    """Every recorded request that went to `/v1/chat/completions`."""
    return _captured("/chat/completions", "messages")


def captured_responses_requests() -> list[Path]:
    """Every recorded request that went to `/v1/responses`."""
    return _captured("/responses", "input")


def _captured(path: str, field: str) -> list[Path]:
    found = []
    for listing in sorted(SHARED.glob("captures/**/http.json")):
        for entry in json.loads(listing.read_bytes()):
            if entry["method"] == "POST" and entry["path"].split("?")[0].endswith(path) and "file" in entry:
                found.append(listing.parent / entry["file"])
    for request in sorted(SHARED.glob("spec/data/client-requests/*.json")):
        value = json.loads(request.read_bytes())
        if field in value.get("body", value):
            found.append(request)
    return found
