"""Laws of several answers as one (toolwire.pipeline.transforms.model_turns): whatever a model says in however many
rounds, and however it is cut."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold
from toolwire.model import Text, ToolUse, Usage
from toolwire.pipeline.exchange.tool_memory import is_marked
from toolwire.pipeline.transforms.model_turns import LoopState, ModelTurn
from toolwire.stream_grammar import check, normalise

OURS = "ours"


@dataclass(frozen=True)
class Piece:
    """One block of an answer."""

    kind: BlockKind
    text: str
    name: str | None = None
    live: bool = False
    cut: bool = False


texts = st.builds(Piece, st.sampled_from([BlockKind.TEXT, BlockKind.REASONING]), st.text(max_size=5))
calls = st.builds(
    Piece,
    st.just(BlockKind.TOOL_CALL),
    st.sampled_from(["{}", '{"a":1}']),
    st.sampled_from([OURS, "look"]),
    st.booleans(),
    st.sampled_from([False, False, True]),
)
answers = st.lists(st.lists(texts | calls, max_size=5), min_size=1, max_size=4)


def events_of(number: int, pieces: Sequence[Piece]) -> list[Event]:
    out: list[Event] = [Start(f"chatcmpl-{number}", "m", 1)]
    for block, piece in enumerate(pieces):
        call = piece.kind is BlockKind.TOOL_CALL
        extra = {"live": True} if piece.live else {}
        call_id = f"call_{number}_{block}" if call else None
        out.append(Open(block, piece.kind, name=piece.name, call_id=call_id, extra=extra))
        out += [Delta(block, char) for char in piece.text]
        out.append(Close(block, "truncated" if piece.cut else "complete"))
    return [*out, Finish("stop", Usage(10, 1))]


def batches(events: list[Event], cuts: Sequence[int]) -> list[list[Event]]:
    edges = sorted({0, len(events), *(cut % (len(events) + 1) for cut in cuts)})
    return [events[a:b] for a, b in itertools.pairwise(edges)]


def played(
    script: Sequence[Sequence[Piece]], cuts: Sequence[int], **options: Any
) -> tuple[list[Event], list[ModelTurn]]:
    """What the client sees of these answers, and the rounds; the last answer ends it whatever it holds."""
    state, rounds, seen = LoopState(), [], list[Event]()
    for number, pieces in enumerate(script):
        answer = ModelTurn(state, lambda opened: opened.name == OURS, **options)
        rounds.append(answer)
        for batch in batches(events_of(number, pieces), cuts):
            seen += answer.feed(batch)
        assert answer.over
        if not answer.calls or answer.asks_client:
            break
    seen += rounds[-1].held
    assert rounds[-1].finish is not None
    return [*seen, Finish("stop", state.usage)], rounds


@given(answers, st.lists(st.integers(0, 100), max_size=6), st.booleans(), st.booleans())
def test_law_one_well_formed_stream(script: Any, cuts: list[int], exposes: bool, marks: bool) -> None:
    seen, rounds = played(script, cuts, exposes=exposes, marks=marks)
    check(seen)
    assert sum(isinstance(event, Start) for event in seen) == 1
    used = script[: len(rounds)]
    reply = fold(seen)
    assert reply.usage == Usage(10 * len(used), len(used))
    names = [(piece.name, piece.text) for pieces in used for piece in pieces if piece.kind is BlockKind.TOOL_CALL]
    shown = [(use.name, use.arguments) for use in reply.calls]
    assert shown == [call for call in names if exposes or call[0] != OURS]
    said = ["".join(p.text for p in pieces if p.kind is BlockKind.TEXT) for pieces in used]
    assert reply.text.replace("\n\n", "") == "".join(said).replace("\n\n", "")


@given(answers, st.lists(st.integers(0, 100), max_size=6), st.booleans())
def test_law_the_cuts_change_nothing(script: Any, cuts: list[int], exposes: bool) -> None:
    whole, _ = played(script, [], exposes=exposes)
    cut, _ = played(script, cuts, exposes=exposes)
    assert normalise(cut) == normalise(whole)


@given(answers)
def test_law_what_is_run_is_what_was_whole(script: Any) -> None:
    _, rounds = played(script, [])
    for pieces, answer in zip(script, rounds, strict=False):
        whole = [(p.name, p.text) for p in pieces if p.name == OURS and not p.cut]
        assert [(use.name, use.arguments) for use in answer.calls] == whole
        parts = answer.parts()
        assert [(part.name, part.arguments) for part in parts if isinstance(part, ToolUse)] == whole
        said = "".join(p.text for p in pieces if p.kind is BlockKind.TEXT)
        assert "".join(part.text for part in parts if isinstance(part, Text)) == said


@given(answers, st.lists(st.integers(0, 100), max_size=6))
def test_law_calls_of_the_client_wait_for_those_of_the_gateway(script: Any, cuts: list[int]) -> None:
    """Unless they are given out while they come."""
    state = LoopState()
    answer = ModelTurn(state, lambda opened: opened.name == OURS)
    given_out = [event for batch in batches(events_of(0, script[0]), cuts) for event in answer.feed(batch)]
    opened = [event for event in given_out if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL]
    assert all(event.extra.get("live") for event in opened)


@given(answers)
def test_law_the_first_call_of_the_client_leads_back(script: Any) -> None:
    seen, rounds = played(script, [], marks=True)
    if rounds[-1].asks_client:
        first = rounds[-1].mark()
        assert is_marked(first)
        ids = [event.call_id for event in seen if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL]
        assert ids[0] == first


def test_what_was_held_comes_before_a_fault() -> None:
    answer = ModelTurn(LoopState(), lambda opened: opened.name == OURS)
    *events, _ = events_of(0, [Piece(BlockKind.TOOL_CALL, "{}", "look"), Piece(BlockKind.TEXT, "so")])
    fault = Fault(BackendFault("gone"))
    seen = answer.feed([*events, fault])
    check(seen)
    assert seen[-1] is fault
    assert [use.name for use in fold([*seen[:-1], Finish()]).calls] == ["look"]
