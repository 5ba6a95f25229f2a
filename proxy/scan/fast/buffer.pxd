cimport cython

from .. cimport octets


@cython.final
cdef class Buffer:
    cdef object owner
    cdef const unsigned char *data
    cdef Py_ssize_t size, start, before
    cdef bytearray raw
    cdef long long fed, steps, turn

    cdef int begin(self, bytes data) except -1
    cdef int end(self) except -1
    cdef int keep(self) except -1
    @cython.locals(shift=Py_ssize_t, data=bytes)
    cdef Py_ssize_t gather(self) except -1
    cdef Py_ssize_t offset(self, Py_ssize_t pos) noexcept
    cdef long long place(self, Py_ssize_t pos) noexcept
    cdef Py_ssize_t position(self, Py_ssize_t offset) noexcept
    @cython.locals(again=bytes)
    cdef Py_ssize_t back_to(self, Py_ssize_t offset) except -1
    @cython.locals(before=Py_ssize_t, late=bytes)
    cdef bytes span(self, Py_ssize_t start, Py_ssize_t stop)
    cdef str text(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end)
