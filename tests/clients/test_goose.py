"""Goose, set up by the lines of its page, does the whole task over Chat and Messages."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients import setup_pages
from tests.clients.pip import run
from tests.clients.task import ASK, CALLS, FINAL, GIVEN, MODES, SAID, script
from tests.e2e.conftest import Gateway


async def test_the_task(gateway: Gateway, shared: Path) -> None:
    tasks = []
    for streamed in (False, True):
        for mode in MODES:
            server = await gateway(script=script(mode), mode=mode)
            setup = setup_pages.python("goose", server)
            tasks.append({"setup": setup, "ask": ASK, "files": GIVEN, "streamed": streamed})
    status, out, err = await run("goose/goose_task.py", json.dumps(tasks), shared)
    assert status == 0, f"{out}{err}"
    reports = [json.loads(line) for line in out.splitlines()]
    assert len(reports) == 2 * len(tasks)
    for report in reports:
        assert (report["calls"], report["files"]) == (CALLS, FINAL)
        assert report["said"] == list(SAID)
        assert report["usage"] == [True] * len(SAID)
