"""Answers that repeat a call end there (R30.8): what goes on, what is dropped, however the answer comes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold, unfold
from toolwire.model import ModelReply, Reasoning, ReplyChoice, Text, ToolUse, Usage
from toolwire.pipeline.transforms.repeats import RepeatStage
from toolwire.stream_grammar import check

A, B = '{"path": "a", "n": 1}', '{"path": "b"}'
EQUAL = '{"n":1,"path":"a"}'
Written = tuple[str, str]


def call(block: int, name: str, arguments: str, *, choice: int = 0, size: int = 5) -> list[Event]:
    opened = Open(block, BlockKind.TOOL_CALL, name=name, call_id=f"call_{block}", choice=choice)
    pieces = [Delta(block, arguments[at : at + size]) for at in range(0, len(arguments), size)]
    return [opened, *pieces, Close(block)]


def answer(*calls: Written) -> list[Event]:
    body = [event for number, written in enumerate(calls) for event in call(number, *written)]
    return [Start("r", "m", 1), *body, Finish("length", Usage(9, 4))]


class Bench:
    """A stage, and what it dropped."""

    def __init__(self, choices: int = 1) -> None:
        self.dropped: list[Open] = []
        self.stage = RepeatStage(400, self.dropped.append, choices=choices)

    def through(self, events: list[Event], reads: Sequence[int] = ()) -> list[Event]:
        """The events, as they came in reads of these sizes, and all the rest in one."""
        out: list[Event] = []
        at = 0
        for size in (*reads, len(events)):
            if events[at : at + size]:
                out += self.stage.feed(events[at : at + size])
            at += size
        return out


def made(events: list[Event]) -> list[Written]:
    check(events)
    return [(use.name, use.arguments) for use in fold(events).calls]


def naive(calls: Sequence[Written]) -> list[Written]:
    """The calls up to the first repeat."""
    equal = {A: EQUAL}
    seen: list[Written] = []
    for name, arguments in calls:
        if (name, equal.get(arguments, arguments)) in [(n, equal.get(a, a)) for n, a in seen]:
            break
        seen.append((name, arguments))
    return seen


written = st.lists(st.tuples(st.sampled_from(["f", "g"]), st.sampled_from([A, EQUAL, B, "{}"])), max_size=5)


@given(written, st.lists(st.integers(1, 9), max_size=20))
def test_an_answer_is_over_at_the_first_repeat(calls: list[Written], reads: list[int]) -> None:
    bench = Bench()
    out = bench.through(answer(*calls), reads)
    wanted = naive(calls)
    assert made(out) == wanted
    assert bool(bench.dropped) is (wanted != calls)
    last = out[-1]
    assert isinstance(last, Finish)
    assert last.reason == ("length" if wanted == calls else "tool_calls")
    reply = fold(answer(*calls))
    assert (Bench().stage.whole(reply) is reply) is (wanted == calls)
    assert made(Bench().through(unfold(reply))) == wanted, "a whole answer as well"


def test_the_first_call_of_a_name_passes_as_it_comes() -> None:
    bench = Bench()
    assert bench.stage.feed([Start("r", "m", 1)])
    for event in (*call(0, "f", A), *call(1, "g", A)):
        assert bench.stage.feed([event]) == [event]
    *begun, closed = call(2, "f", B)
    for event in begun:
        assert bench.stage.feed([event]) == []
    assert bench.stage.feed([closed]) == [*begun, closed]
    *begun, closed = call(3, "f", EQUAL)
    assert all(bench.stage.feed([event]) == [] for event in begun)
    (finish,) = bench.stage.feed([closed])
    assert isinstance(finish, Finish)
    assert bench.stage.feed([*call(4, "h", B), Finish()]) == []


def test_counts_are_the_servers_where_it_has_counted() -> None:
    whole = Bench().through(answer(("f", A), ("f", A)))[-1]
    assert isinstance(whole, Finish)
    assert whole.usage == Usage(9, 4)
    streamed = Bench().through(answer(("f", A), ("f", A)), [1] * 99)[-1]
    assert isinstance(streamed, Finish)
    assert streamed.usage == Usage(100, 2 * len(A) // 4, estimated=True, tokenizer="bytes")


def test_text_before_a_repeat_stays() -> None:
    parts = (Reasoning("Hm."), Text("Let me see."), ToolUse("1", "f", A), ToolUse("2", "f", A), Text("And"))
    events = unfold(ModelReply("r", "m", 1, (ReplyChoice(parts, "stop"),), Usage(3, 2)))
    assert fold(Bench().through(events)).choices[0].parts == parts[:3]


@every("reads", [[1] * 40, []])
def test_calls_that_come_at_once(reads: list[int]) -> None:
    """Servers may open several calls before one ends."""
    one, two, three = (call(number, "f", arguments) for number, arguments in enumerate((A, B, EQUAL)))
    mixed = [one[0], two[0], three[0], *one[1:-1], *three[1:-1], *two[1:-1], one[-1], two[-1], three[-1]]
    out = Bench().through([Start("r", "m", 1), *mixed, Finish("tool_calls")], reads)
    assert made(out) == [("f", A), ("f", B)]


def test_what_is_cut_off_or_fails_is_no_repeat() -> None:
    *begun, _ = call(1, "f", A)
    for end in (Close(1, "truncated"), None):
        events = [Start("r", "m", 1), *call(0, "f", A), *begun, *([end] if end else [])]
        last: Event = Finish("length") if end else Fault(BackendFault("gone", code="upstream_disconnected"))
        bench = Bench()
        assert bench.through([*events, last], [1] * 40) == [*events, last]
        assert not bench.dropped
    cut = [Start("r", "m", 1), *call(0, "f", A)[:-1], Close(0, "truncated"), *call(1, "f", A), Finish()]
    assert len(made(Bench().through(cut))) == 2, "nor does anything repeat it"


def test_each_of_several_answers_ends_by_itself() -> None:
    events: list[Event] = [Start("r", "m", 1)]
    events += [*call(0, "f", A), *call(1, "f", A, choice=1), *call(2, "f", A), *call(3, "f", B, choice=1)]
    out = Bench(2).through([*events, *call(4, "f", B), Finish("length", None, ("stop",))], [1] * 99)
    reply = fold(out)
    assert [[u.arguments for u in c.parts if isinstance(u, ToolUse)] for c in reply.choices] == [[A], [A, B]]
    assert [choice.reason for choice in reply.choices] == ["tool_calls", "stop"]
    more = [*events, *call(4, "f", A, choice=1), *call(5, "f", "{}", choice=1), Finish("length", None, ("length",))]
    out = Bench(2).through(more, [1] * 99)
    assert [choice.reason for choice in fold(out).choices] == ["tool_calls", "tool_calls"]
    assert out[-2] == Close(3)


@every(
    ("one", "other", "equal"),
    [
        ('{"a": 1}', '{ "a":1 }', True),
        ("", "{}", True),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": 1}', '{"a": 1.0}', False),
        ('{"a": 100000000000000000001}', '{"a": 100000000000000000002}', False),
        ('{"a": "1"}', '{"a": 1}', False),
        ("free text", "free text", True),
        ("free text", "free  text", False),
    ],
)
def test_what_is_equal(one: str, other: str, equal: bool) -> None:
    assert len(made(Bench().through(answer(("f", one), ("f", other))))) == 2 - equal
