cimport cython

from .. cimport octets

cdef Py_ssize_t _FENCE, _BRIEF
cdef unsigned char _TICK


@cython.final
cdef class Quoting:
    cdef Py_ssize_t fence, span, _run
    cdef bint string, active, _line
    cdef int _begins
    cdef unsigned char _mark, fence_mark

    cdef bint quotes(self) noexcept
    cdef void end_line(self) noexcept
    cdef void read(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end, int begins) noexcept
    @cython.locals(run=Py_ssize_t)
    cdef void end_run(self, unsigned char behind) noexcept
    cdef void _read(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t end, int begins) noexcept
    cdef void _forget_line(self) noexcept


@cython.locals(near=Py_ssize_t, size=Py_ssize_t, stop=Py_ssize_t, found=Py_ssize_t, byte=cython.uchar)
cdef Py_ssize_t _next_mark(const unsigned char *buf, Py_ssize_t at, Py_ssize_t end, bint ends) noexcept
cdef bint _is_word(unsigned char byte) noexcept
@cython.locals(line=Py_ssize_t)
cdef int _line_at(const unsigned char *buf, Py_ssize_t pos, Py_ssize_t at, int begins) noexcept
