# Sends calls that are streamed early: part of `_fastparse.pyx`, the twin of `_pyhost.py`.

cdef class LiveHost:
    """See `toolwire.scan._grammar.CallSink`."""

    cdef Buffer _buffer
    cdef Output _output
    cdef Prose _prose

    def __init__(self, Buffer buffer, Output output, Prose prose):
        self._buffer = buffer
        self._output = output
        self._prose = prose

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
