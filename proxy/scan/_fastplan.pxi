# A `GrammarPlan` with C types: part of `_fastparse.pyx`. The Python twin reads `_plan.py` itself.

cdef enum:
    NOTHING = 0
    WORD = 1
    PROSE = 2
    JSON = 3
    CODE = 4
    BRACES = 5
    NAME_ = 6  # `NAME` in the Python twin
    PRINTED = 7
    LOOSE = 8

if [getattr(_plan, name) for name in "NOTHING WORD PROSE JSON CODE BRACES NAME PRINTED LOOSE".split()] != list(range(9)):
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
    START


# Classes of bytes of text.
cdef enum:
    BEGINS = 1  # a marker may begin
    QUOTES = 2
    LINE_END = 4


cdef class _BlockSyntax:
    cdef object syntax  # the `BlockSyntax`
    cdef bytes closer, quote
    cdef tuple nodes
    cdef bint keyed, framed

    def __cinit__(self, syntax):
        self.syntax = syntax
        self.closer = syntax.closer.encode()
        self.quote = syntax.quote.encode()
        self.keyed = bool(syntax.first_keys)
        self.framed = syntax.framed


cdef class _PlanBranch:
    cdef bytes literal
    cdef Bytes p
    cdef Py_ssize_t size, taken
    cdef int read, then
    cdef str field
    cdef _BlockSyntax syntax

    def __cinit__(self, branch, _BlockSyntax syntax):
        self.literal = branch.literal
        self.p = bytes_at(self.literal)
        self.size = PyBytes_GET_SIZE(self.literal)
        self.taken = branch.taken
        self.read = branch.read
        self.field = branch.field
        self.then = branch.then
        self.syntax = syntax


cdef class _PlanNode:
    cdef tuple branches
    cdef _PlanBranch otherwise
    cdef bint ends, free, final, more
    cdef tuple closers, next
    cdef unsigned char firsts[256]

    def __cinit__(self, node, dict syntaxes):
        cdef _PlanBranch branch
        self.branches = tuple([_PlanBranch(one, syntaxes[one.syntax]) for one in node.branches])
        if node.otherwise is not None:
            self.otherwise = _PlanBranch(node.otherwise, syntaxes[node.otherwise.syntax])
        self.ends = node.ends
        self.free = node.free
        self.final = node.final
        self.more = node.more
        self.closers = node.closers
        self.next = node.next
        memset(self.firsts, 0, 256)
        for branch in self.branches:
            self.firsts[branch.p[0]] = 1


cdef class _Opener:
    cdef bytes literal
    cdef _BlockSyntax syntax
    cdef _PlanNode first
    cdef bint fence, frames, inner, untaught, loose, at_lines

    def __cinit__(self, opener, dict syntaxes):
        self.literal = opener.literal
        self.syntax = syntaxes[opener.syntaxes[0]]
        self.first = _PlanNode(opener.first, syntaxes)
        self.fence = any([syntax.fence for syntax in opener.syntaxes])
        self.frames = opener.frames
        self.inner = opener.inner
        self.untaught = opener.untaught
        self.loose = opener.loose
        self.at_lines = opener.anchor == "margin"


cdef class _Marker:
    cdef bytes literal
    cdef Bytes p
    cdef Py_ssize_t size
    cdef int anchor
    cdef _Opener opens
    cdef int reasoning
    cdef bint untaught, fence

    def __cinit__(self, marker, dict syntaxes):
        self.literal = marker.literal
        self.p = bytes_at(self.literal)
        self.size = PyBytes_GET_SIZE(self.literal)
        self.anchor = {"line": LINE, "margin": MARGIN, "after": AFTER, "start": START}.get(marker.anchor, ANYWHERE)
        self.opens = None if marker.opens is None else _Opener(marker.opens, syntaxes)
        self.reasoning = -1 if marker.reasoning is None else marker.reasoning
        self.untaught = marker.untaught
        self.fence = self.literal.startswith(FENCE)


cdef tuple by_first(markers, dict syntaxes):
    """Returns the markers that begin with each byte, in the order in which they are tried."""
    cdef list found = [[] for byte in range(256)]
    for marker in markers:
        found[marker.literal[0]].append(_Marker(marker, syntaxes))
    return tuple([tuple(some) for some in found])


cdef class _Plan:
    cdef tuple text, inside  # see `by_first`
    cdef _Opener answer, printed, loose
    cdef tuple taught
    cdef bint calls_inside, untaught
    cdef unsigned char begins[256]
    cdef unsigned char marks[256]  # the class of each byte
    cdef unsigned char begins_some[256]  # of `begun`
    cdef tuple begun
    cdef bytes firsts
    cdef Py_ssize_t longest

    def __cinit__(self, found):
        cdef _BlockSyntax native
        cdef unsigned char byte
        cdef dict syntaxes = {syntax: _BlockSyntax(syntax) for syntax in found.nodes}
        for syntax, nodes in found.nodes.items():
            native = syntaxes[syntax]
            native.nodes = tuple([_PlanNode(node, syntaxes) for node in nodes])
        self.text = by_first(found.text, syntaxes)
        self.inside = tuple([by_first(markers, syntaxes) for markers in found.inside])
        self.answer = None if found.answer is None else _Opener(found.answer, syntaxes)
        self.printed = None if found.printed is None else _Opener(found.printed, syntaxes)
        self.loose = None if found.loose is None else _Opener(found.loose, syntaxes)
        self.taught = tuple([_Marker(marker, syntaxes) for marker in found.taught])
        self.calls_inside = found.calls_inside
        self.untaught = found.untaught
        memset(self.begins, 0, 256)
        for byte in found.begins:
            self.begins[byte] = 1
        self.begun = found.begun
        memset(self.begins_some, 0, 256)
        for opener in found.begun:
            self.begins_some[opener[0]] = 1
        memset(self.marks, 0, 256)
        self.marks[c'"'] = QUOTES
        for byte in found.firsts:
            self.marks[byte] |= BEGINS
        byte = c"\n"
        self.marks[byte] |= LINE_END
        self.firsts = found.firsts
        self.longest = found.longest


cdef _Plan plan_of(grammar, reasoning, scan_calls):
    """Returns the plan of a grammar, created once."""
    found = plan(grammar, reasoning, scan_calls)
    if not found.native:
        found.native.append(_Plan(found))
    return found.native[0]
