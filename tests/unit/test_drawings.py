"""The drawings of `docs/explanation/how-it-works.md` show what is: a request takes the steps that are drawn, and comes
to no room without one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from types import FrameType
from typing import Any

import orjson
import pytest

from docs import drawings
from docs.drawings import DRAWN, way
from tests.cases import every
from tests.e2e.conftest import USER, function
from tests.e2e.edge import Start, head, starting
from tests.options import IDLE
from tests.unit.test_imports import name_of_room
from toolwire.scan.transitions import TRANSITIONS
from toolwire.testing import Say, Upstream

NO_STEP = {f"toolwire.middlewares.{name}" for name in ("conversation", *IDLE)}
"""Of the chain, what has nothing to do for a Chat request without server-side tools."""

EVERYWHERE = {
    f"toolwire.{room}"
    for room in (
        *("errors", "model", "support", "events", "config", "record", "schemas"),
        *("scan", "repair", "known", "formats", "prompting", "scanner", "upstream"),
    )
}
"""Rooms that others use on the way, and that stand in no drawing."""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as begin:
        yield begin


async def visited(start: Start) -> list[str]:
    """The modules of the house in the order in which one streamed answer with a call comes to them, with repeats."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        ours = event == "call" and module.startswith("toolwire.") and module != "toolwire.testing"
        if ours and found[-1:] != [module]:
            found.append(module)

    call = '<tool_call>{"name":"f","arguments":{"a":"x"}}</tool_call>'
    body = orjson.dumps({"model": "m", "stream": True, "messages": USER, "tools": [function("f", a="string")]})
    async with Upstream([Say("Let me ", "look.\n", call)]) as upstream:
        gateway = await start(url=upstream.url)
        request = head(len(body), "Connection: close") + body
        await gateway.said(request)  # the first one looks for what the server is
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            answer = await gateway.said(request)
        finally:
            sys.setprofile(before)
    assert b'"name":"f"' in answer
    return found


async def test_a_request_takes_the_steps_that_are_drawn(start: Start) -> None:
    seen = await visited(start)
    steps = [step.module for part in way().values() for step in part]
    assert set(steps) - set(seen) == NO_STEP
    rest = iter(seen)
    assert [step for step in steps if step not in NO_STEP and step not in rest] == []
    rooms = {name_of_room(module) for module in seen} - {name_of_room(module) for module in steps}
    assert rooms <= EVERYWHERE


def test_the_words_of_the_states_can_be_drawn() -> None:
    """A label of a state diagram ends at a colon or a semicolon."""
    assert [row.on for row in TRANSITIONS if set(row.on) & set(":;")] == []


@every("draw", DRAWN.values())
def test_a_page_gets_its_drawing_and_keeps_the_rest(draw: Callable[[], str]) -> None:
    name = next(name for name, known in DRAWN.items() if known is draw)
    page = f"before\n<!-- drawn: {name} -->\nold\n<!-- end of drawing -->\nbehind\n"
    once = drawings.redrawn(page)
    assert once == f"before\n<!-- drawn: {name} -->\n{draw()}<!-- end of drawing -->\nbehind\n"
    assert drawings.redrawn(once) == once
    assert drawings.redrawn(page.replace("old\n", "")) == once
