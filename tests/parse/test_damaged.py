"""Calls in damaged and unknown forms are recovered, and what only looks like one stays (R30.1, R30.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from types import ModuleType
from typing import Any, TypeVar

from tests.corpus.damaged import DAMAGED, offered
from tests.corpus.undamaged import UNDAMAGED, quoted
from tests.parse.conftest import some
from tests.parse.reading import WHOLE, Calls, calls_and_text, in_pieces, scanned
from toolwire.events import Delta

FORMATS = ("hermes", "qwen3_coder", "sentinel")

T = TypeVar("T")


def read(
    twin: ModuleType, text: str, size: int, format: str = "hermes", tools: Sequence[Any] | None = None
) -> tuple[Calls, str]:
    """The calls, and the visible text."""
    return calls_and_text(scanned(twin, format, tools or offered(), in_pieces(text, size), recognise="any"))


def each(twin: ModuleType, cases: Iterable[T], sizes: tuple[int, ...]) -> list[tuple[T, str, int]]:
    """Each case in two of the formats, cut into pieces of one of the sizes in turn."""
    return some(
        twin,
        (
            (case, format, sizes[(n + m) % len(sizes)])
            for n, case in enumerate(cases)
            for m, format in enumerate(FORMATS)
            if (n + m) % 3
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
    events = scanned(twin, format, offered(), in_pieces(text, size), count=counted.append, recognise="any")
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
