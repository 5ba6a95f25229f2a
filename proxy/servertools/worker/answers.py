"""The text for the model, from the return value or exception of a handler (R15.5). Done in the worker, because it may
run the handler's code (`__str__` of an exception)."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Final, Literal

MAX_RESULT_CHARS: Final = 1000
NO_TEXT: Final = "Error: Tool must return string"
NO_MEMORY: Final = "Error: Tool needs more memory than it may have"

OnOversize = Literal["cut", "error"]


@dataclass(frozen=True, slots=True)
class HandlerAnswer:
    """The text for the model. `failed`: the text is an error."""

    text: str
    failed: bool


def answer_for_value(value: object, on_oversize: OnOversize) -> HandlerAnswer:
    """Returns the answer for a handler's return value."""
    if not isinstance(value, str):
        if inspect.iscoroutine(value):
            value.close()  # the handler is no coroutine function, so the coroutine is never awaited
        return HandlerAnswer(NO_TEXT, True)
    # The methods of `str` itself, because a subclass may override them.
    length = str.__len__(value)
    if length > MAX_RESULT_CHARS and on_oversize == "error":
        return HandlerAnswer(f"Error: Tool result has {length} characters, the most is {MAX_RESULT_CHARS}", True)
    return HandlerAnswer(str.__getitem__(value, slice(0, MAX_RESULT_CHARS)), False)


def answer_for_error(error: BaseException) -> HandlerAnswer:
    """Returns the answer for an exception of a handler."""
    try:
        text = str(error)
    except BaseException:
        text = ""
    if text.strip():
        return HandlerAnswer(str.__getitem__(f"Error: {text}", slice(0, MAX_RESULT_CHARS)), True)
    return HandlerAnswer(NO_MEMORY if isinstance(error, MemoryError) else f"Error: {type(error).__name__}", True)
