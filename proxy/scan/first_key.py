"""How a field begins that is a call only if its first key, or the name of its callee, says so. Both scanners use this
as it is: it is about the first bytes of a field.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from toolwire.scan._grammar import SPACE, WORD_BYTES, BlockSyntax
from toolwire.scan._plan import CODE, JSON, NOTHING, PRINTED, heads

_SPACE: Final = SPACE.encode()
_SCALAR: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-."
_COMMA: Final = ord(",")
_COLON: Final = ord(":")
_BACKSLASH: Final = ord("\\")

# What `FirstName` waits for.
_AFTER_KEY: Final = 0
_VALUE: Final = 1
_STRING: Final = 2
_SCALAR_ENDS: Final = 3
_AFTER_VALUE: Final = 4
_KEY: Final = 5
_IN_KEY: Final = 6


class FirstName:
    """Reads the members of an object behind its first key, as long as they are strings and other scalars: an object
    that gives itself a name which no tool has is no call, and need not wait for its end (R30.7). `may_call` says
    whether a call may have a name."""

    __slots__ = ("_key", "_may_call", "_names", "_quote", "_read", "_size", "_value")

    def __init__(self, key: bytes, names: tuple[str, ...], quote: int, may_call: Callable[[str], bool]) -> None:
        self._names = tuple(name.encode() for name in names)
        self._quote = quote
        self._may_call = may_call
        self._key = key
        self._value = b""
        self._read = _AFTER_KEY
        self._size = 0

    def take(self, byte: int) -> bool | None:
        """The next byte. False if it shows that this is no call; True if nothing more is looked at, from this byte on;
        else None."""
        self._size += 1
        if self._size > WORD_BYTES:
            return True
        read = self._read
        if read in (_STRING, _IN_KEY):
            if byte == _BACKSLASH:
                return True
            if byte == self._quote:
                return self._string_ended()
            self._value += bytes((byte,))
            return None
        if read == _SCALAR_ENDS and byte in _SCALAR:
            return None
        if byte in _SPACE:
            self._read = _AFTER_VALUE if read == _SCALAR_ENDS else read
            return None
        if read == _AFTER_KEY and byte == _COLON:
            self._read = _VALUE
        elif read in (_AFTER_VALUE, _SCALAR_ENDS) and byte == _COMMA:
            self._read = _KEY
        elif read in (_VALUE, _KEY) and byte == self._quote:
            self._read = _STRING if read == _VALUE else _IN_KEY
            self._value = b""
        elif read == _VALUE and byte in _SCALAR:
            self._read = _SCALAR_ENDS
        else:
            return True
        return None

    def _string_ended(self) -> bool | None:
        if self._read == _IN_KEY:
            self._key = self._value
            self._read = _AFTER_KEY
            return None
        self._read = _AFTER_VALUE
        return None if self._key not in self._names else self._may_call(self._value.decode("utf-8", "replace"))


class FirstKey:
    """Reads the beginning of an object, or of the first object of an array; of an untaught syntax, what `printed`
    fields begin with too.

    Behind it, `kind` says how the field goes on. `listed`: it stands in a list. `begun` is what was read of it, without
    the last byte taken if that is to be read `again`.
    """

    __slots__ = ("_heads", "_key", "_may_call", "_name", "_syntax", "again", "begun", "kind", "listed")

    def __init__(
        self, syntax: BlockSyntax, kind: int, names: tuple[str, ...], may_call: Callable[[str, bool], bool] | None
    ) -> None:
        """`names` are those that a `printed` call may have; `may_call` says whether an object that names itself may be
        a call; None: whatever its name is."""
        self._syntax = syntax
        self._heads = heads(syntax, names if kind == PRINTED else ())
        self._may_call = may_call
        self._key = b""
        self._name: FirstName | None = None
        self.again = False
        self.begun = b""
        self.kind = NOTHING
        self.listed = False

    def take(self, byte: int) -> bool | None:
        """The next byte. Whether it ends what may be a call, or shows that it is none; None as long as that cannot be
        said."""
        if self._name is not None:
            found = self._name.take(byte)
            if found is None:
                self.begun += bytes((byte,))
            self.again = found is True
            return found
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
        self.begun = self._key.removeprefix(b"await ")
        self.kind = JSON if not self._syntax.untaught or (key[:2] == b'{"' and not self.listed) else CODE
        may_call = self._may_call
        if may_call is None or key[:1] != b"{" or not self._syntax.names:
            return True
        untaught = self._syntax.untaught
        self._name = FirstName(key[2:-1], self._syntax.names, key[-1], lambda name: may_call(name, untaught))
        return None
