# Following a JSON object: part of `_fastparse.pyx`, the twin of `_pyjson.py`.

# What `ObjectReader` waits for.
cdef enum:
    VALUE
    ITEM
    NAME
    COLON
    NEXT
    STRING
    RUN
    WHOLE
    WRONG

cdef enum:
    DEPTH_BYTES = 128

cdef int MAX_DEPTH = _grammar.MAX_DEPTH
if MAX_DEPTH > 8 * DEPTH_BYTES:
    raise ImportError("MAX_DEPTH is larger than the compiled scanner can follow")


cdef struct ObjectReader:
    int mode
    int depth
    bint is_name
    bint escaped
    unsigned char arrays[DEPTH_BYTES]


cdef void begin(ObjectReader *reader) noexcept nogil:
    reader.mode = VALUE
    reader.depth = 0
    reader.is_name = False
    reader.escaped = False


cdef inline bint in_array(ObjectReader *reader) noexcept nogil:
    cdef int level = reader.depth - 1
    return level >= 0 and reader.arrays[level >> 3] >> (level & 7) & 1


cdef inline void push(ObjectReader *reader, bint array) noexcept nogil:
    cdef int level = reader.depth
    if level == MAX_DEPTH:
        reader.mode = WRONG
        return
    reader.depth = level + 1
    if array:
        reader.arrays[level >> 3] |= 1 << (level & 7)
        reader.mode = ITEM
    else:
        reader.arrays[level >> 3] &= ~(1 << (level & 7))
        reader.mode = NAME


cdef inline Py_ssize_t read_string(ObjectReader *reader, Bytes p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef unsigned char byte
    if reader.escaped:
        reader.escaped = False
        pos += 1
    while pos < end:
        byte = p[pos]
        if byte == c'"':
            reader.mode = COLON if reader.is_name else NEXT
            return pos + 1
        if byte == c"\\":
            pos += 2
            if pos > end:
                reader.escaped = True
                return end
        else:
            pos += 1
    return pos


cdef inline Py_ssize_t read_object(ObjectReader *reader, Bytes p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef unsigned char byte
    cdef int mode
    while pos < end:
        mode = reader.mode
        if mode == STRING:
            pos = read_string(reader, p, pos, end)
            continue
        byte = p[pos]
        if mode == RUN:
            if CLASS[byte] & SCALAR:
                pos += 1
            else:
                reader.mode = NEXT
            continue
        if CLASS[byte] & SPACE:
            pos += 1
            continue
        if byte == c'"' and (mode == VALUE or mode == ITEM or mode == NAME):
            reader.is_name = mode == NAME
            reader.mode = STRING
        elif byte == c"{" and (mode == VALUE or mode == ITEM):
            push(reader, False)
        elif byte == c"[" and (mode == VALUE or mode == ITEM):
            push(reader, True)
        elif byte == (c"]" if in_array(reader) else c"}") and (mode == ITEM or mode == NAME or mode == NEXT):
            reader.depth -= 1
            reader.mode = NEXT if reader.depth else WHOLE
        elif byte == c"," and mode == NEXT:
            reader.mode = ITEM if in_array(reader) else NAME
        elif byte == c":" and mode == COLON:
            reader.mode = VALUE
        elif CLASS[byte] & SCALAR and (mode == VALUE or mode == ITEM):
            reader.mode = RUN
        else:
            reader.mode = WRONG
        if reader.mode == WRONG:
            return pos
        pos += 1
        if reader.mode == WHOLE:
            return pos
    return pos
