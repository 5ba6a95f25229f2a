# A `Plan` with C types: part of `_fastparse.pyx`. The Python twin reads `_plan.py` itself.

cdef enum:
    NOTHING = 0
    WORD = 1
    PROSE = 2
    JSON = 3
    CODE = 4
    BRACES = 5
    NAME_ = 6  # `NAME` is what an `ObjectReader` waits for
    PRINTED = 7

if [getattr(_plan, name) for name in "NOTHING WORD PROSE JSON CODE BRACES NAME PRINTED".split()] != list(range(8)):
    raise ImportError("the kinds of fields have other numbers than the compiled scanner knows")

cdef enum:
    SURE
    LIKELY
    UNLIKELY

if (_plan.SURE, _plan.LIKELY, _plan.UNLIKELY) != (SURE, LIKELY, UNLIKELY):
    raise ImportError("the degrees of doubt have other numbers than the compiled scanner knows")

cdef enum:
    ANYWHERE
    LINE
    MARGIN
    AFTER


cdef class _Shape:
    cdef object shape  # as the judge knows it
    cdef bytes closer, quote
    cdef tuple stops
    cdef bint keyed, framed

    def __cinit__(self, shape):
        self.shape = shape
        self.closer = shape.closer.encode()
        self.quote = shape.quote.encode()
        self.keyed = bool(shape.first_keys)
        self.framed = shape.framed


cdef class _Step:
    cdef bytes literal
    cdef Bytes p
    cdef Py_ssize_t size, taken
    cdef int read, then
    cdef str field
    cdef _Shape shape

    def __cinit__(self, step, _Shape shape):
        self.literal = step.literal
        self.p = bytes_at(self.literal)
        self.size = PyBytes_GET_SIZE(self.literal)
        self.taken = step.taken
        self.read = step.read
        self.field = step.field
        self.then = step.then
        self.shape = shape


cdef class _Stop:
    cdef tuple steps
    cdef _Step otherwise
    cdef bint ends, free, final, more
    cdef tuple next
    cdef unsigned char firsts[256]

    def __cinit__(self, stop, dict shapes):
        cdef _Step step
        self.steps = tuple([_Step(one, shapes[one.shape]) for one in stop.steps])
        self.otherwise = None if stop.otherwise is None else _Step(stop.otherwise, shapes[stop.otherwise.shape])
        self.ends = stop.ends
        self.free = stop.free
        self.final = stop.final
        self.more = stop.more
        self.next = stop.next
        memset(self.firsts, 0, 256)
        for step in self.steps:
            self.firsts[step.p[0]] = 1


cdef class _Opener:
    cdef bytes literal
    cdef _Shape shape
    cdef _Stop first
    cdef bint fence, inner, untaught

    def __cinit__(self, opener, dict shapes):
        self.literal = opener.literal
        self.shape = shapes[opener.shapes[0]]
        self.first = _Stop(opener.first, shapes)
        self.fence = any([shape.fence for shape in opener.shapes])
        self.inner = opener.inner
        self.untaught = opener.untaught


cdef class _Marker:
    cdef bytes literal
    cdef Bytes p
    cdef Py_ssize_t size
    cdef int anchor
    cdef _Opener opens
    cdef int reasoning
    cdef bint untaught

    def __cinit__(self, marker, dict shapes):
        self.literal = marker.literal
        self.p = bytes_at(self.literal)
        self.size = PyBytes_GET_SIZE(self.literal)
        self.anchor = {"line": LINE, "margin": MARGIN, "after": AFTER}.get(marker.anchor, ANYWHERE)
        self.opens = None if marker.opens is None else _Opener(marker.opens, shapes)
        self.reasoning = -1 if marker.reasoning is None else marker.reasoning
        self.untaught = marker.untaught


cdef tuple by_first(markers, dict shapes):
    """The markers that begin with each byte, in the order in which they are tried."""
    cdef list found = [[] for byte in range(256)]
    for marker in markers:
        found[marker.literal[0]].append(_Marker(marker, shapes))
    return tuple([tuple(some) for some in found])


cdef class _Plan:
    cdef tuple text, inside  # see `by_first`
    cdef _Opener answer, printed
    cdef bint quotes
    cdef unsigned char begins[256]
    cdef unsigned char marks[256]
    cdef unsigned char begins_some[256]  # of `begun`
    cdef tuple begun
    cdef bytes firsts
    cdef Py_ssize_t longest

    def __cinit__(self, found):
        cdef _Shape native
        cdef unsigned char byte
        cdef dict shapes = {shape: _Shape(shape) for shape in found.stops}
        for shape, stops in found.stops.items():
            native = shapes[shape]
            native.stops = tuple([_Stop(stop, shapes) for stop in stops])
        self.text = by_first(found.text, shapes)
        self.inside = tuple([by_first(markers, shapes) for markers in found.inside])
        self.answer = None if found.answer is None else _Opener(found.answer, shapes)
        self.printed = None if found.printed is None else _Opener(found.printed, shapes)
        self.quotes = found.quotes
        memset(self.begins, 0, 256)
        for byte in found.begins:
            self.begins[byte] = 1
        self.begun = found.begun
        memset(self.begins_some, 0, 256)
        for opener in found.begun:
            self.begins_some[opener[0]] = 1
        memset(self.marks, 0, 256)
        for byte in found.firsts:
            self.marks[byte] = 1
        self.firsts = found.firsts
        self.longest = found.longest


cdef _Plan plan_of(grammar, reasoning, scan_calls):
    """The plan of a grammar, made once."""
    found = plan(grammar, reasoning, scan_calls)
    if not found.native:
        found.native.append(_Plan(found))
    return found.native[0]
