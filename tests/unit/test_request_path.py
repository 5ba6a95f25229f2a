"""`docs/explanation/how-it-works.md` has the path of a request: it takes the steps of the list, and comes to no room
without one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

import orjson
import pytest

from docs.request_path import as_list, parts, rewritten
from tests.e2e.conftest import USER, function
from tests.e2e.edge import Start, head, starting
from tests.options import IDLE
from tests.unit.test_imports import name_of_room
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
"""Rooms that others use on the way, and that are not in the list."""


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


async def test_a_request_takes_the_steps_of_the_list(start: Start) -> None:
    seen = await visited(start)
    steps = [step.module for part in parts().values() for step in part]
    assert set(steps) - set(seen) == NO_STEP
    rest = iter(seen)
    assert [step for step in steps if step not in NO_STEP and step not in rest] == []
    rooms = {name_of_room(module) for module in seen} - {name_of_room(module) for module in steps}
    assert rooms <= EVERYWHERE


def test_a_page_gets_the_path_and_keeps_the_rest() -> None:
    page = "before\n<!-- the path of a request -->\nold\n<!-- end of the path -->\nbehind\n"
    once = rewritten(page)
    assert once == f"before\n<!-- the path of a request -->\n{as_list()}<!-- end of the path -->\nbehind\n"
    assert rewritten(once) == once
