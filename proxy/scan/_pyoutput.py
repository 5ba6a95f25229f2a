"""The output: events, and whitespace that is held back because it may touch a block (R6.6). Part of the Python twin,
see `_pyparse.py`; `_fastoutput.pxi` is the same with C types."""

from __future__ import annotations

from collections.abc import Iterable

from ..events import BlockKind, BlockStatus, Close, Delta, Event, Open
from ._grammar import REASONING, SPACE, TEXT, FoundCall, valid_text
from .blocks import opening


class Blanks:
    """Held-back whitespace, stored as its beginning and the number of times that its last character repeats, so that a
    long run of one character costs no more than a short one."""

    def __init__(self) -> None:
        self._before = bytearray()
        self._blank = ""
        self._count = 0

    def __len__(self) -> int:
        return len(self._before) + self._count

    def __str__(self) -> str:
        return self._before.decode() + self._blank * self._count

    def add(self, space: str) -> None:
        """Adds at least one character of whitespace."""
        rest = space.rstrip(space[-1])
        if rest or space[-1] != self._blank:
            self._before += (self._blank * self._count + rest).encode()
            self._blank = space[-1]
            self._count = 0
        self._count += len(space) - len(rest)

    def clear(self) -> None:
        """Drops the whitespace."""
        self._before.clear()
        self._count = 0


class Output:
    """The events of one answer. It knows neither markers nor blocks: callers give it text and announce edges.

    `events` are those of the current delta. `prose` is the kind of the current text, `TEXT` or `REASONING`; `open` its
    block number, or -1. `next_block` is the next block number. `trims`: whitespace at edges is dropped. `fresh`: only
    whitespace was visible so far. `after`: the last edge is a block.
    """

    def __init__(self, trim_edges: bool, choice: int, first_block: int) -> None:
        self.events: list[Event] = []
        self.next_block = first_block
        self.limit = 0
        self.open = -1
        self.fresh = True
        self.after = False
        self._choice = choice
        self._trim_edges = trim_edges
        self._said: list[str] = []

        # `_pending`: held-back whitespace. `_blank`: only whitespace since the last edge. `_touching`: that edge is a
        # block or a tag, not the start of the answer. `_spilled`: the run of whitespace was too long to be held back.
        # `_spoken`: there was visible text. Of whitespace dropped since then, the character that remains: `_left` after
        # the last text, `_middle` between blocks, `_right` since the last edge. `_kept`: all of it, where none is
        # dropped.
        self._pending = Blanks()
        self._blank = True
        self._touching = False
        self._spilled = False
        self._spoken = False
        self._left = self._middle = self._right = ""
        self._kept = Blanks()
        self.enter(TEXT)

    def begin(self, prose: int) -> None:
        """Starts the answer with this kind of text: `TEXT` or `REASONING`."""
        self.enter(prose)
        self._touching = prose == REASONING

    def enter(self, prose: int) -> None:
        """Continues with this kind of text: `TEXT` or `REASONING`."""
        self.prose = prose
        self.trims = self._trim_edges and prose == TEXT

    @property
    def waiting(self) -> str:
        """Whitespace that was read but not sent yet."""
        return str(self._kept) + str(self._pending)

    @property
    def waits(self) -> int:
        """The length of `waiting` in bytes."""
        return len(self._kept) + len(self._pending)

    @property
    def flows(self) -> bool:
        """True if more text of the open block can be sent directly."""
        return not (self._blank or self._spilled or self.open < 0)

    def touches(self, more: int) -> bool:
        """Returns True if a block here would follow a block with only whitespace between, of which `more` bytes were
        not given to `say` yet."""
        near = self.trims or len(self._pending) + more <= self.limit  # a longer run was not held back
        return self.after and self._blank and near

    def starts(self, more: int) -> bool:
        """Returns True if only whitespace stands between here and the start of the answer, a block or a tag; `more`
        bytes of it were not given to `say` yet."""
        near = self.trims or len(self._pending) + more <= self.limit
        return (self.fresh and self.prose == TEXT) or (self._blank and self._touching and near)

    # --- text -------------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Adds text. Whitespace is held back while it may touch a block (R6.6)."""
        if not text:
            return
        if self._blank:
            stripped = text.lstrip(SPACE)
            if self._touching and self.trims:
                if self._spoken:
                    self._right = _stays(self._right, text[: len(text) - len(stripped)])
                text = stripped
            if not stripped:
                self._wait(text)
                return
            self._begin_text()
        if self.trims:
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
        self._see(text)

    def say_raw(self, raw: bytes) -> None:
        """Adds text in UTF-8."""
        self.say(raw.decode())

    def say_text(self, text: str) -> None:
        """Adds text that may contain surrogates."""
        self.say(valid_text(text))

    def say_more(self, text: str) -> bool:
        """Sends text as an event of its own, if nothing is held back and nothing must be. Returns whether it did."""
        if not self.flows or self._pending or (self.trims and text[-1] in SPACE):
            return False
        self._see(text)
        self.events.append(Delta(self.open, text))
        return True

    def pass_on(self, text: str) -> str | None:
        """Returns the part of `text` that can be sent at once while `flows` (including held-back whitespace before it),
        or None if that is not certain. The caller sends it."""
        said = text.rstrip(SPACE) if self.trims else text
        waits = text[len(said) :]
        if len(self._pending) + len(waits) > self.limit:
            return None
        if said:
            self._see(said)
            said = str(self._pending) + said
            self._pending.clear()
        if waits:
            self._pending.add(waits)
        return said

    def _see(self, text: str) -> None:
        self.fresh = self.fresh and (self.prose != TEXT or not text.strip(SPACE))

    def _begin_text(self) -> None:
        """Starts text after an edge. Between two texts one whitespace character remains; all of it where none is
        dropped."""
        self._blank = False
        if self.prose == TEXT:
            joint = _stays(self._left, self._right) or self._middle or str(self._kept)
            if joint:
                self._said.append(joint)
                self._left = self._middle = self._right = ""
                self._kept.clear()
            self._spoken = True

    def _wait(self, space: str) -> None:
        if self._spilled:
            self._said.append(space)
            return
        if space:
            self._pending.add(space)
        if len(self._pending) > self.limit:
            if self._blank:
                self._begin_text()
            self._give_back()
            self._spilled = True

    def _give_back(self) -> None:
        self._spilled = False
        if self._pending:
            self._said.append(str(self._pending))
            self._pending.clear()

    # --- edges ------------------------------------------------------------------------------------------------------

    def edge(self) -> None:
        """Marks a recognised block or tag: whitespace that touches it is dropped, and text continues in a new block."""
        if self.prose == TEXT:
            self._leave_out()
        self._pending.clear()
        self.close()
        self._blank = self._touching = True
        self.after = self._spilled = False

    def join_section(self) -> None:
        """Drops the whitespace since the last edge, because it is inside a section (a frame around several calls)."""
        self._right = ""

    def _leave_out(self) -> None:
        """Drops whitespace beside a block or tag; where none is dropped, it is sent with the following text."""
        space = str(self._pending)
        if not self._trim_edges:
            if space:
                self._kept.add(space)
            if len(self._kept) > self.limit:
                self._begin_text()
        elif not self._blank:
            self._left = _stays("", space)
        else:
            self._middle = _stays(self._middle, self._right)
            self._right = ""

    # --- events -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Sends the collected text."""
        if not self._said:
            return
        if self.open < 0:
            kind = BlockKind.TEXT if self.prose == TEXT else BlockKind.REASONING
            self.open = self._number()
            self.events.append(Open(self.open, kind, choice=self._choice))
        self.events.append(Delta(self.open, "".join(self._said)))
        self._said.clear()

    def close(self, status: BlockStatus = "complete") -> None:
        """Ends the open block of text or reasoning."""
        self.flush()
        if self.open >= 0:
            self.events.append(Close(self.open, status))
            self.open = -1

    def finish(self, status: BlockStatus) -> None:
        """Ends the answer."""
        if not (self._blank and self._touching):
            self._give_back()
        self.close(status)

    def give_up(self) -> None:
        """Ends the answer early: held-back whitespace is lost."""
        self._pending.clear()
        self.close()

    def open_call(self, call: FoundCall, source: str | None) -> int:
        """Opens a call. `source` is its text, or None if that is still coming. Returns its block number."""
        block = self._number()
        self.events.append(opening(block, call, self._choice, source))
        return block

    def say_argument(self, block: int, text: str) -> None:
        """Sends more arguments of an open call."""
        self.events.append(Delta(block, text))

    def give_reasoning(self, reasoning: str) -> None:
        """Sends reasoning that stands in a block of calls, if it is not empty."""
        if reasoning:
            block = self._number()
            self.events.append(Open(block, BlockKind.REASONING, choice=self._choice))
            self.events.append(Delta(block, reasoning))
            self.events.append(Close(block))

    def give_calls(self, calls: Iterable[FoundCall], source: str) -> None:
        """Sends whole calls. `source` is their text, unless a call has its own."""
        for call in calls:
            block = self.open_call(call, source if call.source is None else call.source)
            if call.arguments:
                self.events.append(Delta(block, call.arguments))
            self.events.append(Close(block))

    def _number(self) -> int:
        number = self.next_block
        self.next_block += 1
        return number


def _stays(kept: str, space: str) -> str:
    """Returns the remaining whitespace character: a line end, or `kept` from before, or a blank."""
    return "\n" if "\n" in space else kept or " "[: len(space)]
