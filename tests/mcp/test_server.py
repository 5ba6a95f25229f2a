"""One MCP server as a source of tools, with a double that knows no SDK and one that is made with it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cases import every
from tests.mcp.conftest import SDK, call, connected, raw, settings
from tests.waiting import GUARD_S, runs, until
from toolwire.extras.mcp import host
from toolwire.extras.mcp import server as serving
from toolwire.extras.mcp.server import McpServer
from toolwire.servertools.source import CallState

pytest.importorskip("mcp")
pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "sesame-open-1234"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def double(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[McpServer]:
    """A server for calls that do it no harm."""
    hangs = tmp_path_factory.getbasetemp() / "hangs"
    hangs.touch()
    env = {"TOKEN": TOKEN, "FOLDER": "/srv/data"}
    async with connected(settings(raw(hangs=str(hangs)), env=env, prefix="t_", concurrent=2)) as server:
        yield server


async def test_a_call_goes_through_its_states(double: McpServer) -> None:
    states: list[CallState] = []
    result = await call(double, "t_echo", states, text="hü", more=[1])
    assert result.text == 'echo: {"more": [1], "text": "h\\u00fc"}'
    assert not result.failed
    names = ["TOOL_CALL_INITIATED", "VALIDATING_PARAMETERS", "EXECUTING_TOOL", "TOOL_COMPLETED"]
    assert [state.value for state in states] == names
    assert (double.info.name, double.info.version, double.info.protocol) == ("raw", "1", "2025-06-18")


@every(
    ("arguments", "said"),
    [
        ("{", "Error: Invalid JSON arguments - "),
        ("[]", "Error: Invalid JSON arguments - expected an object, not an array"),
        ("", "Error: Invalid parameters - Missing required parameter: text"),
        ('{"text": 1}', "Error: Invalid parameters - `$.text`: 1 is not of type"),
        (json.dumps({"text": "x" * 3000}), "Error: Invalid JSON arguments - 3012 bytes, the most is 2048"),
    ],
)
async def test_arguments_are_checked_before_the_server_sees_them(double: McpServer, arguments: str, said: str) -> None:
    states: list[CallState] = []
    use = serving.ToolUse("call_1", "t_echo", arguments)
    result = await double.tools.run(use, GUARD_S, states.append)
    assert result.failed
    assert result.text.startswith(said)
    assert CallState.EXECUTING_TOOL not in states
    assert states[-1] is CallState.EXECUTION_FAILED


@every("name", ["nothing", "n" * 900])
async def test_a_tool_that_is_not_there(double: McpServer, name: str) -> None:
    result = await call(double, name)
    assert (result.text, result.failed) == (f"Error: Unknown tool: {name}", True)


@every("depth", [300, 1015])
async def test_arguments_that_are_too_deep_to_be_sent_cost_their_call_only(double: McpServer, depth: int) -> None:
    before = double._host
    text = '{"more":' + "[" * depth + "]" * depth + "}"
    result = await double.tools.run(serving.ToolUse("call_1", "t_structured", text), GUARD_S, lambda state: None)
    assert result.failed
    assert "lost" not in result.text
    assert (await call(double, "t_echo", text="again")).text.startswith("echo: ")
    assert double._host is before


@every(
    ("tool", "said", "failed"),
    [
        ("big", "x" * 1000, False),  # fifty megabytes, which are cut in the host
        ("junk", "after junk", False),
        ("wrong_id", "mine", False),
        ("flood", "after the flood", False),
        ("complain", "complained", False),
        ("fails", "it did not work", True),
        ("structured", '{"a":[1,"ü"]}', False),
        ("image", "before\n[image]\nafter", False),
    ],
)
async def test_what_servers_do(double: McpServer, tool: str, said: str, failed: bool) -> None:
    result = await call(double, f"t_{tool}")
    assert (result.text, result.failed) == (said, failed)


async def test_what_a_server_asks_of_a_client_is_declined(double: McpServer) -> None:
    refused = json.loads((await call(double, "t_ask")).text)
    assert refused == {
        "sampling/createMessage": True,
        "elicitation/create": True,
        "roots/list": True,
        "ping": False,
        "nonsense/all": True,
    }


async def test_the_environment_of_a_server_and_the_log_of_its_complaints(
    real_hosts: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its host has no secrets in its own."""
    caplog.set_level(logging.INFO)
    config = settings(raw(), env={"TOKEN": TOKEN, "FOLDER": "/srv/data"}, inherit=("GIVEN",), max_result_chars=100_000)
    monkeypatch.setenv("OPENAI_API_KEY", "never-to-be-seen")
    monkeypatch.setenv("GIVEN", "given")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/no/such/folder")  # the host's interpreter may not start without it
    async with connected(config) as server:
        found = json.loads((await call(server, "env")).text)
        assert server._host is not None
        place = Path(f"/proc/{server._host._process.pid}")
        hosts = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
        await call(server, "complain")
        await until(lambda: "MCP server test says: complaint" in caplog.text)
        for _ in range(3):
            await call(server, "complain")
    assert b"LD_LIBRARY_PATH=/no/such/folder" in hosts
    assert TOKEN.encode() not in hosts
    assert "LD_LIBRARY_PATH" not in found
    assert found["TOKEN"] == "[hidden]"
    assert (found["FOLDER"], found["GIVEN"], found["PATH"]) == ("/srv/data", "given", os.environ["PATH"])
    assert "OPENAI_API_KEY" not in found
    assert "PYTHONPATH" not in found
    said = [record.getMessage() for record in caplog.records if " says: " in record.getMessage()]
    assert len(said) < 1000  # of four hundred thousand
    assert max(map(len, said)) < 2000


async def test_secrets_are_hidden_in_errors(double: McpServer) -> None:
    result = await call(double, "t_refuses")
    assert (result.text, result.failed) == ("Error: no such thing; token [hidden]", True)
    assert TOKEN not in json.dumps(double.shown())


async def test_calls_beyond_the_bound_wait(double: McpServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    hangs = tmp_path_factory.getbasetemp() / "hangs"
    before = len(hangs.read_text().split())
    hanging = [asyncio.create_task(call(double, "t_hang")) for _ in range(2)]
    await until(lambda: len(hangs.read_text().split()) == before + 2)
    third = asyncio.create_task(call(double, "t_echo", text="a"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not third.done()
    for task in hanging:
        task.cancel()
    assert not (await third).failed
    # Both were told to the server, which knows them by the numbers of their requests.
    async with asyncio.timeout(GUARD_S):
        while len(json.loads((await call(double, "t_cancelled")).text)) < 2:
            pass
    assert double.shown()["calls"] == {"most": 2, "running": 0}


async def test_a_call_whose_time_is_over(double: McpServer) -> None:
    use = serving.ToolUse("call_1", "t_hang", "{}")
    result = await double.tools.run(use, 0.05, lambda state: None)
    assert (result.text, result.failed) == ("Error: Tool execution timed out", True)
    assert not (await call(double, "t_echo", text="a")).failed


async def test_an_oversize_result_may_be_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(settings(max_result_chars=20), on_oversize="error") as server:
        assert not (await call(server, "echo", text="xx")).failed, "of just as many"
        long = await call(server, "echo", text="x" * 20)
        assert (long.text, long.failed) == ("Error: Tool result has 38 characters, the most is 20", True)
        assert (await call(server, "image")).text.startswith("before")
        # What goes wrong at the end does not begin anew.
        host = server._host
        assert host is not None
        kill = host.kill

        def fails() -> None:
            kill()
            raise RuntimeError("a mistake in the gateway")

        monkeypatch.setattr(host, "kill", fails)
    assert server.state == "stopped"
    assert server._keeping is not None
    assert server._keeping.done()


async def test_a_list_that_changes_and_a_host_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.mcp.hosting.CONFIRM_S", 0.1)
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 600.0)
    async with connected(settings(allow=("change", "new", "echo"))) as server:
        before = server.tools
        assert before.names == {"echo", "change"}
        await call(server, "change")
        await until(lambda: "new" in server.tools.names)
        assert before.names == {"echo", "change"}
        assert (await call(server, "new")).text == "new: {}"
        assert server._host is not None
        os.kill(server._host._process.pid, signal.SIGSTOP)
        use = serving.ToolUse("call_1", "echo", '{"text": "a"}')
        result = await server.tools.run(use, 0.1, lambda state: None)
        assert result.text == "Error: Tool execution timed out"
        await until(lambda: server.state == "down")


async def test_a_list_that_does_not_rest_is_read_ever_less_often() -> None:
    """Each reading costs the gateway up to a second or two of compiling."""
    pause, pauses = host.RELIST_S, []
    for _ in range(8):
        pauses.append(pause)
        pause = host.next_pause(pause, 0.5)
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert pauses[-1] == host.RELIST_MOST_S
    assert host.next_pause(pause, host.RELIST_MOST_S) == host.RELIST_S


async def test_a_server_that_dies_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 0.01)
    async with connected(settings()) as server:
        states: list[CallState] = []
        died = await call(server, "die", states)
        assert died.failed
        assert died.text.startswith("Error: ")
        assert states[-1] is CallState.EXECUTION_FAILED
        assert "echo" in server.tools.names
        await until(lambda: server.restarts == 1 and server.state == "up")
        assert (await call(server, "echo", text="a")).text == 'echo: {"text": "a"}'
        # While it is away its tools stay and say so.
        monkeypatch.setattr(serving, "FIRST_WAIT_S", 600.0)
        await call(server, "die")
        await until(lambda: server.state == "down")
        assert "echo" in server.tools.names
        result = await call(server, "echo", text="a")
        assert result.failed
        assert result.text == "Error: The tool's server test cannot be reached now: it has ended with status 3"
    assert "MCP server test: it has ended with status 3; the next attempt is in" in caplog.text


@pytest.mark.parametrize(
    ("options", "more", "why"),
    [
        ({"mode": "exit"}, {}, "it has ended with status 7"),
        ({"protocol": "1999-01-01"}, {}, "RuntimeError: Unsupported protocol version from the server: 1999-01-01"),
        ({"mode": "silent"}, {"connect_timeout_s": 6.0}, "it has not listed its tools within 6 s"),
    ],
)
async def test_servers_that_never_come(options: dict[str, str], more: dict[str, float], why: str) -> None:
    server = McpServer(settings(raw(**options), **more))
    async with server.running():
        async with asyncio.timeout(GUARD_S):
            await server.settled.wait()
        assert not server.listed.is_set()
        assert server.error == why
        assert server.shown()["state"] in ("down", "starting")
        assert not server.tools.specs
    assert server.state == "stopped"


async def test_a_command_that_cannot_be_run() -> None:
    server = McpServer(settings(("/no/such/program", "--token=" + TOKEN)))
    async with server.running():
        await asyncio.wait_for(server.settled.wait(), GUARD_S)
        assert server.error == "its command cannot be run: program: No such file or directory"


@pytest.mark.parametrize("options", [{"protocol": "2024-11-05"}, {"mode": "only_initialize"}, {"mode": "no_tools"}])
async def test_older_and_stranger_servers(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 0.01)
    async with connected(settings(raw(**options))) as server:
        assert ("echo" in server.tools.names) is (options.get("mode") != "no_tools")


@pytest.mark.parametrize(
    ("mode", "offered", "why"), [("endless", 64, "more than 64 pages"), ("many", 256, "256 tools")]
)
async def test_lists_without_end(mode: str, offered: int, why: str) -> None:
    async with connected(settings(raw(mode=mode))) as server:
        assert len(server.tools.specs) == offered
        assert why in server.listing.left_out[0].why


async def test_of_many_tools_those_are_kept_that_are_allowed() -> None:
    async with connected(settings(raw(mode="many"), allow=("tool9??",), deny=("tool99?",))) as server:
        assert server.tools.names == {f"tool{number}" for number in range(900, 990)}
        assert not server.listing.left_out


async def test_a_message_that_is_too_large_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "FIRST_WAIT_S", 600.0)
    async with connected(settings()) as server:
        assert (await call(server, "slow_line")).failed
        await until(lambda: server.state == "down")
        assert server.error == "it sent a message of more than 67108864 bytes"


async def test_lists_with_broken_tools_strange_names_and_secrets() -> None:
    """A broken tool costs itself. Servers fill in what they were given, such as a default."""
    schema = {"type": "object"}
    key = {"type": "string", "default": TOKEN, "enum": [TOKEN, "other"], "description": f"is {TOKEN}"}
    good: list[Any] = [
        {"name": "one", "inputSchema": {**schema, "properties": {"key": key}}, "annotations": {"title": TOKEN}},
        {"name": "no_type", "inputSchema": {"properties": {}}},
        {"name": "no_schema"},
        *({"name": name, "inputSchema": {}} for name in ("a.b/c d", "ü" * 200)),
    ]
    bad = [{"name": 7, "inputSchema": schema}, {"name": "array", "inputSchema": {"type": "array"}}, "tool", None]
    bad += [{"name": "worse", "inputSchema": schema, "annotations": []}]
    env = {"TOKEN": TOKEN, "KIND_KEY": "string"}
    async with connected(settings(raw(tools=[*bad, *good]), env=env)) as server:
        offered = {tool.name: name for name, tool in server.listing.tools.items()}
        assert list(offered) == [tool["name"] for tool in good]
        assert [one.name for one in server.listing.left_out] == ["7", "array", "tool", "None", "worse"]
        for name, arguments in (("no_schema", {}), ("a.b/c d", {"a": 1}), ("ü" * 200, {})):
            assert (await call(server, offered[name], **arguments)).text == f"{name}: {json.dumps(arguments)}"
        assert [offered[name] for name in ("one", "no_schema")] == ["one", "no_schema"]
        (shown,) = (tool for tool in server.shown()["tools"] if tool["tool"] == "one")
        hidden = {"default": "[hidden]", "enum": ["[hidden]", "other"], "description": "is [hidden]"}
        assert shown["parameters"]["properties"]["key"] == {"type": "string", **hidden}
        assert TOKEN not in repr(server.listing)


async def test_nothing_is_left_running(real_hosts: None, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with connected(settings(raw(mode="immortal", pids=str(file)))) as server:
        assert server._host is not None
        pids = [server._host._process.pid, *map(int, file.read_text().split())]
        assert all(map(runs, pids))
    await until(lambda: not any(map(runs, pids)))


async def test_a_gateway_that_is_killed_takes_everything_along(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.mcp.dying_gateway", str(file), stdout=asyncio.subprocess.PIPE
    )
    assert gateway.stdout is not None
    host = int(await asyncio.wait_for(gateway.stdout.readline(), GUARD_S))
    pids = [host, *map(int, file.read_text().split())]
    assert all(map(runs, pids))
    gateway.kill()
    await gateway.wait()
    await until(lambda: not any(map(runs, pids)))


# --- a server of the newest protocol, and of HTTP ------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncIterator[str]:
    """Of a server that is made with the SDK."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(SDK), "http", stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(await asyncio.wait_for(process.stdout.readline(), GUARD_S))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("way", ["pipes", "http"])
async def test_a_server_made_with_the_sdk(way: str, address: str) -> None:
    config = settings((sys.executable, str(SDK))) if way == "pipes" else settings(url=address)
    async with connected(config) as server:
        assert server.info.protocol == "2026-07-28"
        assert (await call(server, "add", a=2)).text == "3"
        assert json.loads((await call(server, "place")).text) == {"name": "Tür", "floors": [1, 2]}
        failed = await call(server, "fail")
        assert failed.failed
        assert "nothing to be had" in failed.text
        assert (await call(server, "ask")).failed
        waiting = asyncio.create_task(call(server, "wait"))
        await until(lambda: server._host is not None and server._host.running == 1)
        waiting.cancel()
        await call(server, "grow")
        await until(lambda: "grown" in server.tools.names)
        assert (await call(server, "grown")).text == "grown"


async def test_headers_are_sent_and_hidden(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Key": "another-secret"}
    async with connected(settings(url=address, headers=headers)) as server:
        sent = json.loads((await call(server, "headers")).text)
        assert (sent["authorization"], sent["x-key"]) == ("[hidden]", "[hidden]")
        assert sent["user-agent"].startswith("toolwire/")
        shown = json.dumps(server.shown())
    assert TOKEN not in caplog.text + shown
    assert TOKEN not in repr(settings(url=address, headers=headers))


async def test_an_address_where_nobody_is() -> None:
    server = McpServer(settings(url="http://127.0.0.1:9/mcp?key=" + TOKEN))
    async with server.running():
        await asyncio.wait_for(server.settled.wait(), GUARD_S)
        assert server.error is not None
        assert server.error.startswith("ConnectError: ")
        assert TOKEN not in server.error
        result = await server.call("anything", "{}")
        assert result.text.startswith("Error: The tool's server test cannot be reached now: ConnectError: ")
