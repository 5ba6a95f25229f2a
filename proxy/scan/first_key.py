"""The beginning of a field that is a call only if it has a certain first key or callee. Both scanners use this module:
it reads only the first bytes of a field."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from ._grammar import SPACE, WORD_BYTES, BlockSyntax
from ._plan import CODE, JSON, NOTHING, PRINTED, heads

_SPACE: Final = SPACE.encode()
_QUOTED: Final = (b'{"', b"{'")
_SCALAR: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-."
_COMMA: Final = ord(",")
_COLON: Final = ord(":")
_BACKSLASH: Final = ord("\\")
THOUGHTS: Final = ("thought", "thoughts", "reasoning", "reasoning_content", "explanation")
"""The keys of reasoning beside a call, which no call needs."""
CONTENT: Final = "content"
"""The key of text beside the calls of a message."""
ROLE: Final = "role"
"""The key with which a whole message of the assistant begins."""
_THOUGHTS: Final = tuple(key.encode() for key in (*THOUGHTS, CONTENT))
_ROLE: Final = ROLE.encode()
_THOUGHT_BYTES: Final = 4096
"""Maximum length of a thought after which the next key decides."""

# States of `FirstName`.
_AFTER_KEY: Final = 0
_VALUE: Final = 1
_STRING: Final = 2
_SCALAR_ENDS: Final = 3
_AFTER_VALUE: Final = 4
_KEY: Final = 5
_IN_KEY: Final = 6


class FirstName:
    """Reads the members after an object's first key, as long as they are strings and other scalars. An object whose
    name is not a tool's name is not a call, so it need not be held back to its end (R30.7); neither is one in which a
    key that no call begins with follows a thought, and a message of another role. `may_call` checks a name.
    """

    __slots__ = ("_escaped", "_firsts", "_key", "_may_call", "_names", "_quote", "_read", "_size", "_value")

    def __init__(self, key: bytes, syntax: BlockSyntax, quote: int, may_call: Callable[[str], bool]) -> None:
        self._names = tuple(name.encode() for name in syntax.names)
        self._firsts = tuple(first.encode() for first in syntax.first_keys)
        self._quote = quote
        self._may_call = may_call
        self._key = key
        self._value = b""
        self._read = _AFTER_KEY
        self._size = 0
        self._escaped = False

    def take(self, byte: int) -> bool | None:
        """Takes the next byte. Returns False if this is not a call, True if nothing more can be decided (the byte must
        be read again), None to continue."""
        self._size += 1
        read = self._read
        thought = read == _STRING and self._key in _THOUGHTS
        if self._size > (_THOUGHT_BYTES if thought else WORD_BYTES):
            return True
        if read in (_STRING, _IN_KEY):
            if self._escaped or (thought and byte == _BACKSLASH):
                self._escaped = not self._escaped
                return None
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
            after, self._key = self._key, self._value
            self._read = _AFTER_KEY
            return False if after in _THOUGHTS and self._key not in self._firsts else None
        self._read = _AFTER_VALUE
        if self._key in _THOUGHTS:
            self._size = 0
        if self._key == _ROLE:
            return None if self._value == b"assistant" else False
        return None if self._key not in self._names else self._may_call(self._value.decode("utf-8", "replace"))


class FirstKey:
    """Reads the beginning of an object, or of the first object of an array; for untaught syntaxes also the other
    beginnings of `printed` fields.

    Afterwards `kind` says how to read the rest. `listed`: it is in a list. `begun` is the text read so far, without the
    last byte if that must be read `again`.
    """

    __slots__ = ("_heads", "_key", "_may_call", "_name", "_syntax", "again", "begun", "kind", "listed")

    def __init__(
        self, syntax: BlockSyntax, kind: int, names: tuple[str, ...], may_call: Callable[[str, bool], bool] | None
    ) -> None:
        """`names` are the possible names of a `printed` call. `may_call` checks the name of an object that has one
        (None: any name)."""
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
        """Takes the next byte. Returns True if this may be a call, False if not, None if undecided."""
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
        if may_call is None or key[:2] not in _QUOTED or not self._syntax.names:
            return True
        untaught = self._syntax.untaught
        self._name = FirstName(key[2:-1], self._syntax, key[-1], lambda name: may_call(name, untaught))
        return None
