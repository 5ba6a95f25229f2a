"""Sets of markers as regex patterns, without overlaps, and the beginnings of answers that are calls as a whole.

Of two markers that may overlap in a text (`]~b]` with itself, `functools[` and `[INST]`) one is shortened, and a marker
that contains another is left out: breaking a part of a marker breaks the marker. Without overlaps, escapes can be
undone from left to right with a bounded look-ahead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from typing import Any, Final

from ...scan._grammar import SPACE, BlockSyntax, Grammar
from ...scan._plan import NAMED

TAIL_CHARS: Final = 1024
"""How many characters after the first one are examined at the beginning of an answer."""
STEP_CHARS: Final = 64 * 1024
"""Characters examined per regex call: a call holds the interpreter lock, so longer ones would block other threads."""

_SPACES: Final = re.compile(f"[{SPACE}]*+")
_RUN: Final = re.compile(r"\\*+")
_NAME: Final = r"[\w.\-\x80-\U0010ffff]"
LAST: Final = "\x80"
"""Represents all non-ASCII characters in `CallBeginnings.firsts`, the possible first characters of answers."""
_NAMED: Final = (*NAMED.decode("latin-1")[0x80:], LAST)
"""The characters of a `name` field."""
_ANY_NAME: Final = ""


class MarkerSet:
    """Markers that may occur anywhere in a text, and (from `begins`) the beginnings of whole answers.

    Patterns are compiled on first use: most texts contain few of the characters that markers begin with.
    """

    def __init__(self, markers: Iterable[str], begins: Grammar | None = None) -> None:
        self.words = distinct(markers)
        self.longest = max(map(len, self.words), default=0)
        self.rests: Mapping[str, frozenset[str]] = _by_first(self.words)
        """The markers without their first character, grouped by it."""
        self.beginnings = CallBeginnings(begins, self)
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._shown: dict[str, re.Pattern[str]] = {}

    def shown(self, first: str) -> re.Pattern[str]:
        """Returns a pattern that finds unescaped markers with this first character. Its group is the rest of the
        marker."""
        known = self._shown.get(first)
        if known is not None:
            return known
        # A marker of one character counts as escaped if backslashes follow it.
        behind = r"(?!\\)" if "" in self.rests[first] else ""
        known = self._shown[first] = self._pattern(f"{re.escape(first)}{behind}(", ")", first)
        return known

    def rest(self, first: str) -> re.Pattern[str]:
        """Returns a pattern for the rest of a marker with this first character."""
        return self._pattern("", "", first)

    @property
    def escaped(self) -> re.Pattern[str]:
        """A pattern that finds text that looks like an escaped marker: a backslash directly before the rest of a marker
        (the marker without its first character)."""
        return self._pattern(r"\\(?!\\)(?=", ")", *self.rests)

    def _pattern(self, before: str, behind: str, *firsts: str) -> re.Pattern[str]:
        known = self._patterns.get(before + "".join(firsts))
        if known is None:
            tree = any_of(rest for first in firsts for rest in self.rests[first])
            known = self._patterns[before + "".join(firsts)] = re.compile(before + tree + behind)
        return known

    def among(self, markers: Iterable[str]) -> frozenset[str]:
        """Returns the markers of this set that are contained in one of these markers."""
        return frozenset(word for marker in markers for word in self.words if word in marker)

    @cached_property
    def parts(self) -> Mapping[str, frozenset[str]]:
        """All proper prefixes of markers without their first character, grouped by that character."""
        return {
            first: frozenset(rest[:size] for rest in rests for size in range(1, len(rest)))
            for first, rests in self.rests.items()
        }


def _by_first(words: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Returns the words without their first character, grouped by it."""
    rests: dict[str, set[str]] = {}
    for word in words:
        rests.setdefault(word[0], set()).add(word[1:])
    return {first: frozenset(found) for first, found in rests.items()}


def distinct(markers: Iterable[str]) -> tuple[str, ...]:
    """Returns markers that never overlap, such that a text without them contains none of the given ones. Whitespace at
    their ends is removed, except a leading line end, because joined texts may add whitespace. Backslashes are removed
    because they are the escape."""
    words = {max(map(_without_space, marker.split("\\")), key=len) for marker in markers} - {""}
    while True:
        begun = {word[:size] for word in words for size in range(1, len(word) + 1)}
        shorter: set[str] = set()
        last = ""
        for word in sorted(words):  # those that begin like another one follow it
            if last and word.startswith(last):
                continue
            last = word
            if left := _left_of(word, words, begun):
                shorter.add(word[:left])
        if shorter == words:
            return tuple(sorted(words))
        words = shorter


def _without_space(part: str) -> str:
    word = part.strip()
    return f"\n{word}" if word and part.startswith("\n") else word


def _left_of(word: str, words: Set[str], begun: Set[str]) -> int:
    """Returns how much of `word` remains before the possible beginning of another one of `words`; 0 if it contains a
    whole one. `begun` are all prefixes of the words."""
    for at in range(1, len(word)):
        if word[at] not in begun:
            continue
        for end in range(at + 1, len(word) + 1):
            if word[at:end] in words:
                return 0
            if word[at:end] not in begun:
                break
        else:
            return at
    return len(word)


def any_of(words: Iterable[str]) -> str:
    """Returns a pattern that finds any of these words: a tree, so its cost does not depend on their number. Of a word
    and its prefix, only the prefix is matched."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _branches(tree) if tree else "(?!)"


def _branches(node: Mapping[str, Any]) -> str:
    text = ""
    while len(node) == 1 and "" not in node:
        ((char, node),) = node.items()
        text += re.escape(char)
    if "" in node:
        return text
    return f"{text}(?:{'|'.join(re.escape(char) + _branches(inner) for char, inner in node.items())})"


class CallBeginnings:
    """Beginnings of an answer that is a call as a whole: `{"name"`, `[f(`. There the first character is a marker.

    It gets a backslash after it, and one more if it already looks escaped, but only at the beginning of a text or of a
    JSON string.
    """

    def __init__(self, grammar: Grammar | None, markers: MarkerSet) -> None:
        tails: dict[str, list[tuple[str, str]]] = {}
        for syntax in () if grammar is None else grammar.syntaxes:
            for first, need, fill in _tails(syntax, markers.words):
                for char in _NAMED if first == _ANY_NAME else (first,):
                    tails.setdefault(char, []).append((need, fill))
        # Patterns for the required continuation, and for text that may fill the examined part before it.
        self._tails = {
            first: (re.compile("|".join(need for need, _ in found)), re.compile("|".join(fill for _, fill in found)))
            for first, found in tails.items()
        }
        self._markers = markers
        self.firsts = frozenset(tails)

    def starts(self, char: str) -> str:
        """Returns the element of `firsts` that `char` belongs to, or ""."""
        char = min(char, LAST)
        return char if char in self.firsts else ""

    def begins(self, first: str, tail: str) -> bool:
        """Returns True if `first` and `tail` (of which `TAIL_CHARS` are enough) would begin a call without the
        backslashes between them."""
        if first in self._markers.rests and self._markers.rest(first).match(tail):
            return False  # that is a marker anywhere, and escaped as such
        need, fill = self._tails[self.starts(first)]
        return bool(need.match(tail)) or (len(tail) >= TAIL_CHARS and bool(fill.fullmatch(tail, 0, TAIL_CHARS)))

    def escaped(self, text: str, *, bare: bool, more: str = "") -> str:
        """Returns `text` with one more backslash if it begins like a call; if it has none yet, only with `bare`. `more`
        is the text that follows it."""
        if not self.firsts:
            return text
        first, end = self._found(text, more)
        return f"{text[:end]}\\{text[end:]}" if end and (bare or end > first + 1) else text

    def restored(self, text: str) -> str:
        """Returns the original of an escaped text; the inverse of `escaped`."""
        if not self.firsts:
            return text
        first, end = self._found(text)
        return text[: end - 1] + text[end:] if end > first + 1 else text

    def form(self, escaped: str, more: str = "") -> tuple[str, int, None]:
        """Returns the form of an escaped beginning: its first character and the number of backslashes."""
        first, end = self._found(escaped, more)
        return escaped[first], end - first - 1, None

    def _found(self, text: str, more: str = "") -> tuple[int, int]:
        """Returns the position of the first character and the end of the backslashes after it (0 if the text begins
        otherwise)."""
        first = _skip(_SPACES, text, 0)
        if not self.starts(text[first : first + 1]):
            return first, 0
        end = _skip(_RUN, text, first + 1)
        tail = text[end : end + TAIL_CHARS]
        return first, end if self.begins(text[first], (tail + more)[:TAIL_CHARS]) else 0


def is_blank(text: str) -> bool:
    """Returns True if the text is only whitespace."""
    return _skip(_SPACES, text, 0) == len(text)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Returns the end of the text that `pattern` matches from `at`, in bounded steps."""
    while (found := pattern.match(text, at, at + STEP_CHARS)) and found.end() == at + STEP_CHARS:
        at = found.end()
    return found.end() if found else at


def _tails(syntax: BlockSyntax, words: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yields the first characters of a call that is a whole answer, each with two patterns: the required continuation,
    and text that may fill the examined part before it. Calls with one of `words` in the continuation are left out: that
    is a marker anywhere."""
    space = f"[{SPACE}]*+"
    key = f'"(?:{"|".join(map(re.escape, syntax.first_keys))})"' if syntax.first_keys else '["}]'
    if syntax.opener:  # a marker at the beginning of lines, so also of the text
        if f"\n{syntax.opener}" in words:
            yield syntax.opener[0], re.escape(syntax.opener[1:]), r"(?!)"
        return
    for branch in syntax.nodes[0]:
        if branch.literal:
            if not syntax.untaught and not any(word in branch.literal for word in words):
                yield branch.literal[0], re.escape(branch.literal[1:]), r"(?!)"
        elif branch.read == "name":
            behind = [
                other.literal or "{" for other in syntax.nodes[branch.then]
            ]  # without a literal, only an object can follow a name
            if ends := [re.escape(text) for text in behind if not any(word in text for word in words)]:
                yield _ANY_NAME, rf"[\w\-.:/\x80-\U0010ffff]*+{space}(?:{'|'.join(ends)})", r"(?!)"  # `WORD_BYTES`
        elif branch.read == "object":
            yield "{", space + key, space
        elif branch.read == "array":
            yield "[", rf"{space}\{{{space}{key}", rf"{space}(?:\{{{space})?+"
        elif branch.read == "list":
            yield "[", rf"{space}(?:\{{|(?![\d.\-]){_NAME}++\()", rf"{space}{_NAME}*+"
        elif branch.read == "printed":  # without Python calls, whose names depend on the request
            key = f"(?:{key}|{key.replace(chr(34), chr(39))})"
            yield "{", space + key, space
            yield "[", rf"{space}(?:\{{{space}{key}|(?![\d.\-]){_NAME}++\()", rf"{space}(?:\{{{space}|{_NAME}*+)"
        elif branch.read == "braces":
            yield "{", "", r"(?!)"
