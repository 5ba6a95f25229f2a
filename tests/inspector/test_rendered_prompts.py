"""The prompt as the model sees it, where the model's own chat template makes it (R31.1a)."""

from __future__ import annotations

from typing import Any

import orjson

from tests.cases import every
from tests.e2e.conftest import read_config
from tests.e2e.template_servers import KINDS, TemplateServer, upstream
from tests.inspector.inspected import WEATHER, Inspected, View, asked, inspecting
from tests.inspector.test_prompt_lane import QUESTION, texts, whose
from toolwire.testing import Answer, Asked, Refuse

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def config(url: str, kind: str, **defaults: Any) -> Any:
    backends = {"up": {"url": url, "preset": kind, "identify_s": 0}}
    return read_config({"backends": backends, "inspect": True, "defaults": {"mode": "template", **defaults}})


async def view(server: TemplateServer, *, body: dict[str, Any] | None = None, **defaults: Any) -> tuple[View, Any]:
    up = upstream(server)
    async with up, inspecting(config(up.url, server.kind, **defaults)) as gateway:
        question = asked("/v1/chat/completions", WEATHER, text=QUESTION)
        _, seen = await gateway.ask(body or question)
    return seen, up


@every("kind", KINDS)
async def test_the_prompt_is_the_templates(kind: str) -> None:
    server = TemplateServer(kind, CALL)
    seen, _ = await view(server)
    assert texts(seen) == [("", server.prompts[-1])]
    assert "<tools>" in server.prompts[-1]
    assert whose(seen, "client") == [QUESTION]
    assert any("<tools>" in text for text in whose(seen, "injected"))
    assert [call["name"] for call in seen["calls"]] == ["weather"]
    assert seen["head"]["tool_mode"] == "template"


async def test_a_server_that_cannot_say_it_shows_what_was_sent() -> None:
    server = TemplateServer("vllm", CALL)
    up = upstream(server)

    def answer(got: Asked) -> Answer:
        return Refuse(404) if got.path == "/tokenize" else server(got)

    up.script = [answer]
    async with up, inspecting(config(up.url, "vllm")) as gateway:
        _, seen = await gateway.ask(asked("/v1/chat/completions", WEATHER, text=QUESTION))
    assert [role for role, _ in texts(seen)] == ["system", "user"]
    assert seen["rounds"][0]["prompt"]["tools"] == ["weather"]


async def test_nobody_is_asked_where_no_template_writes_tools() -> None:
    _, up = await view(TemplateServer("vllm", CALL), mode="prompt")
    assert {got.path for got in up.posts} == {"/v1/chat/completions"}
    _, up = await view(TemplateServer("vllm"), body=asked(text=QUESTION))
    assert {got.path for got in up.posts} == {"/v1/chat/completions"}


async def test_a_capture_holds_it() -> None:
    server = TemplateServer("llamacpp", CALL)
    up = upstream(server)
    async with up, inspecting(config(up.url, "llamacpp")) as gateway:
        _, seen = await gateway.ask(asked("/v1/chat/completions", WEATHER, text=QUESTION))
        capture = await captured(gateway, seen)
    (line,) = [entry for entry in capture if entry.get("kind") == "prompt"]
    assert line["data"] == server.prompts[-1]


async def captured(gateway: Inspected, seen: View) -> list[dict[str, Any]]:
    got = await gateway.fetch("GET", f"/inspect/api/exchanges/{seen['exchange_id']}/capture")
    return [orjson.loads(line) for line in got.body.splitlines()]
