"""The real `codex app-server` behind the gateway. The model's server is scripted and listens on the loopback: what
comes to it shows what the model gets, and that is what counts, because the server leaves out in silence what it does
not know.

It needs no network and no login. Its home is a folder of its own.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from tests.clients.conftest import NOWHERE, execute
from tests.clients.test_codex import CONFIG
from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, post, read_config, serving
from tests.e2e.responses_answers import RESPONSES, Streamed, ask, of_stream, of_whole, outline, tool
from tests.e2e.speaking import SSE, in_pieces
from tests.protocols.responses_wires import frame
from tests.waiting import PROGRAM_S, runs, until
from toolwire.testing import Answer, Refuse, Script, Upstream

READ = tool("read_file", path="string")
CALL = block("read_file", {"path": "a.txt"})
KEY = "the-key-of-the-model-0123456789"
USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)

Frames = Sequence[Mapping[str, Any]]


def message(*deltas: str) -> Frames:
    """Text as a model's server of Responses streams it."""
    item = {"type": "message", "role": "assistant", "id": "msg_1", "content": []}
    whole = {**item, "content": [{"type": "output_text", "text": "".join(deltas)}]}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    place = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "msg_1"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": whole}
    return [added, *({**place, "delta": delta} for delta in deltas), done]


def call(ident: str, name: str, arguments: str) -> Frames:
    """A call of a function."""
    item = {"type": "function_call", "id": f"fc_{ident}", "call_id": ident, "name": name, "arguments": arguments}
    return [{"type": "response.output_item.done", "output_index": 0, "item": item}]


def ended(*frames: Frames, reason: str | None = None) -> Answer:
    """A whole answer; with a `reason` an incomplete one."""
    end: dict[str, Any] = {"type": "response.completed", "response": {"id": "r", "usage": USAGE}}
    if reason is not None:
        incomplete = {"id": "r", "incomplete_details": {"reason": reason}, "usage": USAGE}
        end = {"type": "response.incomplete", "response": incomplete}
    return streamed(*(one for several in frames for one in several), end)


def streamed(*frames: Mapping[str, Any], hang: bool = False) -> Answer:
    """An answer of these events."""
    begun = {"type": "response.created", "response": {"id": "r"}}
    return Answer([frame(one) for one in (begun, *frames)], headers=SSE, hang=hang)


def texts(model: Upstream) -> list[str]:
    """Returns the user's text of each request."""
    said = ([item for item in asked.json["input"] if item.get("role") == "user"] for asked in model.posts)
    return ["".join(part.get("text", "") for item in items for part in item["content"]) for items in said]


Start = Callable[..., Awaitable[tuple[TestServer, Upstream]]]


@pytest.fixture
async def codex(codex_program: Path, tmp_path: Path) -> AsyncIterator[Start]:
    """Start gateways before the real server: `await codex(answer, ...)`. `way`: how it is reached."""
    async with AsyncExitStack() as stack:

        async def start(
            *script: Script,
            way: str = "stdio",
            own: Mapping[str, Any] | None = None,
            config: str = "",
            flags: Sequence[str] = (),
            **options: Any,
        ) -> tuple[TestServer, Upstream]:
            model = await stack.enter_async_context(Upstream(script or [ended(message("Hello", "."))]))
            home = tmp_path / "home"
            home.mkdir(exist_ok=True)
            home.joinpath("config.toml").write_text(config)
            command = [str(codex_program), *_flags(model.url), *flags, "app-server"]
            env = {"CODEX_HOME": str(home), "HOME": str(home), "GW_KEY": KEY}
            up: dict[str, Any] = {"kind": "codex_app_server", "timeouts": {"connect_s": PROGRAM_S}}
            if way == "websocket":
                up["url"] = await _listening(stack, command, env, tmp_path)
                up["codex"] = {**(own or {})}
            else:
                up |= {"command": command, "codex": {"env": env, **(own or {})}}
            options.setdefault("format", "sentinel")
            read = read_config({"backends": {"up": up}, "defaults": options})
            return await stack.enter_async_context(serving(read)), model

        yield start


def _flags(url: str) -> list[str]:
    values = {
        "model": '"test-model"',
        "model_provider": '"gw"',
        "check_for_update_on_startup": "false",
        "model_providers.gw.name": '"gw"',
        "model_providers.gw.base_url": f'"{url}"',
        "model_providers.gw.wire_api": '"responses"',
        "model_providers.gw.env_key": '"GW_KEY"',
        "model_providers.gw.request_max_retries": "0",
        "model_providers.gw.stream_max_retries": "0",
        "analytics.enabled": "false",
    }
    return [word for key, value in values.items() for word in ("-c", f"{key}={value}")]


async def _listening(stack: AsyncExitStack, command: list[str], env: Mapping[str, str], folder: Path) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"ws://127.0.0.1:{port}"
    env = {"PATH": os.environ["PATH"], **env}
    none = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, "--listen", url, env=env, cwd=folder, stdin=none, stdout=none, stderr=none, start_new_session=True
    )

    async def stop() -> None:
        os.killpg(process.pid, 15)
        await process.wait()

    stack.push_async_callback(stop)

    async def is_ready() -> bool:
        try:
            async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async with asyncio.timeout(PROGRAM_S), aiohttp.ClientSession() as session:
        while not await is_ready():  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.05)
    return url


async def chat(server: TestServer, text: str = "hi", **body: Any) -> Any:
    async with asyncio.timeout(PROGRAM_S):
        return await post(server, {"messages": [{"role": "user", "content": text}], **body})


async def too_long(server: TestServer, path: str, **body: Any) -> None:
    """A large request gets the error for one that does not fit."""
    data = io.BytesIO(json.dumps({"model": "m", **body}).encode())
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.make_url(path), data=data, headers=headers) as got,
    ):
        assert (got.status, (await got.json())["error"]["code"]) == (400, "context_length_exceeded")


# --- what the first users run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["stdio", "websocket"])
async def test_responses_with_tools(codex: Start, way: str) -> None:
    """Streamed, with each of the forms of following up; and nothing of Codex's own reaches the model."""
    first = ended(message("Let me", " look.\n", *in_pieces(CALL, 9)))
    server, model = await codex(first, ended(message("It says ", "seven.")), way=way)
    asked = {"role": "user", "content": "What is in a.txt?"}
    got = of_stream(await ask(server, input=[asked], tools=[READ], stream=True))
    text = "output_item.added content_part.added {} output_text.done content_part.done output_item.done"
    call = "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done"
    said = text.format("output_text.delta output_text.delta")
    assert " ".join(got.kinds) == f"created in_progress {said} {call} completed"
    assert outline(got.resource) == [("text", "Let me look."), ("call", "read_file", '{"path": "a.txt"}')]
    assert (got.resource["usage"]["input_tokens"], got.resource["usage"]["output_tokens"]) == (11, 7)
    result = {"type": "function_call_output", "call_id": got.resource["output"][-1]["call_id"], "output": "seven"}
    forms: list[dict[str, Any]] = [
        {"input": [asked, *got.resource["output"], result]},
        {"input": [result], "previous_response_id": got.resource["id"]},
        {"input": [result, {"role": "user", "content": "Well?"}], "previous_response_id": got.resource["id"]},
    ]
    for form in forms:
        final: Streamed = of_stream(await ask(server, tools=[READ], stream=True, **form))
        assert outline(final.resource) == [("text", "It says seven.")]
        assert "What is in a.txt?" in texts(model)[-1]
        assert "seven" in texts(model)[-1]
    for sent in (asked.json for asked in model.posts):
        assert sent["tools"] == []
        assert [item["role"] for item in sent["input"]] == ["developer", "user"]
        assert "environment_context" not in json.dumps(sent["input"])


async def test_codex_itself_as_the_client(codex: Start, codex_program: Path, tmp_path: Path) -> None:
    """`codex exec` does a task with its own shell, in front of another Codex that must not touch its own."""
    commands = ("cat word.txt", "printf pamplemousse > greeting.txt")
    script = [
        ended(message("I do it."), call(f"c{number}", "client_exec_command", json.dumps({"cmd": command})))
        for number, command in enumerate(commands)
    ]
    server, model = await codex(*script, ended(message("All done.")), mode="native")
    home, work = tmp_path / "client", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(CONFIG.format(url=server.make_url("/v1")))
    (work / "word.txt").write_text("a word of its own")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), **NOWHERE}
    task = ("exec", "--skip-git-repo-check", "--json", "--model", "some-model", "Do it.")
    status, out, err = await execute(str(codex_program), *task, cwd=work, env=env)
    assert status == 0, err or out
    assert (work / "greeting.txt").read_text() == "pamplemousse"
    assert len(model.posts) == 3
    assert "a word of its own" in json.dumps(model.posts[1].json["input"])
    items = [json.loads(line)["item"] for line in out.splitlines() if '"item.completed"' in line]
    assert items[-1]["text"] == "All done."


EVIL = """
[mcp_servers.evil]
command = "python3"
args = ["{file}"]
"""
MCP = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        said = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}}}
        said["serverInfo"] = {"name": "x", "version": "1"}
    elif asked.get("method") == "tools/list":
        said = {"tools": [{"name": "steal", "description": "d", "inputSchema": {"type": "object"}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
"""


async def test_its_own_tools_are_off_and_each_has_a_switch(codex: Start, tmp_path: Path) -> None:
    """A read-only sandbox alone would let the model read every file. MCP servers of the operator's own configuration
    count."""
    file = tmp_path / "mcp.py"
    file.write_text(MCP)
    config = EVIL.format(file=file)
    server, model = await codex(ended(message(CALL)), config=config)
    assert outline(of_whole(await ask(server, tools=[READ]))) == [("call", "read_file", '{"path": "a.txt"}')]
    assert model.posts[0].json["tools"] == []
    switches = {"shell": "exec_command", "web_search": "web_search", "view_image": "view_image"}
    for switch, name in switches.items():
        server, model = await codex(ended(message(CALL)), config=config, own={switch: True})
        assert outline(of_whole(await ask(server, tools=[READ]))) == [("call", "read_file", '{"path": "a.txt"}')]
        names = [sent.get("name", sent["type"]) for sent in model.posts[0].json["tools"]]
        assert name in names
        assert set(names) <= {name, "write_stdin"}


async def test_a_command_that_the_model_wants_run_is_not(codex: Start, tmp_path: Path) -> None:
    """Also a model that makes up the call is only told that there is no such tool."""
    secret = tmp_path / "secret"
    secret.write_text("the operator's own")
    command = call("c1", "exec_command", json.dumps({"cmd": f"cat {secret}"}))
    server, model = await codex(ended(command), ended(message("I cannot.")))
    assert (await chat(server)).json()["choices"][0]["message"]["content"] == "I cannot."
    assert not any(b"the operator's own" in asked.body for asked in model.posts)


async def test_native(codex: Start) -> None:
    """Calls as the model's server wrote them, in its order; a long result arrives whole."""
    a, b = '{"path":  "a.txt"}', '{"cmd": "ls"}'
    own = tool("exec_command", cmd="string")
    first = ended(message("Let me look."), call("c1", "read_file", a), call("c2", "client_exec_command", b))
    server, model = await codex(*[first, ended(message("Done."))] * 2, mode="native")
    for stream in (False, True):
        answer = await ask(server, tools=[READ, own], stream=stream, instructions="Be good.")
        resource = of_stream(answer).resource if stream else of_whole(answer)
        assert outline(resource) == [("text", "Let me look."), ("call", "read_file", a), ("call", "exec_command", b)]
        assert resource["usage"]["output_tokens"] == 7
        assert [sent["name"] for sent in model.posts[-1].json["tools"]] == ["read_file", "client_exec_command"]
        ids = [item["call_id"] for item in resource["output"][1:]]
        long = "seven " * 20_000
        results = [{"type": "function_call_output", "call_id": ident, "output": long} for ident in ids]
        final = of_whole(await ask(server, input=results, tools=[READ, own], previous_response_id=resource["id"]))
        assert outline(final) == [("text", "Done.")]
        sent = model.posts[-1].json["input"]
        assert [item["arguments"] for item in sent if item["type"] == "function_call"] == [a, b]
        assert [item["output"] for item in sent if item["type"] == "function_call_output"] == [long, long]
    assert len(model.posts) == 4


RESERVED = ["exec_command", "shell_command", "apply_patch", "update_plan", "view_image", "web_search", "x" * 64]


async def test_native_keeps_every_tool(codex: Start) -> None:
    """Names that the server drops in silence, or refuses, have others there."""
    server, model = await codex(ended(message("No.")), mode="native")
    of_whole(await ask(server, tools=[tool(name, p="string") for name in RESERVED]))
    assert len(model.posts[0].json["tools"]) == len(RESERVED)


# --- hazards ----------------------------------------------------------------------------------------------------------


async def test_a_cut_stream_that_begins_again(codex: Start) -> None:
    """With retries of its own the server says the beginning twice."""
    flags = ["-c", "model_providers.gw.stream_max_retries=2"]
    script = [streamed(*message("Half", " of")[:-1]), ended(message("Half", " of", " it."))]
    server, model = await codex(*script * 2, flags=flags)
    assert (await chat(server)).json()["choices"][0]["message"]["content"] == "Half of it."
    assert len(model.posts) == 2
    answer = await chat(server, stream=True)
    assert b'"upstream_disconnected"' in answer.body
    assert b" it." not in answer.body


async def test_a_limit_of_length(codex: Start) -> None:
    server, _ = await codex(ended(message("Half an"), reason="max_output_tokens"))
    for stream in (False, True):
        answer = await ask(server, tools=[READ], stream=stream)
        resource = of_stream(answer).resource if stream else of_whole(answer)
        assert outline(resource) == [("text", "Half an")]
        assert resource["incomplete_details"] == {"reason": "max_output_tokens"}


REFUSALS = [
    (400, 400, "upstream_rejected"),
    (401, 502, "upstream_auth"),
    (429, 429, "rate_limit_exceeded"),
    (500, 502, "upstream_error"),
    (529, 503, "overloaded"),
]
"""The status of the model's server, and what the client gets."""


async def test_what_the_models_server_refuses(codex: Start) -> None:
    server, _ = await codex(*(Refuse(status, "It is so.") for status, *_ in REFUSALS))
    for status, got, code in REFUSALS:
        answer = await chat(server)
        assert (answer.status, answer.json()["error"]["code"]) == (got, code), status
        assert b"127.0.0.1" not in answer.body


async def test_sizes(codex: Start) -> None:
    """Up to the server's limit a text arrives whole; beyond it is refused."""
    server, model = await codex(ended(message("ok")))
    text = "word " * 200_000
    assert (await chat(server, text)).status == 200
    assert text in texts(model)[0]
    parts = [{"type": "text", "text": "x" * 700_000}] * 2
    await too_long(server, CHAT, messages=[{"role": "user", "content": parts}])


async def test_what_does_not_fit_is_not_cut(codex: Start) -> None:
    """The server would make a summary, in silence, of what does not fit its model."""
    server, _ = await codex(ended(message("ok")), mode="native")
    items = [*({"role": "user", "content": "y" * 800_000} for _ in range(2)), {"role": "user", "content": "hi"}]
    await too_long(server, RESPONSES, input=items, tools=[READ])


def thoughts(*deltas: str) -> Frames:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    item = {"type": "reasoning", "id": "rs_1", "summary": []}
    whole = {**item, "summary": [{"type": "summary_text", "text": "".join(deltas)}]}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_summary_part.added", **place, "part": {"type": "summary_text", "text": ""}},
        *({"type": "response.reasoning_summary_text.delta", **place, "delta": delta} for delta in deltas),
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
    ]


async def test_images_thoughts_and_a_schema(codex: Start) -> None:
    """It takes no addresses of images, so such an image becomes a note (R5.9)."""
    closed = {"required": ["a"], "additionalProperties": False}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, **closed}
    form = {"type": "json_schema", "name": "x", "strict": True, "schema": schema}
    last = ended(thoughts("Hm", "."), message("Yes."))
    server, model = await codex(ended(message("A dot.")), ended(message('{"a": "b"}')), last)
    for url in (PIXEL, "https://example.com/x.png"):
        image = {"type": "input_image", "image_url": url}
        parts = [{"type": "input_text", "text": "What is it?"}, image]
        of_whole(await ask(server, input=[{"role": "user", "content": parts}], text={"format": form}))
        content = model.posts[-1].json["input"][-1]["content"]
        assert [part["image_url"] for part in content if part["type"] == "input_image"] == [url] * (url == PIXEL)
        assert ("[image omitted" in str(content)) == (url != PIXEL)
        assert model.posts[-1].json["text"]["format"]["schema"] == schema
    resource = of_stream(await ask(server, tools=[READ], stream=True, reasoning={"effort": "high"})).resource
    assert outline(resource) == [("reasoning", "Hm."), ("text", "Yes.")]
    assert model.posts[-1].json["reasoning"]["effort"] == "high"


async def test_eight_at_once_and_one_who_goes(codex: Start) -> None:
    """One process. Who goes stops the model's own server; the others do not notice."""
    server, model = await codex(streamed(*message("Half")[:-1], hang=True), ended(message("Hello.")))
    async with aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with session.post(server.make_url(CHAT), json=body) as first:
            await first.content.readuntil(b"Half")
            answers = await asyncio.gather(*(chat(server, stream=bool(n % 2)) for n in range(7)))
            assert [answer.status for answer in answers] == [200] * 7
            first.close()
    await asyncio.wait_for(model.posts[0].dropped.wait(), PROGRAM_S)


async def test_a_process_that_is_killed(codex: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The launcher of npm and the server behind it: the next request has both anew, and nothing is left of the old."""
    caplog.set_level(logging.INFO, logger="toolwire.backends")
    server, _ = await codex(ended(message("Hello.")))
    assert (await chat(server)).status == 200
    launchers = _processes(caplog)
    children = [pid for launcher in launchers for pid in _below(launcher)]
    os.kill(launchers[0], 9)
    await _ended([*launchers, *children])
    assert (await chat(server)).status == 200
    again = [pid for launcher in _processes(caplog)[1:] for pid in (launcher, *_below(launcher))]
    await server.close()
    await _ended(again)
    assert KEY not in caplog.text


def _processes(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Those that were started, as the log says."""
    lines = [record.getMessage().split() for record in caplog.records if " runs " in record.getMessage()]
    return [int(words[words.index("process") + 1]) for words in lines]


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [below for child in map(int, children) for below in (child, *_below(child))]


async def _ended(pids: Sequence[int]) -> None:
    await until(lambda: not any(map(runs, pids)))
