"""Calls in damaged and unknown forms: a text is taken apart into names, keys and values (R30.1).

Rules of this module:

1. The text is calls from where it begins to its end: between and behind them stands framing only, which is tags of
   tools and calls, tags that close something, special tokens, fences and brackets. Any other word makes it text.
2. A name is exactly that of a tool that may be called, perhaps behind a namespace, and stands where names stand: in a
   tag, in a member of an object, or right behind a tag or the word `call:`.
3. Keys are declared properties of the tool. Each has one value; a key that is not declared, or comes twice with
   different values, makes all of it text.
4. A value ends where its closing tag stands, if what follows may follow a value; else where the tag of a property that
   has no value yet, or the end of the call, shows that its closing tag is missing.
5. Where arguments stand in tags and nothing closes the call, it is one only if all properties have values, or another
   call follows: else more of them may have been to come.
6. Text without a key is the value of the only property that takes it: the one that is required, or the only one.
7. Dots and words between angle brackets that stand for a value are no values: they explain a form.

Whether the arguments fit is for the caller to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from toolwire.call_policy.call_text import CallText
from toolwire.call_policy.call_words import (
    BEFORE_ARGUMENTS,
    BEFORE_OBJECT,
    BOTH,
    CLOSERS,
    FENCE_LINE,
    KEY,
    KEY_ATTRIBUTES,
    LINE,
    OTHER_ATTRIBUTES,
    PARAMETER,
    QUOTED_KEY,
    VALUE,
    WORD_BEFORE_TAG,
    closes,
    dumps,
    ends_call,
    explains,
    from_text,
    is_framing,
    past_space,
    types_in,
)
from toolwire.call_policy.json_calls import TextArguments
from toolwire.call_policy.markup import Tag, Unreadable, Value, next_tag, read_json_like, read_members, tag_at
from toolwire.call_policy.tags import unframed
from toolwire.call_policy.untyped import STRING, ParameterTypes, Types, typed_value
from toolwire.call_policy.written import Written, object_text
from toolwire.formats.engine.keys import ARGUMENTS, METADATA, NAMES, WRAPPERS
from toolwire.repair.repair import MAX_REPAIRED_VALUES, has_more_values
from toolwire.scan._grammar import FENCE, SPACE

MAX_STARTS: Final = 4
"""How many lines of a text are tried as the first one of its calls."""

MAX_CALLS: Final = 64
"""Names of tools that are read in one text, as places of calls."""


TypesOf = Callable[[str], ParameterTypes]


class NoCall(Exception):
    """The text is none. `name` is that of the tool which it names in the place of a call, if it does. `begun`: calls
    stand before what makes it text."""

    def __init__(self, name: str | None = None, *, begun: bool = False) -> None:
        super().__init__(name)
        self.name = name
        self.begun = begun


@dataclass(slots=True)
class Recovered:
    """The calls of a text, and how many characters of text stand before them."""

    before: int
    calls: list[Written]


def recover(text: str, names: Collection[str], types_of: TypesOf) -> Recovered:
    """The calls that `text` ends with, which begin at its start or at a further line of it. `names` may be called,
    `types_of` says what each takes. Raises `NoCall`."""
    named: str | None = None
    if has_more_values(text, MAX_REPAIRED_VALUES):  # it would be read many times
        raise NoCall
    for start in _starts(text):
        try:
            calls = _Reading(text[start:], names, types_of).calls()
        except NoCall as none:
            named = named or none.name
            if none.begun:
                break
        else:
            return Recovered(start, calls)
    raise NoCall(named)


def _starts(text: str) -> Iterator[int]:
    """The start of the text, and of the next lines outside of fences that may begin a call."""
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


class _Reading(CallText):
    """Reads one text. `at` is where."""

    def __init__(self, text: str, names: Collection[str], types_of: TypesOf) -> None:
        super().__init__(text, names)
        self._types_of = types_of
        self._ended = False  # a tag that closes the call stands behind its arguments

    def calls(self) -> list[Written]:
        """All calls of the text. Raises `NoCall` and `Unreadable`."""
        named: str | None = None
        count = done = 0
        try:
            while not self._at_end():
                if self._skip_framing():
                    continue
                before = len(self._found)
                if not self._objects():
                    name = self._name()
                    count += 1
                    if name is None or count > MAX_CALLS:
                        raise NoCall(named)
                    named = name
                    arguments = self._arguments(name)
                    if arguments is not None:
                        self._found.append(self._written(name, arguments))
                if len(self._found) == before + 1:
                    self._found[before].source = self.text[done : self.at].strip(SPACE)
                if len(self._found) > before:
                    done = self.at
        except (NoCall, Unreadable):
            raise NoCall(named, begun=bool(self._found)) from None
        if not self._found:
            raise NoCall(named)
        if len(self._found) == 1:
            self._found[0].source = None
        return self._found

    # --- arguments --------------------------------------------------------------------------------------------------

    def _arguments(self, name: str) -> dict[str, str] | None:
        """The arguments of a call, as JSON texts; None if the name is repeated by what follows."""
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
                return self._in_brackets(name, known)
            self.at = start
        if self._in_tags(name, known, found):
            self._must_be_whole(name, known, found)
            return found
        self.at = start
        if not found and (only := self._only_value(known)) is not None:
            self._must_be_whole(name, known, only)
            return only
        if not found:
            return self._none(name, known)
        return found

    def _skip_before_arguments(self) -> None:
        """Pass what may stand between a name and an object."""
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
        """Arguments in an object, or between parentheses."""
        if self.text[self.at] == "(":
            inner = past_space(self.text, self.at + 1)
            if self.text[inner : inner + 1] == "{":
                self.at = inner
        members, self.at = read_members(self.text, self.at, known.names)
        return _settled(members, known, name)

    def _in_tags(self, name: str, known: ParameterTypes, found: dict[str, str]) -> bool:
        """Arguments in tags, put into `found`; whether there were some."""
        key: str | None = None
        self._ended = False
        while True:
            at = past_space(self.text, self.at)
            tag = tag_at(self.text, at)
            if tag is None:
                word = WORD_BEFORE_TAG.match(self.text, self.at)
                if key is not None or word is None or word[1] not in known.names:
                    break
                behind = tag_at(self.text, word.end())
                if behind is None or (behind.word not in KEY | VALUE and not behind.closing):
                    break
                key, self.at = word[1], behind.end if behind.closing else word.end()
                continue
            if tag.closing:
                self._ended = self._ended or self._closes_call(tag)
                self.at = tag.end
                continue
            if key is None and self._name_of(tag) is not None and self._key_of(tag, known) is None:
                break
            declared = self._key_of(tag, known)
            if declared is not None and key is None:
                types = types_in(tag)
                self._put(found, declared, self._value(tag, known, found, declared), types, known, name)
                continue
            if tag.word in VALUE and key is not None:
                self._put(found, key, self._value(tag, known, found, key), types_in(tag), known, name)
                key = None
                continue
            if tag.word in PARAMETER and (tag.inline or any(k in tag.attributes for k in KEY_ATTRIBUTES)):
                raise NoCall(name)  # a key that is not declared
            if tag.word in KEY:
                word = WORD_BEFORE_TAG.match(self.text, tag.end)
                if word is None or word[1] not in known.names:
                    raise NoCall(name)
                self.at = tag.end
                continue
            if not is_framing(tag):
                break
            self.at = tag.end
        if key is not None:
            raise NoCall(name)
        return bool(found)

    def _closes_call(self, tag: Tag) -> bool:
        """Whether a closing tag is that of a call, not that of a value."""
        return tag.word not in BOTH and (ends_call(tag) or self._named(tag.written) is not None)

    def _must_be_whole(self, name: str, known: ParameterTypes, found: Collection[str]) -> None:
        """Raise `NoCall` if more arguments may have been to come (rule 5)."""
        if set(known.names) <= set(found):
            return
        closed = False
        while self.at < len(self.text):
            start = self.at
            tag = tag_at(self.text, self.at)
            if tag is not None and tag.closing:
                closed = closed or self._closes_call(tag)
                self.at = tag.end
            elif closers := CLOSERS.match(self.text, self.at):
                self.at = closers.end()
            if self.at == start:
                break
        if not closed and self.at == len(self.text) and not self._ended:
            raise NoCall(name)

    def _key_of(self, tag: Tag, known: ParameterTypes) -> str | None:
        """The property whose value the tag opens."""
        names = known.names
        keys = [tag.inline] if tag.inline is not None else [tag.attributes.get(key) for key in KEY_ATTRIBUTES]
        for key in keys:
            if key is not None and key.strip() in names:
                return key.strip()
        if tag.inline is None and not tag.attributes and tag.written in names:
            return tag.written
        if tag.inline is None and tag.written in names and "type" in tag.attributes:
            return tag.written
        return None

    def _put(
        self, found: dict[str, str], key: str, value: str, types: Types | None, known: ParameterTypes, name: str
    ) -> None:
        text = typed_value(value, types or known.of(key))
        if found.setdefault(key, text) != text:
            raise NoCall(name)

    def _value(self, opener: Tag, known: ParameterTypes, found: Collection[str], key: str) -> str:
        """The value behind the tag that opens it; reading goes on behind its end."""
        text, start = self.text, opener.end
        while text.startswith(doubled := text[opener.start : opener.end], start):
            start += len(doubled)
        if text.startswith(">", start) and self.opened:
            raise NoCall  # a token stands there twice
        at = start
        while (tag := next_tag(text, at)) is not None:
            at = tag.start + 1
            own = closes(tag, opener, key)
            if tag.closing:
                ends = (own or ends_call(tag)) and self._may_follow(tag.end, known)
            else:
                other = self._key_of(tag, known)
                ends = tag.word in KEY or (other is not None and other != key and other not in found)
            if not ends:
                if own:
                    raise NoCall  # the value, or what stands behind it
                continue
            behind = tag_at(text, past_space(text, tag.end))
            if tag.closing and behind is not None and closes(behind, opener, key):
                if own:
                    raise NoCall  # this one may be part of the value
                continue
            self.at = tag.end if own else tag.start
            value = text[start : tag.start].removesuffix(f"{opener.written}>")
            return unframed(value) if value.startswith("\n") or not own else value
        raise NoCall

    def _may_follow(self, at: int, known: ParameterTypes) -> bool:
        """Whether what stands at `at` may follow a value: a tag of calls, of a property or one that closes; the end."""
        closers = CLOSERS.match(self.text, at)
        at = at if closers is None else closers.end()
        if at == len(self.text):
            return True
        tag = tag_at(self.text, at)
        if tag is not None:
            return tag.closing or is_framing(tag) or self._key_of(tag, known) is not None or bool(self._name_of(tag))
        word = WORD_BEFORE_TAG.match(self.text, at)
        return word is not None and (word[1] in known.names or self._named(word[1]) is not None)

    def _only_value(self, known: ParameterTypes) -> dict[str, str] | None:
        """Text without a key, for the only property that takes it."""
        required = [key for key in known.names if key in known.required] or [*known.names]
        if len(required) != 1 or not self._marked:
            return None
        types = known.of(required[0])
        text, start = self.text, self.at
        if tag_at(text, past_space(text, start)) is not None:
            return None
        at = start
        end = None
        while (tag := next_tag(text, at)) is not None:
            if tag.closing and (ends_call(tag) or tag.word in VALUE) and self._may_follow(tag.end, known):
                end = tag
                break
            at = tag.start + 1
        if end is None:
            return None
        value = text[start : end.start]
        value = value.strip("\n") if value.startswith("\n") else value.strip(SPACE)
        if not value.strip(SPACE) or (types is not None and types != STRING and "string" in types):
            return None
        if value.startswith((">", '"', "'", "=", ":")) or self._holds_key(value, known):
            return None  # the rest of a tag, or of an object
        self.at = end.end
        self._ended = end.word not in BOTH | VALUE
        return {required[0]: typed_value(value, types)}

    def _holds_key(self, value: str, known: ParameterTypes) -> bool:
        """Whether a text without a key says what belongs to which property."""
        if any(key[1] in known.names for key in QUOTED_KEY.finditer(value)):
            return True
        at = 0
        while (tag := next_tag(value, at)) is not None:
            if self._key_of(tag, known) is not None or tag.word in PARAMETER | VALUE:
                return True
            at = tag.start + 1
        return False

    def _none(self, name: str, known: ParameterTypes) -> dict[str, str] | None:
        """No arguments: framing follows, or the next call."""
        while not self._at_end() and self._skip_framing():
            pass
        if self.at < len(self.text):
            at = self.at
            again = self._name()
            self.at = at
            if again is None:
                raise NoCall(name)
            if again == name and (known.names or known.required):
                return None  # the header named it already
        if known.required or not self._marked:
            raise NoCall(name)
        return {}

    # --- whole calls as objects -------------------------------------------------------------------------------------

    def _objects(self) -> bool:
        """A call as an object, or a list of such, if one stands here."""
        if self.text[self.at] not in "{[" or not self._begins_object():
            return False
        text, self.at = read_json_like(self.text, self.at)
        value = json.loads(text)
        for item in value if isinstance(value, list) else [value]:
            self._object(item)
        return True

    def _object(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise NoCall
        for key in ("tool_calls", "calls", "function_calls"):
            if isinstance(value.get(key), list) and key not in NAMES:
                for item in value[key]:
                    self._object(item)
                return
        for wrapper in WRAPPERS:
            inner = value.get(wrapper)
            if isinstance(inner, dict):
                self._object({**{k: v for k, v in value.items() if k != wrapper}, **inner})
                return
        if len(value) == 1 and self._named(alone := next(iter(value))) is not None:
            value = {"name": alone, "arguments": value[alone]}
        names = {key: self._named(value[key]) for key in NAMES if isinstance(value.get(key), str)}
        key, name = next(((key, name) for key, name in names.items() if name is not None), ("", None))
        if name is None:
            raise NoCall
        rest = {other: item for other, item in value.items() if other != key}
        known = self._types_of(name)
        under = next((other for other in ARGUMENTS if other in rest), None)
        arguments = None if under is None else from_text(rest[under])
        if not isinstance(arguments, dict) or not arguments.keys() <= set(known.names):
            empty = under if under is not None and rest[under] in (None, "", "{}", {}) else None
            arguments = {
                other: item for other, item in rest.items() if other in known.names or other not in (*METADATA, empty)
            }
        members = [(key, Value(dumps(item))) for key, item in arguments.items()]
        self._found.append(self._written(name, _settled(members, known, name)))

    def _written(self, name: str, arguments: dict[str, str]) -> Written:
        if any(explains(text) for text in arguments.values()):
            raise NoCall
        if self.opened and any("<" in text or ">" in text for text in arguments.values()):
            raise NoCall  # perhaps one of the tokens
        return Written(name, TextArguments(object_text(arguments.items()), "object"))


def _settled(members: list[tuple[str, Value]], known: ParameterTypes, name: str) -> dict[str, str]:
    """Members as arguments. An object that holds all of them under one of the usual keys is unwrapped."""
    keys = {key for key, _ in members}
    if len(members) == 1 and not keys <= set(known.names) and members[0][0] in ARGUMENTS:
        value = from_text(json.loads(members[0][1].as_json(None)))
        if isinstance(value, dict):
            members = [(key, Value(dumps(item))) for key, item in value.items()]
    found: dict[str, str] = {}
    for key, value in members:
        if key not in known.names:
            raise NoCall(name)
        text = value.as_json(known.of(key))
        if found.setdefault(key, text) != text:
            raise NoCall(name)
    return found
