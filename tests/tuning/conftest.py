"""A model server by rule, on a socket of its own: what it answers is a function of what it is asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proxy.testing import Answer, Asked, Refuse, Say, Upstream
from tests.waiting import GUARD_S

Rule = Callable[[dict[str, Any]], str | int]
"""From the body of a request to a text, or the status of a refusal."""


class ModelServer:
    """Runs in a thread, since the command has an event loop of its own. `/v1/models` lists `m` and `n`."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.upstream = Upstream([self._answer])

    def __enter__(self) -> ModelServer:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.upstream.__aenter__(), self._loop).result(GUARD_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.upstream.__aexit__(), self._loop).result(GUARD_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GUARD_S)
        self._loop.close()

    @property
    def url(self) -> str:
        return self.upstream.url

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What it was asked."""
        return [asked.json for asked in self.upstream.requests if asked.method == "POST"]

    def _answer(self, asked: Asked) -> Answer:
        said = self._rule(asked.json)
        if isinstance(said, int):
            return Refuse(said, "it burns")
        return Say(said, usage=(len(asked.body) // 4, len(said) // 4))(asked)


@pytest.fixture
def model_server() -> Iterator[Callable[[Rule], ModelServer]]:
    """Start one: `model_server(lambda body: "Hello")`."""
    running: list[ModelServer] = []

    def start(rule: Rule) -> ModelServer:
        running.append(ModelServer(rule).__enter__())
        return running[-1]

    yield start
    for server in running:
        server.__exit__()


def prompt_of(body: dict[str, Any]) -> str:
    """Everything that a model was told."""
    return "\n".join(str(message["content"]) for message in body["messages"])
