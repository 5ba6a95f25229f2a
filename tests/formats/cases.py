"""Things that the format tests share: the formats, a scanner for each, and tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from tests.cases import every
from tests.options import route_options
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import LimitsConfig
from toolwire.events import Finish, Start
from toolwire.fastparse import CallScanner
from toolwire.folding import fold
from toolwire.formats.base import ToolFormat, builtin_formats, escaping_for, escaping_in_calls
from toolwire.formats.engine.escaping import Escaping
from toolwire.formats.engine.layout import Tagged
from toolwire.formats.engine.values import Number, Syntax, read_object
from toolwire.model import Part, ToolChoice, ToolResult, ToolSpec, ToolUse
from toolwire.registry import registries

T = TypeVar("T")


def inside(tool_format: ToolFormat, written: str, result: ToolResult) -> str:
    """The text of the only result in `written`, as it stands there."""
    form = tool_format.results
    before = form.first + form.before(result, escaping_for(tool_format), apart=True)
    behind = form.closer + form.last
    assert written.startswith(before)
    assert written.endswith(behind)
    return written[len(before) : len(written) - len(behind)]


NAMES: Final = tuple({path: name for name, path in reversed(builtin_formats().items())}.values())[::-1]
"""Every format, under its first name."""

FORMATS: Final[tuple[ToolFormat, ...]] = tuple(map(registries().formats.get, NAMES))
every_format: Final = every("tool_format", FORMATS)

_STOPS: Final = {"cwm": ("</tool>",), "gemma4": ('<|"|>',), "functiongemma": ("<escape>",)}


def _stops(made: ToolFormat) -> tuple[str, ...]:
    """The texts that end a string in a format's arguments."""
    arguments = None if made.layout is None else made.layout.arguments
    stops = arguments.stops if isinstance(arguments, Tagged) else _STOPS.get(made.name, ())
    return tuple(stop.strip() for stop in stops)


def _show_name(self: ToolFormat, printer: Any, cycle: bool) -> None:
    printer.text(self.name)


ToolFormat._repr_pretty_ = _show_name  # type: ignore[attr-defined]
"""hypothesis writes the arguments of each `@example` down: a whole format takes longer than what is tested."""

STOPS: Final[dict[str, tuple[str, ...]]] = {
    made.name: _stops(made) for made in FORMATS if made.layout and made.layout.arguments not in ("object", "string")
}
"""The formats that do not write arguments as JSON, and what ends a string in them."""

_JSON: Final = [made for made in FORMATS if made.name not in STOPS]


def share(tool_format: ToolFormat, cases: Sequence[T], step: int) -> Sequence[T]:
    """All cases for a format that writes arguments in its own way. Of the others, which are many and write the same
    JSON, each takes one case in `step`, in turn."""
    return cases if tool_format.name in STOPS else cases[_JSON.index(tool_format) % step :: step]


WEATHER = ToolSpec(
    "get_weather",
    "Get the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
SEARCH = ToolSpec("search", None, None)


def scan(tool_format: ToolFormat, tools: Sequence[ToolSpec], pieces: Iterable[str]) -> tuple[Part, ...]:
    """The parts that an answer made of these pieces is read as."""
    policy = CallPolicy(
        tools,
        choice=ToolChoice(),
        parallel=True,
        options=route_options(repair="off", unclosed="text", recognise="taught"),
        limits=LimitsConfig(),
        count=lambda name: None,
    )
    scanner = CallScanner(tool_format.grammar, policy, reasoning=tool_format.grammar.reasoning)
    events = [Start("r", "m", 0)]
    for piece in pieces:
        events += scanner.feed(piece)
    return fold([*events, *scanner.finish(), Finish()]).choices[0].parts


def bare(parts: Iterable[Part]) -> list[Part | tuple[str, str]]:
    """Calls as name and arguments, without their fresh ids."""
    return [(part.name, part.arguments) if isinstance(part, ToolUse) else part for part in parts]


def valued(parts: Iterable[Part]) -> list[Part | tuple[str, Any]]:
    """Calls as name and the value of their arguments, numbers as text."""
    return [(part.name, apart(read_object(part.arguments))) if isinstance(part, ToolUse) else part for part in parts]


def apart(value: Any) -> Any:
    """A value in which nothing of one type equals anything of another."""
    match value:
        case dict():
            return {key: apart(inner) for key, inner in value.items()}
        case list():
            return [apart(inner) for inner in value]
        case bool() | Number():
            return (type(value).__name__, str(value))
    return value


def described(name: str, arguments: str) -> ToolSpec:
    """A tool whose schema gives each of the arguments its type."""
    types: dict[type, str] = {dict: "object", list: "array", bool: "boolean", Number: "number", str: "string"}
    properties = {key: {"type": types.get(type(value), "null")} for key, value in json_object(arguments).items()}
    return ToolSpec(name, None, {"type": "object", "properties": properties})


def json_object(text: str) -> dict[str, Any]:
    """The JSON object that `text` is."""
    value = read_object(text)
    assert value is not None, text
    return value


def restore_json(escaping: Escaping, text: str) -> str:
    """JSON text with its strings restored."""
    restorer = escaping.restorer(json=True)
    return restorer.feed(text) + restorer.finish()


def restored(tool_format: ToolFormat, parts: Iterable[Part], also: tuple[str, ...] = ()) -> list[Part]:
    """What was read back of the history, with what was escaped in its arguments. Where they are JSON, or Python,
    nothing is: that has spellings of its own for what must not be seen."""
    layout = tool_format.layout
    raw = layout is not None and isinstance(layout.arguments, Tagged | Syntax)
    return [
        replace(part, arguments=restore_json(escaping_in_calls(tool_format, also), part.arguments))
        if raw and isinstance(part, ToolUse)
        else part
        for part in parts
    ]
