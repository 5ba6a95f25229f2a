"""Errors that concern Responses, over the wire: `code`, `param` in its words, the envelope of four keys, the request id
(R13). And what must be none: whatever a client sends that nobody knows. Errors of every protocol: `test_errors.py`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest

from tests.cases import every, named
from tests.e2e.conftest import Gateway, post, read_config, serving, upstream_config
from tests.e2e.responses_answers import PUBLISHED, RESPONSES, ask, of_stream, of_whole, outline, tool
from tests.e2e.test_errors import Case, check, gateway_config
from tests.protocols.test_responses_request import BAD, CALL, OUTPUT, USER
from toolwire.testing import Answer, Say, Upstream, WireAnswer

READ = tool("read_file", path="string")
PATCH = {"type": "custom", "name": "apply_patch"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
PARAMETERS = "tools[0].parameters"
ASKED = {"X-Request-Id": "asked.1"}


def bad(code: str, param: str, /, *, backend: Mapping[str, Any] = MappingProxyType({}), **fields: Any) -> Case:
    """A request that is refused with 400 for one of its fields."""
    return Case(code=code, status=400, param=param, body={"input": "hi", **fields}, backend=backend)


def bad_tools(param: str, *tools: Any) -> Case:
    return bad("invalid_tool_schema", param, tools=list(tools))


def group(*tools: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": "files", "description": "Files.", "tools": list(tools)}


LOOSE = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"a": {}}}, "strict": True}
NO_IMAGES = {"images": "error"}
CASES: dict[str, Case] = {
    "no JSON": Case(code="invalid_json", status=400, body=b"{"),
    "no input": Case(code="missing_required_parameter", status=400, param="input"),
    "empty input": bad("missing_required_parameter", "input", input=[]),
    "R5.9": bad("unsupported_content", "input[1].content[0]", input=[USER, {"role": "user", "content": [IMAGE]}], backend=NO_IMAGES),
    "R5.9 in a result": bad("unsupported_content", "input[1].output[0]", input=[CALL, {**OUTPUT, "output": [IMAGE]}], backend=NO_IMAGES),
    "R3.2 custom": bad_tools("tools[0].name", {**PATCH, "name": "ä"}),
    "R3.2 in a group": bad_tools("tools[0].tools[1].name", group(READ, {**READ, "name": "a b"})),
    "C29 two kinds": bad_tools("tools[1].name", READ, {**PATCH, "name": "read_file"}),
    "C29 in a group": bad_tools("tools[1].tools[1].name", READ, group(READ, READ)),
    "R3.6": bad_tools(PARAMETERS, LOOSE),
    "a choice that is not on offer": bad("invalid_tool_choice", "tool_choice", tools=[READ], tool_choice=PATCH),
}  # fmt: skip


async def test_codes(gateway: Gateway) -> None:
    """Streamed or not, an error before the first byte is a status."""
    running: dict[str, Any] = {}
    for name, case in CASES.items():
        config = gateway_config(case)
        server = running[repr(config)] = running.get(repr(config)) or await gateway(config)
        for stream in (False, True):
            asked = {**case.body, "stream": stream} if isinstance(case.body, Mapping) else case.body
            answer = await post(server, asked, path=RESPONSES, headers=ASKED)
            with named({"name": name, "stream": stream}):
                param = answer.json()["error"]["param"]
                assert param == case.param or (case.param == PARAMETERS and param.startswith(PARAMETERS))
                check(answer, Case(code=case.code, status=case.status, param=param))


async def test_every_row_of_the_request_table(gateway: Gateway) -> None:
    """R8.1 to R8.4 as the protocol's own tests have them, through the whole gateway."""
    server = await gateway(script=["never asked"], validation="strict")
    for fields, code, param in BAD:
        answer = await post(server, {"input": "hi", **fields}, path=RESPONSES, headers=ASKED)
        check(answer, Case(code=code, status=400, param=param))


# --- paths ------------------------------------------------------------------------------------------------------------

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
