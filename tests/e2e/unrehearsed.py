"""The command line without the rehearsal at the start, which takes a third of a second of each process and at each
reload: `python -m tests.e2e.unrehearsed serve`. The rehearsal has tests of its own (`tests/unit/test_rehearsal.py`)."""

from __future__ import annotations

from typing import Any

from toolwire.cli import main
from toolwire.server import rehearsal


async def nothing(*_: Any) -> None:
    """In the place of `rehearse`."""


if __name__ == "__main__":
    rehearsal.rehearse = nothing  # type: ignore[assignment]
    main(prog_name="toolwire")
