"""`toolwire bench parse`: measures the time of parsers per delta, with the built-in texts or a recording.

A contestant is measured only after it has found the expected calls; otherwise the report gives the reason. Repeats of
the contestants alternate, so that a slower machine affects all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from math import inf
from time import perf_counter_ns
from typing import Final, Literal

from ...fastparse import IMPLEMENTATION
from ...registry import registries
from ..capture import recording
from ..capture.recording import SEED, Chunks, cut_text, is_sse
from . import corpus, timing
from .contestants import (
    CONTESTANTS,
    Contestant,
    Make,
    OfferedTools,
    ParseResult,
    for_bytes,
    parse_result,
)
from .corpus import CASES, TOOLS, CorpusCall
from .recorded import Recording, scanned

Status = Literal["measured", "missing", "unreadable", "failed", "different", "too slow"]
Pieces = Sequence[str] | Sequence[bytes]

GROWTH_KINDS: Final = ("prose", "call")
GROWTH_LEAST: Final = 1_000
ENOUGH_S: Final = 0.2
"""A measurement of growth with one size is not repeated after this many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePlan:
    """The settings of a measurement.

    `formats` and `contestants` are names (no formats: that of the recording, or `sentinel`; no contestants: all),
    `cases` names of `corpus.CASES` (none: all). A `recording` replaces the built-in texts. `chunks` None: as recorded,
    or like tokens. `budget_s` is the time limit of one contestant for one text. `growth` is the largest number of
    deltas; 0 skips that part.
    """

    formats: Sequence[str] = ()
    recording: Recording | None = None
    chunks: Chunks | None = None
    contestants: Sequence[str] = ()
    cases: Sequence[str] = ()
    seed: int = SEED
    repeat: int = 5
    budget_s: float = 2.0
    growth: int = 100_000

    @property
    def cut(self) -> Chunks:
        """The chunks in use, with the default applied."""
        return self.chunks or ("tokens" if self.recording is None else "recorded")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContestantResult:
    """The result of one contestant with one text. Times are nanoseconds, and None if it was not measured.

    `best` uses the best time of each delta, `raw` all times. `finish` is the time at the end of the answer, `mean` the
    CPU time of a whole run per delta, finish included, without reading the clock at each delta.
    """

    contestant: str
    status: Status
    note: str = ""
    repeats: int = 0
    best: timing.Spread | None = None
    raw: timing.Spread | None = None
    finish: int | None = None
    mean: float | None = None
    mb_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The results of all contestants with one text in one format."""

    format: str
    case: str
    deltas: int
    octets: int
    calls: int
    entries: tuple[ContestantResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Nanoseconds per delta of one contestant by the number of deltas; None: it took too long."""

    format: str
    kind: str
    contestant: str
    sizes: tuple[tuple[int, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All results. `left_out`: cases that a format cannot express, with the reason."""

    plan: MeasurePlan
    clock: int
    groups: tuple[Group, ...]
    growth: tuple[Growth, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """A text to measure. `calls` None: the calls that the reference finds. `frames`: pieces are server-sent events."""

    case: str
    pieces: Pieces
    calls: tuple[CorpusCall, ...] | None
    offer: OfferedTools
    frames: bool = False


def measure(plan: MeasurePlan, tell: Callable[[str], object] = lambda line: None) -> Report:
    """Measures; `tell` is called with progress messages.

    Raises `ConfigError` for an unknown format and `RecordingError` for a recording without text.
    """
    if not plan.formats:
        plan = replace(plan, formats=("sentinel" if plan.recording is None else plan.recording.format,))
    clock = timing.clock_ns()
    groups: list[Group] = []
    growth: list[Growth] = []
    left_out: list[str] = []
    for format in plan.formats:
        registries().formats.get(format)
        able: set[str] = set()
        for text in _texts(plan, format, left_out):
            tell(f"{format}: {text.case}")
            group = _group(plan, format, text, clock)
            groups.append(group)
            if not text.frames:
                able |= {entry.contestant for entry in group.entries if entry.status == "measured"}
        if plan.growth and plan.cut != "whole":
            for name in _chosen(plan):
                if name in able:
                    tell(f"{format}: growth, {name}")
                    growth += _growth(plan, format, CONTESTANTS[name])
    return Report(plan=plan, clock=clock, groups=tuple(groups), growth=tuple(growth), left_out=tuple(left_out))


def _chosen(plan: MeasurePlan) -> list[str]:
    return [name for name in CONTESTANTS if name in plan.contestants or not plan.contestants]


# --- texts ------------------------------------------------------------------------------------------------------------


def _texts(plan: MeasurePlan, format: str, left_out: list[str]) -> Iterator[_Text]:
    if plan.recording is not None:
        yield from _recorded(plan, format, plan.recording, left_out)
        return
    written = registries().formats.get(format)
    small = CorpusCall("get_weather", {"city": "Oslo"})
    rendered = corpus.rendered(written, [small])
    needs = {
        "calls": (corpus.rendered(written, [small, small]), "the format has one call in an answer"),
        "mixed": (f"Well.\n{rendered}\nAnd:\n{rendered}\nSo.", "the format has no prose around its calls"),
    }
    for name in CASES:
        if plan.cases and name not in plan.cases:
            continue
        if name in needs and not _holds_two(format, needs[name][0], small):
            left_out.append(f"{format}: {name}: {needs[name][1]}")
            continue
        case = corpus.build(name, written, plan.seed)
        yield _Text(case=name, pieces=cut_text(case.text, plan.cut, plan.seed), calls=case.calls, offer=TOOLS)


def _holds_two(format: str, text: str, call: CorpusCall) -> bool:
    """Returns True if a small text counts as two calls by the format's grammar."""
    return scanned(format, [text], TOOLS).calls == (call, call)


def _recorded(plan: MeasurePlan, format: str, recorded: Recording, left_out: list[str]) -> Iterator[_Text]:
    texts = recorded.in_format(format)
    if texts is None:
        left_out.append(
            f"{format}: recording: the format cannot write its text and calls, which are in {recorded.format}"
        )
        return
    names = {call.name for call in scanned(format, texts, None).calls}
    offer = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in sorted(names)
    ]
    as_recorded = texts is recorded.texts
    cut = plan.cut if as_recorded or plan.cut != "recorded" else "tokens"
    pieces: Pieces = texts if cut == "recorded" else cut_text("".join(texts), cut, plan.seed)
    yield _Text(case="recording", pieces=pieces, calls=None, offer=offer)
    if as_recorded and is_sse(recorded.data) and cut == "recorded":
        frames = recording.cut(recorded.data, "recorded")
        yield _Text(case="recording, whole path", pieces=frames, calls=None, offer=offer, frames=True)


# --- one text ---------------------------------------------------------------------------------------------------------


def _group(plan: MeasurePlan, format: str, text: _Text, clock: int) -> Group:
    pieces = text.pieces
    reference = _reference(format, text)
    expected = reference if text.calls is None else replace(reference, calls=text.calls)
    entries: dict[str, ContestantResult] = {}
    runs: dict[str, tuple[Make, timing.Times, float, str]] = {}
    for name in _chosen(plan):
        entry, make, seconds = _checked(plan, format, text, CONTESTANTS[name], expected)
        entries[name] = entry
        if make is not None:
            runs[name] = make, timing.Times(len(pieces)), seconds, entry.note
    for turn in range(plan.repeat):
        for make, times, seconds, _ in runs.values():
            if turn == 0 or (turn + 1) * 2 * seconds < plan.budget_s:
                times.repeat(make, pieces, clock)
    octets = sum(len(piece.encode() if isinstance(piece, str) else piece) for piece in pieces)
    for name, (_, times, _, note) in runs.items():
        entries[name] = ContestantResult(
            contestant=name,
            status="measured",
            note=note,
            repeats=times.repeats,
            best=timing.spread(times.best),
            raw=timing.spread(times.raw),
            finish=times.finish,
            mean=times.run / len(pieces),
            mb_per_s=octets / times.run * 1e3,
        )
    return Group(
        format=format,
        case=text.case,
        deltas=len(pieces),
        octets=octets,
        calls=len(expected.calls),
        entries=tuple(entries.values()),
    )


def _maker(format: str, text: _Text, contestant: Contestant) -> Make | None:
    if text.frames:
        return contestant.frames(format, text.offer)
    make = contestant.texts(format, text.offer)
    return make if make is None or isinstance(text.pieces[0], str) else for_bytes(contestant, make)


def _reference(format: str, text: _Text) -> ParseResult:
    """Returns the result of the scanner in use."""
    make = _maker(format, text, CONTESTANTS[IMPLEMENTATION])
    assert make is not None
    return parse_result(timing.fed(make, text.pieces, inf)[0])


def _checked(
    plan: MeasurePlan, format: str, text: _Text, contestant: Contestant, expected: ParseResult
) -> tuple[ContestantResult, Make | None, float]:
    """Runs a contestant once. Returns its entry, and if it found the expected calls its factory and the seconds it
    took."""
    entry = partial(ContestantResult, contestant=contestant.name)
    try:
        make = _maker(format, text, contestant)
    except ImportError as error:
        return entry(status="missing", note=f"not installed: {error.name or error}"), None, 0
    except Exception as error:  # for example a library whose interface has changed
        return entry(status="failed", note=f"{type(error).__name__}: {error}"[:120]), None, 0
    if make is None:
        return entry(status="unreadable", note=f"does not read {'frames' if text.frames else 'this format'}"), None, 0
    start = perf_counter_ns()
    try:
        events, fed = timing.fed(make, text.pieces, plan.budget_s)
    except Exception as error:  # a parser of another project may raise anything
        return entry(status="failed", note=f"{type(error).__name__}: {error}"[:120]), None, 0
    seconds = (perf_counter_ns() - start) / 1e9
    if fed < len(text.pieces):
        note = f"stopped after {plan.budget_s:g} s and {fed:,} of {len(text.pieces):,} deltas"
        return entry(status="too slow", note=note), None, 0
    result = parse_result(events)
    if result.calls != expected.calls:
        return entry(status="different", note=_difference(result.calls, expected.calls)), None, 0
    return entry(status="measured", note="" if result.text == expected.text else "visible text differs"), make, seconds


def _difference(calls: Sequence[CorpusCall], expected: Sequence[CorpusCall]) -> str:
    if len(calls) != len(expected):
        return f"finds {len(calls)} of {len(expected)} calls"
    wrong = next(n for n, (a, b) in enumerate(zip(calls, expected, strict=True)) if a != b)
    return f"call {wrong + 1} of {len(expected)} is different"


# --- growth -----------------------------------------------------------------------------------------------------------


def _growth(plan: MeasurePlan, format: str, contestant: Contestant) -> Iterator[Growth]:
    kinds = GROWTH_KINDS if plan.recording is None else ("recording, repeated",)
    for kind in kinds:
        sizes: list[tuple[int, float | None]] = []
        size = GROWTH_LEAST
        while size <= plan.growth:
            deltas, mean = _grown(plan, format, contestant, kind, size)
            sizes.append((deltas, mean))
            if mean is None:
                break
            size *= 10
        yield Growth(format=format, kind=kind, contestant=contestant.name, sizes=tuple(sizes))


def _grown(plan: MeasurePlan, format: str, contestant: Contestant, kind: str, size: int) -> tuple[int, float | None]:
    """Returns the number of deltas, and nanoseconds per delta."""
    text = _grown_text(plan, format, kind, size)
    make = _maker(format, text, contestant)
    assert make is not None
    best: int | None = None
    spent = 0
    for _ in range(plan.repeat):
        took = timing.whole_run(make, text.pieces, plan.budget_s)
        if took is None:
            return size, None
        best = took if best is None else min(best, took)
        spent += took
        if spent > ENOUGH_S * 1e9:
            break
    return size, None if best is None else best / len(text.pieces)


def _grown_text(plan: MeasurePlan, format: str, kind: str, size: int) -> _Text:
    """Returns a text of about this many pieces."""
    if plan.recording is not None:
        recorded = next(_recorded(plan, format, plan.recording, []))
        # All pieces are of one type as before, which `cycle` loses for mypy.
        return replace(recorded, pieces=list(islice(cycle(recorded.pieces), size)))  # type: ignore[arg-type]  # see above
    wide = {"tokens": 4.5, "bytes": 1.0}.get(str(plan.cut)) or float(plan.cut)
    text = corpus.growing(kind, registries().formats.get(format), int(size * wide), plan.seed)
    return _Text(case=kind, pieces=cut_text(text, plan.cut, plan.seed), calls=None, offer=TOOLS)
