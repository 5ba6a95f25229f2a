# Text outside blocks: part of `_fastparse.pyx`, the twin of `_pyprose.py`.


cdef enum:
    NONE
    ANSWER
    LITERAL


cdef class ProseScanner:
    cdef object _grammar, _reasoning, _choice, _open
    cdef _Plan _plan
    cdef bint _opens, _quotes
    cdef tuple _markers
    cdef Py_ssize_t _block_bytes, _limit
    cdef long long _next_block, _steps
    cdef bint _trim_edges, _scan_calls

    cdef bytes _cut
    cdef str _high
    cdef bint _half
    cdef object _owner
    cdef Bytes _p
    cdef Py_ssize_t _size
    cdef list _out

    cdef int _state, _prose, _tags
    cdef bint _fresh, _after, _line_start, _margin, _trims
    cdef Quoting _quoting
    cdef Py_ssize_t _quiet, _quoted
    cdef int _refused
    cdef bytes _held
    cdef int _first_count
    cdef unsigned char _firsts[FIRSTS]
    cdef Py_ssize_t _ahead[FIRSTS]

    cdef list _said
    cdef bytearray _pending
    cdef bint _blank, _touching, _spilled, _spoken
    cdef str _left, _middle, _right

    cdef bytearray _raw
    cdef Py_ssize_t _start

    def __init__(
        self,
        grammar,
        Py_ssize_t block_bytes,
        bint trim_edges,
        tuple reasoning,
        bint preopened,
        bint scan_calls,
        choice,
        long long first_block,
    ):
        self._grammar = grammar
        self._reasoning = reasoning
        self._scan_calls = scan_calls
        self._block_bytes = block_bytes
        self._trim_edges = trim_edges
        self._choice = choice
        self._next_block = first_block
        self._steps = 0

        self._cut = b""
        self._high = ""
        self._half = False
        self._out = []

        self._tags = 0
        self._fresh = True
        self._after = False
        self._line_start = self._margin = True
        memset(&self._quoting, 0, sizeof(Quoting))
        self._quiet = self._quoted = 0
        self._refused = NONE
        self._read_as(grammar)
        self._begin(b"")
        self._enter(REASONING if preopened and reasoning else TEXT)

        self._open = None
        self._said = []
        self._pending = bytearray()
        self._blank = True
        self._touching = self._state == REASONING
        self._spilled = False
        self._spoken = False
        self._left = self._middle = self._right = ""

        self._raw = bytearray()
        self._start = 0

    @property
    def state(self):
        """Name of the state, one of `STATES`."""
        return STATES[self._state]

    @property
    def held(self):
        """What was fed and not given out yet: pending whitespace, then a possible marker or the block so far."""
        return ("" if self._trim_edges else self._left) + (self._pending + self._raw + self._held).decode()

    @property
    def next_block(self):
        """The number that the next block will get."""
        return self._next_block

    @property
    def block(self):
        """The open block of text or reasoning, None if none is open."""
        return self._open

    @property
    def steps(self):
        """Characters or bytes looked at so far: at most four times the input, seven where untaught shapes are looked
        for, and, for each delta, once what was held back of a marker, whatever the input is (R6.10)."""
        return self._steps

    def feed(self, data):
        """Take the next piece of the answer and give what is certain now.

        Bytes are UTF-8 and may be cut inside a character; what is invalid becomes U+FFFD. Text may hold surrogate
        halves: a pair cut by deltas is joined, a lone half becomes U+FFFD. Never raises for any text. After a `Fault`
        or `finish` everything is ignored.
        """
        cdef Py_ssize_t size
        cdef Bytes p
        cdef str text
        cdef list out
        if self._state == DONE:
            return []
        p = NULL
        if type(data) is str and not self._half:
            text = <str>data
            p = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
        if p == NULL:
            text = self._decode(data)
            p = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
        if size == 0:
            return []
        if self._state <= REASONING and PyBytes_GET_SIZE(self._held) == 0 and self._is_plain(p, size):
            self._steps += size
            self._pass_plain(p, size)
            if not (self._blank or self._spilled or self._open is None):  # most deltas
                text = self._go_through(p, size, text)
                return [] if text is None else [new_delta(self._open, text)]
            self._out = out = []
            self._say(p, size, text)
        else:
            self._out = out = []
            if self._state <= REASONING and PyBytes_GET_SIZE(self._held) != 0:
                self._begin(self._held + text.encode())
            else:
                self._begin_with(text, p, size)
            self._run(0)
        self._flush()
        return out

    def pass_on(self, str text not None):
        """What goes out at once for `text` if it is more of `block` and nothing else; then it counts as fed. None if it takes
        `feed` to tell. `text` is not empty and holds no surrogates."""
        cdef bytearray said = bytearray()
        cdef Py_ssize_t size
        cdef Bytes p = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
        return said.decode() if self._pass_on(p, size, said) else None

    cdef bint _pass_on(self, Bytes p, Py_ssize_t size, bytearray said) except -1:
        cdef Py_ssize_t pending = PyByteArray_GET_SIZE(self._pending)
        cdef Py_ssize_t end = size
        if (
            self._state > REASONING
            or self._open is None
            or self._blank
            or self._spilled
            or self._half
            or PyBytes_GET_SIZE(self._held) > 0
            or not self._is_plain(p, size)
        ):
            return False
        if self._trims:
            while end > 0 and CLASS[p[end - 1]] & SPACE:
                end -= 1
        if pending + size - end > self._limit:
            return False
        self._steps += size
        self._pass_plain(p, size)
        if end > 0:
            self._fresh = self._fresh and self._stays_fresh(p, end)
            if pending:
                append(said, <Bytes>PyByteArray_AS_STRING(self._pending), pending)
                PyByteArray_Resize(self._pending, 0)
            append(said, p, end)
        append(self._pending, p + end, size - end)
        return True

    def finish(self, bint truncated=False):
        """The answer is over; `truncated` if the backend stopped for length. Gives what was kept back, settles an
        unfinished block (R6.8, C18) and closes what is open."""
        cdef list out = []
        self._out = out
        if self._state == DONE:
            return out
        rest = self._cut.decode("utf-8", "replace") + (UNKNOWN if self._high else "")
        if rest:
            self._begin(self._held + rest.encode())
            self._run(0)
        while REASONING < self._state < DONE:
            self._begin(b"")
            self._gather()
            self._run(self._end(truncated))
        if self._state != DONE:
            self._say(bytes_at(self._held), PyBytes_GET_SIZE(self._held), None)
            self._held = b""
            if not (self._blank and self._touching):
                self._give_back()
            self._close("truncated" if truncated else "complete")
            self._state = DONE
        return out

    cdef str _go_through(self, Bytes p, Py_ssize_t size, str text):
        """`_say` and `_flush` where neither a marker nor an edge is near: what goes out, or None."""
        cdef Py_ssize_t after = size
        cdef Py_ssize_t before = PyByteArray_GET_SIZE(self._pending)
        if self._trims:
            while after > 0 and CLASS[p[after - 1]] & SPACE:
                after -= 1
            if after == 0:
                self._wait(p, size)
                return self._all_said() if self._spilled else None
        self._fresh = self._fresh and self._stays_fresh(p, size)
        if before == 0 and after == size:
            return text
        if before == 0:
            text = text_of(p, after)
        else:
            append(self._pending, p, after)
            text = text_of(<Bytes>PyByteArray_AS_STRING(self._pending), before + after)
            PyByteArray_Resize(self._pending, 0)
        if after < size:
            self._wait(p + after, size - after)
            if self._spilled:
                return text + self._all_said()
        return text

    cdef str _all_said(self):
        text = "".join(self._said)
        self._said.clear()
        return text

    # --- input ------------------------------------------------------------------------------------------------------

    cdef str _decode(self, data):
        cdef str text
        PyErr_Clear()
        text = self._decode_any(data)
        self._half = PyBytes_GET_SIZE(self._cut) > 0 or len(self._high) > 0
        return text

    cdef str _decode_any(self, data):
        cdef Py_ssize_t used, size
        cdef str text
        if isinstance(data, str):
            head = self._cut.decode("utf-8", "replace")
            self._cut = b""
            return head + self._join_surrogates(str(data))
        joined = data if type(data) is bytes and not self._cut else self._cut + data
        size = PyBytes_GET_SIZE(joined)
        text = PyUnicode_DecodeUTF8Stateful(PyBytes_AS_STRING(joined), size, "replace", &used)
        self._cut = joined[used:] if used < size else b""
        if self._high and data:
            self._high = ""
            return UNKNOWN + text
        return text

    cdef str _join_surrogates(self, str text):
        text = self._high + text
        self._high = ""
        if text and "\ud800" <= text[len(text) - 1] <= "\udbff":
            text, self._high = text[: len(text) - 1], text[len(text) - 1 :]
        return valid_text(text)

    cdef inline bint _is_plain(self, Bytes p, Py_ssize_t size):
        cdef int index
        cdef Py_ssize_t at
        cdef unsigned char *marks
        cdef unsigned char found = 0
        if self._fresh and self._opens:
            return False
        if size < BRIEF and self._first_count > 2:
            marks = self._plan.marks
            for at in range(size):
                found |= marks[p[at]]
            return not found
        for index in range(self._first_count):
            if memchr(p, self._firsts[index], size) != NULL:
                return False
        return True

    cdef inline int _begin_with(self, owner, Bytes p, Py_ssize_t size) except -1:
        cdef int index
        self._owner = owner
        self._p = p
        self._size = size
        self._held = b""
        self._start = 0
        for index in range(self._first_count):
            self._ahead[index] = -1
        return 0

    cdef int _begin(self, bytes buf) except -1:
        return self._begin_with(buf, bytes_at(buf), PyBytes_GET_SIZE(buf))

    cdef int _run(self, Py_ssize_t pos) except -1:
        while pos < self._size and self._state != DONE:
            pos = self._read_prose(pos) if self._state <= REASONING else self._read_block(pos)
        if REASONING < self._state < DONE:
            append(self._raw, self._p + self._start, self._size - self._start)
            self._quiet = max(0, self._quiet - self._start)
        elif PyBytes_GET_SIZE(self._held) == 0:
            self._quiet = 0
        self._owner = None
        self._size = 0
        return 0

    cdef Py_ssize_t _gather(self) except -1:
        cdef Py_ssize_t shift = PyByteArray_GET_SIZE(self._raw)
        cdef bytes buf
        if shift:
            append(self._raw, self._p, self._size)
            buf = bytes(self._raw)
            self._raw.clear()
            self._begin(buf)
        return shift

    # --- outside blocks ---------------------------------------------------------------------------------------------

    cdef Py_ssize_t _offset(self, Py_ssize_t pos) noexcept:
        return PyByteArray_GET_SIZE(self._raw) + pos - self._start

    cdef int _read_as(self, grammar) except -1:
        cdef int index
        self._plan = plan_of(grammar, self._reasoning, self._scan_calls)
        self._quotes = self._plan.quotes
        self._opens = self._plan.answer is not None or self._plan.printed is not None
        self._limit = max(self._block_bytes, self._plan.longest)
        self._first_count = PyBytes_GET_SIZE(self._plan.firsts)
        for index in range(self._first_count):
            self._firsts[index] = bytes_at(self._plan.firsts)[index]
            self._ahead[index] = -1
        return 0

    cdef int _enter(self, int prose) except -1:
        self._state = self._prose = prose
        self._markers = self._plan.text if prose == TEXT else self._plan.inside[self._tags]
        self._trims = self._trim_edges and prose == TEXT
        return 0

    cdef Py_ssize_t _read_prose(self, Py_ssize_t pos) except -1:
        cdef Bytes p = self._p
        cdef Py_ssize_t size = self._size
        cdef Py_ssize_t at = pos
        cdef bint cut = False
        cdef _Marker marker
        if self._quotes:
            self._quoted = pos
        if self._fresh and self._opens and self._prose == TEXT:
            while at < size and CLASS[p[at]] & SPACE:
                at += 1
            if at < size:
                if not self._refused and self._plan.answer is not None and self._plan.begins[p[at]]:
                    self._move(pos, at)
                    return self._open_block(self._plan.answer, at)
                if self._plan.printed is not None:
                    marker = self._marker_at(pos, at, &cut)
                    if cut:
                        return self._hold(pos, at)
                    if marker is None and self._may_recognise(pos, at):
                        self._move(pos, at)
                        return self._open_block(self._plan.printed, at)
            at = pos
        while True:
            at = self._next_first(at)
            if at >= size:
                break
            marker = self._marker_at(pos, at, &cut)
            if cut:
                return self._hold(pos, at)
            if marker is not None:
                self._steps += at + marker.size - pos
                self._move(pos, at)
                return self._open_marker(marker, at)
            at += 1
        self._steps += size - pos
        self._move(pos, size)
        return size

    cdef _Marker _marker_at(self, Py_ssize_t pos, Py_ssize_t at, bint *cut):
        cdef Bytes p = self._p + at
        cdef Py_ssize_t size = self._size - at
        cdef bint refused = self._refused == LITERAL and at == pos
        cdef _Marker marker
        for marker in <tuple>self._markers[p[0]]:
            if refused and not marker.untaught:
                continue
            if marker.anchor != ANYWHERE and not self._anchored(marker, pos, at):
                continue
            if size >= marker.size:
                if memcmp(p, marker.p, marker.size) == 0 and (not marker.untaught or self._may_recognise(pos, at)):
                    return marker
            elif memcmp(p, marker.p, size) == 0:
                cut[0] = True
                return None
        return None

    cdef bint _may_recognise(self, Py_ssize_t pos, Py_ssize_t at) noexcept:
        if at < self._quiet:
            return False
        self._quote(pos, at)
        if self._p[at] != TICK:
            end_run(&self._quoting, self._p[at])
        return not is_quoted(&self._quoting)

    cdef void _quote(self, Py_ssize_t pos, Py_ssize_t at) noexcept:
        """Read up to `at` what may be quoted."""
        read_quoting(&self._quoting, self._p, self._quoted, at, is_margin(self._p, pos, self._quoted, self._margin))
        self._quoted = at

    cdef Py_ssize_t _hold(self, Py_ssize_t pos, Py_ssize_t at) except -1:
        self._steps += self._size - pos
        self._held = PyBytes_FromStringAndSize(<const char *>self._p + at, self._size - at)
        self._move(pos, at)
        self._quiet = max(0, self._quiet - at)
        return self._size

    cdef int _move(self, Py_ssize_t pos, Py_ssize_t at) except -1:
        if at == pos:
            return 0
        self._refused = NONE
        if self._quotes:
            if self._prose == TEXT:
                self._quote(pos, at)
            self._margin = is_margin(self._p, pos, at, self._margin)
        self._line_start = self._p[at - 1] == c"\n"
        whole = self._owner if pos == 0 and at == self._size and type(self._owner) is str else None
        return self._say(self._p + pos, at - pos, whole)

    cdef void _pass_text(self, Bytes p, Py_ssize_t size) noexcept:
        if self._quotes and self._prose == TEXT:
            read_quoting(&self._quoting, p, 0, size, self._margin)
        self._pass_line(p, size)

    cdef inline void _pass_plain(self, Bytes p, Py_ssize_t size) noexcept:
        if self._quotes and is_active(&self._quoting) and self._prose == TEXT:
            read_quoting(&self._quoting, p, 0, size, self._margin)
        self._pass_line(p, size)

    cdef inline void _pass_line(self, Bytes p, Py_ssize_t size) noexcept:
        cdef unsigned char last = p[size - 1]
        self._line_start = last == c"\n"
        if self._quotes:
            self._margin = is_margin(p, 0, size, self._margin) if last <= c" " else False

    cdef bint _anchored(self, _Marker marker, Py_ssize_t pos, Py_ssize_t at) noexcept:
        if marker.anchor == LINE:
            return self._line_start if at == pos else self._p[at - 1] == c"\n"
        if marker.anchor == MARGIN:
            return is_margin(self._p, pos, at, self._margin)
        if not (self._after and self._blank):
            return False
        if not self._trims and PyByteArray_GET_SIZE(self._pending) + at - pos > self._limit:
            return False  # more would not have waited
        while pos < at and CLASS[self._p[pos]] & SPACE:
            pos += 1
        return pos == at

    cdef Py_ssize_t _next_first(self, Py_ssize_t pos) noexcept:
        cdef Py_ssize_t nearest = self._size
        cdef Py_ssize_t at
        cdef Bytes found
        cdef int index
        for index in range(self._first_count):
            at = self._ahead[index]
            if at < pos:
                found = <Bytes>memchr(self._p + pos, self._firsts[index], self._size - pos) if pos < self._size else NULL
                at = self._size if found == NULL else found - self._p
                self._ahead[index] = at
            if at < nearest:
                nearest = at
        return nearest

    cdef Py_ssize_t _open_marker(self, _Marker marker, Py_ssize_t at) except -1:
        if marker.opens is not None:
            return self._open_block(marker.opens, at)
        self._edge()
        if marker.reasoning >= 0:
            self._tags = marker.reasoning
            self._enter(REASONING)
        else:
            self._enter(TEXT)
        return at + marker.size

    # --- what goes out ----------------------------------------------------------------------------------------------

    cdef int _say(self, Bytes p, Py_ssize_t size, str whole) except -1:
        cdef Py_ssize_t before = 0
        cdef Py_ssize_t after = size
        if size == 0:
            return 0
        if self._blank:
            while before < size and CLASS[p[before]] & SPACE:
                before += 1
            if self._touching and self._trims:
                if self._spoken:
                    self._right = stays(self._right, text_of(p, before))
                if before == size:
                    return 0
            else:
                if before == size:
                    return self._wait(p, size)
                before = 0
            self._begin_text()
        if self._trims:
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
        self._fresh = self._fresh and self._stays_fresh(p, size)
        return 0

    cdef bint _stays_fresh(self, Bytes p, Py_ssize_t size) noexcept:
        cdef Py_ssize_t at = 0
        while at < size and CLASS[p[at]] & SPACE:
            at += 1
        return self._prose != TEXT or at == size

    cdef int _say_text(self, str text) except -1:
        cdef Py_ssize_t size
        cdef Bytes p
        text = valid_text(text)
        p = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
        return self._say(p, size, text)

    cdef int _begin_text(self) except -1:
        cdef str joint
        self._blank = False
        if self._prose == TEXT:
            joint = stays(self._left, self._right) or self._middle if self._trim_edges else self._left
            if joint:
                self._said.append(joint)
                self._left = self._middle = self._right = ""
            self._spoken = True
        return 0

    cdef int _leave_out(self) except -1:
        cdef str space = self._pending.decode()
        if not self._trim_edges:
            self._left += space
            if len(self._left) > self._limit:
                self._begin_text()
        elif not self._blank:
            self._left = stays("", space)
        else:
            self._middle = stays(self._middle, self._right)
            self._right = ""
        return 0

    cdef int _wait(self, Bytes p, Py_ssize_t size) except -1:
        if self._spilled:
            self._said.append(text_of(p, size))
            return 0
        append(self._pending, p, size)
        if PyByteArray_GET_SIZE(self._pending) > self._limit:
            if self._blank:
                self._begin_text()
            self._give_back()
            self._spilled = True
        return 0

    cdef inline int _give_back(self) except -1:
        self._spilled = False
        if PyByteArray_GET_SIZE(self._pending) > 0:
            self._said.append(self._pending.decode())
            self._pending.clear()
        return 0

    cdef int _flush(self) except -1:
        cdef list said = self._said
        if not said:
            return 0
        if self._open is None:
            self._open = self._number()
            kind = TEXT_KIND if self._prose == TEXT else REASONING_KIND
            self._out.append(Open(self._open, kind, choice=self._choice))
        self._out.append(new_delta(self._open, said[0] if len(said) == 1 else "".join(said)))
        said.clear()
        return 0

    cdef int _close(self, str status="complete") except -1:
        self._flush()
        if self._open is not None:
            self._out.append(Close(self._open, status))
            self._open = None
        return 0

    cdef int _edge(self) except -1:
        if self._prose == TEXT:
            self._leave_out()
        self._pending.clear()
        self._close()
        self._blank = self._touching = self._line_start = self._margin = True
        self._after = self._spilled = False
        if self._quotes and self._prose == TEXT:
            end_line(&self._quoting)
        return 0

    cdef object _number(self):
        number = self._next_block
        self._next_block += 1
        return number

    # --- blocks: see `BlockScanner` ---------------------------------------------------------------------------------

    cdef Py_ssize_t _open_block(self, _Opener opener, Py_ssize_t at) except -1:
        raise NotImplementedError

    cdef Py_ssize_t _read_block(self, Py_ssize_t pos) except -1:
        raise NotImplementedError

    cdef Py_ssize_t _end(self, bint truncated) except -1:
        raise NotImplementedError


cdef inline str stays(str kept, str space):
    """What stays of whitespace: a line end, else a blank; `kept` stays of what stood before it."""
    if not space:
        return kept
    return "\n" if "\n" in space else kept or " "
