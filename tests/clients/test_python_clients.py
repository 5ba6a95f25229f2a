"""Libraries in Python, each by one process, because to import one takes seconds: LangChain, pydantic-ai and LiteLLM do
the whole task over Messages, and LangChain a second one with the tools that clients run themselves (R28.5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.clients.pip import run
from tests.clients.task import ASK, CALLS, FINAL, GIVEN, MODES, SAID, script, turn
from tests.clients.test_client_tools import OF_ANTHROPIC, OF_OPENAI
from tests.e2e.conftest import Gateway

WAYS = list(product((False, True), MODES))
OWN_TOOLS = {
    "openai": [
        ("apply_patch", OF_OPENAI[2][1]),
        ("computer", {"actions": [{"type": "click", "x": 3, "y": 4, "button": "left"}, {"type": "screenshot"}]}),
    ],
    "anthropic": OF_ANTHROPIC[:3],
}


async def tasks(gateway: Gateway) -> list[dict[str, Any]]:
    """The task in each of the ways, at a gateway of its own."""
    made = []
    for streamed, mode in WAYS:
        server = await gateway(script=script(mode), mode=mode)
        url = str(server.make_url("/")).rstrip("/")
        made.append({"do": "task", "url": url, "ask": ASK, "files": GIVEN, "streamed": streamed})
    return made


async def reports(client: str, given: Sequence[Any], shared: Path) -> list[dict[str, Any]]:
    """Returns what the script of a library prints about each task."""
    nowhere = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    status, out, err = await run(client, json.dumps(given), shared, **nowhere)
    assert status == 0, f"{out}{err}"
    said = [json.loads(line) for line in out.splitlines() if line.startswith('{"calls"')]
    assert len(said) == len(given), out
    return said


def check_task(way: tuple[bool, str], report: dict[str, Any]) -> None:
    assert (report["calls"], report["files"]) == (CALLS, FINAL), way
    assert report["said"] == list(SAID), way
    assert report["usage"] == [True] * len(SAID), way
    assert report.get("counted", 1) > 0, way


@pytest.mark.parametrize(
    "client", ["libraries/pydantic_ai_task.py", "litellm/litellm_task.py"], ids=["pydantic-ai", "litellm"]
)
async def test_the_task(gateway: Gateway, shared: Path, client: str) -> None:
    for way, report in zip(WAYS, await reports(client, await tasks(gateway), shared), strict=True):
        check_task(way, report)


async def test_the_task_and_the_tools_of_both_in_langchain(gateway: Gateway, shared: Path) -> None:
    given = await tasks(gateway)
    own = list(product(OWN_TOOLS, WAYS))
    for api, (streamed, mode) in own:
        server = await gateway(
            script=[*(turn(mode, "", call) for call in OWN_TOOLS[api]), {"text": "Done."}], mode=mode
        )
        url = str(server.make_url("/")).rstrip("/")
        given.append({"do": f"tools of {api}", "url": url, "streamed": streamed})
    said = await reports("libraries/langchain_task.py", given, shared)
    for way, report in zip(WAYS, said, strict=False):
        check_task(way, report)
    for (api, way), report in zip(own, said[len(WAYS) :], strict=True):
        assert report["text"].strip() == "Done.", (api, way)
        if api == "anthropic":
            assert report["calls"] == [list(call) for call in OWN_TOOLS[api]], way
        else:
            (_, patch), (_, computer) = OWN_TOOLS[api]
            assert report["calls"] == [["apply_patch_call", patch], ["computer_call", computer["actions"]]], way
