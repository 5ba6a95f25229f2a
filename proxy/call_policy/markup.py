"""A lenient tokeniser of markup: the tags, keys and values of calls in damaged and unknown forms (R30.1).

Rules of this module:

1. A tag is any short text between angle brackets of any spelling, or a word in square brackets. Bars, blanks and a
   prefix between bars or before a colon are not part of its word: `<｜DSML｜invoke name="f">`,
   `< | DSML | invoke name="f">`, `<DSML invoke name="f">` and `<ns:invoke name="f">` are read alike, and so is
   `<vendor_tool_call>`. A backslash behind the bracket is an escape (`formats/engine/escaping.py`): that is no tag.
2. Members are `key: value`, `key = value` or `"key=value`, with quotes of any kind or none.
3. Every reader only moves forwards, so reading is linear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..repair.literals import QUOTE_TOKEN, json_string
from ..repair.relaxed_json import CURLY, MAX_DEPTH, from_curly, read_value, skip_space
from ..scan._grammar import SPACE
from .untyped import Types, typed_value

_TAG: Final = re.compile(
    r"""[<‹](?!\\)((?:[^<>‹›\n"]|"(?:[^"\n<>]|<[|｜][^"\n<>]{0,40}>){0,200}"){1,200})[>›]|\[([A-Za-z_/]{2,40})\]"""
)
_PREFIX: Final = re.compile(r"[A-Z]{2,12}\s+(?=/?(?:tool|function|invoke|parameter|call|arg)(?:_?\w+)?(?:\s|\Z))")
_VENDOR: Final = re.compile(r"\A[a-z0-9]+_(?=(?:arg_key|arg_value|tool_calls?|function_calls?)\Z)")
_BARS: Final = re.compile(r"[|｜‖│]+")
_WORD: Final = re.compile(r"[\w-]+(?:[.:][\w-]+)*")
_ATTRIBUTE: Final = re.compile(r"""(?<![\w-])([\w-]++)\s*+[=:]\s*+(?:"([^"]*+)"?|'([^']*+)'?|([^\s"'>]++))""")
_INLINE: Final = re.compile(r"""\s*[=:]\s*(?:"([^"]*)"?|'([^']*)'?|([^\s"'>]+))""")

_KEY: Final = re.compile(
    r"""<\|["']\|>([\w.$-]+)<\|["']\|>|"([\w.$-]+)=(?=[\["'{\d])|"([\w$-]+)(?=\s*:\s*["\[{])|"([^"\n]*)"|'([^'\n]*)'"""
    r"""|[“”]([^“”\n]*)[“”]|([\w.$-]+)"""
)
_COLON: Final = re.compile(r"\s*(?:=>|[:=])\s*")
_SEPARATOR: Final = re.compile(r"[\s,;]*")
_QUOTE: Final = re.compile(r"""<\|["']\|>|<escape>|["']""")
_SCALAR: Final = re.compile(r"[^\s,}\])]+(?=\s*[,}\])])")
_BEHIND_STRING: Final = re.compile(
    r"""\s*+(?:[}\])]|"[\w$-]++"\s*+:|,\s*+(?:<\|["']\|>|["'{\[\d}\])]|[\w.$-]++\s*+[:=])|,?\s*+\Z|</?[|｜\w])"""
)
_UNCLOSED: Final = re.compile(r"""([\w.-]++)(?=,\s*+"[\w$-]++"\s*+:)""")
"""A word whose closing quote is missing before the next member."""
_BEHIND_MEMBER: Final = re.compile(
    r"""(,)\s*+["']?([\w.$-]++)["']?\s*+[:=]|[}\])](?=[\s}\])"'`]{0,64}+(?:[<‹\[]|\Z))"""
)
_MEMBER_BEGUN: Final = re.compile(r",\s*+([\w.$-]++)\s*+:\s*+\Z")
_BEHIND_MARK: Final = re.compile(r"\s*+(?:[,}\])]|\Z)")
_MARKS: Final = ('<|"|>', "<|'|>", "<escape>")
"""The tokens in `_QUOTE`."""
ENVELOPE_CHARS: Final = 256
"""Brackets and quotes around a call are opened within this many characters before its arguments."""
_CLOSING: Final = re.compile(r"""[\s,;:\])}>"'`|]*+""")
_BRACKETS: Final = {"}": "{", "]": "[", ")": "("}
_FURTHER_MEMBER: Final = re.compile(r"""(?<!\\)["']\s*+["']?[\w.$-]++["']?\s*+[:=]\s*+["'\[{\d]""")
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_ZEROS: Final = re.compile(r"(?<![\w.])0+(?=\d)")
_RAW: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\'": "'"}


@dataclass(slots=True)
class Tag:
    """A tag: its word (lower-case, `_` for `-`), the value after `=` or `:` (`inline`), its attributes, and its span.
    `written` is the word as written. `special`: it stands between bars."""

    word: str
    written: str
    inline: str | None
    attributes: dict[str, str]
    closing: bool
    special: bool
    start: int
    end: int


def tag_at(text: str, at: int) -> Tag | None:
    """Returns the tag that begins exactly at `at`, or None."""
    found = _TAG.match(text, at)
    return None if found is None else _read_tag(found)


def next_tag(text: str, at: int) -> Tag | None:
    """Returns the first tag that begins at or after `at`, or None."""
    while (found := _TAG.search(text, at)) is not None:
        tag = _read_tag(found)
        if tag is not None:
            return tag
        at = found.start() + 1
    return None


def _read_tag(found: re.Match[str]) -> Tag | None:
    content = found[1] if found[1] is not None else found[2]
    inside = content.strip()
    bare = inside.strip("|｜‖│ \t")
    special = bare != inside
    closing = bare.startswith("/")
    if closing:
        bare = bare[1:].lstrip("|｜‖│ \t")
    bare = _PREFIX.sub("", bare.replace("▁", "_"))
    quoted = bare.find('"')
    before = bare if quoted < 0 else bare[:quoted]
    parts = _BARS.split(before)
    if len(parts) > 1:
        special = True
        bare = parts[-1] + bare[len(before) :]
    bare = bare.strip()
    if bare.startswith("/"):
        closing, bare = True, bare[1:].lstrip()
    word = _WORD.match(bare)
    if word is None:
        return None
    written, rest = word[0], bare[word.end() :]
    inline = _INLINE.match(rest)
    value = None
    attributes: dict[str, str] = {}
    if inline is not None:
        value = next((part for part in inline.groups() if part is not None), "")
        rest = rest[inline.end() :]
    elif ":" in written and written.partition(":")[0] in ("tool", "function", "call"):
        written, _, value = written.partition(":")
    if rest.strip(" \t/?"):
        attributes = {
            item[1].lower(): next((part for part in item.groups()[1:] if part is not None), "")
            for item in _ATTRIBUTE.finditer(rest)
        }
        if not attributes and inline is None and not closing:
            return None  # prose in angle brackets
    own = written if value is not None else written.rpartition(":")[2]
    return Tag(
        _VENDOR.sub("", own.lower().replace("-", "_")),
        own,
        value,
        attributes,
        closing,
        special,
        found.start(),
        found.end(),
    )


# --- members -------------------------------------------------------------------------------------------------------


class Value(NamedTuple):
    """The value of a member: JSON text, or (`bare`) unquoted text whose type the schema decides."""

    text: str
    bare: bool = False

    def as_json(self, types: Types | None) -> str:
        """Returns the value as JSON text, read as one of `types` (None: any type)."""
        if not self.bare:
            return self.text
        number = _ZEROS.sub("", self.text)
        return typed_value(self.text if types is None or "string" in types else number, types)


class MarkupError(ValueError):
    """The text at this position is not an object, list or value."""


def read_members(
    text: str, at: int, keys: Collection[str] | None, depth: int = 0
) -> tuple[list[tuple[str, Value]], int]:
    """Returns the members of the object or call whose opening bracket is at `at`, and its end. An unquoted value ends
    where one of `keys` follows; with `keys` None it is one word.

    Raises `MarkupError`.
    """
    if depth > MAX_DEPTH // 2:
        raise MarkupError("nested too deeply")
    closer = {"{": "}", "(": ")"}[text[at]]
    members: list[tuple[str, Value]] = []
    opening = at
    at += 1
    while True:
        separator = _SEPARATOR.match(text, at)
        assert separator is not None
        at = separator.end()
        if text[at : at + 1] == closer:
            return members, at + 1
        if members and (at == len(text) or text[at] in "<]"):
            return members, at  # the closing bracket is lost
        key = _KEY.match(text, at)
        colon = None if key is None or key[2] is not None else _COLON.match(text, key.end())
        if key is None or (colon is None and key[2] is None):
            raise MarkupError(f"no member begins at character {at}")
        name = next(part for part in key.groups() if part is not None)
        value, at = _read_member(text, key.end() if colon is None else colon.end(), opening, keys, depth)
        members.append((name, value))


def _read_member(text: str, at: int, opening: int, keys: Collection[str] | None, depth: int) -> tuple[Value, int]:
    quote = _QUOTE.match(text, at)
    if quote is not None:
        return _read_string(text, quote, opening, keys)
    curly = CURLY.match(text, at)
    if curly is not None:
        return Value(from_curly(curly)), curly.end()
    if text[at : at + 1] in ("{", "["):
        value, end = read_json_like(text, at, depth + 1)
        return Value(value), end
    if keys is None:
        scalar = _SCALAR.match(text, at)
        if scalar is None:
            raise MarkupError("a value has no end")
        return _unquoted(text, at, scalar.end()), scalar.end()
    found = _BEHIND_MEMBER.search(text, at)
    if found is None or found.start() == at or (found[1] is not None and found[2] not in keys):
        raise MarkupError("a value has no end")
    end = found.start()
    if found[1] is None:
        while True:  # brackets that the value opened belong to it
            closer = skip_space(text, end)
            opener = _BRACKETS.get(text[closer : closer + 1])
            if opener is None or text.count(opener, at, end) <= text.count(text[closer], at, end):
                break
            end = closer + 1
        if opener != text[opening]:
            raise MarkupError("a value and its list may end at the same bracket")
        _check_closers(text, opening, closer)
    return _unquoted(text, at, end), end


def _unquoted(text: str, at: int, end: int) -> Value:
    """Returns the value in `text[at:end]`, which begins without a quote. It is a string if only the mark at its end is
    there (Gemma 4). Raises `MarkupError` if a mark stands elsewhere, or if a quotation mark has lost its partner."""
    mark = QUOTE_TOKEN.search(text, at, end)
    if text.endswith(_MARKS, 0, at):
        raise MarkupError("the mark before a value may be its own")
    if mark is not None:
        if text[mark.end() : end].strip(SPACE):
            raise MarkupError("one of the marks around a value is lost")
        return Value(json_string(text[at : mark.start()]))
    value = text[at:end].strip(SPACE)
    if _is_half_quoted(value, value[-1:]):
        raise MarkupError("one of the quotes around a value is lost")
    return Value(value, bare=True)


def _is_half_quoted(value: str, mark: str) -> bool:
    """Returns True if a value begins or ends with a quotation mark that has no partner in it: it may be one of those
    around the value."""
    plain = _ESCAPE.sub("", value)
    return mark in ('"', "'") and (plain[:1] == mark or plain[-1:] == mark) and plain.count(mark) % 2 == 1


def _check_closers(text: str, opening: int, end: int) -> None:
    """Raises `MarkupError` if brackets or quotes behind the last value of a list, which begins at `opening`, close more
    than was opened before that value: they may be a part of it."""
    behind = _CLOSING.match(text, end)
    assert behind is not None
    before = max(0, opening - ENVELOPE_CHARS)
    for closer, opener in _BRACKETS.items():  # closers before the list may stand in texts, so they do not count
        if behind[0].count(closer) > text.count(opener, before, opening + 1):
            raise MarkupError("more brackets are closed than opened")
    for mark in "\"'":
        if behind[0].count(mark) > text.count(mark, before, opening):
            raise MarkupError("a quote closes nothing")


def _read_string(text: str, quote: re.Match[str], opening: int, keys: Collection[str] | None) -> tuple[Value, int]:
    """Returns the string between quotes and its end. It may contain unescaped quotes: it ends at the first quote that
    is followed by something that may follow a value. `opening`: see `_check_closers`. A string between marks whose last
    one is missing ends before the member, one of `keys`, whose first mark was found instead (Gemma 4)."""
    mark, at = quote[0], quote.end()
    if len(mark) > 1:
        end = text.find(mark, at)
        if end < 0:
            raise MarkupError("a string has no end")
        following = _MEMBER_BEGUN.search(text, at, end)
        if following is not None and not _BEHIND_MARK.match(text, end + len(mark)):
            if following[1] not in (keys or ()):
                raise MarkupError("a mark between two members may belong to either")
            return Value(json_string(text[at : following.start()])), following.start()
        return Value(json_string(text[at:end])), end + len(mark)
    end = at
    while (end := text.find(mark, end)) >= 0:
        before = end
        while text[before - 1] == "\\":
            before -= 1
        if (end - before) % 2 == 0 and _BEHIND_STRING.match(text, end + 1):
            if _FURTHER_MEMBER.search(text, at, end):
                break  # perhaps two members
            if text[end + 1 : end + 2] in _BRACKETS:
                _check_closers(text, opening, end + 1)
            if _is_half_quoted(text[at:end], mark):
                raise MarkupError("one of the quotes around a string is doubled")
            return Value(_string(text[at:end])), end + 1
        end += 1
    if (unclosed := _UNCLOSED.match(text, at)) is not None:
        return Value(json_string(unclosed[1])), unclosed.end(1)
    raise MarkupError("a string has no end")


def _string(inner: str) -> str:
    """Returns the content of a quoted string as JSON text."""
    escaped = re.sub(r'\\.|["\n\r\t]', lambda one: _RAW.get(one[0], one[0]), inner)
    try:
        json.loads(f'"{escaped}"')
    except ValueError:
        return json_string(inner)
    return f'"{escaped}"'


def read_json_like(text: str, at: int, depth: int = 0) -> tuple[str, int]:
    """Returns the object or array that begins at `at` as JSON text, and its end. Raises `MarkupError`."""
    try:
        _, end = read_value(text, at)
    except ValueError:
        pass
    else:
        return text[at:end], end
    if depth > MAX_DEPTH // 2:
        raise MarkupError("nested too deeply")
    if text[at] == "{":
        members, end = read_members(text, at, None, depth)
        body = ",".join(f"{json_string(key)}:{value.as_json(None)}" for key, value in members)
        return f"{{{body}}}", end
    items: list[str] = []
    opening = at
    at += 1
    while True:
        separator = _SEPARATOR.match(text, at)
        assert separator is not None
        at = separator.end()
        if at == len(text):
            raise MarkupError("a list has no end")
        if text[at] == "]":
            return f"[{','.join(items)}]", at + 1
        value, at = _read_member(text, at, opening, None, depth)
        items.append(value.as_json(None))
