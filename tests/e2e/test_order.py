"""When things leave the gateway, shown by holding the model server back: no clock is looked at (R1.4, R6.3, SC-005)."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, function, gateway_before
from tests.waiting import GUARD_S
from toolwire.testing import Say, read_frames

TOOLS = [function("read_file", path="string"), function("list_files")]
CALL = block("read_file", {"path": "a.txt"})


class Client:
    """A streamed answer that is read only as far as something is expected."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.got = b""

    async def until(self, text: str, calls: int = 0) -> None:
        """Wait until the visible text and the number of calls are exactly these."""
        async with asyncio.timeout(GUARD_S):
            while (self.text, len(self.calls)) != (text, calls):
                assert text.startswith(self.text), self.text
                assert len(self.calls) <= calls
                data = await self._response.content.readany()
                assert data, f"the stream ended with {self.text!r}"
                self.got += data

    async def rest(self) -> None:
        self.got += await self._response.read()

    @property
    def deltas(self) -> list[Any]:
        whole = self.got[: self.got.rfind(b"\n\n") + 2]
        return [c["delta"] for f in read_frames(whole) if f != "[DONE]" for c in f["choices"]]

    @property
    def text(self) -> str:
        return "".join(delta.get("content") or "" for delta in self.deltas)

    @property
    def calls(self) -> list[str]:
        """Arguments of the calls that are there so far."""
        found: dict[int, str] = {}
        for delta in self.deltas:
            for call in delta.get("tool_calls", ()):
                found[call["index"]] = found.get(call["index"], "") + call["function"]["arguments"]
        return [text for text in found.values() if text]


SCRIPTS: dict[str, list[tuple[str, str, int]]] = {
    "text before a block": [("Hello ", "Hello", 0), ("world", "Hello world", 0), (CALL[:20], "Hello world", 0)],
    "only what may be an opener is held": [
        ("a < b ", "a < b", 0),
        ("<", "a < b", 0),
        ("i> <tool", "a < b <i>", 0),
        ("box>", "a < b <i> <toolbox>", 0),
    ],
    "a call as soon as it is closed": [
        ("Go. ", "Go.", 0),
        (CALL[:-1], "Go.", 0),
        (">", "Go.", 1),
        (f"\n{CALL} and", "Go. and", 2),
        (" more", "Go. and more", 2),
    ],
    "what is no call after all": [
        ("x <tool_call>", "x", 0),
        ('{"name": 1}</tool_call>', 'x <tool_call>{"name": 1}</tool_call>', 0),
    ],
    "thinking is not held": [("<think>hm", "", 0), ("</think>so", "so", 0)],
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_what_is_out_before_the_model_goes_on(name: str) -> None:
    """Each piece is written only after everything that the pieces before it settle has arrived."""
    script = SCRIPTS[name]
    gates = [asyncio.Event() for _ in script]
    pieces = [item for gate, (piece, *_) in zip(gates, script, strict=True) for item in (gate, piece)]
    async with gateway_before([Say(*pieces)]) as (server, _):
        gates[0].set()
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                server.make_url(CHAT), json={"model": "m", "messages": USER, "tools": TOOLS, "stream": True}
            ) as response,
        ):
            client = Client(response)
            for (_, text, calls), gate in zip(script, [*gates[1:], asyncio.Event()], strict=True):
                await client.until(text, calls)
                gate.set()
            await client.rest()
    assert client.got.endswith(b"data: [DONE]\n\n")
