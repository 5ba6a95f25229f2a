# Taking the arguments out of a call's object while it comes: part of `_fastparse.pyx`, the twin of `_pyfollow.py`.

# What comes next: in the object, in one of its keys or values.
cdef enum:
    AT_OUTSIDE
    AT_KEY
    AT_COLON
    AT_VALUE
    IN_OTHER
    IN_NAME
    IN_OBJECT
    IN_TEXT

cdef bytes UNKNOWN_BYTES = UNKNOWN.encode()


cdef class ArgumentFollower:
    cdef tuple _names, _parameters
    cdef bint _objects
    cdef readonly str name
    cdef int _mode
    cdef long long _depth
    cdef bint _in_string, _escaped
    cdef int _code, _high
    cdef bytearray _ready, _key, _word

    def __cinit__(self):
        self._ready = bytearray()
        self._key = bytearray()
        self._word = bytearray()
        self.begin((), (), True)

    cdef int begin(self, tuple names, tuple parameters, bint objects) except -1:
        self._names = names
        self._parameters = parameters
        self._objects = objects
        self.name = None
        self._mode = AT_OUTSIDE
        self._depth = 0
        self._in_string = self._escaped = False
        self._code = -1
        self._high = 0
        PyByteArray_Resize(self._ready, 0)
        PyByteArray_Resize(self._key, 0)
        PyByteArray_Resize(self._word, 0)
        return 0

    cdef bytes take(self):
        cdef bytes ready = bytes(self._ready)
        PyByteArray_Resize(self._ready, 0)
        return ready

    cdef int read(self, Bytes p, Py_ssize_t end) except -1:
        cdef Py_ssize_t pos = 0
        cdef unsigned char byte
        cdef Py_ssize_t plain
        while pos < end:
            byte = p[pos]
            if self._mode == IN_TEXT:
                plain = self._plain(p, pos, end)
                if plain > pos:
                    append(self._ready, p + pos, plain - pos)
                    pos = plain
                    continue
                self._text(byte, self._ready)
            elif self._mode == IN_NAME:
                self._text(byte, self._word)
                if self._mode != IN_NAME:
                    self.name = self._word.decode()
            elif self._mode == AT_KEY:
                self._in_key(p + pos)
            elif self._mode == IN_OBJECT:
                plain = self._rest_of_object(p, pos, end)
                append(self._ready, p + pos, plain - pos)
                pos = plain
                continue
            elif self._mode == IN_OTHER:
                self._in_value(byte)
            elif self._mode == AT_VALUE:
                if not CLASS[byte] & SPACE:
                    if self._begin_value(byte):
                        continue
            elif self._mode == AT_COLON:
                if byte == c":":
                    self._mode = AT_VALUE
            elif byte == c'"':
                self._mode = AT_KEY
                PyByteArray_Resize(self._key, 0)
            pos += 1
        return 0

    cdef inline Py_ssize_t _plain(self, Bytes p, Py_ssize_t pos, Py_ssize_t end) noexcept:
        """The end of the bytes that stand for themselves."""
        if self._escaped or self._code >= 0 or self._high:
            return pos
        while pos < end and p[pos] != c'"' and p[pos] != c"\\":
            pos += 1
        return pos

    cdef int _in_key(self, Bytes p) except -1:
        if self._escaped:
            self._escaped = False
        elif p[0] == c"\\":
            self._escaped = True
        elif p[0] == c'"':
            self._mode = AT_COLON
            return 0
        return append(self._key, p, 1)

    cdef bint _begin_value(self, unsigned char byte) except -1:
        """Whether the byte belongs to the value and has to be read again as such."""
        cdef bytes key = bytes(self._key)
        self._depth = 0
        self._mode = IN_OTHER
        if byte == c'"' and key in self._names:
            self._mode = IN_NAME
            PyByteArray_Resize(self._word, 0)
            return False
        if byte == c'"' and key in self._parameters:
            self._mode = IN_TEXT
            return False
        if byte == c"{" and key in self._parameters and self._objects:
            self._mode = IN_OBJECT
        return True

    cdef inline int _in_value(self, unsigned char byte) noexcept:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif byte == c"\\":
                self._escaped = True
            elif byte == c'"':
                self._in_string = False
        elif byte == c'"':
            self._in_string = True
        elif byte == c"{" or byte == c"[":
            self._depth += 1
        elif byte == c"}" or byte == c"]":
            self._depth -= 1
        elif byte == c"," and self._depth == 0:
            self._mode = AT_OUTSIDE
        return 0

    cdef Py_ssize_t _rest_of_object(self, Bytes p, Py_ssize_t pos, Py_ssize_t end) noexcept:
        while pos < end:
            self._in_value(p[pos])
            pos += 1
            if self._depth == 0:
                self._mode = AT_OUTSIDE
                break
        return pos

    cdef int _text(self, unsigned char byte, bytearray to) except -1:
        cdef int digit
        if self._code >= 0:  # the digits of \uXXXX, behind a bit that counts them
            digit = hex_digit(byte)
            self._code = self._code << 4 | digit if digit >= 0 else 0x1FFFD
            if self._code >= 0x10000:
                self._unit(self._code & 0xFFFF, to)
                self._code = -1
        elif self._escaped:
            self._escaped = False
            if byte == c"u":
                self._code = 1
            else:
                self._settle_high(to)
                byte = unescaped(byte)
                append(to, &byte, 1)
        elif byte == c"\\":
            self._escaped = True
        else:
            self._settle_high(to)
            if byte == c'"':
                self._mode = AT_OUTSIDE
            else:
                append(to, &byte, 1)
        return 0

    cdef int _unit(self, int unit, bytearray to) except -1:
        if self._high and 0xDC00 <= unit <= 0xDFFF:
            to += chr(0x10000 + ((self._high - 0xD800) << 10) + unit - 0xDC00).encode()
            self._high = 0
            return 0
        self._settle_high(to)
        if 0xD800 <= unit <= 0xDBFF:
            self._high = unit
        else:
            to += UNKNOWN_BYTES if 0xDC00 <= unit <= 0xDFFF else chr(unit).encode()
        return 0

    cdef int _settle_high(self, bytearray to) except -1:
        if self._high:
            to += UNKNOWN_BYTES
            self._high = 0
        return 0


cdef inline int hex_digit(unsigned char byte) noexcept nogil:
    if c"0" <= byte <= c"9":
        return byte - c"0"
    byte |= 0x20
    return byte - c"a" + 10 if c"a" <= byte <= c"f" else -1


cdef inline unsigned char unescaped(unsigned char byte) noexcept nogil:
    if byte == c"b":
        return 8
    if byte == c"f":
        return 12
    if byte == c"n":
        return 10
    if byte == c"r":
        return 13
    return 9 if byte == c"t" else byte


cdef int append_escaped(Bytes p, Py_ssize_t size, bytearray to) except -1:
    """Text as it stands in a JSON string: the counterpart of `json_string`."""
    cdef Py_ssize_t at
    cdef Py_ssize_t done = 0
    cdef unsigned char byte
    cdef unsigned char code[6]
    for at in range(size):
        byte = p[at]
        if byte >= 0x20 and byte != c'"' and byte != c"\\":
            continue
        append(to, p + done, at - done)
        done = at + 1
        code[0] = c"\\"
        code[1] = escaped(byte)
        if code[1] != c"u":
            append(to, code, 2)
        else:
            code[2] = code[3] = c"0"
            code[4] = c"0" + (byte >> 4)
            code[5] = b"0123456789abcdef"[byte & 15]
            append(to, code, 6)
    return append(to, p + done, size - done)


cdef inline unsigned char escaped(unsigned char byte) noexcept nogil:
    if byte == 8:
        return c"b"
    if byte == 12:
        return c"f"
    if byte == 10:
        return c"n"
    if byte == 13:
        return c"r"
    if byte == 9:
        return c"t"
    return byte if byte == c'"' or byte == c"\\" else c"u"
