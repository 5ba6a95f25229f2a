"""Text outside blocks, in Python: what goes out at once, what waits, and where a block may begin.

Part of the Python twin, see `_pyparse.py`; `BlockScanner` is this with blocks. `_fastprose.pxi` is the same with C types.
"""

from __future__ import annotations

import codecs
from typing import Final

from ..events import BlockKind, BlockStatus, Close, Delta, Event, Open
from ._grammar import DONE, REASONING, SPACE, STATES, TEXT, Grammar, valid_text
from ._plan import TICK, Marker, Opener, plan
from ._pyquoting import Quoting

_SPACE: Final = SPACE.encode()
_NEWLINE: Final = ord("\n")
_BLANKS: Final = " \t"

NONE: Final = 0
ANSWER: Final = 1
LITERAL: Final = 2
"""What was taken for a block of what is taught and was none: nothing yet, what begins an answer, what begins with an opener."""


class ProseScanner:
    """Reads the text of one answer outside blocks. For the parameters see `CallScanner`."""

    def __init__(
        self,
        grammar: Grammar,
        block_bytes: int,
        trim_edges: bool,
        reasoning: tuple[tuple[str, str], ...],
        preopened: bool,
        scan_calls: bool,
        choice: int,
        first_block: int,
    ) -> None:
        self._state = TEXT
        self._grammar = grammar
        self._reasoning = reasoning
        self._scan_calls = scan_calls
        self._block_bytes = block_bytes
        self._trim_edges = trim_edges
        self._choice = choice
        self._next_block = first_block
        self._steps = 0

        # Input: half a character at the end of the last delta, and the bytes that are being read.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._cut = False
        self._high = ""
        self._buf = b""
        self._seen: dict[
            int, tuple[int, int]
        ] = {}  # where bytes were looked for and found in it, by those who do so often
        self._out: list[Event] = []

        # Prose: `_prose` is where the text outside blocks belongs, `_tags` the pair it is inside of, `_fresh` that nothing but
        # whitespace was visible yet, `_after` that the last edge is a block.
        self._tags = 0
        self._fresh = True
        self._after = False
        self._held = b""

        # Where what is read begins: `_line_start`, at the start of a line; `_margin`, indentation aside. For untaught shapes: `_quoting`
        # is what is quoted there, `_quiet` up to where in the buffer none begins, since one was read there already, `_refused` what was
        # tried here of what is taught.
        self._line_start = self._margin = True
        self._quoting = Quoting()
        self._quiet = 0
        self._refused = NONE
        self._read_as(grammar)
        self._enter(REASONING if preopened and reasoning else TEXT)

        # What goes out, and whitespace that waits. `_blank`: only whitespace since the last edge. `_touching`: that edge
        # is a block or a tag, not the start of the answer. `_spilled`: the run of whitespace was too long to wait. `_spoken`:
        # something was visible already. Of whitespace that was left out since then: `_left` what stood behind the last text,
        # `_middle` between blocks, `_right` since the last edge (R6.6).
        self._open = -1
        self._said: list[str] = []
        self._pending = bytearray()
        self._blank = True
        self._touching = self._state == REASONING
        self._spilled = False
        self._spoken = False
        self._left = self._middle = self._right = ""

        # What earlier deltas brought of a block; the rest begins at `_start` in `_buf`. Offsets count from its first byte.
        self._raw = bytearray()
        self._start = 0

    @property
    def state(self) -> str:
        """Name of the state, one of `STATES`."""
        return STATES[self._state]

    @property
    def held(self) -> str:
        """What was fed and not given out yet: pending whitespace, then a possible marker or the block so far."""
        return ("" if self._trim_edges else self._left) + (self._pending + self._raw + self._held).decode()

    @property
    def next_block(self) -> int:
        """The number that the next block will get."""
        return self._next_block

    @property
    def block(self) -> int | None:
        """The open block of text or reasoning, None if none is open."""
        return self._open if self._open >= 0 else None

    @property
    def steps(self) -> int:
        """Characters or bytes looked at so far: at most four times the input, seven where untaught shapes are looked
        for, and, for each delta, once what was held back of a marker, whatever the input is (R6.10)."""
        return self._steps

    def feed(self, data: str | bytes) -> list[Event]:
        """Take the next piece of the answer and give what is certain now.

        Bytes are UTF-8 and may be cut inside a character; what is invalid becomes U+FFFD. Text may hold surrogate
        halves: a pair cut by deltas is joined, a lone half becomes U+FFFD. Never raises for any text. After a `Fault`
        or `finish` everything is ignored.
        """
        out: list[Event] = []
        self._out = out
        if self._state == DONE:
            return out
        text = self._decode(data)
        if not text:
            return out
        if self._state <= REASONING and not self._held and self._is_plain(text):
            self._steps += len(text)
            self._pass_plain(text)
            if self._blank or self._open < 0 or self._pending or (self._trims and text[-1] in SPACE):
                self._say(text)
            else:  # most deltas: nothing to hold, nothing to give back
                self._spilled = False
                self._fresh = self._fresh and self._stays_fresh(text)
                out.append(Delta(self._open, text))
                return out
        else:
            self._begin(self._held + text.encode())
            self._run(0)
        self._flush()
        return out

    def pass_on(self, text: str) -> str | None:
        """What goes out at once for `text` if it is more of `block` and nothing else; then it counts as fed. None if it takes
        `feed` to tell. `text` is not empty and holds no surrogates."""
        if (
            self._state > REASONING
            or self._open < 0
            or self._blank
            or self._spilled
            or self._held
            or self._cut
            or self._high
            or not self._is_plain(text)
        ):
            return None
        said = text.rstrip(SPACE) if self._trims else text
        waits = text[len(said) :]
        if len(self._pending) + len(waits) > self._limit:
            return None
        self._steps += len(text)
        self._pass_plain(text)
        if said:
            self._fresh = self._fresh and self._stays_fresh(said)
            said = self._pending.decode() + said
            self._pending.clear()
        self._pending += waits.encode()
        return said

    def finish(self, truncated: bool = False) -> list[Event]:
        """The answer is over; `truncated` if the backend stopped for length. Gives what was kept back, settles an
        unfinished block (R6.8, C18) and closes what is open."""
        out: list[Event] = []
        self._out = out
        if self._state == DONE:
            return out
        rest = self._decoder.decode(b"", True) + ("\N{REPLACEMENT CHARACTER}" if self._high else "")
        if rest:
            self._begin(self._held + rest.encode())
            self._run(0)
        while REASONING < self._state < DONE:
            self._begin(b"")
            self._gather()
            self._run(self._end(truncated))
        if self._state != DONE:
            self._say(self._held.decode())
            self._held = b""
            if not (self._blank and self._touching):
                self._give_back()
            self._close("truncated" if truncated else "complete")
            self._state = DONE
        return out

    # --- input ------------------------------------------------------------------------------------------------------

    def _decode(self, data: str | bytes) -> str:
        """The delta as valid text, without half a character at its end."""
        if isinstance(data, str):
            if data.isascii() and not self._cut and not self._high:
                return data
            head = self._decoder.decode(b"", True) if self._cut else ""
            self._cut = False
            return head + self._join_surrogates(data)
        head = "\N{REPLACEMENT CHARACTER}" if self._high and data else ""
        text = self._decoder.decode(data)
        self._cut = bool(self._decoder.getstate()[0])
        if head:
            self._high = ""
        return head + text

    def _join_surrogates(self, text: str) -> str:
        text = self._high + text
        self._high = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return valid_text(text)

    def _is_plain(self, text: str) -> bool:
        """No block and no tag can begin in it, and no quotation."""
        if self._fresh and self._opens:
            return False
        for first in self._first_chars:  # noqa: SIM110  # `any` with a generator doubles the cost of a delta
            if first in text:
                return False
        return True

    def _begin(self, buf: bytes) -> None:
        self._buf = buf
        self._held = b""
        self._start = 0
        self._ahead = [-1] * len(self._firsts)
        self._seen.clear()

    def _run(self, pos: int) -> None:
        """Read the buffer from `pos` to its end and keep what belongs to an open block."""
        while pos < len(self._buf) and self._state != DONE:
            pos = self._read_prose(pos) if self._state <= REASONING else self._read_block(pos)
        if REASONING < self._state < DONE:
            self._raw += self._buf[self._start :]
            self._quiet = max(0, self._quiet - self._start)
        elif not self._held:
            self._quiet = 0
        self._buf = b""

    def _gather(self) -> int:
        """Put what earlier deltas brought of the block before the buffer. Gives by how much positions have moved."""
        shift = len(self._raw)
        if shift:
            self._begin(bytes(self._raw) + self._buf)
            self._raw.clear()
        return shift

    def _offset(self, pos: int) -> int:
        """How far from the block's first byte a position is."""
        return len(self._raw) + pos - self._start

    # --- outside blocks ---------------------------------------------------------------------------------------------

    def _read_as(self, grammar: Grammar) -> None:
        """From here on look for this."""
        self._plan = plan(grammar, self._reasoning, self._scan_calls)
        self._opens = self._plan.answer is not None or self._plan.printed is not None
        self._limit = max(self._block_bytes, self._plan.longest)
        literals = [marker.literal for markers in (self._plan.text, *self._plan.inside) for marker in markers]
        ticks = TICK.decode() if self._plan.quotes else ""
        self._first_chars = tuple(dict.fromkeys((*(literal.decode()[0] for literal in literals), *ticks)))
        self._firsts = self._plan.firsts
        self._ahead = [-1] * len(self._firsts)

    def _enter(self, prose: int) -> None:
        self._state = self._prose = prose
        self._markers = self._plan.text if prose == TEXT else self._plan.inside[self._tags]
        self._trims = self._trim_edges and prose == TEXT

    def _read_prose(self, pos: int) -> int:
        buf = self._buf
        size = len(buf)
        marker: Marker | None
        self._quoted = pos
        if self._fresh and self._opens and self._prose == TEXT:
            at = pos
            while at < size and buf[at] in _SPACE:
                at += 1
            if at < size:
                if not self._refused and self._plan.answer is not None and buf[at] in self._plan.begins:
                    self._move(pos, at)
                    return self._open_block(self._plan.answer, at)
                if self._plan.printed is not None:
                    marker, cut = self._marker_at(pos, at)
                    if cut:
                        return self._hold(pos, at)
                    if marker is None and self._may_recognise(pos, at):
                        self._move(pos, at)
                        return self._open_block(self._plan.printed, at)
        at = pos
        while (at := self._next_first(at)) < size:
            marker, cut = self._marker_at(pos, at)
            if cut:
                return self._hold(pos, at)
            if marker is not None:
                self._steps += at + len(marker.literal) - pos
                self._move(pos, at)
                return self._open_marker(marker, at)
            at += 1
        self._steps += size - pos
        self._move(pos, size)
        return size

    def _marker_at(self, pos: int, at: int) -> tuple[Marker | None, bool]:
        """The marker that stands at `at`, and whether one may, as far as the buffer goes. What stands between `pos` and there was not
        said yet."""
        buf = self._buf
        refused = self._refused == LITERAL and at == pos
        for marker in self._markers:
            literal = marker.literal
            if refused and not marker.untaught:
                continue
            if marker.anchor != "anywhere" and not self._anchored(marker, pos, at):
                continue
            if buf.startswith(literal, at):
                if not marker.untaught or self._may_recognise(pos, at):
                    return marker, False
            elif len(buf) - at < len(literal) and literal.startswith(buf[at:]):
                return None, True
        return None, False

    def _may_recognise(self, pos: int, at: int) -> bool:
        """Whether an untaught block may begin at `at`."""
        if at < self._quiet:
            return False
        quoting = self._quoting
        quoting.read(self._buf, self._quoted, at, self._is_margin(pos, self._quoted))
        self._quoted = at
        if self._buf[at] != TICK[0]:
            quoting.end_run(self._buf[at])
        return not quoting.quotes

    def _hold(self, pos: int, at: int) -> int:
        """What begins at `at` may be a marker: keep it until more is there."""
        size = len(self._buf)
        self._steps += size - pos
        self._held = self._buf[at:]
        self._move(pos, at)
        self._quiet = max(0, self._quiet - at)
        return size

    def _move(self, pos: int, at: int) -> None:
        """The text between `pos` and `at` is said, and reading goes on behind it."""
        if at == pos:
            return
        buf = self._buf
        self._refused = NONE
        if self._plan.quotes:
            if self._prose == TEXT:
                self._quoting.read(buf, self._quoted, at, self._is_margin(pos, self._quoted))
            self._margin = self._is_margin(pos, at)
        self._line_start = buf[at - 1] == _NEWLINE
        self._say(buf[pos:at].decode())

    def _is_margin(self, pos: int, at: int) -> bool:
        """Whether `at` is the start of a line, indentation aside; `_margin` says it of `pos`."""
        buf = self._buf
        while at > pos and buf[at - 1] in b" \t":
            at -= 1
        return self._margin if at == pos else buf[at - 1] == _NEWLINE

    def _pass_text(self, raw: bytes) -> None:
        """A block is text."""
        if self._plan.quotes and self._prose == TEXT:
            self._quoting.read(raw, 0, len(raw), self._margin)
        self._pass_line(raw.decode())

    def _pass_plain(self, text: str) -> None:
        """Text is said in which nothing begins."""
        if self._plan.quotes and self._quoting.active and self._prose == TEXT:
            raw = text.encode()
            self._quoting.read(raw, 0, len(raw), self._margin)
        self._pass_line(text)

    def _pass_line(self, text: str) -> None:
        """Where the text ends that is said."""
        self._line_start = text[-1] == "\n"
        if not self._plan.quotes:
            return
        if text[-1] in _BLANKS:
            before = text.rstrip(_BLANKS)
            self._margin = before[-1] == "\n" if before else self._margin
        else:
            self._margin = self._line_start

    def _anchored(self, marker: Marker, pos: int, at: int) -> bool:
        """Whether `marker` counts at `at`; what stands between `pos` and there was not said yet."""
        if marker.anchor == "margin":
            return self._is_margin(pos, at)
        if marker.anchor == "after":
            near = self._trims or len(self._pending) + at - pos <= self._limit  # more would not have waited
            return self._after and self._blank and near and not self._buf[pos:at].strip(_SPACE)
        return self._line_start if at == pos else self._buf[at - 1] == _NEWLINE

    def _next_first(self, pos: int) -> int:
        """The next place where the first byte of a marker stands, or the buffer's size. Each first byte remembers where
        it was found, so that none is looked for twice over the same bytes."""
        buf = self._buf
        nearest = len(buf)
        for index, at in enumerate(self._ahead):
            if at < pos:
                at = buf.find(self._firsts[index], pos)
                self._ahead[index] = at = len(buf) if at < 0 else at
            nearest = min(nearest, at)
        return nearest

    def _open_marker(self, marker: Marker, at: int) -> int:
        if marker.opens is not None:
            return self._open_block(marker.opens, at)
        self._edge()
        if marker.reasoning is not None:
            self._tags = marker.reasoning
            self._enter(REASONING)
        else:
            self._enter(TEXT)
        return at + len(marker.literal)

    # --- what goes out ----------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        """Text outside blocks: keep whitespace back as long as it may touch a block (R6.6)."""
        if not text:
            return
        if self._blank:
            stripped = text.lstrip(SPACE)
            if self._touching and self._trims:
                if self._spoken:
                    self._right = _stays(self._right, text[: len(text) - len(stripped)])
                text = stripped
            if not stripped:
                self._wait(text)
                return
            self._begin_text()
        if self._trims:
            stripped = text.rstrip(SPACE)
            if not stripped:
                self._wait(text)
                return
            self._give_back()
            self._said.append(stripped)
            if len(stripped) < len(text):
                self._wait(text[len(stripped) :])
        else:
            self._give_back()
            self._said.append(text)
        self._fresh = self._fresh and self._stays_fresh(text)

    def _stays_fresh(self, text: str) -> bool:
        return self._prose != TEXT or not text.strip(SPACE)

    def _begin_text(self) -> None:
        """Something else than whitespace comes, the first thing since the last edge. Between two texts one character of what
        stood there stays; all of it where none is dropped."""
        self._blank = False
        if self._prose == TEXT:
            joint = _stays(self._left, self._right) or self._middle if self._trim_edges else self._left
            if joint:
                self._said.append(joint)
                self._left = self._middle = self._right = ""
            self._spoken = True

    def _leave_out(self) -> None:
        """Whitespace waits beside a block or a tag: it goes. Where none is dropped it goes with what follows."""
        space = self._pending.decode()
        if not self._trim_edges:
            self._left += space
            if len(self._left) > self._limit:
                self._begin_text()
        elif not self._blank:
            self._left = _stays("", space)
        else:
            self._middle = _stays(self._middle, self._right)
            self._right = ""

    def _wait(self, space: str) -> None:
        if self._spilled:
            self._said.append(space)
            return
        self._pending += space.encode()
        if len(self._pending) > self._limit:
            if self._blank:
                self._begin_text()
            self._give_back()
            self._spilled = True

    def _give_back(self) -> None:
        self._spilled = False
        if self._pending:
            self._said.append(self._pending.decode())
            self._pending.clear()

    def _flush(self) -> None:
        if not self._said:
            return
        if self._open < 0:
            kind = BlockKind.TEXT if self._prose == TEXT else BlockKind.REASONING
            self._open = self._number()
            self._out.append(Open(self._open, kind, choice=self._choice))
        self._out.append(Delta(self._open, "".join(self._said)))
        self._said.clear()

    def _close(self, status: BlockStatus = "complete") -> None:
        self._flush()
        if self._open >= 0:
            self._out.append(Close(self._open, status))
            self._open = -1

    def _edge(self) -> None:
        """Here is a recognised block or a tag: whitespace that touches it goes, text goes on in a block of its own."""
        if self._prose == TEXT:
            self._leave_out()
        self._pending.clear()
        self._close()
        self._blank = self._touching = self._line_start = self._margin = True
        self._after = self._spilled = False
        if self._plan.quotes and self._prose == TEXT:
            self._quoting.end_line()

    def _number(self) -> int:
        number = self._next_block
        self._next_block += 1
        return number

    # --- blocks: see `BlockScanner` ---------------------------------------------------------------------------------

    def _open_block(self, opener: Opener, at: int) -> int:
        """A block begins at `at`. Gives the position from where to go on."""
        raise NotImplementedError  # abstract: `BlockScanner` reads blocks

    def _read_block(self, pos: int) -> int:
        """Read on in the block. Gives the position from where to go on."""
        raise NotImplementedError  # abstract: `BlockScanner` reads blocks

    def _end(self, truncated: bool) -> int:
        """The answer ended inside the block, which is now the whole buffer. Gives the position from where to go on."""
        raise NotImplementedError  # abstract: `BlockScanner` reads blocks


def _stays(kept: str, space: str) -> str:
    """What stays of whitespace: a line end, else a blank; `kept` stays of what stood before it."""
    return "\n" if "\n" in space else kept or " "[: len(space)]
