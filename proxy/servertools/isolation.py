"""Where tool modules run, whichever it is: worker processes (`pool`), or threads of the gateway (`threaded`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .definition import Handler
from .worker.sources import Snapshot


@dataclass(frozen=True, slots=True)
class Declared:
    """What a module has: `TOOLS`, unchecked, and what runs calls of them."""

    tools: Any
    handler: Handler | None


class Generation(Protocol):
    """The modules of a folder as it was at one moment. Of several generations each runs its own."""

    async def declare(self, name: str, text: bytes) -> Declared:
        """Run the module in the file `name`. Raises `ToolModuleError` for whatever goes wrong in it, or takes too
        long; `NotTried` if it could not be run."""

    def retire(self) -> None:
        """None of its tools is on offer any more. Calls that were made before are still run."""


class Isolation(Protocol):
    """Runs modules."""

    def generation(self, snapshot: Snapshot) -> Generation:
        """A new one, in which nothing has run yet."""

    def shown(self) -> dict[str, Any]:
        """Bounds, and how many calls run, for `GET /admin/tools`."""

    async def close(self) -> None:
        """End everything."""
