# Reading a block: part of `_fastparse.pyx`, the twin of `_pyblock.py`.

cdef Py_ssize_t TO_CLOSER = -1
cdef Py_ssize_t FROM_ANYWHERE = -(1 << 62)
cdef frozenset CONTENT = frozenset(("value", "arguments", "call", "calls"))


cdef class BlockScanner(ProseScanner):
    cdef object _judge
    cdef bytes _opener, _closer, _overlap
    cdef _Shape _shape
    cdef _Stop _stop
    cdef list _pieces
    cdef int _kind, _then
    cdef str _field
    cdef Py_ssize_t _from, _mark, _gap, _beyond, _word_at
    cdef int _doubt
    cdef _Step _proving
    cdef int _word_size
    cdef unsigned char _word[WORDS]
    cdef bint _may_end, _fence, _fenced, _worded, _ended
    cdef bytes _key
    cdef ObjectReader _json
    cdef CodeReader _code
    cdef BracesReader _braces

    cdef bint _untaught, _inner
    cdef bint _followed
    cdef object _live

    def __init__(
        self,
        grammar,
        judge,
        Py_ssize_t block_bytes,
        bint trim_edges,
        tuple reasoning,
        bint preopened,
        bint scan_calls,
        choice,
        long long first_block,
    ):
        ProseScanner.__init__(
            self, grammar, block_bytes, trim_edges, reasoning, preopened, scan_calls, choice, first_block
        )
        self._judge = judge
        self._opener = self._closer = self._key = self._overlap = b""
        self._pieces = []
        self._kind = NOTHING
        self._field = ""
        self._then = END
        self._from = self._mark = self._gap = self._word_at = 0
        self._word_size = 0
        self._beyond = END
        self._doubt = SURE
        self._may_end = self._fence = self._fenced = self._worded = self._ended = False
        self._untaught = self._inner = False
        self._followed = False
        self._live = None

    cdef Py_ssize_t _open_block(self, _Opener opener, Py_ssize_t at) except -1:
        self._state = LEAD
        self._start = at
        self._opener = opener.literal
        self._shape = opener.shape
        self._closer = self._shape.closer
        self._fence = opener.fence
        self._fenced = False
        self._pieces.clear()
        self._may_end = False
        self._doubt = SURE
        self._proving = None
        self._refused = NONE
        self._untaught = opener.untaught
        self._inner = opener.inner
        self._followed = False
        if not self._untaught:
            self._fresh = self._fresh and self._quotes
            if opener.inner:
                self._right = ""
            if self._live is not None:
                self._live.begin_block(self._pieces)
        return self._go_to(opener.first, at + PyBytes_GET_SIZE(self._opener))

    cdef Py_ssize_t _read_block(self, Py_ssize_t pos) except -1:
        cdef Py_ssize_t end = self._start + self._limit - PyByteArray_GET_SIZE(self._raw)
        cdef int state = self._state
        if end < self._size:
            while self._p[end] & 0xC0 == 0x80:
                end -= 1
            if pos >= end:
                return self._oversize(end)
        else:
            end = self._size
        if state == LEAD or state == TAIL:
            return self._read_place(pos, end) if self._proving is None else self._read_tag(pos, end)
        if state == KEY:
            return self._read_key(pos, end)
        if state == BODY:
            return self._read_field(pos, end)
        return self._read_broken(pos, end) if state == BROKEN else self._read_held(pos, end)

    cdef Py_ssize_t _go_to(self, _Stop stop, Py_ssize_t pos) except -1:
        self._stop = stop
        self._word_size = 0
        self._gap = self._offset(pos)
        if stop.free and self._doubt != UNLIKELY:
            self._be_sure()
            self._may_end = True
            self._mark = self._gap
            if not stop.steps:
                return self._closed(pos, self._mark)
        return pos

    cdef Py_ssize_t _read_place(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Bytes p = self._p
        cdef Py_ssize_t at
        cdef unsigned char byte
        cdef bint fits, may_fence
        cdef _Step step
        cdef bytes opener
        for at in range(pos, end):
            byte = p[at]
            if self._word_size == 0:
                if CLASS[byte] & SPACE or (self._fenced and self._state == LEAD and CLASS[byte] & LETTER):
                    continue
                self._word_at = self._offset(at)
            self._word[self._word_size] = byte
            self._word_size += 1
            fits = False
            for step in self._stop.steps:
                if step.size >= self._word_size and memcmp(step.p, self._word, self._word_size) == 0:
                    if step.size == self._word_size:
                        self._steps += at + 1 - pos
                        return self._take(step, at + 1)
                    fits = True
            if not (fits or self._may_end) and self._has_content():
                for opener in self._stop.next:
                    if (
                        PyBytes_GET_SIZE(opener) >= self._word_size
                        and memcmp(bytes_at(opener), self._word, self._word_size) == 0
                    ):
                        if PyBytes_GET_SIZE(opener) == self._word_size:
                            self._steps += at + 1 - pos
                            return self._next_begins()
                        fits = True
            may_fence = self._fence and not self._fenced if self._state == LEAD else self._fenced
            if may_fence and self._word_size <= 3 and memcmp(bytes_at(FENCE), self._word, self._word_size) == 0:
                fits = True
                if self._word_size == 3:
                    self._fenced = not self._fenced
                    self._word_size = 0
            if not fits:
                self._steps += at - pos
                return self._otherwise(at)
        self._steps += end - pos
        return end

    cdef Py_ssize_t _otherwise(self, Py_ssize_t at) except -1:
        cdef _Stop stop = self._stop
        cdef _Step step = stop.otherwise
        if self._may_end:
            return self._closed(self._back_to(self._mark), self._mark)
        if step is not None and not (stop.free and self._doubt == UNLIKELY):
            if step.read == PROSE:
                return self._text_begins(step, at)
            return self._take(step, self._back_to(self._word_at))
        if self._doubt:
            return self._read_on(at)
        at = self._start + self._word_at - PyByteArray_GET_SIZE(self._raw)
        return self._break(at) if self._pieces else self._mention(at)

    cdef Py_ssize_t _text_begins(self, _Step step, Py_ssize_t at) except -1:
        cdef Py_ssize_t start = self._gap
        at = self._take(step, at)
        self._overlap = self._span(start, self._from)
        self._from = start
        return at

    cdef bint _has_content(self) except -1:
        return len(self._pieces) > 0 and self._pieces[len(self._pieces) - 1][0] in CONTENT

    cdef Py_ssize_t _next_begins(self) except -1:
        cdef Py_ssize_t upto = self._back_to(self._word_at)
        if self._stop.ends or self._stop.free:
            return self._closed(upto, self._word_at)
        upto += self._gather()
        return self._judged(upto, self._word_at, False, False)

    cdef inline int _be_sure(self) except -1:
        if self._doubt:
            self._doubt = SURE
            if self._followed:
                self._pass_value(NULL, 0, True)
        return 0

    cdef Py_ssize_t _read_on(self, Py_ssize_t at) except -1:
        cdef Py_ssize_t ended, again
        cdef bytes more
        self._doubt = SURE
        self._state = BODY
        again = max(self._gap, self._word_at - 1)
        if self._field:
            _, _, ended = self._pieces.pop()
            if self._followed:
                more = self._span(ended, again)
                self._pass_value(bytes_at(more), PyBytes_GET_SIZE(more), False)
        self._overlap = self._span(again, self._offset(at))
        self._stop = self._shape.stops[self._then]
        return at

    cdef Py_ssize_t _read_tag(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef _Step step = self._proving
        cdef Py_ssize_t at
        cdef unsigned char byte
        cdef bint inside
        for at in range(pos, end):
            byte = self._p[at]
            inside = self._word_size == 0 or self._word[self._word_size - 1] != c">"
            if inside and not CLASS[byte] & SPACE and byte != c"<" and self._word_size < WORD_BYTES:
                self._word[self._word_size] = byte
                self._word_size += 1
                continue
            self._steps += at - pos
            self._proving = None
            if inside or byte != c"\n":
                self._gap = self._word_at = self._offset(at)
                return self._read_on(at)
            self._be_sure()
            self._take(step, at)
            self._from -= self._word_size
            self._overlap = PyBytes_FromStringAndSize(<const char *>self._word, self._word_size)
            return at
        self._steps += end - pos
        return end

    cdef Py_ssize_t _back_to(self, Py_ssize_t offset) except -1:
        cdef bytes again
        if offset < PyByteArray_GET_SIZE(self._raw):
            again = bytes(self._raw[offset:]) + self._bytes(0, self._size)
            PyByteArray_Resize(self._raw, offset)
            self._begin(again)
        return self._start + offset - PyByteArray_GET_SIZE(self._raw)

    cdef Py_ssize_t _take(self, _Step step, Py_ssize_t pos) except -1:
        if self._doubt and (step.read != NOTHING or step.then == END):
            if self._doubt == UNLIKELY:
                return self._doubt_more(step, pos)
            self._be_sure()
        self._shape = step.shape
        self._closer = step.shape.closer
        pos += step.taken - step.size
        if step.read == NOTHING:
            if step.then == END:
                return self._closed(pos, self._offset(pos) - step.taken)
            self._state = TAIL if self._pieces else LEAD
            return self._go_to(self._shape.stops[step.then], pos)
        self._state = BODY
        self._may_end = False
        self._kind = step.read
        self._field = step.field
        self._then = step.then
        self._from = self._offset(pos)
        if step.read == JSON:
            begin(&self._json)
            if step.shape.heads and not self._pieces:
                self._state = KEY
                self._key = b""
        elif step.read == PRINTED:
            self._state = KEY
            self._key = b""
        elif step.read == CODE:
            begin_code(&self._code, step.size > 0)
        elif step.read == BRACES:
            begin_braces(&self._braces, bytes_at(step.shape.quote), PyBytes_GET_SIZE(step.shape.quote))
        else:
            self._stop = self._shape.stops[step.then]
            self._overlap = b""
            self._worded = self._ended = False
        if self._live is not None and not self._untaught:
            self._followed = self._live.begin_field(step.shape.shape, step.field, step.read, self._from)
        return pos

    cdef Py_ssize_t _doubt_more(self, _Step step, Py_ssize_t pos) except -1:
        self._state = TAIL
        if step.read == NOTHING:
            return self._go_to(self._shape.stops[len(self._shape.stops) - 1], pos)
        self._proving = step
        self._word_size = 0
        return pos

    cdef Py_ssize_t _read_key(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Bytes p = self._p
        cdef Py_ssize_t at, size
        cdef bytes head, key
        cdef bint fits, listed
        cdef int begun
        for at in range(pos, end):
            size = PyBytes_GET_SIZE(self._key)
            if CLASS[p[at]] & SPACE and (self._key == b"[" or self._key == b"{" or self._key == b"[{"):
                continue
            self._key += PyBytes_FromStringAndSize(<const char *>p + at, 1)
            if self._untaught:
                begun = self._begins_printed()
                if begun < 0:
                    continue
                self._steps += at + 1 - pos
                if not begun:
                    return self._mention(at)
                self._state = BODY
                return at + 1
            listed = bytes_at(self._key)[0] == c"["
            key = self._key[1:] if listed else self._key
            fits = listed and size == 0
            for head in self._shape.heads:
                if key == head:
                    self._steps += at + 1 - pos
                    begin_after_first_key(&self._json, listed)
                    self._state = BODY
                    if self._followed:
                        self._pass_field(self._span(self._from, self._offset(at + 1)))
                    return at + 1
                fits = fits or head.startswith(key)
            if not fits:
                self._steps += at + 1 - pos
                return self._mention(at)
        self._steps += end - pos
        return end

    cdef int _begins_printed(self) except -2:
        """Whether an untaught call begins with `_key`; -1 as long as it may."""
        cdef bint listed = bytes_at(self._key)[0] == c"["
        cdef bytes key = self._key[1:] if listed else self._key
        cdef bytes head
        heads = printed_heads(self._shape.shape, self._judge.callable_names if self._kind == PRINTED else ())
        if key not in heads:
            for head in heads:
                if head.startswith(key):
                    return -1
            return False
        if key.startswith(b'{"') and not listed:
            self._kind = JSON
            begin_after_first_key(&self._json, False)
        else:
            self._kind = CODE
            head = self._key.removeprefix(b"await ")
            if bytes_at(head)[0] == c"{":
                begin_code_object(&self._code)
                read_code(&self._code, bytes_at(head), 1, PyBytes_GET_SIZE(head))
            else:
                begin_code(&self._code, listed)
                read_code(&self._code, bytes_at(head), 0, PyBytes_GET_SIZE(head))
        return True

    cdef Py_ssize_t _read_field(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Py_ssize_t after, ended
        cdef int mode
        if self._kind == JSON:
            after = read_object(&self._json, self._p, pos, end)
            mode = self._json.mode
        elif self._kind == CODE:
            after = read_code(&self._code, self._p, pos, end)
            mode = self._code.mode
        elif self._kind == BRACES:
            after = read_braces(&self._braces, self._p, pos, end)
            mode = self._braces.mode
        elif self._kind == PROSE:
            return self._read_text(pos, end)
        else:
            return self._read_word(pos, end)
        self._steps += after - pos
        if self._followed:
            self._pass_field(self._bytes(pos, after))
        if mode == WHOLE or (mode == WRONG and self._kind == JSON and self._is_printing() and self._p[after] == TICK):
            ended = self._offset(after)
            self._keep(ended)
            if self._then == END:
                return self._closed(after, ended)
            self._state = TAIL
            return self._go_to(self._shape.stops[self._then], after)
        if mode == WRONG:
            if self._kind == CODE and not (self._pieces or self._code.inside):
                return self._mention(after)
            return self._break(after)
        return after

    cdef inline bint _is_printing(self) noexcept:
        return self._untaught and PyBytes_GET_SIZE(self._opener) == 0

    cdef int _keep(self, Py_ssize_t upto) except -1:
        if self._field:
            self._pieces.append((self._field, self._from, upto))
        return 0

    def span(self, Py_ssize_t start, Py_ssize_t stop):
        """What stands at these offsets of the block."""
        return self._span(start, stop)

    cdef bytes _span(self, Py_ssize_t start, Py_ssize_t stop):
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(self._raw)
        if stop <= size:
            return bytes(self._raw[start:stop])
        return bytes(self._raw[start:]) + self._bytes(self._start + max(0, start - size), self._start + stop - size)

    cdef Py_ssize_t _read_text(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef _Stop stop = self._stop
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self._overlap)
        cdef Py_ssize_t at, size
        cdef bytes seam
        cdef Bytes p
        cdef bint cut = False
        cdef _Step step = None
        if before > 0:
            seam = self._overlap + self._bytes(pos, min(end, pos + WORDS))
            p = bytes_at(seam)
            size = PyBytes_GET_SIZE(seam)
            for at in range(before):
                if stop.firsts[p[at]]:
                    step = self._literal_at(p + at, size - at, &cut)
                    if step is not None or cut:
                        return self._text_ended(step, p, at, size - at, pos - before + at, end)
            self._text_ended(None, p, before, 0, pos, end)
        at = pos
        while at < end:
            if stop.firsts[self._p[at]]:
                step = self._literal_at(self._p + at, end - at, &cut)
                if step is not None or cut:
                    break
            at += 1
        return self._text_ended(step, self._p + pos, at - pos, end - at, at, end)

    cdef _Step _literal_at(self, Bytes p, Py_ssize_t size, bint *cut):
        cdef _Step step
        for step in self._stop.steps:
            if size >= step.size:
                if memcmp(p, step.p, step.size) == 0:
                    return step
            elif memcmp(p, step.p, size) == 0:
                cut[0] = True
                return None
        return None

    cdef Py_ssize_t _text_ended(
        self, _Step step, Bytes p, Py_ssize_t size, Py_ssize_t rest, Py_ssize_t at, Py_ssize_t end
    ) except -1:
        self._steps += size
        if step is None:
            if self._followed:
                self._pass_value(p, size, False)
            self._overlap = PyBytes_FromStringAndSize(<const char *>p + size, rest)
            return end
        self._steps += step.size
        if self._kind == PROSE:
            self._doubt = self._doubt_of(step, self._offset(at))
        self._keep(self._offset(at))
        if self._followed:
            self._pass_value(p, size, not self._doubt)
        return self._take(step, self._back_to(self._offset(at) + step.size))

    cdef int _doubt_of(self, _Step step, Py_ssize_t at) except -1:
        if not self._shape.framed or self._span(self._from, self._from + 1) != b"\n":
            return LIKELY
        if step.p[0] == c"\n":
            return LIKELY if step.read == NOTHING else UNLIKELY
        return LIKELY if self._span(at - 1, at) == b"\n" else UNLIKELY

    cdef int _pass_field(self, bytes more) except -1:
        self._followed = self._live.pass_field(more)
        return 0

    cdef int _pass_value(self, Bytes p, Py_ssize_t size, bint whole) except -1:
        self._live.pass_value(text_of(p, size) if size else "", whole)
        return 0

    cdef Py_ssize_t _read_word(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef bytes window = self._overlap + self._bytes(pos, min(end, pos + WORD_BYTES + WORDS))
        cdef Bytes p = bytes_at(window)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(window)
        cdef Py_ssize_t shift = pos - PyBytes_GET_SIZE(self._overlap)
        cdef Py_ssize_t at
        cdef bint cut = False
        cdef bint again
        cdef _Step step
        for at in range(size):
            if self._stop.firsts[p[at]]:
                step = self._literal_at(p + at, size - at, &cut)
                if step is not None or cut:
                    return self._text_ended(step, p, at, size - at, shift + at, end)
            again = self._opener_at(p + at, size - at, &cut)
            if cut:
                return self._text_ended(None, p, at, size - at, shift + at, end)
            if again or not self._is_word(p[at]) or self._offset(shift + at) - self._from >= WORD_BYTES:
                self._steps += at
                return self._break(shift + at) if self._pieces else self._mention(shift + at)
        return self._text_ended(None, p, size, 0, end, end)

    cdef bint _opener_at(self, Bytes p, Py_ssize_t size, bint *cut) except -1:
        cdef bytes opener
        cdef Py_ssize_t length
        if not self._untaught:
            length = PyBytes_GET_SIZE(self._opener)
            if length == 0 or memcmp(p, bytes_at(self._opener), min(length, size)) != 0:
                return False
            cut[0] = size < length
            return not cut[0]
        if not self._plan.begins_some[p[0]]:
            return False
        for opener in self._plan.begun:
            length = PyBytes_GET_SIZE(opener)
            if memcmp(p, bytes_at(opener), min(length, size)) == 0:
                if size >= length:
                    cut[0] = False
                    return True
                cut[0] = True
        return False

    cdef bint _is_word(self, unsigned char byte) noexcept:
        if not CLASS[byte] & SPACE:
            if self._ended or (
                self._kind == NAME_ and byte < 0x80 and not CLASS[byte] & NAMED and byte != c":" and byte != c"/"
            ):
                return False
            self._worded = True
        elif byte == c"\n" or self._kind == NAME_:
            self._ended = self._worded
        return True

    cdef Py_ssize_t _read_broken(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Py_ssize_t opener_end = -1
        cdef Py_ssize_t upto
        if self._beyond != END:
            opener_end = self._find(
                self._opener, pos, end, self._start + self._beyond - PyByteArray_GET_SIZE(self._raw)
            )
        upto = self._find(self._closer, pos, end if opener_end < 0 else opener_end, FROM_ANYWHERE)
        if upto >= 0:
            self._steps += upto - pos
            return self._given_up(upto)
        if opener_end >= 0:
            self._steps += opener_end - pos
            return self._unfinished(opener_end - PyBytes_GET_SIZE(self._opener) + self._gather(), "end")
        return self._pass(pos, end, max(PyBytes_GET_SIZE(self._opener), PyBytes_GET_SIZE(self._closer)))

    cdef Py_ssize_t _read_held(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Py_ssize_t opener_end = self._find(self._opener, pos, end, FROM_ANYWHERE)
        cdef Py_ssize_t upto = self._find(self._closer, pos, end if opener_end < 0 else opener_end, FROM_ANYWHERE)
        if upto >= 0:
            self._steps += upto - pos
            return self._given_up(upto)
        if opener_end >= 0:
            self._steps += opener_end - pos
            return self._release(opener_end)
        return self._pass(pos, end, max(PyBytes_GET_SIZE(self._opener), PyBytes_GET_SIZE(self._closer)))

    cdef Py_ssize_t _find(self, bytes literal, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t since) except -2:
        cdef Py_ssize_t length = PyBytes_GET_SIZE(literal)
        cdef Py_ssize_t at, before
        cdef Bytes found
        cdef bytes seam
        if PyBytes_GET_SIZE(self._overlap) > 0:
            seam = self._overlap + self._bytes(pos, min(end, pos + length - 1))
            before = pos - PyBytes_GET_SIZE(self._overlap)
            at = seam.find(literal, max(0, since - before))
            if at >= 0:
                return before + at + length
        pos = max(pos, since)
        found = toolwire_find(self._p + pos, end - pos, bytes_at(literal), length) if pos < end else NULL
        return -1 if found == NULL else found - self._p + length

    cdef bytes _bytes(self, Py_ssize_t pos, Py_ssize_t end):
        return PyBytes_FromStringAndSize(<const char *>self._p + pos, end - pos)

    cdef Py_ssize_t _pass(self, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t longest) except -1:
        cdef bytes seam = self._overlap + self._bytes(max(pos, end - longest + 1), end)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(seam)
        self._steps += end - pos
        self._overlap = seam[size - min(size, longest - 1) :]
        return end

    cdef Py_ssize_t _mention(self, Py_ssize_t at) except -1:
        if self._untaught or not self._judge.strict or self._shape.heads or not self._closer:
            return self._release(at)
        return self._look_again(HELD)

    cdef Py_ssize_t _break(self, Py_ssize_t at) except -1:
        cdef bint whole, named
        if self._state == BODY:
            named = self._kind == NAME_ or self._kind == WORD
        else:
            named = not self._has_content()
        if not self._closer or (self._untaught and named):
            return self._release(at)
        whole = self._state == TAIL and bool(self._opener and self._stop.next) and self._has_content()
        self._beyond = self._word_at if whole else END
        if self._state == BODY:
            self._keep(TO_CLOSER)
        elif self._pieces:  # what was taken for the end of its last field was none
            field, start, _ = self._pieces.pop()
            self._pieces.append((field, start, TO_CLOSER))
        return self._look_again(BROKEN)

    cdef Py_ssize_t _look_again(self, int state) except -1:
        self._gather()
        self._state = state
        self._overlap = b""
        return self._start + PyBytes_GET_SIZE(self._opener)

    cdef Py_ssize_t _release(self, Py_ssize_t at) except -1:
        at += self._gather()
        if self._live is not None and self._live.opened is not None:
            self._settle(AS_TEXT, self._start)
            return self._size
        if self._quotes:
            return self._read_again(at)
        self._state = self._prose
        self._fresh = False
        self._line_start = self._margin = self._opener.endswith(b"\n")
        self._say(bytes_at(self._opener), PyBytes_GET_SIZE(self._opener), None)
        return self._start + PyBytes_GET_SIZE(self._opener)

    cdef Py_ssize_t _read_again(self, Py_ssize_t at) noexcept:
        self._state = self._prose
        if self._untaught:
            self._quiet = max(self._quiet, at, self._start + 1)
        else:
            self._refused = LITERAL if PyBytes_GET_SIZE(self._opener) else ANSWER
        return self._start

    cdef Py_ssize_t _closed(self, Py_ssize_t upto, Py_ssize_t body_end) except -1:
        upto += self._gather()
        if self._pieces:
            return self._judged(upto, body_end, True, False)
        return self._settled(DROPPED, upto)  # framing

    cdef Py_ssize_t _given_up(self, Py_ssize_t upto) except -1:
        upto += self._gather()
        return self._judged(upto, upto - self._start - PyBytes_GET_SIZE(self._closer), True, True)

    cdef Py_ssize_t _judged(self, Py_ssize_t upto, Py_ssize_t body_end, bint closed, bint broken) except -1:
        cdef Bytes raw = self._p + self._start
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self._opener)
        cdef Py_ssize_t start, end
        cdef str body = text_of(raw + size, body_end - size)
        cdef list found
        cdef list pieces
        if self._live is not None and self._live.opened is not None:
            verdict = self._live.judged(
                self._shape.shape, self._bytes(self._start, upto), size, body_end, closed, broken
            )
            return self._settled(verdict, upto)
        pieces = [piece for piece in self._pieces if piece[1] <= body_end and piece[2] <= body_end]
        if self._shape.whole is not None and len(pieces) < 2:
            pieces = [(self._shape.whole, body)]
        else:
            found, pieces = pieces, []
            for field, start, end in found:
                pieces.append((field, text_of(raw + start, (body_end if end == TO_CLOSER else end) - start)))
        return self._settled(self._judge.block(Block(self._shape.shape, body, tuple(pieces), closed, broken)), upto)

    cdef Py_ssize_t _settled(self, verdict, Py_ssize_t upto) except -1:
        if self._untaught:
            if not (verdict.calls or verdict.drop):
                return self._read_again(upto)
            if self._inner:
                self._right = ""
        self._fresh = False
        self._settle(verdict, upto)
        return upto

    cdef Py_ssize_t _oversize(self, Py_ssize_t end) except -1:
        cdef Py_ssize_t start
        cdef Bytes found
        if self._may_end:
            return self._closed(self._back_to(self._mark), self._mark)
        end += self._gather()
        if self._closer and not self._judge.strict:
            start = self._start + PyBytes_GET_SIZE(self._opener)
            found = toolwire_find(self._p + start, end - start, bytes_at(self._closer), PyBytes_GET_SIZE(self._closer))
            if found != NULL:
                return self._given_up(found - self._p + PyBytes_GET_SIZE(self._closer))
        return self._unfinished(end, "oversize")

    cdef Py_ssize_t _unfinished(self, Py_ssize_t end, str why) except -1:
        cdef Py_ssize_t start = self._start + PyBytes_GET_SIZE(self._opener)
        return self._settled(
            self._judge.unfinished(self._shape.shape, text_of(self._p + start, end - start), why), end
        )

    cdef Py_ssize_t _end(self, bint truncated) except -1:
        cdef Py_ssize_t end = self._size
        cdef Py_ssize_t start = PyBytes_GET_SIZE(self._opener)
        cdef Bytes found
        cdef bint named = self._state == BODY and (self._kind == NAME_ or self._kind == WORD) and not self._pieces
        cdef bint resting = self._state == TAIL and self._proving is None
        if (
            self._state == HELD
            or self._state == KEY
            or ((self._state == LEAD or named) and (self._shape.heads or not truncated))
        ):
            return self._release(end)
        if resting and not (truncated and self._doubt):
            if (self._stop.ends and self._word_size == 0) or (self._stop.free and self._doubt == UNLIKELY):
                return self._closed(end, end)
            if self._may_end and not (truncated and self._stop.more):
                return self._otherwise(end)
        if truncated:
            return self._unfinished(end, "truncated")
        if resting and self._stop.final:
            return self._judged(end, self._word_at if self._word_size else end, False, False)
        if self._is_printing() and self._state == BODY and (self._kind == JSON or self._kind == CODE):
            self._keep(TO_CLOSER)  # perhaps no more than a bracket is missing
            return self._judged(end, end, True, True)
        if self._state == BODY and self._kind == JSON and self._json.mode == STRING and self._closer:
            found = toolwire_find(self._p + start, end - start, bytes_at(self._closer), PyBytes_GET_SIZE(self._closer))
            if found != NULL:
                self._keep(TO_CLOSER)
                return self._given_up(found - self._p + PyBytes_GET_SIZE(self._closer))
        return self._unfinished(end, "end")

    # --- what becomes of it: see `CallScanner` ----------------------------------------------------------------------

    cdef int _settle(self, verdict, Py_ssize_t end) except -1:
        raise NotImplementedError
