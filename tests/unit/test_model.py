"""The model's classes: values, immutable for the type checker, and here (see `conftest.py`)."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given

from tests.cases import every, examples
from tests.strategies import rich_replies
from toolwire.known.kinds import kinds_of
from toolwire.model import (
    EMPTY,
    Image,
    Message,
    ModelReply,
    ModelRequest,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
    fields_of,
    merged,
    replace,
    scoped,
)


def test_nothing_is_assigned_to() -> None:
    request = ModelRequest("m", (Message("user", (Text("hello"),)),))
    with pytest.raises(FrozenInstanceError):
        request.model = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        request.unknown = "field"  # type: ignore[attr-defined]
    assert replace(request, model="other").model == "other"
    assert request.model == "m"


@examples(0.4)
@given(rich_replies)
def test_a_copy_is_that_of_dataclasses(reply: ModelReply) -> None:
    assert replace(reply, model="other") == dataclasses.replace(reply, model="other")
    for part in reply.choices[0].parts:
        assert replace(part) == part
        assert type(replace(part)) is type(part)
        with pytest.raises(TypeError):
            replace(part, unknown="field")  # type: ignore[call-arg]


def test_messages_are_plain_by_what_they_hold() -> None:
    said, silent = Message("user", (Text("hello"),)), Message("assistant", ())
    assert Message not in kinds_of((said, silent))
    assert Message in kinds_of((said, Message("user", (Text("a"), Text("b")))))
    assert Message in kinds_of((Message("user", (Text("a", {"chat": {}}),)),))
    assert kinds_of((Message("assistant", (ToolUse("c", "f", "{}"),)),)) == {Message, ToolUse}


@every("part", [Text("a"), Refusal("a"), Image("u"), Reasoning("a"), ToolUse("c", "f", "{}"), ToolResult("c", ())])  # fmt: skip
def test_every_part_has_room_for_what_is_not_modelled(part: Text) -> None:
    assert part.extra is EMPTY
    said = replace(part, extra={"messages": {"cache_control": {"type": "ephemeral"}}})
    assert said != part
    assert hash(said) == hash(part)  # it is not looked at, so values with fields are keys as well
    with pytest.raises(AttributeError):
        part.__dict__  # noqa: B018  # slotted: they are made for every message


def test_nothing_is_ever_written_into_no_fields() -> None:
    for write in (lambda: EMPTY.__setitem__("a", 1), lambda: EMPTY.update(a=1), lambda: EMPTY.setdefault("a", 1)):  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="EMPTY"):
            write()
    assert EMPTY == {}


def test_fields_stay_with_their_protocol() -> None:
    extra = merged(scoped("chat", {"a": 1}), merged(scoped("messages", {"b": 2}), scoped("chat", {"a": 3, "c": 4})))
    assert fields_of(extra, "chat") == {"a": 3, "c": 4}
    assert fields_of(extra, "messages") == {"b": 2}
    assert fields_of(extra, "responses") is fields_of(EMPTY, "chat") is EMPTY
    assert scoped("chat", {}) is EMPTY
