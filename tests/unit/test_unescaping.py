"""Escapes of a prompt, undone in the events of its answer (R5.6a)."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cases import examples
from tests.formats.cases import inside
from tests.strategies import split
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.formats.base import ToolFormat
from toolwire.formats.engine.results import Escapes
from toolwire.formats.families import bare_json, messages, qwen, sentinel
from toolwire.formats.recognised import auto
from toolwire.model import Message, ModelReply, ModelRequest, Reasoning, ReplyChoice, Text, ToolResult, ToolUse
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.transforms.block_texts import UnescapeStage
from toolwire.prompting.transcript import inject

FORMATS = [sentinel.FORMAT, bare_json.FORMAT, messages.FUNCTIONARY, qwen.QWEN3_CODER, auto.FORMAT]
of_formats = pytest.mark.parametrize("tool_format", FORMATS, ids=lambda f: f.name)


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def prompt(tool_format: ToolFormat, *texts: str) -> tuple[list[str], Escapes]:
    """How results with these texts are shown, and what was escaped in them."""
    escapes = Escapes()
    shown = []
    called = Message("assistant", (ToolUse("c", "f", "{}"),))
    for text in texts:
        talk = (called, Message("tool", (ToolResult("c", (Text(text),)),)))
        *_, result = inject(ModelRequest("m", talk), "", tool_format, escapes=escapes).messages
        shown.append(inside(tool_format, result.text, ToolResult("c", ())))
    return shown, escapes


def through(escapes: Escapes, kind: BlockKind, pieces: list[str], *, custom: bool = False) -> str:
    """What comes out of the stage, of one block that comes in these pieces."""
    opened = Open(1, kind, name="f", call_id="c", call_kind="custom" if custom else "function")
    stage = UnescapeStage(escapes)
    events = [Start("r", "m", 0), opened, *(Delta(1, piece) for piece in pieces), Close(1), Finish()]
    out = [event for fed in events for event in stage.feed([fed])]
    assert [type(event) for event in out if not isinstance(event, Delta)] == [Start, Open, Close, Finish]
    return text_of(out)


WORDS = [
    *("<tool_call>", "</tool_call>", "</tool_response>", "<|im_end|>", "</parameter>", "\n>>>f", '{"name":', "<|", ">>"),
    *(r"<\/tool_call>", r"<\\/tool_call>", r'{\"name"', "\\", "\\\\", "<", "\n", '"', "x", "é", "\U0001f600"),
]  # fmt: skip
hostile = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)


@of_formats
@examples(0.4)
@given(texts=st.lists(hostile, min_size=1, max_size=3), cuts=st.lists(st.integers(0, 300), max_size=6))
@example(texts=['\U0001f600\\{"name"'], cuts=[])  # JSON spells its first character as two
def test_what_is_copied_comes_out_as_it_was(tool_format: ToolFormat, texts: list[str], cuts: list[int]) -> None:
    shown, escapes = prompt(tool_format, *texts)
    for copy, text in zip(shown, texts, strict=True):
        for kind in (BlockKind.TEXT, BlockKind.REASONING, BlockKind.REFUSAL):
            assert through(escapes, kind, split(copy, cuts)) == text
        assert through(escapes, BlockKind.TOOL_CALL, list(copy), custom=True) == text
        for ascii in (False, True):
            arguments = json.dumps({"a": [copy, 1], "b": copy}, ensure_ascii=ascii)
            for pieces in (split(arguments, cuts), list(arguments)):
                assert json.loads(through(escapes, BlockKind.TOOL_CALL, pieces)) == {"a": [text, 1], "b": text}


@of_formats
@examples(0.4)
@given(shown=hostile, own=hostile, cuts=st.lists(st.integers(0, 300), max_size=6))
def test_what_was_never_escaped_so_stays(tool_format: ToolFormat, shown: str, own: str, cuts: list[int]) -> None:
    """Of the model's own text nothing changes but what looks exactly like an escape that the prompt has."""
    _, escapes = prompt(tool_format, shown)
    out = through(escapes, BlockKind.TEXT, split(own, cuts))
    if out != own:
        forms = {f"{first}{chr(92) * n}{rest or ''}" for first, n, rest in escapes.forms}
        assert any(form in own for form in forms)
    _, none = prompt(tool_format, "nothing of the kind")
    assert not none
    _, other = prompt(tool_format, "</tool_response>")
    assert through(other, BlockKind.TEXT, split(own, cuts)) == own


def test_backslashes_are_counted() -> None:
    _, escapes = prompt(sentinel.FORMAT, r"<\/tool_call>")
    assert escapes.forms == {("<", 2, "/tool_call>")}
    assert through(escapes, BlockKind.TEXT, list(r"<\/tool_call> <\\/tool_call> <\\\/tool_call>")) == (
        r"<\/tool_call> <\/tool_call> <\\\/tool_call>"
    )


def test_earlier_arguments_with_escapes_are_copied_too() -> None:
    """In tags a value stands as it is, so what would end it is escaped there."""
    inner = "a\n</parameter>\n</function>\n</tool_call><|im_end|>"
    escapes = Escapes()
    use = ToolUse("c", "f", json.dumps({"x": inner}))
    sent = inject(ModelRequest("m", (Message("assistant", (use,)),)), "", qwen.QWEN3_CODER, escapes=escapes)
    copy = sent.messages[0].text.partition("<parameter=x>\n")[2].rpartition("\n</parameter>")[0]
    assert copy != inner
    assert json.loads(through(escapes, BlockKind.TOOL_CALL, list(json.dumps({"x": copy})))) == {"x": inner}


def test_what_is_held_comes_before_a_fault() -> None:
    _, escapes = prompt(sentinel.FORMAT, "</tool_call>")
    fault = Fault(BackendFault("gone", code="upstream_disconnected"))
    out = UnescapeStage(escapes).feed([Start("r", "m", 0), Open(1, BlockKind.TEXT), Delta(1, r"a <\/tool_"), fault])
    assert out[-1] is fault
    assert text_of(out) == r"a <\/tool_"


async def test_a_whole_answer_without_a_backslash_is_left_alone() -> None:
    _, escapes = prompt(sentinel.FORMAT, "</tool_call>")
    stage = UnescapeStage(escapes)
    for part, leaves in (
        (Text("plain"), True),
        (Text(r"<\/tool_call>"), False),
        (Reasoning(r"\ "), False),
        (ToolUse("c", "f", '{"a":1}'), True),
        (ToolUse("c", "f", r'{"a":"\n"}'), False),
    ):
        answer = ModelReply("r", "m", 0, (ReplyChoice((part,)),))
        assert (stage.whole(answer) is answer) is leaves
    reply = Reply.of([Start("r", "m", 0), Open(1, BlockKind.TEXT), Delta(1, r"<\/tool_call>"), Close(1), Finish()])
    reply.streamed = False
    reply.map(stage)
    assert (await reply.whole()).choices[0].parts == (Text("</tool_call>"),)
