"""Marks of JSON in a text, counted: the specification of the compiled function of the same name."""

from __future__ import annotations

from collections.abc import Callable

CountMarks = Callable[[bytes], tuple[int, int, int]]
"""`json_marks`, or its compiled twin (`toolwire.fastparse`), which counts all of them in one pass."""


def json_marks(text: bytes) -> tuple[int, int, int]:
    """Returns how many opening brackets, commas and quotes `text` has, those in strings included."""
    return text.count(b"[") + text.count(b"{"), text.count(b","), text.count(b'"')
