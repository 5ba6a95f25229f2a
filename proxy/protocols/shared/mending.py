"""Repair of request bodies that a reader refuses because of an odd field in an earlier turn, so that one field does not
end a client's session (R28.4).

Rules:

1. A body is mended only after its reader has refused it, so an ordinary request costs nothing. Mistakes that are not
   mended here are refused as before.
2. Lists keep their length and order, so the positions in error messages match the client's body.
3. `Mending.names` holds the names of the mended oddities (`toolwire.tolerances`).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...tolerances import ARGUMENTS, CONTENT, NO_CALL, NO_ID
from .wire import dump, load

MADE: Final = "result_without_id_"
"""Prefix of the ids that are made for results without a call id that no call waits for."""


class Mending:
    """Notes and repairs the odd fields of one body."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._made = 0
        self._named: set[str] = set()
        self._waiting: set[str] = set()
        """The calls of the current turn that have no result yet."""
        self._unnamed: dict[str | None, deque[str]] = defaultdict(deque)
        """Of the current turn, the calls that no result names, by the name of the tool; None has all."""

    def note(self, name: str) -> None:
        """Notes that an oddity of this name was mended."""
        self.names[name] = None

    def named(self, result: Mapping[str, Any], key: str) -> None:
        """Notes the call that a result names. Every result is noted before any is mended: one without an id must not
        take the call of a later one."""
        value = result.get(key) or result.get("id")
        if isinstance(value, str):
            self._named.add(value)

    def begin_turn(self) -> None:
        """Forgets calls that have no result: later results without an id are not theirs."""
        self._waiting.clear()
        self._unnamed.clear()

    def called(self, call_id: Any, name: Any) -> None:
        """Notes a call, which waits for its result."""
        if not isinstance(call_id, str):
            return
        self._waiting.add(call_id)
        if call_id not in self._named:
            self._unnamed[None].append(call_id)
            if isinstance(name, str):
                self._unnamed[name].append(call_id)

    def result_id(self, result: Mapping[str, Any], key: str) -> Any:
        """Returns the call id of a result, which stands under `key`. If it is missing or empty: its own `id` if a call
        has it (Qwen-Agent), otherwise the id of the first call that waits and that no result names, of the result's
        `name` if it has one, otherwise a new id that no call has."""
        value = result.get(key)
        if value in (None, ""):
            value = self._waiting_id(result.get("id"), result.get("name"))
            self.note(NO_CALL if value is None else NO_ID)
        if value is None:
            self._made += 1
            return f"{MADE}{self._made}"
        if isinstance(value, str):
            self._waiting.discard(value)
        return value

    def _waiting_id(self, own: Any, name: Any) -> str | None:
        if isinstance(own, str) and own in self._waiting:
            return own
        calls = self._unnamed.get(name if isinstance(name, str) and name else None)
        while calls:
            if (call_id := calls.popleft()) in self._waiting:
                return call_id
        return None

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
