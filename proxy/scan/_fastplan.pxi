# A `GrammarPlan` with C types: part of `_fastparse.pyx`. The Python twin reads `_plan.py` itself.

cdef enum:
    ANYWHERE
    LINE
    MARGIN
    AFTER
    START


# Classes of bytes of text.
cdef enum:
    BEGINS = 1  # a marker may begin
    QUOTES = 2
    LINE_END = 4


cdef class _Marker:
    cdef bytes literal
    cdef Bytes p
    cdef Py_ssize_t size
    cdef int anchor
    cdef FormOpener opens
    cdef int reasoning
    cdef bint untaught, fence

    def __cinit__(self, marker, Forms forms):
        self.literal = marker.literal
        self.p = bytes_at(self.literal)
        self.size = PyBytes_GET_SIZE(self.literal)
        self.anchor = {"line": LINE, "margin": MARGIN, "after": AFTER, "start": START}.get(marker.anchor, ANYWHERE)
        self.opens = opener_of(marker.opens, forms)
        self.reasoning = -1 if marker.reasoning is None else marker.reasoning
        self.untaught = marker.untaught
        self.fence = self.literal.startswith(FENCE)


cdef FormOpener opener_of(opener, Forms forms):
    return None if opener is None else forms.opener(opener)


cdef tuple by_first(markers, Forms forms):
    """Returns the markers that begin with each byte, in the order in which they are tried."""
    cdef list found = [[] for byte in range(256)]
    for marker in markers:
        found[marker.literal[0]].append(_Marker(marker, forms))
    return tuple([tuple(some) for some in found])


cdef class _Plan:
    cdef Forms forms
    cdef tuple text, inside  # see `by_first`
    cdef FormOpener answer, printed, loose
    cdef tuple taught
    cdef bint calls_inside, untaught
    cdef unsigned char begins[256]
    cdef unsigned char marks[256]  # the class of each byte
    cdef bytes firsts
    cdef Py_ssize_t longest

    def __cinit__(self, found):
        cdef Forms forms = Forms(found)
        cdef unsigned char byte
        self.forms = forms
        self.text = by_first(found.text, forms)
        self.inside = tuple([by_first(markers, forms) for markers in found.inside])
        self.answer = opener_of(found.answer, forms)
        self.printed = opener_of(found.printed, forms)
        self.loose = opener_of(found.loose, forms)
        self.taught = tuple([_Marker(marker, forms) for marker in found.taught])
        self.calls_inside = found.calls_inside
        self.untaught = found.untaught
        memset(self.begins, 0, 256)
        for byte in found.begins:
            self.begins[byte] = 1
        memset(self.marks, 0, 256)
        self.marks[c'"'] = self.marks[c"~"] = QUOTES
        for byte in found.firsts:
            self.marks[byte] |= BEGINS
        byte = c"\n"
        self.marks[byte] |= LINE_END
        self.firsts = found.firsts
        self.longest = found.longest


cdef _Plan plan_of(grammar, reasoning, scan_calls):
    return plan(grammar, reasoning, scan_calls).prepared_for(_Plan)
