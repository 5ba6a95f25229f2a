"""Tools that are short to send and long to work on, in every protocol and on the paths for counting (R33.1, R33.4)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, post, read_config, serving
from tests.unit.hostile_entries import MIB, pattern_schema
from toolwire.config import GatewayConfig
from toolwire.pipeline.exchange.caches import CACHES
from toolwire.schemas import schema as schemas

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
PATHS = [CHAT, RESPONSES, MESSAGES, "/v1/messages/count_tokens", "/v1/responses/input_tokens"]
BAD = {"type": "string"}


def gateway(says: str = "ok", **sections: Any) -> GatewayConfig:
    return read_config({"backends": {"m": {"kind": "mock", "script": [says]}}, **sections})


def body(path: str, parameters: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A request with these tools, in the protocol of the path. `more` are fields of each tool."""
    named = [{"name": f"t{at}", **more, "parameters": one} for at, one in enumerate(parameters)]
    if path == CHAT:
        return {"messages": USER, "tools": [{"type": "function", "function": one} for one in named]}
    if path.startswith(MESSAGES):
        flat = [{"name": f"t{at}", **more, "input_schema": one} for at, one in enumerate(parameters)]
        return {"messages": USER, "tools": flat, **({"max_tokens": 9} if path == MESSAGES else {})}
    return {"input": "hi", "tools": [{"type": "function", **one} for one in named]}


@every("refused", [False, True])
@every("path", PATHS)
async def test_what_is_kept_stays_within_the_budget(path: str, refused: bool) -> None:
    """Also of requests that are refused, and of those that only count."""
    async with serving(gateway(limits={"cache_bytes": 8 * MIB})) as server:
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
    async with serving(gateway()) as server:
        for _ in range(2):
            assert (await post(server, body(CHAT, [pattern_schema(1)]))).status == 200
        assert (await post(server, body(CHAT, [pattern_schema(2), BAD]))).status == 400
    assert len(threads) == 3
    assert threading.main_thread() not in threads


async def test_tools_and_forms_of_answers_have_a_size() -> None:
    def form(path: str, size: int) -> dict[str, Any]:
        inner = {"name": "f", "schema": {"type": "object", "description": "x" * size}}
        if path == CHAT:
            return {"messages": USER, "response_format": {"type": "json_schema", "json_schema": inner}}
        return {"input": "hi", "text": {"format": {"type": "json_schema", **inner}}}

    empty = [{"type": "object"}]
    async with serving(gateway("{}", limits={"tools_bytes": 3_000, "schema_bytes": 3_000})) as server:
        for path in PATHS:
            assert (await post(server, body(path, empty, description="x" * 2_500), path=path)).status == 200, path
            answer = await post(server, body(path, empty, description="x" * 3_500), path=path)
            assert answer.status == 400, path
            assert "The tools have more than 3000 bytes" in answer.json()["error"]["message"]
        long = [{"role": "user", "content": "x" * 100_000}]  # a large request may have small tools
        assert (await post(server, {**body(CHAT, empty), "messages": long})).status == 200
        for path, param in ((CHAT, "response_format"), (RESPONSES, "text.format")):
            assert (await post(server, form(path, 2_500), path=path)).status == 200, path
            answer = await post(server, form(path, 3_500), path=path)
            assert (answer.status, answer.json()["error"]["param"]) == (400, param)
