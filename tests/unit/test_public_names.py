"""The public names: one object under each, in `proxy` and in `toolwire`, and the classes that middlewares really
get."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import toolwire
import toolwire.events
import toolwire.model
import toolwire.openai_types
from tests.cases import every
from toolwire import Delta, Event, Exchange, Kind, Message, Middleware, ModelRequest, ToolChoice, run_chain

ROOT = Path(__file__).parents[2]


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ToolCallAccumulator'"):
        toolwire.ToolCallAccumulator  # type: ignore[attr-defined]  # noqa: B018


def test_all_public_names_are_there() -> None:
    assert all(hasattr(toolwire, name) for name in toolwire.__all__)
    assert dir(toolwire) == sorted(toolwire.__all__)


@every("name", [name for name in toolwire.__all__ if hasattr(toolwire.events, name)])
def test_events_are_those_of_the_event_algebra(name: str) -> None:
    assert getattr(toolwire, name) is getattr(toolwire.events, name)


@every("name", ["Message", "Usage", "ToolChoice", "ToolResult", "ModelRequest"])
def test_values_are_those_of_the_model(name: str) -> None:
    assert getattr(toolwire, name) is getattr(toolwire.model, name)


class Seeing(Middleware):
    """Notes what it gets."""

    wants = Kind.ALL
    got: list[object]

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        self.got = [request.tool_choice, *request.messages]
        return request

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        self.got.append(event)
        return event


async def test_what_a_middleware_gets_is_what_it_imports() -> None:
    seeing = Seeing()
    await run_chain([seeing], {"messages": [{"role": "user", "content": "hi"}], "stream": True}, replies=["hello"])
    assert any(isinstance(value, Delta) and value.text for value in seeing.got)
    assert any(isinstance(value, Message) for value in seeing.got)
    assert any(isinstance(value, ToolChoice) for value in seeing.got)


def test_nothing_is_loaded_before_it_is_used() -> None:
    program = (
        "import sys, toolwire; print(sorted(n for n in sys.modules if n.split('.')[0] in ('toolwire', 'aiohttp')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "['toolwire', 'toolwire._version']"
