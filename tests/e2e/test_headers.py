"""Headers beside an answer: what the client calls its request, and how long the gateway had it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import product
from typing import Any

import aiohttp
import pytest

from tests.cases import every
from tests.e2e.conftest import (
    CHAT,
    USER,
    Gateway,
    function,
    gateway_before,
    get,
    post,
    read_config,
    upstream_config,
)
from tests.waiting import GUARD_S
from toolwire.testing import Refuse, Say, Upstream

MINE = "x-client-request-id"
TIME = "openai-processing-ms"
NAME = "019ab/Turn: 7 of {them}"
TOOLS = [function("read_file", path="string")]
BODIES: Mapping[str, Mapping[str, Any]] = {
    CHAT: {"messages": USER},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": USER, "max_tokens": 16},
    "/v1/embeddings": {"input": "hi"},
}


# --- x-client-request-id --------------------------------------------------------------------------------------------


@every("path, stream", [(path, stream) for path in BODIES for stream in (False, True)])
async def test_what_a_client_calls_its_request_goes_all_the_way(
    gateway: Gateway, path: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    caplog.set_level(logging.INFO, "toolwire.access")
    async with asyncio.timeout(GUARD_S), Upstream([Refuse(503), Say("fine")]) as upstream:
        config = upstream_config(upstream.url, defaults={"retry": {"attempts": 2, "backoff_s": 0.01}})
        server = await gateway(config)
        answer = await post(server, {**BODIES[path], "stream": stream}, path=path, headers={MINE: NAME})
        other = await post(server, {**BODIES[path], "stream": stream}, path=path)
    assert (answer.status, answer.headers.getall(MINE)) == (200, [NAME])
    assert [asked.headers.get(MINE) for asked in upstream.requests] == [NAME, NAME, None], "no other request has it"
    assert MINE not in other.headers
    fields = [record.__dict__["fields"] for record in caplog.records if record.name == "toolwire.access"]
    assert [line.get("client_request_id") for line in fields] == [NAME, None]
    assert fields[0]["request_id"] == answer.headers["X-Request-Id"] != NAME


async def test_it_is_on_refusals_and_on_what_is_no_exchange(gateway: Gateway) -> None:
    server = await gateway(read_config({"auth": {"keys": ["k"]}, "backends": {"m": {"kind": "mock"}}}))
    key = {"Authorization": "Bearer k", MINE: NAME}
    for headers, body, status in (({MINE: NAME}, {"messages": USER}, 401), (key, b"{", 400)):
        answer = await post(server, body, headers=headers)  # type: ignore[arg-type]
        assert (answer.status, answer.headers[MINE]) == (status, NAME)
    for path, code in (("/health", 200), ("/v1/models", 200), ("/v1/responses/resp_none", 404), ("/nothing", 404)):
        found = await get(server, path, headers=key)
        assert (found.status, found.headers[MINE]) == (code, NAME)


async def test_what_does_not_have_the_form_is_refused_and_goes_nowhere() -> None:
    async with gateway_before([Say("fine")]) as (server, upstream):
        for path, value in product(BODIES, ("x" * 513, "grüße", "a\tb", "\u202e")):
            answer = await post(server, BODIES[path], path=path, headers={MINE: value})
            assert answer.status == 400, (path, value)
            message = answer.json()["error"]["message"]
            assert MINE in message
            assert "512" in message
            assert MINE not in answer.headers
        twice = [(MINE, "a"), (MINE, "b")]
        body = {"model": "m", "messages": USER}
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.make_url(CHAT), json=body, headers=twice) as response,
        ):
            assert response.status == 400
            assert "more than once" in (await response.json())["error"]["message"]
        assert upstream.requests == []
        for value in ("", "x" * 512):
            answer = await post(server, body, headers={MINE: value})
            assert (answer.status, answer.headers.get(MINE, "")) == (200, value)


# --- openai-processing-ms -------------------------------------------------------------------------------------------


async def test_openais_clients_are_told_how_long_it_took() -> None:
    async with gateway_before([Say("fine")]) as (server, _):
        tools = {CHAT: TOOLS, "/v1/responses": [{"type": "function", **TOOLS[0]["function"]}], "/v1/embeddings": []}
        for path, stream, offered in product(tools, (False, True), (False, True)):
            body = {**BODIES[path], "stream": stream, **({"tools": tools[path]} if offered else {})}
            answer = await post(server, body, path=path)
            assert (answer.status, len(answer.headers.getall(TIME))) == (200, 1), (path, stream, offered)
            assert answer.headers[TIME].isdecimal()


async def test_errors_tell_it_as_well_and_other_clients_are_spared() -> None:
    async with gateway_before([Refuse(400)], auth={"keys": ["k"]}) as (server, _):
        key = {"Authorization": "Bearer k"}
        for headers, body, status in (({}, {"messages": USER}, 401), (key, b"{", 400), (key, {"messages": USER}, 400)):
            answer = await post(server, body, headers=headers)  # type: ignore[arg-type]
            assert (answer.status, answer.headers[TIME].isdecimal()) == (status, True)
        assert TIME not in (await post(server, BODIES["/v1/messages"], path="/v1/messages", headers=key)).headers
        assert (await get(server, "/v1/responses/resp_none", headers=key)).headers[TIME].isdecimal()
        assert (await get(server, "/v1/models", headers=key)).headers[TIME].isdecimal()
        assert TIME not in (await get(server, "/v1/models", headers={**key, "anthropic-version": "2023-06-01"})).headers
        assert TIME not in (await get(server, "/health")).headers
