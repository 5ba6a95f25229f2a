"""n8n, set up by the lines of its page: an agent with a tool, in a workflow that is executed once.

A test that runs where `n8n` is on the PATH.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.clients import setup_pages
from tests.clients.conftest import execute
from tests.clients.task import MODES, turn
from tests.e2e.conftest import Gateway
from tests.optional import N8N

DONE = "It is forty-two."
WORKFLOW = "workflow00000001"
LANGCHAIN = "@n8n/n8n-nodes-langchain"


def node(name: str, kind: str, version: float, **rest: Any) -> dict[str, Any]:
    shared = {"id": name, "name": name, "type": kind, "typeVersion": version, "position": [0, 0], "parameters": {}}
    return {**shared, **rest}


def to_agent(kind: str) -> dict[str, Any]:
    return {kind: [[{"node": "Agent", "type": kind, "index": 0}]]}


def workflow() -> dict[str, Any]:
    model = {"model": {"__rl": True, "mode": "id", "value": "my-model"}}
    credentials = {"openAiApi": {"id": "toolwire00000001", "name": "toolwire"}}
    nodes = [
        node("Start", "n8n-nodes-base.manualTrigger", 1),
        node("Agent", f"{LANGCHAIN}.agent", 2.2, parameters={"promptType": "define", "text": "How much is 6 times 7?"}),
        node("Model", f"{LANGCHAIN}.lmChatOpenAi", 1.2, parameters=model, credentials=credentials),
        node("Calculator", f"{LANGCHAIN}.toolCalculator", 1),
    ]
    kinds = {"Start": "main", "Model": "ai_languageModel", "Calculator": "ai_tool"}
    connections = {name: to_agent(kind) for name, kind in kinds.items()}
    return {"id": WORKFLOW, "name": "a workflow", "active": False, "nodes": nodes, "connections": connections}


@pytest.mark.needs(N8N)
@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_with_a_tool(gateway: Gateway, tmp_path: Path, mode: str) -> None:
    server = await gateway(
        script=[
            {"text": DONE, "when": "42"},
            turn(mode, "I calculate.", ("Calculator", {"input": "6 * 7"}), when="How much is 6 times 7?"),
            "I never saw a result.",
        ],
        mode=mode,
    )
    setup_pages.write("n8n", tmp_path, server)
    (tmp_path / "workflow.json").write_text(json.dumps(workflow()))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "N8N_DIAGNOSTICS_ENABLED": "false",
        "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
    }
    imported = await execute("n8n", "import:workflow", "--input=workflow.json", cwd=tmp_path, env=env)
    assert imported[0] == 0, imported
    command = setup_pages.command("n8n", server, "execute", f"--id={WORKFLOW}", "--rawOutput")
    status, out, err = await execute(*command, cwd=tmp_path, env=env)
    assert status == 0, f"{out} {err}"
    assert DONE in out, f"{out} {err}"
