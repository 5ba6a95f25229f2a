"""The scanner in Python: this file is the specification. `_fastparse.pyx` is the same machine with C types.

Rules of this module:

1. UTF-8 bytes in, events out. No socket, no clock, no policy: a `BlockPolicy` decides about blocks.
2. Splitting the input differently never changes the events after `normalise`. Every decision depends on characters and
   on the end of the answer, never on the end of a delta.
3. Every byte is read once. The bytes of a false or broken block are read at most three times: as a body, in the search
   for a closer, as text; with a strict tool on offer four times, because a mention is held back. After a block that may
   be quoted, or framing that may be a mention, up to `WORD_BYTES` are read once more. Untaught forms are read after
   that, so all this may happen a second time, but nowhere more often: after a false untaught block no other one begins
   before the position where it failed. Text that may be a call in any form is read twice more: while it is held back,
   and as text. The false beginning of a literal is read once more. (This cannot repeat: a closer that was passed over
   was inside an apparent string. If a block that begins after it reads the same bytes, its strings are where the first
   block's were not, and there a closer would have been a syntax error.)
4. Outside blocks only the longest suffix that may still become a marker is held back, and whitespace that may touch a
   block (R6.6). A block is held back up to `block_bytes`.
5. The scanner consists of parts. Each owns its state and knows only the parts before it in this list: `Buffer`, the
   bytes being read (`parts/buffer.py`); `Output`, the events (`_pyoutput.py`); `Prose`, text outside blocks
   (`_pyprose.py`, with quoting in `parts/quoting.py`); `LiveHost`, which sends streamed calls (`_pyhost.py`, text of
   their strings in `_pystring.py`); `BlockReader`, which finds the end of a block (`parts/block.py`), with its fields
   (`parts/fields.py`: JSON in `parts/json.py`, other syntax in `parts/code.py`). None of them calls back: each returns
   what it found, and this module acts on it. The search in a broken block is in `closers.py`.

SSE framing is in `_pysse.py`. What both scanners use has no twin: `parts`, which the compiled one compiles as well,
`decoding.py`, `blocks.py`, `live.py` and the modules it uses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..errors import GatewayError
from ..events import Event, Fault
from ._grammar import (
    AS_TEXT,
    BLOCK_BYTES,
    DONE,
    STATES,
    TEXT,
    BlockPolicy,
    Decision,
    Grammar,
    only,
    valid_text,
)
from ._plan import GrammarPlan, Opener, plan
from ._pyhost import LiveHost
from ._pyoutput import Output
from ._pyprose import Prose
from ._pysse import SseFramer, plain_length
from .blocks import as_text, dropped, ended
from .decoding import DeltaDecoder, size_of
from .live import LiveCalls
from .modes import FRAMING, NO_BLOCK, OPEN, WHOLE_BLOCK
from .parts.block import BlockReader
from .parts.buffer import Buffer
from .parts.forms import Forms
from .spans import SpanKind, SpanObserver, SpanReports
from .surroundings import (
    ALONE,
    FENCE,
    FRAMED,
    GOES_ON,
    HEADS,
    IS_CALL,
    IS_TEXT,
    NEXT_BLOCK,
    Read,
    Surroundings,
)

__all__ = ["CallScanner", "SseFramer", "plain_length"]


class CallScanner:
    """Finds call blocks and reasoning in the text of one answer, fed in pieces of any size.

    - `grammar` describes the blocks, `policy` decides about them. `block_bytes` limits one block including its tags,
      and a run of held-back whitespace; beyond it the policy decides about the block (`oversize`), and the run is text.
    - `trim_edges`: drop visible whitespace that touches a recognised block or a reasoning tag; between two texts one
      line end or else one blank remains. Otherwise whitespace is kept, but blank text is sent together with the next
      text (R6.6).
    - `reasoning`: pairs of opening and closing tags. Text between them becomes REASONING blocks, unchanged; blank ones
      are left out. `preopened`: the answer begins inside the first pair. `scan_calls`: blocks inside reasoning count.
    - `choice` is put into every `Open`; blocks are numbered from `first_block`. `stream_after`: a call
      with so many bytes of arguments is streamed early if the policy accepts it (R6.13); None: never. `on_span` is
      called with every `Span`.

    Raises `ValueError` if the markers contradict each other.
    """

    def __init__(
        self,
        grammar: Grammar,
        policy: BlockPolicy,
        *,
        block_bytes: int = BLOCK_BYTES,
        trim_edges: bool = True,
        reasoning: tuple[tuple[str, str], ...] = (),
        preopened: bool = False,
        scan_calls: bool = False,
        choice: int = 0,
        first_block: int = 0,
        stream_after: int | None = None,
        on_span: SpanObserver | None = None,
    ) -> None:
        self._grammar = grammar
        self._policy = policy
        self._reasoning = reasoning
        self._closers = frozenset(closer.encode() for _, closer in reasoning)
        self._scan_calls = scan_calls
        self._block_bytes = block_bytes
        self._in_block = False
        self._failed = 0  # length of the taught block that is read again as a call in any form
        self._done = False

        # `_around` reads the text after a block that may be quoted; `_behind`: it is doing so now.
        self._around: Surroundings | None = None
        self._behind = False

        found = plan(grammar, reasoning, scan_calls)
        self._decoder = DeltaDecoder()
        self._buffer = Buffer()
        self._output = Output(trim_edges, choice, first_block)
        self._prose = Prose(self._buffer, self._output, policy, found, preopened and bool(reasoning))
        host = None if stream_after is None else LiveHost(self._buffer, self._output, self._prose)
        self._live = None if host is None or stream_after is None else LiveCalls(policy, host, stream_after)
        self._block = BlockReader(self._buffer, policy, self._live, host)
        self._spans = None if on_span is None else SpanReports(on_span, self._live)
        self._read_as(found)

    @property
    def state(self) -> str:
        """The name of the state, one of `STATES`."""
        return STATES[DONE if self._done else self._block.state if self._in_block else self._prose.state]

    @property
    def held(self) -> str:
        """The text that was fed but not sent yet: held-back whitespace, then a possible marker or the block so far."""
        return self._output.waiting + (self._buffer.raw + self._prose.held).decode()

    @property
    def held_bytes(self) -> int:
        """The length of `held` in bytes of UTF-8."""
        return self._output.waits + len(self._buffer.raw) + len(self._prose.held)

    @property
    def next_block(self) -> int:
        """The next block number."""
        return self._output.next_block

    @property
    def block(self) -> int | None:
        """The number of the open block of text or reasoning, or None."""
        return self._output.open if self._output.open >= 0 else None

    @property
    def steps(self) -> int:
        """The number of characters or bytes read so far: at most four times the input, nine times with untaught
        syntaxes, plus the held-back beginning of a marker once per delta, whatever the input is (R6.10)."""
        return self._buffer.steps

    def feed(self, data: str | bytes) -> list[Event]:
        """Takes the next piece of the answer and returns the events that are certain now.

        Bytes are UTF-8 and may be cut inside a character; invalid bytes become U+FFFD. Text may contain surrogates: a
        pair cut by deltas is joined, a lone one becomes U+FFFD. Never raises for any text. After a `Fault` or `finish`
        input is ignored.
        """
        out: list[Event] = []
        if self._done:
            return out
        output, prose, decoder = self._output, self._prose, self._decoder
        output.events = out
        text = data if isinstance(data, str) and data.isascii() and not decoder.half else decoder.decode(data)
        if not text:
            return out
        self._buffer.fed += size_of(text)
        if not self._in_block and not prose.held and prose.is_plain(text):
            self._buffer.steps += len(text)
            prose.pass_plain(text)
            if output.say_more(text):  # most deltas
                return out
            output.say(text)
        else:
            self._read(prose.held + text.encode())
        output.flush()
        return out

    def pass_on(self, text: str) -> str | None:
        """Returns the part of `text` that can be sent at once if all of it continues `block`; it then counts as fed.
        Returns None if `feed` must be called. `text` must be non-empty and without surrogates."""
        prose = self._prose
        if self._done or self._in_block or not self._output.flows or prose.held or self._decoder.half:
            return None
        if not prose.is_plain(text):
            return None
        said = self._output.pass_on(text)
        if said is not None:
            self._buffer.fed += size_of(text)
            self._buffer.steps += len(text)
            prose.pass_plain(text)
        return said

    def finish(self, truncated: bool = False) -> list[Event]:
        """Ends the answer; `truncated` if the backend stopped for length. Returns the remaining events: held-back text,
        the decision about an unfinished block (R6.8, C18), and the end of open blocks."""
        out: list[Event] = []
        if self._done:
            return out
        self._output.events = out
        rest = self._decoder.finish()
        if rest:
            self._buffer.fed += size_of(rest)
            self._read(self._prose.held + rest.encode())
        self._prose.final = True
        if self._prose.held:
            self._read(self._prose.held)
        while self._in_block and not self._done:
            self._buffer.begin(b"")
            self._buffer.gather()
            self._run(self._end(truncated))
        if not self._done:
            self._output.finish("truncated" if truncated else "complete")
            self._done = True
        return out

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_as(self, found: GrammarPlan) -> None:
        """Sets the plan for the following text."""
        self._prose.read_as(found)
        self._output.limit = max(self._block_bytes, found.longest)
        self._forms = _forms_of(found)
        self._block.read_as(self._forms, self._output.limit)

    def _read(self, data: bytes) -> None:
        """Reads the next bytes, preceded by held-back ones."""
        self._prose.held = b""
        self._buffer.begin(data)
        self._run(0)

    def _run(self, pos: int) -> None:
        """Reads the buffer from `pos` to its end and stores the bytes of an open block."""
        buffer = self._buffer
        while pos < len(buffer.data) and not self._done:
            pos = self._step(pos)
        if self._in_block:
            buffer.keep()
        self._prose.end_delta(buffer.start if self._in_block else -1)
        buffer.end()

    def _step(self, pos: int) -> int:
        """Reads one stretch of text up to a block, or of a block. Returns the position to continue at."""
        if self._in_block:
            return self._read_behind(pos) if self._behind else self._settled(self._block.read(pos))
        prose = self._prose
        pos = prose.read(pos)
        if prose.tag:
            self._tell(pos - prose.tag, pos, "text" if prose.state == TEXT else "reasoning")
        return pos if prose.opened is None else self._open_block(prose.opened, pos)

    def _open_block(self, opener: Opener, at: int) -> int:
        self._in_block = True
        self._buffer.start = at
        prose = self._prose
        if prose.around:
            openers = self._openers() if prose.around in (ALONE, FENCE) else ()
            self._around = Surroundings(prose.around, prose.size, openers)
        elif opener.inner and not (opener.untaught or opener.frames):
            self._output.join_section()
        return self._settled(
            self._block.open(self._forms.opener(opener), at + prose.lead + len(opener.literal), prose.around)
        )

    def _openers(self) -> tuple[bytes, ...]:
        return tuple(marker.literal for marker in self._prose.plan.taught)

    def _end(self, truncated: bool) -> int:
        """Ends the answer inside the block, which is now the whole buffer. Returns the position to continue at."""
        if not self._behind:
            return self._settled(self._block.end(truncated))
        assert self._around is not None
        return self._known(self._around.end(), len(self._buffer.data))

    # --- the end of a block -------------------------------------------------------------------------------------------

    def _settled(self, upto: int) -> int:
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
            tags = (pair[tag].encode() for pair in self._reasoning)
            self._around = Surroundings(HEADS if frame == "head" else FRAMED, 0, (*self._openers(), *tags))
            return self._weighed(upto)
        return self._none(upto) if outcome == NO_BLOCK else self._judged(upto)

    def _judged(self, upto: int) -> int:
        block = self._block
        decision = self._judge(upto)()
        framing = block.outcome == FRAMING and decision.drop
        self._tell(self._buffer.start, upto, "framing" if framing else "block", decision)
        self._in_block = False
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
        self._settle(decision, self._buffer.data[self._buffer.start : upto])
        return upto

    def _tell(self, start: int, end: int, kind: SpanKind, decision: Decision = AS_TEXT) -> None:
        if self._spans is not None:
            self._spans.report(self._buffer.place(start), self._buffer.data[start:end], kind, decision)

    def _may_be_loose(self) -> bool:
        """Returns True if a taught block that is text may be a call in another form."""
        opened = self._live is not None and self._live.opened is not None
        return bool(self._block.opener) and not opened and self._prose.may_be_loose(self._buffer.start)

    def _open_failed(self, upto: int) -> int:
        """A taught block ended at `upto` and is text, unless it is a call in another form together with the text after
        it."""
        self._failed = upto - self._buffer.start
        opener = self._prose.plan.loose
        assert opener is not None
        return self._open_block(opener, self._buffer.start)

    def _say_before(self, chars: int) -> None:
        """Sends this many characters at the beginning of the block as text."""
        text = self._buffer.data[self._buffer.start :].decode()[:chars]
        raw = text.encode()
        self._prose.pass_text(raw)
        self._output.say(text)
        self._buffer.start += len(raw)

    def _judge(self, upto: int) -> Callable[[], Decision]:
        """Returns a function that returns the policy's decision about the block, which is in the buffer up to
        `upto`."""
        block, live = self._block, self._live
        assert block.form is not None
        syntax = block.form.syntax
        raw = self._buffer.data[self._buffer.start : upto]
        if block.outcome == FRAMING:
            ends_thought = raw in self._closers and raw != block.opener  # a closing tag without its opening one
            return as_text if ends_thought else dropped
        start, end = block.head, block.body_end
        if block.outcome != WHOLE_BLOCK:
            return partial(self._policy.unfinished, syntax, raw[start:].decode(), block.why)
        if live is not None and live.opened is not None:
            return partial(live.decide_rest, syntax, raw, start, end, block.closed, block.broken, block.more)
        read = ended(syntax, raw, start, end, block.pieces, block.closed, block.broken, block.more)
        return partial(self._policy.block, read)

    def _none(self, at: int) -> int:
        """The opener did not begin a block, as was detected at `at`: it is text, and the text after it is read as
        text."""
        block = self._block
        self._in_block = False
        if self._live is not None and self._live.opened is not None:
            self._tell(self._buffer.start, at, "block")
            self._settle(AS_TEXT, b"")
            return len(self._buffer.data)
        begun = at > self._buffer.start
        if begun and block.untaught and not block.opener and not block.loose and block.form is not None:
            self._policy.broken(
                block.form.syntax, self._buffer.data[self._buffer.start : at].decode("utf-8", "replace")
            )
            self._tell(self._buffer.start, at, "block")
        if self._prose.plan.untaught:
            return self._read_again(at)
        self._output.fresh = False
        self._prose.pass_text(block.opener)
        self._output.say(block.opener.decode())
        return self._buffer.start + len(block.opener)

    def _read_again(self, at: int) -> int:
        """The text up to `at` is not a block of this kind: it is read again as something else."""
        start, prose, block = self._buffer.start, self._prose, self._block
        if block.loose:
            prose.settled = max(prose.settled, at, start + 1)
            if self._failed:
                upto, self._failed = start + self._failed, 0
                self._output.fresh = False
                self._settle(AS_TEXT, self._buffer.data[start:upto])
                return upto
        elif block.untaught:
            prose.quiet = max(prose.quiet, at, start + 1)
        else:
            prose.refuse(block.opener)
        prose.again = prose.again or bool(block.opener)
        return start

    def _settle(self, decision: Decision, raw: bytes) -> None:
        """Acts on the policy's decision about the block, whose text is `raw`."""
        output, live = self._output, self._live
        if live is not None and live.opened is not None:
            self._settle_live(live, decision)
        elif decision.error is not None:
            self._stop_with(decision.error)
        elif decision.calls or decision.drop:
            assert self._block.form is not None
            self._give(decision, raw, self._block.form.syntax.family)
        else:
            self._prose.pass_text(raw)
            output.say(raw.decode() if decision.replacement is None else valid_text(decision.replacement))

    def _give(self, decision: Decision, raw: bytes, family: str) -> None:
        self._prose.edge()
        self._output.after = True
        self._output.give_calls(decision.calls, raw.decode(), decision.reasoning)
        if decision.calls:
            self._choose(family)

    def _stop_with(self, error: GatewayError) -> None:
        self._output.give_up()
        self._output.events.append(Fault(error))
        self._in_block = False
        self._done = True

    def _choose(self, family: str) -> None:
        """Switches the grammar after a call, since the model has shown its format."""
        chosen = only(self._grammar, family)
        if chosen is not self._grammar:
            self._grammar = chosen
            self._read_as(plan(chosen, self._reasoning, self._scan_calls))
            self._prose.enter_again()

    # --- a block that may be quoted: see `surroundings` -------------------------------------------------------------

    def _weighed(self, upto: int) -> int:
        """The block ended at `upto`. The policy is asked once it is known whether the block is quoted."""
        block, buffer, around = self._block, self._buffer, self._around
        assert block.form is not None
        assert around is not None
        family = block.form.syntax.family
        start = block.head - len(block.opener)
        around.blocks.append(Read(start, buffer.offset(upto), family, block.inner, self._judge(upto)))
        around.begin()
        self._behind = True
        known = around.kind == FRAMED and len(around.blocks) > 1 and block.frames(upto) != "mark"
        return self._known(IS_CALL, upto) if known else upto

    def _read_behind(self, pos: int) -> int:
        around, buffer = self._around, self._buffer
        assert around is not None
        upto = pos + around.take(buffer.data[pos:])
        buffer.steps += upto - pos
        if around.found == NEXT_BLOCK:
            taught = self._prose.plan.taught
            opener = taught[around.opener].opens if around.opener < len(taught) else None
            if opener is None or (around.kind == FRAMED and not opener.frames):
                return self._known(IS_CALL, upto)
            self._behind = False
            return self._settled(self._block.open(self._forms.opener(opener), upto, around.kind))
        return upto if around.found == GOES_ON else self._known(around.found, upto)

    def _known(self, what: int, at: int) -> int:
        """A block that may be quoted is a call or text (`what`), as was detected at `at`. Returns the position to
        continue at."""
        around, buffer = self._around, self._buffer
        assert around is not None
        self._around, self._behind, self._in_block = None, False, False
        at += buffer.gather()
        if what == IS_CALL:
            return self._judge_all(around, at)
        self._pass_by(around, at)
        return buffer.start

    def _pass_by(self, around: Surroundings, at: int) -> None:
        """Makes the text up to `at` be read again as text: quoted blocks, mentioned framing, or a false opener."""
        prose, behind = self._prose, self._buffer.start + 1
        if around.kind == FRAMED:  # the text after it was only examined
            at = self._buffer.start + around.blocks[-1].end
        prose.mute(max(at, behind) if around.blocks else behind)
        if self._block.untaught:
            prose.quiet = max(prose.quiet, at)

    def _judge_all(self, around: Surroundings, upto: int) -> int:
        """Asks the policy about blocks that are not quoted. Text around blocks in a fence of their own is removed with
        them."""
        data, start = self._buffer.data, self._buffer.start
        at, vanishes = start, False
        for block in around.blocks:
            decision = block.judge()
            begin, end = start + block.start, start + block.end
            recognised = bool(decision.calls) or decision.drop
            if vanishes or recognised:
                self._tell(at, begin, "framing")
            self._tell(begin, end, "framing" if block.judge is dropped else "block", decision)
            if self._block.untaught and not recognised:
                self._prose.mute(upto)
                return start
            if decision.error is not None:
                self._stop_with(decision.error)
                return upto
            if not (vanishes or recognised):
                self._say_all(data[at:begin], None)
            if recognised:
                if block.inner:
                    self._output.join_section()
                self._give(decision, data[begin:end], block.family)
            else:
                self._say_all(data[begin:end], decision.replacement)
            self._output.fresh = False
            at, vanishes = end, recognised
        if around.kind != ALONE:
            return at
        if vanishes:
            self._tell(at, upto, "framing")
        else:
            self._say_all(data[at:upto], None)
        return upto

    def _say_all(self, raw: bytes, replacement: str | None) -> None:
        """Sends text that was read as a block, or stands around one."""
        if raw:
            self._prose.pass_text(raw)
            self._output.say(raw.decode() if replacement is None else valid_text(replacement))

    def _settle_live(self, live: LiveCalls, decision: Decision) -> None:
        error, more = live.settle(decision)
        if error is not None:
            self._stop_with(error)
            return
        self._output.give_calls(more, "")
        self._prose.edge()
        self._output.after = True
        assert self._block.form is not None
        self._choose(self._block.form.syntax.family)


def _forms_of(found: GrammarPlan) -> Forms:
    if not found.forms:
        found.forms.append(Forms(found))
    forms = found.forms[0]
    assert isinstance(forms, Forms)
    return forms
