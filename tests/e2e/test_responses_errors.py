"""Paths and methods that Responses does not have (R13.4), and what must be no error: whatever a client sends that
nobody knows. Errors of every protocol: `test_errors.py`. The words of `param`: `tests/unit/test_locations.py`."""

from __future__ import annotations

from itertools import product
from typing import Any

import aiohttp
import pytest

from tests.cases import every, named
from tests.e2e.conftest import Gateway, post, read_config, serving, upstream_config
from tests.e2e.responses_answers import PUBLISHED, RESPONSES, ask, of_stream, of_whole, outline, tool
from tests.e2e.test_errors import Case, check
from tests.protocols.test_responses_request import CALL, OUTPUT, USER
from toolwire.testing import Answer, Say, Upstream, WireAnswer

READ = tool("read_file", path="string")
ASKED = {"X-Request-Id": "asked.1"}


PATHS: list[tuple[str, str, int, str | None]] = [
    ("GET", RESPONSES, 405, "POST"),
    ("POST", f"{RESPONSES}/resp_1", 405, "DELETE,GET,HEAD"),
    ("POST", f"{RESPONSES}/resp_1/input_items", 405, "GET,HEAD"),
    ("GET", f"{RESPONSES}/resp_1/cancel", 405, "POST"),
    ("GET", f"{RESPONSES}/resp_1", 404, None),
    ("GET", f"{RESPONSES}/resp_1/input_items", 404, None),
    ("POST", f"{RESPONSES}/resp_1/cancel", 404, None),
    ("GET", f"{RESPONSES}/resp_1/nothing", 404, None),
    ("POST", f"{RESPONSES}/", 404, None),
    ("GET", f"{RESPONSES}/%00%ff", 404, None),
    ("GET", f"{RESPONSES}/{'x' * 5000}", 404, None),
]
"""Method, path, status, and what `Allow` says (R13.4)."""


@pytest.mark.parametrize("store", ["memory", "none"])
async def test_paths(gateway: Gateway, store: str) -> None:
    config = read_config({"backends": {"mock": {"kind": "mock", "script": ["ok"]}}, "store": {"kind": store}})
    base = str((await gateway(config)).make_url("")).rstrip("/")
    async with aiohttp.ClientSession(headers=ASKED) as session:
        for prefix, (method, path, status, allow) in product(("/v1", ""), PATHS):
            url = aiohttp.client.URL(base + prefix + path.removeprefix("/v1"), encoded=True)
            async with session.request(method, url) as response:
                answer = WireAnswer(status=response.status, headers=response.headers.copy(), body=await response.read())
            check(answer, Case(code="not_found" if status == 404 else "method_not_allowed", status=status))
            if allow is not None:
                assert ",".join(sorted(answer.headers["Allow"].split(","))) == allow, url


# --- what is no error ------------------------------------------------------------------------------------------------


@every("more", [{}, {"input": None}, {"stream": True}])
@every("path", [RESPONSES, f"{RESPONSES}/input_tokens"])
async def test_what_would_be_lost_is_refused(shared_gateway: Gateway, more: dict[str, Any], path: str) -> None:
    """It holds what was said elsewhere, which no model here would see."""
    server = await shared_gateway(script=["Hello."])
    prompt = {"id": "pmpt_1", "variables": {"a": "b"}}
    answer = await post(server, {"model": "m", "input": "hi", "prompt": prompt, **more}, path=path)
    error = answer.json()["error"]
    assert (answer.status, error["code"], error["param"]) == (400, "unsupported_parameter", "prompt")
    assert "'instructions'" in error["message"]


async def test_a_server_that_knows_prompts_gets_them() -> None:
    async with Upstream([Answer([b'{"id":"resp_u","output":[]}'], headers={"Content-Type": "application/json"})]) as up:
        config = upstream_config(up.url, backend={"kind": "openai_responses"}, defaults={"mode": "native"})
        async with serving(config) as server:
            answer = await post(server, {"prompt": {"id": "pmpt_1"}, "input": "hi"}, path=RESPONSES)
        assert answer.status == 200, answer.body
    assert up.requests[0].json["prompt"] == {"id": "pmpt_1"}


NO_ERRORS: dict[str, dict[str, Any]] = {
    "unknown fields": {"brand_new": {"a": [1]}, "seed": 3, "client_metadata": {"x": "y"}, "top_k": 4},
    "fields that mean nothing here": {
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "truncation": "auto",
        "service_tier": "flex",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
        "user": "u",
        "max_tool_calls": 3,
        "reasoning": {"effort": "high", "summary": "auto"},
        "text": {"verbosity": "low"},
        "metadata": {"k": "v"},
        "conversation": None,
        "background": False,
    },
    "unknown items": {
        "input": [
            USER,
            {"type": "brand_new", "x": 1},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
            {"type": "local_shell_call", "id": "ls_1", "call_id": "c", "action": {}, "status": "completed"},
            {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
            {"type": "compaction", "encrypted_content": "x"},
        ]
    },
    "what others wrote": {
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"type": "item_reference", "id": "msg_gone"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
            {"type": "message", "role": "assistant", "phase": "commentary", "status": None,
             "content": [{"type": "output_text", "text": "a", "annotations": None, "logprobs": None, "parsed": {}}]},
            {"type": "input_text", "text": "hi"},
            {**CALL, "id": None, "status": "incomplete", "brand_new": 1},
            {**OUTPUT, "id": "fco_1", "status": None, "name": "f", "is_error": True},
        ]
    },
    "unknown tools": {"tools": [{"type": "brand_new", "x": [1]}, {"type": "computer_use"}, READ]},
    "only unknown tools": {"tools": [{"type": "brand_new"}]},
    "results out of order": {"input": [OUTPUT, USER, CALL]},
    "the same call id twice": {"input": [USER, CALL, OUTPUT, CALL, OUTPUT]},
    "every null": dict.fromkeys(
        ["instructions", "tools", "tool_choice", "parallel_tool_calls", "stream_options", "max_output_tokens",
         "temperature", "top_p", "metadata", "store", "previous_response_id", "text", "reasoning", "include", "truncation",
         "user", "background", "brand_new"]
    ),
}  # fmt: skip


def known(sent: dict[str, Any]) -> dict[str, Any]:
    """A tool as it is echoed."""
    return {**sent, "strict": None} if sent["type"] == "function" else sent


@pytest.mark.parametrize(("mode", "stream"), [("prompt", True), ("native", False)])
async def test_what_nobody_knows_is_no_error(gateway: Gateway, stream: bool, mode: str) -> None:
    """R8.1 to R8.4, R3.8: in front of a server that would refuse what it does not know."""
    async with Upstream([Say("ok")]) as upstream:
        server = await gateway(upstream_config(upstream.url, defaults={"mode": mode}))
        for name, fields in NO_ERRORS.items():
            answer = await ask(server, stream=stream, **fields)
            with named({"name": name}):
                published = PUBLISHED and "unknown tools" not in name  # they are echoed, and no schema knows them
                made = of_stream(answer, schemas=published).resource if stream else of_whole(answer, schemas=published)
                assert outline(made) == [("text", "ok")]
                assert made["tools"] == [known(tool) for tool in fields.get("tools") or ()]
                sent = upstream.requests[-1].json
                assert "brand_new" not in str(sent)
                assert sent["messages"]
