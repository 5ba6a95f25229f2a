"""Repair of request bodies that a reader refuses because of an odd field in an earlier turn, so that one field does not
end a client's session (R28.4).

Rules:

1. A body is mended only after its reader has refused it, so an ordinary request costs nothing. Mistakes that are not
   mended here are refused as before.
2. Lists keep their length and order, so the positions in error messages match the client's body.
3. `Mending.names` holds the names of the mended oddities (`toolwire.tolerances`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ...tolerances import ARGUMENTS, CONTENT, NO_CALL
from .wire import dump, load

MADE: Final = "result_without_id_"
"""Prefix of the ids that are made for results without a call id."""


class Mending:
    """Notes and repairs the odd fields of one body."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._made = 0

    def note(self, name: str) -> None:
        """Notes that an oddity of this name was mended."""
        self.names[name] = None

    def result_id(self, value: Any) -> Any:
        """Returns the call id of a result: `value`, or a new id that no call has if it is missing or empty."""
        if value not in (None, ""):
            return value
        self.note(NO_CALL)
        self._made += 1
        return f"{MADE}{self._made}"

    def content(self, value: Any) -> Any:
        """Returns the content of a message: `value`, or "" in place of null."""
        if value is None:
            self.note(CONTENT)
        return "" if value is None else value

    def arguments(self, value: Any) -> str:
        """Returns the arguments of a call as JSON text: `value` if it is a string, otherwise its JSON, `{}` for
        null."""
        if isinstance(value, str):
            return value
        self.note(ARGUMENTS)
        return "{}" if value is None else dump(value).decode()


def is_json_object(arguments: str) -> bool:
    """True if arguments are the text of a JSON object."""
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
    """Returns arguments as the text of an object. A string that contains an object becomes that object; null and empty
    text become `{}`; anything else is put under the key `input`."""
    if not arguments.strip():
        return "{}"
    try:
        value = load(arguments)
    except ValueError:
        value = arguments
    if value is None:
        return "{}"
    if isinstance(value, str) and is_json_object(value):
        return value
    return dump({"input": value}).decode()


def objects(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects of a list with their positions."""
    for at, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield at, item
