"""Text outside blocks: sends it, holds back possible markers, and finds the beginning of blocks. Part of the Python
twin, see `_pyparse.py`; `_fastprose.pxi` is the same with C types."""

from __future__ import annotations

from typing import Final

from ._grammar import FENCE, REASONING, SPACE, TEXT, WORD_BYTES, BlockPolicy
from ._plan import TICK, GrammarPlan, Marker, Opener
from ._pyoutput import Output
from .loose_head import loose_words
from .octets import BLANK, CITED, ITEM, PROSE_LINE, begins_with
from .parts.buffer import Buffer
from .parts.quoting import Quoting
from .surroundings import (
    ALONE,
    CODE,
    GOES_ON,
    IS_CALL,
    LAST_BYTES,
    MARKS,
    STRING,
    Surroundings,
    behind_info,
)
from .surroundings import FENCE as IN_FENCE

_SPACE: Final = SPACE.encode()
_NEWLINE: Final = ord("\n")
_QUOTE: Final = ord('"')
_BLANKS: Final = " \t"

NONE: Final = 0
ANSWER: Final = 1
LITERAL: Final = 2
"""The taught block that was tried here and refused: none (`NONE`), one that begins an answer (`ANSWER`), or one that
begins with an opener (`LITERAL`)."""

NO: Final = 0
YES: Final = 1
LATER: Final = 2
"""Whether a marker counts at its position: `NO`, `YES`, or `LATER` if the text after it decides."""


class Prose:
    """Reads the text of one answer outside blocks: sends it, and finds the markers in it.

    `plan` has the markers. `state` is `TEXT` or `REASONING`. `opened` is the opener of the block at which reading
    stopped, `around` what may quote that block (with `size` backticks), `lead` the length of a fence's line before it
    (see `surroundings`), and `tag` the length of a reasoning tag at which reading stopped. `held` may be the beginning
    of a marker; it is empty once the text is `final`. Three positions in the buffer: before `quiet` no untaught block
    begins, because one was tried there; before `settled` no call in any form begins (such a call begins at the start of
    a line, or with `again` where another block failed); before `muted` no block and no end of reasoning, because that
    text is quoted.
    """

    def __init__(self, buffer: Buffer, output: Output, policy: BlockPolicy, plan: GrammarPlan, preopened: bool) -> None:
        self._buffer = buffer
        self._output = output
        self._policy = policy
        self._seen: dict[int, tuple[int, int]] = {}  # by first byte, for the buffer's `_turn`: see `_next_first`
        self._turn = 0
        self.opened: Opener | None = None
        self.tag = 0
        self.around = 0
        self.size = 0
        self.lead = 0
        self.held = b""
        self.final = False

        # `_tags`: the current pair of reasoning tags. `_last`: the previous byte, a line end at the start of a text;
        # `_margin`: the position is at the start of a line, after indentation. `_quoting`: the quoting state, read up
        # to `_quoted`, as is `_line`: what the line begins with. `_refused`: the taught block that was tried here.
        self._tags = 0
        self._margin = True
        self._line = BLANK
        self._last = _NEWLINE
        self._quoting = Quoting()
        self._quoted = 0
        self.quiet = self.settled = self.muted = 0
        self.again = False
        self._refused = NONE
        self.read_as(plan)
        self._enter(REASONING if preopened else TEXT)
        output.begin(self.state)

    def read_as(self, plan: GrammarPlan) -> None:
        """Sets the plan, whose markers are searched from now on. Inside reasoning they change only at the next tag, or
        with `enter_again`."""
        self.plan = plan
        self._opens = plan.answer is not None or plan.printed is not None or plan.loose is not None
        literals = [marker.literal for markers in (plan.text, *plan.inside) for marker in markers]
        ticks = TICK.decode() if literals or plan.loose is not None else ""
        self._first_chars = tuple(dict.fromkeys((*(literal.decode()[0] for literal in literals), *ticks)))

    def enter_again(self) -> None:
        """Continues the text after a block."""
        self._enter(self.state)

    def _enter(self, state: int) -> None:
        self.state = state
        self._markers = self.plan.text if state == TEXT else self.plan.inside[self._tags]
        self._loose = self.plan.loose if state == TEXT else None
        self._lines = self._loose is not None and self._loose.anchor == "margin"
        self._firsts = self.plan.firsts + b"\n" if self._lines else self.plan.firsts
        self._taught = self.plan.taught if state == TEXT or self.plan.calls_inside else ()
        self._output.enter(state)

    # --- plain text ---------------------------------------------------------------------------------------------------

    def is_plain(self, text: str) -> bool:
        """Returns True if no block, tag or quotation can begin in `text`."""
        if self._opens and self._output.fresh:
            return False
        for first in self._first_chars:  # `any` with a generator doubles the cost of a delta
            if first in text:
                return False
        return not (self._lines and (self._margin or "\n" in text) and self._begins_line(text.encode()))

    def _begins_line(self, raw: bytes) -> bool:
        """Returns True if a call in any form may begin at the start of the text or of a line in it."""
        words = loose_words(self._policy.callable_names)
        at = 0 if self._margin else raw.find(b"\n") + 1
        while True:
            while at < len(raw) and raw[at] in b" \t":
                at += 1
            if at < len(raw) and words[raw[at]] and any(self._word_at(raw, at)):
                return True
            at = raw.find(b"\n", at) + 1
            if not at:
                return False

    def pass_plain(self, text: str) -> None:
        """Updates the state for plain text, which the caller sends."""
        if self._first_chars and (self._quoting.active or '"' in text or "~" in text):
            raw = text.encode()
            self._quoting.read(raw, 0, len(raw), self._line)
        self._pass_line(text)

    def pass_raw(self, raw: bytes) -> None:
        """Updates the state for a block that is text, which the caller sends."""
        if raw:
            self._quoting.read(raw, 0, len(raw), self._line)
            self._pass_line(raw.decode())

    def _pass_line(self, text: str) -> None:
        """Updates the state of the current line."""
        self.again = False
        self._last = text[-1].encode()[-1]
        if self._line < PROSE_LINE or "\n" in text:
            raw = text.encode()
            self._line = self._read_line(raw, 0, len(raw))
        if text[-1] in _BLANKS:
            before = text.rstrip(_BLANKS)
            self._margin = before[-1] == "\n" if before else self._margin
        else:
            self._margin = self._last == _NEWLINE

    # --- blocks and tags ----------------------------------------------------------------------------------------------

    def edge(self) -> None:
        """Marks the end of a recognised block or tag: the text after it counts as the start of a line."""
        self._output.edge()
        self._margin = True
        self._line = BLANK
        self._last = _NEWLINE
        self._quoting.end_line()

    def mute(self, upto: int) -> None:
        """Forbids blocks up to this position of the buffer, because the text is quoted."""
        self.muted = max(self.muted, upto)
        self.quiet = max(self.quiet, upto)
        self.settled = max(self.settled, upto)

    def refuse(self, opener: bytes) -> None:
        """Notes that no taught block begins where reading continues, because that was tried."""
        self._refused = LITERAL if opener else ANSWER

    def end_delta(self, read_in_block: int) -> None:
        """Ends the delta. `read_in_block` is the number of bytes before the open block, or negative."""
        if read_in_block >= 0:
            self.quiet = max(0, self.quiet - read_in_block)
            self.settled = max(0, self.settled - read_in_block)
            self.muted = max(0, self.muted - read_in_block)
        elif not self.held:
            self.quiet = self.settled = self.muted = 0

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, pos: int) -> int:
        """Reads the buffer to its end, or to the position where a block is `opened`."""
        buf = self._buffer.data
        size = len(buf)
        plan = self.plan
        marker: Marker | None
        self._quoted = pos
        self.opened = None
        self.tag = 0
        if self._opens and self._output.fresh and self.state == TEXT:
            at = pos
            while at < size and buf[at] in _SPACE:
                at += 1
            if at < size:
                if not self._refused and plan.answer is not None and buf[at] in plan.begins:
                    self._move(pos, at)
                    return self._open(plan.answer, at)
                if plan.printed is not None:
                    marker, cut = self._marker_at(pos, at)
                    if cut:
                        return self._hold(pos, at)
                    if marker is None and self._may_recognise(pos, at):
                        self._move(pos, at)
                        return self._open(plan.printed, at)
        at = self._next_place(pos, pos)
        while at < size:
            marker, cut = self._marker_at(pos, at)
            loose: Opener | None = None
            if marker is None and not cut and self._loose is not None:
                loose, cut = self._loose_at(pos, at)
            if cut:
                return self._hold(pos, at)
            if marker is not None:
                self._buffer.steps += at + len(marker.literal) - pos
                self._move(pos, at)
                return self._found(marker, at)
            if loose is not None:
                self._buffer.steps += at - pos
                self._move(pos, at)
                return self._open(loose, at)
            at = self._next_place(pos, at + 1)
        self._buffer.steps += size - pos
        self._move(pos, size)
        return size

    def _next_place(self, pos: int, at: int) -> int:
        """Returns the next position from `at` where something may begin: a first byte of a marker, or the start of a
        line."""
        buf = self._buffer.data
        if self._lines and (self._margin if at == pos else buf[at - 1] == _NEWLINE):
            line = at
            while line < len(buf) and buf[line] in b" \t":
                line += 1
            if line < len(buf) and loose_words(self._policy.callable_names)[buf[line]]:
                return line
        return self._next_first(at)

    def _next_first(self, pos: int) -> int:
        """Returns the position of the next of the bytes in `_firsts` from `pos` on, or the end of the buffer. Each
        byte's result is remembered with the position where the search began, because reading returns to an earlier
        position after a false block."""
        buffer = self._buffer
        if self._turn != buffer.turn:
            self._turn = buffer.turn
            self._seen.clear()
        size = nearest = buffer.size
        for first in self._firsts:
            since, found = self._seen.get(first, (size, size))
            if pos < since or found < pos:
                again = buffer.data.find(first, pos, since if pos < since else size)
                found = again if again >= 0 else found if pos < since else size
                self._seen[first] = (pos, found)
            nearest = min(nearest, found)
        return nearest

    def _loose_at(self, pos: int, at: int) -> tuple[Opener | None, bool]:
        """Returns the opener if a call in any form may begin at `at`, and whether the end of the buffer cuts one
        off."""
        buf = self._buffer.data
        if at < self.settled or not loose_words(self._policy.callable_names)[buf[at]]:
            return None, False
        begins = (self.again and at == pos) or (self._lines and self._is_margin(pos, at))
        if not begins or self._is_quoted(pos, at):
            return None, False
        whole, cut = self._word_at(buf, at)
        return (self._loose if whole else None), cut and not self.final

    def _word_at(self, raw: bytes, at: int) -> tuple[bool, bool]:
        """Returns whether one of the beginnings is at `at`, and whether the end of the text cuts one off."""
        words = loose_words(self._policy.callable_names)[raw[at]]
        if any(raw.startswith(word, at) for word in words):
            return True, False
        return False, any(len(raw) - at < len(word) and word.startswith(raw[at:]) for word in words)

    def may_be_loose(self, at: int) -> bool:
        """Returns True if the block that began at `at` may be read again as a call in any form."""
        if self._loose is None or at < self.settled:
            return False
        self._quoted = at
        return not self._is_quoted(at, at)

    def follows_words(self) -> bool:
        """Returns True if words precede the `opened` block in its line."""
        return not self._margin

    def _found(self, marker: Marker, at: int) -> int:
        if marker.opens is not None:
            return self._open(marker.opens, at)
        self.edge()
        self._quoting = Quoting()
        if marker.reasoning is not None:
            self._tags = marker.reasoning
            self._enter(REASONING)
        else:
            self._enter(TEXT)
        self.tag = len(marker.literal)
        return at + self.tag

    def _open(self, opener: Opener, at: int) -> int:
        self._refused = NONE
        self.opened = opener
        return at

    def _marker_at(self, pos: int, at: int) -> tuple[Marker | None, bool]:
        """Returns the marker at `at`, and whether the end of the buffer cuts one off. Text between `pos` and `at` was
        not sent yet."""
        buf = self._buffer.data
        self.around = self.lead = 0
        if buf[at] == TICK[0] and self._taught:
            found, cut = self._fenced_at(pos, at)
            if found is not None or (cut and not self.final):
                return found, cut
        refused = self._refused == LITERAL and at == pos
        for marker in self._markers:
            literal = marker.literal
            if refused and not marker.untaught:
                continue
            whole = buf.startswith(literal, at)
            if not whole and not (len(buf) - at < len(literal) and literal.startswith(buf[at:])):
                continue
            if marker.anchor != "anywhere" and not self._anchored(marker, pos, at):
                continue
            if whole:
                counts = self._counts(marker, pos, at)
                if counts == YES:
                    return marker, False
                if counts == LATER:
                    return None, True
            elif not self.final:
                return None, True
        return None, False

    def _counts(self, marker: Marker, pos: int, at: int) -> int:
        """Returns whether the marker at `at` counts there and is not quoted."""
        if marker.opens is not None and not marker.opens.literal:
            return YES if self._may_recognise(pos, at) else NO
        if marker.untaught and not self._may_recognise(pos, at):
            return NO
        self._quote(pos, at)
        quoting = self._quoting
        if marker.reasoning is not None:
            return NO if quoting.fence else YES
        if at < self.muted:
            return NO
        if marker.opens is None:
            return self._ends_reasoning(at + len(marker.literal))
        if self._line == CITED:
            return NO
        if quoting.fence:
            if marker.literal.startswith(FENCE.encode()):
                return YES if quoting.fence <= len(FENCE) and quoting.fence_mark == TICK[0] else NO
            self.around = IN_FENCE if self._is_margin(pos, at) else 0
            return YES if self.around else NO
        self.around, self.size = (CODE, quoting.span) if quoting.span else self._quoted_by(pos, at)
        return YES

    def _quoted_by(self, pos: int, at: int) -> tuple[int, int]:
        """Returns what may quote a block at `at` outside code, and its number of backticks."""
        last = self._last if at == pos else self._buffer.data[at - 1]
        if self._quoting.string or last == _QUOTE:
            return STRING, 1
        return (MARKS, 1) if last in LAST_BYTES else (0, 0)

    def _ends_reasoning(self, behind: int) -> int:
        """Returns whether a closing tag that ends at `behind` ends reasoning: not if it is in code."""
        if self._quoting.fence:
            return NO
        if not self._quoting.span:
            return YES
        code = Surroundings(CODE, self._quoting.span, ())
        rest = self._buffer.data[behind : behind + WORD_BYTES]
        looked = code.take(rest)
        found = code.found
        if found == GOES_ON:
            if len(rest) < WORD_BYTES and not self.final:
                return LATER
            found = code.end()
        if found == IS_CALL:
            return YES
        self.mute(behind + looked)
        return NO

    def _fenced_at(self, pos: int, at: int) -> tuple[Marker | None, bool]:
        """Returns the marker of a block that is the first content of a fence opening at `at`, and whether the end of
        the buffer cuts one off."""
        buf = self._buffer.data
        if at < self.muted or not self._may_fence(pos, at):
            return None, False
        self._quote(pos, at)
        if self._quoting.quotes():
            return None, False
        end = min(len(buf), at + WORD_BYTES)
        cut = len(buf) < at + WORD_BYTES
        behind = at
        while behind < end and buf[behind] == TICK[0]:
            behind += 1
        if behind == end:
            return None, cut
        if behind - at < len(FENCE):
            return None, False
        behind_line = behind_info(buf[behind:end])
        first = behind + behind_line
        if behind_line < 0 or first == end:
            return None, cut and behind_line >= 0
        for marker in self._taught:
            if marker.opens is None or marker.opens.frames or marker.literal.startswith(TICK):
                continue
            if buf.startswith(marker.literal, first):
                self.around, self.size, self.lead = ALONE, behind - at, first - at
                return marker, False
            if len(buf) - first < len(marker.literal) and marker.literal.startswith(buf[first:]):
                return None, True
        return None, False

    def _quote(self, pos: int, at: int) -> None:
        """Reads quoting up to `at`."""
        buf = self._buffer.data
        self._quote_up_to(pos, at)
        if buf[at] != TICK[0]:
            self._quoting.end_run(buf[at])

    def _quote_up_to(self, pos: int, at: int) -> None:
        if at > self._quoted:
            buf = self._buffer.data
            self._quoting.read(buf, self._quoted, at, self._line)
            self._line = self._read_line(buf, self._quoted, at)
            self._quoted = at

    def _anchored(self, marker: Marker, pos: int, at: int) -> bool:
        """Returns True if `marker` counts at `at`. Text between `pos` and `at` was not sent yet."""
        buf = self._buffer.data
        if marker.anchor == "margin":
            return self._is_margin(pos, at) if buf[at] != TICK[0] else self._may_fence(pos, at)
        if marker.anchor == "start":
            return self._starts_line(pos, at) or (self._output.starts(at - pos) and not buf[pos:at].strip(_SPACE))
        if marker.anchor == "after":
            return self._output.touches(at - pos) and not buf[pos:at].strip(_SPACE)
        return self._starts_line(pos, at)

    def _may_fence(self, pos: int, at: int) -> bool:
        """Returns True if backticks at `at` are at the start of a line, after indentation and marks of list items."""
        self._quote_up_to(pos, at)
        return self._line <= ITEM

    def _starts_line(self, pos: int, at: int) -> bool:
        return (self._last if at == pos else self._buffer.data[at - 1]) == _NEWLINE

    def _may_recognise(self, pos: int, at: int) -> bool:
        """Returns True if an untaught block may begin at `at`."""
        return at >= self.quiet and not self._is_quoted(pos, at)

    def _is_quoted(self, pos: int, at: int) -> bool:
        """Returns True if `at` is in inline code, in a fence, or in a line of a quotation."""
        self._quote(pos, at)
        return self._quoting.quotes() or self._line == CITED

    def _hold(self, pos: int, at: int) -> int:
        """Holds back the text from `at`, which may begin a marker."""
        buf = self._buffer.data
        self._buffer.steps += len(buf) - pos
        self.held = buf[at:]
        self._move(pos, at)
        self.quiet = max(0, self.quiet - at)
        self.settled = max(0, self.settled - at)
        self.muted = max(0, self.muted - at)
        return len(buf)

    def _move(self, pos: int, at: int) -> None:
        """Sends the text between `pos` and `at`; reading continues there."""
        if at == pos:
            return
        buf = self._buffer.data
        self._refused = NONE
        self.again = False
        if self._first_chars:
            self._quote_up_to(pos, at)
            self._margin = self._is_margin(pos, at)
        self._last = buf[at - 1]
        self._output.say(buf[pos:at].decode())

    def _read_line(self, buf: bytes, pos: int, at: int) -> int:
        """Returns what the line with `at` begins with, before it; `_line` says so for `pos`."""
        line = buf.rfind(b"\n", pos, at) + 1
        begins = BLANK if line else self._line
        for byte in buf[line or pos : at]:
            if begins >= PROSE_LINE:
                break
            begins = begins_with(begins, byte)
        return begins

    def _is_margin(self, pos: int, at: int) -> bool:
        """Returns True if `at` is at the start of a line after indentation; `_margin` says so for `pos`."""
        buf = self._buffer.data
        while at > pos and buf[at - 1] in b" \t":
            at -= 1
        return self._margin if at == pos else buf[at - 1] == _NEWLINE
