"""Every error that concerns Responses, over the wire: status, `code`, `param`, the envelope of four keys, the request
id (R13). And what must be none: whatever a client sends that nobody knows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import aiohttp
import openai
import pytest

from tests.cases import named
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, post, read_config, sdk, serving, upstream_config
from tests.e2e.responses_answers import PUBLISHED, RESPONSES, ask, of_stream, of_whole, outline, tool
from tests.e2e.test_errors import Case, check, gateway_config
from tests.protocols.test_responses_request import BAD, CALL, OUTPUT, USER
from toolwire.errors import CODES
from toolwire.testing import Answer, Say, Upstream, WireAnswer

READ = tool("read_file", path="string")
PATCH = {"type": "custom", "name": "apply_patch"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
PARAMETERS = "tools[0].parameters"
ASKED = {"X-Request-Id": "asked.1"}


def body(**fields: Any) -> dict[str, Any]:
    return {"input": "hi", **fields}


def bad(code: str, param: str | None, **fields: Any) -> Case:
    """A request that is refused with 400 for one of its fields."""
    return Case(code=code, status=400, param=param, body=body(**fields))


def bad_tools(param: str, *tools: Any, **more: Any) -> Case:
    return Case(code="invalid_tool_schema", status=400, param=param, body=body(tools=list(tools)), **more)


def group(*tools: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": "files", "description": "Files.", "tools": list(tools)}


def parameters(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": "f", "parameters": schema, **more}


CASES: dict[str, Case] = {
    # the body
    "no JSON": Case(code="invalid_json", status=400, body=b"{"),
    "nothing": Case(code="invalid_json", status=400, body=b""),
    "no object": Case(code="invalid_json", status=400, body=b"[]"),
    "media type": Case(code="unsupported_media_type", status=415, body=body(), headers={"Content-Type": "text/plain"}),
    "size": Case(code="request_too_large", status=413, body=body(), config={"limits": {"body_bytes": 20}}),
    # the model and the input
    "no model": Case(code="missing_required_parameter", status=400, param="model", body=b'{"input":"hi"}'),
    "model of a wrong type": bad("invalid_type", "model", model=["m"]),
    "unknown model": Case(
        code="model_not_found",
        status=404,
        param="model",
        body=body(model="nobody"),
        config={"routes": [{"model": "somebody", "backend": "mock"}]},
    ),
    "no input": Case(code="missing_required_parameter", status=400, param="input"),
    "empty input": bad("missing_required_parameter", "input", input=[]),
    # items
    "call_id of a wrong type": bad("invalid_tool_call_id", "input[0].call_id", input=[{**OUTPUT, "call_id": 3}]),
    "R5.9": Case(
        code="unsupported_content",
        status=400,
        param="input[1].content[0]",
        body=body(input=[USER, {"role": "user", "content": [IMAGE]}]),
        backend={"images": "error"},
    ),
    "R5.9 in a result": Case(
        code="unsupported_content",
        status=400,
        param="input[1].output[0]",
        body=body(input=[CALL, {**OUTPUT, "output": [IMAGE]}]),
        backend={"images": "error"},
    ),
    # other fields
    "R12.2": bad("previous_response_not_found", "previous_response_id", previous_response_id="resp_nope"),
    "R12.2 no store": Case(
        code="previous_response_not_found",
        status=400,
        param="previous_response_id",
        body=body(previous_response_id="resp_nope"),
        config={"store": {"kind": "none"}},
    ),
    # tools
    "R3.2 pattern": bad_tools("tools[1].name", READ, {**READ, "name": "a b"}),
    "R3.2 custom": bad_tools("tools[0].name", {**PATCH, "name": "ä"}),
    "R3.2 in a group": bad_tools("tools[0].tools[1].name", group(READ, {**READ, "name": "a b"})),
    "C29 two kinds": bad_tools("tools[1].name", READ, {**PATCH, "name": "read_file"}),
    "C29 in a group": bad_tools("tools[1].tools[1].name", READ, group(READ, READ)),
    "R3.4 root": bad_tools(f"{PARAMETERS}.type", parameters({"type": "array"})),
    "R3.6": bad_tools(PARAMETERS, parameters({"type": "object", "properties": {"a": {}}}, strict=True)),
    "C7 strict": bad_tools(PARAMETERS, {"type": "function", "name": "f"}, options={"validation": "strict"}),
    # tool_choice
    "choice of no form": bad("invalid_tool_choice", "tool_choice", tools=[READ], tool_choice="always"),
    "choice of an unknown custom tool": bad(
        "invalid_tool_choice", "tool_choice", tools=[READ], tool_choice={"type": "custom", "name": "apply_patch"}
    ),
    # who
    "no key": Case(code="invalid_api_key", status=401, body=body(), config={"auth": {"keys": ["right"]}}),
    # what a model server answers
    **{
        f"R10.8 {status}": Case(
            code=code, status=to, body=body(), script=[{"error": {"status": status, "message": "said so"}}]
        )
        for status, to, code in [
            (429, 429, "rate_limit_exceeded"),
            (504, 504, "upstream_timeout"),
        ]
    },
    "R10.8 gone": Case(
        code="upstream_disconnected",
        status=502,
        body=body(),
        backend={"kind": "openai_chat", "url": "http://127.0.0.1:9"},
    ),
}


async def test_codes(gateway: Gateway) -> None:
    """Streamed or not, an error before the first byte is a status."""
    running: dict[str, Any] = {}
    for name, case in CASES.items():
        config = gateway_config(case)
        server = running[repr(config)] = running.get(repr(config)) or await gateway(config)
        for stream in (False, True):
            asked = {**case.body, "stream": stream} if isinstance(case.body, Mapping) else case.body
            answer = await post(server, asked, path=RESPONSES, headers={**ASKED, **case.headers})
            with named({"name": name, "stream": stream}):
                error = answer.json()["error"]
                assert error["param"] == case.param or (
                    case.param == PARAMETERS and error["param"].startswith(PARAMETERS)
                )
                check(answer, Case(code=case.code, status=case.status, param=error["param"]))


async def test_every_row_of_the_request_table(gateway: Gateway) -> None:
    """R8.1 to R8.4 as the protocol's own tests have them, through the whole gateway."""
    server = await gateway(script=["never asked"], validation="strict")
    for fields, code, param in BAD:
        answer = await post(server, body(**fields), path=RESPONSES, headers=ASKED)
        check(answer, Case(code=code, status=400, param=param))


@pytest.mark.parametrize("count", [64, 65, 128])
async def test_names_may_be_long(gateway: Gateway, count: int) -> None:
    """R3.2: 1 to 128 characters."""
    name = "a" * count
    server = await gateway(script=[block(name, {"path": "a"})])
    made = of_whole(await ask(server, tools=[{**READ, "name": name}]))
    assert outline(made) == [("call", name, '{"path": "a"}')]


# --- paths ------------------------------------------------------------------------------------------------------------

PATHS: list[tuple[str, str, int, str | None]] = [
    ("GET", RESPONSES, 405, "POST"),
    ("DELETE", RESPONSES, 405, "GET,HEAD,POST"),
    ("POST", f"{RESPONSES}/resp_1", 405, "DELETE,GET,HEAD"),
    ("PUT", f"{RESPONSES}/resp_1", 405, "DELETE,GET,HEAD"),
    ("POST", f"{RESPONSES}/resp_1/input_items", 405, "GET,HEAD"),
    ("GET", f"{RESPONSES}/resp_1/cancel", 405, "POST"),
    ("GET", f"{RESPONSES}/resp_1", 404, None),
    ("DELETE", f"{RESPONSES}/resp_1", 404, None),
    ("GET", f"{RESPONSES}/resp_1/input_items", 404, None),
    ("POST", f"{RESPONSES}/resp_1/cancel", 404, None),
    ("GET", f"{RESPONSES}/resp_1/nothing", 404, None),
    ("GET", f"{RESPONSES}/resp_1/input_items/more", 404, None),
    ("POST", f"{RESPONSES}/", 404, None),
    ("GET", f"{RESPONSES}/..%2f..%2fhealth", 404, None),
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


@pytest.mark.parametrize("more", [{}, {"input": None}, {"stream": True}], ids=str)
@pytest.mark.parametrize("path", [RESPONSES, f"{RESPONSES}/input_tokens"])
async def test_what_would_be_lost_is_refused(gateway: Gateway, more: dict[str, Any], path: str) -> None:
    """It holds what was said elsewhere, which no model here would see."""
    server = await gateway(script=["Hello."])
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
    "a reference to nothing": {"input": [USER, {"type": "item_reference", "id": "msg_gone"}]},
    "thinking of another day": {
        "input": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
            {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "Hm"}]},
            USER,
        ]
    },
    "unknown tools": {"tools": [{"type": "brand_new", "x": [1]}, {"type": "computer_use"}, READ]},
    "only unknown tools": {"tools": [{"type": "brand_new"}]},
    "calls without id and status": {"input": [USER, CALL, OUTPUT]},
    "calls with more than we know": {
        "input": [
            USER,
            {**CALL, "id": None, "status": "incomplete", "brand_new": 1},
            {**OUTPUT, "id": "fco_1", "status": None, "name": "f", "is_error": True},
        ]
    },
    "a result without its call": {"input": [OUTPUT]},
    "results out of order": {"input": [OUTPUT, USER, CALL]},
    "the same call id twice": {"input": [USER, CALL, OUTPUT, CALL, OUTPUT]},
    "messages without type": {"input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]},
    "messages of other people": {
        "input": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a", "annotations": None, "logprobs": None, "parsed": {}}],
                "phase": "commentary",
                "status": None,
            },
            USER,
        ]
    },
    "bare parts": {"input": [{"type": "input_text", "text": "hi"}]},
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


# --- the SDK's view --------------------------------------------------------------------------------------------------

SDK_VIEW: list[tuple[str, type[openai.APIStatusError]]] = [
    ("no input", openai.BadRequestError),
    ("R12.2", openai.BadRequestError),
    ("no key", openai.AuthenticationError),
    ("unknown model", openai.NotFoundError),
    ("R10.8 429", openai.RateLimitError),
    ("R10.8 504", openai.InternalServerError),
]


@pytest.mark.parametrize(("name", "kind"), SDK_VIEW, ids=[row[0] for row in SDK_VIEW])
async def test_the_sdk_raises_the_right_class(gateway: Gateway, name: str, kind: type[openai.APIStatusError]) -> None:
    case = CASES[name]
    assert isinstance(case.body, Mapping)
    server = await gateway(gateway_config(case))
    request: dict[str, Any] = {"model": "m", **case.body}
    async with sdk(server, api_key="wrong") as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await client.responses.create(**request, extra_headers=ASKED)
    error = caught.value
    assert type(error) is kind
    assert (error.status_code, error.code, error.param, error.type, error.request_id) == (
        case.status, case.code, case.param, CODES[case.code].type, "asked.1",
    )  # fmt: skip
