"""Requests that their reader refuses: mended and read again (R28.4, `toolwire.protocols.shared.mending`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...model import ModelRequest
from ...protocols.shared.mending import Mending
from ...protocols.shared.wire import dump_in_pieces

Body = Mapping[str, Any]
Mend = Callable[[Body, Mending], Body]


def read_mended(
    read: Callable[[Body, bytes], ModelRequest], mended: Mend, body: Body
) -> tuple[ModelRequest, Body, Iterable[str]]:
    """Mends a body that `read` has refused. Returns the request, the mended body, and the names of the mended faults.
    Raises `ClientFault` if the mended body cannot be read either."""
    mending = Mending()
    better = mended(body, mending)
    return read(better, dump_in_pieces(better)), better, mending.names
