"""The scanner as a stage: block numbers, choices, ends, and whose strictness counts."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import examples
from tests.options import route_options
from tests.strategies import apart, cuts, streams
from toolwire.config import CallsConfig, LimitsConfig, ReasoningConfig, RouteOptions
from toolwire.errors import BackendFault, ModelFault
from toolwire.events import BlockKind, Call, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import finished, fold, unfold
from toolwire.formats.base import ToolFormat
from toolwire.formats.families import bare_json, fenced_json, hermes, sentinel
from toolwire.formats.recognised import auto
from toolwire.model import (
    EMPTY,
    ModelReply,
    Part,
    Reasoning,
    ReplyChoice,
    Text,
    ToolChoice,
    ToolSpec,
    ToolUse,
    Usage,
    replace,
)
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.pipeline.scanning.preopened import PreopenedMemory, PreopenedReasoning
from toolwire.pipeline.scanning.scan_stage import ScanStage
from toolwire.record import AccessRecord
from toolwire.scan._grammar import Grammar, valid_text
from toolwire.stream_grammar import check

START = Start("id", "m", 1)
CALL = '<tool_call>{"name":"f","arguments":"{}"}</tool_call>'
F = ToolSpec("f")
NOTHING = dataclasses.replace(sentinel.FORMAT, grammar=Grammar(syntaxes=()))
"""What a server that makes calls itself is taught."""


def stage(
    *tools: ToolSpec,
    choice: ToolChoice | None = None,
    parallel: bool = True,
    native: bool = False,
    counts: Counter[str] | None = None,
    **options: Any,
) -> ScanStage:
    """`native`: over the text of a server that makes calls itself. `counts`: what it counts and labels."""
    choice = choice or ToolChoice()
    allowed = tuple(tool for tool in tools if choice.allowed is None or tool.name in choice.allowed)
    taught = NOTHING if native else sentinel.FORMAT
    counted = Counter() if counts is None else counts
    return ScanStage(
        OfferedTools(allowed, choice, parallel, taught, tools),
        route_options(**options),
        LimitsConfig(),
        lambda name: counted.update([name]),
        label=lambda name, label: counted.update([f"{name}/{label}"]),
        native=native,
    )


def texts(*pieces: str, block: int = 0, choice: int = 0) -> list[Event]:
    return [Open(block, BlockKind.TEXT, choice=choice), *(Delta(block, p) for p in pieces), Close(block)]


@examples(0.5)
@given(streams())
def test_what_comes_out_is_a_stream_and_other_blocks_stay(events: list[Event]) -> None:
    out = stage(F).feed(events)
    check(out)
    kept = [part for part in fold(events).choices[0].parts if not isinstance(part, Text)]
    assert [part for part in fold(out).choices[0].parts if not isinstance(part, Text)] == kept


@given(st.data())
def test_cuts_and_neighbouring_text_blocks_do_not_matter(data: st.DataObject) -> None:
    pieces = data.draw(cuts(f"a {CALL} b"))
    middle = data.draw(st.integers(0, len(pieces)))
    out = stage(F).feed([START, *texts(*pieces[:middle]), *texts(*pieces[middle:], block=1), Finish()])
    check(out)
    before, call, after = fold(out).choices[0].parts
    assert (before, after) == (Text("a"), Text(" b"))
    assert isinstance(call, ToolUse)
    assert (call.name, call.arguments) == ("f", "{}")


WORDS = ["a b", " ", "\n", "<tool", "_call>", "<think>", "</think>", "{", '"name"', "[", "]", "\udcff", "```"]
SAID = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=6).map("".join)
ENDS = st.sampled_from(["stop", "length"])
FORMATS = (sentinel.FORMAT, hermes.FORMAT, bare_json.FORMAT, fenced_json.FORMAT, auto.FORMAT)


@given(st.sampled_from(FORMATS), st.lists(SAID, min_size=1, max_size=2), ENDS, st.booleans())
def test_what_a_stage_leaves_it_would_give_back(
    form: ToolFormat, said: list[str], reason: str, preopened: bool
) -> None:
    choices = [ReplyChoice((Text(valid_text(text)),) if text else (), reason) for text in said]
    reply = ModelReply("id", "m", 1, tuple(choices))
    offer = OfferedTools((F,), ToolChoice(), True, form, (F,))
    options = RouteOptions(reasoning=ReasoningConfig(preopened=preopened))
    scan = ScanStage(offer, options, LimitsConfig(), lambda name: None)
    if scan.whole(reply) is reply:
        assert fold(scan.feed(unfold(reply))) == reply


@given(
    st.sampled_from(FORMATS),
    st.lists(st.sampled_from([CALL, CALL.replace('"f"', '"F"'), CALL[:-9], "<think>hm</think>"]) | SAID, max_size=4),
    ENDS,
    st.booleans(),
    st.booleans(),
)
def test_what_a_stage_takes_is_what_comes_of_the_events(
    form: ToolFormat, said: list[str], reason: str, strict: bool, parallel: bool
) -> None:
    extra = {"logprobs": {}, "chat": {"a": 1}}
    reply = ModelReply("id", "m", 1, (ReplyChoice((Text(valid_text("".join(said))),), reason, extra),), Usage(3, 4))
    tool = ToolSpec("f", strict=strict or None)

    def answer(taken: bool) -> tuple[object, Counter[str]]:
        counts: Counter[str] = Counter()
        offer = OfferedTools((tool,), ToolChoice(), parallel, form, (tool,))
        learned = PreopenedReasoning("r", PreopenedMemory(), lambda: None, AccessRecord(), whole=True)
        options = RouteOptions(calls=CallsConfig(stop_after_call=False))
        scan = ScanStage(offer, options, LimitsConfig(), lambda name: counts.update([name]), preopened=learned)
        try:
            made = scan.whole(reply) if taken else fold(scan.feed(unfold(reply)))
        except ModelFault as error:
            return repr(error), counts
        assert made is not None or not reply.text
        if made is reply:  # nothing was found, so the tokens of the model are those of the answer
            return None, counts
        counts["bytes"] = scan.scanned_bytes
        return nameless(finished(made or fold(scan.feed(unfold(reply))))), counts

    taken = answer(taken=True)
    assert taken[0] is None or taken == answer(taken=False)


def nameless(reply: ModelReply) -> ModelReply:
    """The same answer with calls that have no ids."""
    parts = [replace(part, call_id="") if isinstance(part, ToolUse) else part for part in reply.choices[0].parts]
    return replace(reply, choices=(replace(reply.choices[0], parts=tuple(parts)),))


def test_a_call_that_is_taken_says_where_it_was_found() -> None:
    made = stage(F).whole(ModelReply("id", "m", 1, (ReplyChoice((Text("a " + CALL),)),)))
    assert made is not None
    assert [call.extra for call in made.calls] == [{"source": CALL}]
    assert [call.extra for call in finished(made).calls] == [{}]


def test_a_stage_leaves_plain_text_and_nothing_else() -> None:
    def leaves(*parts: Part, **options: Any) -> bool:
        reply = ModelReply("id", "m", 1, (ReplyChoice(parts),))
        return stage(F, **options).whole(reply) is reply

    assert leaves(Text("3 < 4, and <b>that</b> is all"))
    assert leaves()
    assert not leaves(Text("<tool_call>"))
    assert not leaves(Text("<think>"))
    assert not leaves(Text("<tool"), Text("_call>"))
    assert not leaves(Reasoning("hm"), Text("a"))
    assert not leaves(Text("a"), reasoning=ReasoningConfig(preopened=True))


def test_each_choice_has_a_scanner_of_its_own() -> None:
    opens = [Open(0, BlockKind.TEXT), Open(1, BlockKind.TEXT, choice=1)]
    deltas = [Delta(0, CALL[:9]), Delta(1, "x" + CALL[:20]), Delta(0, CALL[9:]), Delta(1, CALL[20:])]
    events: list[Event] = [START, *opens, *deltas, Close(0), Close(1), Finish("stop", others=("stop",))]
    first, second = fold(stage(F).feed(events)).choices
    assert [type(part) for part in first.parts] == [ToolUse]
    assert [type(part) for part in second.parts] == [Text, ToolUse]


def test_a_fault_gives_back_text_but_no_half_call() -> None:
    fault = Fault(BackendFault("gone"))
    out = stage(F).feed([START, Open(0, BlockKind.TEXT), Delta(0, "a <tool"), fault])
    assert [event.text for event in out if isinstance(event, Delta)] == ["a", " <tool"]
    out = stage(F).feed([START, Open(0, BlockKind.TEXT), Delta(0, "a " + CALL[:-1]), fault])
    assert "".join(event.text for event in out if isinstance(event, Delta)) == "a"
    assert out[-1] == fault


def test_nothing_follows_a_strict_failure() -> None:
    strict = ToolSpec("f", strict=True)
    bad = "<tool_call>{nonsense}</tool_call>"
    out = stage(strict).feed([START, *texts("a", bad, "b"), Finish()])
    assert isinstance(out[-1], Fault)
    assert isinstance(out[-1].error, ModelFault)
    assert stage(strict).feed([]) == []


def test_a_tool_that_may_not_be_called_has_its_own_strictness() -> None:
    tools = (F, ToolSpec("g", strict=True))
    only_f = ToolChoice(allowed=("f",))
    out = stage(*tools, choice=only_f).feed([START, *texts(CALL.replace('"f"', '"g"')), Finish()])
    assert isinstance(out[-1], Fault)
    assert out[-1].error.code == "unknown_tool_call"
    only_g = ToolChoice(allowed=("g",))
    out = stage(*tools, choice=only_g).feed([START, *texts(CALL), Finish()])
    assert fold(out).choices[0].parts == (Text(CALL),)


def test_the_backend_is_stopped_after_the_only_wanted_call() -> None:
    one = stage(F, parallel=False, stop_after_call=True)
    out = one.feed([START, Open(0, BlockKind.TEXT), Delta(0, "a" + CALL + " more")])
    assert out[-1] == Finish("tool_calls")
    check(out)
    assert one.feed([Delta(0, "and more"), Close(0), Finish()]) == []


BLANKS = " \t\r\n"
THINKING = st.lists(st.sampled_from(["<think>", "</think>", " ", "\n", "a", "b<", "\t", CALL]), max_size=10).map(
    "".join
)


@given(THINKING.flatmap(lambda text: st.tuples(st.just(text), cuts(text), st.integers(0, 9))))
def test_without_tools_only_what_is_thought_is_set_apart(case: tuple[str, list[str], int]) -> None:
    text, pieces, middle = case
    found = []
    for blocks in ([[text]], [pieces], [pieces[:middle], pieces[middle:]]):
        given_ = [event for block, part in enumerate(blocks) for event in texts(*part, block=block)]
        out = stage().feed([START, *given_, Finish()])
        check(out)
        parts = fold(out).choices[0].parts
        assert all(part.text for part in parts if isinstance(part, Text))
        thought = "".join(part.text for part in parts if isinstance(part, Reasoning))
        found.append((thought, "".join(part.text for part in parts if isinstance(part, Text))))
    assert found[0] == found[1] == found[2], "cuts mean nothing"
    thought, said = found[0]
    assert ("".join(thought.split()), "".join(said.split())) == apart(text)
    if "<think>" not in text:
        assert said == text
    if text.lstrip(BLANKS).startswith("<think>"):
        assert said == said.lstrip(BLANKS), "blanks between a thought and what is said then"


def test_without_tools_no_text_waits_for_more_of_it() -> None:
    """Nothing is looked for that blanks could belong to."""
    scan = stage()
    for piece in ("begin ", "\n", "end "):
        out = scan.feed([Open(0, BlockKind.TEXT), Delta(0, piece)] if piece == "begin " else [Delta(0, piece)])
        assert [event.text for event in out if isinstance(event, Delta)] == [piece]


def test_each_choice_has_an_edge_of_its_own() -> None:
    opened: list[Event] = [Open(0, BlockKind.TEXT), Open(1, BlockKind.TEXT, choice=1)]
    deltas = [Delta(0, "<think>x</think>"), Delta(1, " a"), Delta(0, "\n b")]
    out = stage().feed([START, *opened, *deltas, Finish("stop", others=("stop",))])
    assert [choice.parts for choice in fold(out).choices] == [(Reasoning("x"), Text("b")), (Text(" a"),)]


# --- a server that makes calls itself (R23.1): those in its text count if it made none -------------------------------

UNTAUGHT = '<tool_call>{"name":"f","arguments":{}}</tool_call>'
OWN = Call(7, ToolUse("c7", "f", '{"own":1}'))


def parts_of(events: list[Event], counts: Counter[str] | None = None) -> list[Part]:
    """What the answer of such a server becomes, fed event by event."""
    scan = stage(F, native=True, counts=counts)
    out = [event for each in events for event in scan.feed([each])]
    check(out)
    return list(fold(out).choices[0].parts)


def names(parts: Iterable[Part]) -> list[tuple[str, str]]:
    return [(part.name, part.arguments) for part in parts if isinstance(part, ToolUse)]


def test_a_call_in_the_text_counts_at_the_end_of_the_answer() -> None:
    counts: Counter[str] = Counter()
    scan = stage(F, native=True, counts=counts)
    events = [START, *texts(f"a {UNTAUGHT}", " b"), Finish()]
    before = [event for each in events[:-1] for event in scan.feed([each])]
    assert not [event for event in before if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL]
    assert not counts
    out = before + scan.feed(events[-1:])
    check(out)
    first, call, last = fold(out).choices[0].parts
    assert (first, names([call]), last) == (Text("a"), [("f", "{}")], Text(" b"))
    assert counts == {"calls": 1, "recognised": 1, "recognised/hermes": 1}


@given(st.data())
def test_where_the_server_called_the_text_stays_text(data: st.DataObject) -> None:
    """However the text is cut, and whether it comes before the server's call or behind it."""
    bare = '{"name":"f","arguments":{"a":1}}'
    said = data.draw(st.sampled_from([UNTAUGHT, bare, f"a{UNTAUGHT} b", UNTAUGHT * 2, f"a\n{bare}", "a <tool_c"]))
    pieces = data.draw(cuts(said))
    at = data.draw(st.integers(0, len(pieces)))
    counts: Counter[str] = Counter()
    events = [START, *texts(*pieces[:at]), *OWN.events(), *texts(*pieces[at:], block=1), Finish()]
    parts = parts_of(events, counts)
    assert names(parts) == [("f", '{"own":1}')]
    found = "".join(part.text for part in parts if isinstance(part, Text))
    assert "".join(found.split()) == "".join(said.split())
    assert not counts


@given(st.data())
def test_text_that_waits_is_the_same_at_every_cut(data: st.DataObject) -> None:
    said = f"I look. {UNTAUGHT}\n\nand {UNTAUGHT} so"
    parts = parts_of([START, *texts(*data.draw(cuts(said))), Finish()])
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
    call = data.draw(st.sampled_from(["", UNTAUGHT]))
    events = [
        START,
        *beside(texts(*data.draw(cuts("As a says, "))), closed=CITED),
        *beside(texts(*data.draw(cuts("b c")), block=1), opened=ITEM, closed=CITED),
        *texts(*data.draw(cuts(f" is. {call}")), block=2),
        Finish(),
    ]
    parts = parts_of(events)
    both = {"responses": {**CITED["responses"], **ITEM["responses"]}}
    assert parts[:2] == [Text("As a says, ", CITED), Text("b c", both)]
    assert isinstance(parts[2], Text)
    assert parts[2].text.rstrip() == " is."
    assert names(parts) == ([("f", "{}")] if call else [])


def test_a_server_that_calls_behind_a_text_of_which_more_is_said() -> None:
    events = [START, *beside(texts("a "), closed=CITED), *OWN.events(), *beside(texts("b", block=1), closed=CITED)]
    first, call, second, third = parts_of([*events, *texts(UNTAUGHT, block=2), Finish()])
    assert (first, second, third) == (Text("a ", CITED), Text("b", CITED), Text(UNTAUGHT))
    assert names([call])


def test_thoughts_are_found_before_and_behind_the_servers_call() -> None:
    for first, second in (("<think>one</think>x", "<think>two</think>y"), ("<think>one", "two</think>y")):
        parts = parts_of([START, *texts(first), *OWN.events(), *texts(second, block=1), Finish()])
        said = [Reasoning("one"), *([Text("x")] if "x" in first else []), Reasoning("two"), Text("y")]
        assert [part for part in parts if not isinstance(part, ToolUse)] == said


def test_in_each_of_several_answers_the_text_counts_by_itself() -> None:
    counts: Counter[str] = Counter()
    other = Call(7, OWN.use, choice=1)
    blocks = [*texts(UNTAUGHT), *texts(UNTAUGHT, block=1, choice=1), *other.events()]
    out = stage(F, native=True, counts=counts).feed([START, *blocks, Finish(others=("stop",))])
    assert [names(choice.parts) for choice in fold(out).choices] == [[("f", "{}")], [("f", '{"own":1}')]]
    assert counts["calls"] == 1


def test_calls_of_an_answer_that_breaks_off_are_kept_and_the_last_wanted_one_ends_it() -> None:
    broken = Fault(BackendFault("gone"))
    out = stage(F, native=True).feed([START, *texts(UNTAUGHT), broken])
    assert [event.name for event in out if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL] == ["f"]
    assert out[-1] == broken
    last = stage(F, native=True, parallel=False, stop_after_call=True)
    out = last.feed([START, *texts(UNTAUGHT, " and so on")])
    check(out)
    assert names(fold(out).choices[0].parts) == [("f", "{}")]
