"""Patterns that can be looked for in a stream: bounded, linear, and it is known when a match may still be on its way.

Rules:

1. Matching is RE2's, so it takes linear time whatever the pattern and the text; of several matches at one place the
   longest counts.
2. A pattern has a longest match (at most `LONGEST` characters): `+` and `*` are refused. So what is held back is
   bounded.
3. What is held back is what is needed: the longest end of the text that some pattern could still go on from (see
   `COUNTED`). For this a second pattern is derived, which fits every beginning of a match.
4. Law: whatever the pieces, what comes out joined is the text with every match replaced.

What can be written: characters, `.`, classes, `\\d \\w \\s \\D \\W \\S`, `\\b`, groups, `|`, `?`, `{n}`, `{m,n}`, and
`(?i)` at the start. Without an end of the text to look at, `^` and `$` mean nothing in a stream and are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolwire.support.linear import reason_of

LONGEST: Final = 8192
"""Characters that a match may have at most."""
COUNTED: Final = 100
"""Up to so many repetitions are counted to know whether a match may still come. Of longer runs it is only known that a
match is not longer than the pattern's longest: counting them takes a program that is too large to be fast."""
MOST_TIMES: Final = 1000
"""A part may be repeated so often: RE2's own bound."""

_ESCAPED: Final = re.compile(r"\\(?:[dwsDWS]|x[0-9a-fA-F]{2}|x\{[0-9a-fA-F]{1,6}\}|[nrt]|[^0-9A-Za-z])")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|\[:\^?[a-z]{1,10}:\]|[^\]\\])*\]", re.DOTALL)
_TIMES: Final = re.compile(r"\{(\d{1,4})(?:,(\d{1,4}))?\}")


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a pattern: what fits it, the same with long runs not counted, what fits a beginning of that (nothing
    and all of it included), and how long a match is, in characters."""

    full: str
    loose: str
    begun: str
    least: int
    most: int


_NOTHING: Final = _Part("", "", "", 0, 0)


class _Reader:
    """Reads one pattern. Raises `ValueError` with the place."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def read(self) -> _Part:
        """The whole pattern."""
        part = self._choice()
        if self._at < len(self._pattern):
            raise self._wrong("a bracket too many")
        if part.least == 0:
            raise ValueError("it fits the empty text")
        return part

    def _choice(self) -> _Part:
        parts = [self._row()]
        while self._take("|"):
            parts.append(self._row())
        if len(parts) == 1:
            return parts[0]
        return _Part(
            f"(?:{'|'.join(part.full for part in parts)})",
            f"(?:{'|'.join(part.loose for part in parts)})",
            f"(?:{'|'.join(part.begun for part in parts)})",
            min(part.least for part in parts),
            max(part.most for part in parts),
        )

    def _row(self) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated())
        row = _NOTHING
        for part in reversed(parts):
            begun = f"(?:{part.loose}{row.begun}|{part.begun})" if row.begun else part.begun
            row = _Part(
                part.full + row.full, part.loose + row.loose, begun, part.least + row.least, part.most + row.most
            )
        if row.most > LONGEST:
            raise ValueError(f"a match can have {row.most} characters, more than {LONGEST}")
        return row

    def _repeated(self) -> _Part:
        part = self._one()
        if self._take("?"):
            least, most = 0, 1
        elif times := _TIMES.match(self._pattern, self._at):
            self._at = times.end()
            least = int(times[1])
            most = int(times[2]) if times[2] else least
            if not least <= most <= MOST_TIMES or most == 0:
                raise self._wrong(f"{times[0]} is no number of times (at most {MOST_TIMES})")
        else:
            if self._pattern[self._at : self._at + 1] in ("+", "*", "{"):
                raise self._wrong("a match must have a greatest length: write {1,64} instead of +, {0,64} instead of *")
            return part
        if self._pattern[self._at : self._at + 1] in ("?", "+", "*", "{"):
            raise self._wrong("two repetitions in a row")
        loose, begun = f"(?:{part.loose}){{{least},{most}}}", part.begun
        if most > COUNTED:
            loose = f"(?:{part.loose})*"
            begun = loose + begun
        elif most > 1:
            begun = f"(?:{part.loose}){{0,{most - 1}}}{begun}"
        return _Part(f"(?:{part.full}){{{least},{most}}}", loose, begun, part.least * least, part.most * most)

    def _one(self) -> _Part:
        if self._take("("):
            if self._take("?") and not self._take(":"):
                raise self._wrong("of the forms with (? only (?: can be used")
            part = self._choice()
            if not self._take(")"):
                raise self._wrong("a bracket is not closed")
            return _Part(f"(?:{part.full})", f"(?:{part.loose})", part.begun, part.least, part.most)
        if self._take("\\b"):
            return _Part(r"\b", r"\b", "", 0, 0)
        for known in (_CLASS, _ESCAPED):
            if found := known.match(self._pattern, self._at):
                self._at = found.end()
                return self._character(found[0])
        character = self._pattern[self._at]
        if character in "^$\\[{?*+":
            raise self._wrong(f"{character} cannot be used here")
        self._at += 1
        return self._character(character if character == "." else re.escape(character))

    def _character(self, written: str) -> _Part:
        return _Part(written, written, f"(?:{written})?", 1, 1)

    def _take(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _wrong(self, what: str) -> ValueError:
        return ValueError(f"{what} (at character {self._at + 1})")


class Patterns:
    """Several patterns, looked for together. Raises `ValueError` for one that cannot be used, `ImportError` without
    RE2."""

    def __init__(self, patterns: Sequence[str]) -> None:
        try:
            import re2
        except ImportError as error:
            raise ImportError("looking for patterns needs a package: pip install 'toolwire[redact]'") from error
        full: list[str] = []
        begun: list[str] = []
        self._longest = 0
        options = re2.Options()
        options.longest_match = True
        options.log_errors = False
        options.max_mem = 64 << 20
        for pattern in patterns:
            flag = "(?i)" if pattern.startswith("(?i)") else ""
            try:
                part = _Reader(pattern.removeprefix("(?i)")).read()
                re2.compile(flag + part.full, options)
            except (ValueError, re2.error) as error:
                raise ValueError(f"the pattern {pattern!r} cannot be used: {reason_of(error)}") from None
            scope = flag.rstrip(")") + ":" if flag else "(?:"
            self._longest = max(self._longest, part.most)
            full.append(f"{scope}{part.full})")
            begun.append(f"{scope}{part.begun})")
        self._full: Any = re2.compile("|".join(full), options)
        self._begun: Any = re2.compile(rf"(?:{'|'.join(begun)})\z", options)

    def matches(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        """Where the matches from `start` on are; what stands before counts for `\\b`."""
        for match in self._full.finditer(text, start):
            yield match.span()

    def may_begin(self, text: str, start: int) -> int:
        """Where the longest end of the text begins that a match could still go on from; its length if there is none."""
        at: int = self._begun.search(text, max(start, len(text) - self._longest)).start()
        return at


class Replacing:
    """One text that comes in pieces. `found` counts the matches that were replaced."""

    def __init__(self, patterns: Patterns, by: str) -> None:
        self.found = 0
        self._patterns = patterns
        self._by = by
        self._text = ""  # what is held back, and the character before it
        self._out = 0  # so much of it is out: that one character, or nothing

    def feed(self, piece: str) -> str:
        """Take the next piece and give what can go out."""
        text = self._text + piece
        return self._give(text, self._patterns.may_begin(text, self._out))

    def finish(self) -> str:
        """The text is over: the rest of it."""
        return self._give(self._text, len(self._text), over=True)

    def _give(self, text: str, held: int, *, over: bool = False) -> str:
        """What comes of `text` up to `held`. A match that begins before cannot change any more, but may end behind
        it."""
        at = self._out
        out: list[str] = []
        for start, end in self._patterns.matches(text, at):
            if start >= held:
                break
            out += (text[at:start], self._by)
            self.found += 1
            at = end
            if at > held and not over:
                held = self._patterns.may_begin(text, at)
        held = max(at, held)
        out.append(text[at:held])
        self._out = min(held, 1)
        self._text = text[held - self._out :]
        return "".join(out)


def replaced(patterns: Patterns, text: str, by: str) -> tuple[str, int]:
    """The text with every match replaced, and how many there were."""
    replacing = Replacing(patterns, by)
    return replacing.feed(text) + replacing.finish(), replacing.found
