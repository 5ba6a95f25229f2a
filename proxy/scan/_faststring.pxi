# JSON strings, and text of strings inside streamed arguments: part of `_fastparse.pyx`, the twin of `_pystring.py`.

cdef int NO_STRING = _pystring.NO_STRING
cdef int JSON_STRING = _pystring.JSON_STRING
cdef int NESTED_STRING = _pystring.NESTED_STRING
cdef int CODE_STRING = _pystring.CODE_STRING
cdef int LINES = _pystring.LINES
cdef int UNSAID = _pystring.UNSAID

# Tables: two-character escapes in both directions (the solidus needs none), the escaped width of each byte, and
# hexadecimal digits.
cdef unsigned char UNESCAPED[256]
cdef unsigned char ESCAPED[256]
cdef unsigned char WIDTH[256]
cdef signed char HEX[256]
cdef const char *DIGITS = b"0123456789abcdef"
memset(UNESCAPED, 0, 256)
memset(ESCAPED, 0, 256)
memset(HEX, -1, 256)
for _byte in range(256):
    WIDTH[_byte] = 6 if _byte < 0x20 else 1
for _letter, _byte in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t'):
    UNESCAPED[_letter] = _byte
    if _letter != ord("/"):
        ESCAPED[_byte] = _letter
        WIDTH[_byte] = 2
for _byte in range(16):
    HEX[ord(f"{_byte:x}")] = HEX[ord(f"{_byte:X}")] = _byte
del _letter, _byte


cdef inline Py_ssize_t escaped_size(Bytes p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t pos
    cdef Py_ssize_t whole = 0
    for pos in range(size):
        whole += WIDTH[p[pos]]
    return whole


cdef inline void escape(char *to, Bytes p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t pos
    cdef unsigned char byte
    for pos in range(size):
        byte = p[pos]
        if WIDTH[byte] == 1:
            to[0] = byte
        elif WIDTH[byte] == 2:
            to[0] = c"\\"
            to[1] = ESCAPED[byte]
        else:
            memcpy(to, b"\\u00", 4)
            to[4] = DIGITS[byte >> 4]
            to[5] = DIGITS[byte & 15]
        to += WIDTH[byte]


# How many bytes are certain, and whether the rest waits.
cdef struct Certain:
    Py_ssize_t used
    bint waits


cdef int certain(int kind, bytes stops, Bytes p, Py_ssize_t size, bytearray to, Certain *found) except -1:
    """See `certain` in `proxy/scan/_pystring.py`; the text to send is appended to `to`."""
    cdef Bytes stop = bytes_at(stops)
    cdef Py_ssize_t last = PyBytes_GET_SIZE(stops) - 1
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t length
    found.waits = False
    found.used = size
    if kind == UNSAID:
        return 0
    while at < size:
        if kind <= CODE_STRING and p[at] == c"\\":
            if kind == CODE_STRING:
                length = 2 if size - at < 2 or memchr(b"nt\\'\"", p[at + 1], 5) != NULL else 0
            else:
                length = escape_size(p + at, size - at) if kind == JSON_STRING else nested_size(p + at, size - at)
            if length == 0 or length > size - at:
                found.waits = length > 0
                break
            at += length
        elif kind <= NESTED_STRING and (p[at] == c'"' or p[at] < 0x20):
            break
        elif last >= 0 and (p[at] == stop[0] or p[at] == stop[last]):
            break
        else:
            at += 1
    if kind == LINES and at == size and size > 0 and p[size - 1] == c"\n":
        found.waits = True
        at = size - 1
    found.used = at
    if kind == JSON_STRING:
        return append(to, p, at)
    return append_unescaped(kind, to, p, at) if kind <= CODE_STRING else append_escaped(to, p, at)


cdef inline Py_ssize_t escape_size(Bytes p, Py_ssize_t size) noexcept nogil:
    """Returns the size of the escape that begins here, or 0 if it is invalid. If the size is above `size`, the escape
    is cut."""
    if size < 2 or UNESCAPED[p[1]]:
        return 2
    return unicode_size(p, size, 1)


cdef inline Py_ssize_t nested_size(Bytes p, Py_ssize_t size) noexcept nogil:
    """Returns the same for JSON inside a JSON string, where quotes and backslashes are escaped, and a solidus may
    be."""
    if size < 2 or p[1] == c"/":
        return 2
    if p[1] != c"\\":
        return 0
    if size == 2:
        return 3
    if p[2] == c"\\":
        return 4 if size == 3 or p[3] == c'"' or p[3] == c"\\" or p[3] == c"/" else 0
    if UNESCAPED[p[2]] and p[2] != c'"':
        return 3
    return unicode_size(p, size, 2)


cdef inline Py_ssize_t unicode_size(Bytes p, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    """Returns the size of an escape whose `u` and four digits begin at `at`, which is less than `size`."""
    cdef Py_ssize_t digit
    if p[at] != c"u":
        return 0
    for digit in range(at + 1, min(size, at + 5)):
        if HEX[p[digit]] < 0:
            return 0
    return at + 5


cdef int append_escaped(bytearray to, Bytes p, Py_ssize_t size) except -1:
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(to)
    if size > 0:
        PyByteArray_Resize(to, before + escaped_size(p, size))
        escape(PyByteArray_AS_STRING(to) + before, p, size)
    return 0


cdef int append_unescaped(int kind, bytearray to, Bytes p, Py_ssize_t size) except -1:
    """Appends the text without its outer escapes, as content of a JSON string."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(to)
    cdef Py_ssize_t at = 0
    cdef bytes read
    cdef unsigned char byte
    cdef char *end
    if memchr(p, c"\\", size) == NULL:
        return append(to, p, size) if kind == NESTED_STRING else append_escaped(to, p, size)
    read = PyBytes_FromStringAndSize(NULL, size)
    end = PyBytes_AS_STRING(read)
    while at < size:
        byte = p[at]
        if byte == c"\\":
            at += 1
            byte = p[at]
            if kind == CODE_STRING and (byte == c"n" or byte == c"t"):
                byte = UNESCAPED[byte]
        end[0] = byte
        end += 1
        at += 1
    size = end - PyBytes_AS_STRING(read)
    return append(to, bytes_at(read), size) if kind == NESTED_STRING else append_escaped(to, bytes_at(read), size)
