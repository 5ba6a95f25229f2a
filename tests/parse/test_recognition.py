"""What nobody taught (R23.1): calls are found, whatever the route teaches and however the stream is cut; answers that
are none stay."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import cycle
from types import ModuleType
from typing import TypeVar

import pytest

from tests.corpus.answers import Answer, no_calls, printed_calls
from tests.parse.conftest import some
from tests.parse.reading import WHOLE, Calls, calls_and_text, in_pieces, scanned
from toolwire.config import RouteOptions
from toolwire.formats.base import ToolFormat
from toolwire.formats.recognised.recognition import Mode
from toolwire.registry import registries
from toolwire.scanner import open_scanner

TAUGHT = ("sentinel", "hermes", "bare_json", "fenced_json", "auto", "qwen3_coder", "mistral", "pythonic", "harmony")

NOT_RECOGNISED = ("family/beam/", "family/functionary/", "family/ui_tars/", "family/phi4_mini/behind_prose")
"""Their markers are ordinary text, or mean something else elsewhere."""

A = TypeVar("A", bound=Answer)


@cache
def format_of(name: str) -> ToolFormat:
    return registries().formats.get(name)


def read(twin: ModuleType, format: str, answer: Answer, size: int, mode: Mode = "any") -> tuple[Calls, str]:
    """The calls, and the visible text."""
    pieces = in_pieces(answer.text, size)
    return calls_and_text(scanned(twin, format_of(format), answer.tools, pieces, recognise=mode))


def beside(twin: ModuleType, answers: Sequence[A]) -> list[tuple[str, A]]:
    """Each answer with the first format, and with one of the others in turn."""
    first, *others = TAUGHT
    return some(
        twin, ((format, answer) for answer, other in zip(answers, cycle(others)) for format in (first, other)), 13
    )


def test_what_is_no_call_stays_as_it_was(twin: ModuleType) -> None:
    for format, answer in beside(twin, no_calls()):
        assert read(twin, format, answer, WHOLE) == read(twin, format, answer, WHOLE, "taught"), answer.id


def test_what_is_a_call_is_found(twin: ModuleType) -> None:
    for format, answer in beside(twin, printed_calls()):
        calls, text = read(twin, format, answer, WHOLE)
        if answer.id.startswith(NOT_RECOGNISED) and (calls, text) == read(twin, format, answer, WHOLE, "taught"):
            continue
        if answer.mended:  # those of the form that is taught are mended later
            assert [name for name, _ in calls] == [call.name for call in answer.calls], answer.id
            continue
        assert calls == [(call.name, call.arguments) for call in answer.calls], answer.id
        if "think-" not in answer.id and "block-think" not in answer.id:
            assert text.strip() == answer.text_left.strip(), answer.id


@pytest.mark.parametrize(("format", "size"), [("sentinel", 7), ("auto", 1)])
def test_cuts_mean_nothing(twin: ModuleType, format: str, size: int) -> None:
    for answer in some(twin, (*no_calls()[::6], *printed_calls()[::2])):
        assert read(twin, format, answer, size) == read(twin, format, answer, WHOLE), answer.id


def test_prose_behind_one_ends_the_wait(twin: ModuleType) -> None:
    """What can become a call no more goes out at once."""
    scanner = open_scanner("sentinel", ["f"], options=RouteOptions(), scanner=twin.CallScanner)
    for text, waits in (
        ("Well", ""),
        (":\n", "\n"),
        ('{"name"', '\n{"name"'),
        (': "f"}\n', '\n{"name": "f"}\n'),
        ("so", ""),
        (" `{", ""),
        ("\n```py\n", "\n```py\n"),
        ("x", ""),
        ("\n``", "\n``"),
        ("`", ""),  # the end of the fence
        ("\n[{", ""),
    ):
        scanner.feed(text)
        assert scanner.held == waits, text


def test_every_word_that_is_no_tool_goes_out(twin: ModuleType) -> None:
    scanner = open_scanner("sentinel", ["find", "fetch"], options=RouteOptions(), scanner=twin.CallScanner)
    scanner.feed("f")
    assert scanner.held == "f"
    scanner.feed("i")
    assert scanner.held == "fi"
    scanner.feed("l")
    assert scanner.held == ""
