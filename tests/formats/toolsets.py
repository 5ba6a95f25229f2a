"""Tool sets as agents have them: many tools, and schemas with everything that real ones hold. For grammars that have to
be taken as a whole."""

from __future__ import annotations

from typing import Any, Final

from toolwire.model import ToolSpec

Json = dict[str, Any]


def closed(required: str, **properties: Json) -> Json:
    """An object with these properties, and no others. `required`: names with spaces between them."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


TEXT: Final[Json] = {"type": "string"}
LINE: Final[Json] = {"type": "integer", "minimum": 1}
FLAG: Final[Json] = {"type": "boolean", "default": False}

CODING: Final = (
    ToolSpec("read_file", "Read a file.", closed("path", path=TEXT, offset=LINE, limit={**LINE, "maximum": 2000})),
    ToolSpec("write_file", "Write a file.", closed("path content", path={**TEXT, "minLength": 1}, content=TEXT)),
    ToolSpec("edit_file", "Replace texts in a file.", closed(
        "path edits",
        path={**TEXT, "minLength": 1, "maxLength": 4096},
        edits={"type": "array", "minItems": 1, "maxItems": 500, "items": closed("old new", old={**TEXT, "minLength": 1}, new=TEXT, all=FLAG)},
    )),
    ToolSpec("search", "Search files by a regular expression.", closed(
        "pattern",
        pattern={**TEXT, "minLength": 1, "maxLength": 1000},
        glob={**TEXT, "pattern": r"^[^\0]+$"},
        mode={"type": "string", "enum": ["content", "files_with_matches", "count"]},
        context={"type": ["integer", "null"], "minimum": 0, "maximum": 50},
        ignore_case=FLAG,
    )),
    ToolSpec("run_command", "Run a command.", closed(
        "command",
        command={"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 10_000}]},
        timeout_ms={"type": "number", "exclusiveMinimum": 0, "maximum": 600_000},
        env={"type": "object", "additionalProperties": TEXT},
        background=FLAG,
    )),
    ToolSpec("plan", "Note the steps.", closed(
        "steps",
        steps={"type": "array", "maxItems": 100_000, "items": closed(
            "step status", step={**TEXT, "minLength": 3, "maxLength": 200}, status={"enum": ["pending", "in_progress", "done"]}
        )},
        explanation={**TEXT, "maxLength": 65_536},
    )),
    ToolSpec("edit_tree", "Change a syntax tree.", {
        **closed("node", node={"$ref": "#/$defs/node"}),
        "$defs": {"node": closed(
            "kind", kind={"enum": ["call", "name", "number"]}, value={"type": ["string", "number", "boolean", "null"]},
            children={"type": "array", "items": {"$ref": "#/$defs/node"}},
        )},
    }),
    ToolSpec("list_tools", "Without arguments.", {"type": "object", "properties": {}}),
    ToolSpec("note", "Without a schema.", None),
)  # fmt: skip
"""What an agent has that writes programs."""

CODES: Final = [f"{a}{b}" for a in "ABCDEFGHIJKLM" for b in "NOPQRSTUVWXYZ"]
MONEY: Final = closed(
    "amount currency",
    amount={"type": "number", "minimum": 0, "multipleOf": 0.01},
    currency={**TEXT, "enum": ["EUR", "USD", "CHF"]},
)
ADDRESS: Final = closed(
    "street city country",
    street={**TEXT, "minLength": 1, "maxLength": 120},
    city={**TEXT, "minLength": 1, "maxLength": 80},
    zip={**TEXT, "pattern": "^[0-9]{4,6}$"},
    country={"enum": CODES},
    position=closed(
        "lat lon",
        lat={"type": "number", "minimum": -90, "maximum": 90},
        lon={"type": "number", "exclusiveMinimum": -180, "maximum": 180},
    ),
)
OFFICE: Final = (
    ToolSpec("create_event", "Put something into the calendar.", closed(
        "title start attendees",
        title={**TEXT, "minLength": 1, "maxLength": 255},
        start={**TEXT, "format": "date-time", "pattern": "^\\d{4}-\\d{2}-\\d{2}T"},
        minutes={"type": "integer", "minimum": 5, "maximum": 1440, "multipleOf": 5},
        attendees={"type": "array", "minItems": 1, "maxItems": 2500, "uniqueItems": True, "items": {**TEXT, "format": "email", "minLength": 3, "maxLength": 320}},
        recurrence={"oneOf": [{"const": None}, closed("every", every={"enum": ["day", "week", "month"]}, until={**TEXT, "format": "date"})]},
        reminders={"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "integer", "minimum": 0, "maximum": 40_320}},
    )),
    ToolSpec("place_order", "Order something.", closed(
        "customer lines",
        customer=closed("id name", id={"type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991}, name=TEXT, address=ADDRESS, billing=ADDRESS),
        lines={"type": "array", "minItems": 1, "maxItems": 1000, "items": closed(
            "sku quantity", sku={**TEXT, "pattern": "^[A-Z]{2}-[0-9]+$", "minLength": 4, "maxLength": 24}, quantity={"type": "integer", "minimum": 1, "maximum": 9999}, price=MONEY,
            options={"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}, "maxProperties": 50},
        )},
        total=MONEY,
        notes={**TEXT, "maxLength": 5000},
    )),
    ToolSpec("send_mail", "Send a mail.", closed(
        "to subject body",
        to={"allOf": [{"type": "array", "items": TEXT}, {"minItems": 1, "maxItems": 50_000}]},
        subject={**TEXT, "maxLength": 998},
        body={"anyOf": [closed("html", html=TEXT), closed("text", text={**TEXT, "minLength": 20})]},
        priority={"type": "integer", "enum": [1, 2, 3]},
        attachments={"type": "array", "items": closed("name data", name=TEXT, data={**TEXT, "contentEncoding": "base64", "maxLength": 10_000_000})},
    )),
    ToolSpec("find_contacts", "Look for people.", closed(
        "filters",
        filters={"type": "array", "items": {"anyOf": [
            closed("field equals", field={"const": "name"}, equals=TEXT),
            closed("field between", field={"const": "age"}, between={"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 150}, "minItems": 2, "maxItems": 2}),
            closed("not", **{"not": closed("field equals", field=TEXT, equals={})}),
        ]}},
        score={"type": "number", "minimum": 0, "maximum": 1},
        page={"type": "integer", "exclusiveMinimum": 0},
    )),
)  # fmt: skip
"""What an assistant in an office has."""
