"""Bodies that a reader of requests refuses, mended where what is odd says nothing of the request as a whole: one field
never ends a client's session (R28.4).

Rules:

1. A body is mended only after its reader has refused it, so an ordinary request costs nothing. What cannot be mended is
   refused as before.
2. Lists keep their length and order, so that a place in an error is the client's.
3. What a client says is kept where it can be shown to a model; what no model reads is left out.
4. `Mending.told` has the names of what was mended (`proxy.tolerances`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..tolerances import ARGUMENTS, CALL_ID, CONTENT, NO_CALL, TOOL
from .wire import dump, load

MADE: Final = "call_without_id_"
"""The beginning of the ids of calls that had none, and of results that name none."""


class Mending:
    """What was mended in one body, and the ids that were made for calls without one."""

    def __init__(self) -> None:
        self.told: dict[str, None] = {}
        self._waiting: list[str] = []
        self._made = 0

    def tell(self, name: str) -> None:
        """Something of this name was mended."""
        self.told[name] = None

    def call_id(self, given: Any) -> str:
        """The id of a call: the given one, or a new one."""
        if isinstance(given, str) and given:
            return given
        self.tell(CALL_ID)
        self._waiting.append(self._new())
        return self._waiting[-1]

    def result_id(self, given: Any) -> str:
        """The id of the call that a result answers: the given one, that of the first call without an id that has no
        result yet, or one that no call has."""
        if isinstance(given, str) and given:
            return given
        if self._waiting:
            return self._waiting.pop(0)
        self.tell(NO_CALL)
        return self._new()

    def _new(self) -> str:
        self._made += 1
        return f"{MADE}{self._made}"

    def text(self, given: Any) -> str:
        """A text: the given one, nothing for nothing, and JSON for anything else."""
        if isinstance(given, str):
            return given
        self.tell(CONTENT)
        return "" if given is None else dump(given).decode()

    def arguments(self, given: Any) -> str:
        """The arguments of a call as text."""
        if isinstance(given, str):
            return given
        self.tell(ARGUMENTS)
        return "{}" if given is None else dump(given).decode()

    def fields(
        self, value: Mapping[str, Any], types: Mapping[str, type | tuple[type, ...]], name: str
    ) -> dict[str, Any]:
        """The object without fields that have none of these types."""
        wrong = [key for key, kind in types.items() if value.get(key) is not None and not isinstance(value[key], kind)]
        if wrong:
            self.tell(name)
        return {key: item for key, item in value.items() if key not in wrong}

    def tool(self, tool: Any, nested: tuple[str, ...] = ()) -> Any:
        """A definition of a tool without fields of the wrong type; `nested` are the keys of objects in it that have
        such fields as well."""
        if not isinstance(tool, dict):
            return tool
        mended = self.fields(tool, _TOOL, TOOL)
        for key in nested:
            inner = mended.get(key)
            if isinstance(inner, dict):
                mended[key] = self.fields(inner, _TOOL, TOOL)
            elif inner is not None:
                self.tell(TOOL)
                del mended[key]
        return mended

    def parts(self, content: Any, one: Callable[[dict[str, Any]], dict[str, Any]], text: str) -> Any:
        """Content with each part as `one` makes it; `text` is the type of a part that is text."""
        if isinstance(content, str):
            return content
        if isinstance(content, dict):
            self.tell(CONTENT)
            content = [content]
        if not isinstance(content, list):
            return self.text(content)
        return [self._part(part, one, text) for part in content]

    def _part(self, part: Any, one: Callable[[dict[str, Any]], dict[str, Any]], text: str) -> dict[str, Any]:
        if not isinstance(part, dict):
            self.tell(CONTENT)
            return {"type": text, "text": self.text(part)}
        if not isinstance(part.get("type"), str):
            self.tell(CONTENT)
            said = part.get("text")
            return {"type": text, "text": said if isinstance(said, str) else self.text(part)}
        return one(part)


_TOOL: Final[Mapping[str, type | tuple[type, ...]]] = {
    "description": str,
    "parameters": dict,
    "input_schema": dict,
    "strict": bool,
}


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
