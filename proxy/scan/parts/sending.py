"""Interface of a scanner to the readers of blocks, for calls that are streamed while they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..live import LiveCalls


class StringSender:
    """Sends text of strings in the arguments of a streamed call that needs no decision (R6.13). Each scanner has its
    own: one finds such text with regular expressions, one in C."""

    __slots__ = ()

    def begin(self) -> None:
        """Starts a field."""
        raise NotImplementedError

    def read_string(self, live: LiveCalls) -> None:
        """Looks which string the call that `live` streams is in now."""
        raise NotImplementedError

    def send(self, buf: bytes, pos: int, end: int) -> bytes:
        """Sends the part of these bytes that is certainly text of the current string. Returns the rest, which the
        call's follower must read."""
        raise NotImplementedError

    def rest(self) -> bytes:
        """Returns the bytes that waited for the next ones, and forgets them."""
        raise NotImplementedError
