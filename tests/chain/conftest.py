"""Server-side tools without processes: what is tested here is the chain around them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.config import ToolsConfig
from proxy.servertools.definition import Declared
from proxy.servertools.source import Result
from proxy.servertools.worker.answers import raised, said
from proxy.servertools.worker.sources import Snapshot


class Here:
    """In the place of `Pool` and of its generations: handlers run where they are called, one after the other."""

    def __init__(self, config: ToolsConfig) -> None:
        self._config = config

    def generation(self, snapshot: Snapshot) -> Here:
        self._folder = Path(snapshot.folder)
        return self

    def retire(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def declare(self, name: str, text: bytes) -> Declared:
        module: dict[str, Any] = {"__name__": name, "__file__": str(self._folder / name)}
        exec(text, module)
        return Declared(module["TOOLS"], partial(self._call, module["handle_tool_call"]))

    async def _call(self, handler: Any, tool: str, values: dict[str, Any], limit_s: float, left_s: float) -> Result:
        try:
            answer = said(handler(tool, values), self._config.on_oversize)
        except Exception as error:
            answer = raised(error)
        return Result(answer.text, failed=answer.failed)


@pytest.fixture(autouse=True)
def tools_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.servertools.folder.Pool", Here)
