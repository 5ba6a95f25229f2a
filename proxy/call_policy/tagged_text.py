"""Arguments in tags, in text of damaged and unknown forms (R30.1). The rules are those of `recovery.py`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..scan._grammar import SPACE
from .call_text import CallText
from .call_words import (
    BEGUN_PAIR,
    BOTH,
    CLOSERS,
    KEY,
    KEY_ATTRIBUTES,
    PAIR,
    PARAMETER,
    QUOTED_KEY,
    VALUE,
    WORD_BEFORE_TAG,
    closes,
    ends_call,
    is_framing,
    past_space,
    types_in,
    without_closers,
)
from .markup import Tag, next_tag, tag_at
from .tags import unframed
from .untyped import STRING, ParameterTypes, Types, typed_value


class NoCall(Exception):
    """The text contains no calls. `name` is the tool that it names in the place of a call, if any. `begun`: it starts
    with calls, but more text follows."""

    def __init__(self, name: str | None = None, *, begun: bool = False) -> None:
        super().__init__(name)
        self.name = name
        self.begun = begun


class TaggedArgumentsText(CallText):
    """Reads arguments in tags from a text of calls in damaged or unknown forms."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        super().__init__(text, names)
        self._ended = False  # a tag that closes the call follows its arguments
        self._valued = False  # the last value ended at its own closing tag

    def _in_tags(self, name: str, known: ParameterTypes, found: dict[str, str]) -> bool:
        """Reads arguments in tags into `found`. Returns whether there are any."""
        key: str | None = None
        self._ended = self._valued = False
        while True:
            at = past_space(self.text, self.at)
            tag = tag_at(self.text, at)
            if tag is None and key is not None:
                unopened = next_tag(self.text, at)
                if unopened is None or not unopened.closing or unopened.word not in VALUE:
                    break  # the value has neither an opening nor a closing tag
                opener = replace(unopened, start=self.at, end=self.at)
                self._put(found, key, self._value(opener, known, found, key), None, known, name)
                key = None
                continue
            if tag is None:
                word = WORD_BEFORE_TAG.match(self.text, self.at)
                if word is None or word[1] not in known.names:
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
                written = tag.attributes.get("value")
                if written is None:
                    written = self._value(tag, known, found, declared)
                else:
                    self.at = tag.end
                    self._valued = True
                self._put(found, declared, written, types_in(tag), known, name)
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
        """Returns True if a closing tag closes a call, not just a value."""
        return tag.word not in BOTH and (ends_call(tag) or self._named(tag.written) is not None)

    def _must_be_whole(self, name: str, known: ParameterTypes, found: Collection[str]) -> None:
        """Raises `NoCall` if the call may be incomplete (rule 5)."""
        if set(known.names) <= set(found):
            return
        closed = False
        while self.at < len(self.text):
            start = self.at
            tag = tag_at(self.text, self.at)
            if tag is not None and self._is_closer(tag):
                closed = closed or self._closes_call(tag)
                self.at = tag.end
            elif closers := CLOSERS.match(self.text, self.at):
                self.at = closers.end()
            if self.at == start:
                break
        if not (closed or self._ended or self._valued) and self.at == len(self.text):
            raise NoCall(name)

    def _key_of(self, tag: Tag, known: ParameterTypes) -> str | None:
        """Returns the property whose value the tag opens, or None."""
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
        """Returns the value after its opening tag and moves past its end. Raises `NoCall` if its end is not certain."""
        text, start = self.text, opener.end
        doubled = text[opener.start : opener.end]
        while doubled and text.startswith(doubled, start):
            behind = tag_at(text, past_space(text, start + len(doubled)))
            if behind is not None and closes(behind, opener, key):
                break  # the second tag is the value
            start += len(doubled)
        if text.startswith(">", start) and self.opened:
            raise NoCall  # a repeated token
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
                    raise NoCall  # the tag may be part of the value
                continue
            closers = CLOSERS.match(text, tag.end)
            if own and closers is not None and ('"' in closers[0] or "'" in closers[0]):
                raise NoCall  # the tag may be quoted in the value
            behind = tag_at(text, past_space(text, tag.end))
            if tag.closing and behind is not None and closes(behind, opener, key):
                if own:
                    raise NoCall  # the first of two closing tags may be part of the value
                continue
            self.at = tag.end if own else tag.start
            self._valued = own
            value = text[start : tag.start].removesuffix(f"{opener.written}>")
            value = value if own else without_closers(value, key)
            return unframed(value) if value.startswith("\n") or not own else value
        raise NoCall

    def _may_follow(self, at: int, known: ParameterTypes) -> bool:
        """Returns True if the text at `at` may follow a value: a closing tag, a tag of a call or property, or the
        end."""
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
        """Returns text without a key as the value of the only property that takes it, or None."""
        required = [key for key in known.names if key in known.required] or [*known.names]
        if len(required) != 1 or not self._marked:
            return None
        types = known.of(required[0])
        end = self._end_of_text(known)
        if end is None:
            return None
        value = self.text[self.at : end.start]
        value = value.strip("\n") if value.startswith("\n") else value.strip(SPACE)
        if not value.strip(SPACE) or (types is not None and types != STRING and "string" in types):
            return None
        if value.startswith((">", '"', "'", "=", ":", ")", ",")) or self._holds_key(value, known):
            return None  # the rest of a tag, or of an object
        self._end_at(end)
        return {required[0]: typed_value(value, types)}

    def _in_pairs(self, known: ParameterTypes) -> dict[str, str] | None:
        """Returns arguments that are written `key=value`, each value in quotes or without a space; or None."""
        end = self._end_of_text(known) if self._marked else None
        if end is None:
            return None
        found: dict[str, str] = {}
        at = past_space(self.text, self.at)
        while at < end.start:
            pair = PAIR.match(self.text, at, end.start)
            if pair is None or pair[1] not in known.names or pair[1] in found:
                return None
            value = next(part for part in pair.groups()[1:] if part is not None)
            found[pair[1]] = typed_value(value, known.of(pair[1]))
            at = pair.end()
        self._end_at(end)
        return found

    def _end_of_text(self, known: ParameterTypes) -> Tag | None:
        """Returns the closing tag of a call or value that ends the text here, or None."""
        at = self.at
        if tag_at(self.text, past_space(self.text, at)) is not None:
            return None
        while (tag := next_tag(self.text, at)) is not None:
            if tag.closing and (ends_call(tag) or tag.word in VALUE) and self._may_follow(tag.end, known):
                return tag
            at = tag.start + 1
        return None

    def _end_at(self, end: Tag) -> None:
        self.at = end.end
        self._ended = end.word not in BOTH | VALUE

    def _holds_key(self, value: str, known: ParameterTypes) -> bool:
        """Returns True if a text assigns values to properties by itself."""
        begun = BEGUN_PAIR.match(value)
        if begun is not None and begun[1] in known.names:
            return True
        if any(key[1] in known.names for key in QUOTED_KEY.finditer(value)):
            return True
        at = 0
        while (tag := next_tag(value, at)) is not None:
            if self._key_of(tag, known) is not None or tag.word in PARAMETER | VALUE:
                return True
            at = tag.start + 1
        return False
