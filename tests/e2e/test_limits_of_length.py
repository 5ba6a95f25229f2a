"""C18 and R6.8 for every word that servers have for a limit of length: what it cut off is never a call."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import USER, Gateway, function, post, upstream_config
from toolwire.testing import Say, Upstream

WHOLE = '<tool_call>{"name":"look","arguments":"{}"}</tool_call>'
UNCLOSED = WHOLE.removesuffix("</tool_call>")


@pytest.mark.parametrize("word", ["length", "max_tokens", "model_length"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_limit_cut_off_is_no_call(gateway: Gateway, word: str, stream: bool) -> None:
    async with Upstream([Say("one ", UNCLOSED, finish=word), Say(WHOLE, " ", UNCLOSED, finish=word)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        body = {"messages": USER, "tools": [function("look")], "stream": stream}
        cut, kept = await post(server, body), await post(server, body)
    if stream:
        reasons = [answer.frames()[-2]["choices"][0]["finish_reason"] for answer in (cut, kept)]
        calls = [answer.body.count(b'"id":"call_') for answer in (cut, kept)]
    else:
        reasons = [answer.json()["choices"][0]["finish_reason"] for answer in (cut, kept)]
        calls = [len(answer.json()["choices"][0]["message"].get("tool_calls", ())) for answer in (cut, kept)]
    assert (reasons, calls) == (["length", "tool_calls"], [0, 1])
