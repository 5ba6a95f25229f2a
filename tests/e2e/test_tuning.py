"""`toolwire tune` with the embedded model: what it writes is served, and a call comes back. A subset; all of it takes
minutes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.e2e.embedded import served, with_model
from toolwire.cli import main
from toolwire.configuration.settings import load
from toolwire.extras.demo.engine import Engine, find_weights

pytestmark = with_model
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


def test_the_embedded_model_is_tuned_and_what_is_written_runs(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        engine = runner.run(Engine(find_weights()).__aenter__())
        try:
            tune(engine, tmp_path)
            message = runner.run(ask_what_was_written(engine, tmp_path / "best.yaml"))
        finally:
            runner.run(engine.__aexit__())
    (call,) = message.tool_calls
    assert call.function.name == "set_light"


def tune(engine: Engine, folder: Path) -> None:
    """Tune with one case and two candidates."""
    (folder / "cases.json").write_text(json.dumps(CASES))
    few = ["--format", "hermes", "--wording", "standard", "--candidates", "2", "-n", "1", "--max-tokens", "30"]
    files = ["--cases", str(folder / "cases.json"), "--write", str(folder / "best.yaml")]
    files += ["--json", str(folder / "all.json")]
    server = ["--backend", engine.url, "--backend-key", engine.key, "--preset", "llamacpp", "--choice", "required"]
    tuned = CliRunner().invoke(main, ["tune", *server, *few, *files])
    assert tuned.exit_code == 0, tuned.output
    report = json.loads((folder / "all.json").read_text("utf-8"))
    assert report["model"] == engine.model
    assert len(report["candidates"]) >= 2
    assert all(candidate["faults"] == 0 for candidate in report["candidates"])
    checked = CliRunner().invoke(main, ["check", str(folder / "best.yaml")])
    assert checked.exit_code == 0, checked.output


async def ask_what_was_written(engine: Engine, file: Path) -> Any:
    """Serve a configuration, and demand one call."""
    config = load(file, env={"MODEL_SERVER_KEY": engine.key})
    async with served(config) as client:
        answer = await client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "Turn the light in the bedroom off."}],
            tools=[{"type": "function", "function": {"name": "set_light", "parameters": TIGHT}}],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=0,
            max_completion_tokens=60,
        )
    return answer.choices[0].message
