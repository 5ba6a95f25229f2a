"""Tools that are short to send and long to work on, in every protocol and on the paths for counting (R33.1, R33.4)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from middlewares.validation import Validation
from proxy.pipeline.caches import CACHES
from proxy.schemas import schema as schemas
from proxy.testing import Say, Upstream
from tests.e2e.conftest import CHAT, USER, post, serving, upstream_config
from tests.unit.hostile_entries import MIB, pattern_schema

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
PATHS = [CHAT, RESPONSES, MESSAGES, "/v1/messages/count_tokens", "/v1/responses/input_tokens"]
BAD = {"type": "string"}


def body(path: str, parameters: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A request with these tools, in the protocol of the path. `more` are fields of each tool."""
    named = [{"name": f"t{at}", **more, "parameters": one} for at, one in enumerate(parameters)]
    if path == CHAT:
        return {"messages": USER, "tools": [{"type": "function", "function": one} for one in named]}
    if path.startswith(MESSAGES):
        flat = [
            {**{k: v for k, v in one.items() if k != "parameters"}, "input_schema": one["parameters"]} for one in named
        ]
        return {"messages": USER, "tools": flat, **({"max_tokens": 9} if path == MESSAGES else {})}
    return {"input": "hi", "tools": [{"type": "function", **one} for one in named]}


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_what_is_kept_stays_within_the_budget(path: str, refused: bool) -> None:
    """Also of requests that are refused, and of those that only count."""
    async with Upstream([Say("ok")]) as up:
        config = upstream_config(up.url, limits={"cache_bytes": 8 * MIB})
        async with serving(config) as server:
            budget = server.app[CACHES]
            for number in range(3):
                listed = [pattern_schema(100 * number + at) for at in range(20)]
                answer = await post(server, body(path, [*listed, BAD] if refused else listed), path=path)
                assert answer.status == (400 if refused else 200)
                assert 0 < budget.held <= budget.most
            assert budget.use["schemas"].entries > 0


async def test_new_schemas_are_compiled_in_a_thread_and_known_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    real = schemas.compile_schema

    def watched(*args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*args, **options)

    monkeypatch.setattr(schemas, "compile_schema", watched)
    async with Upstream([Say("ok")]) as up, serving(upstream_config(up.url)) as server:
        for _ in range(2):
            assert (await post(server, body(CHAT, [pattern_schema(1)]))).status == 200
        assert (await post(server, body(CHAT, [pattern_schema(2), BAD]))).status == 400
    assert len(threads) == 3
    assert threading.main_thread() not in threads


async def test_soft_tools_lose_their_patterns_and_strict_ones_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    many = [pattern_schema(at, 440, 5) for at in range(8)]
    strict = [{**one, "required": [*one["properties"]], "additionalProperties": False} for one in many]
    async with Upstream([Say("ok")]) as up, serving(upstream_config(up.url)) as server:
        assert (await post(server, body(CHAT, many))).status == 200
        assert "schema_unchecked" in caplog.text
        compiled = [e.value for e in server.app[CACHES]._order if isinstance(e.value, schemas.ToolSchema)]
        few = await post(server, body(CHAT, strict[:2], strict=True))
        assert few.status == 200
        answer = await post(server, body(CHAT, strict, strict=True))
    assert sum(one.pattern_bytes for one in compiled) <= schemas.MAX_PATTERN_BYTES + 2 * MIB
    assert answer.status == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_tool_schema", "tools[2].function.parameters")
    assert "more than 4194304 bytes when compiled" in error["message"]


@pytest.mark.parametrize("path", PATHS)
async def test_tools_have_a_size(path: str) -> None:
    listed = [{"type": "object"}]
    async with Upstream([Say("ok")]) as up:
        config = upstream_config(up.url, limits={"tools_bytes": 3_000})
        async with serving(config) as server:
            fits = await post(server, body(path, listed, description="x" * 2_500), path=path)
            answer = await post(server, body(path, listed, description="x" * 3_500), path=path)
    assert fits.status == 200
    assert answer.status == 400
    assert "The tools have more than 3000 bytes" in answer.json()["error"]["message"]


async def test_a_large_request_may_have_small_tools() -> None:
    async with Upstream([Say("ok")]) as up:
        config = upstream_config(up.url, limits={"tools_bytes": 3_000})
        async with serving(config) as server:
            asked = body(CHAT, [{"type": "object"}])
            asked["messages"] = [{"role": "user", "content": "x" * 100_000}]
            assert (await post(server, asked)).status == 200


@pytest.mark.parametrize(
    ("path", "param"), [(CHAT, "response_format"), (RESPONSES, "text.format")], ids=["chat", "responses"]
)
async def test_forms_of_answers_have_a_size(path: str, param: str) -> None:
    def asked(size: int) -> dict[str, Any]:
        form = {"name": "f", "schema": {"type": "object", "description": "x" * size}}
        if path == CHAT:
            return {"messages": USER, "response_format": {"type": "json_schema", "json_schema": form}}
        return {"input": "hi", "text": {"format": {"type": "json_schema", **form}}}

    async with Upstream([Say("{}")]) as up, serving(upstream_config(up.url, limits={"schema_bytes": 3_000})) as server:
        assert (await post(server, asked(2_500), path=path)).status == 200
        answer = await post(server, asked(3_500), path=path)
    assert answer.status == 400
    assert answer.json()["error"]["param"] == param


async def test_a_choice_names_no_more_tools_than_there_may_be() -> None:
    allowed = [{"type": "function", "function": {"name": "t0"}}] * 3000
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": allowed}}
    async with Upstream([Say("ok")]) as up, serving(upstream_config(up.url)) as server:
        answer = await post(server, {**body(CHAT, [{"type": "object"}]), "tool_choice": choice})
    assert answer.status == 400
    assert answer.json()["error"]["code"] == "invalid_tool_choice"


def test_each_application_has_its_own_schemas() -> None:
    assert Validation()._schemas is not Validation()._schemas
