"""`POST /v1/responses/input_tokens` (R8.15): what a request would cost, before it is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Gateway, post, sdk, upstream_config
from tests.e2e.responses_answers import RESPONSES, tool
from toolwire.pipeline.conversations.stored import CONVERSATIONS
from toolwire.testing import Say, Upstream

COUNT = f"{RESPONSES}/input_tokens"
READ = tool("read_file", path="string")


async def count(server: Any, **body: Any) -> int:
    answer = await post(server, {"input": "hi", **body}, path=COUNT)
    assert answer.status == 200, answer.body
    counted = answer.json()
    assert (counted.pop("object"), answer.headers["x-usage-source"]) == ("response.input_tokens", "estimate")
    assert "x-usage-tokenizer" in answer.headers
    (tokens,) = counted.values()
    assert counted == {"input_tokens": tokens}
    return int(tokens)


def answered(upstream: Upstream) -> int:
    """So many answers a server was asked for; it may be asked to count."""
    return sum(asked.path != "/tokenize" for asked in upstream.requests)


async def test_everything_is_counted_and_nobody_is_asked(gateway: Gateway) -> None:
    async with Upstream([Say("Hello.")]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        bare = await count(server)
        assert 0 < bare < await count(server, instructions="Be brief, whatever they ask you.")
        assert bare < await count(server, input=[{"role": "user", "content": "hi, and how are you today?"}])
        assert bare + 20 < await count(server, tools=[READ])  # as it is taught
        assert await count(server, tools=[READ], tool_choice="none") < await count(server, tools=[READ])
        assert answered(upstream) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_the_conversation_before_is_counted_and_nothing_is_kept(gateway: Gateway, stream: bool) -> None:
    async with Upstream([Say("A long answer. " * 50)]) as upstream:
        server = await gateway(upstream_config(upstream.url))
        first = (await post(server, {"input": "hi"}, path=RESPONSES)).json()
        assert await count(server, previous_response_id=first["id"], stream=stream) > await count(server) + 100
        assert answered(upstream) == 1
        assert not server.app[CONVERSATIONS].running
        gone = await post(server, {"input": "hi", "previous_response_id": "resp_gone"}, path=COUNT)
        assert (gone.status, gone.json()["error"]["code"]) == (400, "previous_response_not_found")


async def test_the_sdk_counts(gateway: Gateway) -> None:
    server = await gateway(script=["Hello."])
    async with sdk(server) as client:
        counted = await client.responses.input_tokens.count(model="m", input="hi", tools=[READ])
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == await count(server, tools=[READ])
