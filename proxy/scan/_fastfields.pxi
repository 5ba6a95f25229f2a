# Reads one field of a block: part of `_fastparse.pyx`, the twin of `_pyfields.py`.

# The result of reading a field.
cdef enum:
    GOES_ON
    BY_ITSELF
    AT_BRANCH
    NO_KEY
    NO_FIELD
    NO_CALL


@cython.final
cdef class FieldReader:
    cdef Buffer _buffer
    cdef Output _output
    cdef object _policy, live
    cdef _Plan plan
    cdef int kind, found
    cdef str field
    cdef Py_ssize_t start
    cdef bint in_key, followed
    cdef _PlanBranch branch
    cdef bytes text
    cdef bytes _opener, _overlap
    cdef bint _untaught, _followable, _worded, _ended
    cdef _PlanNode _node
    cdef object _key
    cdef ObjectReader _json
    cdef CodeReader _code
    cdef BracesReader _braces
    cdef int _string
    cdef bytes _stops, _waiting
    cdef bytearray _sent
    cdef list _late, _pieces
    cdef Py_ssize_t _short
    cdef object _block

    def __cinit__(self, Buffer buffer, Output output, policy, live):
        self._buffer = buffer
        self._output = output
        self._policy = policy
        self.live = live
        self.kind = NOTHING
        self.field = ""
        self.text = b""
        self._opener = self._overlap = self._waiting = b""
        self._string = NO_STRING
        self._json = ObjectReader()
        self._code = CodeReader()
        self._braces = BracesReader()

    cdef int begin_block(self, _Opener opener, list pieces, bint quoted) except -1:
        self.kind = NOTHING
        self.followed = False
        self.in_key = False
        self._opener = opener.literal
        self._untaught = opener.untaught
        self._followable = self.live is not None and not (self._untaught or quoted)
        self._late = None
        if self._followable:
            self._short = self.live.long
            self._pieces = pieces
            if self._short:
                self._late = []
            else:
                self.live.begin_block(pieces)
        return 0

    cdef int begin(self, _PlanBranch branch, _PlanNode node, Py_ssize_t at, bint first) except -1:
        self.kind = branch.read
        self.field = branch.field
        self.start = at
        self.in_key = False
        if branch.read == JSON:
            self._json.begin()
            if first and branch.syntax.keyed:
                self._begin_key(branch)
        elif branch.read == PRINTED or branch.read == LOOSE:
            self._begin_key(branch)
        elif branch.read == CODE:
            self._code.begin(branch.size > 0)
        elif branch.read == BRACES:
            self._braces.begin(branch.syntax.quote)
        else:
            self._node = node
            self._overlap = b""
            self._worded = self._ended = False
        self._string = NO_STRING
        self._waiting = b""
        if self._late is not None:
            self._late.append((len(self._pieces), (branch.syntax.syntax, branch.field, branch.read, at), None, 0))
            self.followed = branch.field in FOLLOWED
        elif self._followable:
            self.followed = self.live.begin_field(branch.syntax.syntax, branch.field, branch.read, at)
        return 0

    cdef int _begin_key(self, _PlanBranch branch) except -1:
        self.in_key = True
        policy = self._policy
        if branch.read == LOOSE:
            self._key = LooseHead(policy.callable_names)
            return 0
        names = policy.callable_names if branch.read == PRINTED else ()
        any_name = policy.strict and not branch.syntax.syntax.untaught
        self._key = FirstKey(branch.syntax.syntax, branch.read, names, None if any_name else policy.may_call)
        return 0

    cdef int reach_back(self, Py_ssize_t start, bytes overlap) except -1:
        self.start = start
        self._overlap = overlap
        return 0

    cdef int go_on(self, bytes more, bytes overlap) except -1:
        if self.field and self.followed:
            self.pass_value(bytes_at(more), PyBytes_GET_SIZE(more), False)
        self._overlap = overlap
        return 0

    cdef int pass_value(self, Bytes p, Py_ssize_t size, bint whole) except -1:
        cdef bytes more
        if self._late is not None:
            return self._note(self._buffer.as_text(p, size), -1 if whole else 0)
        more = self._pass_string(p, size)
        if whole:
            more = self._waiting + more
            self._waiting = b""
        if whole or PyBytes_GET_SIZE(more) > 0:
            self.live.pass_value(more.decode(), whole)
            self._look_at_string()
        return 0

    cdef int _pass_field(self, Bytes p, Py_ssize_t size, Py_ssize_t upto) except -1:
        cdef bytes more
        if self._late is not None:
            return self._note(PyBytes_FromStringAndSize(<const char *>p, size), upto)
        more = self._pass_string(p, size)
        if PyBytes_GET_SIZE(more) > 0:
            self.followed = self.live.pass_field(more, upto - PyBytes_GET_SIZE(more))
            self._look_at_string()
        return 0

    cdef int _note(self, content, Py_ssize_t stop) except -1:
        cdef list late = self._late
        late.append((len(self._pieces), None, content, stop))
        self._short -= len(content)
        if self._short <= 0:
            self._late = None
            self.followed = self.live.begin_long(self._pieces, late)
            self._look_at_string()
        return 0

    cdef int _look_at_string(self) except -1:
        self._string = self.live.string
        if self._string != NO_STRING:
            self._stops = self.live.stops
            self._sent = self.live.sent
            self._block = self.live.block
        return 0

    cdef bytes _pass_string(self, Bytes p, Py_ssize_t size):
        cdef Certain found
        cdef Py_ssize_t before
        cdef Bytes said
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
            said = <Bytes>PyByteArray_AS_STRING(self._sent) + before
            self._output.say_argument(
                self._block, self._buffer.as_text(said, PyByteArray_GET_SIZE(self._sent) - before)
            )
        if found.waits:
            self._waiting = PyBytes_FromStringAndSize(<const char *>p + found.used, size - found.used)
            return b""
        self._waiting = b""
        return b"" if found.used == size else PyBytes_FromStringAndSize(<const char *>p + found.used, size - found.used)

    cdef inline bint is_named(self) noexcept:
        return self.kind == NAME_ or self.kind == WORD

    cdef inline bint is_in_string(self) noexcept:
        return self.kind == JSON and self._json.mode == STRING

    cdef Py_ssize_t read(self, Py_ssize_t pos, Py_ssize_t end) except? -1:
        cdef Py_ssize_t after
        cdef int mode
        self.found = GOES_ON
        if self.in_key:
            return self._read_key(pos, end)
        if self.kind == JSON:
            after = self._json.read(self._buffer.p, pos, end)
            mode = self._json.mode
        elif self.kind == CODE:
            after = self._code.read(self._buffer.p, pos, end)
            mode = self._code.mode
        elif self.kind == BRACES:
            after = self._braces.read(self._buffer.p, pos, end)
            mode = self._braces.mode
        elif self.kind == PROSE:
            return self._read_text(pos, end)
        elif self.kind == LOOSE:
            self._buffer.steps += end - pos
            return end
        else:
            return self._read_word(pos, end)
        self._buffer.steps += after - pos
        if self.followed:
            self._pass_field(self._buffer.p + pos, after - pos, self._buffer.offset(after))
        if mode == WHOLE:
            self.found = BY_ITSELF
        elif mode == WRONG:
            if self.kind == CODE:
                self.found = NO_FIELD if self._code.inside else NO_CALL
            elif self.kind == JSON and self._untaught and not self._opener and self._buffer.p[after] == TICK:
                self.found = BY_ITSELF
            else:
                self.found = NO_FIELD
        return after

    cdef inline Py_ssize_t _find(self, int what, Py_ssize_t at) noexcept:
        self.found = what
        return at

    # --- the first key ------------------------------------------------------------------------------------------------

    cdef Py_ssize_t _read_key(self, Py_ssize_t pos, Py_ssize_t end) except -1:
        cdef Py_ssize_t at, upto
        cdef bytes begun
        for at in range(pos, end):
            fits = self._key.take(self._buffer.p[at])
            if fits is None:
                continue
            self._buffer.steps += at + 1 - pos
            if not fits:
                return self._find(NO_KEY, at)
            self._go_on_behind(self._key)
            at += not self._key.again
            if self.followed:
                upto = self._buffer.offset(at)
                begun = self._buffer.span(self.start, upto)
                self._pass_field(bytes_at(begun), PyBytes_GET_SIZE(begun), upto)
            return at
        self._buffer.steps += end - pos
        return end

    cdef int _go_on_behind(self, key) except -1:
        cdef bytes begun
        self.in_key = False
        if self.kind == LOOSE:
            return 0
        begun = key.begun
        self.kind = key.kind
        if self.kind == JSON:
            self._json.begin()
            self._json.read(bytes_at(begun), 0, PyBytes_GET_SIZE(begun))
        elif bytes_at(begun)[0] == c"{":
            self._code.begin_object()
            self._code.read(bytes_at(begun), 1, PyBytes_GET_SIZE(begun))
        else:
            self._code.begin(key.listed)
            self._code.read(bytes_at(begun), 0, PyBytes_GET_SIZE(begun))
        return 0

    # --- text, up to a literal ----------------------------------------------------------------------------------------

    cdef Py_ssize_t _read_text(self, Py_ssize_t pos, Py_ssize_t end) except? -1:
        cdef _PlanNode node = self._node
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self._overlap)
        cdef Py_ssize_t at, size
        cdef bytes seam
        cdef Bytes p
        cdef bint cut = False
        cdef _PlanBranch branch = None
        if before > 0:
            seam = self._overlap + self._buffer.slice(pos, min(end, pos + WORDS))
            p = bytes_at(seam)
            size = PyBytes_GET_SIZE(seam)
            for at in range(before):
                if node.firsts[p[at]]:
                    branch = self._literal_at(p + at, size - at, &cut)
                    if branch is not None or cut:
                        return self._text_ended(branch, p, at, size - at, pos - before + at, end)
            self._text_ended(None, p, before, 0, pos, end)
        at = pos
        while at < end:
            if node.firsts[self._buffer.p[at]]:
                branch = self._literal_at(self._buffer.p + at, end - at, &cut)
                if branch is not None or cut:
                    break
            at += 1
        return self._text_ended(branch, self._buffer.p + pos, at - pos, end - at, at, end)

    cdef _PlanBranch _literal_at(self, Bytes p, Py_ssize_t size, bint *cut):
        cdef _PlanBranch branch
        for branch in self._node.branches:
            if size >= branch.size:
                if memcmp(p, branch.p, branch.size) == 0:
                    return branch
            elif memcmp(p, branch.p, size) == 0:
                cut[0] = True
                return None
        return None

    cdef Py_ssize_t _text_ended(
        self, _PlanBranch branch, Bytes p, Py_ssize_t size, Py_ssize_t rest, Py_ssize_t at, Py_ssize_t end
    ) except? -1:
        self._buffer.steps += size
        if branch is None:
            if self.followed:
                self.pass_value(p, size, False)
            self._overlap = PyBytes_FromStringAndSize(<const char *>p + size, rest)
            return end
        self._buffer.steps += branch.size
        self.branch = branch
        if self.followed:
            self.text = PyBytes_FromStringAndSize(<const char *>p, size)
        return self._find(AT_BRANCH, at)

    cdef Py_ssize_t _read_word(self, Py_ssize_t pos, Py_ssize_t end) except? -1:
        cdef bytes window = self._overlap + self._buffer.slice(pos, min(end, pos + WORD_BYTES + WORDS))
        cdef Bytes p = bytes_at(window)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(window)
        cdef Py_ssize_t shift = pos - PyBytes_GET_SIZE(self._overlap)
        cdef Py_ssize_t at
        cdef bint cut = False
        cdef bint again
        cdef _PlanBranch branch
        for at in range(size):
            if self._node.firsts[p[at]]:
                branch = self._literal_at(p + at, size - at, &cut)
                if branch is not None or cut:
                    return self._text_ended(branch, p, at, size - at, shift + at, end)
            again = self._opener_at(p + at, size - at, &cut)
            if cut:
                return self._text_ended(None, p, at, size - at, shift + at, end)
            if again or not self._is_word(p[at]) or self._buffer.offset(shift + at) - self.start >= WORD_BYTES:
                self._buffer.steps += at
                return self._find(NO_FIELD, shift + at)
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
        if not self.plan.begins_some[p[0]]:
            return False
        for opener in self.plan.begun:
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
                self.kind == NAME_ and byte < 0x80 and not CLASS[byte] & NAMED and byte != c":" and byte != c"/"
            ):
                return False
            self._worded = True
        elif byte == c"\n" or self.kind == NAME_:
            self._ended = self._worded
        return True
