# Bytes, text and events through the C API: part of `_fastparse.pyx`. The Python twin uses the built-in types.

cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member
    object _PyObject_GC_New(PyTypeObject *type)
    PyTypeObject *Py_TYPE(PyObject *of) noexcept
    Py_ssize_t PyList_GET_SIZE(PyObject *events) noexcept
    PyObject *PyList_GET_ITEM(PyObject *events, Py_ssize_t index) noexcept

cdef extern from *:
    """
    /* True if there is only one reference. Unknown without the GIL, so false there. */
    #ifdef Py_GIL_DISABLED
    #define toolwire_is_single(object) 0
    #else
    #define toolwire_is_single(object) (Py_REFCNT(object) == 1)
    #endif

    /* Does `PyUnicode_AsUTF8AndSize`, for ASCII without a call. */
    static inline const unsigned char *toolwire_utf8(PyObject *text, Py_ssize_t *size)
    {
        if (PyUnicode_IS_COMPACT_ASCII(text)) {
            *size = PyUnicode_GET_LENGTH(text);
            return PyUnicode_1BYTE_DATA(text);
        }
        return (const unsigned char *)PyUnicode_AsUTF8AndSize(text, size);
    }

    /* Removes and returns the only item of a list; the list keeps its memory for the next item. */
    static inline PyObject *toolwire_take_only(PyObject *list)
    {
        PyObject *item = PyList_GET_ITEM(list, 0);
        Py_SET_SIZE((PyVarObject *)list, 0);
        return item;
    }

    /* Returns the first occurrence of a literal: memchr for its first byte, then a comparison. Literals are short and
       their first byte is rare in text; if it is frequent, the cost is at most size * length of the literal. */
    static const unsigned char *
    toolwire_find(const unsigned char *p, Py_ssize_t size, const unsigned char *literal, Py_ssize_t length)
    {
        const unsigned char *last = p + size - length;
        while (p <= last) {
            p = memchr(p, literal[0], (size_t)(last - p + 1));
            if (p == NULL)
                return NULL;
            if (memcmp(p, literal, (size_t)length) == 0)
                return p;
            p++;
        }
        return NULL;
    }

    /* Like `toolwire_find`, for a literal whose first byte is frequent in the text. Windows has no `memmem`. */
    #ifdef _WIN32
    #define toolwire_search toolwire_find
    #else
    #define toolwire_search(p, size, literal, length) \
        ((const unsigned char *)memmem(p, (size_t)(size), literal, (size_t)(length)))
    #endif
    """
    bint toolwire_is_single(PyObject *object) noexcept
    object toolwire_take_only(PyObject *list)
    const unsigned char *toolwire_utf8(str text, Py_ssize_t *size) noexcept  # NULL, with an exception set, for surrogates
    const unsigned char *toolwire_find(
        const unsigned char *p, Py_ssize_t size, const unsigned char *literal, Py_ssize_t length) nogil
    const unsigned char *toolwire_search(
        const unsigned char *p, Py_ssize_t size, const unsigned char *literal, Py_ssize_t length) nogil

ctypedef const unsigned char *Bytes

# Classes of bytes, as bits.
cdef enum:
    SPACE = 1
    LETTER = 2
    SCALAR = 4
    NAMED = 8

cdef unsigned char CLASS[256]
memset(CLASS, 0, 256)
for _byte in range(128):
    if chr(_byte) in _grammar.SPACE:
        CLASS[_byte] |= SPACE
    if chr(_byte).isalpha():
        CLASS[_byte] |= LETTER
    if chr(_byte).isalnum() or chr(_byte) in "+-.":
        CLASS[_byte] |= SCALAR
    if chr(_byte).isalnum() or chr(_byte) in "_.-":
        CLASS[_byte] |= NAMED
del _byte

cdef enum:
    FIRSTS = 16
    WORDS = 256
    BRIEF = 32  # the first bytes are compared one by one, before a search per first byte of the markers

if max(_grammar.LITERAL_BYTES, _grammar.WORD_BYTES) > WORDS:
    raise ImportError("LITERAL_BYTES or WORD_BYTES is larger than the compiled scanner can keep")
if _grammar.MAX_FIRSTS > FIRSTS:
    raise ImportError("MAX_FIRSTS is larger than the compiled scanner can keep")


cdef inline Bytes bytes_at(bytes data):
    return <Bytes>PyBytes_AS_STRING(data)


cdef inline str text_of(Bytes p, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)


cdef Py_ssize_t slot_of(type cls, str name) except -1:
    """Returns the offset of a slot in objects of `cls`."""
    return (<PyMemberDescrObject *><PyObject *>cls.__dict__[name]).d_member.offset


cdef PyTypeObject *DELTA = <PyTypeObject *>Delta
cdef Py_ssize_t BLOCK_SLOT = slot_of(Delta, "block")
cdef Py_ssize_t TEXT_SLOT = slot_of(Delta, "text")
cdef Py_ssize_t EXTRA_SLOT = slot_of(Delta, "extra")
if Delta.__basicsize__ != object.__basicsize__ + 3 * sizeof(void *):
    raise ImportError("a Delta has more slots than the compiled scanner fills")


cdef inline PyObject **slot(PyObject *event, Py_ssize_t offset) noexcept:
    return <PyObject **>(<char *>event + offset)


cdef inline void fill(object event, Py_ssize_t offset, object value) noexcept:
    Py_INCREF(value)
    slot(<PyObject *>event, offset)[0] = <PyObject *>value


cdef inline object new_delta(object block, str text):
    """Returns `Delta(block, text)`, built without calling the Python class, which would cost more than the rest of the
    scanner per token. It is not tracked by the garbage collector, because an int and a str form no cycle."""
    event = _PyObject_GC_New(DELTA)
    fill(event, BLOCK_SLOT, block)
    fill(event, TEXT_SLOT, text)
    fill(event, EXTRA_SLOT, None)
    return event


cdef inline bint renew(PyObject *event, object block, str text) noexcept:
    """Reuses `event`, an earlier delta, for this one if it has no other references (as `zip` reuses its tuples).
    Returns whether it did."""
    cdef PyObject *said
    if not toolwire_is_single(event) or Py_TYPE(event) != DELTA or slot(event, BLOCK_SLOT)[0] != <PyObject *>block:
        return False
    if slot(event, EXTRA_SLOT)[0] != <PyObject *>None:
        return False
    said = slot(event, TEXT_SLOT)[0]
    fill(<object>event, TEXT_SLOT, text)
    Py_XDECREF(said)
    return True


cdef inline bint say_again(PyObject *events, object block, str text) noexcept:
    """Reuses `events`, a list with the previous delta, for this one if neither has other references. Returns whether
    it did."""
    return toolwire_is_single(events) and PyList_GET_SIZE(events) == 1 and renew(PyList_GET_ITEM(events, 0), block, text)


cdef inline int append(bytearray to, Bytes p, Py_ssize_t size) except -1:
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(to)
    if size > 0:
        PyByteArray_Resize(to, before + size)
        memcpy(PyByteArray_AS_STRING(to) + before, p, size)
    return 0
