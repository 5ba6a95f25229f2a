from libc.string cimport memchr


cdef inline Py_ssize_t find(const unsigned char *buf, unsigned char byte, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef const unsigned char *found = <const unsigned char *>memchr(buf + pos, byte, end - pos) if pos < end else NULL
    return end if found == NULL else found - buf
