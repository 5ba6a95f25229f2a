"""Server-side tools without processes: what is tested here is the chain around them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolwire.config import ToolsConfig
from toolwire.servertools.definition import ModuleContents
from toolwire.servertools.source import Result
from toolwire.servertools.worker.answers import answer_for_error, answer_for_value
from toolwire.servertools.worker.sources import FolderSnapshot


class HerePool:
    """In the place of `WorkerPool`: it has no workers."""

    def __init__(self, config: ToolsConfig) -> None:
        self.config = config

    async def close(self) -> None:
        pass


class HereGeneration:
    """In the place of `ModuleGeneration`: handlers run where they are called, one after the other."""

    def __init__(self, pool: HerePool, snapshot: FolderSnapshot) -> None:
        self._config = pool.config
        self._folder = Path(snapshot.folder)

    def retire(self) -> None:
        pass

    async def declare(self, name: str, text: bytes) -> ModuleContents:
        module: dict[str, Any] = {"__name__": name, "__file__": str(self._folder / name)}
        exec(text, module)
        return ModuleContents(module["TOOLS"], partial(self._call, module["handle_tool_call"]))

    async def _call(self, handler: Any, tool: str, values: dict[str, Any], limit_s: float, left_s: float) -> Result:
        try:
            answer = answer_for_value(handler(tool, values), self._config.on_oversize)
        except Exception as error:
            answer = answer_for_error(error)
        return Result(answer.text, failed=answer.failed)


@pytest.fixture(autouse=True)
def tools_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.servertools.folder.WorkerPool", HerePool)
    monkeypatch.setattr("toolwire.servertools.folder.ModuleGeneration", HereGeneration)
