# The outline of a JSON text, and what was made of it: part of `_fastparse.pyx`, the twin of `_pyoutline.py`.

cdef extern from *:
    """
    /* At most 255 matches fit into a byte. Byte counters let the compiler count many positions with one instruction. */
    static void
    toolwire_json_marks(const unsigned char *p, Py_ssize_t size, Py_ssize_t *found)
    {
        const unsigned char *end = p + size;
        while (p < end) {
            const unsigned char *stop = end - p > 240 ? p + 240 : end;
            unsigned char openers = 0, commas = 0, quotes = 0;
            for (; p < stop; p++) {
                openers += (*p & 0xdf) == '[';
                commas += *p == ',';
                quotes += *p == '"';
            }
            found[0] += openers;
            found[1] += commas;
            found[2] += quotes;
        }
    }

    /* Returns the closing quote of the string whose content begins at `p`; `end` if there is none. */
    static const unsigned char *
    toolwire_string_end(const unsigned char *p, const unsigned char *end)
    {
        const unsigned char *begin = p;
        while (p < end) {
            const unsigned char *quote = memchr(p, '"', (size_t)(end - p));
            if (quote == NULL)
                return end;
            const unsigned char *run = quote;
            while (run > begin && run[-1] == '\\\\')
                run--;
            if ((quote - run) % 2 == 0)
                return quote;
            begin = p = quote + 1;
        }
        return end;
    }

    static Py_ssize_t
    toolwire_common_length(const unsigned char *one, const unsigned char *other, Py_ssize_t size)
    {
        Py_ssize_t at = 0;
        while (at + 4096 <= size && memcmp(one + at, other + at, 4096) == 0)
            at += 4096;
        while (at < size && one[at] == other[at])
            at++;
        return at;
    }
    """
    void toolwire_json_marks(Bytes p, Py_ssize_t size, Py_ssize_t *found) noexcept nogil
    Bytes toolwire_string_end(Bytes p, Bytes end) noexcept nogil
    Py_ssize_t toolwire_common_length(Bytes one, Bytes other, Py_ssize_t size) noexcept nogil

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text) noexcept
    bint PyUnicode_IS_COMPACT_ASCII(object text) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object text) noexcept
    int PyUnicode_KIND(object text) noexcept
    void *PyUnicode_DATA(object text) noexcept
    object PyUnicode_FromKindAndData(int kind, const void *data, Py_ssize_t size)


def json_marks(bytes text not None):
    """Returns the numbers of opening brackets, commas and quotes in `text`, including those inside strings."""
    cdef Py_ssize_t[3] found = [0, 0, 0]
    toolwire_json_marks(<Bytes>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), found)
    return found[0], found[1], found[2]


def array_start(bytes text not None, bytes key not None):
    """Returns the position after the opening bracket of the array in field `key`; -1 if the object has no array there.
    `key` includes its quotes."""
    cdef Bytes begin = <Bytes>PyBytes_AS_STRING(text)
    cdef Bytes end = begin + PyBytes_GET_SIZE(text)
    cdef Bytes wanted = <Bytes>PyBytes_AS_STRING(key)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(key), depth = 0
    cdef Bytes p = begin
    cdef Bytes close
    cdef unsigned char byte
    cdef bint named = False, meant = False, follows = False
    while p < end:
        byte = p[0]
        if byte == c' ' or byte == c'\t' or byte == c'\r' or byte == c'\n':
            p += 1
            continue
        if follows and byte != c'[' and byte != c'{':
            return -1
        follows = False
        if byte == c'"':
            close = toolwire_string_end(p + 1, end)
            if depth == 1 and not named:
                named = True
                meant = close + 1 - p == size and close < end and memcmp(p, wanted, size) == 0
            p = close
        elif byte == c'[' or byte == c'{':
            if depth == 1 and meant:
                return p + 1 - begin if byte == c'[' else -1
            depth += 1
        elif byte == c']' or byte == c'}':
            depth -= 1
        elif depth == 1:
            if byte == c',':
                named = meant = False
            elif byte == c':':
                follows = meant
        p += 1
    return -1


def item_ends(bytes text not None, Py_ssize_t start, Py_ssize_t most=maxsize):
    """Returns the positions of the comma or bracket after each of the next items of an array, at most `most`. `start` is
    the position after the opening bracket, or an earlier result, to continue after that item."""
    cdef Bytes begin = <Bytes>PyBytes_AS_STRING(text)
    cdef Bytes end = begin + PyBytes_GET_SIZE(text)
    cdef Bytes p = begin + start
    cdef Py_ssize_t depth = 0
    cdef unsigned char byte
    cdef bint filled = False
    cdef list ends = []
    if p < end and p[0] == c',':
        p += 1
    while p < end:
        byte = p[0]
        if byte == c'"':
            filled = True
            p = toolwire_string_end(p + 1, end)
        elif byte == c'[' or byte == c'{':
            filled = True
            depth += 1
        elif byte == c']' or byte == c'}':
            depth -= 1
            if depth < 0:
                if filled or ends:
                    ends.append(p - begin)
                break
        elif byte == c',':
            if depth == 0:
                ends.append(p - begin)
                if PyList_GET_SIZE(<PyObject *>ends) == most:
                    break
        elif byte != c' ' and byte != c'\t' and byte != c'\r' and byte != c'\n':
            filled = True
        p += 1
    return ends


def common_length(bytes one not None, Py_ssize_t start, bytes other not None, Py_ssize_t other_start):
    """Returns the length of the common prefix of `one[start:]` and `other[other_start:]` in bytes."""
    cdef Py_ssize_t size = min(PyBytes_GET_SIZE(one) - start, PyBytes_GET_SIZE(other) - other_start)
    return toolwire_common_length(
        <Bytes>PyBytes_AS_STRING(one) + start, <Bytes>PyBytes_AS_STRING(other) + other_start, max(size, 0)
    )


def same_items(tuple one not None, tuple other not None):
    """Returns the number of first items that are the same objects in both."""
    cdef Py_ssize_t size = min(PyTuple_GET_SIZE(one), PyTuple_GET_SIZE(other)), at = 0
    while at < size and PyTuple_GET_ITEM(one, at) == PyTuple_GET_ITEM(other, at):
        at += 1
    return at


cdef Py_ssize_t VALUE_BYTES = _pyoutline.VALUE_BYTES
cdef Py_ssize_t SMALL_BYTES = _pyoutline.SMALL_BYTES
cdef Py_ssize_t EMPTY_BYTES = getsizeof(b"")
cdef Py_ssize_t EMPTY_TEXT = getsizeof("")
cdef Py_ssize_t EMPTY_TUPLE = getsizeof(())
cdef Py_ssize_t YIELD_VALUES = 4096


def bytes_of(values, of=()):
    """Returns the approximate memory of these values: texts, numbers, containers, and model objects. Texts that occur
    in the values `of` as well are not counted: they are counted where those values are stored."""
    cdef set seen = set()
    if of:
        _add_up(list(of), seen)
    return _add_up(list(values), seen)


cdef Py_ssize_t _add_up(list todo, set seen) except -1:
    cdef Py_ssize_t total = 0, until = YIELD_VALUES
    cdef object value, ident
    while todo:
        until -= 1
        if not until:
            until = YIELD_VALUES
            with nogil:  # large values are weighed in a thread, and the event loop may be waiting for the GIL
                pass
        value = todo.pop()
        if not value:  # empty values are shared objects
            continue
        if type(value) is str or type(value) is bytes:
            ident = <Py_ssize_t><void *>value
            if ident in seen:
                continue
            seen.add(ident)
            if type(value) is bytes:
                total += EMPTY_BYTES + PyBytes_GET_SIZE(value)
            elif PyUnicode_IS_COMPACT_ASCII(value):  # as `getsizeof`, in a tenth of the time
                total += EMPTY_TEXT + PyUnicode_GET_LENGTH(value)
            else:
                total += getsizeof(value)
        elif type(value) is tuple:
            total += EMPTY_TUPLE + PyTuple_GET_SIZE(value) * <Py_ssize_t>sizeof(void *)
            todo.extend(<tuple>value)
        elif type(value) is list:
            total += getsizeof(value)
            todo.extend(<list>value)
        elif type(value) is dict:
            total += getsizeof(value)
            todo.extend(<dict>value)
            todo.extend((<dict>value).values())
        elif type(value) is int or type(value) is float or type(value) is bool:
            total += SMALL_BYTES
        elif (fields := getattr(type(value), "_values", None)) is not None:
            total += VALUE_BYTES
            todo.extend(fields(value))
        elif isinstance(value, Mapping):
            total += getsizeof(value)
            todo.extend(value.keys())
            todo.extend(value.values())
        else:
            total += SMALL_BYTES
    return total


def has_duplicates(bytes text not None, value):
    """Returns True if an object of the JSON `text` has the same key twice. `value` is the result of
    `orjson.loads(text)`."""
    cdef Bytes p = <Bytes>PyBytes_AS_STRING(text)
    cdef Bytes end = p + PyBytes_GET_SIZE(text)
    cdef Py_ssize_t keys = 0
    cdef list todo = [value]
    while p < end:  # colons outside of strings
        if p[0] == c'"':
            p = toolwire_string_end(p + 1, end)
        elif p[0] == c':':
            keys += 1
        p += 1
    while todo:
        node = todo.pop()
        if type(node) is dict:
            keys -= len(<dict>node)
            for inner in (<dict>node).values():
                if type(inner) is dict or type(inner) is list:
                    todo.append(inner)
        elif type(node) is list:
            for inner in <list>node:
                if type(inner) is dict or type(inner) is list:
                    todo.append(inner)
    return keys != 0


def with_own_texts(value):
    """Returns a JSON value with copies of its texts that are not ASCII. Some libraries store the UTF-8 form of such a
    text in the text object, which doubles its memory."""
    if type(value) is str:
        if PyUnicode_IS_ASCII(value):
            return value
        return PyUnicode_FromKindAndData(PyUnicode_KIND(value), PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value))
    if type(value) is dict:
        return {key: with_own_texts(inner) for key, inner in (<dict>value).items()}
    if type(value) is list:
        return [with_own_texts(inner) for inner in <list>value]
    return value
