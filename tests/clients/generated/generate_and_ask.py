"""Generates a client from a gateway's `/openapi.json`, imports all of it, asks with it, and prints what came back.

The argument is the gateway's address; TOOLWIRE_KEY is a key.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

GUARD_S = 300
KEY = os.environ["TOOLWIRE_KEY"]


def generate(url: str, folder: Path) -> None:
    """Make the package `generated_client` in `folder`."""
    asked = urllib.request.Request(f"{url}/openapi.json", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(asked, timeout=GUARD_S) as answer:
        folder.joinpath("openapi.json").write_bytes(answer.read())
    folder.joinpath("config.yaml").write_text("post_hooks: []\n")
    command = [sys.executable, "-S", "-m", "openapi_python_client", "generate", "--fail-on-warning", "--meta", "none"]
    files = ["--path", "openapi.json", "--config", "config.yaml", "--output-path", "generated_client"]
    subprocess.run([*command, *files], cwd=folder, check=True, stdout=sys.stderr, timeout=GUARD_S)


def modules(name: str) -> int:
    """Import every module of a package; how many they are."""
    package = importlib.import_module(name)
    found = [one.name for one in pkgutil.walk_packages(package.__path__, f"{name}.")]
    for one in found:
        importlib.import_module(one)
    return len(found)


def ask(url: str) -> dict[str, Any]:
    """What the client makes of answers: types and values."""
    from generated_client import AuthenticatedClient, Client, models
    from generated_client.api.chat import create_chat_completion
    from generated_client.api.gateway import get_readyz, list_models
    from generated_client.api.messages import create_message
    from generated_client.api.responses import create_response, get_response

    client = AuthenticatedClient(url, KEY)
    tool = {"name": "read_file", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
    said = [{"role": "user", "content": "Read a.txt."}]
    chat = {"model": "m", "messages": said, "tools": [{"type": "function", "function": tool}]}
    completion = create_chat_completion.sync(client=client, body=models.ChatRequest.from_dict(chat))
    asked = {"model": "m", "input": "Read a.txt.", "tools": [{"type": "function", **tool}]}
    response = create_response.sync(client=client, body=models.ResponseRequest.from_dict(asked))
    again = get_response.sync(response.id, client=client)
    message = create_message.sync(
        client=client,
        body=models.MessagesRequest.from_dict(
            {
                "model": "m",
                "max_tokens": 100,
                "messages": said,
                "tools": [{"name": "read_file", "input_schema": tool["parameters"]}],
            }
        ),
    )
    listed = list_models.sync(client=client)
    unknown = create_chat_completion.sync_detailed(
        client=client, body=models.ChatRequest.from_dict({**chat, "model": "none"})
    )
    refused = create_chat_completion.sync_detailed(client=Client(url), body=models.ChatRequest.from_dict(chat))
    ready = get_readyz.sync(client=Client(url))
    [call] = completion.choices[0].message.tool_calls
    items = {type(item).__name__: item for item in response.output}
    blocks = {type(block).__name__: block for block in message.content}
    return {
        "chat": [type(completion).__name__, type(call).__name__, call.function.name, call.function.arguments],
        "responses": [type(response).__name__, response.status.value, items["FunctionCallItem"].arguments],
        "kept": [type(again).__name__, again.id == response.id],
        "messages": [type(message).__name__, blocks["ToolUseBlock"].input_.to_dict()],
        "models": [type(listed).__name__, [model.id for model in listed.data]],
        "unknown": [unknown.status_code, type(unknown.parsed).__name__, unknown.parsed.error.code],
        "refused": [refused.status_code, type(refused.parsed).__name__, refused.parsed.error.code],
        "ready": [type(ready).__name__, ready.status.value],
    }


def main() -> None:
    url = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        generate(url, Path(folder))
        sys.path.insert(0, folder)
        print(json.dumps({"modules": modules("generated_client"), **ask(url)}))


main()
