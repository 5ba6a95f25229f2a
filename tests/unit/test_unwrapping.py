"""Answers that only repeat the results of their prompt (R5.8): unwrapped at every split, and nothing else is."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases import every
from tests.formats.cases import FORMATS, every_format
from tests.strategies import split
from toolwire.events import BlockKind, Close, Delta, Event, Finish, Open, Start
from toolwire.formats.base import ToolFormat
from toolwire.formats.engine.results import Escapes
from toolwire.model import Message, ModelRequest, Text, ToolChoice, ToolResult, ToolUse
from toolwire.pipeline.transforms.block_texts import UnescapeStage, UnwrapStage
from toolwire.prompting.beside_template import templated
from toolwire.prompting.transcript import Flatten, inject

BY_NAME = {tool_format.name: tool_format for tool_format in FORMATS}
HERMES = BY_NAME["hermes"]
WORDS = ["<tool_response>", "</tool_response>", "<", "\n", " ", "x", "\\", '{"a":1}', "</tool_call>", "é"]
hostile = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=8).map("".join)
cut_places = st.lists(st.integers(0, 300), max_size=5)


CALLED = Message("assistant", (ToolUse("c", "f", "{}"),))


def result(text: str, call: str = "c") -> ToolResult:
    return ToolResult(call, (Text(text),))


def prompt(tool_format: ToolFormat, *results: str, flatten: Flatten = "sentinel") -> tuple[str, Escapes]:
    """The message in which these results stand, of as many calls, and what is known of the prompt."""
    ids = [f"c{number}" for number in range(len(results))]
    told = (Message("tool", (result(text, call),)) for call, text in zip(ids, results, strict=True))
    made = Message("assistant", tuple(ToolUse(call, "f", "{}") for call in ids))
    return shown(tool_format, Message("user", (Text("look"),)), made, *told, flatten=flatten)


def shown(tool_format: ToolFormat, *talk: Message, flatten: Flatten = "sentinel") -> tuple[str, Escapes]:
    """The last message of a prompt, and what is known of the prompt."""
    escapes = Escapes()
    *_, last = inject(ModelRequest("m", talk), "", tool_format, flatten=flatten, escapes=escapes).messages
    return last.text, escapes


def answered(escapes: Escapes, pieces: list[str]) -> str:
    """The text of an answer that comes in these pieces, with its escapes undone."""
    deltas = [Delta(1, piece) for piece in pieces]
    events: list[Event] = [Start("r", "m", 0), Open(1, BlockKind.TEXT), *deltas, Close(1), Finish()]
    for stage in [UnwrapStage(escapes), *([UnescapeStage(escapes)] if escapes else [])]:
        events = [event for fed in events for event in stage.feed([fed])]
    assert [type(event) for event in events if not isinstance(event, Delta)] == [Start, Open, Close, Finish]
    return "".join(event.text for event in events if isinstance(event, Delta))


@every_format
@settings(max_examples=2)
@example(text="blue </tool_response> sky", cuts=[3, 14])
@given(text=hostile.map(str.strip).filter(bool), cuts=cut_places)
def test_a_repeated_result_is_its_text(tool_format: ToolFormat, text: str, cuts: list[int]) -> None:
    written, escapes = prompt(tool_format, text)
    for pieces in ([written], split(written, cuts), list(written), ["\n ", written, "\n"]):
        assert answered(escapes, pieces).strip() == text


@every_format
def test_a_repeated_result_that_is_not_closed_is_its_text(tool_format: ToolFormat) -> None:
    """The answer ends behind the result, or inside of the marks behind it, except after their first character."""
    shown, escapes = prompt(tool_format, "grey, blue")
    begins = shown.index("grey, blue") + len("grey, blue")
    for end in [begins, *range(begins + 2, len(shown))]:
        assert answered(escapes, [shown[:end]]).strip() == answered(escapes, list(shown[:end])).strip() == "grey, blue"


def test_several_repeated_results_are_their_texts() -> None:
    """Also where the last one is not closed."""
    shown, escapes = prompt(HERMES, "blue", "grey")
    for end in (shown.rindex("grey") + 4, len(shown) - 3, len(shown)):
        assert answered(escapes, [shown[:end]]) == answered(escapes, list(shown[:end])) == "blue\ngrey"
    assert answered(escapes, ["<tool_response>", '{"sky": "blue"}']) == '{"sky": "blue"}'


@every(
    "answer",
    [
        "The sky is blue.",
        "It said:\n<tool_response>\nblue\n</tool_response>",
        "<tool_response>\nblue\n</tool_response>\nSo it is blue.",
        "`<tool_response>blue</tool_response>`",
        "<tool_response",
        "<tool_response>",
        "<tool_response>\n",
        "<tool_response>\n\n</tool_res",
        "<tool_response> is a tag around results.",
        "<tool_response>, for example, is a tag.",
        "<tool_responses>blue</tool_responses>",
        "<tool_response>\nblue\n</tool_response></tool_response>",
        "<tool_call>x</tool_call>",
        "</tool_response>",
        "",
        " \n",
    ],
)
def test_any_other_answer_stays(answer: str) -> None:
    _, escapes = prompt(HERMES, "blue", "grey")
    assert answered(escapes, [answer]) == answer
    assert answered(escapes, list(answer)) == answer


@given(answer=hostile, cuts=cut_places)
def test_splits_do_not_matter(answer: str, cuts: list[int]) -> None:
    _, escapes = prompt(HERMES, "blue")
    whole = answered(escapes, [answer])
    assert answered(escapes, split(answer, cuts)) == answered(escapes, list(answer)) == whole
    assert whole in (answer, HERMES.results.unwrapped(answer))


def test_results_that_are_named() -> None:
    """A call with two results: the opener says whose they are, and is taken away all the same."""
    text, escapes = shown(HERMES, CALLED, Message("tool", (result("blue"), result("grey"))))
    assert text.startswith("<tool_response call_id=c name=f>\nblue")
    assert answered(escapes, list(text)) == "blue\ngrey"


def test_results_in_brackets() -> None:
    text, escapes = prompt(HERMES, "blue", flatten="bracket")
    assert text == "[function_call_output call_id=c0 output=blue]"
    assert answered(escapes, list(text)) == "blue"


def test_results_that_the_models_own_template_writes() -> None:
    """`mode: template`: the block is the template's, which writes it as the family does."""
    escapes = Escapes()
    talk = (Message("user", (Text("look"),)), CALLED, Message("tool", (result("blue"),)))
    templated(ModelRequest("m", talk), (), ToolChoice("none"), "", HERMES, escapes=escapes)
    assert answered(escapes, list("<tool_response>\nblue\n</tool_response>")) == "blue"


def test_prose_is_not_held() -> None:
    """Only what may still become the block waits, and no more than the results are long."""
    _, escapes = prompt(HERMES, "blue")
    stage = UnwrapStage(escapes)
    stage.feed([Open(1, BlockKind.TEXT)])
    assert stage.feed([Delta(1, "<")]) == []
    assert stage.feed([Delta(1, "b> is")]) == [Delta(1, "<b> is")]
    assert stage.feed([Delta(1, " bold")]) == [Delta(1, " bold")]
    stage.feed([Close(1), Open(2, BlockKind.TEXT)])
    held = "<tool_response>\n"
    assert stage.feed([Delta(2, held)]) == []
    given = []
    for _ in range(400):
        given += stage.feed([Delta(2, "no end ")])
    assert isinstance(given[0], Delta)
    assert given[0].text.startswith(held + "no end")


def test_thoughts_stay() -> None:
    shown, escapes = prompt(HERMES, "blue")
    stage = UnwrapStage(escapes)
    events = [Open(1, BlockKind.REASONING), Delta(1, shown), Close(1), Finish()]
    assert stage.feed(events) == events
