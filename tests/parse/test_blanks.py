"""Whitespace that waits because it may touch a block (R6.6): given back as it came, and of one kind only counted."""

from __future__ import annotations

from random import Random
from types import ModuleType

from tests.cases import every
from toolwire.events import Delta
from toolwire.scan._grammar import SPACE
from toolwire.scan._pyoutput import Blanks
from toolwire.scanner import open_scanner

RUNS = [" ", "\n\n", " " * 300, "\n" * 300 + " " * 5, "\n    \n    ", "\r\n" * 200, " \t" * 3 + "\n" * 400]


@every("run", RUNS)
@every("size", [1, 2, 3, 7, 1000])
def test_a_run_waits_and_comes_back_as_it_was(twin: ModuleType, run: str, size: int) -> None:
    fed = open_scanner("sentinel", ["f"], scanner=twin.CallScanner)
    fed.feed("é")
    waited = [event for at in range(0, len(run), size) for event in fed.feed(run[at : at + size])]
    assert waited == []
    assert fed.held == run
    assert fed.feed("ü") == [Delta(0, run + "ü")]
    assert fed.held == ""


@every("run", RUNS)
def test_a_run_at_a_block_goes(twin: ModuleType, run: str) -> None:
    fed = open_scanner("sentinel", ["f"], scanner=twin.CallScanner)
    events = [*fed.feed(f"a{run}"), *fed.feed('<tool_call>{"name":"f","arguments":{}}</tool_call>'), *fed.finish()]
    assert [event.text for event in events if isinstance(event, Delta)] == ["a", "{}"]


def test_blanks_are_what_was_added() -> None:
    random = Random(7)
    for _ in range(300):
        blanks, added = Blanks(), ""
        for _ in range(random.randrange(1, 12)):
            more = "".join(random.choices(SPACE, (8, 1, 1, 3), k=random.randrange(1, 6)))
            blanks.add(more)
            added += more
            assert (str(blanks), len(blanks)) == (added, len(added))
        blanks.clear()
        assert (str(blanks), len(blanks)) == ("", 0)


def test_of_one_kind_nothing_is_kept_but_a_count() -> None:
    blanks = Blanks()
    blanks.add("\n")
    kept = []
    for _ in range(1_000):
        blanks.add(" " * 10)
        kept.append(len(blanks._before))
    assert kept == [1] * 1_000
    assert len(blanks) == 10_001
