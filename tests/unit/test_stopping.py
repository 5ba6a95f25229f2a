"""Stop sequences, however a text is cut: what goes on, what is named."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import cuts
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold, unfold
from toolwire.model import ModelReply, Reasoning, ReplyChoice, Text, ToolUse, Usage
from toolwire.pipeline.transforms.stopping import StopStage
from toolwire.stream_grammar import check


def naive(text: str, sequences: list[str]) -> tuple[str, str | None]:
    """The text up to the sequence that is complete first, of several the longest."""
    for end in range(len(text) + 1):
        ended = [sequence for sequence in sequences if text[:end].endswith(sequence)]
        if ended:
            longest = max(ended, key=len)
            return text[: end - len(longest)], longest
    return text, None


def answer(pieces: list[str]) -> list[list[Event]]:
    """As it comes, read by read."""
    begin: list[Event] = [Start("r", "m", 1), Open(0, BlockKind.TEXT)]
    return [begin, *([Delta(0, piece)] for piece in pieces), [Close(0), Finish("stop", Usage(9, 4))]]


def through(stage: StopStage, reads: list[list[Event]]) -> list[Event]:
    return [event for events in reads for event in stage.feed(events)]


small = st.text("ab#", max_size=12)


@given(st.data(), small, st.lists(st.text("ab#", min_size=1, max_size=4), min_size=1, max_size=3))
@example(None, "aab", ["ab", "aab"])
@example(None, "a#ab", ["#b", "ab"])
def test_the_sequence_that_is_complete_first_ends_it(
    data: st.DataObject | None, text: str, sequences: list[str]
) -> None:
    reads = answer([*text] if data is None else data.draw(cuts(text)))
    untouched = fold([event for read in reads for event in read])
    out = through(StopStage(sequences, 40), reads)
    check(out)
    for reply in (fold(out), fold(through(StopStage(sequences, 40), [unfold(untouched)]))):
        assert (reply.text, reply.choices[0].stop_sequence) == naive(text, sequences)
    assert (StopStage(sequences, 40).whole(untouched) is untouched) is (naive(text, sequences)[1] is None)


def test_nothing_is_held_but_what_may_become_one() -> None:
    stage = StopStage(["\n\nUser:"], 40)
    stage.feed([Start("r", "m", 1), Open(0, BlockKind.TEXT)])
    plain = Delta(0, "Hello.")
    assert stage.feed([plain]) == [plain]
    assert stage.feed([Delta(0, " A\n")]) == [Delta(0, " A")]
    assert stage.feed([Delta(0, "\nUs")]) == []
    assert stage.feed([Delta(0, "ed.")]) == [Delta(0, "\n\nUsed.")]
    assert stage.feed([Delta(0, "\n\nUser: x"), Delta(0, "y")]) == [
        Close(0),
        Finish("stop", Usage(10, 6, estimated=True, tokenizer="bytes"), choices=({"stop_sequence": "\n\nUser:"},)),
    ]
    assert stage.feed([Delta(0, "late"), Close(0), Finish()]) == []


def test_only_text_is_looked_at() -> None:
    parts = (Reasoning("a # b"), ToolUse("c", "f", '{"a":"#"}'), Text("x # y"))
    events = unfold(ModelReply("r", "m", 1, (ReplyChoice(parts, "tool_calls"),), Usage(3, 2)))
    reply = fold(StopStage(["#"], 1).feed(events))
    assert reply.choices[0].parts == (*parts[:2], Text("x "))
    assert reply.usage == Usage(3, 2)  # the server has counted by then


def test_what_is_held_when_it_breaks_off_is_shown() -> None:
    stage = StopStage(["##"], 1)
    fault = Fault(BackendFault("gone"))
    assert stage.feed([Start("", "", 0), Open(0, BlockKind.TEXT), Delta(0, "a#"), fault])[2:] == [
        Delta(0, "a"),
        Delta(0, "#"),
        fault,
    ]


def test_the_gateways_own_is_not_named() -> None:
    events = unfold(ModelReply("r", "m", 1, (ReplyChoice((Text("a ##"),), "length"),), Usage(3, 2)))
    for stage, said in (
        (StopStage(["#", "b"], 1, own=["##", "b"]), ("a ", "#", "stop")),
        (StopStage([], 1, own=["##"]), ("a ", None, "stop")),
    ):
        reply = fold(stage.feed(list(events)))
        assert (reply.text, reply.choices[0].stop_sequence, reply.choices[0].reason) == said


@given(st.data(), st.lists(small, min_size=2, max_size=3))
def test_each_of_several_answers_ends_at_its_own(data: st.DataObject, texts: list[str]) -> None:
    """However their pieces come, mixed."""
    blocks = [(at, list(data.draw(cuts(text)))) for at, text in enumerate(texts)]
    stage = StopStage(["#b", "ab"], 1, choices=len(texts))
    reads: list[list[Event]] = [[Start("r", "m", 1), *(Open(at, BlockKind.TEXT, choice=at) for at, _ in blocks)]]
    while left := [(at, pieces) for at, pieces in blocks if pieces]:
        at, pieces = data.draw(st.sampled_from(left))
        reads.append([Delta(at, pieces.pop(0))])
    ends: list[Event] = [Close(at) for at, _ in blocks]
    reads.append([*ends, Finish("length", Usage(9, 4), ("length",) * (len(texts) - 1))])
    out = through(stage, reads)
    check(out)
    found = [(choice.parts, choice.stop_sequence, choice.reason) for choice in fold(out).choices]
    for text, (parts, sequence, reason) in zip(texts, found, strict=False):
        shown, named = naive(text, ["#b", "ab"])
        assert ("".join(part.text for part in parts if isinstance(part, Text)), sequence) == (shown, named)
        assert reason == ("length" if named is None else "stop")
