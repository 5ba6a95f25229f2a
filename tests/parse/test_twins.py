"""The compiled scanner is there, is the one in use, and shows the same face as its twin."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from tests.cases import every
from tests.parse.conftest import load
from toolwire import fastparse
from toolwire.scan import _pychunk, _pyguard, _pyparse

FOUND: dict[type, tuple[str, ...]] = {_pyguard.SecretGuard: ("found",)}
"""Attributes that only an instance has in Python."""


def test_the_compiled_scanner_is_in_use() -> None:
    """Fails where it was not built; only TOOLWIRE_NO_EXTENSIONS=1 excuses that."""
    if os.environ.get("TOOLWIRE_NO_EXTENSIONS"):
        assert fastparse.IMPLEMENTATION == "python"
        assert fastparse.CallScanner is _pyparse.CallScanner
    else:
        compiled = load("compiled")
        assert fastparse.IMPLEMENTATION == "compiled"
        assert fastparse.CallScanner is compiled.CallScanner
        assert fastparse.SseFramer is compiled.SseFramer
        assert fastparse.ChunkGate is compiled.ChunkGate
        assert not compiled.__file__.endswith((".py", ".pyx"))


def test_the_environment_turns_it_off() -> None:
    code = "from toolwire import fastparse; print(fastparse.IMPLEMENTATION, fastparse.CallScanner.__module__)"
    environment = {**os.environ, "TOOLWIRE_NO_EXTENSIONS": "1"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["python", "toolwire.scan._pyparse"]


def test_scanning_needs_neither_aiohttp_nor_asyncio() -> None:
    code = """
import sys, proxy
scanner = proxy.open_scanner(tools=["f"])
events = scanner.feed('<tool_call>{"name":"f"}</tool_call>') + scanner.finish()
print(len(events), [name for name in ("aiohttp", "asyncio") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "3 []"


@every("python", [_pyparse.CallScanner, _pyparse.SseFramer, _pychunk.ChunkGate, _pyguard.SecretGuard])
def test_names_docstrings_and_signatures_are_the_same(python: type) -> None:
    compiled = getattr(load("compiled"), python.__name__)
    public = {member for member in dir(python) if not member.startswith("_")}
    assert {member for member in dir(compiled) if not member.startswith("_")} == public | {*FOUND.get(python, ())}
    assert inspect.getdoc(compiled) == inspect.getdoc(python)
    for member in public:
        ours, theirs = getattr(python, member), getattr(compiled, member)
        assert inspect.getdoc(theirs) == inspect.getdoc(ours)
        if callable(ours):
            shape = [(p.name, p.kind, p.default) for p in inspect.signature(ours).parameters.values()]
            assert shape == [(p.name, p.kind, p.default) for p in inspect.signature(theirs).parameters.values()]


def test_the_constructors_take_the_same() -> None:
    """A compiled constructor has no signature to look at, so it is called: every argument, and one too many."""
    from tests.parse.policies import WordPolicy
    from tests.parse.texts import GRAMMARS

    parameters = list(inspect.signature(_pyparse.CallScanner).parameters.values())
    options = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    assert [p.name for p in parameters if p.name not in options] == ["grammar", "policy"]
    compiled = load("compiled")
    compiled.CallScanner(GRAMMARS["sentinel"], WordPolicy(), **options)
    with pytest.raises(TypeError):
        compiled.CallScanner(GRAMMARS["sentinel"], WordPolicy(), **options, more=1)
    with pytest.raises(TypeError):
        compiled.CallScanner(GRAMMARS["sentinel"], WordPolicy(), *options.values())
    assert [p.name for p in inspect.signature(_pyparse.SseFramer).parameters.values()] == ["frame_bytes"]
    compiled.SseFramer(frame_bytes=1)
