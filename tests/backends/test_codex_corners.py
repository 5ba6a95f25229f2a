"""Corners of the reader of an app-server's turn: item x neighbour x way of coming x end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cases import every
from toolwire.errors import GatewayError
from toolwire.events import Event, Start
from toolwire.extras.codex_app.answer import TurnEvents
from toolwire.folding import fold
from toolwire.model import Part, Reasoning, Text, ToolUse
from toolwire.stream_grammar import check
from toolwire.upstream.servers.private_data import NOTHING

Item = dict[str, Any]

ITEMS: dict[str, Callable[[int], tuple[Item, Part]]] = {
    "text": lambda n: ({"type": "agentMessage", "id": f"i{n}", "text": f"text {n}"}, Text(f"text {n}")),
    "thought": lambda n: ({"type": "reasoning", "id": f"i{n}", "content": [f"one {n}", "two"], "summary": []}, Reasoning(f"one {n}\n\ntwo")),
    "summary": lambda n: ({"type": "reasoning", "id": f"i{n}", "content": [], "summary": [f"sum {n}"]}, Reasoning(f"sum {n}")),
}  # fmt: skip


def message(method: str, **params: Any) -> Item:
    return {"method": method, "params": params}


def deltas(item: Item) -> list[Item]:
    """The deltas of an item, four characters at a time, with an empty one behind each."""
    kind = {"agentMessage": "item/agentMessage/delta", "reasoning": "item/reasoning/textDelta"}[item["type"]]
    text = item.get("text") or "\n\n".join(item.get("content") or ())
    if item.get("summary"):
        kind, text = "item/reasoning/summaryTextDelta", "\n\n".join(item["summary"])
    pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
    return [message(kind, itemId=item["id"], delta=piece) for whole in pieces for piece in (whole, "")]


def usual(item: Item) -> list[Item]:
    """Begun, said, and completed."""
    return [message("item/started", item=item), *deltas(item), message("item/completed", item=item)]


def only_completed(item: Item) -> list[Item]:
    """The whole item at once."""
    return [message("item/completed", item=item)]


def half_said(item: Item) -> list[Item]:
    """The first deltas; of a message the whole item says the rest."""
    said = deltas(item)
    return [*(said[:2] if item["type"] == "agentMessage" else said), message("item/completed", item=item)]


def unannounced(item: Item) -> list[Item]:
    """Deltas only."""
    return deltas(item)


WAYS = [usual, only_completed, half_said, unannounced]
USED = message("thread/tokenUsage/updated", tokenUsage={"total": {"inputTokens": 3, "outputTokens": 4}})
DONE = message("turn/completed", turn={"status": "completed", "items": []})
NAMES = {"gateway_f": "f"}


def called(n: int) -> Item:
    item = {"type": "function_call", "name": "gateway_f", "call_id": f"c{n}", "arguments": f'{{"a":{n}}}'}
    return message("rawResponseItem/completed", item=item)


def told(*messages: Item, whole: bool = False) -> tuple[list[Event], TurnEvents]:
    """The stream that these notifications amount to."""
    turn = TurnEvents(NAMES, NOTHING, whole=whole)
    events: list[Event] = [Start("id", "m", 1)]
    for one in messages:
        if not turn.over:
            events += turn.feed(one)
    if turn.over:
        check(events)
    return events, turn


@every("way", WAYS)
@every("second", ITEMS)
@every("first", ITEMS)
def test_items_say_what_they_say_alone(first: str, second: str, way: Callable[[Item], list[Item]]) -> None:
    made = [ITEMS[name](n) for n, name in enumerate((first, second, first))]
    events, turn = told(*(one for item, _ in made for one in way(item)), USED, DONE)
    reply = fold(events)
    wanted = [part for _, part in made]
    assert joined(list(reply.choices[0].parts)) == joined(wanted)
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)
    assert turn.spoke == ("text" in (first, second))


def joined(parts: list[Part]) -> list[tuple[type, str]]:
    """Neighbours of one kind as one: where one text ends nobody says."""
    out: list[tuple[type, str]] = []
    for part in parts:
        assert isinstance(part, Text | Reasoning)
        if out and out[-1][0] is type(part):
            out[-1] = (type(part), out[-1][1] + part.text)
        else:
            out.append((type(part), part.text))
    return out


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", [None, *ITEMS])
def test_calls_end_the_answer_behind_what_was_said(name: str | None, count: int) -> None:
    item = usual(ITEMS[name](0)[0]) if name else []
    usage = {"inputTokens": 3, "outputTokens": 4}
    for ends in ([message("rawResponse/completed", usage=usage)], [DONE]):
        events, turn = told(*item, *map(called, range(count)), *ends)
        assert turn.over
        if ends == [DONE]:
            continue  # its calls were never to be run
        reply = fold(events)
        assert list(reply.calls) == [ToolUse(f"c{n}", "f", f'{{"a":{n}}}') for n in range(count)]
        assert (reply.choices[0].reason, reply.usage and reply.usage.output_tokens) == ("tool_calls", 4)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", ITEMS)
def test_what_begins_anew_is_never_joined_to_what_came_before(name: str, whole: bool) -> None:
    item, part = ITEMS[name](0)
    retry = message("error", error={"message": "cut"}, willRetry=True)
    if name == "text" and not whole:
        with pytest.raises(GatewayError):
            told(*deltas(item)[:2], retry)
        return
    before = [*deltas(item)[:2], retry]
    forgotten = len(told(*before, whole=whole)[0]) if whole else 0
    events, turn = told(*before, *usual(item), DONE, whole=whole)
    assert turn.restarts == whole
    reply = fold([Start("id", "m", 1), *events[forgotten:]] if whole else events)
    assert reply.choices[0].parts[-1] == part
