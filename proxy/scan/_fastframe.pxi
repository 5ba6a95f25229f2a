# Finds the text in one frame of a Chat stream, and writes text as JSON: part of `_fastparse.pyx`, the twin of
# `_pyframe.py`.

cdef enum:
    CHUNK_DEPTH = 16
    CHUNK_DIGITS = 32

# The levels of a chunk whose members are interpreted.
cdef enum:
    OF_CHUNK
    OF_CHOICE
    OF_DELTA
    OF_ANY

# One chunk being read. `start` and `stop` are the position of its text, once found; `reasoning` is its kind;
# `escaped`: it contains escapes.
cdef struct Chunk:
    Bytes p
    Py_ssize_t size
    Py_ssize_t start
    Py_ssize_t stop
    Py_ssize_t key
    Py_ssize_t key_size
    bint reasoning
    bint escaped
    int choices


cdef inline Py_ssize_t skip_space(Chunk *chunk, Py_ssize_t pos) noexcept nogil:
    while 0 <= pos < chunk.size and (chunk.p[pos] == c" " or chunk.p[pos] == c"\t"):
        pos += 1
    return pos


cdef inline bint stands(Chunk *chunk, Py_ssize_t pos, const char *literal, Py_ssize_t length) noexcept nogil:
    return 0 <= pos <= chunk.size - length and memcmp(chunk.p + pos, literal, length) == 0


cdef inline bint byte_stands(Chunk *chunk, Py_ssize_t pos, unsigned char byte) noexcept nogil:
    return 0 <= pos < chunk.size and chunk.p[pos] == byte


cdef Py_ssize_t read_string_of(Chunk *chunk, Py_ssize_t pos) noexcept nogil:
    """Reads a string without escapes."""
    cdef unsigned char byte
    if not byte_stands(chunk, pos, c'"'):
        return -1
    pos += 1
    while pos < chunk.size:
        byte = chunk.p[pos]
        if byte == c'"':
            return pos + 1
        if byte < 0x20 or byte == c"\\":
            return -1
        pos += 1
    return -1


cdef Py_ssize_t read_digits(Chunk *chunk, Py_ssize_t pos) noexcept nogil:
    cdef Py_ssize_t first = pos
    while pos < chunk.size and pos - first < CHUNK_DIGITS and c"0" <= chunk.p[pos] <= c"9":
        pos += 1
    return pos if pos > first else -1


cdef Py_ssize_t read_number(Chunk *chunk, Py_ssize_t pos) noexcept nogil:
    if byte_stands(chunk, pos, c"-"):
        pos += 1
    if byte_stands(chunk, pos, c"0"):
        pos += 1
    else:
        pos = read_digits(chunk, pos)
        if pos < 0:
            return -1
    if byte_stands(chunk, pos, c"."):
        pos = read_digits(chunk, pos + 1)
        if pos < 0:
            return -1
    if byte_stands(chunk, pos, c"e") or byte_stands(chunk, pos, c"E"):
        pos += 1
        if byte_stands(chunk, pos, c"+") or byte_stands(chunk, pos, c"-"):
            pos += 1
        pos = read_digits(chunk, pos)
    return pos


cdef inline Py_ssize_t read_null(Chunk *chunk, Py_ssize_t pos) noexcept nogil:
    return pos + 4 if stands(chunk, pos, b"null", 4) else -1


cdef Py_ssize_t read_value(Chunk *chunk, Py_ssize_t pos, int depth) noexcept nogil:
    """Reads any value up to `depth` levels."""
    if depth == 0 or pos < 0 or pos >= chunk.size:
        return -1
    cdef unsigned char byte = chunk.p[pos]
    if byte == c'"':
        return read_string_of(chunk, pos)
    if byte == c"{":
        return read_members(chunk, pos, OF_ANY, depth - 1)
    if byte == c"n":
        return read_null(chunk, pos)
    if byte == c"t":
        return pos + 4 if stands(chunk, pos, b"true", 4) else -1
    if byte == c"f":
        return pos + 5 if stands(chunk, pos, b"false", 5) else -1
    if byte != c"[":
        return read_number(chunk, pos)
    pos = skip_space(chunk, pos + 1)
    if byte_stands(chunk, pos, c"]"):
        return pos + 1
    while True:
        pos = skip_space(chunk, read_value(chunk, pos, depth - 1))
        if byte_stands(chunk, pos, c"]"):
            return pos + 1
        if not byte_stands(chunk, pos, c","):
            return -1
        pos = skip_space(chunk, pos + 1)


cdef Py_ssize_t read_choices(Chunk *chunk, Py_ssize_t pos) noexcept nogil:
    """Reads the choices: exactly one."""
    chunk.choices += 1
    if chunk.choices > 1 or not byte_stands(chunk, pos, c"["):
        return -1
    pos = skip_space(chunk, read_members(chunk, skip_space(chunk, pos + 1), OF_CHOICE, 0))
    return pos + 1 if byte_stands(chunk, pos, c"]") else -1


cdef Py_ssize_t read_member(
    Chunk *chunk, int level, Py_ssize_t key, Py_ssize_t length, Py_ssize_t pos, int depth
) noexcept nogil:
    """Reads the value at `pos` of the member whose key (without quotes) is at `key`."""
    cdef Py_ssize_t after
    cdef bint is_text
    if level == OF_ANY:
        return read_value(chunk, pos, depth)
    if level == OF_CHUNK:
        if length == 7 and stands(chunk, key, b"choices", 7):
            return read_choices(chunk, pos)
        if length == 5 and (stands(chunk, key, b"error", 5) or stands(chunk, key, b"usage", 5)):
            return read_null(chunk, pos)
        if length == 6 and stands(chunk, key, b"object", 6) and stands(chunk, pos, b'"error"', 7):
            return -1
        return read_value(chunk, pos, CHUNK_DEPTH)
    if level == OF_CHOICE:
        if length == 5 and stands(chunk, key, b"delta", 5):
            return read_members(chunk, pos, OF_DELTA, 0) if chunk.start < 0 else -1
        if length == 5 and stands(chunk, key, b"index", 5):
            after = read_number(chunk, pos)
            return after if after == pos + 1 and chunk.p[pos] == c"0" else -1
        if length == 13 and stands(chunk, key, b"finish_reason", 13):
            return read_null(chunk, pos)
        if length == 8 and stands(chunk, key, b"logprobs", 8):
            return read_null(chunk, pos)
        return read_value(chunk, pos, CHUNK_DEPTH)
    if chunk.start >= 0 and length == chunk.key_size and memcmp(chunk.p + key, chunk.p + chunk.key, length) == 0:
        return -1
    if length == 4 and stands(chunk, key, b"role", 4) and byte_stands(chunk, pos, c'"'):
        return read_string_of(chunk, pos)
    if stands(chunk, pos, b'""', 2):
        return pos + 2
    is_text = length == 7 and stands(chunk, key, b"content", 7)
    if chunk.start >= 0 or not byte_stands(chunk, pos, c'"') or not (is_text or is_reasoning(chunk, key, length)):
        return read_null(chunk, pos)
    chunk.stop = string_end(chunk.p, pos + 1, chunk.size, &chunk.escaped)
    if chunk.stop < 0:
        return -1
    chunk.key = key
    chunk.key_size = length
    chunk.reasoning = not is_text
    chunk.start = pos + 1
    return chunk.stop + 1


cdef inline bint is_reasoning(Chunk *chunk, Py_ssize_t key, Py_ssize_t length) noexcept nogil:
    return (
        (length == 17 and stands(chunk, key, b"reasoning_content", 17))
        or (length == 9 and stands(chunk, key, b"reasoning", 9))
        or (length == 14 and stands(chunk, key, b"reasoning_text", 14))
    )


cdef Py_ssize_t read_members(Chunk *chunk, Py_ssize_t pos, int level, int depth) noexcept nogil:
    """Reads an object; `level` decides the meaning of its members."""
    cdef Py_ssize_t key, after
    if not byte_stands(chunk, pos, c"{"):
        return -1
    pos = skip_space(chunk, pos + 1)
    if byte_stands(chunk, pos, c"}"):
        return pos + 1
    while True:
        key = pos + 1
        after = read_string_of(chunk, pos)
        pos = skip_space(chunk, after)
        if not byte_stands(chunk, pos, c":"):
            return -1
        pos = skip_space(chunk, pos + 1)
        pos = skip_space(chunk, read_member(chunk, level, key, after - 1 - key, pos, depth))
        if byte_stands(chunk, pos, c"}"):
            return pos + 1
        if not byte_stands(chunk, pos, c","):
            return -1
        pos = skip_space(chunk, pos + 1)


cdef bint read_chunk(Chunk *chunk, Bytes frame, Py_ssize_t size) noexcept nogil:
    """Returns True if a frame (without its blank line) is a chunk that only contains text."""
    chunk.p = frame
    chunk.size = size
    chunk.start = chunk.stop = -1
    chunk.choices = 0
    if not stands(chunk, 0, b"data:", 5):
        return False
    return read_members(chunk, 6 if byte_stands(chunk, 5, c" ") else 5, OF_CHUNK, 0) == size and chunk.start >= 0


cdef long code_unit(Bytes p, Py_ssize_t pos, Py_ssize_t size) noexcept nogil:
    """Returns the number in the escape `\\uXXXX` at `pos`, or -1 if there is none."""
    cdef long unit = 0
    cdef Py_ssize_t at
    if size - pos < 6 or p[pos] != c"\\" or p[pos + 1] != c"u":
        return -1
    for at in range(pos + 2, pos + 6):
        if HEX[p[at]] < 0:
            return -1
        unit = unit << 4 | HEX[p[at]]
    return unit


cdef inline Py_ssize_t escape_end(Bytes p, Py_ssize_t pos, Py_ssize_t size) noexcept nogil:
    """Returns the position after the escape at `pos`, or -1 if it is invalid or a lone surrogate."""
    cdef long unit
    if pos + 1 < size and UNESCAPED[p[pos + 1]]:
        return pos + 2
    unit = code_unit(p, pos, size)
    if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
        return -1
    if 0xD800 <= unit <= 0xDBFF:
        return pos + 12 if 0xDC00 <= code_unit(p, pos + 6, size) <= 0xDFFF else -1
    return pos + 6


cdef Py_ssize_t string_end(Bytes p, Py_ssize_t pos, Py_ssize_t size, bint *escaped) noexcept nogil:
    """Returns the end of the string that begins at `pos`, or -1 if it is invalid, not UTF-8, or has a lone
    surrogate."""
    cdef unsigned char byte, low, high
    cdef int more
    escaped[0] = False
    while pos < size:
        byte = p[pos]
        pos += 1
        if byte < 0x80:
            if byte == c'"':
                return pos - 1
            if byte < 0x20:
                return -1
            if byte == c"\\":
                pos = escape_end(p, pos - 1, size)
                if pos < 0:
                    return -1
                escaped[0] = True
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        else:
            return -1
        if size - pos < more or not low <= p[pos] <= high:
            return -1
        pos += 1
        while more > 1:
            if p[pos] & 0xC0 != 0x80:
                return -1
            pos += 1
            more -= 1
    return -1


cdef bytes unescape(Bytes p, Py_ssize_t size):
    """Returns the text of a string with escapes that `string_end` has accepted."""
    cdef bytes text = PyBytes_FromStringAndSize(NULL, size)
    cdef char *to = PyBytes_AS_STRING(text)
    cdef Py_ssize_t pos = 0
    cdef Py_ssize_t length = 0
    cdef long code
    while pos < size:
        if p[pos] != c"\\":
            to[length] = p[pos]
            pos += 1
            length += 1
        elif p[pos + 1] != c"u":
            to[length] = UNESCAPED[p[pos + 1]]
            pos += 2
            length += 1
        else:
            code = code_unit(p, pos, size)
            pos += 6
            if 0xD800 <= code <= 0xDBFF:
                code = 0x10000 + ((code - 0xD800) << 10) + code_unit(p, pos, size) - 0xDC00
                pos += 6
            length += put_utf8(to + length, code)
    return text[:length]


cdef Py_ssize_t put_utf8(char *to, long code) noexcept nogil:
    """Writes a character; returns its size."""
    if code < 0x80:
        to[0] = code
        return 1
    if code < 0x800:
        to[0] = 0xC0 | code >> 6
        to[1] = 0x80 | code & 0x3F
        return 2
    if code < 0x10000:
        to[0] = 0xE0 | code >> 12
        to[1] = 0x80 | code >> 6 & 0x3F
        to[2] = 0x80 | code & 0x3F
        return 3
    to[0] = 0xF0 | code >> 18
    to[1] = 0x80 | code >> 12 & 0x3F
    to[2] = 0x80 | code >> 6 & 0x3F
    to[3] = 0x80 | code & 0x3F
    return 4


cdef Py_ssize_t blank_line(Bytes p, Py_ssize_t pos, Py_ssize_t size) noexcept nogil:
    """Returns the position after the next two line feeds, or -1."""
    cdef Bytes found
    while pos < size:
        found = <Bytes>memchr(p + pos, c"\n", size - pos)
        if found == NULL:
            return -1
        pos = found - p + 1
        if pos < size and p[pos] == c"\n":
            return pos + 1
    return -1
