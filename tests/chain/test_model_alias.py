"""The middleware `model_alias`."""

from __future__ import annotations

import pytest

from middlewares.model_alias import ModelAliasOptions
from proxy.config import MiddlewareConfig, RouteOptions
from proxy.testing import Say, Upstream, run_chain
from tests.e2e.conftest import CHAT, post, serving, upstream_config

ALIAS = MiddlewareConfig(use="model_alias", options={"models": {"gpt-4o-mini": "small", "gpt-*": "large"}})
SAID = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(("asked", "sent"), [("gpt-4o-mini", "small"), ("gpt-4.1", "large"), ("other", "other")])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_the_server_hears_one_name_and_the_client_the_other(asked, sent, stream, path):
    body = {"model": asked, "stream": stream, **({"messages": SAID} if "chat" in path else {"input": "hi"})}
    answer = await run_chain(["conversation", ALIAS], body, replies=["ok"], path=path)
    assert [request.model for request in answer.requests] == [sent]
    assert f'"model":"{asked}"' in answer.body.decode()
    assert sent == asked or f'"model":"{sent}"' not in answer.body.decode()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_could_pass_unread_does_not_tell_the_name(stream):
    chain = [{"use": "model_alias", "options": {"models": {"*": "m"}}}, "forwarding"]
    async with Upstream([Say("hel", "lo", usage=(1, 2))]) as upstream:
        config = upstream_config(upstream.url, chain=chain, defaults={"usage": {"source": "backend"}, "mode": "native"})
        async with serving(config) as server:
            answer = await post(server, {"model": "gpt-4o", "messages": SAID, "stream": stream}, path=CHAT)
        assert upstream.requests[0].json["model"] == "m"
    assert b'"model":"gpt-4o"' in answer.body
    assert b'"model":"m"' not in answer.body


async def test_the_format_goes_by_the_new_name():
    alias = MiddlewareConfig(use="model_alias", options={"models": {"*": "Qwen2.5-7B-Instruct"}})
    body = {"model": "gpt-4o", "messages": SAID, "tools": [{"type": "function", "name": "look"}]}
    answer = await run_chain([alias, "injection"], body, replies=["ok"], options=RouteOptions(format="auto"))
    assert "<tools>" in answer.requests[0].messages[0].text


def test_names_are_needed():
    for models in {}, {"a": ""}:
        with pytest.raises(ValueError, match="models"):
            ModelAliasOptions(models=models)
