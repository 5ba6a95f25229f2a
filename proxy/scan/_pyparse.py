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
   (`parts/fields.py`: JSON in `parts/json.py`, other syntax in `parts/code.py`); `BlockEnds`, which acts on what was
   found (`parts/ends.py`). None of them calls back. The search in a broken block is in `closers.py`.

SSE framing is in `_pysse.py`. What both scanners use has no twin: `parts`, which the compiled one compiles as well,
`decoding.py`, `blocks.py`, `live.py` and the modules it uses.
"""

from __future__ import annotations

from ..events import Event
from ._grammar import AS_TEXT, BLOCK_BYTES, DONE, STATES, TEXT, BlockPolicy, Grammar
from ._plan import GrammarPlan, plan
from ._pyhost import LiveHost
from ._pyoutput import Output
from ._pyprose import Prose
from ._pysse import SseFramer, plain_length
from .decoding import DeltaDecoder, size_of
from .live import LiveCalls
from .modes import OPEN
from .parts.block import BlockReader
from .parts.buffer import Buffer
from .parts.ends import BlockEnds
from .parts.forms import Forms
from .spans import SpanObserver, SpanReports

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
        self._reasoning = reasoning
        self._scan_calls = scan_calls
        self._block_bytes = block_bytes
        found = plan(grammar, reasoning, scan_calls)
        self._decoder = DeltaDecoder()
        self._buffer = Buffer()
        self._output = Output(trim_edges, choice, first_block)
        self._prose = Prose(self._buffer, self._output, policy, found, preopened and bool(reasoning))
        host = None if stream_after is None else LiveHost(self._buffer, self._output, self._prose)
        live = None if host is None or stream_after is None else LiveCalls(policy, host, stream_after)
        self._block = BlockReader(self._buffer, policy, live, host)
        spans = None if on_span is None else SpanReports(on_span, live)
        self._ends = BlockEnds(
            self._buffer, self._output, self._prose, self._block, policy, live, spans, grammar, reasoning
        )
        self._read_as(found)

    @property
    def state(self) -> str:
        """The name of the state, one of `STATES`."""
        return STATES[DONE if self._ends.done else self._block.state if self._ends.in_block else self._prose.state]

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
        if self._ends.done:
            return out
        output, prose, decoder = self._output, self._prose, self._decoder
        output.events = out
        text = data if isinstance(data, str) and data.isascii() and not decoder.half else decoder.decode(data)
        if not text:
            return out
        self._buffer.fed += size_of(text)
        if not self._ends.in_block and not prose.held and prose.is_plain(text):
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
        if self._ends.done or self._ends.in_block or not self._output.flows or prose.held or self._decoder.half:
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
        if self._ends.done:
            return out
        self._output.events = out
        rest = self._decoder.finish()
        if rest:
            self._buffer.fed += size_of(rest)
            self._read(self._prose.held + rest.encode())
        self._prose.final = True
        if self._prose.held:
            self._read(self._prose.held)
        while self._ends.in_block and not self._ends.done:
            self._buffer.begin(b"")
            self._buffer.gather()
            self._run(self._end(truncated))
        if not self._ends.done:
            self._output.finish("truncated" if truncated else "complete")
            self._ends.done = True
        return out

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_as(self, found: GrammarPlan) -> None:
        """Sets the plan for the following text."""
        self._prose.read_as(found)
        self._output.limit = max(self._block_bytes, found.longest)
        self._forms = self._ends.forms = found.prepared_for(Forms)
        self._block.read_as(self._forms, self._output.limit)

    def _read(self, data: bytes) -> None:
        """Reads the next bytes, preceded by held-back ones."""
        self._prose.held = b""
        self._buffer.begin(data)
        self._run(0)

    def _run(self, pos: int) -> None:
        """Reads the buffer from `pos` to its end and stores the bytes of an open block."""
        buffer = self._buffer
        while pos < len(buffer.data) and not self._ends.done:
            pos = self._step(pos)
        if self._ends.in_block:
            buffer.keep()
        self._prose.end_delta(buffer.start if self._ends.in_block else -1)
        buffer.end()

    def _step(self, pos: int) -> int:
        """Reads one stretch of text up to a block, or of a block. Returns the position to continue at."""
        ends, prose = self._ends, self._prose
        if ends.in_block:
            if ends.behind:
                return self._settled(ends.read_behind(pos))
            pos = self._block.read(pos)
            return pos if self._block.outcome == OPEN else self._settled(ends.settle(pos))
        pos = prose.read(pos)
        if prose.tag:
            ends.tell(pos - prose.tag, pos, "text" if prose.state == TEXT else "reasoning", AS_TEXT)
        return pos if prose.opened is None else self._settled(ends.open(self._forms.opener(prose.opened), pos))

    def _end(self, truncated: bool) -> int:
        """Ends the answer inside a block, which is now the whole buffer. Returns the position to continue at."""
        return self._settled(self._ends.end(truncated))

    def _settled(self, pos: int) -> int:
        """Goes on with the grammar of a call that has ended."""
        chosen = self._ends.chosen
        if chosen is not None:
            self._ends.chosen = None
            self._read_as(plan(chosen, self._reasoning, self._scan_calls))
            self._prose.enter_again()
        return pos
