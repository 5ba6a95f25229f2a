"""The parts of the document that lie in files: one for each protocol, and the gateway's own.

A part is an OpenAPI document as far as it is that protocol's alone: `tags`, `paths` below the base URL, and
`components.schemas`. What all answers have in common (errors, headers, keys) is added by `toolwire.openapi.document`.
Under `x-toolwire` stands what OpenAPI has no word for:

- `requests`: names, and the files of the schemas by which requests are checked, beside the part. They are in the
  document as they are in use, so it cannot say anything else. `optional` are fields that may be left out here;
  `named`: so the names of what is inside begin, if the file is there under another name as well.
- `error`, `models`, `model`: the names of the schemas of these answers in the protocol's form.
- `include`: other parts whose schemas this one needs.
- `private`: beginnings of paths that are nobody's interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import orjson

OWN: Final = "toolwire.openapi:gateway_api.json"
"""The gateway's own part."""
OWN_WORDS: Final = "x-toolwire"
SCHEMAS: Final = "#/components/schemas/"

_OF_OBJECTS: Final = frozenset(
    {"properties", "required", "additionalProperties", "propertyNames", "maxProperties", "if", "then", "else"}
)
"""Keywords that say something of objects only; the last three do in the schemas of requests."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One part, with what it includes. `paths` by their templates, below the base URL."""

    tag: str
    tags: tuple[Json, ...] = ()
    paths: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    schemas: Mapping[str, Json] = field(default_factory=dict)
    error: str | None = None
    models: str | None = None
    model: str | None = None
    private: tuple[str, ...] = ()


def read_part(place: str, tag: str) -> Part:
    """The part at `package:file`. `tag` is what its operations are filed under, unless it says one itself. Raises
    `OSError` or `ValueError` for a file that is none."""
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
    """The schema of a request, of draft 7, as schemas of OpenAPI 3.1: its definitions are schemas of their own, with
    names that begin with `named`. An object that may be something else is written as one of two schemas, which means
    the same and makes a class in generated clients. All else means the same in both."""
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
    said = {key: value for key, value in written.items() if key in _OF_OBJECTS}
    return {"anyOf": [{"type": "object", **said}, _written(other, refs)]}


def _other(schema: Json) -> Json | None:
    """What else an object may be, as a schema. What is said of objects says nothing of others."""
    types = schema.get("type")
    if not isinstance(types, list) or "object" not in types or "properties" not in schema:
        return None
    others = [kind for kind in types if kind != "object"]
    rest = {key: value for key, value in schema.items() if key not in _OF_OBJECTS and key != "type"}
    return {"type": others[0] if len(others) == 1 else others, **rest}


def _camel(key: str) -> str:
    return "".join(word.capitalize() for word in key.split("_"))


def _beside(place: str, name: str) -> str:
    """The place of a file in the folder of another."""
    folder, slash, _ = place.rpartition("/")
    return f"{folder}/{name}" if slash else f"{place.partition(':')[0]}:{name}"


def _load(place: str) -> Json:
    package, _, path = place.partition(":")
    value = orjson.loads(files(package).joinpath(*path.split("/")).read_bytes())
    if not isinstance(value, dict):
        raise ValueError(f"{place}: not a JSON object")
    return value
