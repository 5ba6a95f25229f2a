"""Large whole answers that pass as bytes: they pass as they are, and what is wrong with them ends the connection. For a
client that reads nothing: `test_backpressure.py`."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import orjson
import pytest

from tests.e2e.conftest import read_config
from tests.e2e.edge import Gateway, head, running
from tests.e2e.speaking import JSON
from tests.e2e.test_backpressure import ask, config
from tests.waiting import GUARD_S
from toolwire.config import GatewayConfig
from toolwire.testing import Answer, Upstream

BODY = {"model": "m", "input": "hi"}


def vectors(values: int, value: float = 0.123456789, **more: Any) -> bytes:
    return orjson.dumps({"object": "list", "data": [{"embedding": [value] * values}], "model": "m", **more})


def body_of(got: bytes) -> bytes:
    """The body of a chunked answer."""
    rest = got.partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return body
        body, rest = body + rest[:length], rest[length + 2 :]
    raise AssertionError("the answer was cut")


async def passed(said: list[bytes], **sections: Any) -> bytes:
    async with Upstream([Answer(said, headers=JSON)]) as upstream, running(config(upstream.url, **sections)) as gateway:
        return (await ask(gateway, upstream, "/v1/embeddings", BODY))[1]


async def test_a_large_answer_passes_byte_for_byte_and_may_hold_any_number_of_values() -> None:
    said = vectors(1_500_000, 0.5)
    got = await passed([said[at : at + 50_000] for at in range(0, len(said), 50_000)])
    assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body_of(got) == said


@pytest.mark.parametrize(
    "said",
    [
        b'{"error":{"message":"' + b"no " * 50_000 + b'"}}',
        b' { "error" : "no", "data":[' + b"0," * 50_000 + b"0]}",
        b"<html>" + b"x" * 200_000,
    ],
    ids=["error", "blanks", "html"],
)
async def test_a_large_error_is_one(said: bytes) -> None:
    assert (await passed([said])).startswith(b"HTTP/1.1 502")


async def test_a_field_of_null_is_no_error() -> None:
    said = b'{"error":null,"data":[' + b"0," * 50_000 + b"0]}"
    assert body_of(await passed([said])) == said


async def test_a_secret_does_not_get_out_however_it_is_cut() -> None:
    key = "sk-secret-0123456789-abcdefghij"
    said = b'{"data":[' + b"0," * 50_000 + b'"' + key.encode() + b'"]}'
    begin = said.index(b"sk-secret")
    cuts = [Answer([said[: begin + cut], said[begin + cut :]], headers=JSON) for cut in range(0, 40, 3)]
    async with Upstream([*cuts]) as upstream, running(_with_key(upstream.url, key)) as gateway:
        for _ in cuts:
            await _is_cut(gateway, upstream, key[:12].encode(), key[-12:].encode())


async def _is_cut(gateway: Gateway, upstream: Upstream, *hidden: bytes) -> None:
    """The client gets a part of the answer, and sees that it is not all of it."""
    raw = json.dumps(BODY).encode()
    got = bytearray()
    async with gateway.connection() as (reader, writer), asyncio.timeout(GUARD_S):
        writer.write(head(len(raw), "Connection: close", path="/v1/embeddings") + raw)
        with suppress(ConnectionResetError):
            while piece := await reader.read(1 << 20):
                got += piece
    assert not got.endswith(b"0\r\n\r\n")
    assert not any(part in got for part in hidden)


def _with_key(url: str, key: str) -> GatewayConfig:
    return read_config({"backends": {"up": {"url": url, "api_key": key}}})


@pytest.mark.parametrize(
    "limits", [{}, {"reply_bytes": 200_000}], ids=["its server breaks off", "it is beyond the limit"]
)
async def test_an_answer_that_ends_early_ends_the_connection(limits: dict[str, int]) -> None:
    said = vectors(100_000)
    async with (
        Upstream([Answer([said], headers=JSON, cut=not limits)]) as upstream,
        running(config(upstream.url, limits=limits)) as gateway,
    ):
        await _is_cut(gateway, upstream)


@pytest.mark.parametrize("size", [10, 50_000], ids=["small", "large"])
@pytest.mark.parametrize(("tokens", "second"), [(9_000, b"429"), (9, b"200")])
async def test_tokens_are_counted_against_limits(size: int, tokens: int, second: bytes) -> None:
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 1}}
    limits = {"rate_limits": {"per_key": {"tokens_per_min": 5_000}}}
    async with (
        Upstream([Answer([vectors(size, usage=usage)], headers=JSON)] * 2) as upstream,
        running(config(upstream.url, **limits)) as gateway,
    ):
        answers = [await gateway.said(_request()) for _ in range(2)]
    assert [answer.split(b" ", 2)[1] for answer in answers] == [b"200", second]


def _request() -> bytes:
    raw = json.dumps(BODY).encode()
    return head(len(raw), "Connection: close", path="/v1/embeddings") + raw
