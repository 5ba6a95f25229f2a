"""The written form of an answer that contains only calls, for instructions, history and grammars.

A `Grammar` describes what is read, a `Layout` what is written. Prompt, history and constrained decoding
(`proxy/formats/gbnf/grammar.py`) use the same layout, so they cannot differ.

Rules of this module:

1. Client data never ends a call early and contains no control token of a chat template. Where it would, it is escaped,
   and reading it back restores it (`escaping.py`); everything else stays unchanged.
2. A name or key that the format cannot express is replaced by a similar one, since only the model reads the history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ...model import ToolUse
from .escaping import Escaping
from .longjson import compact, join_surrogates
from .rendering import json_value, prompt_name, taught_arguments
from .values import JSON, PYTHON, Syntax, read_object

NOTHING: Final = Escaping(())
"""An escaping that changes nothing."""

_UNSAFE_IN_NAME: Final = re.compile(r"[^\w.:/-]")
_UNSAFE_IN_KEY: Final = re.compile(r"[<>\"'=|\uff5c\t\r\n\\]|^ | $")
FUNCTION: Final = "<function-name>"
"""The placeholder for a tool's name in instructions. It is neither a valid name nor JSON, so a model that copies it
makes no call."""
_KEY: Final = "<parameter-name>"
_VALUE: Final = "<value>"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_UNSAFE_IN_KEYWORD: Final = re.compile(r"[^\w-]|^(?=[\W\d])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """Arguments as a row of `opener key middle value closer`: strings verbatim, other values as JSON.

    `{key}` in `closer` is replaced by the key. With `entities` a key is written with `&quot;`, `&lt;` and `&amp;`.
    `strings` and `others` are the text between key and value; `{type}` in `others` is replaced by the value's JSON
    type. `stops` are the literals that would end a value (including the line end after `strings`); grammars for
    constrained decoding forbid them in values.
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
        """True if the written form shows whether a value is a string."""
        return self.strings != self.others

    def write(self, arguments: Mapping[str, Any], escaping: Escaping) -> str:
        """Returns the arguments, each as `opener key middle value closer`."""
        rows = []
        for name, value in arguments.items():
            key = self.key(name, escaping)
            rows.append(f"{self.opener}{key}{self._value(value, escaping)}{self.behind(key)}")
        return "".join(rows)

    def behind(self, key: str) -> str:
        """Returns the text that closes the value of this key."""
        return self.closer.replace("{key}", key)

    def key(self, key: str, escaping: Escaping = NOTHING) -> str:
        r"""Returns a key in which characters that could end it are written as `\uXXXX`."""
        if self.entities:
            key = key.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        shown = _UNSAFE_IN_KEY.sub(lambda found: f"\\u{ord(found[0]):04x}", join_surrogates(key))
        return _short(escaping.json(shown))

    def _value(self, value: Any, escaping: Escaping) -> str:
        if type(value) is str:
            return self.strings + escaping.value(join_surrogates(value))
        return self.others.replace("{type}", json_type(value)) + JSON.write(value, escaping.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An answer is `first call (separator call)* last`, a call is `opener name [numbered N] middle arguments closer`.

    `name`: a JSON string, or the plain name. `numbered`: the text before a number that distinguishes calls. Numbers
    count the calls of an answer from `start`, or, with `ids`, those of the conversation; then `ids`, name, `numbered`
    and number form the call's id. `arguments`: `object` (JSON), `string` (JSON in a JSON string), `keywords` (as in
    Python), a `Syntax` (an object in that syntax), or `Tagged`.
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
        """Returns all calls of an answer. `escaping` is applied to their arguments."""
        calls = [self._call(use, self.start + place, escaping) for place, use in enumerate(uses)]
        return f"{self.first}{self.separator.join(calls)}{self.last}"

    def call(self, use: ToolUse, escaping: Escaping = NOTHING) -> str:
        """Returns an answer with one call."""
        return self.calls((use,), escaping)

    def form(self) -> str:
        """Returns a call as instructions show it, with placeholders in angle brackets."""
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
        """Returns the id that the model would write for a call, see `ToolFormat.own_id`."""
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
    """Returns the tool's name with unsafe characters replaced by `_`."""
    return _plain(prompt_name(use))


def _plain(name: str) -> str:
    return _short(_UNSAFE_IN_NAME.sub("_", name))


def _short(word: str) -> str:
    """Returns a name shortened to fit into a `word` field (`WORD_BYTES`), with room for a tag's attributes."""
    return word if len(word) < 50 else word.encode()[:200].decode(errors="ignore")


def keyword(name: str) -> str:
    """Returns `name` if Python allows it as a keyword argument, else a similar name (which is not read back)."""
    return _UNSAFE_IN_KEYWORD.sub("_", name)


def json_type(value: Any) -> str:
    """Returns the JSON type of a value."""
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
