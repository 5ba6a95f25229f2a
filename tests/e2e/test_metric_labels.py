"""Metrics by route and model: what the operator or a server named, and nothing that a client made up."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families

from tests.cases import every
from tests.e2e.conftest import USER, Gateway, get, post, read_config
from tests.e2e.speaking import JSON
from tests.waiting import GUARD_S
from toolwire.observability.metrics import NONE, OTHER
from toolwire.testing import Answer, Refuse, Say, Upstream

LISTED = Answer([orjson.dumps({"object": "list", "data": [{"id": "served-a"}, {"id": "served-b"}]})], headers=JSON)


def config(url: str, **more: Any) -> Any:
    routes = [
        {"model": "exact", "aliases": ["nickname", "qwen*"], "upstream_model": "served-a"},
        {"model": "*", "backend": "up"},
    ]
    return read_config({"backends": {"up": {"url": url}}, "routes": routes, **more})


async def samples(server: TestServer) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By name: labels and number."""
    page = (await get(server, "/metrics")).body.decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def whose(found: list[tuple[dict[str, str], float]]) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], float] = {}
    for labels, number in found:
        key = (labels["route"], labels["model"])
        counts[key] = counts.get(key, 0) + number
    return counts


@every("stream", [False, True])
async def test_what_is_known_has_its_name(gateway: Gateway, stream: bool) -> None:
    async with asyncio.timeout(GUARD_S), Upstream([Say("fine", usage=(30, 4))]) as upstream:
        upstream.pages["/v1/models"] = LISTED
        server = await gateway(config(upstream.url))
        asked = ["exact", "nickname", "qwen-made-up", "served-a", "served-b", "made-up", "gpt-4", ""]
        for model in asked:
            await post(server, {"messages": USER, "model": model, "stream": stream})
        found = await samples(server)
    wanted = {
        ("exact", "exact"): 1.0,
        ("exact", "nickname"): 1.0,
        ("exact", OTHER): 1.0,
        ("*", "served-a"): 1.0,
        ("*", "served-b"): 1.0,
        ("*", OTHER): 2.0,
    }
    assert whose(found["toolwire_requests_total"]) == {**wanted, (NONE, NONE): 1.0}
    assert whose(found["toolwire_request_duration_seconds_count"]) == {**wanted, (NONE, NONE): 1.0}
    first = found.get("toolwire_time_to_first_token_seconds_count", [])
    assert whose(first) == (wanted if stream else {})
    assert sum(number for _, number in found["toolwire_overhead_seconds_count"]) == len(asked)


async def test_a_route_that_a_key_may_not_use_is_counted_and_its_model_not_looked_at(gateway: Gateway) -> None:
    keys = {"auth": {"keys": [{"key": "k", "routes": ["exact"]}]}}
    async with Upstream([Refuse(500)]) as upstream:
        server = await gateway(config(upstream.url, **keys))
        key = {"Authorization": "Bearer k"}
        assert (await post(server, {"messages": USER, "model": "served-a"}, headers=key)).status == 403
        page = (await get(server, "/metrics", headers=key)).body.decode()
    assert 'toolwire_requests_total{endpoint="chat",model="none",route="*",status="403",stream="false"} 1.0' in page
