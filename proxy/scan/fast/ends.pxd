cimport cython

from .block cimport BlockReader
from .buffer cimport Buffer
from .forms cimport FormOpener, Forms

cdef int TEXT
cdef int FRAMING, NO_BLOCK, OPEN, WHOLE_BLOCK
cdef int ALONE, FENCE, FRAMED, GOES_ON, HEADS, IS_CALL, IS_TEXT, NEXT_BLOCK


@cython.final
cdef class BlockEnds:
    cdef Buffer _buffer
    cdef BlockReader _block
    cdef object _output, _prose, _policy, _live, _spans, _grammar, _closers, _around
    cdef tuple _reasoning
    cdef Py_ssize_t _failed
    cdef Forms forms
    cdef bint in_block, behind, done
    cdef object chosen

    @cython.locals(around=cython.int, openers=tuple)
    cdef Py_ssize_t open(self, FormOpener opener, Py_ssize_t at) except -1
    @cython.locals(opener=FormOpener)
    cdef tuple _openers(self)
    cdef Py_ssize_t end(self, bint truncated) except -1
    @cython.locals(outcome=cython.int)
    cdef Py_ssize_t settle(self, Py_ssize_t upto) except -1
    @cython.locals(block=BlockReader)
    cdef Py_ssize_t _judged(self, Py_ssize_t upto) except -1
    cdef int tell(self, Py_ssize_t start, Py_ssize_t end, str kind, object decision) except -1
    cdef bint _may_be_loose(self) except -1
    cdef Py_ssize_t _open_failed(self, Py_ssize_t upto) except -1
    @cython.locals(raw=bytes)
    cdef int _say_before(self, Py_ssize_t chars) except -1
    @cython.locals(block=BlockReader, raw=bytes, start=Py_ssize_t, end=Py_ssize_t)
    cdef object _judge(self, Py_ssize_t upto)
    @cython.locals(block=BlockReader, raw=bytes, begun=bint)
    cdef Py_ssize_t _none(self, Py_ssize_t at) except -1
    @cython.locals(block=BlockReader, start=Py_ssize_t, upto=Py_ssize_t)
    cdef Py_ssize_t _read_again(self, Py_ssize_t at) except -1
    @cython.locals(raw=bytes)
    cdef int _act(self, object decision, Py_ssize_t upto) except -1
    cdef int _say(self, bytes raw, object replacement) except -1
    cdef int _give(self, object decision, bytes raw, object family) except -1
    cdef int _act_live(self, object live, object decision) except -1
    cdef int _stop_with(self, object error) except -1
    cdef int _choose(self, object family) except -1

    @cython.locals(block=BlockReader, start=Py_ssize_t)
    cdef Py_ssize_t _weighed(self, Py_ssize_t upto) except -1
    @cython.locals(upto=Py_ssize_t, opener=FormOpener)
    cdef Py_ssize_t read_behind(self, Py_ssize_t pos) except -1
    cdef Py_ssize_t _known(self, int what, Py_ssize_t at) except -1
    @cython.locals(behind=Py_ssize_t)
    cdef int _pass_by(self, object around, Py_ssize_t at) except -1
    @cython.locals(start=Py_ssize_t, at=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, vanishes=bint, recognised=bint)
    cdef Py_ssize_t _judge_all(self, object around, Py_ssize_t upto) except -1
