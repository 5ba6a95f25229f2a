"""Middlewares that are not ours: those for aiohttp that others have published, unmodified, in chains and around the
gateway's application, and an installed plug-in."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, USER, Gateway, function, post, read_config, serving, upstream_config
from tests.e2e.meaning import said
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.config import DEFAULT_CHAIN, GatewayConfig
from toolwire.pipeline.chain.middleware import Handler
from toolwire.testing import Answer, Say, Upstream, WireAnswer

pytestmark = pytest.mark.filterwarnings("ignore::aiohttp.web_exceptions.NotAppKeyWarning")  # some keep theirs by name

ORIGIN = "https://chat.example"
TOOLS = [function("read_file", path="string")]
HERE = "tests.e2e.published"
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def needs(*modules: str) -> Any:
    missing = [name for name in modules if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def config(*outer: Any) -> GatewayConfig:
    script = [{"text": f"Reading. {block('read_file', {'path': 'a.txt'})}"}]
    return read_config({"backends": {"mock": {"kind": "mock", "script": script}}, "chain": [*outer, *DEFAULT_CHAIN]})


def use(path: str, **options: Any) -> dict[str, Any]:
    return {"use": path, "options": options}


def called(answer: WireAnswer, stream: bool) -> list[str]:
    """The tools that the answer calls."""
    return [name for name, _ in said(CHAT, answer, stream)[1]]


@BOTH
@needs("aiohttp_middlewares", "aiohttp_remotes", "aiohttp_session", "aiohttp_basicauth", "aiohttp_catcher", "webargs")
async def test_all_of_them_in_one_list(gateway: Gateway, stream: bool) -> None:
    """R16.1: unmodified, by dotted path, with their own options."""
    chain = [
        use("aiohttp_middlewares:cors_middleware", origins=[ORIGIN]),
        use("aiohttp_middlewares:error_middleware"),
        use("aiohttp_middlewares:https_middleware"),
        use("aiohttp_middlewares:timeout_middleware", seconds=60),
        use("aiohttp_middlewares:shield_middleware", methods=["POST"]),
        use("aiohttp_basicauth:BasicAuthMiddleware", username="ada", password="enchantress"),
        f"{HERE}:forwarded",
        f"{HERE}:session",
        f"{HERE}:counting",
        f"{HERE}:catching",
        use(f"{HERE}:checked", most=100),
    ]
    login = base64.b64encode(b"ada:enchantress").decode()
    headers = {
        "Origin": ORIGIN,
        "X-Forwarded-Proto": "https",
        "X-Forwarded-For": "192.0.2.7",
        "Authorization": f"Basic {login}",
    }
    body = {"messages": USER, "tools": TOOLS, "stream": stream, "max_tokens": 20}
    server = await gateway(config(*chain))
    answer = await post(server, body, headers=headers)
    assert (answer.status, called(answer, stream)) == (200, ["read_file"])
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert answer.headers["X-Max-Tokens"] == "20"
    assert ("AIOHTTP_SESSION" in answer.headers.get("Set-Cookie", "")) is not stream  # its own rule: none for streams
    refused = await post(server, body)
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm=""')


@needs("aiohttp_middlewares")
async def test_a_shielded_request_goes_on_and_leaves_nothing_open() -> None:
    """The client goes while the model server thinks; the handler ends by itself, and what it got is given back."""
    go = asyncio.Event()
    chain = [use("aiohttp_middlewares:shield_middleware", methods=["POST"]), *DEFAULT_CHAIN]

    def slow(asked: Any) -> Answer:
        answer = Say("hello")(asked)
        return Answer(answer.steps, headers=answer.headers, wait=go, hang=True)

    async with Upstream([slow]) as upstream, serving(upstream_config(upstream.url, chain=chain)) as server:
        body = {"model": "m", "messages": USER, "stream": True}
        async with ClientSession() as session:
            asking = asyncio.create_task(session.post(server.make_url(CHAT), json=body))
            asked = await upstream.next_request()
            asking.cancel()
            await asyncio.wait({asking})
        go.set()
        await asyncio.wait_for(asked.dropped.wait(), GUARD_S)  # its stream hangs, so somebody has closed it


@BOTH
@pytest.mark.skipif(
    "call-audit" not in entry_points(group="toolwire.middlewares").names,
    reason="the example plug-in is not installed: pip install --no-deps ./examples/call-audit",
)
async def test_an_installed_plug_in_by_its_name(gateway: Gateway, tmp_path: Path, stream: bool) -> None:
    """R16.2: found by entry point; it sees the finished call and nothing else, and changes nothing."""
    path = tmp_path / "calls.jsonl"
    audit = {"use": "call-audit", "options": {"path": str(path), "hide": ["path"]}}
    body = {"messages": USER, "tools": TOOLS, "stream": stream}
    answer, plain = [await post(await gateway(one), body) for one in (config(audit), config())]
    assert said(CHAT, answer, stream) == said(CHAT, plain, stream)
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["tool"], line["arguments"]) == ("read_file", {"path": "***"})
    assert line["request_id"] == answer.headers["X-Request-Id"]


# --- around the application -----------------------------------------------------------------------------------------


@asynccontextmanager
async def around(
    add: Callable[[web.Application], Any], settings: GatewayConfig | None = None
) -> AsyncIterator[TestServer]:
    app = create_app(settings or config())
    result = add(app)
    if asyncio.iscoroutine(result):
        await result
    async with TestServer(app) as server:
        yield server


@BOTH
async def test_the_gateway_inside_of_another_application(stream: bool) -> None:
    async def looking(request: web.Request, handler: Handler) -> web.StreamResponse:
        assert (await request.json())["messages"] == USER
        response = await handler(request)
        if not response.prepared:
            response.headers["X-Around"] = "yes"
        return response

    app = web.Application(middlewares=[web.middleware(looking)])
    app.add_subapp("/ai/", create_app(config()))
    async with TestServer(app) as server:
        answer = await post(server, {"messages": USER, "tools": TOOLS, "stream": stream}, path="/ai" + CHAT)
        assert (answer.status, called(answer, stream)) == (200, ["read_file"])
        assert ("X-Around" in answer.headers) is not stream
