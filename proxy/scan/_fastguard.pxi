# Finds secrets in the text of a stream: part of `_fastparse.pyx`, the twin of `_pyguard.py`.

cdef enum:
    TAIL_BYTES = 4096


@lru_cache(maxsize=64)
def parts_by_end(tuple parts not None):
    """Returns linked lists of the parts by last byte, as 16-bit numbers: 256 entries with the number (from 1) of the
    first part that ends with each byte, then for each part the number of the next one with the same last byte; 0
    ends a list."""
    cdef Py_ssize_t number
    cdef bytes part
    table = array("H", bytes(2 * (257 + len(parts))))
    for number, part in enumerate(parts, 1):
        table[256 + number] = table[part[len(part) - 1]]
        table[part[len(part) - 1]] = number
    return table.tobytes()


cdef class SecretGuard:
    """Looks for any of `parts` (none is empty) in the visible text and the reasoning of one answer."""

    cdef tuple _parts
    cdef bytes _by_end
    cdef Py_ssize_t _most
    cdef bytearray _kept, _thoughts
    cdef bytes _before, _after
    cdef bint _thought
    cdef readonly bint found

    def __init__(self, tuple parts not None):
        self._parts = parts
        self._by_end = parts_by_end(parts)
        self._most = max(map(len, parts)) - 1
        self._kept = bytearray()
        self._thoughts = bytearray()
        self._before = self._after = b""
        self._thought = False
        self.found = False

    def text(self, bytes data not None, bint reasoning=False):
        """Takes more text. Returns True if a part was found in it or before."""
        return self._text(bytes_at(data), PyBytes_GET_SIZE(data), reasoning)

    def frames(self, bytes data not None, Py_ssize_t pos):
        """Takes the whole frames from `pos` that only contain text. Returns the position of the first frame with other
        content or with a finding, else the end of `data`."""
        cdef Bytes p = bytes_at(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t end
        while pos < size:
            end = blank_line(p, pos, size)
            if end < 0 or not self._take(p + pos, end - 2 - pos):
                return pos
            pos = end
        return pos

    cdef bint _text(self, Bytes p, Py_ssize_t size, bint reasoning) except -1:
        cdef bytearray kept = self._thoughts if reasoning else self._kept
        cdef Py_ssize_t before = PyByteArray_GET_SIZE(kept)
        cdef Py_ssize_t pos, length
        cdef Bytes at
        cdef const unsigned short *by_end = <const unsigned short *>PyBytes_AS_STRING(self._by_end)
        cdef unsigned short number
        cdef bytes part
        append(kept, p, size)
        at = <Bytes>PyByteArray_AS_STRING(kept) + before + 1  # after the byte at 0
        for pos in range(size):
            number = by_end[p[pos]]
            while number:
                part = <bytes>self._parts[number - 1]
                length = PyBytes_GET_SIZE(part)
                if before + pos + 1 >= length and memcmp(at + pos - length, PyBytes_AS_STRING(part), length) == 0:
                    self.found = True
                number = by_end[256 + number]
        before += size
        if before > TAIL_BYTES and before > 2 * self._most:
            del kept[: before - self._most]
        return self.found

    cdef bint _take(self, Bytes frame, Py_ssize_t size) except -1:
        cdef Py_ssize_t start = PyBytes_GET_SIZE(self._before)
        cdef Py_ssize_t after = PyBytes_GET_SIZE(self._after)
        cdef Chunk chunk
        cdef bytes text, part
        chunk.stop = -1
        if start and size >= start + after and memcmp(frame, bytes_at(self._before), start) == 0:
            chunk.stop = string_end(frame, start, size, &chunk.escaped)
            if chunk.stop != size - after or memcmp(frame + chunk.stop, bytes_at(self._after), after) != 0:
                chunk.stop = -1
        if chunk.stop < 0:
            if not read_chunk(&chunk, frame, size):
                return False
            start = chunk.start
            self._thought = chunk.reasoning
            self._before = PyBytes_FromStringAndSize(<const char *>frame, start)
            self._after = PyBytes_FromStringAndSize(<const char *>frame + chunk.stop, size - chunk.stop)
            for part in self._parts:
                if toolwire_find(frame, size, bytes_at(part), PyBytes_GET_SIZE(part)) != NULL:
                    self.found = True
        size = chunk.stop - start
        if chunk.escaped:
            text = unescape(frame + start, size)
            return not self._text(bytes_at(text), PyBytes_GET_SIZE(text), self._thought)
        return not self._text(frame + start, size, self._thought)
