"""Modes that all readers of nested values share; each reader has further ones."""

from typing import Final

STRING: Final = 5
"""Mode: the reader is inside a string."""
WHOLE: Final = 7
"""Mode: the value ended at the position that `read` returned."""
WRONG: Final = 8
"""Mode: the byte at the position that `read` returned cannot belong to such a value."""
