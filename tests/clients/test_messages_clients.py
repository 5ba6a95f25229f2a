"""Libraries in Python over Messages, in their Anthropic modes: LangChain, pydantic-ai and LiteLLM do the whole task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.pip import run
from tests.clients.task import ASK, CALLS, FINAL, GIVEN, MODES, SAID, script
from tests.e2e.conftest import Gateway

SCRIPTS = ("anthropic_modes/langchain_task.py", "anthropic_modes/pydantic_ai_task.py", "litellm_mode/litellm_task.py")


WAYS = [(streamed, mode) for streamed in (False, True) for mode in MODES]


@pytest.mark.parametrize("client", SCRIPTS, ids=["langchain", "pydantic-ai", "litellm"])
async def test_the_task(gateway: Gateway, shared: Path, client: str) -> None:
    """In each of the ways, at a gateway of its own. By one process: to import such a library takes seconds."""
    tasks = []
    for streamed, mode in WAYS:
        server = await gateway(script=script(mode), mode=mode)
        url = str(server.make_url("/")).rstrip("/")
        tasks.append({"url": url, "ask": ASK, "files": GIVEN, "streamed": streamed})
    nowhere = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    status, out, err = await run(client, json.dumps(tasks), shared, **nowhere)
    assert status == 0, f"{out}{err}"
    reports = [json.loads(line) for line in out.splitlines() if line.startswith('{"calls"')]
    for way, report in zip(WAYS, reports, strict=True):
        assert (report["calls"], report["files"]) == (CALLS, FINAL), way
        assert report["said"] == list(SAID), way
        assert report["usage"] == [True] * len(SAID), way
        assert report.get("counted", 1) > 0, way
