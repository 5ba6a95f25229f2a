"""Finds regular expressions in streamed text, with bounded buffering and in linear time.

Rules:

1. RE2 does the matching, so it takes linear time for every pattern and text. Of several matches at one place the
   longest counts.
2. Every pattern has a longest match (at most `LONGEST` characters); `+` and `*` are refused. So the buffer is bounded.
3. The buffer holds the longest suffix of the text that could be the beginning of a match (see `COUNTED`). A second
   pattern, derived from the first, matches every beginning of a match.
4. Law: however the text is cut into pieces, the joined output is the text with every match replaced.

Allowed syntax: characters, `.`, classes, `\\d \\w \\s \\D \\W \\S`, `\\b`, groups, `|`, `?`, `{n}`, `{m,n}`, and `(?i)`
at the start. `^` and `$` are refused: a stream has no known end to compare with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .linear import reason_of

LONGEST: Final = 8192
"""Maximum length of a match, in characters."""
COUNTED: Final = 100
"""Repetitions up to this number are counted when looking for the beginning of a match. Longer repetitions are treated
as `*`, because counting them would make the RE2 program too large to be fast; only the longest match bounds them."""
MOST_TIMES: Final = 1000
"""Maximum count of a repetition: the limit of RE2."""

_ESCAPED: Final = re.compile(r"\\(?:[dwsDWS]|x[0-9a-fA-F]{2}|x\{[0-9a-fA-F]{1,6}\}|[nrt]|[^0-9A-Za-z])")
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|\[:\^?[a-z]{1,10}:\]|[^\]\\])*\]", re.DOTALL)
_TIMES: Final = re.compile(r"\{(\d{1,4})(?:,(\d{1,4}))?\}")


@dataclass(frozen=True, slots=True)
class _Part:
    """A parsed part of a pattern. `full` is its RE2 text; `loose` the same with long repetitions as `*`; `begun`
    matches every beginning of a match, from the empty text to all of it; `least` and `most` are the length of a match
    in characters."""

    full: str
    loose: str
    begun: str
    least: int
    most: int


_NOTHING: Final = _Part("", "", "", 0, 0)


class _PatternReader:
    """Parses one pattern. Raises `ValueError` with the position of the mistake."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def read(self) -> _Part:
        """Returns the parts of the whole pattern. Raises `ValueError` for a pattern that is not allowed or can match
        the empty text."""
        part = self._choice()
        if self._at < len(self._pattern):
            raise self._mistake("a bracket too many")
        if part.least == 0:
            raise ValueError("it fits the empty text")
        return part

    def _choice(self) -> _Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        return _Part(
            f"(?:{'|'.join(part.full for part in parts)})",
            f"(?:{'|'.join(part.loose for part in parts)})",
            f"(?:{'|'.join(part.begun for part in parts)})",
            min(part.least for part in parts),
            max(part.most for part in parts),
        )

    def _sequence(self) -> _Part:
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
        part = self._atom()
        if self._take("?"):
            least, most = 0, 1
        elif times := _TIMES.match(self._pattern, self._at):
            self._at = times.end()
            least = int(times[1])
            most = int(times[2]) if times[2] else least
            if not least <= most <= MOST_TIMES or most == 0:
                raise self._mistake(f"{times[0]} is no number of times (at most {MOST_TIMES})")
        else:
            if self._pattern[self._at : self._at + 1] in ("+", "*", "{"):
                raise self._mistake(
                    "a match must have a greatest length: write {1,64} instead of +, {0,64} instead of *"
                )
            return part
        if self._pattern[self._at : self._at + 1] in ("?", "+", "*", "{"):
            raise self._mistake("two repetitions in a row")
        loose, begun = f"(?:{part.loose}){{{least},{most}}}", part.begun
        if most > COUNTED:
            loose = f"(?:{part.loose})*"
            begun = loose + begun
        elif most > 1:
            begun = f"(?:{part.loose}){{0,{most - 1}}}{begun}"
        return _Part(f"(?:{part.full}){{{least},{most}}}", loose, begun, part.least * least, part.most * most)

    def _atom(self) -> _Part:
        if self._take("("):
            if self._take("?") and not self._take(":"):
                raise self._mistake("of the forms with (? only (?: can be used")
            part = self._choice()
            if not self._take(")"):
                raise self._mistake("a bracket is not closed")
            return _Part(f"(?:{part.full})", f"(?:{part.loose})", part.begun, part.least, part.most)
        if self._take("\\b"):
            return _Part(r"\b", r"\b", "", 0, 0)
        for known in (_CLASS, _ESCAPED):
            if found := known.match(self._pattern, self._at):
                self._at = found.end()
                return self._character(found[0])
        character = self._pattern[self._at]
        if character in "^$\\[{?*+":
            raise self._mistake(f"{character} cannot be used here")
        self._at += 1
        return self._character(character if character == "." else re.escape(character))

    def _character(self, written: str) -> _Part:
        return _Part(written, written, f"(?:{written})?", 1, 1)

    def _take(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _mistake(self, what: str) -> ValueError:
        return ValueError(f"{what} (at character {self._at + 1})")


class Patterns:
    """Several patterns that are searched for together. The constructor raises `ValueError` for a pattern that is not
    allowed, and `ImportError` if RE2 is not installed."""

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
                part = _PatternReader(pattern.removeprefix("(?i)")).read()
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
        """Yields start and end of each match from `start` on. The text before `start` is only looked at for `\\b`."""
        for match in self._full.finditer(text, start):
            yield match.span()

    def may_begin(self, text: str, start: int) -> int:
        """Returns the position from which on the text could be the beginning of a longer match; the length of the text
        if there is none."""
        at: int = self._begun.search(text, max(start, len(text) - self._longest)).start()
        return at


class StreamReplacer:
    """Replaces all matches in one text that arrives in pieces. `found` is the number of replaced matches."""

    def __init__(self, patterns: Patterns, by: str) -> None:
        self.found = 0
        self._patterns = patterns
        self._by = by
        self._text = ""  # the buffered text, and the character before it
        self._out = 0  # length of that character's part: 0 or 1

    def feed(self, piece: str) -> str:
        """Takes the next piece and returns the text that is ready to be sent."""
        text = self._text + piece
        return self._output(text, self._patterns.may_begin(text, self._out))

    def finish(self) -> str:
        """Ends the text and returns the rest of it."""
        return self._output(self._text, len(self._text), over=True)

    def _output(self, text: str, held: int, *, over: bool = False) -> str:
        """Returns `text` up to the position `held`, with matches replaced. A match that begins before `held` is final,
        but it may end after it."""
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
    """Returns `text` with every match replaced by `by`, and the number of matches."""
    replacing = StreamReplacer(patterns, by)
    return replacing.feed(text) + replacing.finish(), replacing.found
