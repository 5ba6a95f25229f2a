"""Text outside blocks, in Python: what is said at once, what is kept back, and where a block may begin.

Part of the Python twin, see `_pyparse.py`. `_fastprose.pxi` is the same with C types.
"""

from __future__ import annotations

from typing import Final

from ._grammar import FENCE, REASONING, SPACE, TEXT, WORD_BYTES, CallPolicy
from ._plan import TICK, Marker, Opener, Plan
from ._pybuffer import Buffer
from ._pyoutput import Output
from .loose_head import loose_words
from .parts.quoting import Quoting
from .surroundings import ALONE, CODE, GOES_ON, IS_CALL, LAST_BYTES, MARKS, STRING, Surroundings, behind_info
from .surroundings import FENCE as IN_FENCE

_SPACE: Final = SPACE.encode()
_NEWLINE: Final = ord("\n")
_QUOTE: Final = ord('"')
_BLANKS: Final = " \t"

NONE: Final = 0
ANSWER: Final = 1
LITERAL: Final = 2
"""What was taken for a block of what is taught and was none: nothing yet, what begins an answer, what begins with an
opener."""

NO: Final = 0
YES: Final = 1
LATER: Final = 2
"""Whether a marker counts where it stands: that may depend on what follows."""


class Prose:
    """Reads the text of one answer outside blocks: says it, and finds the markers in it.

    `plan` says what they are. `state` is where the text is, `TEXT` or `REASONING`. `opened` is what opens a block where
    reading stopped, `around` what may quote that block, with `size` ticks, and `lead` the length of the fence's line
    before its opener (see `surroundings`). `held` may be the beginning of a marker; once the text is `final`, nothing
    is. `quiet` is up to where in the buffer no block of an untaught syntax begins, since one was read there already;
    `settled` the same for what may be a call in any form, which begins at the start of a line, or where another block
    was none (`again`); up to `muted` no block at all and no end of reasoning, since what stands there is quoted.
    """

    def __init__(self, buffer: Buffer, output: Output, policy: CallPolicy, plan: Plan, preopened: bool) -> None:
        self._buffer = buffer
        self._output = output
        self._policy = policy
        self.opened: Opener | None = None
        self.around = 0
        self.size = 0
        self.lead = 0
        self.held = b""
        self.final = False

        # `_tags`: the pair of tags that the text is inside of. `_last`: the byte before what is read, a line end where
        # a text begins; `_margin`: that begins a line, indentation aside. `_quoting` is what is quoted there, read up
        # to `_quoted`, `_refused` what was tried here of what is taught.
        self._tags = 0
        self._margin = True
        self._last = _NEWLINE
        self._quoting = Quoting()
        self._quoted = 0
        self.quiet = self.settled = self.muted = 0
        self.again = False
        self._refused = NONE
        self.read_as(plan)
        self._enter(REASONING if preopened else TEXT)
        output.begin(self.state)

    def read_as(self, plan: Plan) -> None:
        """From here on look for this. What is looked for inside reasoning changes with the next tag, or with
        `enter_again`."""
        self.plan = plan
        self._opens = plan.answer is not None or plan.printed is not None or plan.loose is not None
        literals = [marker.literal for markers in (plan.text, *plan.inside) for marker in markers]
        ticks = TICK.decode() if literals or plan.loose is not None else ""
        self._first_chars = tuple(dict.fromkeys((*(literal.decode()[0] for literal in literals), *ticks)))

    def enter_again(self) -> None:
        """The text goes on behind a block."""
        self._enter(self.state)

    def _enter(self, state: int) -> None:
        self.state = state
        self._markers = self.plan.text if state == TEXT else self.plan.inside[self._tags]
        self._loose = self.plan.loose if state == TEXT else None
        self._lines = self._loose is not None and self._loose.anchor == "margin"
        self._firsts = self.plan.firsts + b"\n" if self._lines else self.plan.firsts
        self._taught = self.plan.taught if state == TEXT or self.plan.calls_inside else ()
        self._output.enter(state)

    # --- text in which nothing begins ---------------------------------------------------------------------------------

    def is_plain(self, text: str) -> bool:
        """No block and no tag can begin in it, and no quotation."""
        if self._opens and self._output.fresh:
            return False
        for first in self._first_chars:  # `any` with a generator doubles the cost of a delta
            if first in text:
                return False
        return not (self._lines and (self._margin or "\n" in text) and self._begins_line(text.encode()))

    def _begins_line(self, raw: bytes) -> bool:
        """In a line of this text, or at its start, a call in any form may begin."""
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
        """Plain text is said, by whoever asked."""
        if self._first_chars and (self._quoting.active or '"' in text):
            raw = text.encode()
            self._quoting.read(raw, 0, len(raw), self._margin)
        self._pass_line(text)

    def pass_text(self, raw: bytes) -> None:
        """A block is text, which is said by whoever found that."""
        if raw:
            self._quoting.read(raw, 0, len(raw), self._margin)
            self._pass_line(raw.decode())

    def _pass_line(self, text: str) -> None:
        """Where the text ends that is said."""
        self.again = False
        self._last = text[-1].encode()[-1]
        if text[-1] in _BLANKS:
            before = text.rstrip(_BLANKS)
            self._margin = before[-1] == "\n" if before else self._margin
        else:
            self._margin = self._last == _NEWLINE

    # --- blocks and tags ----------------------------------------------------------------------------------------------

    def edge(self) -> None:
        """Here is a recognised block or a tag."""
        self._output.edge()
        self._margin = True
        self._last = _NEWLINE
        self._quoting.end_line()

    def mute(self, upto: int) -> None:
        """Up to this place of the buffer no block begins: what stands there is quoted."""
        self.muted = max(self.muted, upto)
        self.quiet = max(self.quiet, upto)
        self.settled = max(self.settled, upto)

    def refuse(self, opener: bytes) -> None:
        """Where reading goes on there is no block of what is taught: that was tried."""
        self._refused = LITERAL if opener else ANSWER

    def end_delta(self, read_in_block: int) -> None:
        """The delta is over, of which so much was read before the block that is open."""
        if read_in_block >= 0:
            self.quiet = max(0, self.quiet - read_in_block)
            self.settled = max(0, self.settled - read_in_block)
            self.muted = max(0, self.muted - read_in_block)
        elif not self.held:
            self.quiet = self.settled = self.muted = 0

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, pos: int) -> int:
        """Read the buffer up to its end, or to where a block is `opened`."""
        buf = self._buffer.data
        size = len(buf)
        plan = self.plan
        marker: Marker | None
        self._quoted = pos
        self.opened = None
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
        """Where from `at` on something may begin: at a byte that begins markers, or at the start of a line."""
        buf = self._buffer.data
        if self._lines and (self._margin if at == pos else buf[at - 1] == _NEWLINE):
            line = at
            while line < len(buf) and buf[line] in b" \t":
                line += 1
            if line < len(buf) and loose_words(self._policy.callable_names)[buf[line]]:
                return line
        return self._buffer.next_of(self._firsts, at)

    def _loose_at(self, pos: int, at: int) -> tuple[Opener | None, bool]:
        """What opens a call in any form that may begin at `at`, and whether one may, as far as the buffer goes."""
        buf = self._buffer.data
        if at < self.settled or not loose_words(self._policy.callable_names)[buf[at]]:
            return None, False
        begins = (self.again and at == pos) or (self._lines and self._is_margin(pos, at))
        if not begins or self._is_quoted(pos, at):
            return None, False
        whole, cut = self._word_at(buf, at)
        return (self._loose if whole else None), cut and not self.final

    def _word_at(self, raw: bytes, at: int) -> tuple[bool, bool]:
        """Whether one of the words stands at `at`, and whether one may, as far as the text goes."""
        words = loose_words(self._policy.callable_names)[raw[at]]
        if any(raw.startswith(word, at) for word in words):
            return True, False
        return False, any(len(raw) - at < len(word) and word.startswith(raw[at:]) for word in words)

    def may_be_loose(self, at: int) -> bool:
        """Whether a block that began at `at`, and was read, may be read as a call in any form."""
        if self._loose is None or at < self.settled:
            return False
        self._quoted = at
        return not self._is_quoted(at, at)

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
        return at + len(marker.literal)

    def _open(self, opener: Opener, at: int) -> int:
        self._refused = NONE
        self.opened = opener
        return at

    def _marker_at(self, pos: int, at: int) -> tuple[Marker | None, bool]:
        """The marker that stands at `at`, and whether one may, as far as the buffer goes. What stands between `pos` and
        there was not said yet."""
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
        """Whether the marker that stands at `at` is one there, and not quoted."""
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
        if quoting.fence:
            if marker.literal.startswith(FENCE.encode()):
                return YES if quoting.fence <= len(FENCE) else NO
            self.around = IN_FENCE if self._is_margin(pos, at) else 0
            return YES if self.around else NO
        self.around, self.size = (CODE, quoting.span) if quoting.span else self._quoted_by(pos, at)
        return YES

    def _quoted_by(self, pos: int, at: int) -> tuple[int, int]:
        """What may quote a block at `at`, which stands in no code."""
        last = self._last if at == pos else self._buffer.data[at - 1]
        if self._quoting.string or last == _QUOTE:
            return STRING, 1
        return (MARKS, 1) if last in LAST_BYTES else (0, 0)

    def _ends_reasoning(self, behind: int) -> int:
        """Whether a closing tag ends reasoning, as far as can be said before `behind`: none does in code."""
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
        """The marker of a block with which the content of a fence begins that opens at `at`, and whether one may, as
        far as the buffer goes."""
        buf = self._buffer.data
        if at < self.muted or not self._is_margin(pos, at):
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
        """Read up to `at` what may be quoted."""
        buf = self._buffer.data
        self._quoting.read(buf, self._quoted, at, self._is_margin(pos, self._quoted))
        self._quoted = at
        if buf[at] != TICK[0]:
            self._quoting.end_run(buf[at])

    def _anchored(self, marker: Marker, pos: int, at: int) -> bool:
        """Whether `marker` counts at `at`; what stands between `pos` and there was not said yet."""
        buf = self._buffer.data
        if marker.anchor == "margin":
            return self._is_margin(pos, at)
        if marker.anchor == "start":
            return self._starts_line(pos, at) or (self._output.starts(at - pos) and not buf[pos:at].strip(_SPACE))
        if marker.anchor == "after":
            return self._output.touches(at - pos) and not buf[pos:at].strip(_SPACE)
        return self._starts_line(pos, at)

    def _starts_line(self, pos: int, at: int) -> bool:
        return (self._last if at == pos else self._buffer.data[at - 1]) == _NEWLINE

    def _may_recognise(self, pos: int, at: int) -> bool:
        """Whether an untaught block may begin at `at`."""
        return at >= self.quiet and not self._is_quoted(pos, at)

    def _is_quoted(self, pos: int, at: int) -> bool:
        """Whether `at` is in inline code or in a fence."""
        self._quote(pos, at)
        return self._quoting.quotes()

    def _hold(self, pos: int, at: int) -> int:
        """What begins at `at` may be a marker: keep it until more is there."""
        buf = self._buffer.data
        self._buffer.steps += len(buf) - pos
        self.held = buf[at:]
        self._move(pos, at)
        self.quiet = max(0, self.quiet - at)
        self.settled = max(0, self.settled - at)
        self.muted = max(0, self.muted - at)
        return len(buf)

    def _move(self, pos: int, at: int) -> None:
        """The text between `pos` and `at` is said, and reading goes on behind it."""
        if at == pos:
            return
        buf = self._buffer.data
        self._refused = NONE
        self.again = False
        if self._first_chars:
            self._quoting.read(buf, self._quoted, at, self._is_margin(pos, self._quoted))
            self._quoted = max(self._quoted, at)
            self._margin = self._is_margin(pos, at)
        self._last = buf[at - 1]
        self._output.say(buf[pos:at].decode())

    def _is_margin(self, pos: int, at: int) -> bool:
        """Whether `at` is the start of a line, indentation aside; `_margin` says it of `pos`."""
        buf = self._buffer.data
        while at > pos and buf[at - 1] in b" \t":
            at -= 1
        return self._margin if at == pos else buf[at - 1] == _NEWLINE
