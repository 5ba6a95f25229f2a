# Reads a block: part of `_fastparse.pyx`, the twin of `_pyblock.py`.

cdef frozenset CONTENT = frozenset(("value", "arguments", "call", "calls"))

# The outcome of a block.
cdef enum:
    OPEN
    WHOLE_BLOCK  # `WHOLE` in the Python twin; here that name is a mode
    FRAMING
    UNFINISHED
    NO_BLOCK  # `NONE` in the Python twin


@cython.final
cdef class BlockReader:
    cdef Buffer _buffer
    cdef object _policy
    cdef FieldReader _fields
    cdef object _closers, _beyond
    cdef Py_ssize_t _limit
    cdef int state, outcome
    cdef bytes opener, closer
    cdef _BlockSyntax syntax
    cdef bint untaught, loose, inner, closed, broken
    cdef list pieces
    cdef Py_ssize_t body_end, head
    cdef int _around
    cdef str why
    cdef _PlanNode _node
    cdef Py_ssize_t _gap, _word_at, _mark
    cdef int _word_size
    cdef unsigned char _word[WORDS]
    cdef int _then, _doubt
    cdef bint _may_end, _fence, _fenced
    cdef _PlanBranch _proving

    def __cinit__(self, Buffer buffer, Output output, policy, live):
        self._buffer = buffer
        self._policy = policy
        self._fields = FieldReader(buffer, output, policy, live)
        self._closers = CloserSearch()
        self.state = LEAD
        self.opener = self.closer = b""
        self.pieces = []
        self.why = "end"
        self._then = END
        self._doubt = SURE

    cdef int read_as(self, _Plan found, Py_ssize_t limit) except -1:
        self._fields.plan = found
        self._limit = limit
        return 0

    cdef Py_ssize_t open(self, _Opener opener, Py_ssize_t at, int around) except -1:
        self.state = LEAD
        self.outcome = OPEN
        self.opener = opener.literal
        self.syntax = opener.syntax
        self.closer = self.syntax.closer
        self.untaught = opener.untaught
        self.loose = opener.loose
        self.inner = opener.inner
        self.head = self._buffer.offset(at)
        self._around = around
        self.pieces.clear()
        self._fence = opener.fence
        self._fenced = False
        self._may_end = False
        self._doubt = SURE
        self._proving = None
        self._fields.begin_block(opener, self.pieces, around != 0)
        return self._go_to(opener.first, at)

    cdef Py_ssize_t read(self, Py_ssize_t pos) except -1:
        cdef Py_ssize_t end = max(pos, self._buffer.position(self._limit))
        cdef int state = self.state
        if end < self._buffer.size:
            while self._buffer.p[end] & 0xC0 == 0x80:
                end -= 1
            if pos >= end:
                return self._oversize(end)
        else:
            end = self._buffer.size
        if state == BODY or state == KEY:
            return self._read_field(pos, end)
        if state == LEAD or state == TAIL:
            return self._read_node(pos, end) if self._proving is None else self._read_tag(pos, end)
        return self._search(pos, end)

    cdef object frames(self, Py_ssize_t upto):
        if self.outcome == FRAMING:
            kind = self.syntax.syntax.framing
            return kind if kind == "head" or self._buffer.offset(upto) == self.head else None
        if self.outcome != WHOLE_BLOCK or not self.pieces:
            return None
        for field, _, _ in self.pieces:
            if field != "said":
                return None
        return "mark"

    cdef Py_ssize_t end(self, bint truncated) except -1:
        cdef FieldReader fields = self._fields
        cdef Py_ssize_t end = self._buffer.size
        cdef Py_ssize_t at
        cdef bint named = self.state == BODY and fields.is_named() and not self.pieces
        cdef bint resting = self.state == TAIL and self._proving is None
        if (
            self.state == HELD
            or self.state == KEY
            or ((self.state == LEAD or named) and (self.syntax.keyed or not truncated))
        ):
            return self._none(end)
        if resting and not (truncated and self._doubt):
            if (self._node.ends and self._word_size == 0) or (self._node.free and self._doubt == UNLIKELY):
                return self._closed(end, end)
            if self._may_end and not (truncated and self._node.more):
                return self._otherwise(end)
        if truncated:
            return self._unfinished(end, "truncated")
        if resting and (self._node.final or (self._has_content() and self._closes())):
            return self._whole(end, self._word_at if self._word_size else end, False, False)
        if (
            self.untaught
            and not self.opener
            and self.state == BODY
            and (fields.kind == JSON or fields.kind == CODE or fields.kind == LOOSE)
        ):
            self._keep(TO_CLOSER)  # perhaps only a bracket is missing
            return self._whole(end, end, True, True)
        if self.state == BODY and fields.is_in_string() and self.closer:
            at = self._buffer.find(self.closer, self.head, end)
            if at >= 0:
                self._keep(TO_CLOSER)
                return self._given_up(at + PyBytes_GET_SIZE(self.closer))
        return self._unfinished(end, "end")

    # --- nodes: between fields ----------------------------------------------------------------------------------------

    cdef Py_ssize_t _go_to(self, _PlanNode node, Py_ssize_t pos) except -1:
        self._node = node
        self._word_size = 0
        self._gap = self._buffer.offset(pos)
        if node.free and self._doubt != UNLIKELY:
            self._be_sure()
            self._may_end = True
            self._mark = self._gap
            if not node.branches:
                return self._closed(pos, self._mark)
        return pos

    cdef Py_ssize_t _read_node(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Bytes p = self._buffer.p
        cdef Py_ssize_t at
        cdef unsigned char byte
        cdef bint fits, may_fence
        cdef _PlanBranch branch
        cdef bytes opener
        for at in range(pos, end):
            byte = p[at]
            if self._word_size == 0:
                if CLASS[byte] & SPACE or (self._fenced and self.state == LEAD and CLASS[byte] & LETTER):
                    continue
                self._word_at = self._buffer.offset(at)
            self._word[self._word_size] = byte
            self._word_size += 1
            fits = False
            for branch in self._node.branches:
                if branch.size >= self._word_size and memcmp(branch.p, self._word, self._word_size) == 0:
                    if branch.size == self._word_size:
                        self._buffer.steps += at + 1 - pos
                        return self._take(branch, at + 1)
                    fits = True
            if not (fits or self._may_end) and self._has_content():
                for opener in self._node.next:
                    if (
                        PyBytes_GET_SIZE(opener) >= self._word_size
                        and memcmp(bytes_at(opener), self._word, self._word_size) == 0
                    ):
                        if PyBytes_GET_SIZE(opener) == self._word_size:
                            self._buffer.steps += at + 1 - pos
                            return self._next_begins()
                        fits = True
            may_fence = self._fence and not self._fenced if self.state == LEAD else self._fenced
            if may_fence and self._word_size <= 3 and memcmp(bytes_at(FENCE), self._word, self._word_size) == 0:
                fits = True
                if self._word_size == 3:
                    self._fenced = not self._fenced
                    self._word_size = 0
            if not fits:
                self._buffer.steps += at - pos
                return self._otherwise(at)
        self._buffer.steps += end - pos
        return end

    cdef Py_ssize_t _otherwise(self, Py_ssize_t at) except -1:
        cdef _PlanNode node = self._node
        cdef _PlanBranch branch = node.otherwise
        if self._may_end:
            return self._ends_at_mark()
        if branch is not None and not (node.free and self._doubt == UNLIKELY):
            if branch.read == PROSE:
                return self._text_begins(branch, at)
            return self._take(branch, self._buffer.back_to(self._word_at))
        if self._doubt:
            return self._read_on(at)
        at = self._buffer.position(self._word_at)
        return self._break(at) if self.pieces else self._mention(at)

    cdef Py_ssize_t _text_begins(self, _PlanBranch branch, Py_ssize_t at) except -1:
        cdef Py_ssize_t start = self._gap
        at = self._take(branch, at)
        self._fields.reach_back(start, self._buffer.span(start, self._fields.start))
        return at

    cdef bint _closes(self) except -1:
        """Returns True if a closer begins with `_word`."""
        cdef bytes closer
        for closer in self._node.closers:
            if PyBytes_GET_SIZE(closer) >= self._word_size:
                if memcmp(bytes_at(closer), self._word, self._word_size) == 0:
                    return True
        return False

    cdef bint _has_content(self) except -1:
        return len(self.pieces) > 0 and self.pieces[len(self.pieces) - 1][0] in CONTENT

    cdef Py_ssize_t _next_begins(self) except -1:
        cdef Py_ssize_t upto = self._buffer.back_to(self._word_at)
        if self._node.ends or self._node.free:
            return self._closed(upto, self._word_at)
        upto += self._buffer.gather()
        return self._whole(upto, self._word_at, False, False)

    cdef Py_ssize_t _take(self, _PlanBranch branch, Py_ssize_t pos) except -1:
        cdef _PlanNode behind = None
        if self._doubt and (branch.read != NOTHING or branch.then == END):
            if self._doubt == UNLIKELY:
                return self._doubt_more(branch, pos)
            self._be_sure()
        self.syntax = branch.syntax
        self.closer = branch.syntax.closer
        pos += branch.taken - branch.size
        if branch.read == NOTHING:
            if branch.then == END:
                return self._closed(pos, self._buffer.offset(pos) - branch.taken)
            self.state = TAIL if self.pieces else LEAD
            return self._go_to(self.syntax.nodes[branch.then], pos)
        self._may_end = False
        self._then = branch.then
        if branch.then != END:
            behind = <_PlanNode>self.syntax.nodes[branch.then]
        self._fields.begin(branch, behind, self._buffer.offset(pos), not self.pieces)
        self.state = KEY if self._fields.in_key else BODY
        return pos

    # --- values in tags: whether one has ended ------------------------------------------------------------------------

    cdef int _doubt_of(self, _PlanBranch branch, Py_ssize_t at) except -1:
        if not self.syntax.framed or self._buffer.span(self._fields.start, self._fields.start + 1) != b"\n":
            return LIKELY
        if branch.p[0] == c"\n":
            return LIKELY if branch.read == NOTHING else UNLIKELY
        return LIKELY if self._buffer.span(at - 1, at) == b"\n" else UNLIKELY

    cdef Py_ssize_t _doubt_more(self, _PlanBranch branch, Py_ssize_t pos) except -1:
        self.state = TAIL
        if branch.read == NOTHING:
            return self._go_to(self.syntax.nodes[len(self.syntax.nodes) - 1], pos)
        self._proving = branch
        self._word_size = 0
        return pos

    cdef Py_ssize_t _read_tag(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef _PlanBranch branch = self._proving
        cdef Py_ssize_t at
        cdef unsigned char byte
        cdef bint inside
        for at in range(pos, end):
            byte = self._buffer.p[at]
            inside = self._word_size == 0 or self._word[self._word_size - 1] != c">"
            if inside and not CLASS[byte] & SPACE and byte != c"<" and self._word_size < WORD_BYTES:
                self._word[self._word_size] = byte
                self._word_size += 1
                continue
            self._buffer.steps += at - pos
            self._proving = None
            if inside or byte != c"\n":
                self._gap = self._word_at = self._buffer.offset(at)
                return self._read_on(at)
            self._be_sure()
            self._take(branch, at)
            word = PyBytes_FromStringAndSize(<const char *>self._word, self._word_size)
            self._fields.reach_back(self._fields.start - self._word_size, word)
            return at
        self._buffer.steps += end - pos
        return end

    cdef inline int _be_sure(self) except -1:
        if self._doubt:
            self._doubt = SURE
            if self._fields.followed:
                self._fields.pass_value(NULL, 0, True)
        return 0

    cdef Py_ssize_t _read_on(self, Py_ssize_t at) except -1:
        cdef Py_ssize_t again = max(self._gap, self._word_at - 1)
        cdef Py_ssize_t ended = again
        self._doubt = SURE
        self.state = BODY
        if self._fields.field:
            _, _, ended = self.pieces.pop()
        self._fields.go_on(self._buffer.span(ended, again), self._buffer.span(again, self._buffer.offset(at)))
        return at

    # --- fields -------------------------------------------------------------------------------------------------------

    cdef Py_ssize_t _read_field(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Py_ssize_t at = self._fields.read(pos, end)
        cdef Py_ssize_t ended
        cdef bint fits_not
        if self._fields.found == GOES_ON:
            self.state = KEY if self._fields.in_key else BODY
            return at
        if self._fields.found == BY_ITSELF:
            ended = self._buffer.offset(at)
            self._keep(ended)
            if self._then == END:
                return self._closed(at, ended)
            self.state = TAIL
            return self._go_to(self.syntax.nodes[self._then], at)
        if self._fields.found == AT_BRANCH:
            return self._field_ended(at)
        if self._fields.found == NO_KEY:
            return self._mention(at)
        fits_not = len(self.pieces) > 0 or (self._fields.found == NO_FIELD and not self._fields.is_named())
        return self._break(at) if fits_not else self._mention(at)

    cdef Py_ssize_t _field_ended(self, Py_ssize_t at) except -1:
        cdef _PlanBranch branch = self._fields.branch
        cdef bytes text = self._fields.text
        cdef Py_ssize_t ended = self._buffer.offset(at)
        if self._fields.kind == PROSE:
            self._doubt = self._doubt_of(branch, ended)
        self._keep(ended)
        if self._fields.followed:
            self._fields.pass_value(bytes_at(text), PyBytes_GET_SIZE(text), not self._doubt)
        return self._take(branch, self._buffer.back_to(ended + branch.size))

    cdef int _keep(self, Py_ssize_t upto) except -1:
        if self._fields.field:
            self.pieces.append((self._fields.field, self._fields.start, upto))
        return 0

    # --- broken blocks ------------------------------------------------------------------------------------------------

    cdef Py_ssize_t _mention(self, Py_ssize_t at) except -1:
        if self.untaught or self._around or not self._policy.strict or self.syntax.keyed or not self.closer:
            return self._none(at)
        return self._look_again(HELD, 0)

    cdef Py_ssize_t _break(self, Py_ssize_t at) except -1:
        cdef bint in_field = self.state == BODY
        cdef bint named = self._fields.is_named() if in_field else not self._has_content()
        cdef bint whole
        if not self.closer or (self.untaught and named) or (self._around and self._around != ALONE):
            return self._none(at)
        whole = self.state == TAIL and bool(self.opener and self._node.next) and self._has_content()
        if in_field:
            self._keep(TO_CLOSER)
        elif self.pieces:  # the assumed end of its last field was not its end
            field, start, _ = self.pieces.pop()
            self.pieces.append((field, start, TO_CLOSER))
        return self._look_again(BROKEN, self._word_at if whole else None)

    cdef Py_ssize_t _look_again(self, int state, beyond) except -1:
        self._buffer.gather()
        self.state = state
        self._beyond = beyond
        self._closers.begin(self.opener, self.closer)
        return self._buffer.start + self.head

    cdef Py_ssize_t _search(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Py_ssize_t upto = pos
        cdef int found
        since = None if self._beyond is None else self._buffer.position(self._beyond) - pos
        upto += self._closers.read(self._buffer.slice(pos, end), since)
        self._buffer.steps += upto - pos
        found = self._closers.found
        if found == CLOSER:
            return self._given_up(upto)
        if found == OPENER:
            if self.state == HELD:
                return self._none(upto)
            upto -= PyBytes_GET_SIZE(self.opener)
            return self._unfinished(upto + self._buffer.gather(), "end")
        return upto

    cdef Py_ssize_t _oversize(self, Py_ssize_t end) except -1:
        cdef Py_ssize_t at
        if self._may_end:
            return self._ends_at_mark()
        end += self._buffer.gather()
        if self.closer and not self._policy.strict:
            at = self._buffer.find(self.closer, self._buffer.start + self.head, end)
            if at >= 0:
                return self._given_up(at + PyBytes_GET_SIZE(self.closer))
        return self._unfinished(end, "oversize")

    # --- the end of the block -----------------------------------------------------------------------------------------

    cdef Py_ssize_t _ends_at_mark(self) except -1:
        return self._closed(self._buffer.back_to(self._mark), self._mark)

    cdef Py_ssize_t _closed(self, Py_ssize_t upto, Py_ssize_t body_end) except -1:
        upto += self._buffer.gather()
        if self.pieces:
            return self._whole(upto, body_end, True, False)
        self.outcome = FRAMING
        return upto

    cdef Py_ssize_t _given_up(self, Py_ssize_t upto) except -1:
        upto += self._buffer.gather()
        return self._whole(upto, upto - self._buffer.start - PyBytes_GET_SIZE(self.closer), True, True)

    cdef Py_ssize_t _whole(self, Py_ssize_t upto, Py_ssize_t body_end, bint closed, bint broken) except -1:
        self.outcome = WHOLE_BLOCK
        self.body_end = body_end
        self.closed = closed
        self.broken = broken
        return upto

    cdef Py_ssize_t _unfinished(self, Py_ssize_t end, str why) except -1:
        self.outcome = UNFINISHED
        self.why = why
        return end

    cdef Py_ssize_t _none(self, Py_ssize_t at) except -1:
        self.outcome = NO_BLOCK
        return at + self._buffer.gather()
