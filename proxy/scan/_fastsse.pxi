# Framing of server-sent events: part of `_fastparse.pyx`, the twin of `_pysse.py`.

cdef class SseFramer:
    """Splits a byte stream of server-sent events into frames, as the HTML standard defines.

    A frame is (event name or None, data). Lines end with LF, CR or CRLF, also if a CRLF is cut. A leading BOM,
    comments, `id`, `retry` and unknown fields are dropped; several `data` lines are joined with LF; an event without
    `data` is dropped. An object in a field `error`, as older llama.cpp sends it, is the data of an event `error`.
    `frame_bytes` limits one event, including comments and unknown fields, each line end counted as one byte.
    """

    cdef Py_ssize_t _limit, _size
    cdef bint _failed, _first, _cr
    cdef bytearray _line, _data
    cdef bytes _name

    def __init__(self, Py_ssize_t frame_bytes=_grammar.FRAME_BYTES):
        self._limit = frame_bytes
        self._failed = False
        self._first = True
        self._cr = False
        self._line = bytearray()
        self._size = 0
        self._name = b""
        self._data = bytearray()

    def feed(self, bytes data not None):
        """Takes the next bytes, cut anywhere, and returns the frames that are complete now.

        Raises `FrameTooLarge` for an event beyond the limit. If frames were completed before it, they are returned
        first, and the next call (and every later one) raises.
        """
        cdef list frames
        cdef Bytes p = bytes_at(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t pos = 0
        cdef Py_ssize_t lf, end
        cdef Bytes found
        cdef bint has_cr, whole, fits = True
        if self._failed:
            raise too_large(self._limit)
        frames = []
        if size == 0:
            return frames
        if self._cr:
            self._cr = False
            pos = p[0] == c"\n"
        has_cr = memchr(p, c"\r", size) != NULL
        lf = pos - 1
        while fits and pos < size:
            if lf < pos:
                found = <Bytes>memchr(p + pos, c"\n", size - pos)
                lf = size if found == NULL else found - p
            end = lf
            if has_cr:
                found = <Bytes>memchr(p + pos, c"\r", end - pos)
                if found != NULL:
                    end = found - p
            if end == size:
                append(self._line, p + pos, size - pos)
                fits = self._fits(PyByteArray_GET_SIZE(self._line))
                break
            whole = not (has_cr or self._size or PyByteArray_GET_SIZE(self._line)) and end - pos >= 6
            if (
                whole
                and end + 1 < size
                and p[end + 1] == c"\n"
                and memcmp(p + pos, b"data: ", 6) == 0
                and end - pos <= self._limit
            ):  # the usual frame
                self._first = False
                frames.append((None, PyBytes_FromStringAndSize(<const char *>p + pos + 6, end - pos - 6)))
                pos = end + 2
                continue
            fits = self._take(p + pos, end - pos, frames)
            pos = end + 1
            if p[end] != c"\n":
                if pos == size:
                    self._cr = True
                elif p[pos] == c"\n":
                    pos += 1
        if not (fits or frames):
            raise too_large(self._limit)
        return frames

    def finish(self):
        """Ends the stream. A last event without its blank line is returned too: servers do end with `data: [DONE]`
        only. The reader must check whether its data is complete. Raises `FrameTooLarge`."""
        cdef list frames
        if self._failed:
            raise too_large(self._limit)
        frames = []
        if PyByteArray_GET_SIZE(self._line) > 0:
            self._take(NULL, 0, frames)
        self._dispatch(frames)
        return frames

    cdef bint _fits(self, Py_ssize_t line_size) except -1:
        if self._size + line_size <= self._limit:
            return True
        self._failed = True
        self._line.clear()
        self._data.clear()
        return False

    cdef bint _take(self, Bytes p, Py_ssize_t size, list frames) except -1:
        cdef bytes line
        cdef Py_ssize_t line_size, colon, value
        cdef Bytes found
        if PyByteArray_GET_SIZE(self._line) > 0:
            append(self._line, p, size)
            line = bytes(self._line)
            self._line.clear()
            p = bytes_at(line)
            size = PyBytes_GET_SIZE(line)
        line_size = size
        if self._first:
            self._first = False
            if size >= 3 and memcmp(p, PyBytes_AS_STRING(BOM), 3) == 0:
                p += 3
                size -= 3
        if size == 0:
            self._dispatch(frames)
            return True
        if not self._fits(line_size):
            return False
        self._size += line_size + 1
        found = <Bytes>memchr(p, c":", size)
        colon = size if found == NULL else found - p
        if colon != 4 and colon != 5:
            return True
        value = min(colon + 1, size)
        if value < size and p[value] == c" ":
            value += 1
        if colon == 5 and memcmp(p, b"event", 5) == 0:
            self._name = PyBytes_FromStringAndSize(<const char *>p + value, size - value)
        elif (colon == 4 and memcmp(p, b"data", 4) == 0) or (
            colon == 5 and memcmp(p, b"error", 5) == 0 and value < size and p[value] == c"{"
        ):
            append(self._data, p + value, size - value)
            append(self._data, <Bytes>b"\n", 1)
            if colon == 5:
                self._name = b"error"
        return True

    cdef int _dispatch(self, list frames) except -1:
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(self._data)
        if size > 0:
            frames.append(
                (
                    self._name.decode("utf-8", "replace") if self._name else None,
                    PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self._data), size - 1),
                )
            )
            self._data.clear()
        self._name = b""
        self._size = 0
        return 0


def plain_length(bytes data not None, bytes usual not None, tuple odd not None):
    """Returns the length of the frames at the beginning of `data`, which holds whole frames, that end like a JSON
    object, contain `usual` and none of `odd`. Returns 0 if this cannot be decided quickly, because lines end with
    CR."""
    cdef Bytes first = bytes_at(data)
    cdef Bytes p = first
    cdef Bytes last = p + PyBytes_GET_SIZE(data)
    cdef Bytes literal = bytes_at(usual)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(usual)
    cdef Py_ssize_t at = 0  # where `usual` is in the frame before: usually it is there in all frames of a stream
    cdef Bytes end
    cdef Bytes found
    cdef bytes one
    if memchr(p, c"\r", last - p) != NULL:
        return 0
    for one in odd:  # `last` becomes the first place that is odd
        found = toolwire_search(p, last - p, bytes_at(one), PyBytes_GET_SIZE(one))
        if found != NULL:
            last = found
    while p < last:
        end = toolwire_find(p, last - p, b"\n\n", 2)
        if end == NULL or end == p or (end - 1)[0] != c"}":
            break
        if end - p < at + length or memcmp(p + at, literal, length) != 0:
            found = toolwire_search(p, end - p, literal, length)
            if found == NULL:
                break
            at = found - p
        p = end + 2
    return p - first
