"""Byte search. `search.pxd` has the same with C types for the compiled scanner."""


def find(buf: bytes, byte: int, pos: int, end: int) -> int:
    """Returns the position of the first `byte` between `pos` and `end`, or `end`."""
    at = buf.find(byte, pos, end)
    return end if at < 0 else at
