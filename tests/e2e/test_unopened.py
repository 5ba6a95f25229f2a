"""Models whose prompt opens their thinking, over real sockets: what clients get of the first answer, and of the next
ones. The rules one by one: `tests/unit/test_preopened.py`."""

from __future__ import annotations

import logging

import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import CHAT, gateway_before, get, post
from tests.e2e.meaning import RESPONSES, asking, said
from toolwire.testing import Say

BOTH = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])

THINKS = ("I sho", "uld greet.\n</th", "ink>", "\n\nHel", "lo!")
SHOWN = ("I should greet.\n</think>\n\nHello!", "")
APART = ("Hello!", "I should greet.\n")


async def ask(server: TestServer, path: str, *, stream: bool, tools: bool = True) -> tuple[str, str]:
    """The text and the thoughts of one answer."""
    body = {key: value for key, value in asking(path, stream).items() if tools or key != "tools"}
    text, _, thoughts = said(path, await post(server, body, path=path), stream)
    return text, thoughts


async def counted(server: TestServer) -> dict[str, int]:
    """What the metrics say of it."""
    page = (await get(server, "/metrics")).body.decode()
    name = "toolwire_unopened_reasoning_total{kind="
    lines = [line.removeprefix(name).split("} ") for line in page.splitlines() if line.startswith(name)]
    return {kind.strip('"'): int(float(number)) for kind, number in lines}


@pytest.mark.parametrize(
    ("path", "tools"), [(CHAT, True), (RESPONSES, True), (RESPONSES, False)], ids=["chat", "responses", "no tools"]
)
async def test_words_before_a_closing_tag_that_nothing_opened_are_thoughts(
    path: str, tools: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "toolwire.reasoning")
    async with gateway_before([Say(*THINKS)]) as (server, _):
        assert await ask(server, path, stream=False, tools=tools) == APART
        assert await ask(server, path, stream=True, tools=tools) == APART, "the route knows it by now"
        assert await ask(server, path, stream=False, tools=tools) == APART
        assert await counted(server) == {"moved": 1, "known": 2}
    (line,) = [record.getMessage() for record in caplog.records if record.name == "toolwire.reasoning"]
    assert "begin inside <think>" in line


@BOTH
async def test_what_a_stream_has_shown_stays_and_the_next_one_is_right(path: str) -> None:
    async with gateway_before([Say(*THINKS)]) as (server, _):
        assert await ask(server, path, stream=True) == SHOWN
        assert await ask(server, path, stream=True) == APART
        assert await ask(server, path, stream=False) == APART
        assert await counted(server) == {"shown": 1, "known": 2}


async def test_chat_without_tools_keeps_its_bytes() -> None:
    """R1.6, whatever has been learned."""
    async with gateway_before([Say(*THINKS)]) as (server, _):
        for stream in (False, True):
            await ask(server, CHAT, stream=False)
            assert await ask(server, CHAT, stream=stream, tools=False) == SHOWN
