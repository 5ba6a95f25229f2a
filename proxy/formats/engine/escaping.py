r"""Escaping of markers in data, so that they are not taken for markup and can be restored (R5.6).

A *marker* is text that a reader of the prompt would take for markup: openers and closers that the route's scanner looks
for, frames around results, control tokens of the chat template. In data a backslash is inserted after its first
character: `</tool_call>` becomes `<\/tool_call>`. Data that already looks escaped gets one more backslash.

Rules of this module:

1. Law: `restore(text(x)) == x` for every x. If a model copies data, restoring its answer returns the original bytes, in
   text and in the strings of arguments (R5.6a); `restoring.py` restores an answer that comes in pieces.
2. The final prompt text is escaped once, because a marker may be split over two pieces of data, or over data and
   markup. Markers entirely in markup stay.
3. Nothing else changes; without markers the same object is returned.
4. Work is linear, and no regex call examines more than `SLICE_CHARS`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import Final

from ...scan._grammar import SPACE
from ...support.legible import json_escape
from .markers import LAST, STEP_CHARS, TAIL_CHARS, MarkerSet, is_blank
from .restoring import Form, Restorer

SLICE_CHARS: Final = STEP_CHARS

_RUN_CHARS: Final = 4096
"""Number of backslashes examined per step while searching backwards for the character before them."""
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_JOINED: Final = 8192
"""Pieces are joined when there are this many, because small strings take more memory than their text."""


class Markup(str):
    """Text of the gateway itself in a prompt; it is not escaped. Any other string is data."""

    __slots__ = ()


Pieces = Sequence[str]
"""The parts of a text: `Markup`, and data between them."""


_Site = tuple[int, int, int]
"""The position of a marker: its first character, its rest (after backslashes), and its end."""


class Escaping:
    """Escapes and restores one set of markers. `bare` are the markers that are escaped wherever they occur (default
    all). The others get a backslash only where they look escaped already, because restoring would otherwise change
    them."""

    def __init__(self, markers: MarkerSet | Iterable[str], bare: Iterable[str] | None = None) -> None:
        self.markers = markers if isinstance(markers, MarkerSet) else MarkerSet(markers)
        self._bare = None if bare is None else self.markers.among(bare)
        self._made: set[Form] | None = None
        self._firsts = tuple(self.markers.rests)
        self._begins = self.markers.beginnings.firsts
        self._short = frozenset(word for word in self.markers.words if len(word) == 1)
        # The last two characters of a text that ends inside a marker, after at least two of the marker's characters.
        self._cut = frozenset(word[size - 2 : size] for word in self.markers.words for size in range(2, len(word)))
        self._structural = any(not word.strip('[]{}:,"') for word in self.markers.words)  # occurs in any JSON

    def noting(self, made: set[Form]) -> Escaping:
        """Returns a copy for one prompt that records its escapes in `made`."""
        noting = Escaping.__new__(Escaping)
        vars(noting).update(vars(self))
        noting._made = made
        return noting

    # --- text -------------------------------------------------------------------------------------------------------

    def holds(self, text: str) -> bool:
        """Returns True if `text` contains a marker that would be escaped. Text that begins like an answer with calls
        (`CallBeginnings`) does not count."""
        if len(text) > SLICE_CHARS or self._bare is not None:
            return self._may_hold(text) and next(iter(self._sites(text)), None) is not None
        for first in self._firsts:
            if first in text and (first in self._short or self.markers.shown(first).search(text)):
                return True
        return "\\" in text and bool(self._sites_in(text, 0, len(text), False, True))

    def text(self, text: str, *, inside: bool = False) -> str:
        """Returns `text` with its markers escaped. `inside`: it stands inside a call, where no answer can begin."""
        if self._begins and min(text.lstrip(SPACE)[:1], LAST) in self._begins:
            text = self._beginning(text, bare=not inside)
        return self._with_backslashes(text, None) if self.holds(text) else text

    def without_bare(self, text: str) -> str:
        """Returns `text` with a backslash in each marker that has none yet. The result cannot be restored."""
        if not self._may_hold(text):
            return text
        places = [rest for _, rest, _ in self._sites(text, escaped=False)]
        return "\\".join([text[a:b] for a, b in pairwise([0, *places, len(text)])]) if places else text

    def value(self, text: str) -> str:
        """Returns `text` escaped for a place inside a call."""
        return self.text(text, inside=True)

    def compose(self, pieces: Pieces) -> str:
        """Returns the pieces as one text, with all markers escaped except those entirely in markup."""
        if len(pieces) == 1 and type(pieces[0]) is not Markup:
            return self.text(pieces[0])
        if self._begins:
            pieces = self._begun(pieces, "")
        last = len(pieces) - 1
        for place, piece in enumerate(pieces):
            if (place < last and self._is_cut(piece)) or (type(piece) is not Markup and self.holds(piece)):
                text, spans = self._joined(pieces)
                return self._with_backslashes(text, spans)
        return "".join(pieces)  # the usual case

    def _is_cut(self, piece: str) -> bool:
        """Returns True if the text ends in the middle of a possible marker."""
        end = piece[-2:]
        if end not in self._cut and end[-1:] not in self._firsts and "\\" not in end:
            return False
        parts = self.markers.parts
        tail = piece[-self.markers.longest :]
        if "\\" in tail:
            rest = tail.rpartition("\\")[2]
            if not rest or any(rest in found for found in parts.values()):
                return True
        for first in self._firsts:
            at = tail.find(first)
            while at >= 0:
                if at + 1 == len(tail) or tail[at + 1 :] in parts[first]:
                    return True
                at = tail.find(first, at + 1)
        return False

    def compose_each(self, several: Sequence[Pieces]) -> list[str]:
        """Returns one text for each list of pieces, escaped like `compose`, so that the texts contain no markers even
        when they are joined later."""
        if len(several) == 1:
            return [self.compose(several[0])]
        texts: list[str] = []
        spans: list[tuple[int, int]] = []
        ends: list[int] = [0]
        begun = not self._begins
        for number, pieces in enumerate(several):
            if not begun:
                pieces = self._begun(pieces, _head(several[number + 1 :]))
            text, found = self._joined(pieces)
            begun = begun or not is_blank(text)
            spans += [(start + ends[-1], end + ends[-1]) for start, end in found]
            texts.append(text)
            ends.append(ends[-1] + len(text))
        places = deque(self._places("".join(texts), spans) if any(map(self._may_hold, texts)) else ())
        written = []
        for text, start, end in zip(texts, ends[:-1], ends[1:], strict=True):
            cuts = [0]
            while places and places[0] <= end:
                cuts.append(places.popleft() - start)
            written.append("\\".join([text[a:b] for a, b in pairwise([*cuts, len(text)])]))
        return written

    def _joined(self, pieces: Pieces) -> tuple[str, list[tuple[int, int]]]:
        """Returns the joined pieces, and the spans of the data in them."""
        spans: list[tuple[int, int]] = []
        end = 0
        for piece in pieces:
            start, end = end, end + len(piece)
            if end > start and type(piece) is not Markup:
                spans.append((start, end))
        return "".join(pieces), spans

    def _begun(self, pieces: Pieces, more: str) -> list[str]:
        """Returns the pieces with neighbouring data merged and the beginning of an answer escaped: a call that is the
        whole answer may begin at the first non-blank text."""
        fresh = True
        out: list[str] = []
        for ours, group in groupby(pieces, key=lambda piece: type(piece) is Markup):
            text = "".join(group)
            if not ours:
                text = self._beginning(text, bare=fresh, more=more if fresh else "")
            fresh = fresh and is_blank(text)
            out.append(Markup(text) if ours else text)
        return out

    def _beginning(self, text: str, *, bare: bool, more: str = "") -> str:
        escaped = self.markers.beginnings.escaped(text, bare=bare, more=more)
        if escaped is not text and self._made is not None:
            self._made.add(self.markers.beginnings.form(escaped, more))
        return escaped

    def restore(self, text: str) -> str:
        """Returns the original of an escaped text; the inverse of `text`."""
        if "\\" not in text:
            return text
        text = self.markers.beginnings.restored(text)
        out: list[str] = []
        done = 0
        for _, rest, _ in self._sites(text, bare=False):
            out.append(text[done : rest - 1])
            done = rest
        return "".join([*out, text[done:]]) if out else text

    def restorer(self, *, json: bool = False) -> Restorer:
        r"""Returns a restorer for a text that comes in pieces of any size. `json`: restore inside the strings of a JSON
        text, where `<\/tool_call>` is spelled `<\\/tool_call>`."""
        return Restorer(self.markers, json=json)

    def json(self, text: str) -> str:
        r"""Returns JSON text of the same value without markers: one character of each becomes `\uXXXX`. A JSON parser
        undoes this."""
        if not self._may_hold(text):
            return text
        if self._structural:
            return _STRING.sub(lambda string: self._hidden(string[0]), text)
        return self._hidden(text)

    def _hidden(self, text: str) -> str:
        out: list[str] = []
        done = 0
        for first, rest, end in self._sites(text, escaped=False):
            # The character after a backslash belongs to that escape: in `\\f` there is no f to replace.
            place = rest if _is_escaped(text, first) else first
            if place < end:
                out += text[done:place], json_escape(text[place])
                done = place + 1
        return "".join([*out, text[done:]]) if out else text

    # --- sites ------------------------------------------------------------------------------------------------------

    def _may_hold(self, text: str) -> bool:
        for first in self._firsts:  # noqa: SIM110  # much faster than the pattern, and usually finds nothing
            if first in text:
                return True
        return False

    def _sites(self, text: str, *, bare: bool = True, escaped: bool = True) -> Iterable[_Site]:
        """Returns the positions of markers: unescaped ones if `bare`, and those that look escaped if `escaped`."""
        if len(text) <= SLICE_CHARS:
            return self._sites_in(text, 0, len(text), bare, escaped)
        return chain.from_iterable(
            self._sites_in(text, start, min(len(text), start + SLICE_CHARS + self.markers.longest), bare, escaped)
            for start in range(0, len(text), SLICE_CHARS)
        )

    def _sites_in(self, text: str, start: int, end: int, bare: bool, escaped: bool) -> list[_Site]:
        """Returns the sites that begin in one slice. `end` exceeds the slice by the length of the longest marker."""
        beyond = start + SLICE_CHARS
        sites: list[_Site] = []
        for first in self._firsts if bare else ():
            if text.find(first, start, end) >= 0:
                for found in self.markers.shown(first).finditer(text, start, end):
                    at = found.start()
                    if at >= beyond:
                        break
                    if self._bare is None or first + found[1] in self._bare:
                        sites.append((at, at + 1, found.end(1)))
        if escaped and text.find("\\", start, end) >= 0:
            for found in self.markers.escaped.finditer(text, start, end):
                at = found.start()
                if at >= beyond:
                    break
                place = _before_run(text, at)
                if place >= 0 and text[place] in self.markers.rests:
                    rest = self.markers.rest(text[place]).match(text, at + 1)
                    if rest is not None:
                        sites.append((place, at + 1, rest.end()))
        if len(sites) > 1:
            sites.sort()
        return sites

    def _places(self, text: str, spans: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Yields the positions where a backslash is needed: in every marker that is not entirely markup. `spans` are
        the data."""
        starts = [start for start, _ in spans]
        for first, rest, end in self._sites(text):
            index = bisect_right(starts, first) - 1
            if index >= 0 and first < spans[index][1]:
                self._note(text, first, rest, end)
                yield rest
            elif index + 1 < len(starts) and (start := starts[index + 1]) < end:  # it begins in markup
                if text[first] != "\n" or start > first + 1 or end == start + 1:
                    yield max(rest, start)
                elif rest == start:  # an answer may copy this line from its start, and then begins with it
                    if self._made is not None:
                        self._made.add((text[start], 1, None))
                    yield start + 1

    def _note(self, text: str, first: int, rest: int, end: int) -> None:
        if self._made is not None:
            self._made.add((text[first], rest - first, text[rest:end]))

    def _with_backslashes(self, text: str, spans: Sequence[tuple[int, int]] | None) -> str:
        """Returns `text` with a backslash at each of these positions. Without `spans` all of it is data."""
        out: list[str] = []
        joined: list[str] = []
        done = 0
        for place in self._places(text, ((0, len(text)),) if spans is None else spans):
            out += text[done:place], "\\"
            done = place
            if len(out) >= _JOINED:
                joined.append("".join(out))
                out.clear()
        return "".join([*joined, *out, text[done:]]) if done else text


def _head(several: Sequence[Pieces]) -> str:
    """Returns the beginning of the following text, as long as is needed to decide how an answer begins."""
    head = ""
    for piece in (piece for pieces in several for piece in pieces):
        head += piece[:TAIL_CHARS]
        if len(head) >= TAIL_CHARS:
            break
    return head


def _before_run(text: str, at: int) -> int:
    """Returns the position of the character before a run of backslashes that ends at `at`, or -1."""
    while at >= 0:
        low = max(0, at + 1 - _RUN_CHARS)
        left = len(text[low : at + 1].rstrip("\\"))
        if left:
            return low + left - 1
        at = low - 1
    return -1


def _is_escaped(text: str, at: int) -> bool:
    return at > 0 and text[at - 1] == "\\" and (at - 1 - _before_run(text, at - 1)) % 2 == 1
