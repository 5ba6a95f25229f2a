"""The scanner with C types. The specification, with all reasons, is the Python twin: `_pyparse.py` and the other
`_py*.py`. Their counterparts are `_fast*.pxi`: same names, same order, same steps. A change to one twin lands in the
other in the same commit. The modules in `scan.fast` have no twin: they are `scan/parts`, compiled; all of a block is
read there.

Only the handling of bytes differs. A delta is read in place, through the UTF-8 form that CPython keeps of a `str` (for
ASCII the string itself, without a copy). A `str` is created once per piece of output, and not at all if the whole delta
is sent unchanged.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy, memset

from .scan cimport octets
from .scan.fast.block cimport BlockReader
from .scan.fast.buffer cimport Buffer
from .scan.fast.forms cimport FormOpener, Forms
from .scan.fast.quoting cimport Quoting
from .scan.fast.sending cimport StringSender

import codecs
from array import array
from collections.abc import Mapping
from functools import lru_cache, partial
from sys import getsizeof, maxsize

from .events import BlockKind, Close, Delta, Fault, Open
from .scan import _grammar, _plan, _pyoutline, _pystring, blocks, modes, surroundings
from .scan._grammar import AS_TEXT, BLOCK_BYTES, only, too_large, valid_text
from .scan._plan import plan
from .scan.blocks import as_text, dropped, ended, opening
from .scan.decoding import DeltaDecoder
from .scan.live import LiveCalls
from .scan.loose_head import loose_words
from .scan.spans import SpanReports
from .scan.surroundings import LAST_BYTES, Read, Surroundings, behind_info

__all__ = ["CallScanner", "ChunkGate", "SecretGuard", "SseFramer", "plain_length", "array_start", "bytes_of", "common_length", "has_duplicates", "item_ends", "json_marks", "same_items", "with_own_texts"]

cdef int TEXT = _grammar.TEXT
cdef int REASONING = _grammar.REASONING
cdef int LEAD = _grammar.LEAD
cdef int KEY = _grammar.KEY
cdef int BODY = _grammar.BODY
cdef int TAIL = _grammar.TAIL
cdef int BROKEN = _grammar.BROKEN
cdef int HELD = _grammar.HELD
cdef int DONE = _grammar.DONE
cdef int END = _grammar.END
cdef Py_ssize_t WORD_BYTES = _grammar.WORD_BYTES

cdef tuple STATES = _grammar.STATES
cdef bytes FENCE = _grammar.FENCE.encode()
cdef object TEXT_KIND = BlockKind.TEXT
cdef object REASONING_KIND = BlockKind.REASONING
cdef Py_ssize_t TO_CLOSER = blocks.TO_CLOSER
cdef int OPEN = modes.OPEN
cdef int WHOLE_BLOCK = modes.WHOLE_BLOCK
cdef int FRAMING = modes.FRAMING
cdef int NO_BLOCK = modes.NO_BLOCK
cdef int IN_CODE = surroundings.CODE
cdef int IN_STRING = surroundings.STRING
cdef int IN_MARKS = surroundings.MARKS
cdef int IN_FENCE = surroundings.FENCE
cdef int ALONE = surroundings.ALONE
cdef int FRAMED = surroundings.FRAMED
cdef int HEADS = surroundings.HEADS
cdef int MORE_BEHIND = surroundings.GOES_ON
cdef int IS_CALL = surroundings.IS_CALL
cdef int IS_TEXT = surroundings.IS_TEXT
cdef int NEXT_BLOCK = surroundings.NEXT_BLOCK
cdef unsigned char LAST_OF_MARKS[256]
for _byte in range(256):
    LAST_OF_MARKS[_byte] = _byte in LAST_BYTES
cdef unsigned char TICK = _plan.TICK[0]
cdef bytes BOM = codecs.BOM_UTF8

include "scan/_fastbytes.pxi"
include "scan/_fastplan.pxi"
include "scan/_fastoutput.pxi"
include "scan/_fastprose.pxi"
include "scan/_fasthost.pxi"
include "scan/_faststring.pxi"


cdef inline void read_in_place(Buffer buffer, str text, Bytes p, Py_ssize_t size) noexcept:
    """Does `buffer.begin` without a copy of the text."""
    buffer.owner = text
    buffer.data = p
    buffer.size = size
    buffer.start = 0
    buffer.turn += 1


cdef class CallScanner:
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

    cdef object _grammar, _policy, _reasoning, _closers, _live, _decoder, _around, _spans
    cdef bint _scan_calls, _in_block, _behind, _done, _half
    cdef Py_ssize_t _block_bytes, _failed
    cdef Buffer _buffer
    cdef Output _output
    cdef Prose _prose
    cdef BlockReader _block

    def __init__(
        self,
        grammar,
        policy,
        *,
        Py_ssize_t block_bytes=BLOCK_BYTES,
        bint trim_edges=True,
        tuple reasoning=(),
        bint preopened=False,
        bint scan_calls=False,
        choice=0,
        long long first_block=0,
        stream_after=None,
        on_span=None,
    ):
        cdef _Plan found = plan_of(grammar, reasoning, scan_calls)
        self._grammar = grammar
        self._policy = policy
        self._reasoning = reasoning
        self._closers = frozenset([closer.encode() for _, closer in reasoning])
        self._scan_calls = scan_calls
        self._block_bytes = block_bytes
        self._in_block = self._behind = self._done = self._half = False

        self._decoder = None  # created when needed
        self._buffer = Buffer()
        self._output = Output(trim_edges, choice, first_block)
        self._prose = Prose(self._buffer, self._output, policy, found, preopened and len(reasoning) > 0)
        host = None
        self._live = None
        if stream_after is not None:
            host = LiveHost(self._buffer, self._output, self._prose)
            self._live = LiveCalls(policy, host, stream_after)
        self._block = BlockReader(self._buffer, policy, self._live, host)
        self._spans = None if on_span is None else SpanReports(on_span, self._live)
        self._read_as(found)

    @property
    def state(self):
        """The name of the state, one of `STATES`."""
        return STATES[DONE if self._done else self._block.state if self._in_block else self._prose.state]

    @property
    def held(self):
        """The text that was fed but not sent yet: held-back whitespace, then a possible marker or the block so far."""
        return self._output.waiting() + (self._buffer.raw + self._prose.held).decode()

    @property
    def held_bytes(self):
        """The length of `held` in bytes of UTF-8."""
        cdef Py_ssize_t waits = self._output._kept.size() + self._output._pending.size()
        return waits + PyByteArray_GET_SIZE(self._buffer.raw) + PyBytes_GET_SIZE(self._prose.held)

    @property
    def next_block(self):
        """The next block number."""
        return self._output.next_block

    @property
    def block(self):
        """The number of the open block of text or reasoning, or None."""
        return self._output.open

    @property
    def steps(self):
        """The number of characters or bytes read so far: at most four times the input, nine times with untaught
        syntaxes, plus the held-back beginning of a marker once per delta, whatever the input is (R6.10)."""
        return self._buffer.steps

    def feed(self, data):
        """Takes the next piece of the answer and returns the events that are certain now.

        Bytes are UTF-8 and may be cut inside a character; invalid bytes become U+FFFD. Text may contain surrogates: a
        pair cut by deltas is joined, a lone one becomes U+FFFD. Never raises for any text. After a `Fault` or `finish`
        input is ignored.
        """
        cdef Py_ssize_t size
        cdef Bytes p
        cdef str text
        cdef list out
        if self._done:
            return []
        p = NULL
        if type(data) is str and not self._half:
            text = <str>data
            p = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
        if p == NULL:
            text = self._decode(data)
            p = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
        if size == 0:
            return []
        self._buffer.fed += size
        if not self._in_block and PyBytes_GET_SIZE(self._prose.held) == 0 and self._prose.is_plain(p, size):
            self._buffer.steps += size
            self._prose.pass_plain(p, size)
            if self._output.flows():  # most deltas
                text = self._output.say_more(p, size, text)
                return [] if text is None else self._output.one_delta(text)
            out = self._output.begin_delta()
            self._output.say(p, size, text)
        else:
            out = self._output.begin_delta()
            if PyBytes_GET_SIZE(self._prose.held) != 0:
                self._read(p, size)
            else:
                read_in_place(self._buffer, text, p, size)
                self._run(0)
        self._output.flush()
        return out

    def pass_on(self, str text not None):
        """Returns the part of `text` that can be sent at once if all of it continues `block`; it then counts as fed.
        Returns None if `feed` must be called. `text` must be non-empty and without surrogates."""
        cdef bytearray said = bytearray()
        cdef Py_ssize_t size
        cdef Bytes p = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
        if p == NULL:
            PyErr_Clear()
            return None
        return said.decode() if self._pass_on(p, size, said) else None

    cdef bint _pass_on(self, Bytes p, Py_ssize_t size, bytearray said) except -1:
        if self._done or self._in_block or self._half or PyBytes_GET_SIZE(self._prose.held) > 0:
            return False
        if not self._output.flows() or not self._prose.is_plain(p, size) or not self._output.pass_on(p, size, said):
            return False
        self._buffer.fed += size
        self._buffer.steps += size
        self._prose.pass_plain(p, size)
        return True

    def finish(self, bint truncated=False):
        """Ends the answer; `truncated` if the backend stopped for length. Returns the remaining events: held-back text,
        the decision about an unfinished block (R6.8, C18), and the end of open blocks."""
        cdef list out = []
        cdef bytes rest
        if self._done:
            return out
        self._output.events = out
        if self._half:
            rest = self._decoder.finish().encode()
            self._buffer.fed += PyBytes_GET_SIZE(rest)
            self._read(bytes_at(rest), PyBytes_GET_SIZE(rest))
        self._prose.final = True
        if PyBytes_GET_SIZE(self._prose.held) > 0:
            self._read(NULL, 0)
        while self._in_block and not self._done:
            self._buffer.begin(b"")
            self._buffer.gather()
            self._run(self._end(truncated))
        if not self._done:
            self._output.finish("truncated" if truncated else "complete")
            self._done = True
        return out

    # --- reading ------------------------------------------------------------------------------------------------------

    cdef str _decode(self, data):
        cdef str text
        PyErr_Clear()
        if self._decoder is None:
            self._decoder = DeltaDecoder()
        text = self._decoder.decode(data)
        self._half = self._decoder.half
        return text

    cdef int _read_as(self, _Plan found) except -1:
        self._prose.read_as(found)
        self._output.limit = max(self._block_bytes, found.longest)
        return self._block.read_as(found.forms, self._output.limit)

    cdef int _read(self, Bytes p, Py_ssize_t size) except -1:
        """Reads held-back bytes, then these."""
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self._prose.held)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, before + size)
        memcpy(PyBytes_AS_STRING(data), bytes_at(self._prose.held), before)
        if size > 0:
            memcpy(PyBytes_AS_STRING(data) + before, p, size)
        self._prose.held = b""
        self._buffer.begin(data)
        return self._run(0)

    cdef int _run(self, Py_ssize_t pos) except -1:
        while pos < self._buffer.size and not self._done:
            pos = self._step(pos)
        if self._in_block:
            self._buffer.keep()
        self._prose.end_delta(self._buffer.start if self._in_block else -1)
        return self._buffer.end()

    cdef inline Py_ssize_t _step(self, Py_ssize_t pos) except -1:
        if self._in_block:
            return self._read_behind(pos) if self._behind else self._settled(self._block.read(pos))
        pos = self._prose.read(pos)
        if self._prose.tag:
            self._tell(pos - self._prose.tag, pos, "text" if self._prose.state == TEXT else "reasoning", AS_TEXT)
        return pos if self._prose.opened is None else self._open_block(self._prose.opened, pos)

    cdef Py_ssize_t _open_block(self, FormOpener opener, Py_ssize_t at) except -1:
        cdef Prose prose = self._prose
        self._in_block = True
        self._buffer.start = at
        if prose.around:
            self._around = Surroundings(prose.around, prose.size, self._openers(prose.around))
        elif opener.inner and not (opener.untaught or opener.frames):
            self._output.join_section()
        return self._settled(self._block.open(opener, at + prose.lead + PyBytes_GET_SIZE(opener.literal), prose.around))

    cdef tuple _openers(self, int around):
        cdef _Marker marker
        if around != ALONE and around != IN_FENCE and around != FRAMED:
            return ()
        return tuple([marker.literal for marker in self._prose.plan.taught])

    cdef Py_ssize_t _end(self, bint truncated) except -1:
        if not self._behind:
            return self._settled(self._block.end(truncated))
        return self._known(self._around.end(), self._buffer.size)

    # --- the end of a block -------------------------------------------------------------------------------------------

    cdef inline Py_ssize_t _settled(self, Py_ssize_t upto) except -1:
        cdef int outcome = self._block.outcome
        if outcome == OPEN:
            return upto
        if self._around is not None:
            return self._known(IS_TEXT, upto) if outcome == NO_BLOCK else self._weighed(upto)
        frame = self._block.frames(upto)
        if frame is not None and not self._output.starts(0):
            return self._weighed_framing(frame, upto)
        return self._none(upto) if outcome == NO_BLOCK else self._judged(upto)

    cdef Py_ssize_t _weighed_framing(self, str frame, Py_ssize_t upto) except -1:
        cdef int tag = 0 if self._prose.state == TEXT else 1
        tags = tuple([pair[tag].encode() for pair in self._reasoning])
        self._around = Surroundings(HEADS if frame == "head" else FRAMED, 0, self._openers(FRAMED) + tags)
        return self._weighed(upto)

    cdef Py_ssize_t _judged(self, Py_ssize_t upto) except -1:
        cdef BlockReader block = self._block
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
        self._settle(decision, upto)
        return upto

    cdef int _tell(self, Py_ssize_t start, Py_ssize_t end, str kind, decision) except -1:
        if self._spans is not None:
            self._spans.report(self._buffer.place(start), self._buffer.data[start:end], kind, decision)
        return 0

    cdef bint _may_be_loose(self) except -1:
        if PyBytes_GET_SIZE(self._block.opener) == 0 or (self._live is not None and self._live.opened is not None):
            return False
        return self._prose.may_be_loose(self._buffer.start)

    cdef Py_ssize_t _open_failed(self, Py_ssize_t upto) except -1:
        self._failed = upto - self._buffer.start
        return self._open_block(self._prose.plan.loose, self._buffer.start)

    cdef int _say_before(self, Py_ssize_t chars) except -1:
        cdef str text = self._buffer.data[self._buffer.start:self._buffer.size].decode()[:chars]
        cdef bytes raw = text.encode()
        self._prose.pass_text(bytes_at(raw), PyBytes_GET_SIZE(raw))
        self._output.say(bytes_at(raw), PyBytes_GET_SIZE(raw), None)
        self._buffer.start += PyBytes_GET_SIZE(raw)
        return 0

    cdef object _judge(self, Py_ssize_t upto):
        cdef BlockReader block = self._block
        cdef Py_ssize_t start = block.head
        cdef bytes raw
        raw = self._buffer.data[self._buffer.start:upto]
        if block.outcome == FRAMING:
            return as_text if raw in self._closers and raw != block.opener else dropped
        syntax = block.form.syntax
        if block.outcome != WHOLE_BLOCK:
            return partial(self._policy.unfinished, syntax, raw[start:].decode(), block.why)
        if self._live is not None and self._live.opened is not None:
            return partial(
                self._live.decide_rest, syntax, raw, start, block.body_end, block.closed, block.broken, block.more
            )
        read = ended(syntax, raw, start, block.body_end, block.pieces, block.closed, block.broken, block.more)
        return partial(self._policy.block, read)

    cdef Py_ssize_t _none(self, Py_ssize_t at) except -1:
        cdef BlockReader block = self._block
        cdef bytes opener = block.opener
        cdef Py_ssize_t size = PyBytes_GET_SIZE(opener)
        self._in_block = False
        if self._live is not None and self._live.opened is not None:
            self._tell(self._buffer.start, at, "block", AS_TEXT)
            self._settle(AS_TEXT, self._buffer.start)
            return self._buffer.size
        if at > self._buffer.start and block.untaught and size == 0 and not block.loose and block.form is not None:
            begun = self._buffer.data[self._buffer.start:at]
            self._policy.broken(block.form.syntax, begun.decode("utf-8", "replace"))
            self._tell(self._buffer.start, at, "block", AS_TEXT)
        if self._prose.plan.untaught:
            return self._read_again(at)
        self._output.fresh = False
        self._prose.pass_text(bytes_at(opener), size)
        self._output.say(bytes_at(opener), size, None)
        return self._buffer.start + size

    cdef Py_ssize_t _read_again(self, Py_ssize_t at) except -1:
        cdef Py_ssize_t start = self._buffer.start
        cdef Py_ssize_t upto
        cdef Prose prose = self._prose
        if self._block.loose:
            prose.settled = max(prose.settled, at, start + 1)
            if self._failed:
                upto, self._failed = start + self._failed, 0
                self._output.fresh = False
                self._settle(AS_TEXT, upto)
                return upto
        elif self._block.untaught:
            prose.quiet = max(prose.quiet, at, start + 1)
        else:
            prose.refuse(self._block.opener)
        prose.again = prose.again or PyBytes_GET_SIZE(self._block.opener) > 0
        return start

    cdef int _settle(self, decision, Py_ssize_t end) except -1:
        cdef Output output = self._output
        cdef Py_ssize_t size = end - self._buffer.start
        cdef Bytes raw = self._buffer.data + self._buffer.start
        if self._live is not None and self._live.opened is not None:
            self._settle_live(decision)
        elif decision.error is not None:
            self._stop_with(decision.error)
        elif decision.calls or decision.drop:
            self._give(decision, text_of(raw, size), self._block.form.syntax.family)
        else:
            self._prose.pass_text(raw, size)
            if decision.replacement is None:
                output.say(raw, size, None)
            else:
                output.say_text(decision.replacement)
        return 0

    cdef int _give(self, decision, str raw, family) except -1:
        self._prose.edge()
        self._output.after = True
        self._output.give_calls(decision.calls, raw, decision.reasoning)
        if decision.calls:
            self._choose(family)
        return 0

    cdef int _stop_with(self, error) except -1:
        self._output.give_up()
        self._output.events.append(Fault(error))
        self._in_block = False
        self._done = True
        return 0

    cdef int _choose(self, family) except -1:
        chosen = only(self._grammar, family)
        if chosen is not self._grammar:
            self._grammar = chosen
            self._read_as(plan_of(chosen, self._reasoning, self._scan_calls))
            self._prose.enter_again()
        return 0

    # --- a block that may be quoted: see `surroundings` -------------------------------------------------------------

    cdef Py_ssize_t _weighed(self, Py_ssize_t upto) except -1:
        cdef BlockReader block = self._block
        cdef Py_ssize_t start = block.head - PyBytes_GET_SIZE(block.opener)
        syntax = block.form.syntax
        self._around.blocks.append(Read(start, self._buffer.offset(upto), syntax.family, block.inner, self._judge(upto)))
        self._around.begin()
        self._behind = True
        if self._around.kind == FRAMED and len(self._around.blocks) > 1 and block.frames(upto) != "mark":
            return self._known(IS_CALL, upto)
        return upto

    cdef Py_ssize_t _read_behind(self, Py_ssize_t pos) except -1:
        cdef Py_ssize_t upto = pos
        cdef _Marker marker
        upto += self._around.take(self._buffer.data[pos:self._buffer.size])
        self._buffer.steps += upto - pos
        if self._around.found == NEXT_BLOCK:
            if self._around.opener >= PyTuple_GET_SIZE(self._prose.plan.taught):
                return self._known(IS_CALL, upto)
            marker = self._prose.plan.taught[self._around.opener]
            if self._around.kind == FRAMED and not marker.opens.frames:
                return self._known(IS_CALL, upto)
            self._behind = False
            return self._settled(self._block.open(marker.opens, upto, self._around.kind))
        return upto if self._around.found == MORE_BEHIND else self._known(self._around.found, upto)

    cdef Py_ssize_t _known(self, int found, Py_ssize_t at) except -1:
        around = self._around
        self._around = None
        self._behind = self._in_block = False
        at += self._buffer.gather()
        if found == IS_CALL:
            return self._judge_all(around, at)
        self._pass_by(around, at)
        return self._buffer.start

    cdef int _pass_by(self, around, Py_ssize_t at) except -1:
        cdef Py_ssize_t behind = self._buffer.start + 1
        if around.kind == FRAMED:
            at = self._buffer.start + around.blocks[len(around.blocks) - 1].end
        self._prose.mute(max(at, behind) if around.blocks else behind)
        if self._block.untaught:
            self._prose.quiet = max(self._prose.quiet, at)
        return 0

    cdef Py_ssize_t _judge_all(self, around, Py_ssize_t upto) except -1:
        cdef Py_ssize_t start = self._buffer.start
        cdef Py_ssize_t at = start
        cdef Py_ssize_t begin, end
        cdef bint vanishes = False
        cdef bint recognised
        for block in around.blocks:
            decision = block.judge()
            begin, end = start + block.start, start + block.end
            recognised = bool(decision.calls) or decision.drop
            if vanishes or recognised:
                self._tell(at, begin, "framing", AS_TEXT)
            self._tell(begin, end, "framing" if block.judge is dropped else "block", decision)
            if self._block.untaught and not recognised:
                self._prose.mute(upto)
                return start
            if decision.error is not None:
                self._stop_with(decision.error)
                return upto
            if not (vanishes or recognised):
                self._say_all(at, begin, None)
            if recognised:
                if block.inner:
                    self._output.join_section()
                self._give(decision, text_of(self._buffer.data + begin, end - begin), block.family)
            else:
                self._say_all(begin, end, decision.replacement)
            self._output.fresh = False
            at, vanishes = end, recognised
        if around.kind != ALONE:
            return at
        if vanishes:
            self._tell(at, upto, "framing", AS_TEXT)
        else:
            self._say_all(at, upto, None)
        return upto

    cdef int _say_all(self, Py_ssize_t start, Py_ssize_t end, str replacement) except -1:
        cdef Bytes raw = self._buffer.data + start
        if end == start:
            return 0
        self._prose.pass_text(raw, end - start)
        if replacement is None:
            return self._output.say(raw, end - start, None)
        return self._output.say_text(replacement)

    cdef int _settle_live(self, decision) except -1:
        error, more = self._live.settle(decision)
        if error is not None:
            return self._stop_with(error)
        self._output.give_calls(more, "")
        self._prose.edge()
        self._output.after = True
        return self._choose(self._block.form.syntax.family)


include "scan/_fastsse.pxi"
include "scan/_fastframe.pxi"
include "scan/_fastchunk.pxi"
include "scan/_fastguard.pxi"
include "scan/_fastoutline.pxi"
