# The output: part of `_fastparse.pyx`, the twin of `_pyoutput.py`.


@cython.final
cdef class Blanks:
    cdef bytearray _before
    cdef unsigned char _blank
    cdef Py_ssize_t _count

    def __cinit__(self):
        self._before = bytearray()

    cdef inline Py_ssize_t size(self) noexcept:
        return PyByteArray_GET_SIZE(self._before) + self._count

    cdef inline int add(self, Bytes p, Py_ssize_t size) except -1:
        cdef unsigned char blank = p[size - 1]
        cdef Py_ssize_t rest = size - 1
        while rest > 0 and p[rest - 1] == blank:
            rest -= 1
        if rest > 0 or blank != self._blank:
            if self._count + rest > 0:
                self._keep(p, rest)
            self._blank = blank
            self._count = 0
        self._count += size - rest
        return 0

    cdef int _keep(self, Bytes p, Py_ssize_t size) except -1:
        """Moves the counted character, followed by these bytes, to the beginning."""
        cdef Py_ssize_t before = self.size()
        PyByteArray_Resize(self._before, before + size)
        memset(PyByteArray_AS_STRING(self._before) + before - self._count, self._blank, self._count)
        memcpy(PyByteArray_AS_STRING(self._before) + before, p, size)
        return 0

    cdef inline char *write(self, char *to) noexcept:
        """Writes all of it; returns the end."""
        cdef Py_ssize_t before = PyByteArray_GET_SIZE(self._before)
        memcpy(to, PyByteArray_AS_STRING(self._before), before)
        memset(to + before, self._blank, self._count)
        return to + before + self._count

    cdef str and_text(self, Bytes p, Py_ssize_t size):
        """Returns all of it followed by this text."""
        cdef Py_ssize_t whole = self.size() + size
        cdef char brief[WORDS]
        cdef bytes data
        cdef char *to = brief
        if whole > WORDS:
            data = PyBytes_FromStringAndSize(NULL, whole)
            to = PyBytes_AS_STRING(data)
        memcpy(self.write(to), p, size)
        return PyUnicode_DecodeUTF8(to, whole, NULL)

    cdef inline str text(self):
        return self.and_text(bytes_at(b""), 0)

    cdef inline int clear(self) except -1:
        if PyByteArray_GET_SIZE(self._before) > 0:
            self._before.clear()
        self._count = 0
        return 0


@cython.final
cdef class Output:
    cdef readonly list events
    cdef object _before  # the previous delta's event list, if it had one event
    cdef object open, choice  # `open`: None if no block is open
    cdef long long next_block
    cdef Py_ssize_t limit
    cdef int prose
    cdef bint trims
    cdef public bint fresh, after
    cdef bint _trim_edges, _blank, _touching, _spilled, _spoken
    cdef list _said
    cdef Blanks _pending, _kept
    cdef str _left, _middle, _right

    def __cinit__(self, bint trim_edges, choice, long long first_block):
        self.events = []
        self.next_block = first_block
        self.open = None
        self.fresh = True
        self.choice = choice
        self._trim_edges = trim_edges
        self._said = []
        self._pending = Blanks()
        self._kept = Blanks()
        self._blank = True
        self._left = self._middle = self._right = ""

    cdef int begin(self, int prose) except -1:
        self.enter(prose)
        self._touching = prose == REASONING
        return 0

    cdef int enter(self, int prose) except -1:
        self.prose = prose
        self.trims = self._trim_edges and prose == TEXT
        return 0

    cdef str waiting(self):
        return self._kept.text() + self._pending.text()

    cdef inline bint flows(self) noexcept:
        return not (self._blank or self._spilled or self.open is None)

    cdef inline bint touches(self, Py_ssize_t more) noexcept:
        if not (self.after and self._blank):
            return False
        return self.trims or self._pending.size() + more <= self.limit  # a longer run was not held back

    cpdef bint starts(self, Py_ssize_t more) noexcept:
        if self.fresh and self.prose == TEXT:
            return True
        return self._blank and self._touching and (self.trims or self._pending.size() + more <= self.limit)

    # --- text -------------------------------------------------------------------------------------------------------

    cdef int say(self, Bytes p, Py_ssize_t size, str whole) except -1:
        """Adds text; `whole` is the same as a string, if available."""
        cdef Py_ssize_t before = 0
        cdef Py_ssize_t after = size
        if size == 0:
            return 0
        if self._blank:
            while before < size and CLASS[p[before]] & SPACE:
                before += 1
            if self._touching and self.trims:
                if self._spoken:
                    self._right = stays(self._right, text_of(p, before))
                if before == size:
                    return 0
            else:
                if before == size:
                    return self._wait(p, size)
                before = 0
            self._begin_text()
        if self.trims:
            while after > before and CLASS[p[after - 1]] & SPACE:
                after -= 1
            if after == before:
                return self._wait(p + before, size - before)
        self._give_back()
        self._said.append(
            whole if whole is not None and after - before == size else text_of(p + before, after - before)
        )
        if after < size:
            self._wait(p + after, size - after)
        self._see(p, size)
        return 0

    cpdef int say_raw(self, bytes raw) except -1:
        return self.say(bytes_at(raw), PyBytes_GET_SIZE(raw), None)

    cpdef int say_text(self, str text) except -1:
        cdef Py_ssize_t size
        cdef Bytes p
        text = valid_text(text)
        p = toolwire_utf8(text, &size)
        return self.say(p, size, text)

    cdef str say_more(self, Bytes p, Py_ssize_t size, str text):
        """Does `say` and `flush` while it `flows`; returns the text to send, or None."""
        cdef Py_ssize_t after = size
        cdef Py_ssize_t before = self._pending.size()
        if self.trims:
            while after > 0 and CLASS[p[after - 1]] & SPACE:
                after -= 1
            if after == 0:
                self._wait(p, size)
                return self._all_said() if self._spilled else None
        self._see(p, size)
        if before == 0 and after == size:
            return text
        if before == 0:
            text = text_of(p, after)
        else:
            text = self._pending.and_text(p, after)
            self._pending.clear()
        if after < size:
            self._wait(p + after, size - after)
            if self._spilled:
                return text + self._all_said()
        return text

    cdef bint pass_on(self, Bytes p, Py_ssize_t size, bytearray said) except -1:
        cdef Py_ssize_t pending = self._pending.size()
        cdef Py_ssize_t end = size
        cdef Py_ssize_t before
        if self.trims:
            while end > 0 and CLASS[p[end - 1]] & SPACE:
                end -= 1
        if pending + size - end > self.limit:
            return False
        if end > 0:
            self._see(p, end)
            if pending:
                before = PyByteArray_GET_SIZE(said)
                PyByteArray_Resize(said, before + pending)
                self._pending.write(PyByteArray_AS_STRING(said) + before)
                self._pending.clear()
            append(said, p, end)
        if end < size:
            self._pending.add(p + end, size - end)
        return True

    cdef inline void _see(self, Bytes p, Py_ssize_t size) noexcept:
        cdef Py_ssize_t at = 0
        if self.fresh and self.prose == TEXT:
            while at < size and CLASS[p[at]] & SPACE:
                at += 1
            self.fresh = at == size

    cdef str _all_said(self):
        text = "".join(self._said)
        self._said.clear()
        return text

    cdef int _begin_text(self) except -1:
        cdef str joint
        self._blank = False
        if self.prose == TEXT:
            joint = stays(self._left, self._right) or self._middle or self._kept.text()
            if joint:
                self._said.append(joint)
                self._left = self._middle = self._right = ""
                self._kept.clear()
            self._spoken = True
        return 0

    cdef int _wait(self, Bytes p, Py_ssize_t size) except -1:
        if self._spilled:
            self._said.append(text_of(p, size))
            return 0
        if size > 0:
            self._pending.add(p, size)
        if self._pending.size() > self.limit:
            if self._blank:
                self._begin_text()
            self._give_back()
            self._spilled = True
        return 0

    cdef inline int _give_back(self) except -1:
        self._spilled = False
        if self._pending.size() > 0:
            self._said.append(self._pending.text())
            self._pending.clear()
        return 0

    # --- edges ------------------------------------------------------------------------------------------------------

    cdef int edge(self) except -1:
        if self.prose == TEXT:
            self._leave_out()
        self._pending.clear()
        self.close()
        self._blank = self._touching = True
        self.after = self._spilled = False
        return 0

    cpdef int join_section(self) except -1:
        self._right = ""
        return 0

    cdef int _leave_out(self) except -1:
        cdef Py_ssize_t size
        cdef Bytes p
        cdef str space = self._pending.text()
        if not self._trim_edges:
            p = toolwire_utf8(space, &size)
            if size > 0:
                self._kept.add(p, size)
            if self._kept.size() > self.limit:
                self._begin_text()
        elif not self._blank:
            self._left = stays("", space)
        else:
            self._middle = stays(self._middle, self._right)
            self._right = ""
        return 0

    # --- events -----------------------------------------------------------------------------------------------------

    cdef inline list begin_delta(self):
        """Returns the list for the events of this delta: the previous list, if it has no other references."""
        cdef PyObject *events = <PyObject *>self.events
        cdef Py_ssize_t size = PyList_GET_SIZE(events)
        if not toolwire_is_single(events) or size > 1:
            self.events = []
        elif size == 1:
            self._before = toolwire_take_only(events)
        return self.events

    cdef inline int _append_delta(self, block, str text) except -1:
        if renew(<PyObject *>self._before, block, text):
            self.events.append(self._before)
            self._before = None
        else:
            self.events.append(new_delta(block, text))
        return 0

    cdef inline list one_delta(self, str text):
        """Returns the events of a delta that only continues the open block, which is the usual case."""
        if not say_again(<PyObject *>self.events, self.open, text):
            self.events = [new_delta(self.open, text)]
        return self.events

    cdef int flush(self) except -1:
        cdef list said = self._said
        if not said:
            return 0
        if self.open is None:
            self.open = self._number()
            kind = TEXT_KIND if self.prose == TEXT else REASONING_KIND
            self.events.append(Open(self.open, kind, choice=self.choice))
        self._append_delta(self.open, said[0] if len(said) == 1 else "".join(said))
        said.clear()
        return 0

    cdef int close(self, str status="complete") except -1:
        self.flush()
        if self.open is not None:
            self.events.append(Close(self.open, status))
            self.open = None
        return 0

    cdef int finish(self, str status) except -1:
        if not (self._blank and self._touching):
            self._give_back()
        return self.close(status)

    cpdef int give_up(self) except -1:
        self._pending.clear()
        return self.close()

    cdef object open_call(self, call, source):
        block = self._number()
        self.events.append(opening(block, call, self.choice, source))
        return block

    cdef inline int say_argument(self, block, str text) except -1:
        return self._append_delta(block, text)

    cpdef int give_reasoning(self, str reasoning) except -1:
        if reasoning:
            block = self._number()
            self.events.append(Open(block, REASONING_KIND, choice=self.choice))
            self.events.append(Delta(block, reasoning))
            self.events.append(Close(block))
        return 0

    cpdef int give_calls(self, tuple calls, str source) except -1:
        for call in calls:
            block = self.open_call(call, source if call.source is None else call.source)
            if call.arguments:
                self.events.append(Delta(block, call.arguments))
            self.events.append(Close(block))
        return 0

    cdef object _number(self):
        number = self.next_block
        self.next_block += 1
        return number


cdef inline str stays(str kept, str space):
    """Returns the remaining whitespace character: a line end, or `kept` from before, or a blank."""
    if not space:
        return kept
    return "\n" if "\n" in space else kept or " "
