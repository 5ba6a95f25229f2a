"""Finding calls in text: both scanners and two naive parsers, per delta, in several formats.

Every run creates a scanner, feeds all deltas and ends it, events included. A contestant is measured only after it has
found the right calls; naive ones with other results are skipped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import pytest

from bench import corpus
from bench.measuring import Measure
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import LimitsConfig, RouteOptions
from toolwire.extras.bench.contestants import CONTESTANTS, Make, ParseResult, parse_result
from toolwire.extras.bench.corpus import TOOLS, CorpusCall, growing, large_call, rendered, small_call
from toolwire.formats.base import ToolFormat
from toolwire.model import ToolChoice
from toolwire.registry import registries
from toolwire.scanner import read_tool

NAMES: Final = {
    "compiled": "compiled",
    "python": "Python twin",
    "buffering": "naive, buffering",
    "rescanning": "naive, rescanning",
}
"""Contestants of `toolwire.extras.bench`, and what they are called in the tables. The first one is what ratios are made
to."""

TWINS: Final = ("compiled", "python")
FORMATS: Final = ("sentinel", "hermes", "qwen3_coder", "deepseek_v31", "pythonic", "harmony", "auto")
"""JSON in JSON, JSON, tags, JSON between tags of several bytes, Python, messages with headers, all of them at once."""

FEW: Final = 1_000
MEDIUM: Final = 10_000
MANY: Final = 100_000
MILLION: Final = 1_000_000

GATEWAY_TOOLS: Final = (*map(read_tool, corpus.tools(10)), read_tool("write_file"), read_tool("f"))


def policy() -> CallPolicy:
    """Returns the gateway's policy, with ten tools on offer and twelve known."""
    return CallPolicy(GATEWAY_TOOLS, choice=ToolChoice(), parallel=True, options=RouteOptions(), limits=LimitsConfig())


@cache
def format_of(name: str) -> ToolFormat:
    """Returns the format of that name."""
    return registries().formats.get(name)


def make_of(name: str, format: str) -> Make:
    """Returns the factory of the contestant's parsers. Skips the test if it cannot read the format."""
    make = CONTESTANTS[name].texts(format, TOOLS)
    if make is None:
        pytest.skip(f"{name} has no parser for {format}")
    return make


def run(make: Make, deltas: Sequence[str | bytes]) -> None:
    """Parses one answer."""
    scanner = make()
    feed = scanner.feed
    for delta in deltas:
        feed(delta)
    scanner.finish()


def result(make: Make, deltas: Sequence[str | bytes]) -> ParseResult:
    """Returns the calls, and the text without white space (the gateway trims around blocks, the naive parsers
    do not)."""
    scanner = make()
    events = [event for delta in deltas for event in scanner.feed(delta)]
    return parse_result([*events, *scanner.finish()])


def prose(format: ToolFormat) -> tuple[list[str], Sequence[CorpusCall]]:
    """Returns ordinary text without calls."""
    return corpus.prose(FEW), ()


def calls(format: ToolFormat) -> tuple[list[str], Sequence[CorpusCall]]:
    """Returns only small calls, one after the other."""
    rng = random.Random(corpus.SEED)
    wanted = [small_call(rng) for _ in range(40)]
    return corpus.cut(rendered(format, wanted)), wanted


def long_call(format: ToolFormat) -> tuple[list[str], Sequence[CorpusCall]]:
    """Returns one call that writes a file."""
    call = large_call(random.Random(corpus.SEED), 4_500)
    return corpus.cut(rendered(format, [call])), [call]


WORKS: Final = {"prose": prose, "calls": calls, "one long call": long_call}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", WORKS)
@pytest.mark.parametrize("format", FORMATS)
def test_per_delta(measure: Measure, format: str, kind: str, name: str) -> None:
    make = make_of(name, format)
    deltas, wanted = WORKS[kind](format_of(format))
    was = result(make, deltas)
    right = was.calls == tuple(wanted) and (wanted or was.text == "".join("".join(deltas).split()))
    if not right and name not in TWINS:
        pytest.skip(f"{name} finds something else: contestants are timed only on work that they do right")
    assert right
    row = f"{format}: {kind}"
    measure(lambda: run(make, deltas), table="Scanner", row=row, column=NAMES[name], units=len(deltas), unit="delta")


# --- growth, and what is meant to hurt
# ----------------------------------------------------------------------------------


def ordinary_prose(count: int) -> Sequence[str]:
    """Returns text without an opener."""
    return corpus.prose(count)


def growing_call(format: str) -> Callable[[int], Sequence[str]]:
    """Returns a function that builds one call as long as all deltas."""
    return lambda count: corpus.cut(growing("call", format_of(format), int(count * 4.5), corpus.SEED))


def unfinished_opener(count: int) -> Sequence[str]:
    """Returns many openers without their last character."""
    return corpus.cut("<tool_call" * (count // 2))[:count]


def left_angles(count: int) -> Sequence[bytes]:
    """Returns `<`, byte by byte."""
    return [b"<"] * count


def byte_by_byte(count: int) -> Sequence[bytes]:
    """Returns prose and calls, byte by byte."""
    text = "".join(corpus.mixed(count // 4)).encode()
    return [text[at : at + 1] for at in range(min(count, len(text)))]


def open_brackets(count: int) -> Sequence[bytes]:
    """Returns a call whose arguments only open brackets."""
    return [b'<tool_call>{"name":"write_file","arguments":', *([b"["] * (count - 1))]


GROWING: Final[dict[str, tuple[str, Callable[[int], Sequence[str | bytes]]]]] = {
    "prose": ("sentinel", ordinary_prose),
    "one long call": ("sentinel", growing_call("sentinel")),
    "one long call, qwen3_coder": ("qwen3_coder", growing_call("qwen3_coder")),
    "prose, auto": ("auto", ordinary_prose),
}
ADVERSARIAL: Final[dict[str, tuple[str, Callable[[int], Sequence[str | bytes]]]]] = {
    "`<tool_call` repeated": ("sentinel", unfinished_opener),
    "`<`, byte by byte": ("sentinel", left_angles),
    "`<`, byte by byte, auto": ("auto", left_angles),
    "prose and calls, byte by byte": ("sentinel", byte_by_byte),
    "`[` in arguments, byte by byte": ("sentinel", open_brackets),
    "unfinished openers of several kinds": ("sentinel", corpus.false_openers),
    "mentioned openers": ("sentinel", corpus.mentioned_openers),
    "closers inside a string": ("sentinel", corpus.hostile_body),
}


def grown(measure: Measure, table: str, kind: str, name: str, count: int) -> None:
    """Measures `count` deltas. Any tool name counts, and no limit is reached."""
    format, text = {**GROWING, **ADVERSARIAL}[kind]
    make = CONTESTANTS[name].texts(format, None)
    assert make is not None
    deltas = text(count)
    row, column = f"{kind}: {NAMES[name]}", f"{count:,} deltas"
    measure(lambda: run(make, deltas), table=table, row=row, column=column, units=len(deltas), unit="delta")


@pytest.mark.parametrize("count", [FEW, MEDIUM, MANY, MILLION])
@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("kind", GROWING)
def test_growth(measure: Measure, request: pytest.FixtureRequest, kind: str, name: str, count: int) -> None:
    if count == MILLION and not request.config.getoption("--million"):
        pytest.skip("two minutes: only with --million")
    grown(measure, "Growth", kind, name, count)


@pytest.mark.parametrize("count", [FEW, MEDIUM])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in TWINS])
@pytest.mark.parametrize("kind", ["prose", "one long call"])
def test_growth_of_the_naive(measure: Measure, kind: str, name: str, count: int) -> None:
    """Measures without 100,000 deltas, which take minutes if the growth is quadratic."""
    grown(measure, "Growth", kind, name, count)


@pytest.mark.parametrize("count", [FEW, MEDIUM, MANY])
@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_adversarial(measure: Measure, kind: str, name: str, count: int) -> None:
    grown(measure, "Adversarial input", kind, name, count)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["as text", "as bytes"])
def test_whole_text(measure: Measure, kind: str, name: str) -> None:
    """Measures one megabyte without an opener in one piece, like an answer that is not streamed."""
    make = make_of(name, "sentinel")
    if kind == "as bytes" and name not in TWINS:
        pytest.skip("the naive parsers take text only")
    text = "".join(corpus.prose(240_000))
    raw = text.encode()
    piece = text if kind == "as text" else raw
    assert result(make, [piece]) == ParseResult((), "".join(text.split()))
    measure(
        lambda: run(make, [piece]),
        table="Whole text of 1 MB without an opener",
        row=kind,
        column=NAMES[name],
        units=1,
        unit="text",
        bytes=len(raw),
    )
