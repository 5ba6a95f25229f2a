"""Calls in damaged and unknown forms are recovered, and what only looks like one stays (R30.1, R30.2)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import cycle
from types import ModuleType
from typing import Any, TypeVar

from tests.corpus.damaged import DAMAGED, offered
from tests.corpus.undamaged import UNDAMAGED, quoted
from tests.options import route_options
from tests.parse.conftest import some
from toolwire.events import BlockKind, Delta, Event, Open
from toolwire.scanner import open_scanner

FORMATS = ("hermes", "qwen3_coder", "sentinel")

WHOLE = 1 << 20
"""The size of pieces of which each text is one."""

T = TypeVar("T")
Read = tuple[list[tuple[str | None, Any]], str]


def read(
    twin: ModuleType, text: str, size: int, format: str = "hermes", tools: Sequence[Any] | None = None, **options: Any
) -> Read:
    """The calls, and the visible text."""
    scanner = open_scanner(
        format, tools or offered(), options=route_options(**({"recognise": "any"} | options)), scanner=twin.CallScanner
    )
    events: list[Event] = []
    for at in range(0, len(text), size):
        events += scanner.feed(text[at : at + size])
    events += scanner.finish()
    calls: dict[int, list[str]] = {}
    names: dict[int, str | None] = {}
    visible = ""
    for event in events:
        if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
            names[event.block], calls[event.block] = event.name, []
        elif isinstance(event, Delta) and event.block in calls:
            calls[event.block].append(event.text)
        elif isinstance(event, Delta):
            visible += event.text
    return [(name, json.loads("".join(calls[block]) or "{}")) for block, name in names.items()], visible


def each(twin: ModuleType, cases: Iterable[T], sizes: tuple[int, ...]) -> list[tuple[T, str, int]]:
    """Each case in each format, cut into pieces of one of the sizes in turn."""
    return some(
        twin,
        (
            (case, format, sizes[(n + m) % len(sizes)])
            for n, case in enumerate(cases)
            for m, format in enumerate(FORMATS)
        ),
    )


def test_a_damaged_call_is_read(twin: ModuleType) -> None:
    for output, format, size in each(twin, DAMAGED, (1, 7, WHOLE)):
        calls, visible = read(twin, output.text, size, format)
        assert calls == [(name, dict(arguments)) for name, arguments in output.calls], (output.text, format, size)
        assert visible.strip() == output.visible, (output.text, format, size)


def recovered(twin: ModuleType, text: str, format: str, size: int) -> tuple[int, str, bool]:
    """How many calls were recovered, the visible text, and whether there is a call in a form that is known."""
    counted: list[str] = []
    scanner = open_scanner(
        format, offered(), options=route_options(recognise="any"), count=counted.append, scanner=twin.CallScanner
    )
    events = [event for at in range(0, len(text), size) for event in scanner.feed(text[at : at + size])]
    events += scanner.finish()
    texts = [event.text for event in events if isinstance(event, Delta)]
    return counted.count("recovered"), "".join(texts), "calls" in counted


def test_a_text_that_names_a_tool_stays(twin: ModuleType) -> None:
    for text, format, size in each(twin, UNDAMAGED, (1, WHOLE)):
        calls, visible, known = recovered(twin, text, format, size)
        assert not calls, (text, format, size)
        assert known or "<think>" in text or visible == text, (text, format, size)


def test_a_quoted_call_stays(twin: ModuleType) -> None:
    for text, size in some(twin, zip(quoted(), cycle((5, WHOLE, WHOLE)))):
        calls, visible, known = recovered(twin, text, "sentinel", size)
        assert not calls, text
        assert known or visible == text
