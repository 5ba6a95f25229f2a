"""`toolwire tune` with the embedded model: what it writes is served, and a call comes back. A subset; all of it takes
minutes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import GUARD_S
from toolwire.extras.demo.engine import (
    ENGINE_PACKAGE,
    INSTALL_ENGINE,
    INSTALL_WEIGHTS,
    WEIGHTS_PACKAGE,
    Engine,
    find_weights,
)

ROOT = Path(__file__).parents[2]
TIGHT = {
    "type": "object",
    "properties": {"room": {"enum": ["kitchen", "bedroom"]}, "on": {"type": "boolean"}},
    "required": ["room", "on"],
    "additionalProperties": False,
}
"""Leaves a small model no room to ramble."""
CASES = {
    "tools": {"set_light": {"description": "Switch a light", "parameters": TIGHT}},
    "cases": [
        {
            "id": "off",
            "topic": "one tool",
            "ask": "Turn the light in the kitchen off.",
            "tools": ["set_light"],
            "calls": [{"name": "set_light", "arguments": {"room": "kitchen", "on": False}}],
        }
    ],
}
"""One short question: the model reads each prompt, and prompts are what takes its time."""
COMMAND = [sys.executable, "-m", "toolwire"]
MISSING = [name for name in (ENGINE_PACKAGE, WEIGHTS_PACKAGE) if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        bool(MISSING), reason=f"{', '.join(MISSING)} not installed: {INSTALL_ENGINE} && {INSTALL_WEIGHTS}"
    ),
]


async def test_the_embedded_model_is_tuned_and_what_is_written_runs(tmp_path: Path) -> None:
    async with Engine(find_weights()) as engine:
        await asyncio.to_thread(tune, engine, tmp_path)
        message = await asyncio.to_thread(ask_what_was_written, engine, tmp_path / "best.yaml")
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "set_light"


def tune(engine: Engine, folder: Path) -> None:
    """Tune with one case and two candidates."""
    (folder / "cases.json").write_text(json.dumps(CASES))
    few = ["--format", "hermes", "--wording", "standard", "--candidates", "2", "-n", "1", "--max-tokens", "30"]
    files = ["--cases", str(folder / "cases.json"), "--write", str(folder / "best.yaml")]
    files += ["--json", str(folder / "all.json")]
    server = ["--backend", engine.url, "--backend-key", engine.key, "--preset", "llamacpp", "--choice", "required"]
    tuned = subprocess.run([*COMMAND, "tune", *server, *few, *files], cwd=ROOT, capture_output=True, text=True)
    assert tuned.returncode == 0, tuned.stderr
    report = json.loads((folder / "all.json").read_text("utf-8"))
    assert report["model"] == engine.model
    assert len(report["candidates"]) >= 2
    assert all(candidate["faults"] == 0 for candidate in report["candidates"])
    checked = subprocess.run([*COMMAND, "check", str(folder / "best.yaml")], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def ask_what_was_written(engine: Engine, file: Path) -> Any:
    """Serve a configuration, and demand one call."""
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": "Turn the light in the bedroom off."}],
        "tools": [{"type": "function", "function": {"name": "set_light", "parameters": TIGHT}}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_completion_tokens": 60,
    }
    serve = [*COMMAND, "serve", "--config", str(file), "--port", "0", "--backend-key", engine.key]
    with subprocess.Popen(serve, cwd=ROOT, stdout=subprocess.PIPE, text=True) as gateway:
        try:
            assert gateway.stdout is not None
            url = f"{gateway.stdout.readline().split()[-1]}/chat/completions"
            request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=GUARD_S) as answer:
                return json.load(answer)["choices"][0]["message"]
        finally:
            gateway.send_signal(signal.SIGTERM)
