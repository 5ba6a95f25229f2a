"""Calls in damaged and unknown forms: a text is taken apart into names, keys and values (R30.1).

Rules of this module:

1. From where the calls begin to the end of the text there are only calls and framing: tags of tools and calls, closing
   tags, special tokens, fences and brackets. Any other word makes the whole text prose.
2. A name is exactly that of a callable tool, perhaps after a namespace, and stands where names stand: in a tag, in a
   member of an object, or right after a tag or the word `call:`.
3. Keys are declared properties of the tool. Each has one value; an undeclared key, or one with two different values,
   makes the whole text prose.
4. A value ends at its closing tag, if that is followed by something that may follow a value. Otherwise it ends where
   its closing tag must be missing: at the tag of a property without a value yet, or at the end of the call.
5. If arguments stand in tags and the call is not closed, it counts only if the last value is closed, all properties
   have values, or another call follows. Otherwise the value may be incomplete.
6. Text without a key is the value of the only required property, or of the only property. Between tags, keys and values
   may also be written `key=value`.
7. Dots and words in angle brackets in place of a value explain a form; they are not values.

The caller checks whether the arguments fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from ..formats.engine.keys import ARGUMENTS, LISTINGS, METADATA, NAMES, WRAPPERS
from ..repair.relaxed_json import MAX_REPAIRED_VALUES, has_more_values, read_json, read_value
from ..scan._grammar import FENCE, SPACE
from .call_words import (
    BEFORE_ARGUMENTS,
    BEFORE_OBJECT,
    FENCE_LINE,
    LINE,
    OTHER_ATTRIBUTES,
    explains,
    is_framing,
    past_space,
)
from .json_calls import ABSENT, Member, TextArguments, elements_of, is_message, members_of, members_within
from .markup import Value, read_json_like, read_members, tag_at
from .tagged_text import NoCall, TaggedArgumentsText
from .untyped import ParameterTypes, typed_value
from .written import WrittenCall, object_text

MAX_STARTS: Final = 4
"""The number of lines that are tried as the first line of the calls."""

MAX_CALLS: Final = 64
"""The maximum number of tool names that are read as calls in one text."""


TypesOf = Callable[[str], ParameterTypes]

_QUOTATION: Final = re.compile(r"[ \t]*```[^\n]*\n[ \t]*>")
"""A fence that begins with a Markdown quotation."""
_DOCUMENT: Final = re.compile(r"\s*<(?:\?xml|!doctype)\b", re.IGNORECASE)
"""The beginning of a document in XML or HTML."""


def recover(text: str, names: Collection[str], types_of: TypesOf) -> tuple[list[WrittenCall], int]:
    """Returns the calls at the end of `text`, and the number of characters before them; they begin at the start of the
    text or of a later line. `names` may be called; `types_of` returns a tool's parameter types. Raises `NoCall`."""
    named: str | None = None
    if has_more_values(text, MAX_REPAIRED_VALUES) or _DOCUMENT.match(text):  # the former would take too long
        raise NoCall
    for start in _starts(text):
        if _QUOTATION.match(text, start):
            continue
        try:
            calls = _CallReader(text[start:], names, types_of).calls()
        except NoCall as none:
            named = named or none.name
            if none.begun:
                break
        else:
            return calls, start
    raise NoCall(named)


def _starts(text: str) -> Iterator[int]:
    """Yields the start of the text, and of the next lines outside of fences that may begin a call."""
    yield 0
    tried, fenced = 1, False
    for line in LINE.finditer(text):
        begins = text[line.end() : line.end() + 1]
        fence = text.startswith(FENCE, line.end())
        if line.end() and not fenced and (begins in ("<", "[", "‹") or fence or text.startswith("call:", line.end())):
            yield line.end()
            tried += 1
            if tried == MAX_STARTS:
                return
        fenced ^= fence


class _CallReader(TaggedArgumentsText):
    """Reads the calls of one text; `at` is its position."""

    def __init__(self, text: str, names: Collection[str], types_of: TypesOf) -> None:
        super().__init__(text, names)
        self._types_of = types_of

    def calls(self) -> list[WrittenCall]:
        """Returns all calls of the text. Raises `NoCall`."""
        named: str | None = None
        count = done = 0
        try:
            while not self._at_end():
                if self._skip_framing():
                    continue
                before = len(self._calls_read)
                if not self._objects():
                    name = self._name()
                    count += 1
                    if name is None or count > MAX_CALLS:
                        raise NoCall(named)
                    named = name
                    arguments = self._arguments(name)
                    if arguments is not None:
                        self._calls_read.append(self._written(name, arguments))
                if len(self._calls_read) == before + 1:
                    self._calls_read[before].source = self.text[done : self.at].strip(SPACE)
                if len(self._calls_read) > before:
                    done = self.at
        except (NoCall, ValueError):  # the latter for what is nested too deep, in a string too
            raise NoCall(named, begun=bool(self._calls_read)) from None
        if not self._calls_read:
            raise NoCall(named)
        if len(self._calls_read) == 1:
            self._calls_read[0].source = None
        return self._calls_read

    # --- arguments --------------------------------------------------------------------------------------------------

    def _arguments(self, name: str) -> dict[str, str] | None:
        """Returns the arguments of a call as JSON texts, or None if the same name follows again."""
        known = self._types_of(name)
        found: dict[str, str] = {}
        tag = self._tag
        if tag is not None and tag.inline is None:
            own = {key: value for key, value in tag.attributes.items() if key not in OTHER_ATTRIBUTES}
            own |= {k: v for k, v in tag.attributes.items() if k in known.names and self._named(v) != name}
            for key, value in own.items():
                if key not in known.names:
                    raise NoCall(name)
                found[key] = typed_value(value, known.of(key))
        start = self.at
        if not found:
            self._skip_before_arguments()
            bracket = self.text[self.at : self.at + 1]
            if bracket == "{" or (bracket == "(" and (self._marked or self._labelled)):
                encoded = self._in_string(name, known)
                return self._in_brackets(name, known) if encoded is None else encoded
            self.at = start
        if self._in_tags(name, known, found):
            self._must_be_whole(name, known, found)
            return found
        self.at = start
        if not found and (only := self._in_pairs(known) or self._only_value(known)) is not None:
            self._must_be_whole(name, known, only)
            return only
        if not found:
            return self._none(name, known)
        return found

    def _skip_before_arguments(self) -> None:
        """Moves past anything that may stand between a name and an object."""
        while True:
            start = self.at
            if self._labelled and self.text.startswith("]", start):
                self.at += 1
            before = BEFORE_OBJECT.match(self.text, self.at)
            if before is not None:
                self.at = before.end()
            word = BEFORE_ARGUMENTS.match(self.text, self.at)
            if word is not None:
                self.at = word.end()
            fence = FENCE_LINE.match(self.text, self.at)
            if fence is not None:
                self.at = fence.end()
            tag = tag_at(self.text, self.at)
            if tag is not None and (tag.closing or is_framing(tag)) and not (tag.inline or tag.attributes):
                self.at = tag.end if self._name_of(tag) is None else self.at
            if self.at == start:
                return

    def _in_brackets(self, name: str, known: ParameterTypes) -> dict[str, str]:
        """Returns arguments in an object or in parentheses."""
        if self.text[self.at] == "(":
            inner = past_space(self.text, self.at + 1)
            if self.text[inner : inner + 1] == "{":
                self.at = inner
        members, self.at = read_members(self.text, self.at, known.names)
        return _settled(members, known, name)

    def _in_string(self, name: str, known: ParameterTypes) -> dict[str, str] | None:
        """Returns arguments in an object that was encoded twice, as a string, whose quote was skipped; None if this is
        none."""
        try:
            value, end = read_value(self.text, self.at - 1)
        except ValueError:
            return None
        members = members_within(value, "") if isinstance(value, str) else None
        if members is None:
            return None
        self.at = end
        return _settled(_valued(members), known, name)

    def _none(self, name: str, known: ParameterTypes) -> dict[str, str] | None:
        """Returns no arguments if only framing or the next call follows, or None if the same name follows again. Raises
        `NoCall` if arguments are required."""
        while not self._at_end() and self._skip_framing():
            pass
        if self.at < len(self.text):
            at = self.at
            again = self._name()
            self.at = at
            if again is None:
                raise NoCall(name)
            if again == name and (known.names or known.required):
                return None  # the header had the same name
        if known.required or not self._marked:
            raise NoCall(name)
        return {}

    # --- whole calls as objects -------------------------------------------------------------------------------------

    def _objects(self) -> bool:
        """Reads a call as an object, or a list of them. Returns False if none begins here."""
        if self.text[self.at] not in "{[" or not self._begins_object():
            return False
        text, self.at = read_json_like(self.text, self.at)
        for item in elements_of(text) if text[0] == "[" else [text]:
            self._object(item)
        return True

    def _object(self, text: str) -> None:
        if text[0] != "{":
            raise NoCall
        members = members_of(text)
        if is_message({key: value for key, (value, _) in members.items()}):
            raise NoCall
        self._call_of(members)

    def _call_of(self, members: Mapping[str, Member]) -> None:
        """Reads a call as the members of an object."""
        for key in (*LISTINGS, "calls"):
            value, text = members.get(key, ABSENT)
            if isinstance(value, list) and key not in NAMES:
                for item in elements_of(text):
                    self._object(item)
                return
        key, name = self._name_in(members)
        own = () if name is None else self._types_of(name).names
        for wrapper in (word for word in WRAPPERS if word not in own):
            value, text = members.get(wrapper, ABSENT)
            if isinstance(value, dict):
                self._call_of({**{k: v for k, v in members.items() if k != wrapper}, **members_of(text)})
                return
        if len(members) == 1 and self._named(alone := next(iter(members))) is not None:
            members = {"name": (alone, ""), "arguments": members[alone]}
            key, name = self._name_in(members)
        if name is None:
            raise NoCall
        rest = {other: item for other, item in members.items() if other != key}
        known = self._types_of(name)
        under = next((other for other in ARGUMENTS if other in rest), None)
        arguments = None if under is None else members_within(*rest[under])
        if arguments is None or not arguments.keys() <= set(known.names):
            empty = under if under is not None and rest[under][0] in (None, "", "{}", {}) else None
            arguments = {
                other: item for other, item in rest.items() if other in known.names or other not in (*METADATA, empty)
            }
        else:  # their object may have been closed too early
            beside = {k: v for k, v in rest.items() if k in known.names and k not in (*METADATA, under, *arguments)}
            arguments = {**arguments, **beside}
        self._calls_read.append(self._written(name, _settled(_valued(arguments), known, name)))

    def _name_in(self, members: Mapping[str, Member]) -> tuple[str, str | None]:
        """Returns the key under which an object names a tool, and the tool's name; None if it names none."""
        values = ((key, members.get(key, ABSENT)[0]) for key in NAMES)
        names = ((key, self._named(value)) for key, value in values if isinstance(value, str))
        return next(((key, name) for key, name in names if name is not None), ("", None))

    def _written(self, name: str, arguments: dict[str, str]) -> WrittenCall:
        if any(explains(text) for text in arguments.values()):
            raise NoCall
        if self.opened and any("<" in text or ">" in text for text in arguments.values()):
            raise NoCall  # perhaps a token that `CallText` replaced by a bracket
        return WrittenCall(name, TextArguments(object_text(arguments.items()), "object"))


def _valued(members: Mapping[str, Member]) -> list[tuple[str, Value]]:
    return [(key, Value(text)) for key, (_, text) in members.items()]


def _settled(members: list[tuple[str, Value]], known: ParameterTypes, name: str) -> dict[str, str]:
    """Returns members as arguments. A single object under a usual key such as `arguments` is unwrapped. Raises `NoCall`
    for undeclared keys and for different values of one key."""
    keys = {key for key, _ in members}
    if len(members) == 1 and not keys <= set(known.names) and members[0][0] in ARGUMENTS:
        text = members[0][1].as_json(None)
        inner = members_within(read_json(text), text)
        members = members if inner is None else _valued(inner)
    arguments: dict[str, str] = {}
    for key, value in members:
        if key not in known.names:
            raise NoCall(name)
        text = value.as_json(known.of(key))
        if arguments.setdefault(key, text) != text:
            raise NoCall(name)
    return arguments
