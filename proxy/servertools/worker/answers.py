"""Whatever a handler gives or raises, as a text for the model (R15.5). May run the handler's code as well (`__str__` of
an exception), so this is done where the handler runs."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Final, Literal

MAX_RESULT_CHARS: Final = 1000
NO_TEXT: Final = "Error: Tool must return string"
NO_MEMORY: Final = "Error: Tool needs more memory than it may have"

OnOversize = Literal["cut", "error"]


@dataclass(frozen=True, slots=True)
class Answer:
    """`failed` if `text` is an error."""

    text: str
    failed: bool


def said(value: object, on_oversize: OnOversize) -> Answer:
    """What a handler gave."""
    if not isinstance(value, str):
        if inspect.iscoroutine(value):
            value.close()  # from a handler that is no coroutine function: nobody awaits it
        return Answer(NO_TEXT, True)
    # The methods of `str` itself: a subclass may have its own.
    length = str.__len__(value)
    if length > MAX_RESULT_CHARS and on_oversize == "error":
        return Answer(f"Error: Tool result has {length} characters, the most is {MAX_RESULT_CHARS}", True)
    return Answer(str.__getitem__(value, slice(0, MAX_RESULT_CHARS)), False)


def raised(error: BaseException) -> Answer:
    """What a handler raised."""
    try:
        text = str(error)
    except BaseException:
        text = ""
    if text.strip():
        return Answer(str.__getitem__(f"Error: {text}", slice(0, MAX_RESULT_CHARS)), True)
    return Answer(NO_MEMORY if isinstance(error, MemoryError) else f"Error: {type(error).__name__}", True)
