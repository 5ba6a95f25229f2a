# Text outside blocks: part of `_fastparse.pyx`, the twin of `_pyprose.py`.

cdef enum:
    NONE
    ANSWER
    LITERAL

# Whether a marker counts at its position.
cdef enum:
    NO
    YES
    LATER


cdef inline bint is_margin(Bytes p, Py_ssize_t pos, Py_ssize_t at, bint margin) noexcept nogil:
    """Returns True if only blanks precede `at` in its line. `margin` says so for the position `pos`."""
    while at > pos and (p[at - 1] == c" " or p[at - 1] == c"\t"):
        at -= 1
    return margin if at == pos else p[at - 1] == c"\n"


cdef inline int read_line(Bytes p, Py_ssize_t pos, Py_ssize_t at, int begins) noexcept nogil:
    """Returns what the line with `at` begins with, before it; `begins` says so for `pos`."""
    cdef Py_ssize_t line = at
    while line > pos and p[line - 1] != c"\n":
        line -= 1
    if line > pos:
        begins = octets.BLANK
    while line < at and begins < octets.PROSE_LINE:
        begins = octets.begins_with(begins, p[line])
        line += 1
    return begins


@cython.final
cdef class Prose:
    cdef Buffer _buffer
    cdef Output _output
    cdef object _policy
    cdef _Plan plan
    cdef FormOpener opened
    cdef bytes held
    cdef readonly int state, around
    cdef public Py_ssize_t quiet, settled
    cdef readonly Py_ssize_t size, lead
    cdef Py_ssize_t muted, tag
    cdef public bint again
    cdef bint final
    cdef FormOpener _loose
    cdef int _plain_firsts, _first_count
    cdef unsigned char _firsts[FIRSTS]
    cdef Py_ssize_t _ahead[FIRSTS]
    cdef long long _turn
    cdef bint _opens, _quotes, _lines, _margin, _strings
    cdef unsigned char _breaks, _places, _begins
    cdef unsigned char _last
    cdef tuple _markers, _taught, _words
    cdef int _tags, _refused, _line
    cdef Quoting _quoting
    cdef Py_ssize_t _quoted

    def __cinit__(self, Buffer buffer, Output output, policy, _Plan found, bint preopened):
        self._buffer = buffer
        self._output = output
        self._policy = policy
        self._quoting = Quoting()
        self.held = b""
        self._margin = True
        self._last = c"\n"
        self._set_line(octets.BLANK)
        self._refused = NONE
        self.read_as(found)
        self._enter(REASONING if preopened else TEXT)
        output.begin(self.state)

    cdef int read_as(self, _Plan found) except -1:
        self.plan = found
        self._quotes = PyBytes_GET_SIZE(found.firsts) > 0
        self._opens = found.answer is not None or found.printed is not None or found.loose is not None
        self._plain_firsts = PyBytes_GET_SIZE(found.firsts)
        return self._look_for(found.firsts if found.loose is None else found.firsts + b"\n")

    cdef int _look_for(self, bytes firsts) except -1:
        cdef int index
        self._first_count = PyBytes_GET_SIZE(firsts)
        for index in range(self._first_count):
            self._firsts[index] = bytes_at(firsts)[index]
        self._turn = -1
        return 0

    cdef int enter_again(self) except -1:
        return self._enter(self.state)

    cdef int _enter(self, int state) except -1:
        self.state = state
        self._markers = self.plan.text if state == TEXT else self.plan.inside[self._tags]
        self._loose = self.plan.loose if state == TEXT else None
        self._lines = self._loose is not None and self._loose.at_lines
        self._places = BEGINS | LINE_END if self._lines else BEGINS
        self._taught = self.plan.taught if state == TEXT or self.plan.calls_inside else ()
        return self._output.enter(state)

    # --- plain text ---------------------------------------------------------------------------------------------------

    cdef inline bint is_plain(self, Bytes p, Py_ssize_t size) except -1:
        cdef Py_ssize_t at
        cdef unsigned char *marks
        cdef unsigned char found = 0
        if self._opens and self._output.fresh:
            return False
        if size >= BRIEF:
            return self._is_plain(p, size)
        marks = self.plan.marks
        for at in range(size):
            found |= marks[p[at]]
        self._strings = found & QUOTES
        self._breaks = (found & LINE_END) | self._begins
        if found & BEGINS:
            return False
        if not self._lines or not (self._margin or found & LINE_END):
            return True
        return not self._begins_line(p, size)

    cdef bint _is_plain(self, Bytes p, Py_ssize_t size) except -1:
        # Apart from `is_plain`, which the compiler else does not put into `feed`.
        cdef int index
        for index in range(self._plain_firsts):
            if memchr(p, self._firsts[index], size) != NULL:
                return False
        self._strings = memchr(p, c'"', size) != NULL or memchr(p, c"~", size) != NULL
        self._breaks = True
        return not self._lines or not self._begins_line(p, size)

    cdef bint _begins_line(self, Bytes p, Py_ssize_t size) except -1:
        cdef Bytes end = p + size
        if self._words is None:
            self._learn_words()
        if not self._margin:
            p = <Bytes>memchr(p, c"\n", size)
            if p == NULL:
                return False
            p += 1
        while True:
            while p < end and (p[0] == c" " or p[0] == c"\t"):
                p += 1
            if p < end and self._begins_word(p[0]) and self._word_at(p, end - p):
                return True
            p = <Bytes>memchr(p, c"\n", end - p)
            if p == NULL:
                return False
            p += 1

    cdef int _word_at(self, Bytes p, Py_ssize_t size) except -1:
        # 2: a word is there; 1: the end of the text cuts one off.
        cdef bytes word
        cdef Py_ssize_t length
        cdef int found = 0
        for word in <tuple>PyTuple_GET_ITEM(self._words, p[0]):
            length = PyBytes_GET_SIZE(word)
            if memcmp(p, bytes_at(word), min(length, size)) == 0:
                if size >= length:
                    return 2
                found = 1
        return found

    cdef int _learn_words(self) except -1:
        self._words = loose_words(self._policy.callable_names)
        return 0

    cdef inline bint _begins_word(self, unsigned char byte) noexcept:
        return PyTuple_GET_SIZE(<tuple>PyTuple_GET_ITEM(self._words, byte)) > 0

    cdef inline void pass_plain(self, Bytes p, Py_ssize_t size) noexcept:
        if self._quotes and (self._strings or self._quoting.active):
            self._quoting.read(p, 0, size, self._line)
        self._pass_line(p, size)

    cpdef int pass_raw(self, bytes raw) except -1:
        cdef Bytes p = bytes_at(raw)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(raw)
        self._quoting.read(p, 0, size, self._line)
        self._breaks = True
        self._pass_line(p, size)
        return 0

    cdef inline void _pass_line(self, Bytes p, Py_ssize_t size) noexcept:
        cdef unsigned char last = p[size - 1]
        self.again = False
        self._last = last
        if self._breaks:
            self._set_line(read_line(p, 0, size, self._line))
        self._margin = is_margin(p, 0, size, self._margin) if last <= c" " else False

    cdef inline void _set_line(self, int begins) noexcept:
        """Sets what the line begins with; `_begins`: the next byte may still change that."""
        self._line = begins
        self._begins = begins < octets.PROSE_LINE

    # --- blocks and tags ----------------------------------------------------------------------------------------------

    cpdef int edge(self) except -1:
        self._output.edge()
        self._margin = True
        self._set_line(octets.BLANK)
        self._last = c"\n"
        self._quoting.end_line()
        return 0

    cpdef void mute(self, Py_ssize_t upto) noexcept:
        self.muted = max(self.muted, upto)
        self.quiet = max(self.quiet, upto)
        self.settled = max(self.settled, upto)

    cpdef int refuse(self, bytes opener) except -1:
        self._refused = LITERAL if PyBytes_GET_SIZE(opener) else ANSWER
        return 0

    cdef inline int end_delta(self, Py_ssize_t read_in_block) except -1:
        if self.quiet == 0 and self.settled == 0 and self.muted == 0:
            return 0
        if read_in_block >= 0:
            self.quiet = max(0, self.quiet - read_in_block)
            self.settled = max(0, self.settled - read_in_block)
            self.muted = max(0, self.muted - read_in_block)
        elif PyBytes_GET_SIZE(self.held) == 0:
            self.quiet = self.settled = self.muted = 0
        return 0

    # --- reading ------------------------------------------------------------------------------------------------------

    cdef Py_ssize_t read(self, Py_ssize_t pos) except -1:
        cdef Bytes p = self._buffer.data
        cdef Py_ssize_t size = self._buffer.size
        cdef Py_ssize_t at = pos
        cdef bint cut = False
        cdef bint loose
        cdef _Marker marker
        self.opened = None
        self.tag = 0
        self._quoted = pos
        if self._opens and self._output.fresh and self.state == TEXT:
            while at < size and CLASS[p[at]] & SPACE:
                at += 1
            if at < size:
                if not self._refused and self.plan.answer is not None and self.plan.begins[p[at]]:
                    self._move(pos, at)
                    return self._open(self.plan.answer, at)
                if self.plan.printed is not None:
                    marker = self._marker_at(pos, at, &cut)
                    if cut:
                        return self._hold(pos, at)
                    if marker is None and self._may_recognise(pos, at):
                        self._move(pos, at)
                        return self._open(self.plan.printed, at)
            at = pos
        while True:
            at = self._next_place(pos, at)
            if at >= size:
                break
            marker = self._marker_at(pos, at, &cut)
            loose = marker is None and not cut and self._loose is not None and self._loose_at(pos, at, &cut)
            if cut:
                return self._hold(pos, at)
            if marker is not None:
                self._buffer.steps += at + marker.size - pos
                self._move(pos, at)
                return self._found(marker, at)
            if loose:
                self._buffer.steps += at - pos
                self._move(pos, at)
                return self._open(self._loose, at)
            at += 1
        self._buffer.steps += size - pos
        self._move(pos, size)
        return size

    cdef Py_ssize_t _next_place(self, Py_ssize_t pos, Py_ssize_t at) except -1:
        cdef Bytes p = self._buffer.data
        cdef Py_ssize_t line = at
        if self._lines and (self._margin if at == pos else p[at - 1] == c"\n"):
            if self._words is None:
                self._learn_words()
            while line < self._buffer.size and (p[line] == c" " or p[line] == c"\t"):
                line += 1
            if line < self._buffer.size and self._begins_word(p[line]):
                return line
        if self._buffer.size - at < BRIEF:
            while at < self._buffer.size and not self.plan.marks[p[at]] & self._places:
                at += 1
            return at
        return self._next_first(at)

    cdef Py_ssize_t _next_first(self, Py_ssize_t pos) noexcept:
        cdef Bytes p = self._buffer.data
        cdef Py_ssize_t size = self._buffer.size
        cdef Py_ssize_t nearest = size
        cdef Py_ssize_t at
        cdef int index
        if self._turn != self._buffer.turn:
            self._turn = self._buffer.turn
            for index in range(self._first_count):
                self._ahead[index] = -1
        for index in range(self._first_count):
            at = self._ahead[index]
            if at < pos:
                at = octets.find(p, self._firsts[index], pos, size)
                self._ahead[index] = at
            if at < nearest:
                nearest = at
        return nearest

    cdef bint _loose_at(self, Py_ssize_t pos, Py_ssize_t at, bint *cut) except -1:
        cdef Bytes p = self._buffer.data + at
        cdef Py_ssize_t size = self._buffer.size - at
        cdef int found
        if self._words is None:
            self._learn_words()
        if at < self.settled or not self._begins_word(p[0]):
            return False
        if not (self.again and at == pos) and not (
            self._lines and is_margin(self._buffer.data, pos, at, self._margin)
        ):
            return False
        if self._is_quoted(pos, at):
            return False
        found = self._word_at(p, size)
        cut[0] = found == 1 and not self.final
        return found == 2

    cpdef bint may_be_loose(self, Py_ssize_t at) except -1:
        if self._loose is None or at < self.settled:
            return False
        self._quoted = at
        return not self._is_quoted(at, at)

    cpdef bint follows_words(self):
        return not self._margin

    cdef Py_ssize_t _found(self, _Marker marker, Py_ssize_t at) except -1:
        if marker.opens is not None:
            return self._open(marker.opens, at)
        self.edge()
        self._quoting = Quoting()
        if marker.reasoning >= 0:
            self._tags = marker.reasoning
            self._enter(REASONING)
        else:
            self._enter(TEXT)
        self.tag = marker.size
        return at + self.tag

    cdef inline Py_ssize_t _open(self, FormOpener opener, Py_ssize_t at) except -1:
        self._refused = NONE
        self.opened = opener
        return at

    cdef _Marker _marker_at(self, Py_ssize_t pos, Py_ssize_t at, bint *cut):
        cdef Bytes p = self._buffer.data + at
        cdef Py_ssize_t size = self._buffer.size - at
        cdef bint refused = self._refused == LITERAL and at == pos
        cdef _Marker marker
        cdef int counts
        self.around = self.lead = 0
        if p[0] == TICK and self._taught:
            marker = self._fenced_at(pos, at, cut)
            cut[0] = cut[0] and not self.final
            if marker is not None or cut[0]:
                return marker
        for marker in <tuple>self._markers[p[0]]:
            if refused and not marker.untaught:
                continue
            if memcmp(p, marker.p, min(size, marker.size)) != 0:
                continue
            if marker.anchor != ANYWHERE and not self._anchored(marker, pos, at):
                continue
            if size >= marker.size:
                counts = self._counts(marker, pos, at)
                if counts == YES:
                    return marker
                if counts == LATER:
                    cut[0] = True
                    return None
            elif not self.final:
                cut[0] = True
                return None
        return None

    cdef int _counts(self, _Marker marker, Py_ssize_t pos, Py_ssize_t at) except -1:
        if marker.opens is not None and PyBytes_GET_SIZE(marker.opens.literal) == 0:
            return YES if self._may_recognise(pos, at) else NO
        if marker.untaught and not self._may_recognise(pos, at):
            return NO
        self._quote(pos, at)
        if marker.reasoning >= 0:
            return NO if self._quoting.fence else YES
        if at < self.muted:
            return NO
        if marker.opens is None:
            return self._ends_reasoning(at + marker.size)
        if self._line == octets.CITED:
            return NO
        if self._quoting.fence:
            if marker.fence:
                return (
                    YES if self._quoting.fence <= PyBytes_GET_SIZE(FENCE) and self._quoting.fence_mark == TICK else NO
                )
            self.around = IN_FENCE if is_margin(self._buffer.data, pos, at, self._margin) else 0
            return YES if self.around else NO
        if self._quoting.span:
            self.around = IN_CODE
            self.size = self._quoting.span
        else:
            self._quoted_by(self._last if at == pos else self._buffer.data[at - 1])
        return YES

    cdef inline void _quoted_by(self, unsigned char last) noexcept:
        self.size = 1
        if self._quoting.string or last == c'"':
            self.around = IN_STRING
        elif LAST_OF_MARKS[last]:
            self.around = IN_MARKS

    cdef int _ends_reasoning(self, Py_ssize_t behind) except -1:
        cdef Py_ssize_t end = min(self._buffer.size, behind + WORD_BYTES)
        cdef Py_ssize_t looked
        if self._quoting.fence:
            return NO
        if not self._quoting.span:
            return YES
        code = Surroundings(IN_CODE, self._quoting.span, ())
        looked = code.take(<bytes>self._buffer.data[behind:end])
        found = code.found
        if found == MORE_BEHIND:
            if end - behind < WORD_BYTES and not self.final:
                return LATER
            found = code.end()
        if found == IS_CALL:
            return YES
        self.mute(behind + looked)
        return NO

    cdef _Marker _fenced_at(self, Py_ssize_t pos, Py_ssize_t at, bint *cut):
        cdef Bytes p = self._buffer.data
        cdef Py_ssize_t size = self._buffer.size
        cdef Py_ssize_t end = min(size, at + WORD_BYTES)
        cdef Py_ssize_t behind = at
        cdef Py_ssize_t behind_line, first
        cdef bint near = size < at + WORD_BYTES
        cdef _Marker marker
        if at < self.muted or not self._may_fence(pos, at):
            return None
        self._quote(pos, at)
        if self._quoting.quotes():
            return None
        while behind < end and p[behind] == TICK:
            behind += 1
        if behind == end:
            cut[0] = near
            return None
        if behind - at < PyBytes_GET_SIZE(FENCE):
            return None
        behind_line = behind_info(<bytes>self._buffer.data[behind:end])
        first = behind + behind_line
        if behind_line < 0 or first == end:
            cut[0] = near and behind_line >= 0
            return None
        for marker in self._taught:
            if marker.opens.frames or marker.p[0] == TICK or memcmp(p + first, marker.p, min(size - first, marker.size)) != 0:
                continue
            if size - first < marker.size:
                cut[0] = True
                return None
            self.around = ALONE
            self.size = behind - at
            self.lead = first - at
            return marker
        return None

    cdef bint _anchored(self, _Marker marker, Py_ssize_t pos, Py_ssize_t at) noexcept:
        cdef Bytes p = self._buffer.data
        if marker.anchor == LINE:
            return (self._last if at == pos else p[at - 1]) == c"\n"
        if marker.anchor == MARGIN:
            return is_margin(p, pos, at, self._margin) if p[at] != TICK else self._may_fence(pos, at)
        if marker.anchor == START:
            if (self._last if at == pos else p[at - 1]) == c"\n":
                return True
            if not self._output.starts(at - pos):
                return False
        elif not self._output.touches(at - pos):
            return False
        while pos < at and CLASS[p[pos]] & SPACE:
            pos += 1
        return pos == at

    cdef bint _may_fence(self, Py_ssize_t pos, Py_ssize_t at) noexcept:
        self._quote_up_to(pos, at)
        return self._line <= octets.ITEM

    cdef bint _may_recognise(self, Py_ssize_t pos, Py_ssize_t at) noexcept:
        return at >= self.quiet and not self._is_quoted(pos, at)

    cdef bint _is_quoted(self, Py_ssize_t pos, Py_ssize_t at) noexcept:
        self._quote(pos, at)
        return self._quoting.quotes() or self._line == octets.CITED

    cdef void _quote(self, Py_ssize_t pos, Py_ssize_t at) noexcept:
        """Reads quoting up to `at`."""
        cdef Bytes p = self._buffer.data
        self._quote_up_to(pos, at)
        if p[at] != TICK:
            self._quoting.end_run(p[at])

    cdef inline void _quote_up_to(self, Py_ssize_t pos, Py_ssize_t at) noexcept:
        cdef Bytes p = self._buffer.data
        if at > self._quoted:
            self._quoting.read(p, self._quoted, at, self._line)
            self._set_line(read_line(p, self._quoted, at, self._line))
            self._quoted = at

    cdef Py_ssize_t _hold(self, Py_ssize_t pos, Py_ssize_t at) except -1:
        cdef Py_ssize_t size = self._buffer.size
        self._buffer.steps += size - pos
        self.held = <bytes>self._buffer.data[at:size]
        self._move(pos, at)
        self.quiet = max(0, self.quiet - at)
        self.settled = max(0, self.settled - at)
        self.muted = max(0, self.muted - at)
        return size

    cdef int _move(self, Py_ssize_t pos, Py_ssize_t at) except -1:
        cdef object owner
        if at == pos:
            return 0
        self._refused = NONE
        self.again = False
        if self._quotes:
            self._quote_up_to(pos, at)
            self._margin = is_margin(self._buffer.data, pos, at, self._margin)
        self._last = self._buffer.data[at - 1]
        owner = self._buffer.owner if pos == 0 and at == self._buffer.size and type(self._buffer.owner) is str else None
        return self._output.say(self._buffer.data + pos, at - pos, owner)
