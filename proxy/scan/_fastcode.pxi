# Following what is not JSON: part of `_fastparse.pyx`, the twin of `_pycode.py`.

# What a reader waits for, besides those of `ObjectReader`.
cdef enum:
    FIRST = 20
    CALLEE
    INSIDE
    QUOTED

cdef enum:
    STACK = 1024

if MAX_DEPTH > STACK:
    raise ImportError("MAX_DEPTH is larger than the compiled scanner can follow")


cdef struct CodeReader:
    int mode
    int depth
    bint listed
    bint inside
    bint escaped
    unsigned char quote
    unsigned char stack[STACK]


cdef void begin_code(CodeReader *reader, bint listed) noexcept nogil:
    reader.mode = FIRST
    reader.listed = listed
    reader.depth = 0
    reader.quote = 0
    reader.inside = False
    reader.escaped = False


cdef inline unsigned char closing(unsigned char bracket) noexcept nogil:
    return c")" if bracket == c"(" else c"]" if bracket == c"[" else c"}"


cdef inline void push_bracket(CodeReader *reader, unsigned char bracket) noexcept nogil:
    if reader.depth == MAX_DEPTH:
        reader.mode = WRONG
        return
    reader.stack[reader.depth] = bracket
    reader.depth += 1
    reader.inside = True
    reader.mode = INSIDE


cdef inline void begin_code_object(CodeReader *reader) noexcept nogil:
    begin_code(reader, False)
    push_bracket(reader, c"{")


cdef Py_ssize_t read_code(CodeReader *reader, Bytes p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef unsigned char byte
    cdef int mode
    while pos < end:
        byte = p[pos]
        mode = reader.mode
        if mode == STRING:
            if reader.escaped:
                reader.escaped = False
            elif byte == reader.quote:
                reader.mode = QUOTED
            elif byte == c"\\":
                reader.escaped = True
        elif mode == QUOTED:
            if byte == c"," or byte == c")" or byte == c"]" or byte == c"}" or byte == c":":
                reader.mode = INSIDE
                continue
            if not CLASS[byte] & SPACE and byte != reader.quote:
                reader.mode = STRING
                continue
        elif mode == INSIDE:
            if byte == c"'" or byte == c'"':
                reader.quote = byte
                reader.mode = STRING
            elif byte == c"(" or byte == c"[" or byte == c"{":
                push_bracket(reader, byte)
            elif byte == c")" or byte == c"]" or byte == c"}":
                if closing(reader.stack[reader.depth - 1]) != byte:
                    reader.mode = WRONG
                else:
                    reader.depth -= 1
                    if reader.depth == 0:
                        reader.mode = WHOLE
        elif mode == CALLEE:
            if byte == c"(":
                push_bracket(reader, byte)
            elif not CLASS[byte] & NAMED and byte < 0x80:
                reader.mode = WRONG
        elif byte == c"[" and reader.listed and reader.depth == 0:
            reader.stack[0] = byte
            reader.depth = 1
        elif byte == c"{" and reader.depth:
            push_bracket(reader, byte)
        elif CLASS[byte] & LETTER or byte == c"_" or byte >= 0x80:
            reader.mode = CALLEE
        elif not (CLASS[byte] & SPACE and reader.depth):
            reader.mode = WRONG
        if reader.mode == WRONG:
            return pos
        pos += 1
        if reader.mode == WHOLE:
            return pos
    return pos


cdef struct BracesReader:
    int mode
    int depth
    Bytes literal
    Py_ssize_t length
    Py_ssize_t matched
    unsigned char stack[STACK]


cdef void begin_braces(BracesReader *reader, Bytes literal, Py_ssize_t length) noexcept nogil:
    reader.mode = INSIDE
    reader.depth = 0
    reader.literal = literal
    reader.length = length
    reader.matched = 0


cdef Py_ssize_t read_braces(BracesReader *reader, Bytes p, Py_ssize_t pos, Py_ssize_t end) noexcept nogil:
    cdef unsigned char byte
    while pos < end:
        byte = p[pos]
        if byte == reader.literal[reader.matched]:
            reader.matched += 1
            if reader.matched == reader.length:
                reader.matched = 0
                reader.mode = INSIDE if reader.mode == STRING else STRING
        elif reader.mode == STRING:
            reader.matched = byte == reader.literal[0]
        elif reader.matched:
            reader.mode = WRONG
        elif byte == c"{" or byte == c"[":
            if reader.depth == MAX_DEPTH:
                reader.mode = WRONG
            else:
                reader.stack[reader.depth] = byte
                reader.depth += 1
        elif byte == c"}" or byte == c"]":
            if closing(reader.stack[reader.depth - 1]) != byte:
                reader.mode = WRONG
            else:
                reader.depth -= 1
                if reader.depth == 0:
                    reader.mode = WHOLE
        if reader.mode == WRONG:
            return pos
        pos += 1
        if reader.mode == WHOLE:
            return pos
    return pos
