"""Open WebUI, set up by the lines of its page: a chat in which it runs a tool of its own.

A test that runs where `open-webui` is on the PATH.
"""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer, unused_port

from tests.clients import setup_pages
from tests.clients.task import MODES, turn
from tests.e2e.conftest import Gateway, read_config
from tests.optional import OPEN_WEBUI
from tests.waiting import PROGRAM_S

ASK = "Say what stands in word.txt."
DONE = "It is a fruit."
TOOL = '''
class Tools:
    def read_word(self, path: str) -> str:
        """
        Reads a file.
        :param path: where it is
        """
        return f"pamplemousse in {path}"
'''


@asynccontextmanager
async def open_webui(server: TestServer, home: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A session at a running Open WebUI without users, signed in."""
    port = unused_port()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "DATA_DIR": str(home),
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "none",
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1",
    }
    command = setup_pages.command("open-webui", server, "--host", "127.0.0.1", "--port", str(port))
    with (home / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=home, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            await asyncio.wait_for(started(session, process), PROGRAM_S)
            signed_in = await post(session, "/api/v1/auths/signin", email="", password="")
            session.headers["Authorization"] = f"Bearer {signed_in['token']}"
            yield session
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def started(session: aiohttp.ClientSession, process: asyncio.subprocess.Process) -> None:
    while process.returncode is None:
        try:
            async with session.get("/health") as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientConnectionError:
            pass
        await asyncio.sleep(0.2)
    pytest.fail("it ended")


async def post(session: aiohttp.ClientSession, path: str, **body: Any) -> Any:
    async with session.post(path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


@pytest.mark.needs(OPEN_WEBUI)
@pytest.mark.parametrize("mode", MODES)
async def test_a_chat_with_a_tool(gateway: Gateway, tmp_path: Path, mode: str) -> None:
    script = [
        {"text": DONE, "when": "pamplemousse in word.txt"},
        turn(mode, "I look.", ("read_word", {"path": "word.txt"}), when=ASK),
        "I never saw a result.",
    ]
    backends = {"mock": {"kind": "mock", "script": script}}
    routes = [{"model": "my-model", "backend": "mock"}]
    server = await gateway(read_config({"backends": backends, "routes": routes, "defaults": {"mode": mode}}))
    async with open_webui(server, tmp_path) as session:
        async with session.get("/api/models") as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["my-model"]
        meta = {"description": "files"}
        await post(session, "/api/v1/tools/create", id="files", name="Files", content=TOOL, meta=meta)
        said = await chat(session, model="my-model", tool_ids=["files"], params={"function_calling": "native"})
    assert [item["type"] for item in said["output"]] == ["message", "function_call", "function_call_output", "message"]
    assert said["content"].endswith(DONE)


async def chat(session: aiohttp.ClientSession, **options: Any) -> Any:
    """Ask as the page in the browser does: what it then has of the answer."""
    asked, answered = str(uuid.uuid4()), str(uuid.uuid4())
    model = options["model"]
    shared = {"timestamp": 1, "content": ""}
    question = {**shared, "id": asked, "parentId": None, "childrenIds": [answered], "role": "user", "content": ASK}
    answer = {**shared, "id": answered, "parentId": asked, "childrenIds": [], "role": "assistant", "model": model}
    history = {"messages": {asked: question, answered: answer}, "currentId": answered}
    new = {"title": "a chat", "models": [model], "history": history, "messages": [question, answer]}
    made = await post(session, "/api/v1/chats/new", chat=new)
    messages = [{"role": "user", "content": ASK}]
    where = {"chat_id": made["id"], "id": answered, "session_id": "none"}
    await post(session, "/api/chat/completions", stream=True, messages=messages, **where, **options)

    async def done() -> Any:
        while True:
            async with session.get(f"/api/v1/chats/{made['id']}") as response:
                said = (await response.json())["chat"]["history"]["messages"][answered]
            if said.get("done"):
                return said
            await asyncio.sleep(0.2)

    return await asyncio.wait_for(done(), PROGRAM_S)
