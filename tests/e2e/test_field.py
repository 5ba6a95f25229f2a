"""Outputs of models from public reports, through a gateway that was told nothing but its server's address (R30.2).

They stand outside of the repository, in the folder that `TOOLWIRE_SHARED` names: `field/outputs.json`. Each is answered
to a request of its own model and tools, whole and streamed by a few characters, and compared with what its entry says:
the calls, and the text beside them where the entry judges it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import CHAT, USER, post, serving
from tests.e2e.meaning import said
from tests.e2e.speaking import in_pieces
from tests.protocols.published import SHARED
from toolwire.configuration.settings import load
from toolwire.testing import Say, Upstream

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


async def _got(upstream: Upstream, server: TestServer, entry: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """Calls, text and thought, as the client sees them."""
    upstream.script = [Say(*in_pieces(entry["text"], PIECE))]
    body = {"model": entry["model"], "messages": USER, "tools": entry["offered"], "stream": stream}
    answer = await post(server, body)
    assert answer.status == 200, answer.body
    text, calls, thought = said(CHAT, answer, stream)
    return {"calls": [list(call) for call in calls], "text": text, "thought": thought}


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
            for stream in (False, True):
                assert _fault(entry, await _got(upstream, server, entry, stream=stream)) is None, stream
