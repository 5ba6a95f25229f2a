"""Usage in streams of Chat (R7.7), for every server that counts in its own way: without `include_usage` no chunk has a
`usage` key or empty `choices`, with it every chunk has one and the last one the counts. A request without tools is
passed on as it is, and its answer too (R1.6)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.e2e.conftest import CHAT, function, post, serving, upstream_config
from tests.e2e.test_messages_backend import SSE
from toolwire.testing import Answer, Asked, Upstream, chunk, frame

COUNTS = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
WHEN = ("asked", "unasked", "null first", "in every chunk", "in every chunk if asked", "in the last chunk", "never")
BODY = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
TOOLS = [function("f")]
SETTINGS = [
    *product(("prompt", "native"), ("auto", "backend", "estimate")),
    *product(("auto", "hybrid"), ("auto",)),  # each becomes one of those
]


def counting(when: str) -> Any:
    """A server that says "Hello you", and its counts as `when` says."""

    def answer(asked: Asked) -> Answer:
        wanted = bool((asked.json.get("stream_options") or {}).get("include_usage"))
        said = {"asked": wanted, "null first": wanted, "in every chunk if asked": wanted}.get(when, when != "never")
        every: dict[str, Any] = {"usage": COUNTS} if "every" in when and said else {}
        if when == "null first" and said:
            every = {"usage": None}
        steps = [frame({**chunk({"role": "assistant", "content": "Hello"}), **every})]
        steps += [frame({**chunk({"content": " you"}), **every})]
        steps.append(frame({**chunk({}, "stop"), **({"usage": COUNTS} if when == "in the last chunk" else every)}))
        if said and when != "in the last chunk":
            steps.append(frame({**chunk({}), "choices": [], "usage": COUNTS}))
        return Answer([*steps, frame("[DONE]")], headers=SSE)

    return answer


@pytest.mark.parametrize(("mode", "source"), SETTINGS)
@pytest.mark.parametrize("when", WHEN)
async def test_what_a_stream_says_of_its_tokens(when: str, mode: str, source: str) -> None:
    defaults = {"mode": mode, "usage": {"source": source}}
    async with Upstream([counting(when)] * 6) as up, serving(upstream_config(up.url, defaults=defaults)) as server:
        for choice in ("none", "auto", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}):
            for wanted in (False, True):
                options = {"stream_options": {"include_usage": True}} if wanted else {}
                body = {**BODY, "tools": TOOLS, "tool_choice": choice, **options}
                frames = [one for one in (await post(server, body, path=CHAT)).frames() if isinstance(one, dict)]
                said = "".join(one["choices"][0]["delta"].get("content") or "" for one in frames if one["choices"])
                assert said == "Hello you"
                if not wanted:
                    assert not any("usage" in one or one["choices"] == [] for one in frames), (choice, frames)
                    continue
                unknown = source == "backend" and when == "never"  # then no chunk has counts
                *earlier, last = [*frames, None] if unknown else frames
                assert all("usage" in one and one["usage"] is None and one["choices"] for one in earlier), choice
                if not unknown:
                    assert last["choices"] == []
                    assert last["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("wanted", [False, True], ids=["not wanted", "wanted"])
@pytest.mark.parametrize("when", WHEN)
async def test_without_tools_the_servers_bytes_pass(when: str, wanted: bool) -> None:
    """The server was asked in the client's words, so its counts are an answer to those."""
    options = {"stream_options": {"include_usage": True}} if wanted else {}
    async with Upstream([counting(when)] * 2) as up, serving(upstream_config(up.url)) as server:
        passed = (await post(server, {**BODY, **options}, path=CHAT)).body
        asked = up.requests[0]
    assert passed == b"".join(counting(when)(asked).steps)


@pytest.mark.parametrize("when", WHEN)
async def test_without_tools_but_in_the_gateways_words(when: str) -> None:
    """Its own words ask for the counts."""
    config = {"defaults": {"usage": {"source": "estimate"}}}
    async with Upstream([counting(when)]) as up, serving(upstream_config(up.url, **config)) as server:
        frames = [one for one in (await post(server, BODY, path=CHAT)).frames() if isinstance(one, dict)]
    assert not any("usage" in one or one["choices"] == [] for one in frames)
