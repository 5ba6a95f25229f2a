"""Images in requests without tools: where nothing is known of a server, it decides (R1.6). The rest:
`tests/unit/test_validation.py`, `tests/protocols/test_completions.py`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import CHAT, USER, Gateway, post, read_config, upstream_config
from tests.e2e.responses_answers import RESPONSES
from toolwire.testing import Say, Upstream

URL = "data:image/png;base64,AA=="
SEEN = {
    "role": "user",
    "content": [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": URL}}],
}
SHOWN = {
    "role": "user",
    "content": [{"type": "input_text", "text": "what?"}, {"type": "input_image", "image_url": URL}],
}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "done"}


def asked_with(path: str, **more: Any) -> dict[str, Any]:
    return {"messages": [SEEN], **more} if path == CHAT else {"input": [SHOWN], **more}


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_images_beside_earlier_calls(gateway: Gateway, path: str) -> None:
    """Calls of earlier turns are written as text, so the request is not passed on as it is."""
    items = [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}]
    items += [{"type": "function_call_output", "call_id": "a", "output": "done"}, SHOWN]
    body = {"messages": [*USER, CALLED, RESULT, SEEN]} if path == CHAT else {"input": items}
    async with Upstream([Say("a cat")]) as server:
        answer = await post(await gateway(upstream_config(server.url)), body, path=path)
        assert answer.status == 200
        assert URL in server.requests[0].body.decode()


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
async def test_images_are_notes_where_the_protocol_has_none(gateway: Gateway, path: str) -> None:
    async with Upstream([Say("ok")]) as server:
        text = await gateway(upstream_config(server.url, backend={"kind": "openai_completions"}))
        assert (await post(text, asked_with(path), path=path)).status == 200
        assert "[image omitted: this model takes no images]" in server.requests[-1].body.decode()


async def test_several_servers_have_to_agree_on_images(gateway: Gateway) -> None:
    async with Upstream([Say("a cat")]) as server:
        for other, status in (
            ({}, 200),
            ({"preset": "vllm"}, 200),
            ({"images": "false"}, 200),
            ({"images": "error"}, 400),
        ):
            backends = {"one": {"url": server.url}, "two": {"url": server.url, **other}}
            started = await gateway(
                read_config({"backends": backends, "routes": [{"model": "*", "backends": ["one", "two"]}]})
            )
            answers = [await post(started, asked_with(RESPONSES), path=RESPONSES) for _ in range(2)]
            assert [answer.status for answer in answers] == [status] * 2
