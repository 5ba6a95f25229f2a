"""Every format, every case class, every way to cut the text: the same right result. The texts are those of
tests/corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from types import ModuleType
from typing import Literal

import pytest

from tests.corpus.cases import CLASSES, Case, Part, cases
from tests.corpus.chunkings import CHUNKINGS, Pieces
from tests.corpus.formats import ALIKE, CANNOT, FORMATS
from tests.options import route_options
from tests.parse.conftest import some
from tests.parse.reading import blocks, scanned
from toolwire.config import ReasoningConfig, RouteOptions
from toolwire.events import BlockKind, Close, Event, Fault, Open, is_live
from toolwire.formats.base import ToolFormat
from toolwire.registry import registries
from toolwire.repair.relaxed_json import parses

TITLES = [format.title for format in FORMATS]
NOT_AUTO = {
    "phi4_mini": "its opener is a plain word",
    "functionary": "its opener is ordinary text",
    "functionary_v31": "its opener is that of qwen3_coder, whose notation differs behind the name",
    "gigachat": "its framing is that of others' ends of turn",
    "hyperclovax": "its opener is ordinary text",
    "beam": "its header is harmony's",
    "ui_tars": "its opener is plain words",
    "fenced_json": "a fence that was not taught counts only where nothing follows it",
}
"""Formats that `auto` does not look for."""


OPENS_LIKE_HERMES = ("granite", "hunyuan3", "hunyuan4")
"""A block of hermes is one of theirs that is written in another way, so that it is recovered (R30.1)."""


@cache
def format_of(name: str) -> ToolFormat:
    """Looking a name up means looking for installed plug-ins."""
    return registries().formats.get(name)


@cache
def options_of(
    preopened: bool, scan_calls: bool, streaming: int | Literal["buffered"], recognise: Literal["any", "taught"]
) -> RouteOptions:
    reasoning = ReasoningConfig(preopened=preopened, scan_calls=scan_calls)
    return route_options(reasoning=reasoning, argument_streaming=streaming, recognise=recognise)


def read(twin: ModuleType, case: Case, pieces: Pieces, format: str) -> list[Part]:
    """What the scanner finds."""
    return parts(scan(twin, case, pieces, format))


def scan(
    twin: ModuleType,
    case: Case,
    pieces: Pieces,
    format: str,
    streaming: int | Literal["buffered"] = "buffered",
) -> list[Event]:
    options = options_of(case.preopened, case.scan_calls, streaming, "any" if format == "auto" else "taught")
    tools = [tool.spec() for tool in case.tools]
    return scanned(twin, format_of(format), tools, pieces, options=options, truncated=case.truncated)


def parts(events: list[Event]) -> list[Part]:
    """The blocks of a stream; texts with nothing but framing between them are one."""
    found: list[Part] = []
    ids = iter([event.call_id for event in events if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL])
    for block in blocks(events):
        if block.is_call:
            found.append(Part("call", block.text, block.name or "", next(ids)))
        elif found and found[-1].kind == block.kind:
            found[-1] = Part(found[-1].kind, found[-1].text + block.text)
        else:
            found.append(Part("reasoning" if block.kind == "reasoning" else "text", block.text))
    return found


def check(twin: ModuleType, case: Case, format: str, chunkings: list[str]) -> None:
    for name in chunkings:
        found = read(twin, case, CHUNKINGS[name](case.text), format)
        fits = len(found) == len(case.parts) and all(a.fits(b) for a, b in zip(case.parts, found, strict=True))
        assert fits, explain(case, found, name)


def explain(case: Case, found: list[Part], chunking: str) -> str:
    def shown(value: object) -> str:
        text = repr(value)
        return text if len(text) < 2000 else f"{text[:800]} ... {text[-800:]}"

    end = ", truncated" if case.truncated else ""
    wanted = "\n  ".join(map(shown, case.parts))
    got = "\n  ".join(map(shown, found))
    return f"{case.format.title}, {chunking}{end}: {shown(case.text)}\nwanted:\n  {wanted}\nfound:\n  {got}"


OTHERS = [name for name in CHUNKINGS if name != "random"]


def chunkings_of(title: str, kind: str, number: int) -> list[str]:
    """Cuts anywhere, and one of the other ways, in turn; not byte by byte where a case is large, or one of very
    many."""
    few = kind in ("large", "cut off") or title in ALIKE
    others = ["whole", "tokens"] if few else OTHERS
    return ["random", others[number % len(others)]]


SMALL = [kind for kind in CLASSES if kind != "large"]


def of_kinds(title: str) -> Iterator[tuple[str, Case]]:
    """All cases of a format but the large ones, with their kinds."""
    return ((kind, case) for kind in SMALL for case in cases(title, kind))


def test_every_format_has_every_kind_that_it_can_have() -> None:
    for title, kind in product(TITLES, CLASSES):
        assert bool(cases(title, kind)) != (title in CANNOT.get(kind, {})), (title, kind)


@pytest.mark.parametrize("title", TITLES)
def test_the_right_result_however_it_is_cut(twin: ModuleType, title: str) -> None:
    numbered = enumerate((kind, case) for kind in CLASSES for case in cases(title, kind))
    for number, (kind, case) in some(twin, numbered):
        check(twin, case, case.format.name, some(twin, chunkings_of(title, kind, number)))


@pytest.mark.parametrize("title", [title for title in TITLES if title not in NOT_AUTO])
def test_auto_finds_the_format_by_itself(twin: ModuleType, title: str) -> None:
    for number, (kind, case) in some(twin, enumerate(of_kinds(title))):
        name = ("random", "whole")[number % 2]
        if (
            not case.known or case.scan_calls or case.text.startswith(" to=")
        ):  # harmony whose header began in the prompt
            continue
        if kind == "cut off":
            found = read(twin, case, CHUNKINGS[name](case.text), "auto")
            assert fits_or_stays(case, found), explain(case, found, name)
        else:
            check(twin, case, "auto", [name])


def fits_or_stays(case: Case, found: list[Part]) -> bool:
    """An untaught block that breaks off is text, to its last byte (R23.1); or a call, if only its end is missing and
    its last value is closed, or all properties of the tool have values (R30.1)."""
    wanted = list(case.parts)
    if len(found) == len(wanted) and all(a.fits(b) for a, b in zip(wanted, found, strict=True)):
        return True
    if found and found[-1].kind == "call":
        (tool,) = [tool for tool in case.tools if tool.name == found[-1].name]
        whole = set(json.loads(found[-1].text)) == set(tool.schemas)
        return whole and found[:-1] == [part for part in wanted[:-1] if part.text.strip()]
    if len(found) >= len(wanted) and found and found[-1].kind == "text":
        rest = found[-1].text
        if case.text.endswith(rest):
            before = [*found[:-1]]
            if wanted and wanted[-1].kind == "text" and len(before) < len(wanted):
                said = wanted.pop()
                if not rest.strip().startswith(said.text.strip()):
                    return False
            found = before if len(before) == len(wanted) else found
    return len(found) == len(wanted) and all(a.fits(b) for a, b in zip(wanted, found, strict=True))


@pytest.mark.parametrize("title", [title for title in TITLES if title not in NOT_AUTO])
def test_auto_stays_with_the_first_format(twin: ModuleType, title: str) -> None:
    """What follows the first call in another family's notation is text."""
    for other in ("hermes", "mistral", "kimi_k2"):
        first, second = cases(title, "numbers")[0], cases(other, "empty")[0]
        if first.format.opener == second.format.opener or not first.format.prose:
            continue
        if other == "hermes" and title in OPENS_LIKE_HERMES:
            continue
        text = f"{first.text}\n\n{second.text}"
        parts = (*first.parts, Part("text", second.text))
        both = replace(first, text=text, parts=parts, tools=(*first.tools, *second.tools))
        check(twin, both, "auto", ["whole", "bytes"])


@pytest.mark.parametrize("title", TITLES)
def test_arguments_that_are_given_out_while_they_come(twin: ModuleType, title: str) -> None:
    """R6.13: the same result. But a call that is cut off after it was opened ends the answer, or is `truncated` if a
    limit of length did it; what came of its arguments cannot be read. Calls that stand before it in one block were
    given out."""
    for number, (kind, case) in some(twin, enumerate(of_kinds(title))):
        name = ("random", "tokens")[number % 2]
        events = scan(twin, case, CHUNKINGS[name](case.text), case.format.name, 0)
        cut = next(
            (i for i, event in enumerate(events) if isinstance(event, Close) and is_cut_call(events, event)), None
        )
        if cut is None:
            found = parts(events)
            fits = len(found) == len(case.parts)
        else:
            assert kind == "cut off"
            assert case.truncated or isinstance(events[-1], Fault)
            assert len(events) == cut + (1 if case.truncated else 2)
            *found, half = parts(events[:cut])
            fits = half.kind == "call" and not parses(half.text)
            if case.format.together:
                fits = fits and all(part.kind != "call" or parses(part.text) for part in found)
                found = [part for part in found if part.kind != "call"]
        fits = fits and all(a.fits(b) for a, b in zip(case.parts, found, strict=False))
        assert fits, explain(case, found, name)


def is_cut_call(events: list[Event], closed: Close) -> bool:
    opened = next(event for event in events if isinstance(event, Open) and event.block == closed.block)
    return is_live(opened) and closed.status == "truncated"
