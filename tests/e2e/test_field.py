"""Outputs of models from public reports, through a gateway that was told nothing but its server's address (R30.2).

They stand outside of the repository, in the folder that `TOOLWIRE_SHARED` names: `field/outputs.json`. Each is answered
to a request of its own model and tools, whole and streamed by a few characters, and compared with what its entry says:
the calls, and the text beside them where the entry judges it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from proxy.configuration.settings import load
from proxy.testing import Answer, Upstream, chunk, frame
from tests.e2e.conftest import USER, post, serving
from tests.protocols.published import SHARED

OUTPUTS = SHARED / "field" / "outputs.json"
PIECE = 3
"""Characters of a delta."""

UNREAD: frozenset[str] = frozenset()
"""Entries that are not read, each with a reason here."""


@cache
def entries() -> list[dict[str, Any]]:
    """Outputs and decoys; a decoy has no calls."""
    if not OUTPUTS.exists():
        return []
    told = json.loads(OUTPUTS.read_text("utf-8"))
    return [*told["outputs"], *told["decoys"]]


def _whole(text: str) -> Answer:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    body = {"id": "chatcmpl-up", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return Answer([json.dumps(body).encode()], headers={"Content-Type": "application/json"}, framing="length")


def _streamed(text: str) -> Answer:
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    frames = [frame(chunk({"content": piece})) for piece in pieces]
    steps = [*frames, frame(chunk({}, "stop")), frame("[DONE]")]
    return Answer(steps, headers={"Content-Type": "text/event-stream"})


def _deltas(frames: list[Any]) -> Iterator[dict[str, Any]]:
    for one in frames:
        if isinstance(one, dict) and one.get("choices"):
            yield one["choices"][0]["delta"]


async def _got(server: TestServer, entry: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """Calls, text and thought, as the client sees them."""
    body = {"model": entry["model"], "messages": USER, "tools": entry["offered"], "stream": stream}
    answer = await post(server, body)
    assert answer.status == 200, answer.body
    if not stream:
        message = answer.json()["choices"][0]["message"]
        made = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        text, thought = message.get("content") or "", message.get("reasoning_content") or ""
    else:
        parts: dict[int, list[str]] = {}
        text = thought = ""
        for delta in _deltas(answer.frames()):
            text += delta.get("content") or ""
            thought += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or ():
                name, arguments = parts.setdefault(call["index"], ["", ""])
                said = call.get("function", {})
                more = said.get("name") or "", said.get("arguments") or ""
                parts[call["index"]] = [name + more[0], arguments + more[1]]
        made = [(name, arguments) for name, arguments in parts.values()]
    return {"calls": [[name, json.loads(arguments)] for name, arguments in made], "text": text, "thought": thought}


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _fault(entry: dict[str, Any], got: dict[str, Any]) -> str | None:
    """How what came out differs from what the entry says."""
    flags = entry.get("flags") or ()
    wanted = entry["calls"]
    repeated = "min_calls" in flags and got["calls"] and all(call in wanted for call in got["calls"])
    if got["calls"] != wanted and not repeated:
        return f"calls {got['calls']!r}, text {got['text']!r}"
    if entry.get("visible") is not None and _plain(got["text"]) != _plain(entry["visible"]):
        return f"text {got['text']!r}, thought {got['thought']!r}"
    if entry.get("reasoning") is not None and _plain(got["thought"]) != _plain(entry["reasoning"]):
        return f"thought {got['thought']!r}"
    return None


@pytest.mark.skipif(not OUTPUTS.exists(), reason="no reported outputs; set TOOLWIRE_SHARED")
@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry["id"])
async def test_a_reported_output_is_read(entry: dict[str, Any]) -> None:
    """The calls, the text and the thought are those that the report means, streamed or not."""
    if entry["id"] in UNREAD:
        pytest.xfail("known, see UNREAD")
    async with Upstream() as upstream:
        preopened = {"defaults.reasoning.preopened": True} if "preopened" in (entry.get("flags") or ()) else {}
        async with serving(load(None, {}, {"backends.default.url": upstream.url, **preopened})) as server:
            upstream.script = [_whole(entry["text"])]
            whole = _fault(entry, await _got(server, entry, stream=False))
            assert whole is None, f"whole: {whole}"
            upstream.script = [_streamed(entry["text"])]
            streamed = _fault(entry, await _got(server, entry, stream=True))
            assert streamed is None, f"streamed: {streamed}"
