"""What a reader of a nested value is at, for whoever asks it: the numbers are the same in every reader, besides which
each has its own."""

from typing import Final

STRING: Final = 5
"""It is inside a string."""
WHOLE: Final = 7
"""The value has ended, at the position that `read` gave."""
WRONG: Final = 8
"""It is no such value, as the byte at that position says."""
