# The bytes that are being read: part of `_fastparse.pyx`, the twin of `_pybuffer.py`.


@cython.final
cdef class Buffer:
    cdef object owner  # keeps the bytes alive; the delta itself if it is read in place
    cdef Bytes p
    cdef Py_ssize_t size, start
    cdef bytearray raw
    cdef long long fed, steps
    cdef int first_count
    cdef unsigned char firsts[FIRSTS]
    cdef Py_ssize_t ahead[FIRSTS]

    def __cinit__(self):
        self.raw = bytearray()
        self.begin(b"")

    cdef int begin(self, bytes data) except -1:
        return self.begin_with(data, bytes_at(data), PyBytes_GET_SIZE(data))

    cdef inline int begin_with(self, owner, Bytes p, Py_ssize_t size) except -1:
        cdef int index
        self.owner = owner
        self.p = p
        self.size = size
        self.start = 0
        for index in range(self.first_count):
            self.ahead[index] = -1
        return 0

    cdef int look_for(self, bytes firsts) except -1:
        """Sets the bytes that `next_first` looks for."""
        cdef int index
        self.first_count = PyBytes_GET_SIZE(firsts)
        for index in range(self.first_count):
            self.firsts[index] = bytes_at(firsts)[index]
            self.ahead[index] = -1
        return 0

    cdef inline int end_delta(self) except -1:
        self.owner = None
        self.size = 0
        return 0

    cdef int keep(self) except -1:
        return append(self.raw, self.p + self.start, self.size - self.start)

    cdef Py_ssize_t gather(self) except -1:
        cdef Py_ssize_t shift = PyByteArray_GET_SIZE(self.raw)
        cdef bytes data
        if shift:
            append(self.raw, self.p, self.size)
            data = bytes(self.raw)
            self.raw.clear()
            self.begin(data)
        return shift

    cdef inline Py_ssize_t offset(self, Py_ssize_t pos) noexcept:
        return PyByteArray_GET_SIZE(self.raw) + pos - self.start

    cdef inline long long place(self, Py_ssize_t pos) noexcept:
        return self.fed - self.size + pos

    cdef inline Py_ssize_t position(self, Py_ssize_t offset) noexcept:
        return self.start + offset - PyByteArray_GET_SIZE(self.raw)

    cdef Py_ssize_t back_to(self, Py_ssize_t offset) except -1:
        cdef bytes again
        if offset < PyByteArray_GET_SIZE(self.raw):
            again = bytes(self.raw[offset:]) + self.slice(0, self.size)
            PyByteArray_Resize(self.raw, offset)
            self.begin(again)
        return self.position(offset)

    cdef bytes span(self, Py_ssize_t start, Py_ssize_t stop):
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(self.raw)
        if stop <= size:
            return bytes(self.raw[start:stop])
        return bytes(self.raw[start:]) + self.slice(self.start + max(0, start - size), self.start + stop - size)

    cdef inline str as_text(self, Bytes p, Py_ssize_t size):
        """Returns these bytes as a string; the delta itself if they are all of it."""
        if size == self.size and type(self.owner) is str and memcmp(p, self.p, size) == 0:
            return <str>self.owner
        return text_of(p, size)

    cdef inline bytes slice(self, Py_ssize_t pos, Py_ssize_t end):
        return PyBytes_FromStringAndSize(<const char *>self.p + pos, end - pos)

    cdef Py_ssize_t find(self, bytes literal, Py_ssize_t pos, Py_ssize_t end) noexcept:
        """Returns the position of a literal between `pos` and `end`, or -1."""
        cdef Bytes found = toolwire_find(self.p + pos, end - pos, bytes_at(literal), PyBytes_GET_SIZE(literal))
        return -1 if found == NULL else found - self.p

    cdef Py_ssize_t next_first(self, Py_ssize_t pos) noexcept:
        cdef Py_ssize_t nearest = self.size
        cdef Py_ssize_t at
        cdef Bytes found
        cdef int index
        for index in range(self.first_count):
            at = self.ahead[index]
            if at < pos:
                found = <Bytes>memchr(self.p + pos, self.firsts[index], self.size - pos) if pos < self.size else NULL
                at = self.size if found == NULL else found - self.p
                self.ahead[index] = at
            if at < nearest:
                nearest = at
        return nearest
