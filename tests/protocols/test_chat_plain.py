"""Messages that hold only a role and a text are read as `PlainMessages`: the law of `plain_messages`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolwire.model import PlainMessages
from toolwire.protocols.chat.request import SHAPE, plain_messages, read_request
from toolwire.protocols.chat.request_writer import write_messages

USER = {"role": "user", "content": "hi"}
ODD: tuple[dict[str, Any], ...] = (
    {"role": "tool", "content": "a"},
    {"role": "function", "content": "a"},
    {"role": "user", "name": "n"},
    {"role": "assistant", "content": None},
    {"role": "assistant", "refusal": "no"},
    {"role": "user", "content": [{"type": "text", "text": "a"}]},
    {"role": "user", "content": "a", "name": None},
)
SPOKEN = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant"]), "content": st.text(max_size=3)}
)


@given(st.lists(SPOKEN, min_size=1, max_size=3))
def test_plain_messages_are_read_and_written_as_all_are(messages: list[dict[str, Any]]) -> None:
    read = read_request({"model": "m", "messages": messages}, b"").messages
    assert type(read) is PlainMessages
    named = [*messages, {**USER, "name": "n"}]  # so that they are read one by one
    several = read_request({"model": "m", "messages": named}, b"").messages
    assert type(several) is not PlainMessages
    assert several[:-1] == read
    assert write_messages(read) == write_messages(several)[:-1]


def test_others_are_not_plain() -> None:
    for odd in ODD:
        SHAPE.check({"model": "m", "messages": [odd]})
        assert plain_messages([USER, odd]) is None
