"""Lists of tools that come again: found by their bytes, wherever else in a body such bytes may stand."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.cases import every
from toolwire.config import LimitsConfig
from toolwire.errors import ClientFault
from toolwire.formats.engine.toolset import (
    HEAD_BYTES,
    MAX_NOTES,
    MAX_SAME_HEAD,
    KnownList,
    KnownTools,
    ToolSet,
    new_set,
    note,
    note_of,
)
from toolwire.ingress.bodies import parse_body
from toolwire.ingress.known_conversations import ConversationLookup, KnownConversations
from toolwire.model import ToolSpec
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.support.cache import SHARE, CacheBudget
from toolwire.support.offload import OFFLOAD_BYTES

LIMITS = LimitsConfig()


def tools(count: int, text: str = "t") -> list[dict[str, Any]]:
    made = ({"name": f"{text}{number}", "description": "d" * HEAD_BYTES} for number in range(count))
    return [{"type": "function", "function": one} for one in made]


def empty() -> KnownTools:
    return KnownTools(CacheBudget().cache("tools"))


def body(listed: Any, **more: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": listed, **more})


def read(raw: bytes, known: KnownTools, limits: LimitsConfig = LIMITS) -> dict[str, Any]:
    value = asyncio.run(parse_body(raw, limits, known))
    assert value == orjson.loads(raw)
    return value


def test_equal_bytes_give_the_same_list_and_the_same_set() -> None:
    known, chat = empty(), ChatProtocol()
    first, second = body(tools(3)), body(tools(3), temperature=1)
    values = [read(raw, known) for raw in (first, second)]
    assert isinstance(values[0]["tools"], KnownList)
    assert values[0]["tools"] is values[1]["tools"]
    sets = [chat.read_request(value, raw).tools for value, raw in zip(values, (first, second), strict=True)]
    assert sets[0] is sets[1]
    assert sets[0] == ChatProtocol().read_request(orjson.loads(first), first).tools


@every(
    "more",
    [{}, {"metadata": {"tools": tools(2, "other")}}, {"x": "y" * 1_000_000}, {"x": '"tools":[]'}, {"x": [["\\", '"']]}],
)
def test_tools_are_learned_from_every_body_that_is_read_at_once(more: dict[str, Any]) -> None:
    """R34.5: also those of a large body, and behind another object that has tools of its own."""
    known = empty()
    raw = orjson.dumps({**more, "messages": [{"role": "user", "content": "hi"}], "tools": tools(200)})
    first = read(raw, known)["tools"]
    assert isinstance(first, KnownList)
    assert read(raw.replace(b'"hi"', b'"you"'), known)["tools"] is first


def test_known_tools_are_no_part_of_what_is_new() -> None:
    """So a turn with large tools is small work (R34.5), in whichever order the fields come."""
    budget = CacheBudget()
    known, conversations = KnownTools(budget.cache("tools")), KnownConversations(budget.cache("conversations"))
    lookup = ConversationLookup(conversations, b'"messages"', "one", "chat")
    said = [{"role": "user", "content": f"{number}"} for number in range(3)]
    new = []
    for turn in range(1, 4):
        fields = [("messages", said[:turn]), ("tools", tools(600))]
        raw = orjson.dumps(dict(fields[:: -1 if turn == 3 else 1]))
        value = asyncio.run(parse_body(raw, LIMITS, known, lookup))
        assert value == orjson.loads(raw)
        new.append(value["messages"].past.new)
    assert new[0] > OFFLOAD_BYTES
    assert max(new[1:]) < 200


def test_notes_never_push_their_list_out_of_the_cache() -> None:
    known = KnownTools(CacheBudget(SHARE * 200_000).cache("tools"))
    raw = body(tools(20))
    first = read(raw, known)["tools"]
    made = new_set(first, "chat", [ToolSpec("a")])
    note(made, "too heavy with the list", "x", 180_000)
    assert note_of(made, "too heavy with the list") is None
    note(made, "fits", "x", 100_000)
    assert note_of(made, "fits") == "x"
    assert read(raw, known)["tools"] is first


def test_each_protocol_has_its_own_set() -> None:
    known = empty()
    value = read(body(tools(1), input="x"), known)
    chat = ChatProtocol().read_request(value, b"").tools
    responses = ResponsesProtocol().read_request(value, b"").tools
    assert chat is not responses
    assert ResponsesProtocol().read_request(read(body(tools(1), input="y"), known), b"").tools is responses


@every(
    "raw",
    [
        body(tools(2), metadata={"tools": tools(2)}),
        orjson.dumps({"metadata": {"tools": tools(2)}, "tools": tools(2)}),
        orjson.dumps({"metadata": {"tools": tools(2)}}),
        orjson.dumps({"x": '"tools":', "tools": tools(2)}),
        orjson.dumps({'a"tools': tools(2)}),
        b'{"tools": \n ' + orjson.dumps(tools(2), option=orjson.OPT_INDENT_2) + b"}",
        body(tools(2), text="é😀"),
        body([]),
        body(None),
        body("tools"),
    ],
)
def test_every_body_reads_as_if_nothing_were_known(raw: bytes) -> None:
    known = empty()
    asyncio.run(parse_body(body(tools(2)), LIMITS, known))
    for _ in range(3):
        read(raw, known)


@every(
    ("before", "after"),
    [(b"", b',"tools":[]'), (b'"tools":[],', b""), (b'"to\\u006fls":[],', b""), (b"", b',"to\\u006fls":[]')],
)
def test_tools_that_occur_twice_are_refused_whether_known_or_not(before: bytes, after: bytes) -> None:
    known = empty()
    read(body(tools(2)), known)
    raw = b"{" + before + b'"tools":' + orjson.dumps(tools(2)) + after + b"}"
    with pytest.raises(ClientFault, match='"tools" twice'):
        asyncio.run(parse_body(raw, LIMITS, known))


def test_a_body_that_is_malformed_elsewhere_is_reported_as_it_is() -> None:
    known = empty()
    good = body(tools(2))
    read(good, known)
    said = set()
    for knows in (None, known):
        with pytest.raises(ClientFault) as caught:
            asyncio.run(parse_body(good[:-1] + b",}", LIMITS, knows))
        said.add(caught.value.message)
    assert len(said) == 1


@every("limits", [LimitsConfig(json_values=100), LimitsConfig(json_depth=5)])
def test_limits_hold_for_the_whole_body(limits: LimitsConfig) -> None:
    known = empty()
    listed = tools(6)
    read(body(listed), known, limits)
    nested: list[Any] = []
    for _ in range(5):
        nested = [nested]
    with pytest.raises(ClientFault) as caught:
        asyncio.run(parse_body(body(listed, x=nested, y=list(range(90))), limits, known))
    assert caught.value.code == "invalid_json"
    for raw in [body(listed, y=list(range(size))) for size in range(100)]:
        assert is_read(raw, known, limits) == is_read(raw, None, limits)


def is_read(raw: bytes, known: KnownTools | None, limits: LimitsConfig) -> bool:
    try:
        asyncio.run(parse_body(raw, limits, known))
    except ClientFault:
        return False
    return True


def test_lists_with_the_same_beginning_are_told_apart() -> None:
    known = empty()
    common = tools(1)
    bodies = [body([*common, *tools(1, f"other{number}")]) for number in range(MAX_SAME_HEAD)]
    seen = [read(raw, known)["tools"] for raw in bodies]
    assert all(read(raw, known)["tools"] is one for raw, one in zip(bodies, seen, strict=True))
    read(body([*common, *tools(1, "last")]), known)
    assert read(bodies[0], known)["tools"] is not seen[0], "the oldest is forgotten"


def test_notes() -> None:
    known, plain = ToolSet([ToolSpec("a")]), (ToolSpec("a"),)
    assert note(known, "key", 1, 0) == note(plain, "key", 1, 0) == 1
    assert (note_of(known, "key"), note_of(known, "other"), note_of(plain, "key")) == (1, None, None)
    for number in range(MAX_NOTES):
        note(known, number, number, 0)
    assert len(known.notes) <= MAX_NOTES
