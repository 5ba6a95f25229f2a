"""Searching in bytes: what C has a function of its own for. With C types the same stands in `search.pxd`, and what is
compiled calls that."""


def find(buf: bytes, byte: int, pos: int, end: int) -> int:
    """Where the first such byte stands from `pos` on, `end` if none does before."""
    at = buf.find(byte, pos, end)
    return end if at < 0 else at
