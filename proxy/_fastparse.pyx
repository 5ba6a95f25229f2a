# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=False, cdivision=True
# cython: binding=True, embedsignature=False
"""The scanner with C types. The specification, with every reason, is `_pyparse.py` and its neighbours `_pyblock.py`,
`_pyprose.py`, `_pyquoting.py`, `_pyjson.py`, `_pycode.py` and `_pysse.py`, whose counterparts are `_fast*.pxi`: same names, same order, same
steps. A change to one lands in the other in the same commit.

What differs is only how bytes are held. A delta is read in place, through the UTF-8 form that CPython keeps of a `str`
(for ASCII the string itself, without a copy); a `str` is made once for each piece of text that goes out, and not even
then if the whole delta goes out as it came.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy, memset

import codecs
from array import array
from functools import lru_cache

from .scan import _grammar, _plan
from .scan._grammar import AS_TEXT, BLOCK_BYTES, DROPPED, Block, only, too_large, valid_text
from .scan._plan import plan, printed_heads
from .events import BlockKind, Close, Delta, Fault, Open
from .scan.live import LiveCalls

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items)
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *size) noexcept  # NULL, with an exception set: surrogates
    str PyUnicode_DecodeUTF8Stateful(const char *s, Py_ssize_t size, const char *errors, Py_ssize_t *consumed)

cdef extern from *:
    """
    /* The first occurrence of a literal: memchr for its first byte, then a comparison. The literals are short and their
       first byte is rare in text; should it be frequent, the cost is still bounded by size * length of the literal. */
    static const unsigned char *
    toolwire_find(const unsigned char *p, Py_ssize_t size, const unsigned char *literal, Py_ssize_t length)
    {
        const unsigned char *last = p + size - length;
        while (p <= last) {
            p = memchr(p, literal[0], (size_t)(last - p + 1));
            if (p == NULL)
                return NULL;
            if (memcmp(p, literal, (size_t)length) == 0)
                return p;
            p++;
        }
        return NULL;
    }
    """
    const unsigned char *toolwire_find(
        const unsigned char *p, Py_ssize_t size, const unsigned char *literal, Py_ssize_t length) nogil

ctypedef const unsigned char *Bytes

__all__ = ["CallScanner", "ChunkGate", "SecretGuard", "SseFramer"]

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
cdef object CALL_KIND = BlockKind.TOOL_CALL
cdef str UNKNOWN = "\N{REPLACEMENT CHARACTER}"
cdef bytes BOM = codecs.BOM_UTF8

# Classes of bytes, as bits.
cdef enum:
    SPACE = 1
    LETTER = 2
    SCALAR = 4
    NAMED = 8

cdef unsigned char CLASS[256]
memset(CLASS, 0, 256)
for _byte in range(128):
    if chr(_byte) in _grammar.SPACE:
        CLASS[_byte] |= SPACE
    if chr(_byte).isalpha():
        CLASS[_byte] |= LETTER
    if chr(_byte).isalnum() or chr(_byte) in "+-.":
        CLASS[_byte] |= SCALAR
    if chr(_byte).isalnum() or chr(_byte) in "_.-":
        CLASS[_byte] |= NAMED
del _byte

cdef enum:
    FIRSTS = 16
    WORDS = 256
    BRIEF = 32  # bytes: so few are looked at one by one, not once for each byte that markers begin with

if max(_grammar.LITERAL_BYTES, _grammar.WORD_BYTES) > WORDS:
    raise ImportError("LITERAL_BYTES or WORD_BYTES is larger than the compiled scanner can keep")
if _grammar.MAX_FIRSTS > FIRSTS:
    raise ImportError("MAX_FIRSTS is larger than the compiled scanner can keep")


cdef inline Bytes bytes_at(bytes data):
    return <Bytes>PyBytes_AS_STRING(data)


cdef inline str text_of(Bytes p, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)


cdef Py_ssize_t slot_of(type cls, str name) except -1:
    """Where in an object of `cls` the slot of that name is."""
    return (<PyMemberDescrObject *><PyObject *>cls.__dict__[name]).d_member.offset


cdef Py_ssize_t BLOCK_SLOT = slot_of(Delta, "block")
cdef Py_ssize_t TEXT_SLOT = slot_of(Delta, "text")
cdef Py_ssize_t EXTRA_SLOT = slot_of(Delta, "extra")


cdef inline void fill(object event, Py_ssize_t offset, object value) noexcept:
    Py_INCREF(value)
    (<PyObject **>(<char *><PyObject *>event + offset))[0] = <PyObject *>value


cdef inline object new_delta(object block, str text):
    """`Delta(block, text)`, built once per token: a call of the Python class would cost more than all the rest."""
    event = PyType_GenericAlloc(<PyTypeObject *>Delta, 0)
    fill(event, BLOCK_SLOT, block)
    fill(event, TEXT_SLOT, text)
    fill(event, EXTRA_SLOT, None)
    return event


cdef inline int append(bytearray to, Bytes p, Py_ssize_t size) except -1:
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(to)
    if size > 0:
        PyByteArray_Resize(to, before + size)
        memcpy(PyByteArray_AS_STRING(to) + before, p, size)
    return 0


include "scan/_fastjson.pxi"
include "scan/_fastcode.pxi"
include "scan/_fastplan.pxi"
include "scan/_fastquoting.pxi"
include "scan/_fastprose.pxi"
include "scan/_fastblock.pxi"


cdef class CallScanner(BlockScanner):
    """Finds call blocks and reasoning in the text of one answer, fed in pieces of any size.

    `grammar` says what blocks look like, `judge` what becomes of them. `block_bytes` bounds one block, tags included, and
    a run of pending whitespace; beyond it the block is the judge's (`oversize`) and the run is text. `trim_edges`: drop
    whitespace that touches a recognised block or a reasoning tag on the visible side, but for a line end or else a blank with
    which the later of two texts begins; otherwise it is kept, but text that is nothing else goes with the next text (R6.6). `reasoning`: pairs of opening and closing tags; the text between
    them becomes REASONING blocks, unchanged, and is left out if it is only whitespace. `preopened`: the answer begins
    inside the first pair. `scan_calls`: blocks inside reasoning count. `choice` is put into every `Open`; blocks are numbered from
    `first_block`. `incremental`: arguments are given out as they come, where the judge
    lets their call through (R6.13).

    Raises `ValueError` if the markers contradict each other.
    """

    def __init__(
        self,
        grammar,
        judge,
        *,
        Py_ssize_t block_bytes=BLOCK_BYTES,
        bint trim_edges=True,
        tuple reasoning=(),
        bint preopened=False,
        bint scan_calls=False,
        choice=0,
        long long first_block=0,
        bint incremental=False,
    ):
        BlockScanner.__init__(
            self,
            grammar,
            judge,
            block_bytes,
            trim_edges,
            reasoning,
            preopened,
            scan_calls,
            choice,
            first_block,
        )
        if incremental:
            self._live = LiveCalls(judge, self)

    cdef int _settle(self, verdict, Py_ssize_t end) except -1:
        cdef Py_ssize_t size = end - self._start
        cdef Bytes raw = self._p + self._start
        self._state = self._prose
        if self._live is not None and self._live.opened is not None:
            self._settle_live(verdict)
        elif verdict.error is not None:
            self._stop_with(verdict.error)
        elif verdict.calls or verdict.drop:
            self._edge()
            self._after = True
            self._give_calls(verdict.calls, text_of(raw, size))
            if verdict.calls:
                self._choose()
        else:
            self._pass_text(raw, size)
            if verdict.replacement is None:
                self._say(raw, size, None)
            else:
                self._say_text(verdict.replacement)
        return 0

    cdef int _give_calls(self, tuple calls, str source) except -1:
        for call in calls:
            block = self._open_call(call, source if call.source is None else call.source)
            if call.arguments:
                self._out.append(Delta(block, call.arguments))
            self._out.append(Close(block))
        return 0

    cdef object _open_call(self, call, source):
        block = self._number()
        self._out.append(
            Open(
                block,
                CALL_KIND,
                name=call.name,
                call_id=call.call_id,
                choice=self._choice,
                call_kind=call.kind,
                namespace=call.namespace,
                extra={"live": True} if source is None else {"source": source},
            )
        )
        return block

    cdef int _stop_with(self, error) except -1:
        self._pending.clear()
        self._close()
        self._out.append(Fault(error))
        self._state = DONE
        return 0

    cdef int _choose(self) except -1:
        chosen = only(self._grammar, self._shape.shape.family)
        if chosen is not self._grammar:
            self._grammar = chosen
            self._read_as(chosen)
            self._enter(self._prose)
        return 0

    # --- while it comes: see `LiveCalls` ----------------------------------------------------------------------------

    def live_open(self, call):
        """See `proxy.scan.live.Host`."""
        self._edge()
        return self._open_call(call, None)

    def live_say(self, block, str text):
        """See `proxy.scan.live.Host`."""
        self._out.append(new_delta(block, text))

    def live_close(self, block, status):
        """See `proxy.scan.live.Host`."""
        self._out.append(Close(block, status))

    cdef int _settle_live(self, verdict) except -1:
        error, more = self._live.settle(verdict)
        if error is not None:
            return self._stop_with(error)
        self._give_calls(more, "")
        self._edge()
        self._after = True
        return self._choose()


include "scan/_fastsse.pxi"
include "scan/_fastchunk.pxi"
include "scan/_fastguard.pxi"
