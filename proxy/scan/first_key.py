"""How a field begins that is a call only if its first key, or the name of its callee, says so. Both scanners use this
as it is: it is about the first bytes of a field.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from ._grammar import SPACE, BlockSyntax
from ._plan import CODE, JSON, NOTHING, PRINTED, heads

_SPACE: Final = SPACE.encode()


class FirstKey:
    """Reads the beginning of an object, or of the first object of an array; of an untaught syntax, what `printed`
    fields begin with too.

    Behind it, `kind` says how the field goes on. `listed`: it stands in a list. `begun` is what was read of a call.
    """

    __slots__ = ("_heads", "_key", "_syntax", "begun", "kind", "listed")

    def __init__(self, syntax: BlockSyntax, kind: int, names: tuple[str, ...]) -> None:
        """`names` are those that a `printed` call may have."""
        self._syntax = syntax
        self._heads = heads(syntax, names if kind == PRINTED else ())
        self._key = b""
        self.begun = b""
        self.kind = NOTHING
        self.listed = False

    def take(self, byte: int) -> bool | None:
        """The next byte. Whether it ends what is a call, or shows that it is none; None as long as it may be one."""
        if byte in _SPACE and self._key in (b"[", b"{", b"[{"):
            return None
        self._key += bytes((byte,))
        self.listed = self._key.startswith(b"[")
        key = self._key[self.listed :]
        at = bisect_left(self._heads, key)
        if at == len(self._heads) or not self._heads[at].startswith(key):
            return False
        if self._heads[at] != key:
            return None
        if not self._syntax.untaught or (key[:2] == b'{"' and not self.listed):
            self.kind = JSON
        else:
            self.kind = CODE
            self.begun = self._key.removeprefix(b"await ")
        return True
