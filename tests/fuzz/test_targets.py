"""Every fuzz target for a moment, with the same bytes each time; a long run is `python -m tests.fuzz.run`."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.targets import TARGETS

RUNS = {"scanner": 60, "stream_paths": 50, "formats": 60, "relay": 100, "readers": 100}
"""Of the slower ones, and of those whose laws are other tests' as well."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run(name: str) -> None:
    rng = random.Random(name)
    for _ in range(RUNS.get(name, 250)):
        data = rng.randbytes(rng.randint(0, 160))
        try:
            TARGETS[name](data)
        except Exception as error:
            error.add_note(f"{name}({data!r})")
            raise
