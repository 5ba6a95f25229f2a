"""Requests that their reader refuses, read after they were mended (R28.4, `proxy.protocols.mending`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import ClientFault
from ..model import ModelRequest
from ..protocols.mending import Mending
from ..protocols.wire import dump_in_pieces

Body = Mapping[str, Any]
Mend = Callable[[Body, Mending], Body]


def read_tolerantly(
    read: Callable[[Body, bytes], ModelRequest], mended: Mend | None, body: Body, raw: bytes
) -> tuple[ModelRequest, Body, Iterable[str]]:
    """The request in `body`, the parsed JSON of `raw`; the body that it was read from, and the names of what was mended
    in that. `mended` is that of the protocol; None: nothing is mended. Raises `ClientFault` if it cannot be read."""
    try:
        return read(body, raw), body, ()
    except ClientFault:
        if mended is None:
            raise
        mending = Mending()
        better = mended(body, mending)
        return read(better, dump_in_pieces(better)), better, mending.told
