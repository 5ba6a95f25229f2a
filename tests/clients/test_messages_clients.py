"""Libraries in Python over Messages, in their Anthropic modes: LangChain, pydantic-ai and LiteLLM do the whole task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.pip import run
from tests.clients.task import ASK, CALLS, FINAL, GIVEN, MODES, SAID, script
from tests.e2e.conftest import Gateway

SCRIPTS = ("anthropic_modes/langchain_task.py", "anthropic_modes/pydantic_ai_task.py", "litellm_mode/litellm_task.py")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", SCRIPTS, ids=["langchain", "pydantic-ai", "litellm"])
async def test_the_task(gateway: Gateway, shared: Path, client: str, streamed: bool, mode: str) -> None:
    server = await gateway(script=script(mode), mode=mode)
    task = {"url": str(server.make_url("/")).rstrip("/"), "ask": ASK, "files": GIVEN, "streamed": streamed}
    nowhere = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    status, out, err = await run(client, json.dumps(task), shared, **nowhere)
    assert status == 0, err
    report = json.loads(out.splitlines()[-1])
    assert (report["calls"], report["files"]) == (CALLS, FINAL)
    assert report["said"] == list(SAID)
    assert report["usage"] == [True] * len(SAID)
    assert report.get("counted", 1) > 0
