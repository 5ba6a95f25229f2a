"""How an answer that holds only calls is written: what models are taught, what history shows, what a grammar enforces.

A `Grammar` says what is read, a `Layout` what is written. Prompt, history and constrained decoding
(`proxy/formats/gbnf/grammar.py`) all come from the one layout, so they cannot differ.

Rules of this module:

1. What comes from a client never ends a call early, and holds no control token of a chat template. Where its bytes
   would, they are escaped, which is undone when they are read back (`escaping.py`); all else stands as it is.
2. Where a format cannot say a name or a key, another one that looks alike is written in its place: history is for the
   model's eyes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..model import ToolUse
from .escaping import Escaping
from .longjson import compact, sound
from .rendering import json_value, prompt_name, taught_arguments
from .values import JSON, PYTHON, Syntax, read_object

NOTHING: Final = Escaping(())
"""Leaves everything as it is."""

_UNSAFE_IN_NAME: Final = re.compile(r"[^\w.:/-]")
_UNSAFE_IN_KEY: Final = re.compile(r"[<>\"'=|\uff5c\t\r\n\\]|^ | $")
FUNCTION: Final = "<function-name>"
"""Stands for a tool's name in instructions: no name, and no JSON, so nothing is called where a model copies it."""
_KEY: Final = "<parameter-name>"
_VALUE: Final = "<value>"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_UNSAFE_IN_KEYWORD: Final = re.compile(r"[^\w-]|^(?=[\W\d])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """Arguments as a row of `opener key middle value closer`: strings as they are, all else as JSON.

    The place of `{key}` in `closer` takes the key. With `entities` a key is written with `&quot;`, `&lt;` and `&amp;`.
    `strings` and `others` stand between key and value; the place of `{type}` in `others` takes the value's JSON type.
    `stops` are the literals with which a value would end, the line end behind `strings` included: a constrained answer
    does not write them.
    """

    opener: str
    strings: str
    closer: str
    others: str = ""
    stops: tuple[str, ...] = ()
    entities: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", self.others or self.strings)

    @property
    def typed(self) -> bool:
        """Whether what is written says of a value what it is."""
        return self.strings != self.others

    def write(self, arguments: Mapping[str, Any], escaping: Escaping) -> str:
        """The row."""
        rows = []
        for name, value in arguments.items():
            key = self.key(name, escaping)
            rows.append(f"{self.opener}{key}{self._value(value, escaping)}{self.behind(key)}")
        return "".join(rows)

    def behind(self, key: str) -> str:
        """What stands behind the value of this key."""
        return self.closer.replace("{key}", key)

    def key(self, key: str, escaping: Escaping = NOTHING) -> str:
        """A key that ends where it should: what cannot stand in one becomes `\\uXXXX`."""
        if self.entities:
            key = key.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        shown = _UNSAFE_IN_KEY.sub(lambda found: f"\\u{ord(found[0]):04x}", sound(key))
        return _short(escaping.json(shown))

    def _value(self, value: Any, escaping: Escaping) -> str:
        if type(value) is str:
            return self.strings + escaping.value(sound(value))
        return self.others.replace("{type}", json_type(value)) + JSON.write(value, escaping.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An answer is `first call (separator call)* last`, a call `opener name [numbered N] middle arguments closer`.

    `name`: a JSON string, or the plain name. `numbered`: text before a number that tells calls apart, those of an
    answer from `start` on, or with `ids` those of a conversation: `ids`, name, `numbered` and number are the call's id
    then. `arguments`: `object`, JSON; `string`, a JSON string that holds JSON; `keywords`, as Python writes them; a
    `Syntax`, an object in that; or `Tagged`.
    """

    opener: str
    middle: str
    closer: str
    separator: str = ""
    first: str = ""
    last: str = ""
    name: Literal["json", "plain"] = "json"
    numbered: str = ""
    start: int = 0
    ids: str = ""
    arguments: Literal["object", "string", "keywords"] | Syntax | Tagged = "object"

    def calls(self, uses: Sequence[ToolUse], escaping: Escaping = NOTHING) -> str:
        """All calls of an answer. `escaping` is for what their arguments hold."""
        calls = [self._call(use, self.start + place, escaping) for place, use in enumerate(uses)]
        return f"{self.first}{self.separator.join(calls)}{self.last}"

    def call(self, use: ToolUse, escaping: Escaping = NOTHING) -> str:
        """An answer with one call."""
        return self.calls((use,), escaping)

    def form(self) -> str:
        """A call as instructions show it: with names for its parts that stand in pointed brackets."""
        head = f"{self.opener}{FUNCTION}{self.numbered}{self.start if self.numbered else ''}{self.middle}"
        match self.arguments:
            case Tagged():
                arguments = (
                    f"{self.arguments.opener}{_KEY}{self.arguments.strings}{_VALUE}{self.arguments.behind(_KEY)}"
                )
            case Syntax():
                arguments = f"{{{_KEY}:{self.arguments.quote}{_VALUE}{self.arguments.quote}}}"
            case "keywords":
                arguments = f"{_KEY}={_VALUE}"
            case "string":
                arguments = "<args-json-string>"
            case _:
                arguments = "<args-json-object>"
        return f"{self.first}{head}{arguments}{self.closer}{self.last}"

    def own_id(self, use: ToolUse, number: int) -> str:
        """See `ToolFormat.own_id`."""
        name = f"{plain_name(use)}{self.numbered}"
        _, known, digits = use.call_id.rpartition(name)
        return f"{self.ids}{name}{digits if known and _NUMBER.fullmatch(digits) else number}"

    def _call(self, use: ToolUse, number: int, escaping: Escaping) -> str:
        name = prompt_name(use)
        head = self.opener + (_plain(name) if self.name == "plain" else escaping.json(compact(name)))
        if self.numbered:
            own = self.own_id(use, number) if self.ids else str(number)
            head += f"{self.numbered}{own.rpartition(self.numbered)[2]}"
        return f"{head}{self.middle}{self._arguments(taught_arguments(use), escaping)}{self.closer}"

    def _arguments(self, text: str, escaping: Escaping) -> str:
        if self.arguments == "string":
            return escaping.json(compact(text))
        if self.arguments == "object" and self.name == "json":
            return escaping.json(json_value(text))
        value = read_object(text)
        if self.arguments == "object":
            return escaping.json(compact({"arguments": text}) if value is None else text.strip())
        if value is None:
            value = {"arguments": text}  # broken ones, so that the call can still be read
        match self.arguments:
            case Tagged():
                return self.arguments.write(value, escaping)
            case Syntax():
                return self.arguments.write(value, escaping.value)
        return escaping.json(", ".join([f"{keyword(key)}={PYTHON.write(inner)}" for key, inner in value.items()]))


def plain_name(use: ToolUse) -> str:
    """The tool's name without anything that could end it."""
    return _plain(prompt_name(use))


def _plain(name: str) -> str:
    return _short(_UNSAFE_IN_NAME.sub("_", name))


def _short(word: str) -> str:
    """A name that fits into a `word` (`WORD_BYTES`), with room for a tag's attributes."""
    return word if len(word) < 50 else word.encode()[:200].decode(errors="ignore")


def keyword(name: str) -> str:
    """A name that a keyword argument may have: `name` if it is one, else something like it, which is not read back."""
    return _UNSAFE_IN_KEYWORD.sub("_", name)


def json_type(value: Any) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
        case str() if type(value) is str:
            return "string"
    return "number"
