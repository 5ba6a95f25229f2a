"""The JSON Schema of the configuration file, generated from the dataclasses of `toolwire.config`, for editors and the
docs.

It is shipped as `proxy/configuration/config.schema.json`; a test compares the two. It describes the form only:
`toolwire check` also checks names of plug-ins, ranges that depend on other keys, and files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final, cast, get_args, get_origin

from ..config import GatewayConfig
from ..support.conversion import hints_of, is_mapping, is_sequence, join, options_of, to_mapping, without_none
from .checks import BOUNDS
from .settings import SHORTHAND

EXPANSION: Final = {"type": "string", "pattern": r"\$\{"}
"""Schema of a text with `${NAME}`, which may replace any scalar."""


def schema() -> dict[str, Any]:
    """Returns the schema, in Draft 2020-12."""
    sections: dict[str, Any] = {"expansion": EXPANSION}
    root = _section(GatewayConfig, sections, "")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "toolwire configuration",
        **root,
        "$defs": dict(sorted(sections.items())),
    }


def default_of(f: dataclasses.Field[Any]) -> Any:
    """Returns the default of a field as it is written in the file; `MISSING` if the field is required."""
    value = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
    return value if value is dataclasses.MISSING else to_mapping(value)


def fields_of(kind: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """Yields the fields of a section with their resolved types."""
    hints = hints_of(kind)
    for f in dataclasses.fields(kind):
        yield f, hints[f.name]


def _section(kind: type, sections: dict[str, Any], path: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for f, hint in fields_of(kind):
        prop = _of(hint, sections, join(path, f.name))
        prop = {"description": f.metadata.get("doc", ""), **prop}
        default = default_of(f)
        if default is dataclasses.MISSING:
            required.append(f.name)
        elif not dataclasses.is_dataclass(hint):
            prop["default"] = default
        properties[f.name] = prop
    return {
        "description": (kind.__doc__ or "").strip(),
        "type": ["object", "null"] if not required else "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _of(kind: Any, sections: dict[str, Any], path: str) -> dict[str, Any]:
    if kind is Any:
        return {}
    members, optional = without_none(kind)
    if optional or len(members) > 1:
        options = [_of(member, sections, path) for member in members]
        return {"anyOf": [*options, {"type": "null"}] if optional else options}
    kind = members[0]
    words = options_of(kind)
    if words is not None:
        # `true` and `false` in the list are also accepted without quotes.
        plain = [word == "true" for word in words if word in ("true", "false")]
        return {"anyOf": [{"enum": [*words, *plain]}, {"$ref": "#/$defs/expansion"}]}
    if dataclasses.is_dataclass(kind):
        name = kind.__name__  # type: ignore[union-attr]  # is_dataclass() narrows to instances as well
        if name not in sections:
            sections[name] = {}
            sections[name] = _section(cast(type, kind), sections, path)
        reference = {"$ref": f"#/$defs/{name}"}
        shorthand = SHORTHAND.get(cast(type, kind))
        if shorthand is None:
            return reference
        short = _of(hints_of(cast(type, kind))[shorthand], sections, join(path, shorthand))
        return {"anyOf": [short, reference]}
    if is_sequence(kind):
        return _list(kind, sections, path)
    if is_mapping(kind):
        args = get_args(kind)
        below = _of(args[1], sections, join(path, "*")) if args else {}
        return {"type": ["object", "null"], "additionalProperties": below or True}
    if kind is str:
        return {"type": "string"}
    if kind is bool:
        return {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/expansion"}]}
    least, most = BOUNDS.get(path, (0, None))
    number: dict[str, Any] = {"type": "integer" if kind is int else "number", "minimum": least}
    if most is not None:
        number["maximum"] = most
    return {"anyOf": [number, {"$ref": "#/$defs/expansion"}]}


def _list(kind: Any, sections: dict[str, Any], path: str) -> dict[str, Any]:
    args = get_args(kind)
    if get_origin(kind) is tuple and Ellipsis not in args:
        items = [_of(arg, sections, path) for arg in args]
        return {"type": ["array", "null"], "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    return {"type": ["array", "null"], "items": _of(args[0], sections, path)}
