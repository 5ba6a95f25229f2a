"""Bodies that a reader of requests refuses, mended where a field of an earlier turn is odd: one field never ends a
client's session (R28.4).

Rules:

1. A body is mended only after its reader has refused it, so an ordinary request costs nothing. What is not mended here
   is refused as before.
2. Lists keep their length and order, so that a place in an error is the client's.
3. `Mending.told` has the names of what was mended (`toolwire.tolerances`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from toolwire.protocols.shared.wire import dump, load
from toolwire.tolerances import ARGUMENTS, CONTENT, NO_CALL

MADE: Final = "result_without_id_"
"""The beginning of the ids of results that name no call."""


class Mending:
    """Mended fields of one body."""

    def __init__(self) -> None:
        self.told: dict[str, None] = {}
        self._made = 0

    def tell(self, name: str) -> None:
        """Something of this name was mended."""
        self.told[name] = None

    def result_id(self, given: Any) -> Any:
        """The id of the call that a result answers: the given one, or one that no call has."""
        if given not in (None, ""):
            return given
        self.tell(NO_CALL)
        self._made += 1
        return f"{MADE}{self._made}"

    def content(self, given: Any) -> Any:
        """The content of a message: nothing said, in the place of null."""
        if given is None:
            self.tell(CONTENT)
        return "" if given is None else given

    def arguments(self, given: Any) -> str:
        """The arguments of a call as text."""
        if isinstance(given, str):
            return given
        self.tell(ARGUMENTS)
        return "{}" if given is None else dump(given).decode()


def is_object(arguments: str) -> bool:
    """Whether arguments are a JSON object."""
    text = arguments.strip()
    if text == "{}":
        return True
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        load(text)
    except ValueError:
        return False
    return True


def object_of(arguments: str) -> str:
    """Arguments that are no object as the text of one. An object that was written as a string is that object; null and
    nothing are an empty one; anything else stands under `input`."""
    if not arguments.strip():
        return "{}"
    try:
        value = load(arguments)
    except ValueError:
        value = arguments
    if value is None:
        return "{}"
    if isinstance(value, str) and is_object(value):
        return value
    return dump({"input": value}).decode()


def objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list, each with its place."""
    for at, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield at, item
