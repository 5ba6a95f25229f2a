# Sends calls that are streamed early: part of `_fastparse.pyx`, the twin of `_pyhost.py`.


@cython.final
cdef class LiveHost(StringSender):
    cdef Buffer _buffer
    cdef Output _output
    cdef Prose _prose
    cdef int _string
    cdef bytes _stops, _waiting
    cdef bytearray _sent
    cdef object _block

    def __cinit__(self, Buffer buffer, Output output, Prose prose):
        self._buffer = buffer
        self._output = output
        self._prose = prose
        self._string = NO_STRING
        self._waiting = b""

    def span(self, Py_ssize_t start, Py_ssize_t stop):
        """See `toolwire.scan._grammar.CallSink`."""
        return self._buffer.span(start, stop)

    def live_open(self, call):
        """See `toolwire.scan._grammar.CallSink`."""
        self._prose.edge()
        return self._output.open_call(call, None)

    def live_say(self, block, str text):
        """See `toolwire.scan._grammar.CallSink`."""
        self._output.say_argument(block, text)

    def live_close(self, block, status):
        """See `toolwire.scan._grammar.CallSink`."""
        self._output.events.append(Close(block, status))

    # --- strings ------------------------------------------------------------------------------------------------------

    cdef int begin(self) except -1:
        self._string = NO_STRING
        self._waiting = b""
        return 0

    cdef int read_string(self, object live) except -1:
        self._string = live.string
        if self._string != NO_STRING:
            self._stops = live.stops
            self._sent = live.sent
            self._block = live.block
        return 0

    cdef bytes send(self, Bytes buf, Py_ssize_t pos, Py_ssize_t end):
        cdef Certain found
        cdef Py_ssize_t before
        cdef Bytes p = buf + pos
        cdef Py_ssize_t size = end - pos
        cdef bytes joined
        if self._string == NO_STRING or size == 0:
            return PyBytes_FromStringAndSize(<const char *>p, size)
        if PyBytes_GET_SIZE(self._waiting) > 0:
            joined = self._waiting + PyBytes_FromStringAndSize(<const char *>p, size)
            p = bytes_at(joined)
            size = PyBytes_GET_SIZE(joined)
        before = PyByteArray_GET_SIZE(self._sent)
        certain(self._string, self._stops, p, size, self._sent, &found)
        if PyByteArray_GET_SIZE(self._sent) > before:
            self._output.say_argument(
                self._block,
                self._buffer.text(
                    <Bytes>PyByteArray_AS_STRING(self._sent), before, PyByteArray_GET_SIZE(self._sent)
                ),
            )
        if found.waits:
            self._waiting = PyBytes_FromStringAndSize(<const char *>p + found.used, size - found.used)
            return b""
        self._waiting = b""
        return b"" if found.used == size else PyBytes_FromStringAndSize(<const char *>p + found.used, size - found.used)

    cdef bytes rest(self):
        cdef bytes waiting = self._waiting
        self._waiting = b""
        return waiting
