"""Marks of tests of the embedded model, which is the fixture `engine`."""

from __future__ import annotations

import importlib.util

import pytest

from toolwire.extras.demo.engine import ENGINE_PACKAGE, INSTALL_ENGINE, INSTALL_WEIGHTS, WEIGHTS_PACKAGE

MISSING = [name for name in (ENGINE_PACKAGE, WEIGHTS_PACKAGE) if importlib.util.find_spec(name) is None]
with_model = [
    pytest.mark.model,
    pytest.mark.skipif(
        bool(MISSING), reason=f"{', '.join(MISSING)} not installed: {INSTALL_ENGINE} && {INSTALL_WEIGHTS}"
    ),
]
in_one_loop = pytest.mark.asyncio(loop_scope="module")  # the model is loaded once
