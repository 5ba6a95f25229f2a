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
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.clients.conftest import execute
from tests.clients.npm import install
from tests.clients.test_codex import CONFIG
from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, post, read_config, serving
from tests.e2e.responses_answers import RESPONSES, Streamed, ask, of_stream, of_whole, outline, tool
from tests.waiting import PROGRAM_S, runs, until

WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
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


def ended(*frames: Frames, reason: str | None = None) -> Frames:
    """A whole answer; with a `reason` an incomplete one."""
    said = [frame for several in frames for frame in several]
    if reason is not None:
        incomplete = {"id": "r", "incomplete_details": {"reason": reason}, "usage": USAGE}
        return [*said, {"type": "response.incomplete", "response": incomplete}]
    return [*said, {"type": "response.completed", "response": {"id": "r", "usage": USAGE}}]


class Model:
    """The model's server. `script`: the answers in order; the last one is given again. A number is a status."""

    def __init__(self, *script: Frames | int) -> None:
        self.script = list(script)
        self.asked: list[Any] = []
        self.waiting = asyncio.Event()
        self.gone = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        frames = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(frames, int):
            return web.json_response({"error": {"message": "It is so.", "type": "t", "code": None}}, status=frames)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for frame in ({"type": "response.created", "response": {"id": "r"}}, *frames):
                if frame["type"] == "wait":
                    self.waiting.set()
                    await asyncio.Event().wait()
                await response.write(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode())
        except (asyncio.CancelledError, ConnectionResetError):
            self.gone.set()
            raise
        return response

    @property
    def texts(self) -> list[str]:
        """What the user said, in each request."""
        return [
            "".join(
                part.get("text", "")
                for item in asked["input"]
                if item.get("role") == "user"
                for part in item["content"]
            )
            for asked in self.asked
        ]


@pytest.fixture(scope="session")
def program(shared: Path) -> Path:
    return install("codex", shared) / "node_modules" / ".bin" / "codex"


Start = Callable[..., Awaitable[tuple[TestServer, Model]]]


@pytest.fixture
async def codex(program: Path, tmp_path: Path) -> AsyncIterator[Start]:
    """Start gateways before the real server: `await codex(answer, ...)`. `way`: how it is reached."""
    async with AsyncExitStack() as stack:

        async def start(
            *script: Frames | int,
            way: str = "stdio",
            own: Mapping[str, Any] | None = None,
            config: str = "",
            flags: Sequence[str] = (),
            **options: Any,
        ) -> tuple[TestServer, Model]:
            model = Model(
                *(
                    script
                    or (
                        ended(
                            message("Hello", "."),
                        ),
                    )
                )
            )
            app = web.Application(client_max_size=1 << 28)
            app.router.add_post("/v1/responses", model.answer)
            server = await stack.enter_async_context(TestServer(app, handler_cancellation=True))
            home = tmp_path / "home"
            home.mkdir(exist_ok=True)
            home.joinpath("config.toml").write_text(config)
            command = [str(program), *_flags(str(server.make_url("/v1"))), *flags, "app-server"]
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
    process = await asyncio.create_subprocess_exec(
        *command,
        "--listen",
        url,
        env={"PATH": os.environ["PATH"], **env},
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )

    async def stop() -> None:
        os.killpg(process.pid, 15)
        await process.wait()

    stack.push_async_callback(stop)
    async with asyncio.timeout(PROGRAM_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return url
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def chat(server: TestServer, text: str = "hi", **body: Any) -> Any:
    async with asyncio.timeout(PROGRAM_S):
        return await post(server, {"messages": [{"role": "user", "content": text}], **body})


# --- what the first users run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["stdio", "websocket"])
async def test_responses_with_tools(codex: Start, way: str) -> None:
    """Streamed, with each of the forms of following up; and nothing of Codex's own reaches the model."""
    first = ended(message("Let me", " look.\n", *(CALL[i : i + 9] for i in range(0, len(CALL), 9))))
    server, model = await codex(first, ended(message("It says ", "seven.")), way=way)
    asked = {"role": "user", "content": "What is in a.txt?"}
    got = of_stream(await ask(server, input=[asked], tools=[READ], stream=True))
    text = "output_item.added content_part.added {} output_text.done content_part.done output_item.done"
    assert " ".join(got.kinds) == " ".join(
        [
            "created in_progress",
            text.format("output_text.delta output_text.delta"),
            "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done",
            "completed",
        ]
    )
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
        assert "What is in a.txt?" in model.texts[-1]
        assert "seven" in model.texts[-1]
    for sent in model.asked:
        assert sent["tools"] == []
        assert [item["role"] for item in sent["input"]] == ["developer", "user"]
        assert "environment_context" not in json.dumps(sent["input"])


@pytest.mark.parametrize("mode", ["prompt", "native"])
async def test_codex_itself_as_the_client(codex: Start, program: Path, tmp_path: Path, mode: str) -> None:
    """`codex exec` does a task with its own shell, in front of another Codex that must not touch its own."""
    commands = ("cat word.txt", "printf pamplemousse > greeting.txt")
    script = []
    for number, command in enumerate(commands):
        given = {"cmd": command}
        if mode == "prompt":
            written = block("exec_command", given)
            script.append(ended(message("I do it.\n", *(written[i : i + 7] for i in range(0, len(written), 7)))))
        else:
            called = call(f"c{number}", "client_exec_command", json.dumps(given))
            script.append(ended(message("I do it."), called))
    server, model = await codex(*script, ended(message("All done.")), mode=mode)
    home, work = tmp_path / "client", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(CONFIG.format(url=server.make_url("/v1")))
    (work / "word.txt").write_text("a word of its own")
    nowhere = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), **nowhere}
    task = ("exec", "--skip-git-repo-check", "--json", "--model", "some-model", "Do it.")
    status, out, err = await execute(str(program), *task, cwd=work, env=env)
    assert status == 0, err or out
    assert (work / "greeting.txt").read_text() == "pamplemousse"
    assert len(model.asked) == 3
    assert "a word of its own" in json.dumps(model.asked[1]["input"])
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
    assert model.asked[0]["tools"] == []
    switches = {"shell": "exec_command", "web_search": "web_search", "view_image": "view_image"}
    for switch, name in switches.items():
        server, model = await codex(ended(message(CALL)), config=config, own={switch: True})
        assert outline(of_whole(await ask(server, tools=[READ]))) == [("call", "read_file", '{"path": "a.txt"}')]
        names = [sent.get("name", sent["type"]) for sent in model.asked[0]["tools"]]
        assert name in names
        assert set(names) <= {name, "write_stdin"}


async def test_a_command_that_the_model_wants_run_is_not(codex: Start, tmp_path: Path) -> None:
    """Also a model that makes up the call is only told that there is no such tool."""
    secret = tmp_path / "secret"
    secret.write_text("the operator's own")
    command = call("c1", "exec_command", json.dumps({"cmd": f"cat {secret}"}))
    server, model = await codex(ended(command), ended(message("I cannot.")))
    assert (await chat(server)).json()["choices"][0]["message"]["content"] == "I cannot."
    assert "the operator's own" not in json.dumps(model.asked)


@WAYS
async def test_native(codex: Start, stream: bool) -> None:
    """Calls as the model's server wrote them, in its order; a long result arrives whole."""
    a, b = '{"path":  "a.txt"}', '{"cmd": "ls"}'
    own = tool("exec_command", cmd="string")
    first = ended(message("Let me look."), call("c1", "read_file", a), call("c2", "client_exec_command", b))
    server, model = await codex(first, ended(message("Done.")), mode="native")
    answer = await ask(server, tools=[READ, own], stream=stream, instructions="Be good.")
    resource = of_stream(answer).resource if stream else of_whole(answer)
    assert outline(resource) == [("text", "Let me look."), ("call", "read_file", a), ("call", "exec_command", b)]
    assert resource["usage"]["output_tokens"] == 7
    assert [sent["name"] for sent in model.asked[0]["tools"]] == ["read_file", "client_exec_command"]
    ids = [item["call_id"] for item in resource["output"][1:]]
    long = "seven " * 20_000
    results = [{"type": "function_call_output", "call_id": ident, "output": long} for ident in ids]
    final = of_whole(await ask(server, input=results, tools=[READ, own], previous_response_id=resource["id"]))
    assert outline(final) == [("text", "Done.")]
    sent = model.asked[-1]["input"]
    assert [item["arguments"] for item in sent if item["type"] == "function_call"] == [a, b]
    assert [item["output"] for item in sent if item["type"] == "function_call_output"] == [long, long]
    assert len(model.asked) == 2


RESERVED = ["exec_command", "shell_command", "apply_patch", "update_plan", "view_image", "web_search", "a.b", "x" * 64]


async def test_native_keeps_every_tool(codex: Start) -> None:
    """Names that the server drops in silence, or refuses, have others there."""
    server, model = await codex(ended(message("No.")), mode="native")
    names = [name for name in RESERVED if name != "a.b"]
    of_whole(await ask(server, tools=[tool(name, p="string") for name in names]))
    assert len(model.asked[0]["tools"]) == len(names)


# --- hazards ----------------------------------------------------------------------------------------------------------


@WAYS
async def test_a_cut_stream_that_begins_again(codex: Start, stream: bool) -> None:
    """With retries of its own the server says the beginning twice."""
    cut = message("Half", " of")[:-1]
    flags = ["-c", "model_providers.gw.stream_max_retries=2"]
    server, model = await codex(cut, ended(message("Half", " of", " it.")), flags=flags)
    answer = await chat(server, stream=stream)
    if stream:
        assert b'"upstream_disconnected"' in answer.body
        assert b" it." not in answer.body
    else:
        assert answer.json()["choices"][0]["message"]["content"] == "Half of it."
        assert len(model.asked) == 2


@WAYS
async def test_a_limit_of_length(codex: Start, stream: bool) -> None:
    server, _ = await codex(ended(message("Half an"), reason="max_output_tokens"))
    answer = await ask(server, tools=[READ], stream=stream)
    resource = of_stream(answer).resource if stream else of_whole(answer)
    assert (outline(resource), resource["incomplete_details"]) == (
        [("text", "Half an")],
        {"reason": "max_output_tokens"},
    )


@pytest.mark.parametrize(
    ("status", "got", "code"),
    [
        (400, 400, "upstream_rejected"),
        (401, 502, "upstream_auth"),
        (429, 429, "rate_limit_exceeded"),
        (500, 502, "upstream_error"),
        (529, 503, "overloaded"),
    ],
)
async def test_what_the_models_server_refuses(codex: Start, status: int, got: int, code: str) -> None:
    server, _ = await codex(status)
    answer = await chat(server)
    assert (answer.status, answer.json()["error"]["code"]) == (got, code)
    assert b"127.0.0.1" not in answer.body


async def test_sizes(codex: Start) -> None:
    """Up to the server's limit a text arrives whole; beyond it is refused."""
    server, model = await codex(ended(message("ok")))
    text = "word " * 200_000
    assert (await chat(server, text)).status == 200
    assert text in model.texts[0]
    parts = [{"type": "text", "text": "x" * 700_000}] * 2
    body = io.BytesIO(json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode())
    async with aiohttp.ClientSession() as session:
        headers = {"Content-Type": "application/json"}
        async with session.post(server.make_url(CHAT), data=body, headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, "context_length_exceeded")


async def test_what_does_not_fit_is_not_cut(codex: Start) -> None:
    """The server would make a summary, in silence, of what does not fit its model."""
    server, _ = await codex(ended(message("ok")), mode="native")
    items = [*({"role": "user", "content": "y" * 800_000} for _ in range(2)), {"role": "user", "content": "hi"}]
    body = io.BytesIO(json.dumps({"model": "m", "input": items, "tools": [READ]}).encode())
    async with aiohttp.ClientSession() as session:
        headers = {"Content-Type": "application/json"}
        async with session.post(server.make_url(RESPONSES), data=body, headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, "context_length_exceeded")


async def test_images(codex: Start) -> None:
    server, model = await codex(ended(message("A dot.")))
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    body = {"messages": [{"role": "user", "content": parts}]}
    assert (await post(server, body)).json()["choices"][0]["message"]["content"] == "A dot."
    images = [part for part in model.asked[0]["input"][-1]["content"] if part["type"] == "input_image"]
    assert [image["image_url"] for image in images] == [PIXEL]
    parts[1]["image_url"] = {"url": "https://example.com/x.png"}  # type: ignore[assignment]
    assert (await post(server, body)).status == 200  # it takes no addresses, so the image becomes a note (R5.9)
    assert "[image omitted" in str(model.asked[-1]["input"][-1])


async def test_thoughts(codex: Start) -> None:
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    item = {"type": "reasoning", "id": "rs_1", "summary": []}
    thoughts = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_summary_part.added", **place, "part": {"type": "summary_text", "text": ""}},
        *({"type": "response.reasoning_summary_text.delta", **place, "delta": delta} for delta in ("Hm", ".")),
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**item, "summary": [{"type": "summary_text", "text": "Hm."}]},
        },
    ]
    server, model = await codex(ended(thoughts, message("Yes.")))
    resource = of_stream(await ask(server, tools=[READ], stream=True, reasoning={"effort": "high"})).resource
    assert outline(resource) == [("reasoning", "Hm."), ("text", "Yes.")]
    assert model.asked[0]["reasoning"]["effort"] == "high"


async def test_a_schema(codex: Start) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    server, model = await codex(ended(message('{"a": "b"}')))
    form = {"type": "json_schema", "name": "x", "strict": True, "schema": schema}
    of_whole(await ask(server, text={"format": form}))
    assert model.asked[0]["text"]["format"]["schema"] == schema


async def test_eight_at_once_and_one_who_goes(codex: Start) -> None:
    """One process. Who goes stops the model's own server; the others do not notice."""
    server, model = await codex(
        [*message("Half")[:-1], {"type": "wait"}],
        ended(message("Hello.")),
    )
    async with aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with session.post(server.make_url(CHAT), json=body) as first:
            await first.content.readuntil(b"Half")
            await asyncio.wait_for(model.waiting.wait(), PROGRAM_S)
            answers = await asyncio.gather(*(chat(server, stream=bool(n % 2)) for n in range(7)))
            assert [answer.status for answer in answers] == [200] * 7
            first.close()
    await asyncio.wait_for(model.gone.wait(), PROGRAM_S)


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
