# Passes the prose of Chat chunks: part of `_fastparse.pyx`, the twin of `_pychunk.py`.

cdef enum:
    GROUP = 32
    KEPT_BYTES = 8192


cdef class SecretGuard


cdef inline object with_more(object out, bytes more):
    """Returns the output with `more` added: bytes for one frame, a list for several."""
    if out is None:
        return more
    if type(out) is list:
        (<list>out).append(more)
        return out
    return [out, more]


cdef class ChunkGate:
    """Passes the prose of streamed Chat chunks, and gives everything else to `slow`, in order.

    `slow` takes the next bytes of the stream (whole frames, or parts of one) and returns the client's bytes for them.
    `found` takes the events (at least one) that the scanner made of a frame's text, and returns the client's bytes for
    them. Both may call `open`, `shut` and `take`. The gate is shut at first. A frame of more than `frame_bytes` never
    passes.
    """

    cdef object _slow, _found
    cdef Py_ssize_t _limit, _passed, _frames
    cdef int _group
    cdef bint _is_open, _reasoning, _thought, _cut, _newline
    cdef CallScanner _scanner
    cdef SecretGuard _guard
    cdef bytes _head, _middle, _tail, _before, _after
    cdef long long _number
    cdef bytearray _fed, _given

    def __init__(self, slow, found, Py_ssize_t frame_bytes=_grammar.FRAME_BYTES):
        self._slow = slow
        self._found = found
        self._limit = frame_bytes
        self._is_open = self._reasoning = self._thought = False
        self._middle = self._tail = b""
        self._number = -1
        self._cut = self._newline = False
        self._group = 1
        self._before = self._after = b""
        self._passed = self._frames = 0
        self._fed = bytearray()
        self._given = bytearray()

    @property
    def passed(self):
        """The number of the server's frames that have passed since the last `take`."""
        return self._passed

    def open(
        self,
        CallScanner scanner,
        bytes head,
        bytes tail not None,
        long long number=-1,
        bytes middle not None=b"",
        *,
        bint reasoning=False,
    ):
        """Lets text (or `reasoning`) pass. Text that `scanner` passes at once (None: all text) is written as `head`,
        the escaped text and `tail`; for other text `found` is called. If `number` is not negative, it counts the frames
        and is written between `head` and `middle`. With `head` None, `found` is called for all text."""
        self._is_open = True
        self._reasoning = reasoning
        self._scanner = scanner
        self._head = head
        self._tail = tail
        self._number = number
        self._middle = middle

    def watch(self, SecretGuard guard not None):
        """Lets frames pass only if `guard` finds nothing in their text."""
        self._guard = guard

    def shut(self):
        """Lets nothing pass."""
        self._is_open = False
        self._scanner = None

    def take(self):
        """Returns, since the last call: the number of frames sent, the text received, and the text sent. These may
        differ, because the scanner may hold text back."""
        cdef Py_ssize_t frames = self._frames
        cdef str fed = self._fed.decode()
        cdef str given = self._given.decode()
        self._passed = self._frames = 0
        self._fed.clear()
        self._given.clear()
        return frames, fed, given

    def feed(self, bytes data not None):
        """Takes the next bytes, cut anywhere. Returns the client's bytes for them."""
        cdef object out = None  # bytes, or a list of them
        cdef Bytes p = bytes_at(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t pos = 0
        cdef Py_ssize_t end
        cdef bytes passed
        if self._cut and size > 0:
            end = 1 if self._newline and p[0] == c"\n" else blank_line(p, 0, size)
            self._cut = end < 0
            self._newline = p[size - 1] == c"\n"
            pos = size if end < 0 else end
            out = with_more(out, self._slow(data[:pos]))
        while pos < size:
            end = blank_line(p, pos, size)
            if end < 0:
                self._cut = True
                self._newline = p[size - 1] == c"\n"
                out = with_more(out, self._slow(data[pos:] if pos else data))
                break
            passed = self._pass(p + pos, end - 2 - pos) if self._is_open and end - 2 - pos <= self._limit else None
            if passed is None:
                end = self._group_end(p, end, size)
                passed = self._slow(data[pos:end])
            else:
                self._group = 1
            out = with_more(out, passed)
            pos = end
        if out is None:
            return b""
        return b"".join(out) if type(out) is list else out

    cdef Py_ssize_t _group_end(self, Bytes p, Py_ssize_t pos, Py_ssize_t size) noexcept:
        cdef int number
        cdef Py_ssize_t end
        for number in range(self._group - 1):
            end = blank_line(p, pos, size)
            if end < 0:
                break
            pos = end
        self._group = min(2 * self._group, GROUP)
        return pos

    cdef bytes _pass(self, Bytes frame, Py_ssize_t size):
        cdef Py_ssize_t start = PyBytes_GET_SIZE(self._before)
        cdef Py_ssize_t after = PyBytes_GET_SIZE(self._after)
        cdef Py_ssize_t said = PyByteArray_GET_SIZE(self._given)
        cdef bytes text
        cdef list found
        cdef Bytes p
        cdef Chunk chunk
        if PyByteArray_GET_SIZE(self._fed) > KEPT_BYTES:
            return None
        chunk.stop = -1
        if (
            start
            and size >= start + after
            and self._thought == self._reasoning
            and memcmp(frame, bytes_at(self._before), start) == 0
        ):
            chunk.stop = string_end(frame, start, size, &chunk.escaped)
            if chunk.stop != size - after or memcmp(frame + chunk.stop, bytes_at(self._after), after) != 0:
                chunk.stop = -1
        if chunk.stop < 0:
            start = self._read(&chunk, frame, size)
        if chunk.stop <= start or start < 0:
            return None
        p = frame + start
        size = chunk.stop - start
        if chunk.escaped:
            text = unescape(p, size)
            p = bytes_at(text)
            size = PyBytes_GET_SIZE(text)
        if self._guard is not None and self._guard._text(p, size, self._reasoning):
            return None
        self._passed += 1
        append(self._fed, p, size)
        if self._scanner is None:
            append(self._given, p, size)
        elif self._head is None or not self._scanner._pass_on(p, size, self._given):
            found = self._scanner.feed(text_of(p, size))
            return self._found(found) if found else b""
        size = PyByteArray_GET_SIZE(self._given) - said
        return self._written(<Bytes>PyByteArray_AS_STRING(self._given) + said, size) if size else b""

    cdef Py_ssize_t _read(self, Chunk *chunk, Bytes frame, Py_ssize_t size) except -2:
        if not read_chunk(chunk, frame, size) or chunk.reasoning != self._reasoning:
            return -1
        self._thought = chunk.reasoning
        self._before = PyBytes_FromStringAndSize(<const char *>frame, chunk.start)
        self._after = PyBytes_FromStringAndSize(<const char *>frame + chunk.stop, size - chunk.stop)
        return chunk.start

    cdef bytes _written(self, Bytes text, Py_ssize_t size):
        cdef char digits[24]
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t middle = 0
        cdef Py_ssize_t head = PyBytes_GET_SIZE(self._head)
        cdef Py_ssize_t tail = PyBytes_GET_SIZE(self._tail)
        cdef Py_ssize_t length = escaped_size(text, size)
        cdef bytes frame
        cdef char *to
        self._frames += 1
        if self._number >= 0:
            count = snprintf(digits, sizeof(digits), b"%lld", self._number)
            self._number += 1
            middle = PyBytes_GET_SIZE(self._middle)
        frame = PyBytes_FromStringAndSize(NULL, head + count + middle + length + tail)
        to = PyBytes_AS_STRING(frame)
        memcpy(to, bytes_at(self._head), head)
        memcpy(to + head, digits, count)
        to += head + count
        memcpy(to, bytes_at(self._middle), middle)
        escape(to + middle, text, size)
        memcpy(to + middle + length, bytes_at(self._tail), tail)
        return frame
