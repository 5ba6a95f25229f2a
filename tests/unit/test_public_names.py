"""The public names: one object under each, in `proxy` and in `toolwire`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import toolwire
import toolwire.events
import toolwire.model
import toolwire.openai_types

ROOT = Path(__file__).parents[2]


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ToolCallAccumulator'"):
        toolwire.ToolCallAccumulator  # type: ignore[attr-defined]  # noqa: B018


def test_all_public_names_are_there_and_those_that_the_gateway_uses() -> None:
    assert dir(toolwire) == sorted(toolwire.__all__)
    for name in toolwire.__all__:
        for module in (toolwire.events, toolwire.model):
            assert getattr(toolwire, name) is getattr(module, name, getattr(toolwire, name)), name


def test_nothing_is_loaded_before_it_is_used() -> None:
    program = (
        "import sys, toolwire; print(sorted(n for n in sys.modules if n.split('.')[0] in ('toolwire', 'aiohttp')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "['toolwire', 'toolwire._version']"
