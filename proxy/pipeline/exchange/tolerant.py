"""Requests that their reader refuses, read after they were mended (R28.4, `toolwire.protocols.shared.mending`)."""

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
    """The request in a body that `read` has refused, once it is mended as the protocol says; the mended body, and the
    names of what was mended. Raises `ClientFault` if it cannot be read so either."""
    mending = Mending()
    better = mended(body, mending)
    return read(better, dump_in_pieces(better)), better, mending.names
