cimport cython

cdef int MAX_DEPTH, STRING, WHOLE, WRONG
cdef int _VALUE, _ITEM, _NAME, _COLON, _NEXT, _RUN


@cython.final
cdef class ObjectReader:
    cdef int mode
    cdef unsigned char closer
    cdef bytearray outer
    cdef bint is_name, escaped

    cdef begin(self)
    cdef Py_ssize_t read(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end) except -1
    @cython.locals(byte=cython.uchar, mode=cython.int)
    cdef Py_ssize_t _structure(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end) except -1
    @cython.locals(byte=cython.uchar)
    cdef Py_ssize_t _string(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end) noexcept
    cdef _push(self, unsigned char closer)
    cdef _pop(self)


cdef bint _is_scalar(unsigned char byte) noexcept
