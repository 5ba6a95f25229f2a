"""The end of a block: it asks the call policy, and sends the call, or the text that was none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...events import Fault
from .._grammar import AS_TEXT, TEXT, BlockPolicy, Decision, Grammar, only
from ..blocks import as_text, dropped, ended
from ..modes import FRAMING, NO_BLOCK, OPEN, WHOLE_BLOCK
from ..surroundings import (
    ALONE,
    FENCE,
    FRAMED,
    GOES_ON,
    HEADS,
    IS_CALL,
    IS_TEXT,
    NEXT_BLOCK,
    SENTENCE,
    Read,
    Surroundings,
)
from .block import BlockReader
from .buffer import Buffer
from .forms import FormOpener, Forms

if TYPE_CHECKING:
    from ...errors import GatewayError
    from .._pyoutput import Output
    from .._pyprose import Prose
    from ..live import LiveCalls
    from ..spans import SpanKind, SpanReports


class BlockEnds:
    """Opens the blocks of one answer, and acts on what `block` has read.

    `in_block`: the text being read belongs to a block; `behind`: to what follows a block that may be quoted. `done`:
    the answer has ended with an error. `chosen` is the grammar for the text from here on, if a call has shown it.
    """

    __slots__ = (
        *("_around", "_block", "_buffer", "_closers", "_failed", "_grammar", "_live", "_output", "_policy", "_prose"),
        *("_reasoning", "_spans", "behind", "chosen", "done", "forms", "in_block"),
    )

    def __init__(
        self,
        buffer: Buffer,
        output: Output,
        prose: Prose,
        block: BlockReader,
        policy: BlockPolicy,
        live: LiveCalls | None,
        spans: SpanReports | None,
        grammar: Grammar,
        reasoning: tuple[tuple[str, str], ...],
    ) -> None:
        self._buffer = buffer
        self._output = output
        self._prose = prose
        self._block = block
        self._policy = policy
        self._live = live
        self._spans = spans
        self._grammar = grammar
        self._reasoning = reasoning
        self._closers = frozenset([closer.encode() for _, closer in reasoning])
        self.forms: Forms | None = None
        self.in_block = False
        self.behind = False
        self.done = False
        self.chosen: Grammar | None = None

        # `_around` reads the text after a block that may be quoted. `_failed`: length of the taught block that is read
        # again as a call in any form.
        self._around: Surroundings | None = None
        self._failed = 0

    def open(self, opener: FormOpener, at: int) -> int:
        """Opens the block at `at`. Returns the position to continue at."""
        self.in_block = True
        self._buffer.start = at
        around = self._prose.around
        if around:
            openers = self._openers() if around in (ALONE, FENCE) else ()
            self._around = Surroundings(around, self._prose.size, openers)
        elif opener.inner and not (opener.untaught or opener.frames):
            self._output.join_section()
        return self.settle(self._block.open(opener, at + self._prose.lead + len(opener.literal), around))

    def _openers(self) -> tuple[bytes, ...]:
        assert self.forms is not None
        return tuple([opener.literal for opener in self.forms.taught])

    def end(self, truncated: bool) -> int:
        """Ends the answer inside the block, which is now the whole buffer. Returns the position to continue at."""
        if not self.behind:
            return self.settle(self._block.end(truncated))
        assert self._around is not None
        return self._known(self._around.end(), self._buffer.size)

    def settle(self, upto: int) -> int:
        """If the block has ended (at `upto`), asks the policy and acts on its decision. Returns the position to
        continue at."""
        outcome = self._block.outcome
        if outcome == OPEN:
            return upto
        if self._around is not None:
            return self._known(IS_TEXT, upto) if outcome == NO_BLOCK else self._weighed(upto)
        frame = self._block.frames(upto)
        if frame is not None and not self._output.starts(0):
            tag = 0 if self._prose.state == TEXT else 1
            tags = tuple([pair[tag].encode() for pair in self._reasoning])
            self._around = Surroundings(HEADS if frame == "head" else FRAMED, 0, (*self._openers(), *tags))
            return self._weighed(upto)
        if self._block.is_only_a_name() and self._prose.follows_words():
            self._around = Surroundings(SENTENCE, 0, ())
            return self._weighed(upto)
        return self._none(upto) if outcome == NO_BLOCK else self._judged(upto)

    def _judged(self, upto: int) -> int:
        block = self._block
        decision = self._judge(upto)()
        framing = block.outcome == FRAMING and decision.drop
        self.tell(self._buffer.start, upto, "framing" if framing else "block", decision)
        self.in_block = False
        if block.untaught:
            if not (decision.calls or decision.drop):
                return self._read_again(upto)
            if block.inner:
                self._output.join_section()
        elif block.outcome == FRAMING and block.inner:
            self._output.join_section()
        elif decision is AS_TEXT and self._may_be_loose():
            return self._open_failed(upto)
        if decision.before:
            self._say_before(decision.before)
        self._failed = 0
        self._output.fresh = False
        self._act(decision, upto)
        return upto

    def tell(self, start: int, end: int, kind: SpanKind, decision: Decision) -> None:
        """Reports what the text between two positions was."""
        if self._spans is not None:
            self._spans.report(self._buffer.place(start), self._buffer.data[start:end], kind, decision)

    def _may_be_loose(self) -> bool:
        """Returns True if a taught block that is text may be a call in another form."""
        if not self._block.opener or (self._live is not None and self._live.opened is not None):
            return False
        return self._prose.may_be_loose(self._buffer.start)

    def _open_failed(self, upto: int) -> int:
        """A taught block ended at `upto` and is text, unless it is a call in another form together with the text after
        it."""
        assert self.forms is not None
        assert self.forms.loose is not None
        self._failed = upto - self._buffer.start
        return self.open(self.forms.loose, self._buffer.start)

    def _say_before(self, chars: int) -> None:
        """Sends this many characters at the beginning of the block as text."""
        raw = self._buffer.data[self._buffer.start : self._buffer.size].decode()[:chars].encode()
        self._say(raw, None)
        self._buffer.start += len(raw)

    def _judge(self, upto: int) -> Callable[[], Decision]:
        """Returns a function that returns the policy's decision about the block, which is in the buffer up to
        `upto`."""
        block, live = self._block, self._live
        assert block.form is not None
        raw = self._buffer.data[self._buffer.start : upto]
        if block.outcome == FRAMING:
            ends_thought = raw in self._closers and raw != block.opener  # a closing tag without its opening one
            return as_text if ends_thought else dropped
        syntax, start, end = block.form.syntax, block.head, block.body_end
        if block.outcome != WHOLE_BLOCK:
            return partial(self._policy.unfinished, syntax, raw[start:].decode(), block.why)
        if live is not None and live.opened is not None:
            return partial(live.decide_rest, syntax, raw, start, end, block.closed, block.broken, block.more)
        read = ended(syntax, raw, start, end, block.pieces, block.closed, block.broken, block.more, self._output.fresh)
        return partial(self._policy.block, read)

    def _none(self, at: int) -> int:
        """The opener did not begin a block, as was detected at `at`: it is text, and the text after it is read as
        text."""
        block = self._block
        assert self.forms is not None
        self.in_block = False
        if self._live is not None and self._live.opened is not None:
            self.tell(self._buffer.start, at, "block", AS_TEXT)
            self._act(AS_TEXT, self._buffer.start)
            return self._buffer.size
        begun = at > self._buffer.start
        if begun and block.untaught and not block.opener and not block.loose and block.form is not None:
            raw = self._buffer.data[self._buffer.start : at]
            self._policy.broken(block.form.syntax, raw.decode("utf-8", "replace"))
            self.tell(self._buffer.start, at, "block", AS_TEXT)
        if self.forms.untaught:
            return self._read_again(at)
        self._output.fresh = False
        self._say(block.opener, None)
        return self._buffer.start + len(block.opener)

    def _read_again(self, at: int) -> int:
        """The text up to `at` is not a block of this kind: it is read again as something else."""
        start, prose, block = self._buffer.start, self._prose, self._block
        if block.loose:
            prose.settled = max(prose.settled, at, start + 1)
            if self._failed:
                upto = start + self._failed
                self._failed = 0
                self._output.fresh = False
                self._act(AS_TEXT, upto)
                return upto
        elif block.untaught:
            prose.quiet = max(prose.quiet, at, start + 1)
        else:
            prose.refuse(block.opener)
        prose.again = prose.again or bool(block.opener)
        return start

    def _act(self, decision: Decision, upto: int) -> None:
        """Acts on the policy's decision about the block, which is in the buffer up to `upto`."""
        raw = self._buffer.data[self._buffer.start : upto]
        if self._live is not None and self._live.opened is not None:
            self._act_live(self._live, decision)
        elif decision.error is not None:
            self._stop_with(decision.error)
        elif decision.calls or decision.drop:
            assert self._block.form is not None
            self._give(decision, raw, self._block.form.syntax.family)
        else:
            self._say(raw, decision.replacement)

    def _say(self, raw: bytes, replacement: str | None) -> None:
        """Sends text that was read as a block, or stands around one."""
        if raw:
            self._prose.pass_raw(raw)
            if replacement is None:
                self._output.say_raw(raw)
            else:
                self._output.say_text(replacement)

    def _give(self, decision: Decision, raw: bytes, family: str) -> None:
        self._prose.edge()
        self._output.give_reasoning(decision.reasoning)
        if decision.replacement:
            self._output.say_text(decision.replacement)
            self._prose.edge()
        self._output.after = True
        self._output.give_calls(decision.calls, raw.decode())
        if decision.calls:
            self._choose(family)

    def _act_live(self, live: LiveCalls, decision: Decision) -> None:
        error, more = live.settle(decision)
        if error is not None:
            self._stop_with(error)
        else:
            self._output.give_calls(more, "")
            self._prose.edge()
            self._output.after = True
            assert self._block.form is not None
            self._choose(self._block.form.syntax.family)

    def _stop_with(self, error: GatewayError) -> None:
        self._output.give_up()
        self._output.events.append(Fault(error))
        self.in_block = False
        self.done = True

    def _choose(self, family: str) -> None:
        """Switches the grammar after a call, since the model has shown its format."""
        chosen = only(self._grammar, family)
        if chosen is not self._grammar:
            self._grammar = self.chosen = chosen

    # --- a block that may be quoted: see `surroundings` -------------------------------------------------------------

    def _weighed(self, upto: int) -> int:
        """The block ended at `upto`. The policy is asked once it is known whether the block is quoted."""
        block, around = self._block, self._around
        assert block.form is not None
        assert around is not None
        start = block.head - len(block.opener)
        family = block.form.syntax.family
        around.blocks.append(Read(start, self._buffer.offset(upto), family, block.inner, self._judge(upto)))
        around.begin()
        self.behind = True
        known = around.kind == FRAMED and len(around.blocks) > 1 and block.frames(upto) != "mark"
        return self._known(IS_CALL, upto) if known else upto

    def read_behind(self, pos: int) -> int:
        """Reads the text after a block that may be quoted. Returns the position to continue at."""
        around = self._around
        assert around is not None
        assert self.forms is not None
        upto = pos + around.take(self._buffer.data[pos : self._buffer.size])
        self._buffer.steps += upto - pos
        if around.found == NEXT_BLOCK:
            opener = self.forms.taught[around.opener] if around.opener < len(self.forms.taught) else None
            if opener is None or (around.kind == FRAMED and not opener.frames):
                return self._known(IS_CALL, upto)
            self.behind = False
            return self.settle(self._block.open(opener, upto, around.kind))
        return upto if around.found == GOES_ON else self._known(around.found, upto)

    def _known(self, what: int, at: int) -> int:
        """A block that may be quoted is a call or text (`what`), as was detected at `at`. Returns the position to
        continue at."""
        around = self._around
        assert around is not None
        self._around = None
        self.behind = self.in_block = False
        at += self._buffer.gather()
        if what == IS_CALL:
            return self._judge_all(around, at)
        self._pass_by(around, at)
        return self._buffer.start

    def _pass_by(self, around: Surroundings, at: int) -> None:
        """Makes the text up to `at` be read again as text: quoted blocks, mentioned framing, or a false opener."""
        prose, behind = self._prose, self._buffer.start + 1
        if around.kind == FRAMED:  # the text after it was only examined
            at = self._buffer.start + around.blocks[len(around.blocks) - 1].end
        prose.mute(max(at, behind) if around.blocks else behind)
        if self._block.untaught:
            prose.quiet = max(prose.quiet, at)

    def _judge_all(self, around: Surroundings, upto: int) -> int:
        """Asks the policy about blocks that are not quoted. Text around blocks in a fence of their own is removed with
        them."""
        start = self._buffer.start
        at, vanishes = start, False
        for block in around.blocks:
            decision = block.judge()
            begin, end = start + block.start, start + block.end
            recognised = bool(decision.calls) or decision.drop
            if vanishes or recognised:
                self.tell(at, begin, "framing", AS_TEXT)
            self.tell(begin, end, "framing" if block.judge is dropped else "block", decision)
            if self._block.untaught and not recognised:
                self._prose.mute(upto)
                return start
            if decision.error is not None:
                self._stop_with(decision.error)
                return upto
            if not (vanishes or recognised):
                self._say(self._buffer.data[at:begin], None)
            if recognised:
                if block.inner:
                    self._output.join_section()
                self._give(decision, self._buffer.data[begin:end], block.family)
            else:
                self._say(self._buffer.data[begin:end], decision.replacement)
            self._output.fresh = False
            at, vanishes = end, recognised
        if around.kind != ALONE:
            return at
        if vanishes:
            self.tell(at, upto, "framing", AS_TEXT)
        else:
            self._say(self._buffer.data[at:upto], None)
        return upto
