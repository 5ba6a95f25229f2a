"""Sets of markers: without overlaps, as patterns, and what may begin a whole answer.

Rule: of two markers that may overlap in a text (`]~b]` and itself, `functools[` and `[INST]`) one is made shorter, and
one that holds another is left out. To break a part of a marker is to break the marker; and where none overlaps, an
escape can be undone from left to right with a bounded look ahead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from typing import Any, Final

from toolwire.scan._grammar import SPACE, BlockSyntax, Grammar
from toolwire.scan._plan import NAMED

TAIL_CHARS: Final = 1024
"""How far behind its first character the beginning of an answer is looked at."""
STEP_CHARS: Final = 64 * 1024
"""Looked at by one call of the pattern engine: it holds the interpreter, so a thread could not help others."""

_SPACES: Final = re.compile(f"[{SPACE}]*+")
_RUN: Final = re.compile(r"\\*+")
_NAME: Final = r"[\w.\-\x80-\U0010ffff]"
LAST: Final = "\x80"
"""Of the characters with which answers begin the one that stands for all that are not ASCII."""
_NAMED: Final = (*NAMED.decode("latin-1")[0x80:], LAST)
"""The characters of a `name`."""
_ANY_NAME: Final = ""


class MarkerSet:
    """What would be taken for markup in a text: markers anywhere, and the beginnings of whole answers in `begins`.

    Patterns are made when they are first needed: most texts hold few of the characters that markers begin with.
    """

    def __init__(self, markers: Iterable[str], begins: Grammar | None = None) -> None:
        self.words = distinct(markers)
        self.longest = max(map(len, self.words), default=0)
        self.rests: Mapping[str, frozenset[str]] = _by_first(self.words)
        """The markers without their first character, by it."""
        self.beginnings = Beginnings(begins, self)
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._shown: dict[str, re.Pattern[str]] = {}

    def shown(self, first: str) -> re.Pattern[str]:
        """Finds markers with this first character; the group is the rest."""
        known = self._shown.get(first)
        if known is not None:
            return known
        # A marker of one character may also stand before backslashes.
        behind = r"(?!\\)" if "" in self.rests[first] else ""
        known = self._shown[first] = self._pattern(f"{re.escape(first)}{behind}(", ")", first)
        return known

    def rest(self, first: str) -> re.Pattern[str]:
        """Matches the rest of a marker with this first character."""
        return self._pattern("", "", first)

    @property
    def escaped(self) -> re.Pattern[str]:
        """Finds the last of the backslashes before what may be the rest of a marker."""
        return self._pattern(r"\\(?!\\)(?=", ")", *self.rests)

    def _pattern(self, before: str, behind: str, *firsts: str) -> re.Pattern[str]:
        known = self._patterns.get(before + "".join(firsts))
        if known is None:
            tree = any_of(rest for first in firsts for rest in self.rests[first])
            known = self._patterns[before + "".join(firsts)] = re.compile(before + tree + behind)
        return known

    def among(self, markers: Iterable[str]) -> frozenset[str]:
        """Those of this set that stand in these markers."""
        return frozenset(word for marker in markers for word in self.words if word in marker)

    @cached_property
    def parts(self) -> Mapping[str, frozenset[str]]:
        """How the rests may begin, the whole left out."""
        return {
            first: frozenset(rest[:size] for rest in rests for size in range(1, len(rest)))
            for first, rests in self.rests.items()
        }


def _by_first(words: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The rests of the words, by their first characters."""
    rests: dict[str, set[str]] = {}
    for word in words:
        rests.setdefault(word[0], set()).add(word[1:])
    return {first: frozenset(found) for first, found in rests.items()}


def distinct(markers: Iterable[str]) -> tuple[str, ...]:
    """Markers that never overlap, such that a text without them holds none of those given. Whitespace at their ends is
    not part of them, but for a line end at the beginning: where texts are joined it may be anybody's. Nor are
    backslashes, since those are the escape."""
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
    """How much of `word` is left without what may be the beginning of another one of `words`; nothing if it holds a
    whole one. `begun`: how they begin, all their prefixes."""
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
    """A pattern for each of these and whatever begins like one: a tree, so that its cost does not grow with their
    number."""
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


class Beginnings:
    """How an answer may begin that is a call as a whole: `{"name"`, `[f(`. There the first character is a marker.

    Such a text gets a backslash behind it, and one that already looks so one more, as everywhere; but only at the
    beginning of a text or of a JSON string.
    """

    def __init__(self, grammar: Grammar | None, markers: MarkerSet) -> None:
        tails: dict[str, list[tuple[str, str]]] = {}
        for syntax in () if grammar is None else grammar.syntaxes:
            for first, need, fill in _tails(syntax, markers.words):
                for char in _NAMED if first == _ANY_NAME else (first,):
                    tails.setdefault(char, []).append((need, fill))
        # What must be there, and what may fill all that is looked at.
        self._tails = {
            first: (re.compile("|".join(need for need, _ in found)), re.compile("|".join(fill for _, fill in found)))
            for first, found in tails.items()
        }
        self._markers = markers
        self.firsts = frozenset(tails)

    def starts(self, char: str) -> str:
        """What `char` stands for in `firsts`; nothing if none begins with it."""
        char = min(char, LAST)
        return char if char in self.firsts else ""

    def begins(self, first: str, tail: str) -> bool:
        """Whether a text that begins with `first`, any number of backslashes, and `tail` (`TAIL_CHARS` of it are
        enough) would begin a call without the backslashes."""
        if first in self._markers.rests and self._markers.rest(first).match(tail):
            return False  # that is a marker anywhere, and escaped as such
        need, fill = self._tails[self.starts(first)]
        return bool(need.match(tail)) or (len(tail) >= TAIL_CHARS and bool(fill.fullmatch(tail, 0, TAIL_CHARS)))

    def escaped(self, text: str, *, bare: bool, more: str = "") -> str:
        """`text` with one backslash more if it begins so; where it has none only if `bare`. `more` comes behind it."""
        if not self.firsts:
            return text
        first, end = self._found(text, more)
        return f"{text[:end]}\\{text[end:]}" if end and (bare or end > first + 1) else text

    def restored(self, text: str) -> str:
        """The inverse of `escaped`."""
        if not self.firsts:
            return text
        first, end = self._found(text)
        return text[: end - 1] + text[end:] if end > first + 1 else text

    def form(self, escaped: str, more: str = "") -> tuple[str, int, None]:
        """How the beginning of an escaped text looks: its first character, how many backslashes follow."""
        first, end = self._found(escaped, more)
        return escaped[first], end - first - 1, None

    def _found(self, text: str, more: str = "") -> tuple[int, int]:
        """Where the first character stands, and where the backslashes behind it end; 0 if the text begins otherwise."""
        first = _skip(_SPACES, text, 0)
        if not self.starts(text[first : first + 1]):
            return first, 0
        end = _skip(_RUN, text, first + 1)
        tail = text[end : end + TAIL_CHARS]
        return first, end if self.begins(text[first], (tail + more)[:TAIL_CHARS]) else 0


def is_blank(text: str) -> bool:
    """Nothing but whitespace."""
    return _skip(_SPACES, text, 0) == len(text)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    """The end of what `pattern` takes, step by step."""
    while (found := pattern.match(text, at, at + STEP_CHARS)) and found.end() == at + STEP_CHARS:
        at = found.end()
    return found.end() if found else at


def _tails(syntax: BlockSyntax, words: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """First characters of a call that is a whole answer, each with patterns for what must follow, and for what may fill
    all that is looked at before that comes. Not where one of `words` has to stand in it: that is a marker anywhere."""
    space = f"[{SPACE}]*+"
    key = f'"(?:{"|".join(map(re.escape, syntax.first_keys))})"' if syntax.first_keys else '["}]'
    if syntax.opener:  # a marker at the beginning of lines: of the first one, too
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
            ]  # an object: a name has nothing else behind it
            if ends := [re.escape(text) for text in behind if not any(word in text for word in words)]:
                yield _ANY_NAME, rf"[\w\-.:/\x80-\U0010ffff]*+{space}(?:{'|'.join(ends)})", r"(?!)"  # `WORD_BYTES`
        elif branch.read == "object":
            yield "{", space + key, space
        elif branch.read == "array":
            yield "[", rf"{space}\{{{space}{key}", rf"{space}(?:\{{{space})?+"
        elif branch.read == "list":
            yield "[", rf"{space}(?:\{{|(?![\d.\-]){_NAME}++\()", rf"{space}{_NAME}*+"
        elif branch.read == "printed":  # not calls in Python: the names are the request's
            key = f"(?:{key}|{key.replace(chr(34), chr(39))})"
            yield "{", space + key, space
            yield "[", rf"{space}(?:\{{{space}{key}|(?![\d.\-]){_NAME}++\()", rf"{space}(?:\{{{space}|{_NAME}*+)"
        elif branch.read == "braces":
            yield "{", "", r"(?!)"
