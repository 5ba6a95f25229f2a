"""The parts of the OpenAPI document that lie in files: one for each protocol, and the gateway's own.

A part is an OpenAPI document with only that protocol's content: `tags`, `paths` below the base URL, and
`components.schemas`. `toolwire.openapi.document` adds what all answers share (errors, headers, keys). The key
`x-toolwire` holds what OpenAPI has no keyword for:

- `requests`: names and files of the schemas that check requests; the files lie beside the part. The document contains
  the schemas in use, so it cannot differ from the checks. `optional` lists fields that may be left out here; `named` is
  the prefix of the names of inner schemas, if the same file is used under another name as well.
- `error`, `models`, `model`: the names of the schemas of these answers in the protocol's form.
- `include`: other parts whose schemas this one needs.
- `private`: beginnings of paths that are not documented.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import orjson

OWN: Final = "toolwire.openapi:gateway_api.json"
"""Place of the gateway's own part."""
OWN_WORDS: Final = "x-toolwire"
SCHEMAS: Final = "#/components/schemas/"

_OF_OBJECTS: Final = frozenset(
    {"properties", "required", "additionalProperties", "propertyNames", "maxProperties", "if", "then", "else"}
)
"""Keywords that apply to objects only; the last three do in the schemas of requests."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One part together with the parts that it includes. `paths` are keyed by their templates, below the base URL."""

    tag: str
    tags: tuple[Json, ...] = ()
    paths: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    schemas: Mapping[str, Json] = field(default_factory=dict)
    error: str | None = None
    models: str | None = None
    model: str | None = None
    private: tuple[str, ...] = ()


def read_part(place: str, tag: str) -> Part:
    """Returns the part at `package:file`. `tag` is the tag of its operations, unless the part has its own. Raises
    `OSError` or `ValueError` for a missing or invalid file."""
    whole = _load(place)
    own = whole.get(OWN_WORDS, {})
    schemas: Json = {}
    for included in own.get("include", ()):
        schemas |= read_part(_beside(place, included), tag).schemas
    schemas |= whole.get("components", {}).get("schemas", {})
    for name, request in own.get("requests", {}).items():
        schema = _load(_beside(place, request["file"]))
        schemas |= request_schemas(name, schema, request.get("optional", ()), request.get("named", name))
    tags = tuple(whole.get("tags", ()))
    return Part(
        tag=tags[0]["name"] if tags else tag,
        tags=tags,
        paths=whole.get("paths", {}),
        schemas=schemas,
        error=own.get("error"),
        models=own.get("models"),
        model=own.get("model"),
        private=tuple(own.get("private", ())),
    )


def request_schemas(name: str, schema: Json, optional: Iterable[str], named: str) -> dict[str, Json]:
    """Returns a request schema of draft 7 as named schemas of OpenAPI 3.1. Its definitions become schemas whose names
    begin with `named`. A schema for an object or something else becomes two schemas with `anyOf`, which means the same
    and makes a class in generated clients. Everything else is copied."""
    definitions = schema.get("definitions", {})
    refs: dict[str, Json] = {}
    for key, definition in definitions.items():
        ref = {"$ref": f"{SCHEMAS}{named}{_camel(key)}"}
        other = _other(definition)
        refs[f"#/definitions/{key}"] = ref if other is None else {"anyOf": [ref, other]}
    left = {key: value for key, value in schema.items() if key not in ("$schema", "title", "definitions")}
    if "required" in left:
        left["required"] = [field for field in left["required"] if field not in optional]
    written: dict[str, Json] = {name: _written(left, refs)}
    for key, definition in definitions.items():
        whole = _written(definition, refs)
        written[f"{named}{_camel(key)}"] = whole if _other(definition) is None else whole["anyOf"][0]
    return written


def _written(node: Any, refs: Mapping[str, Json]) -> Any:
    if isinstance(node, list):
        return [_written(value, refs) for value in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return refs[node["$ref"]]
    written = {key: _written(value, refs) for key, value in node.items()}
    other = _other(node)
    if other is None:
        return written
    of_objects = {key: value for key, value in written.items() if key in _OF_OBJECTS}
    return {"anyOf": [{"type": "object", **of_objects}, _written(other, refs)]}


def _other(schema: Json) -> Json | None:
    """Returns the schema of the alternatives to an object, without the keywords for objects; None if there are no
    alternatives."""
    types = schema.get("type")
    if not isinstance(types, list) or "object" not in types or "properties" not in schema:
        return None
    others = [kind for kind in types if kind != "object"]
    rest = {key: value for key, value in schema.items() if key not in _OF_OBJECTS and key != "type"}
    return {"type": others[0] if len(others) == 1 else others, **rest}


def _camel(key: str) -> str:
    return "".join(word.capitalize() for word in key.split("_"))


def _beside(place: str, name: str) -> str:
    """Returns the place of the file `name` in the folder of `place`."""
    folder, slash, _ = place.rpartition("/")
    return f"{folder}/{name}" if slash else f"{place.partition(':')[0]}:{name}"


def _load(place: str) -> Json:
    package, _, path = place.partition(":")
    value = orjson.loads(files(package).joinpath(*path.split("/")).read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{place}: not a JSON object")
    return value
