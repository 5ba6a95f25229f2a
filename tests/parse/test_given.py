"""Lists that `feed` returned stay as they are for callers that keep them: the compiled scanner reuses only lists that
nobody holds."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.options import route_options
from tests.parse.conftest import load
from toolwire.events import Delta, Event
from toolwire.scan._pyparse import CallScanner
from toolwire.scanner import open_scanner

PIECES = [
    *("So ", "it", " is", ".", " ", "\n", "And", ' <tool_call>{"name":', '"f"', ',"arguments":', "{}}", "</tool_call>"),
    *(" Then", " more", "", " of", " it"),
    *(
        *('<tool_call>{"name":"f","arguments":{"a":"', "b", "c", " d", '"', ',"e":"', "f", "g", "\\", "n", '"}}'),
        "</tool_call>",
    ),
]


def scanner(twin: ModuleType) -> CallScanner:
    options = route_options(argument_streaming=0)
    return open_scanner("sentinel", ["f"], options=options, scanner=twin.CallScanner)


def shown(events: list[Event]) -> list[tuple[str, object, object]]:
    """Without ids, which are new each time."""
    return [(type(event).__name__, event.block, getattr(event, "text", None)) for event in events]  # type: ignore[attr-defined]


def expected(twin: ModuleType) -> list[list[tuple[str, object, object]]]:
    fed = scanner(twin)
    return [shown(fed.feed(piece)) for piece in PIECES]


KEPT: dict[str, Callable[[list[Event]], list[Event]]] = {
    "the list": lambda events: events,
    "the events": lambda events: [*events],
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_is_kept_does_not_change(twin: ModuleType, kept: str) -> None:
    fed = scanner(twin)
    held = [KEPT[kept](fed.feed(piece)) for piece in PIECES]
    assert [shown(events) for events in held] == expected(twin)


def test_what_becomes_of_a_list_is_its_owners_business(twin: ModuleType) -> None:
    fed = scanner(twin)
    for piece, events in zip(PIECES, expected(twin), strict=True):
        given = fed.feed(piece)
        assert shown(given) == events
        for event in given:
            if isinstance(event, Delta):
                event.text, event.extra, event.block = "other", {"a": 1}, 99
        given.append(Delta(7, "mine"))
        given = []


def test_a_changed_delta_is_not_given_again(twin: ModuleType) -> None:
    fed = scanner(twin)
    fed.feed("So it")
    for change in ({"extra": {"a": 1}}, {"block": 99}):
        for name, value in change.items():
            setattr(fed.feed(" is")[0], name, value)
        assert fed.feed(" so") == [Delta(0, " so")]


def test_the_collector_has_nothing_to_do_with_deltas() -> None:
    compiled = load("compiled")
    fed = scanner(compiled)
    fed.feed("So it")
    kept = [fed.feed(" is")[0] for _ in range(3)]
    fed.feed('<tool_call>{"name":"f","arguments":{"a":"')
    kept += [fed.feed("so")[0] for _ in range(3)]
    assert [gc.is_tracked(event) for event in kept] == [False] * 6
