"""The official clients of Responses in front of a gateway, and the official SDK's server behind it, over its real
transport."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.clients.recorder import Recorder
from tests.e2e.conftest import sdk
from tests.protocols.published import SHARED
from tests.toolservers.scripted import configuration, server, turn
from tests.toolservers.serving import ODD_NAME, SAID, ToolServerAtWork, tool_server
from tests.waiting import until
from toolwire.app import create_app
from toolwire.config import DEFAULT_CHAIN

ADD = ("calc__add", {"a": 1, "b": 2})
WRITE = ("calc__write", {"text": "x"})
SECRET = "s3cret-of-the-client-0815"


@pytest.fixture
def at_work() -> Iterator[ToolServerAtWork]:
    with tool_server() as seen:
        yield seen


@pytest.fixture
async def gateway(at_work: ToolServerAtWork) -> AsyncIterator[Any]:
    """`gateway(*script)`: a gateway that may ask the server, and whose answers are held against the published
    schemas."""
    recorders = []
    async with AsyncExitStack() as stack:

        async def start(*script: Any, **sections: Any) -> TestServer:
            model = {"m": {"kind": "mock", "script": list(script)}}
            tools = {"mcp_from_clients": [at_work.url]}
            config = configuration(tools=tools, backends=model, **sections)
            inner = await stack.enter_async_context(TestServer(create_app(config)))
            recorders.append(recorder := Recorder(inner))
            made: TestServer = await stack.enter_async_context(TestServer(recorder.app()))
            return made

        yield start
    if (SHARED / "spec").exists():
        for recorder in recorders:
            recorder.check_responses()


async def test_the_sdk(gateway: Any, at_work: ToolServerAtWork) -> None:
    """Listed, called, failed, asked for and approved; whole and streamed."""
    script = [turn("prompt", "Let me see.", ADD, ("calc__fail", {})), {"text": "It is 3."}, {"text": "Bye."}]
    tool = server(url=at_work.url, headers={"X-Api-Key": SECRET})
    async with sdk(await gateway(*script)) as client:
        whole = await client.responses.create(model="m", input="hi", tools=[tool])
        async with client.responses.stream(model="m", input="hi", tools=[tool]) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
        again = await client.responses.create(
            model="m",
            input=[*({"role": "user", "content": "hi"},), *whole.output, {"role": "user", "content": "so?"}],
            tools=[tool],
        )
    for made in (whole, final):
        listed, text, call, failed, last = made.output
        assert [one.name for one in listed.tools] == ["add", "write", "fail", ODD_NAME]
        assert (text.content[0].text, last.content[0].text) == ("Let me see.", "It is 3.")
        assert (call.type, call.name, call.output, call.error) == ("mcp_call", "add", "3", None)
        assert (failed.status, failed.output) == ("failed", None)
        assert SAID in json.dumps(failed.error.model_dump())
    kinds = [event.type for event in events]
    assert kinds.index("response.mcp_list_tools.completed") < kinds.index("response.mcp_call.in_progress")
    assert "response.mcp_call_arguments.done" in kinds
    assert again.output_text == "Bye."
    assert {seen.get("x-api-key") for seen in at_work.headers} == {SECRET}
    assert sorted(name for name, _ in at_work.calls) == ["add", "add", "fail", "fail"]


@pytest.mark.parametrize(("approves", "stream"), [(True, True), (False, False)])
async def test_openai_agents(approves: bool, stream: bool, gateway: Any, at_work: ToolServerAtWork) -> None:
    agents = pytest.importorskip("agents", reason="needs openai-agents")
    asked: list[str] = []

    def approve(request: Any) -> Any:
        asked.append(request.data.name)
        return {"approve": approves, "reason": "because"}

    script = [turn("prompt", "", ADD), turn("prompt", "", WRITE), {"text": "Done."}]
    tool = server(url=at_work.url, approve={"never": {"tool_names": ["add"]}})
    async with sdk(await gateway(*script)) as client:
        agent = agents.Agent(
            name="clerk",
            tools=[agents.HostedMCPTool(tool_config=tool, on_approval_request=approve)],
            model=agents.OpenAIResponsesModel(model="m", openai_client=client),
        )
        settings = agents.RunConfig(tracing_disabled=True)
        if stream:
            run = agents.Runner.run_streamed(agent, "hi", run_config=settings)
            async for _ in run.stream_events():
                pass
        else:
            run = await agents.Runner.run(agent, "hi", run_config=settings)
    assert run.final_output == "Done."
    assert asked == ["write"]
    assert [name for name, _ in at_work.calls] == (["add", "write"] if approves else ["add"])
    assert run.new_items[0].type == "mcp_list_tools_item"


async def test_what_lets_the_gateway_in_is_kept_nowhere(
    gateway: Any, at_work: ToolServerAtWork, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in captures, the inspector, the log, the store, or the answer; and not in what the model is asked."""
    caplog.set_level("DEBUG")
    sections = {
        "capture": {"keep": 5, "folder": str(tmp_path / "captures")},
        "inspect": {"on": True},
        "chain": ["request_log", *DEFAULT_CHAIN],
        "store": {"kind": "sqlite", "path": str(tmp_path / "store")},
    }
    tool = server(url=at_work.url, authorization=SECRET, headers={"X-Other": f"Key {SECRET}-other"})
    made = await gateway(turn("prompt", "", ADD), {"text": "3"}, **sections)
    async with sdk(made) as client:
        got = await client.responses.create(
            model="m", input="hi", tools=[tool], extra_headers={"x-request-id": "to-be-seen"}
        )
        assert got.output[1].output == "3"
        stored = await client.responses.retrieve(got.id)
        inspected = [
            await client._client.get(str(made.make_url(f"/inspect/api/exchanges/to-be-seen{more}")))
            for more in ("", "/capture")
        ]
        assert [one.status_code for one in inspected] == [200, 200]
    assert {seen.get("authorization") for seen in at_work.headers} == {f"Bearer {SECRET}"}
    shown = got.tools[0].model_dump()
    assert shown["headers"] == {"X-Other": "<redacted>"}
    assert shown.get("authorization") is None
    await until(lambda: list((tmp_path / "captures").glob("*.jsonl")))
    logged = "\n".join(str(vars(record)) for record in caplog.records)
    assert "X-Other" in logged  # by `request_log`
    places = [got.to_json(), stored.to_json(), logged, *(one.text for one in inspected)]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 2
    for text in places:
        assert SECRET not in text
    for path in files:
        data = path.read_bytes()
        assert SECRET.encode() not in data, path


async def test_a_redirect_tells_nobody_the_path(caplog: pytest.LogCaptureFixture) -> None:
    """Some servers have their key there, and the library's words for a redirect repeat it."""

    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"https://other.example{request.path}/"})

    app = web.Application()
    app.router.add_route("*", f"/{SECRET}/mcp", elsewhere)
    async with TestServer(app, access_log=None) as redirecting:
        url = str(redirecting.make_url(f"/{SECRET}/mcp"))
        config = configuration(tools={"mcp_from_clients": [url]})
        async with TestServer(create_app(config)) as gateway, sdk(gateway) as client:
            got = await client.responses.create(model="m", input="hi", tools=[server(url=url)])
    assert "Redirect to https://other.example/... not followed" in got.output[0].error
    assert SECRET not in got.model_dump_json()
    assert "other.example" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("place", "to", "followed"),
    [
        ("/teams/a", "/admin", False),
        ("/teams/a", "/teams/../admin", False),
        ("/teams/a", "/teams/b", True),
        ("/mcp", "/mcp/", True),
        ("/mcp", "/mcp/b", False),
    ],
)
async def test_a_redirect_does_not_leave_the_operators_list(place: str, to: str, followed: bool) -> None:
    """Not even within the server: it may have several masters, of whom the operator permits one."""
    asked: list[str] = []

    async def redirects(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=403) if request.path != place else web.Response(status=307, headers={"Location": to})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", redirects)
    async with TestServer(app, access_log=None) as redirecting:
        permitted = [str(redirecting.make_url("/teams/")) + "*", str(redirecting.make_url("/mcp"))]
        said = f"it redirects to a URL that is not permitted: {redirecting.make_url('/')}..."
        config = configuration(tools={"mcp_from_clients": permitted})
        async with TestServer(create_app(config)) as gateway, sdk(gateway) as client:
            tools = [server(url=str(redirecting.make_url(place)))]
            got = await client.responses.create(model="m", input="hi", tools=tools)
    assert set(asked) == ({place, to} if followed else {place})
    assert (said in got.output[0].error) is not followed
