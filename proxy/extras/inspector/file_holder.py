"""The exchanges in a file of captures, without a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ...registry import Registries
from ..capture.files import CapturedExchange
from .captured_request import latest_notes
from .holders import Counts
from .ring import Changes, Row, make_row
from .view import began


class FileHolder:
    """A `Holder` of the exchanges in a file. `captures` are the parts of the file, each with what was read from it."""

    name = "file"

    def __init__(self, captures: Sequence[tuple[CapturedExchange, bytes]]) -> None:
        self.rows: list[Row] = []
        self._contents: dict[str, bytes] = {}
        for number, (captured, content) in enumerate(captures, 1):
            row = make_row(captured.head, latest_notes(captured), began(captured)) | {"bytes": len(content)}
            ident = str(row["id"] or "opened")
            while ident in self._contents:  # clients choose ids
                ident = f"{ident}-{number}"
            self.rows.append(row | {"id": ident, "exchange_id": ident})
            self._contents[ident] = content

    async def changes(self, since: int, owner: str | None, wait_s: float) -> Changes:
        if since:  # a file does not change
            await asyncio.sleep(wait_s)
        return Changes(1, () if since else tuple(self.rows), (), 0)

    async def file(self, ident: str, owner: str | None) -> bytes | None:
        return self._contents.get(ident)

    async def counts(self) -> Counts:
        return []


def file_setup(rows: Sequence[Row], plugins: Registries) -> dict[str, Any]:
    """Returns the data with which the page begins to show a file with these exchanges. `file` is the id of the only
    one; None for several, which are shown as a list."""
    only = rows[0]["id"] if len(rows) == 1 else None
    formats = plugins.formats.names()
    return {"live": False, "keys": False, "file": only, "routes": [], "formats": formats, "apis": []}
