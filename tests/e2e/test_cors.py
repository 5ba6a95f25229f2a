"""Web pages as clients (R17.10): what a browser asks before and reads after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, read_config, serving
from toolwire.support.conversion import ConfigError

PAGE = "https://chat.example.org"
KEY = {"Authorization": "Bearer secret"}
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
}
ALLOWED = "Access-Control-Allow-Origin"


@asynccontextmanager
async def gateway_for(*origins: str, **sections: Any) -> AsyncIterator[TestServer]:
    mock = {"kind": "mock", "script": [{"text": "ok"}]}
    config = {"auth": {"keys": ["secret"]}, "backends": {"mock": mock}, "cors": {"origins": list(origins)}, **sections}
    async with serving(read_config(config)) as server:
        yield server


async def ask(
    server: TestServer, method: str, path: str, headers: dict[str, str], **fields: Any
) -> aiohttp.ClientResponse:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, server.make_url(path), headers=headers, **fields) as response,
    ):
        await response.read()
        return response


async def test_a_preflight_needs_no_key():
    async with gateway_for(PAGE) as server:
        for path in (CHAT, "/v1/responses", "/v1/responses/resp_1", "/v1/models", "/metrics"):
            answer = await ask(server, "OPTIONS", path, PREFLIGHT)
            assert (answer.status, answer.headers[ALLOWED], answer.headers["Vary"]) == (204, PAGE, "Origin"), path
            assert "POST" in answer.headers["Access-Control-Allow-Methods"]
            assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]
            assert answer.headers["Access-Control-Allow-Headers"] == PREFLIGHT["Access-Control-Request-Headers"]
            assert answer.headers["Access-Control-Max-Age"] == "600"
            assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_the_page_may_read_the_answer_and_the_refusal():
    async with gateway_for("https://other.example.org", PAGE) as server:
        for stream, (key, status) in product((False, True), ((KEY, 200), ({}, 401))):
            body = {"model": "m", "messages": USER, "stream": stream}
            answer = await ask(server, "POST", CHAT, {"Origin": PAGE, **key}, json=body)
            assert (answer.status, answer.headers[ALLOWED], answer.headers["Vary"]) == (status, PAGE, "Origin"), stream
            exposed = answer.headers["Access-Control-Expose-Headers"].split(", ")
            assert {
                *("retry-after-ms", "x-client-request-id", "openai-processing-ms", "x-request-id"),
                *("x-ratelimit-reset-tokens", "request-id", "anthropic-ratelimit-tokens-reset"),
            } <= set(exposed)
            assert len(exposed) == len(set(exposed))
            assert answer.headers["X-Request-Id"]
        for method, path, status in ("GET", "/nothing", 404), ("PUT", CHAT, 405):
            answer = await ask(server, method, path, {"Origin": PAGE, **KEY})
            assert (answer.status, answer.headers[ALLOWED]) == (status, PAGE)


async def test_no_other_page_may():
    async with gateway_for(PAGE) as server:
        for origin in ("https://evil.example", "null", f"{PAGE}.evil.example", "http://chat.example.org"):
            refused = await ask(server, "OPTIONS", CHAT, {**PREFLIGHT, "Origin": origin})
            assert refused.status == 403, origin
            assert (await refused.json())["error"]["code"] == "origin_not_allowed"
            assert ALLOWED not in refused.headers
            answer = await ask(server, "GET", "/v1/models", {"Origin": origin, **KEY})
            assert (answer.status, answer.headers["Vary"]) == (200, "Origin")
            assert ALLOWED not in answer.headers


async def test_any_page_may_if_the_operator_says_so():
    async with gateway_for("*") as server:
        answer = await ask(server, "OPTIONS", CHAT, {**PREFLIGHT, "Origin": "null"})
        assert (answer.status, answer.headers[ALLOWED]) == (204, "*")
        assert "Vary" not in answer.headers


async def test_options_without_a_question_is_no_preflight():
    async with gateway_for(PAGE) as server:
        assert (await ask(server, "OPTIONS", CHAT, {"Origin": PAGE})).status == 401
        assert (await ask(server, "OPTIONS", CHAT, {"Origin": PAGE, **KEY})).status == 405


async def test_off_no_page_may():
    async with gateway_for() as server:
        assert (await ask(server, "OPTIONS", CHAT, PREFLIGHT)).status == 401
        answer = await ask(server, "POST", CHAT, {"Origin": PAGE, **KEY}, json={"model": "m", "messages": USER})
        assert answer.status == 200
        assert not {ALLOWED, "Vary"} & set(answer.headers)


async def test_what_needs_no_preflight_is_refused():
    """What any page may send without asking: also a gateway without keys does not take it."""
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"input":"hi"}'
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "")
    async with gateway_for(auth={}) as server:
        for path, kind in product((CHAT, "/v1/responses"), kinds):
            answer = await ask(server, "POST", path, {"Origin": PAGE, "Content-Type": kind}, data=body)
            assert answer.status == 415, (path, kind)


async def test_clients_that_are_no_pages_notice_nothing():
    async with gateway_for(PAGE) as server:
        answer = await ask(server, "POST", CHAT, KEY, json={"model": "m", "messages": USER})
        assert (answer.status, answer.headers["Server"]) == (200, "toolwire")
        assert ALLOWED not in answer.headers
        assert answer.headers["Vary"] == "Origin"  # a cache may give this answer to a page


@every(
    "origin",
    ["chat.example.org", "https://chat.example.org/", "https://Chat.example.org", "https://u@h", "", "https://"],
)
def test_what_is_no_origin_is_an_error_at_load(origin):
    with pytest.raises(ConfigError, match=r"cors.origins\[0\]: expected an origin"):
        read_config({"backends": {"mock": {"kind": "mock"}}, "cors": {"origins": [origin]}})


async def test_a_preflight_names_only_headers_there_can_be():
    """What a page asks for comes back as a header: only names of headers do."""
    asked = {**PREFLIGHT, "Access-Control-Request-Headers": "x-a, b c,\xe9,,x-d;, authorization"}
    async with gateway_for(PAGE) as server:
        answer = await ask(server, "OPTIONS", CHAT, asked)
    assert answer.headers["Access-Control-Allow-Headers"] == "x-a,authorization"
