"""Every test that takes `twin` runs on both implementations; its id says which, and it has the mark `twin`: what it
tests does not depend on which of them is in use."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from types import ModuleType
from typing import TypeVar

import pytest

MODULES = {"compiled": "toolwire._fastparse", "python": "toolwire.scan._pyparse"}

T = TypeVar("T")


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.twin) for name in MODULES], scope="session")
def twin(request: pytest.FixtureRequest) -> ModuleType:
    """The module of one implementation: `CallScanner` and `SseFramer`."""
    return load(request.param)


def load(implementation: str) -> ModuleType:
    """The module of that implementation. Only `TOOLWIRE_NO_EXTENSIONS=1` excuses the absence of the compiled one."""
    if implementation == "compiled" and os.environ.get("TOOLWIRE_NO_EXTENSIONS"):
        pytest.skip("TOOLWIRE_NO_EXTENSIONS is set")
    return importlib.import_module(MODULES[implementation])


def some(twin: ModuleType, cases: Iterable[T], step: int = 13) -> list[T]:
    """All cases for the compiled scanner. For the Python one, which gives the same events by law (`test_laws.py`) and
    takes most of the time, one in `step`; all where it is the only one."""
    thinned = twin.__name__ == MODULES["python"] and not os.environ.get("TOOLWIRE_NO_EXTENSIONS")
    return list(cases)[:: step if thinned else 1]
