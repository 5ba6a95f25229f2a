"""Calls in the text of a server that makes calls itself (R23.1): they count if it made none, whatever came first."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.options import route_options
from tests.strategies import cuts
from toolwire.config import LimitsConfig
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Call, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold
from toolwire.formats.families import sentinel
from toolwire.model import EMPTY, Part, Reasoning, Text, ToolChoice, ToolSpec, ToolUse
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.pipeline.scanning.scan_stage import ScanStage
from toolwire.scan._grammar import Grammar
from toolwire.stream_grammar import check

START = Start("id", "m", 1)
FORMAT = replace(sentinel.FORMAT, grammar=Grammar(syntaxes=()))
F = ToolSpec("f")
CALL = '<tool_call>{"name":"f","arguments":{}}</tool_call>'
BARE = '{"name":"f","arguments":{"a":1}}'
OWN = Call(7, ToolUse("c7", "f", '{"own":1}'))


class Bench:
    """A stage over the text of a server that was given the tool `f`."""

    def __init__(self, **options: Any) -> None:
        self.counts: Counter[str] = Counter()
        parallel = options.pop("parallel", True)
        offer = OfferedTools((F,), ToolChoice(), parallel, FORMAT, (F,))
        self.stage = ScanStage(
            offer,
            route_options(**options),
            LimitsConfig(),
            lambda name: self.counts.update([name]),
            label=lambda name, label: self.counts.update([f"{name}/{label}"]),
            native=True,
        )

    def parts(self, events: list[Event], choice: int = 0) -> list[Part]:
        """What the answer becomes, fed event by event."""
        out = [event for each in events for event in self.stage.feed([each])]
        check(out)
        return list(fold(out).choices[choice].parts)


def text(*pieces: str, block: int = 0, choice: int = 0) -> list[Event]:
    return [Open(block, BlockKind.TEXT, choice=choice), *(Delta(block, p) for p in pieces), Close(block)]


def names(parts: list[Part]) -> list[tuple[str, str]]:
    return [(part.name, part.arguments) for part in parts if isinstance(part, ToolUse)]


def test_a_call_in_the_text_counts_at_the_end_of_the_answer() -> None:
    bench = Bench()
    events = [START, *text(f"a {CALL}", " b"), Finish()]
    before = [event for each in events[:-1] for event in bench.stage.feed([each])]
    assert not [event for event in before if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL]
    assert not bench.counts
    out = before + bench.stage.feed(events[-1:])
    check(out)
    first, call, last = fold(out).choices[0].parts
    assert (first, last) == (Text("a"), Text(" b"))
    assert isinstance(call, ToolUse)
    assert bench.counts == {"calls": 1, "recognised": 1, "recognised/hermes": 1}


@given(st.data())
def test_where_the_server_called_the_text_stays_text(data: st.DataObject) -> None:
    """However the text is cut, and whether it comes before the server's call or behind it."""
    said = data.draw(
        st.sampled_from([CALL, BARE, f"a {CALL}", f"a{CALL} b", f"{CALL}{CALL}", f"a\n{BARE}", "a <tool_c"])
    )
    pieces = data.draw(cuts(said))
    at = data.draw(st.integers(0, len(pieces)))
    bench = Bench()
    events = [START, *text(*pieces[:at]), *OWN.events(), *text(*pieces[at:], block=1), Finish()]
    parts = bench.parts(events)
    assert names(parts) == [("f", '{"own":1}')]
    found = "".join(part.text for part in parts if isinstance(part, Text))
    assert "".join(found.split()) == "".join(said.split())
    assert not bench.counts


@given(st.data())
def test_text_that_waits_is_the_same_at_every_cut(data: st.DataObject) -> None:
    said = f"I look. {CALL}\n\nand {CALL} so"
    bench = Bench()
    parts = bench.parts([START, *text(*data.draw(cuts(said))), Finish()])
    assert [part.text if isinstance(part, Text) else "f" for part in parts] == ["I look.", "f", "\nand", "f", " so"]


CITED = {"responses": {"annotations": [{"type": "url_citation"}]}}
ITEM = {"responses": {"item": {"phase": "commentary"}}}


def beside(events: list[Event], opened: Any = EMPTY, closed: Any = EMPTY) -> list[Event]:
    """The block of text of which this is said."""
    first, last = events[0], events[-1]
    assert isinstance(first, Open)
    assert isinstance(last, Close)
    first.extra, last.extra = opened, closed
    return events


@given(st.data())
def test_what_a_server_says_of_its_texts_stays_with_them(data: st.DataObject) -> None:
    """They may be parts of one sentence, and a call in one of them counts."""
    call = data.draw(st.sampled_from(["", CALL]))
    events = [
        START,
        *beside(text(*data.draw(cuts("As a says, "))), closed=CITED),
        *beside(text(*data.draw(cuts("b c")), block=1), opened=ITEM, closed=CITED),
        *text(*data.draw(cuts(f" is. {call}")), block=2),
        Finish(),
    ]
    parts = Bench().parts(events)
    both = {"responses": {**CITED["responses"], **ITEM["responses"]}}
    assert parts[:2] == [Text("As a says, ", CITED), Text("b c", both)]
    assert isinstance(parts[2], Text)
    assert parts[2].text.rstrip() == " is."
    assert names(parts) == ([("f", "{}")] if call else [])


def test_a_server_that_calls_behind_a_text_of_which_more_is_said() -> None:
    events = [START, *beside(text("a "), closed=CITED), *OWN.events(), *beside(text("b", block=1), closed=CITED)]
    events += [*text(CALL, block=2), Finish()]
    first, call, second, third = Bench().parts(events)
    assert (first, second, third) == (Text("a ", CITED), Text("b", CITED), Text(CALL))
    assert isinstance(call, ToolUse)


def test_text_comes_before_the_call_behind_it() -> None:
    """Its block is closed before the server's call opens."""
    bench = Bench()
    out = bench.stage.feed([START, *text("Let me look.\n\n"), *OWN.events(), Finish()])
    check(out)
    kinds = [event.kind for event in out if isinstance(event, Open)]
    assert kinds == [BlockKind.TEXT, BlockKind.TOOL_CALL]
    closed = next(index for index, event in enumerate(out) if isinstance(event, Close))
    assert closed < next(i for i, e in enumerate(out) if isinstance(e, Open) and e.kind is BlockKind.TOOL_CALL)
    assert fold(out).choices[0].parts[0] == Text("Let me look.\n\n")


def test_thoughts_are_found_before_and_behind_the_call() -> None:
    events = [START, *text("<think>one</think>x"), *OWN.events(), *text("<think>two</think>y", block=1), Finish()]
    parts = Bench().parts(events)
    assert [part for part in parts if not isinstance(part, ToolUse)] == [
        Reasoning("one"),
        Text("x"),
        Reasoning("two"),
        Text("y"),
    ]
    parts = Bench().parts([START, *text("<think>one"), *OWN.events(), *text("two</think>y", block=1), Finish()])
    assert [part for part in parts if not isinstance(part, ToolUse)] == [Reasoning("one"), Reasoning("two"), Text("y")]


def test_each_answer_by_itself() -> None:
    bench = Bench()
    other = Call(7, OWN.use, choice=1)
    events = [
        START,
        *text(CALL),
        *text(CALL, block=1, choice=1),
        *other.events(),
        Finish(others=("stop",)),
    ]
    out = bench.stage.feed(events)
    check(out)
    first, second = fold(out).choices
    assert names(list(first.parts)) == [("f", "{}")]
    assert names(list(second.parts)) == [("f", '{"own":1}')]
    assert bench.counts["calls"] == 1


def test_an_answer_that_breaks_off_keeps_its_calls() -> None:
    out = Bench().stage.feed([START, *text(CALL), Fault(BackendFault("gone"))])
    assert [event.name for event in out if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL] == ["f"]
    assert isinstance(out[-1], Fault)


def test_the_last_wanted_call_ends_the_answer() -> None:
    out = Bench(parallel=False, stop_after_call=True).stage.feed([START, *text(CALL, " and so on")])
    check(out)
    assert names(list(fold(out).choices[0].parts)) == [("f", "{}")]
