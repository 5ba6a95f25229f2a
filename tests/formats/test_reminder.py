"""The line at the end of what the user says (R23.7), and how a model sees its own attempts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.cases import every
from tests.formats.cases import FORMATS, SEARCH, WEATHER
from toolwire.config import PromptConfig
from toolwire.formats.base import ToolFormat, call_form
from toolwire.formats.families import hermes, sentinel
from toolwire.model import (
    Attempt,
    Image,
    Message,
    ModelRequest,
    Part,
    Reasoning,
    Role,
    Text,
    ToolChoice,
    ToolResult,
    ToolUse,
)
from toolwire.prompting.placing import GO_ON
from toolwire.prompting.prompt import REMINDER, reminder
from toolwire.prompting.transcript import inject

LINE = "Remember."
CALL = Message("assistant", (ToolUse("c1", "search", "{}"),))
RESULT = Message("tool", (ToolResult("c1", (Text("found"),)),))
HI = Message("user", (Text("hi"),))


def line(chosen: Any, choice: ToolChoice | None = None, tool_format: ToolFormat = sentinel.FORMAT) -> str:
    asked = ModelRequest("m", (HI,), (SEARCH, WEATHER), choice or ToolChoice())
    return reminder(asked, tool_format, PromptConfig(reminder=chosen))


def reminded(*messages: Message, **more: Any) -> list[Message]:
    asked = ModelRequest("m", messages, (SEARCH,))
    with_line = inject(asked, "SEGMENT", sentinel.FORMAT, reminder=LINE, **more).messages
    without = inject(asked, "SEGMENT", sentinel.FORMAT, **more).messages
    assert len(with_line) == len(without)
    changed = [new for new, old in zip(with_line, without, strict=True) if new != old]
    assert len(changed) <= 1
    if changed:
        assert changed[0] is with_line[-1]
    assert asked.messages == messages, "what came in is left alone"
    return changed


def test_what_it_says() -> None:
    assert line(False) == line("off") == line("") == ""
    assert line(True) == line("on") == REMINDER
    assert "a tool" in line(True, ToolChoice("required"))
    assert f"`{WEATHER.name}`" in line(True, ToolChoice("named", WEATHER.name))
    assert line(True, ToolChoice("none")) == "", "nothing can be called"
    assert line("{tools} {x}") == f"`{SEARCH.name}`, `{WEATHER.name}` {{x}}"
    only = ToolChoice(allowed=frozenset({WEATHER.name}))
    assert line("{tools}", only) == f"`{WEATHER.name}`"
    of_group = ModelRequest("m", (HI,), (replace(SEARCH, namespace="web"),))
    named = reminder(of_group, sentinel.FORMAT, PromptConfig(reminder="{tools}"))
    assert named == f"`web__{SEARCH.name}`", "as the list names it"


@every("tool_format", FORMATS)
def test_a_call_as_it_is_written(tool_format: ToolFormat) -> None:
    assert line("Like {format}!", tool_format=tool_format) == f"Like {call_form(tool_format)}!"


@every(
    ("parts", "said"),
    [
        ((Text("hi"),), (Text(f"hi\n\n{LINE}"),)),
        ((Text(""),), (Text(LINE),)),
        ((Image("u"),), (Image("u"), Text(LINE))),
        ((Text("a"), Image("u"), Text("b")), (Text("a"), Image("u"), Text(f"b\n\n{LINE}"))),
    ],
)
@every("before", [(), (Message("system", (Text("s"),)),), (HI, CALL, RESULT)])
def test_where_it_stands(parts: tuple[Part, ...], said: tuple[Part, ...], before: tuple[Message, ...]) -> None:
    ((last),) = reminded(*before, Message("user", parts, "me", {"x": 1}))
    assert (last.role, last.parts, last.name, last.extra) == ("user", said, "me", {"x": 1})


@pytest.mark.parametrize("placement", ["append", "prepend", "separate", "user"])
def test_with_every_placement_of_the_segment(placement: Any) -> None:
    (last,) = reminded(HI, placement=placement)
    assert last.text.endswith(f"hi\n\n{LINE}")


@every(
    "messages",
    [(HI, CALL, RESULT), (HI, Message("assistant", (Text("so"),))), (Message("system", (Text("s"),)),), ()],
)
@every("flatten", ["sentinel", "bracket", "native"])
def test_where_the_user_does_not_speak_last_there_is_none(messages: tuple[Message, ...], flatten: Any) -> None:
    assert reminded(*messages, flatten=flatten) == []
    if flatten != "native":
        last = inject(
            ModelRequest("m", messages, (SEARCH,)), "S", sentinel.FORMAT, flatten=flatten, reminder=LINE
        ).messages[-1]
        assert LINE not in last.text
        assert last.text == GO_ON or RESULT in messages


def test_results_and_words_of_the_user_in_one_message() -> None:
    both = Message("user", (ToolResult("c1", (Text("found"),)), Text("and now?")))
    (last,) = reminded(HI, CALL, both)
    assert last.text == f"and now?\n\n{LINE}"
    assert reminded(HI, CALL, Message("user", both.parts[:1])) == []


@pytest.mark.parametrize("silent", [Message("assistant", (Reasoning("", {"id": "r"}),))])
def test_what_says_nothing_is_not_the_last(silent: Message) -> None:
    asked = ModelRequest("m", (HI, silent), (SEARCH,))
    messages = inject(asked, "S", sentinel.FORMAT, reminder=LINE).messages
    assert [message.text for message in messages if message.role == "user"] == [f"hi\n\n{LINE}"]


def test_an_attempt_keeps_its_own_markers_and_no_others() -> None:
    text = "<tool_call>{</tool_call> <think>x</think> <|im_end|> [TOOL_CALLS] <tool_response>"

    def shown(part: Text, tool_format: ToolFormat = hermes.FORMAT, role: Role = "assistant") -> str:
        asked = ModelRequest("m", (HI, Message(role, (part,)), HI), (SEARCH,))
        return inject(asked, "S", tool_format).messages[2].text

    own = shown(Attempt(text))
    assert own.startswith("<tool_call>{</tool_call>")
    assert shown(Text(text)).startswith("<\\tool_call>{<\\/tool_call>")
    assert own.removeprefix("<tool_call>{</tool_call>") == shown(Text(text)).removeprefix(
        "<\\tool_call>{<\\/tool_call>"
    )
    assert "<|im_end|>" not in own
    assert "<tool_response>" not in own
