"""The list of models, and servers that are dead or none: they are named, and no list is empty because of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, Gateway, get, post, read_config, wait_for_servers
from tests.e2e.processes import running
from tests.e2e.responses_answers import RESPONSES
from tests.waiting import GUARD_S, until
from toolwire.testing import Answer, Refuse, Upstream


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that pauses is no server that says nothing."""
    wait_for_servers(monkeypatch, 5.0)


def config(backends: dict[str, Any], *routes: dict[str, Any]) -> Any:
    return read_config({"backends": backends, "routes": list(routes)} if routes else {"backends": backends})


async def listed(server: Any, path: str = "/v1/models") -> tuple[int, Any]:
    async with asyncio.timeout(GUARD_S):
        answer = await get(server, path)
    return answer.status, answer.json()


@every("path", ["/v1/models", "/v1/models/m"])
async def test_a_dead_server_is_named(gateway: Gateway, nobody: str, path: str) -> None:
    status, body = await listed(await gateway(config({"gpu": {"url": nobody}})), path)
    assert (status, body["error"]["code"]) == (502, "upstream_disconnected")
    assert '"gpu"' in body["error"]["message"]
    assert "127.0.0.1" not in body["error"]["message"]


async def test_a_dead_server_hides_no_other(gateway: Gateway, nobody: str) -> None:
    """Neither one of the same route nor another route's names; and where all are dead the fallback may say."""
    async with Upstream() as server:
        servers = {"dead": {"url": nobody}, "alive": {"url": server.url}}
        shared = await gateway(config(servers, {"model": "*", "backends": ["dead", "alive"]}))
        fallback = await gateway(config(servers, {"model": "*", "backend": "dead", "fallback": ["alive"]}))
        named = await gateway(config(servers, {"model": "known", "backend": "dead"}, {"model": "*", "backend": "dead"}))
        assert [entry["id"] for entry in (await listed(shared))[1]["data"]] == ["m", "n"]
        assert [entry["id"] for entry in (await listed(fallback))[1]["data"]] == ["m", "n"]
        assert [entry["id"] for entry in (await listed(named))[1]["data"]] == ["known"]
        assert (await listed(named, "/v1/models/known"))[0] == 200
        assert (await listed(named, "/v1/models/other"))[0] == 502


# --- at the start ---------------------------------------------------------------------------------------------------


def told(name: str, log: str) -> list[str]:
    """What the log says of a server's faults."""
    return [line for line in log.splitlines() if f'Backend "{name}"' in line and "Requests for it fail" in line]


async def test_the_log_names_servers_that_are_no_good(tmp_path: Path, nobody: str) -> None:
    """Once, however many workers there are, and without the password; nobody waits for it."""
    async with Upstream() as good, Upstream() as wrong, Upstream() as silent:
        wrong.listing = Answer([b"404 page not found"], status=404)
        silent.listing = Answer([], hang=True)
        backends = {
            "good": {"url": good.url},
            "dead": {"url": nobody.replace("http://", "http://me:hunter2@")},
            "wrong": {"url": wrong.url},
            "checked": {"url": nobody, "health_path": "/health"},
            "silent": {"url": silent.url},
        }
        reasons = {"dead": "cannot be reached", "wrong": "404", "checked": "does not answer", "silent": " within "}
        routes = [{"model": name, "backend": name} for name in backends]
        settings = {"backends": backends, "routes": routes, "server": {"port": 0, "workers": 2}}
        async with running(tmp_path, settings) as started:
            await until(
                lambda: all(
                    (any((reason in line for line in told(name, started.log))) for name, reason in reasons.items())
                )
            )
            async with aiohttp.ClientSession() as session, session.get(f"{started.url}/health") as response:
                assert response.status == 200
            lines = [line for name in backends for line in told(name, started.log)]
            slow = told("good", started.log)
    assert all(" within " in line for line in slow)  # of a machine that paused
    said = [line.partition(" ")[2] for line in lines]
    assert len(set(said)) == len(said)
    assert all(line.startswith("WARNING ") and "http://127.0.0.1:" in line for line in said)
    assert "hunter2" not in "".join(lines)


# --- a model that the server does not have --------------------------------------------------------------------------

NO_MODEL = Refuse(404, "The model `other` does not exist.")


@every("path, stream", [(CHAT, False), (RESPONSES, True)])
async def test_a_model_that_is_not_there_is_the_clients_fault(gateway: Gateway, path: str, stream: bool) -> None:
    asked = {"messages": USER} if path == CHAT else {"input": "hi"}
    async with Upstream([NO_MODEL]) as server:
        started = await gateway(
            read_config({"backends": {"gpu": {"url": server.url}}, "defaults": {"retry": {"attempts": 3}}})
        )
        answer = await post(started, {"model": "other", **asked, "stream": stream}, path=path)
        error = answer.json()["error"]
        assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert "`other`" in error["message"]
        assert len(server.posts) == 1


async def test_what_is_known_of_a_model(gateway: Gateway) -> None:
    """`created`, the context window and abilities, in both forms (R28.8); names may have slashes."""
    async with Upstream() as server:
        entry = {"id": "org/m:7b", "object": "model", "owned_by": "vllm", "max_model_len": 4096}
        server.listing = Answer([orjson.dumps({"object": "list", "data": [entry]})])
        before = int(time.time())
        started = await gateway(config({"gpu": {"url": server.url, "images": True}}))
        _, body = await listed(started, "/v1/models/org/m:7b")
        assert before <= body["created"] <= time.time()
        known = {"context_length": 4096, "max_model_len": 4096}
        abilities = {"tools": True, "vision": True}
        assert body == {
            "id": "org/m:7b",
            "object": "model",
            "created": body["created"],
            "owned_by": "toolwire",
            **known,
            "capabilities": abilities,
        }
        async with anthropic.AsyncAnthropic(
            api_key="none", base_url=str(started.make_url("/")), http_client=None
        ) as sdk:
            (model,) = [model async for model in sdk.models.list()]
        assert (model.id, model.max_input_tokens, model.created_at.timestamp()) == ("org/m:7b", 4096, body["created"])


async def test_codex_finds_its_own_list(gateway: Gateway) -> None:
    """Codex fails on a list without `models`; an entry there would replace its own system prompt (R28.8)."""
    async with Upstream() as server:
        started = await gateway(config({"gpu": {"url": server.url}}))
        _, body = await listed(started, "/v1/models?client_version=0.171.0")
        assert body["models"] == []
        assert body["data"]
        assert "models" not in (await listed(started))[1]
