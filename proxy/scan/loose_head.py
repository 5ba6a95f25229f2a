"""The beginning of a text that may be a call in a damaged or unknown form (R30.1). Both scanners use this module: it
reads only the first bytes of such a text.

Rules of this module:

1. The text begins with a tag, a bracket, a fence, `call:` or the name of a tool, at the start of the answer or of a
   line, or where a block in a known form was not a call.
2. It is held back only while nothing but tags, brackets and a small vocabulary precedes the name of a tool; then, if
   the name stands where names stand, to the end of the answer. Anything else is text at once, also reasoning tags: a
   call before the end of reasoning belongs to the reasoning.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from codecs import getincrementaldecoder
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from ._grammar import SPACE

HEAD_CHARS: Final = 320
"""A text can be a damaged call only if a tool's name occurs within this many characters."""

TAG_WORDS: Final = 4
"""Maximum number of words in a tag, without attributes."""

BRACKETS: Final = ("<", "‹", "[", "```")
"""Brackets with which a damaged or unknown call may begin."""

WORDS: Final = (
    *("call:", "functions.", "default_api.", "tool_call", "function_call", "tool_code", "to="),
    *(
        "Call:",
        "CALL:",
        "Calling:",
        "Calling tool",
        "Calling function",
        "TOOL_CALL",
        "FUNCTION_CALL",
        "**Tool",
        "**Func",
    ),
    *(f"{word}{rest}" for word in ("Tool", "tool", "TOOL", "Function") for rest in (":", " call:", " Call:", " name:")),
    *("Tool Name:", "TOOL CALL:", "Function Name:", "function call:", "ToolCall:", "FunctionCall:"),
)
"""Words with which a damaged or unknown call may begin, besides the tools' names."""

VOCABULARY: Final = frozenset(
    (
        *("assistant", "commentary", "analysis", "to", "json", "functools", "using", "the", "type"),
        *("call", "calls", "calling", "tool", "tools", "function", "functions", "invoke", "execute", "name"),
        *("tool_call", "tool_calls", "toolcall", "toolcalls", "toolscall", "function_call", "function_calls"),
        *("tool_name", "tool_code", "arguments", "parameters", "default_api", "print", "await"),
    )
)
"""Words (in any case) that may stand between tags before a tool's name."""

_BEGUN: Final = frozenset(word[:size] for word in VOCABULARY for size in range(len(word) + 1))
"""The beginnings of those words."""
_WORD: Final = re.compile(r"[\w.:/-]")
_SEPARATOR: Final = re.compile(r"[.:/]")
_BEFORE: Final = frozenset("<‹[{(/\"'=:|｜‖.>›")
_BEHIND: Final = frozenset(">›]|｜‖\"'({:=/,\n<")
_PUNCTUATION: Final = frozenset(":=,;*#\"'[](){}<>‹›|｜‖-`" + SPACE)
_ARGUMENTS: Final = ("args", "arguments")
"""Words in brackets between a tool's name and its arguments."""
_METHOD: Final = re.compile(r"(?<=\w)(?::\d*|\.(?:call|invoke|run|execute))\Z")


@lru_cache(maxsize=16)  # a pure function, asked for each answer; clients choose the names of up to 128 tools
def loose_words(names: tuple[str, ...]) -> tuple[tuple[bytes, ...], ...]:
    """Returns the texts (`BRACKETS`, `WORDS`, tools' `names`) with which a damaged call may begin at the start of a
    line, indexed by first byte. None of them is a prefix of another."""
    found: list[tuple[bytes, ...]] = [()] * 256
    before = "\0"
    for word in sorted({*BRACKETS, *WORDS, *filter(None, names)}):
        if not word.startswith(before):
            before, literal = word, word.encode("utf-8", "replace")
            found[literal[0]] += (literal,)
    return tuple(found)


@lru_cache(maxsize=16)
def _indexed(names: tuple[str, ...]) -> tuple[frozenset[str], list[str]]:
    return frozenset(names), sorted(names)


class LooseHead:
    """Reads the beginning of a text that may be a damaged or unknown call, byte by byte."""

    __slots__ = (
        "_before",
        "_bracket",
        "_chars",
        "_closed",
        "_decoder",
        "_fence",
        "_key",
        "_named",
        "_names",
        "_pending",
        "_sorted",
        "_string",
        "_word",
        "_worded",
        "_words",
    )

    again = False
    """See `FirstKey`: the deciding byte is not read again."""

    def __init__(self, names: Collection[str]) -> None:
        """`names` are the callable tools."""
        self._names, self._sorted = _indexed(tuple(names))
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._chars = 0
        self._word = ""
        # `_bracket`: the enclosing bracket, `_words` the number of words in it. `_before`: the last non-blank character
        # before the word. `_pending`: a tool's name was read, and the next character decides. In an object: `_key` is
        # the last string, `_string` the string being read, `_named`: the value of `name` follows.
        self._bracket = ""
        self._words = 0
        self._key = ""
        self._string: str | None = None
        self._named = False
        self._before = ""
        self._pending = False
        self._closed = False  # square brackets with a name were closed: before a parenthesis without an object, a link
        self._fence = 0
        self._worded = False

    def take(self, byte: int) -> bool | None:
        """Takes the next byte. Returns True if this may be a call, False if not, None if undecided."""
        char = self._decoder.decode(bytes((byte,)))
        if not char:
            return None
        self._chars += 1
        if self._chars > HEAD_CHARS or (self._bracket == "{" and self._names_no_tool(char)):
            return False
        if self._closed:
            if char == "(" and self._before != "(":
                self._before = "("
                return None
            return char == "{" or self._before != "("
        if _WORD.match(char):
            self._word += char
            self._worded = True
            return None if self._bracket or self._fence or self._may_go_on() else False
        found = self._end_word(char) if self._word else self._behind_name(char) if self._pending else None
        if found is not None:
            return found
        return self._punctuation(char)

    def _names_no_tool(self, char: str) -> bool:
        """Returns True if an object has a name that is not a tool's (R30.7)."""
        string = self._string
        if char == '"':
            self._string = "" if string is None else None
            if string is not None and self._named:
                return not self._is_name(string)
            self._key = string or ""
        elif string is not None:
            self._string = string + char
        elif char == ":":
            self._named = self._key == "name"
        elif char not in SPACE:
            self._named = False
        return False

    def _may_go_on(self) -> bool:
        """Returns True if, outside brackets, the word may become a name (perhaps after a namespace) or a word of the
        vocabulary."""
        word = self._word
        if _SEPARATOR.search(word):
            return True
        at = bisect_left(self._sorted, word)
        return any(name.startswith(word) for name in self._sorted[at : at + 1]) or word.lower() in _BEGUN

    def _end_word(self, char: str) -> bool | None:
        word, self._word = self._word, ""
        self._words += char != "="
        if self._bracket == "<" and self._words > TAG_WORDS:
            return False
        if self._pending:  # whitespace separated the name from this word
            self._pending = False
            if self._bracket:
                if char == "=" or word.lower() in _ARGUMENTS:
                    return True
            else:
                return False
        if self._is_name(word):
            if self._bracket and self._before not in _BEFORE:
                return None
            if self._bracket == "[" and char == "]":
                self._closed = True
                return None
            if self._before and (char in _BEHIND or not self._bracket):
                return True
            if not self._before and char in "{<>":
                return True
            self._pending = True
            return None
        if self._bracket not in ("", "{") and "think" in word.lower():
            return False  # a reasoning tag
        if not self._bracket and not self._fence and word.strip(":.").lower() not in VOCABULARY:
            return False
        self._before = word[-1]
        return None

    def _behind_name(self, char: str) -> bool | None:
        """Decides by the character after a name that begins the text, or that is followed by a blank in a tag."""
        if char in SPACE:
            return None
        self._pending = False
        return char in "{<[`" if not self._bracket else char in _BEHIND

    def _is_name(self, word: str) -> bool:
        for name in (word.rstrip(".:/"), _METHOD.sub("", word)):
            if name in self._names or _SEPARATOR.split(name)[-1] in self._names:
                return True
        return any(part in self._names for part in word.split(":"))

    def _punctuation(self, char: str) -> bool | None:
        if self._fence:
            self._fence = 0 if char == "\n" else self._fence
        if self._bracket == "[" and char == "{" and not self._worded:
            return False  # a list of objects is JSON, which has its own syntax
        if char in "<‹" and (self._bracket == "[" or (self._before == "]" and not self._worded)):
            return False  # brackets that are open or hold no word are text: the call may begin at this character
        if self._bracket:
            if self._bracket == char == "<" and self._words > 1:
                return False  # another tag begins: the words before it are prose
            if char in {"<": ">", "‹": ">›", "[": "]", "{": "}"}[self._bracket]:
                self._bracket = ""
            elif char == "\n" and self._bracket != "{":
                return False
        elif char in "<‹[{":
            self._bracket = char
            self._words = 0
        elif char == "`":
            self._fence = 1
        elif char not in _PUNCTUATION:
            return False
        if char not in SPACE:
            self._before = char
        return None
