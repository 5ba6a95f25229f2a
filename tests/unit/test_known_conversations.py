"""Conversations that are known by the bytes of their beginning: which, whose, and how many (R34.2)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.cases import every
from toolwire.fastparse import json_marks
from toolwire.ingress import known_conversations
from toolwire.ingress.known_conversations import GOES_ON, SIDE_BY_SIDE, ConversationLookup, KnownConversations
from toolwire.known.past import NUMBERED, SEALED, SIGNS, Past
from toolwire.support.cache import CacheBudget

SAID: list[Any] = [{"role": "user", "content": f"{number}, [{{\\"} for number in range(30)]


@pytest.fixture(autouse=True)
def _short_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_conversations, "LEAST_BYTES", 0)


class Asked:
    """Requests of several owners, and the budget."""

    def __init__(self, most: int = 64 * 1024 * 1024) -> None:
        self.budget = CacheBudget(most)
        self.known = KnownConversations(self.budget.cache("conversations"))

    def body(self, body: bytes, owner: str = "one", protocol: str = "chat") -> int:
        """Returns how many items of a body were known."""
        lookup = ConversationLookup(self.known, b'"messages"', owner, protocol)
        cut = self.known.cut(body, lookup)
        if cut is None:
            return -1
        whole = zip(cut.marks, json_marks(cut.rest)[:2], strict=True)
        assert tuple(map(sum, whole)) == json_marks(body)[:2]
        value = orjson.loads(cut.rest)
        self.known.keep(cut, value, lookup, len(cut.rest))
        assert value == orjson.loads(body)
        assert isinstance(value["messages"].past, Past)
        assert value["messages"].past.signs == {sign for sign in SIGNS if sign in body}
        return cut.known

    def said(self, said: list[Any], owner: str = "one", protocol: str = "chat", **more: Any) -> int:
        """The same of a body with these messages."""
        return self.body(orjson.dumps({"model": "m", "messages": said, **more}), owner, protocol)


def test_a_conversation_goes_on() -> None:
    asked = Asked()
    assert [asked.said(SAID[:number]) for number in (10, 12, 12, 20, 15)] == [0, 10, 12, 12, 15]
    assert asked.said(SAID[:20], tools=[1]) == 20, "what stands behind may be other"
    assert asked.body(orjson.dumps({"x": 1, "messages": SAID[:21]})) == 20, "and what stands before"
    assert asked.said([*SAID[:9], {}, *SAID[10:]]) == 9


def test_signs_are_those_of_the_whole_body() -> None:
    """Also those in items that are known, but not those in items that are gone."""
    asked, marked = Asked(), [{"role": "user", "content": sign.decode()} for sign in (NUMBERED, SEALED)]
    for said in (SAID[:4], [*SAID[:4], marked[0]], [*SAID[:4], *marked], [*SAID[:4], *marked, *SAID], SAID[:5]):
        asked.said(said)
    asked.said(SAID[:5], tools=marked)


def test_conversations_belong_to_an_owner_and_a_protocol() -> None:
    asked = Asked()
    asked.said(SAID)
    assert (asked.said(SAID, "two"), asked.said(SAID, "one", "messages")) == (0, 0)
    assert asked.said(SAID) == len(SAID)


def test_one_that_goes_on_takes_the_place_of_the_one_before_and_a_branch_does_not() -> None:
    asked = Asked()
    for number in range(10, 30):
        asked.said(SAID[:number])
    held = asked.budget.use["conversations"]
    one = held.bytes
    assert held.entries == 1
    for number in range(SIDE_BY_SIDE + 2):
        asked.said([*SAID[: 29 - GOES_ON - 1], *({"role": "user", "content": f"{number}{at}"} for at in range(9))])
    assert SIDE_BY_SIDE * one / 2 < held.bytes < SIDE_BY_SIDE * one * 2
    other = [*SAID[:1], {"role": "user", "content": "Another task"}]
    assert asked.said(other) == 0
    assert held.entries == 2, "what the user wants tells conversations apart"


def test_what_is_too_heavy_is_not_kept() -> None:
    asked = Asked(most=8_000)
    assert [asked.said(SAID), asked.said(SAID)] == [0, 0]
    assert not asked.budget.held


@every(
    ("before", "body", "known"),
    [
        (b'{"messages":[0,1,2]}', b'{"messages":[0,1,23]}', 2),
        (b'{"messages":[0,1,2]}', b'{"messages":[0,1,2 ]}', 2),
        (b'{"messages":[0,1,2]}', b'{"messages":[0,1,2 , 3]}', 2),
        (b'{"messages":[0,1,2]}', b'{"messages":[0,1,2, 3]}', 3),
        (b'{"messages":[0,1,2]}', b'{"messages": [0,1,2]}', 3),
        (b'{"messages":[]}', b'{"messages":[]}', 0),
        (b'{"messages":[1,2]}', b'{"messages":[1,2],"x":{"messages":[1]}}', 2),
        (b'{"messages":[1,2]}', b'{"x":{"messages":[1,2]},"messages":[3,2]}', 0),
        (b'{"messages":[1,2]}', b'{"messages":"x"}', -1),
        (b'{"messages":[1,2]}', b'{"input":[1,2]}', -1),
    ],
)
def test_items_are_known_as_a_whole(before: bytes, body: bytes, known: int) -> None:
    asked = Asked()
    asked.body(before)
    assert asked.body(body) == known


def test_a_body_that_ends_too_soon_is_left_to_the_parser() -> None:
    asked = Asked()
    body = orjson.dumps({"messages": SAID})
    asked.body(body)
    lookup = ConversationLookup(asked.known, b'"messages"', "one", "chat")
    for size in range(len(body)):
        cut = asked.known.cut(body[:size], lookup)
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(body[:size] if cut is None else cut.rest)


@every("body", [b'{"messages":[1,2,]}', b'{"messages":[1,2, ]}', b'{"messages":[1,2,' + b" " * 70 + b"3]}"])
def test_a_comma_with_nothing_behind_it_is_left_to_the_parser(body: bytes) -> None:
    asked = Asked()
    asked.body(b'{"messages":[1,2]}')
    assert asked.known.cut(body, ConversationLookup(asked.known, b'"messages"', "one", "chat")) is None


def test_of_a_short_body_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_conversations, "LEAST_BYTES", 10_000)
    assert Asked().said(SAID) == -1
