"""Decides whether a block that may be quoted, or framing that may be mentioned, counts or is text, by reading on after
it (R30.3). Both scanners use this module: few blocks are quoted.

Rules of this module:

1. A block in inline code or in a string is text if the code or string ends after it in the same line. An unmatched
   backtick or quotation mark is a slip, and the block a call. At most `WORD_BYTES` are read.
2. A block directly after an apostrophe or a typographic quotation mark is text if the closing mark directly follows.
3. Blocks in a fence without other content are calls if only whitespace, further such blocks and the end of the fence
   follow up to the end of the answer. The fence's lines are removed with them, so its line may contain at most one
   word.
4. A block at the start of a line, in a fence with other content, is a call if the answer ends with it, so that the
   fence is unclosed. If anything follows, including the end of the fence, it is text.
5. Framing that follows words (after the last block, tag or framing) counts if only whitespace and further marks stand
   between it and the end of the answer, a block, a head or a reasoning tag, or for `WORD_BYTES`. Otherwise it is a
   mention. The decision does not wait for a following block to be confirmed.
6. A message's head that follows words is text if a blank, or punctuation that ends a clause, follows.
7. A call without arguments that follows words in its line is text if the sentence goes on: if such punctuation follows,
   or a blank and then a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ._grammar import SPACE, WORD_BYTES, Decision
from ._plan import NAMED

CODE: Final = 1
STRING: Final = 2
MARKS: Final = 3
FENCE: Final = 4
ALONE: Final = 5
FRAMED: Final = 6
HEADS: Final = 7
SENTENCE: Final = 8
"""The kinds of text around a block that may make it a quotation: `CODE`, inline code; `STRING`; `MARKS`, quotation
marks directly around it; `FENCE`, a fence with other content; `ALONE`, a fence of its own. `FRAMED`: words around
framing; `HEADS`: words around a message's head; `SENTENCE`: words before a call without arguments.
"""

GOES_ON: Final = 0
IS_CALL: Final = 1
IS_TEXT: Final = 2
NEXT_BLOCK: Final = 3

LAST_BYTES: Final = b"'" + bytes({mark.encode()[-1] for mark in "“„‘«「"})
"""The last UTF-8 bytes of the apostrophe and of opening quotation marks (rule 2)."""

_INFO_BLANKS: Final = b" \t\r"
"""Blanks around the word in the line of a fence."""

_CLOSING: Final = tuple(mark.encode() for mark in ("'", "”", "“", "’", "»", "」"))
_SPACE: Final = SPACE.encode()
_TICK: Final = ord("`")
_NEWLINE: Final = ord("\n")
_QUOTE: Final = ord('"')
BEHIND_WORDS: Final = b" \t.,;:)"
"""Characters that follow a message's head in a sentence that mentions it: no message begins with them."""
_NO_WORD: Final = b"\r\n<[]|"
"""Characters behind blanks that begin no word: those of line ends and tags."""

# Positions in a fence of its own: inside, in closing backticks, after it, in opening backticks, in their line.
_INSIDE: Final = 0
_CLOSES: Final = 1
_BEHIND: Final = 2
_OPENS: Final = 3
_INFO: Final = 4


def behind_info(data: bytes) -> int:
    """Returns the position of the first non-blank byte after the opening line of a fence; `data` begins after the
    line's backticks. Returns the length of `data` if there is no such byte yet, or -1 if the line contains more than
    one word."""
    rest = data.lstrip(_INFO_BLANKS).lstrip(NAMED).lstrip(_INFO_BLANKS)
    if rest and rest[0] != _NEWLINE:
        return -1
    return len(data) - len(rest.lstrip(_SPACE))


class Read(NamedTuple):
    """A block that was read between two offsets. `judge` returns the call policy's decision."""

    start: int
    end: int
    family: str
    inner: bool
    judge: Callable[[], Decision]


class Surroundings:
    """Reads the text after blocks that may be quoted, byte by byte.

    `kind` says what may quote them (`CODE` to `SENTENCE`), `size` is its number of backticks. `blocks` are those read
    so far. `found` is the result; `NEXT_BLOCK`: the opener number `opener` has been read.
    """

    __slots__ = ("_count", "_openers", "_place", "_word", "blocks", "found", "kind", "opener", "size")

    def __init__(self, kind: int, size: int, openers: tuple[bytes, ...]) -> None:
        self.kind = kind
        self.size = size
        self.blocks: list[Read] = []
        self.found = GOES_ON
        self.opener = 0
        self._openers = openers
        self._place = _INSIDE
        self._word = b""
        self._count = 0

    def begin(self) -> None:
        """Starts after a block, the last one of `blocks`."""
        self.found = GOES_ON
        self._place = _INSIDE
        self._word = b""
        self._count = self._count if self.kind == FRAMED else 0

    def take(self, data: bytes) -> int:
        """Reads the next bytes until something is `found`. Returns their number, without the byte that decided for call
        or text."""
        for at, byte in enumerate(data):
            self._count += 1
            found = self._take(byte) if self._count <= WORD_BYTES else self._too_far()
            if found != GOES_ON:
                self.found = found
                return at + (found == NEXT_BLOCK)
        return len(data)

    def end(self) -> int:
        """Ends the answer and returns the result."""
        if self.kind == CODE:
            return IS_TEXT if len(self._word) == self.size else IS_CALL
        if self.kind in (STRING, MARKS, HEADS, SENTENCE):
            return IS_CALL
        if self.kind == FRAMED:
            return IS_TEXT if self._word else IS_CALL
        closed = self._place == _CLOSES and len(self._word) >= self.size
        whole = closed or (self._place in (_INSIDE, _BEHIND) and not self._word)
        return IS_CALL if whole and self.blocks else IS_TEXT

    def _too_far(self) -> int:
        return IS_CALL if self.kind in (CODE, STRING, FRAMED, SENTENCE) else IS_TEXT

    def _take(self, byte: int) -> int:
        if self.kind == CODE:
            return self._in_code(byte)
        if self.kind == STRING:
            return IS_TEXT if byte == _QUOTE else IS_CALL if byte == _NEWLINE else GOES_ON
        if self.kind == MARKS:
            return self._in_marks(byte)
        if self.kind == HEADS:
            return IS_TEXT if byte in BEHIND_WORDS else IS_CALL
        if self.kind == SENTENCE:
            return self._in_sentence(byte)
        return self._in_fence(byte) if self.kind != FRAMED else self._in_opener(byte)

    def _in_code(self, byte: int) -> int:
        if byte == _TICK:
            self._word += b"`"
            return GOES_ON
        if len(self._word) == self.size:
            return IS_TEXT
        self._word = b""
        return IS_CALL if byte == _NEWLINE else GOES_ON

    def _in_marks(self, byte: int) -> int:
        self._word += bytes((byte,))
        if self._word in _CLOSING:
            return IS_TEXT
        return GOES_ON if any(mark.startswith(self._word) for mark in _CLOSING) else IS_CALL

    def _in_sentence(self, byte: int) -> int:
        if byte in b" \t":
            self._word = b" "
            return GOES_ON
        if self._word:
            return IS_CALL if byte in _NO_WORD else IS_TEXT
        return IS_TEXT if byte in BEHIND_WORDS else IS_CALL

    def _in_fence(self, byte: int) -> int:
        tick = byte == _TICK and self.kind == ALONE
        if self._place == _CLOSES:
            if tick:
                self._word += b"`"
                return GOES_ON
            if len(self._word) < self.size or byte not in _SPACE:
                return IS_TEXT
            self._place, self._word = _BEHIND, b""
            return GOES_ON
        if self._place == _OPENS:
            if tick:
                self._word += b"`"
                return GOES_ON
            self.size = len(self._word)
            self._place, self._word = _INFO, b""
            if self.size < len("```"):
                return IS_TEXT
        if self._place == _INFO:
            return self._in_info(byte)
        if not self._word and tick:
            self._place = _CLOSES if self._place == _INSIDE else _OPENS
            self._word = b"`"
            return GOES_ON
        return self._in_opener(byte)

    def _in_opener(self, byte: int) -> int:
        if not self._word and byte in _SPACE:
            return GOES_ON
        self._word += bytes((byte,))
        for index, opener in enumerate(self._openers):
            if opener == self._word:
                self.opener = index
                return NEXT_BLOCK
        return GOES_ON if any(opener.startswith(self._word) for opener in self._openers) else IS_TEXT

    def _in_info(self, byte: int) -> int:
        if byte == _NEWLINE:
            self._place, self._word = _INSIDE, b""
            return GOES_ON
        if byte in _INFO_BLANKS:
            self._word += b" " if self._word else b""
            return GOES_ON
        ended = self._word.endswith(b" ")
        self._word += bytes((byte,))
        return GOES_ON if byte in NAMED and not ended else IS_TEXT
