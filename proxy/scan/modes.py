"""Modes that all readers of nested values share; each reader has further ones."""

from typing import Final

STRING: Final = 5
"""Inside a string."""
WHOLE: Final = 7
"""The value ended at the position that `read` returned."""
WRONG: Final = 8
"""The byte at that position cannot belong to such a value."""
