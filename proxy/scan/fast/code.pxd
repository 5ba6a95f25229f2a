cimport cython

cdef int MAX_DEPTH, STRING, WHOLE, WRONG
cdef int _FIRST, _CALLEE, _INSIDE, _QUOTED


@cython.final
cdef class CodeReader:
    cdef int mode
    cdef bytearray closers
    cdef unsigned char quote
    cdef bint listed, escaped, inside

    cdef begin(self, bint listed)
    cdef begin_object(self)
    @cython.locals(byte=cython.uchar, mode=cython.int)
    cdef Py_ssize_t read(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end) except -1
    cdef _push(self, unsigned char bracket)
    cdef _pop(self, unsigned char bracket)


@cython.final
cdef class BracesReader:
    cdef int mode
    cdef bytearray closers
    cdef bytes literal
    cdef unsigned char before
    cdef Py_ssize_t matched

    cdef begin(self, bytes literal)
    @cython.locals(byte=cython.uchar, literal=bytes)
    cdef Py_ssize_t read(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end) except -1


cdef unsigned char _closer(unsigned char bracket) noexcept
cdef bint _is_word(unsigned char byte) noexcept
