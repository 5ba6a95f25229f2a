"""Numbers by which the readers of a block tell each other what they found. Compiled, each of them keeps these as C
integers, which no other module can import."""

from typing import Final

STRING: Final = 5
"""Mode of a nested value: inside a string. Each reader of such values has further modes."""
WHOLE: Final = 7
"""Mode of a nested value: it ended at the position that `read` returned."""
WRONG: Final = 8
"""Mode of a nested value: the byte at the position that `read` returned cannot belong to it."""

GOES_ON: Final = 0
BY_ITSELF: Final = 1
AT_BRANCH: Final = 2
NO_KEY: Final = 3
NO_FIELD: Final = 4
NO_CALL: Final = 5
"""The result of reading a field: `GOES_ON`, not finished; `BY_ITSELF`, ended by its own syntax; `AT_BRANCH`, ended
before the literal of a branch. `NO_KEY`, `NO_FIELD`, `NO_CALL`: the text is not such a field, because of its first key,
a byte in it, or the first callee's name."""

OPEN: Final = 0
WHOLE_BLOCK: Final = 1
FRAMING: Final = 2
UNFINISHED: Final = 3
NO_BLOCK: Final = 4
"""The outcome of a block: `OPEN`, not finished; `WHOLE_BLOCK`, finished; `FRAMING`, finished without fields;
`UNFINISHED`, without an end; `NO_BLOCK`, not a block."""
