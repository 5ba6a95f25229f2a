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
from .scan.fast.ends cimport BlockEnds
from .scan.fast.forms cimport FormOpener, Forms
from .scan.fast.quoting cimport Quoting
from .scan.fast.sending cimport StringSender

import codecs
from array import array
from collections.abc import Mapping
from functools import lru_cache
from sys import getsizeof, maxsize

from .events import BlockKind, Close, Delta, Open
from .scan import _grammar, _plan, _pyoutline, _pystring, modes, surroundings
from .scan._grammar import AS_TEXT, BLOCK_BYTES, too_large, valid_text
from .scan._plan import plan
from .scan.blocks import opening
from .scan.decoding import DeltaDecoder
from .scan.live import LiveCalls
from .scan.loose_head import loose_words
from .scan.spans import SpanReports
from .scan.surroundings import LAST_BYTES, Surroundings, behind_info

__all__ = ["CallScanner", "ChunkGate", "SecretGuard", "SseFramer", "plain_length", "array_start", "bytes_of", "common_length", "has_duplicates", "item_ends", "json_marks", "same_items", "with_own_texts"]

cdef int TEXT = _grammar.TEXT
cdef int REASONING = _grammar.REASONING
cdef int DONE = _grammar.DONE
cdef Py_ssize_t WORD_BYTES = _grammar.WORD_BYTES

cdef tuple STATES = _grammar.STATES
cdef bytes FENCE = _grammar.FENCE.encode()
cdef object TEXT_KIND = BlockKind.TEXT
cdef object REASONING_KIND = BlockKind.REASONING
cdef int OPEN = modes.OPEN
cdef int IN_CODE = surroundings.CODE
cdef int IN_STRING = surroundings.STRING
cdef int IN_MARKS = surroundings.MARKS
cdef int IN_FENCE = surroundings.FENCE
cdef int ALONE = surroundings.ALONE
cdef int MORE_BEHIND = surroundings.GOES_ON
cdef int IS_CALL = surroundings.IS_CALL
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

    cdef object _decoder
    cdef tuple _reasoning
    cdef bint _scan_calls, _half
    cdef Py_ssize_t _block_bytes
    cdef Buffer _buffer
    cdef Output _output
    cdef Prose _prose
    cdef BlockReader _block
    cdef BlockEnds _ends

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
        self._reasoning = reasoning
        self._scan_calls = scan_calls
        self._block_bytes = block_bytes
        self._half = False
        self._decoder = None  # created when needed
        self._buffer = Buffer()
        self._output = Output(trim_edges, choice, first_block)
        self._prose = Prose(self._buffer, self._output, policy, found, preopened and len(reasoning) > 0)
        host = live = None
        if stream_after is not None:
            host = LiveHost(self._buffer, self._output, self._prose)
            live = LiveCalls(policy, host, stream_after)
        self._block = BlockReader(self._buffer, policy, live, host)
        spans = None if on_span is None else SpanReports(on_span, live)
        self._ends = BlockEnds(
            self._buffer, self._output, self._prose, self._block, policy, live, spans, grammar, reasoning
        )
        self._read_as(found)

    @property
    def state(self):
        """The name of the state, one of `STATES`."""
        return STATES[DONE if self._ends.done else self._block.state if self._ends.in_block else self._prose.state]

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
        if self._ends.done:
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
        if not self._ends.in_block and PyBytes_GET_SIZE(self._prose.held) == 0 and self._prose.is_plain(p, size):
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
        if self._ends.done or self._ends.in_block or self._half or PyBytes_GET_SIZE(self._prose.held) > 0:
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
        if self._ends.done:
            return out
        self._output.events = out
        if self._half:
            rest = self._decoder.finish().encode()
            self._buffer.fed += PyBytes_GET_SIZE(rest)
            self._read(bytes_at(rest), PyBytes_GET_SIZE(rest))
        self._prose.final = True
        if PyBytes_GET_SIZE(self._prose.held) > 0:
            self._read(NULL, 0)
        while self._ends.in_block and not self._ends.done:
            self._buffer.begin(b"")
            self._buffer.gather()
            self._run(self._end(truncated))
        if not self._ends.done:
            self._output.finish("truncated" if truncated else "complete")
            self._ends.done = True
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
        self._ends.forms = found.forms
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
        while pos < self._buffer.size and not self._ends.done:
            pos = self._step(pos)
        if self._ends.in_block:
            self._buffer.keep()
        self._prose.end_delta(self._buffer.start if self._ends.in_block else -1)
        return self._buffer.end()

    cdef inline Py_ssize_t _step(self, Py_ssize_t pos) except -1:
        if self._ends.in_block:
            if self._ends.behind:
                return self._settled(self._ends.read_behind(pos))
            pos = self._block.read(pos)
            return pos if self._block.outcome == OPEN else self._settled(self._ends.settle(pos))
        pos = self._prose.read(pos)
        if self._prose.tag:
            self._ends.tell(pos - self._prose.tag, pos, "text" if self._prose.state == TEXT else "reasoning", AS_TEXT)
        return pos if self._prose.opened is None else self._settled(self._ends.open(self._prose.opened, pos))

    cdef Py_ssize_t _end(self, bint truncated) except -1:
        return self._settled(self._ends.end(truncated))

    cdef inline Py_ssize_t _settled(self, Py_ssize_t pos) except -1:
        if self._ends.chosen is not None:
            self._choose()
        return pos

    cdef int _choose(self) except -1:
        chosen, self._ends.chosen = self._ends.chosen, None
        self._read_as(plan_of(chosen, self._reasoning, self._scan_calls))
        return self._prose.enter_again()


include "scan/_fastsse.pxi"
include "scan/_fastframe.pxi"
include "scan/_fastchunk.pxi"
include "scan/_fastguard.pxi"
include "scan/_fastoutline.pxi"
