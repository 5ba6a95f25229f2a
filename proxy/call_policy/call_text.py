"""A cursor over the text of calls: skips the framing around calls and finds names of tools (R30.1)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ..scan._grammar import FENCE, SPACE
from .call_words import (
    A_WORD,
    BEHIND_NAME,
    CALLISH,
    CLOSERS,
    FENCE_LINE,
    LABEL,
    NAME_ATTRIBUTES,
    NO_FRAMING,
    NUMBERED,
    OBJECT,
    PUNCTUATION,
    STOP_TOKENS,
    UNCLOSED_TAG,
    ends_call,
    is_framing,
    past_space,
)
from .markup import Tag, tag_at
from .written import WrittenCall

OPENED: Final = (("<|open|>", "<"), ("<|close|>", "</"), ("<|sep|>", ">"))
"""Tokens that some templates write instead of the brackets of tags."""


class CallText:
    """The text of calls with a read position, `at`. `names` are the tools that may be called."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        while (end := text.rstrip(SPACE)).endswith(STOP_TOKENS):
            text = end[: end.rindex("<")]
        self.opened = "<|sep|>" in text  # brackets are tokens of their own
        if self.opened:
            for token, bracket in OPENED:
                text = text.replace(token, bracket)
        self.text = text
        self.at = 0
        self._names = names
        self._marked = False  # a tag of tools or calls has been read
        self._labelled = False  # a word such as `call:` has been read
        self._tag: Tag | None = None  # the tag with the last name
        self._calls_read: list[WrittenCall] = []

    def _at_end(self) -> bool:
        """Returns True if only closers follow; moves past them."""
        while self.at < len(self.text):
            closers = CLOSERS.match(self.text, self.at)
            if closers is not None:
                self.at = closers.end()
                continue
            tag = tag_at(self.text, self.at)
            if tag is None or not self._calls_read or self._name_of(tag) is not None:
                return False
            if not (self._is_closer(tag) or tag.special):
                return False
            self.at = tag.end
        return True

    # --- framing and names ------------------------------------------------------------------------------------------

    def _skip_framing(self) -> bool:
        """Moves past the framing around calls. Returns whether there was any."""
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "{[" and self._begins_object():
                break
            if UNCLOSED_TAG.match(self.text, self.at):
                break
            if fence := FENCE_LINE.match(self.text, self.at):
                self.at = fence.end()
                continue
            tag = tag_at(self.text, self.at)
            if tag is not None:
                if self._name_of(tag) is not None or not (self._is_closer(tag) or is_framing(tag)):
                    break
                self._marked = self._marked or CALLISH.search(tag.word) is not None
                self.at = tag.end
                continue
            if char in "<‹":
                break
            if punctuation := PUNCTUATION.match(self.text, self.at):
                self.at = punctuation.end()
                continue
            if char == "[":
                self.at += 1
                continue
            word = A_WORD.match(self.text, self.at)
            if word is not None and self._named(word[0]) is not None:
                break
            label = LABEL.match(self.text, self.at)
            if label is None:
                break
            self._labelled = self._labelled or CALLISH.search(label[0].lower()) is not None
            self.at = label.end()
        return self.at > start

    def _is_closer(self, tag: Tag) -> bool:
        """Returns True for a closing tag. The closing tag of a result counts only after the opener of a call: otherwise
        the text before it is a result. Behind a fence only those of calls and answers count: others close the document
        around it."""
        at = tag.start
        while at and self.text[at - 1] in SPACE:
            at -= 1
        if self.text.endswith(FENCE, 0, at) and tag.word != "answer" and not ends_call(tag):
            return False
        return tag.closing and (self._marked or NO_FRAMING.search(tag.word) is None)

    def _begins_object(self) -> bool:
        """Returns True if an object, or a list of objects, begins here."""
        text, at = self.text, self.at
        if text[at] == "[":
            at = past_space(text, at + 1)
        return OBJECT.match(text, at) is not None

    def _named(self, written: str) -> str | None:
        """Returns the tool that a written name means (index, quotes and namespace ignored), or None."""
        if written in self._names:
            return written
        plain = NUMBERED.sub("", written.partition("<")[0].strip(" \"'")).removesuffix(":")
        if plain in self._names:
            return plain
        for separator in (":", ".", "/"):
            last = plain.rpartition(separator)[2]
            if last in self._names:
                return last
        return None

    def _name_of(self, tag: Tag) -> str | None:
        """Returns the tool that a tag names, or None."""
        if tag.closing or NO_FRAMING.search(tag.word):
            return None
        written = [tag.inline] if tag.inline is not None else []
        written += [tag.attributes[key] for key in NAME_ATTRIBUTES if key in tag.attributes]
        for name in written:
            if (found := self._named(name)) is not None:
                return found
        return self._named(tag.written) if tag.inline is None and not written else None

    def _name(self) -> str | None:
        """Reads the name of a tool, in a tag or as a word, and moves past it. Returns None if there is none."""
        unclosed = UNCLOSED_TAG.match(self.text, self.at)
        if unclosed is not None and (name := self._named(unclosed[1])) is not None:
            self._tag, self._marked, self.at = None, True, unclosed.end()
            return name
        tag = tag_at(self.text, self.at)
        if tag is not None:
            name = self._name_of(tag)
            if name is None:
                return None
            self._tag = tag
            if tag.attributes and self._named(tag.written) and not self._marked:
                return None  # an ordinary XML element with attributes
            self._marked = self._marked or self._named(tag.written) is None
            self.at = tag.end
            return name
        word = A_WORD.match(self.text, self.at)
        if word is None:
            return None
        self._tag = None
        written = word[0]
        while written and self._named(written) is None and written[-1] not in ".:/":
            cut = max(written.rfind(separator) for separator in ":./")
            if cut < 0:
                return None
            written = written[:cut]
        name = self._named(written)
        if name is not None:
            self.at = word.start() + len(written)
            behind = BEHIND_NAME.match(self.text, self.at)
            self.at = self.at if behind is None else behind.end()
        return name
