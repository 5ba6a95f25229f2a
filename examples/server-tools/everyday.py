"""Three tools for toolwire's gateway, with the standard library only: a calculator, local time, unit conversion.

Put this file into the folder that `tools.folder` names. See docs/how-to/server-side-tools.md.
"""

import ast
import operator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "calculate",
            "description": "Work out an arithmetic expression, such as (2 + 3) * 4 / 7. Knows + - * / // % ** and parentheses.",
            "parameters": {
                "type": "object",
                "properties": {
                    "expression": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 200,
                        "pattern": r"^[0-9.+\-*/%() ]+$",
                    }
                },
                "required": ["expression"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "local_time",
            "description": "Date and time in a time zone such as Europe/Paris, now or at a given moment.",
            "parameters": {
                "type": "object",
                "properties": {
                    "zone": {"type": "string", "default": "UTC"},
                    "at": {"type": "string", "description": "ISO 8601, such as 2026-01-31T12:00:00Z; default: now"},
                },
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "convert",
            "description": "Convert a length, a mass or a temperature from one unit to another.",
            "parameters": {
                "type": "object",
                "properties": {
                    "value": {"type": "number"},
                    "unit": {"type": "string", "enum": ["m", "km", "mi", "ft", "kg", "g", "lb", "c", "f", "k"]},
                    "to": {"type": "string", "enum": ["m", "km", "mi", "ft", "kg", "g", "lb", "c", "f", "k"]},
                },
                "required": ["value", "unit", "to"],
            },
        },
    },
]


def handle_tool_call(tool_name: str, tool_input: dict) -> str:
    """Runs a call. The gateway calls it with arguments that fit the schema; the model gets the result, or the text of
    an exception."""
    if tool_name == "calculate":
        return calculate(tool_input["expression"])
    if tool_name == "local_time":
        return local_time(tool_input["zone"], tool_input.get("at"))
    return convert(tool_input["value"], tool_input["unit"], tool_input["to"])


# --- calculate ------------------------------------------------------------------------------------------------------

MOST_BITS = 4096
"""The limit for intermediate results: a power tower would use all memory."""

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def calculate(expression: str) -> str:
    """Returns the value of an expression. Python's parser reads it; only numbers and the operators above are evaluated.
    Raises `ValueError` for anything else."""
    try:
        value = value_of(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, RecursionError):
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def value_of(node: ast.expr) -> int | float:
    """Returns the value of a part of the expression. Raises `ValueError` for other syntax."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return bounded(OPERATORS[type(op)](value_of(operand)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            a, b = value_of(left), value_of(right)
            if isinstance(op, ast.Pow) and (
                abs(b) > MOST_BITS or (isinstance(a, int) and a.bit_length() * abs(b) > MOST_BITS)
            ):
                raise ValueError("the number is too large")
            return bounded(OPERATORS[type(op)](a, b))
    raise ValueError("only numbers, + - * / // % ** and parentheses are known")


def bounded(value: int | float | complex) -> int | float:
    """Returns the number. Raises `ValueError` if it is complex or too large."""
    if isinstance(value, complex):
        raise ValueError("the result is not a real number")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ValueError("the number is too large")
    return value


# --- local_time -----------------------------------------------------------------------------------------------------


def local_time(zone: str, at: str | None) -> str:
    """Returns the time as text, such as `2026-01-31 13:00:00 CET (UTC+0100), Saturday`. Raises `ValueError` for an
    unknown zone."""
    try:
        there = UTC if zone.upper() == "UTC" else ZoneInfo(zone)
    except (KeyError, OSError, ValueError):
        raise ValueError(f"there is no time zone {zone!r}; names are such as Europe/Paris") from None
    moment = datetime.now(UTC) if at is None else datetime.fromisoformat(at)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(there).strftime("%Y-%m-%d %H:%M:%S %Z (UTC%z), %A")


# --- convert --------------------------------------------------------------------------------------------------------

UNITS = {
    "m": ("length", 1.0), "km": ("length", 1000.0), "mi": ("length", 1609.344), "ft": ("length", 0.3048),
    "kg": ("mass", 1.0), "g": ("mass", 0.001), "lb": ("mass", 0.45359237),
    "c": ("temperature", 1.0), "f": ("temperature", 5 / 9), "k": ("temperature", 1.0),
}  # fmt: skip
"""The quantity that a unit measures, and its size in the base unit."""
ZEROS = {"c": 273.15, "f": 459.67 * 5 / 9}
"""The zero of a temperature scale in kelvin."""


def convert(value: float, unit: str, to: str) -> str:
    """Returns the converted value as text, such as `1.609344 km`. Raises `ValueError` for units of different
    quantities."""
    (kind, factor), (wanted, divisor) = UNITS[unit], UNITS[to]
    if kind != wanted:
        raise ValueError(f"{unit} is a unit of {kind}, {to} of {wanted}")
    result = (value * factor + ZEROS.get(unit, 0.0) - ZEROS.get(to, 0.0)) / divisor
    return f"{result:.10g} {to}"
