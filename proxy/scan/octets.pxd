from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

cdef enum:
    CUT = 1
    WHOLE = 2

cdef enum:
    BLANK
    ITEM
    MARK
    NUMBER
    PROSE_LINE
    CITED


cdef inline Py_ssize_t find(const unsigned char *buf, unsigned char byte, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef const unsigned char *found = <const unsigned char *>memchr(buf + pos, byte, end - pos) if pos < end else NULL
    return end if found == NULL else found - buf


cdef inline Py_ssize_t find_one_of(
    const unsigned char *buf, const unsigned char *table, Py_ssize_t pos, Py_ssize_t end
) noexcept nogil:
    while pos < end and not table[buf[pos]]:
        pos += 1
    return pos


cdef inline Py_ssize_t find_literal(
    const unsigned char *buf, bytes literal, Py_ssize_t pos, Py_ssize_t end
) noexcept:
    # memchr for the first byte, then a comparison: literals are short and their first byte is rare in text; if it is
    # frequent, the cost is at most size * length of the literal.
    cdef Py_ssize_t size = PyBytes_GET_SIZE(literal)
    cdef const char *sought = PyBytes_AS_STRING(literal)
    cdef const unsigned char *found
    while end - pos >= size:
        found = <const unsigned char *>memchr(buf + pos, sought[0], end - pos - size + 1)
        if found == NULL:
            return -1
        if memcmp(found, sought, size) == 0:
            return found - buf
        pos = found - buf + 1
    return -1


cdef inline int fits(const unsigned char *buf, bytes literal, Py_ssize_t pos, Py_ssize_t end) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(literal)
    if memcmp(buf + pos, PyBytes_AS_STRING(literal), min(size, end - pos)) != 0:
        return 0
    return WHOLE if end - pos >= size else CUT


cdef inline bint begins(bytes literal, bytearray word) noexcept:
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(word)
    return PyBytes_GET_SIZE(literal) >= size and memcmp(
        PyBytes_AS_STRING(literal), PyByteArray_AS_STRING(word), size
    ) == 0


cdef inline int append(bytearray to, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end) except -1:
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(to)
    if end > pos:
        PyByteArray_Resize(to, before + end - pos)
        memcpy(PyByteArray_AS_STRING(to) + before, buf + pos, end - pos)
    return 0


cdef inline bint same(const unsigned char *buf, Py_ssize_t pos, const unsigned char *other, Py_ssize_t size) noexcept nogil:
    return memcmp(buf + pos, other, size) == 0


cdef inline int begins_with(int before, unsigned char byte) noexcept nogil:
    if byte == c" " or byte == c"\t":
        return PROSE_LINE if before == NUMBER else BLANK if before == BLANK else ITEM
    if before <= ITEM:
        if byte == c">":
            return CITED
        if byte == c"-" or byte == c"*" or byte == c"+":
            return MARK
    if before != MARK and c"0" <= byte <= c"9":
        return NUMBER
    return MARK if before == NUMBER and (byte == c"." or byte == c")") else PROSE_LINE
