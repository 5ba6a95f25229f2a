"""Chooses between the compiled scanner and its Python twin.

`IMPLEMENTATION` names the one in use. The compiled one is used if it was built; `TOOLWIRE_NO_EXTENSIONS=1` disables it
at run time (and at build time, see `setup.py`). Type checkers see the Python twin, so no stub can get out of date.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from .scan._grammar import FrameTooLarge

IMPLEMENTATION: Literal["compiled", "python"]

if TYPE_CHECKING or os.environ.get("TOOLWIRE_NO_EXTENSIONS"):
    from .scan._pychunk import ChunkGate
    from .scan._pyguard import SecretGuard
    from .scan._pyoutline import (
        array_start,
        bytes_of,
        common_length,
        has_duplicates,
        item_ends,
        json_marks,
        same_items,
        with_own_texts,
    )
    from .scan._pyparse import CallScanner, SseFramer, plain_length

    IMPLEMENTATION = "python"
else:
    try:
        from ._fastparse import (
            CallScanner,
            ChunkGate,
            SecretGuard,
            SseFramer,
            array_start,
            bytes_of,
            common_length,
            has_duplicates,
            item_ends,
            json_marks,
            plain_length,
            same_items,
            with_own_texts,
        )
    except ModuleNotFoundError:  # not built; one that was built and does not load must fail loudly
        from .scan._pychunk import ChunkGate
        from .scan._pyguard import SecretGuard
        from .scan._pyoutline import (
            array_start,
            bytes_of,
            common_length,
            has_duplicates,
            item_ends,
            json_marks,
            same_items,
            with_own_texts,
        )
        from .scan._pyparse import CallScanner, SseFramer, plain_length

        IMPLEMENTATION = "python"
    else:
        IMPLEMENTATION = "compiled"

__all__ = [
    "IMPLEMENTATION",
    "CallScanner",
    "ChunkGate",
    "FrameTooLarge",
    "SecretGuard",
    "SseFramer",
    "array_start",
    "bytes_of",
    "common_length",
    "has_duplicates",
    "item_ends",
    "json_marks",
    "plain_length",
    "same_items",
    "with_own_texts",
]
