cdef class StringSender:
    cdef int begin(self) except -1
    cdef int read_string(self, object live) except -1
    cdef bytes send(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end)
    cdef bytes rest(self)
