# What is quoted in Markdown: part of `_fastparse.pyx`, the twin of `_pyquoting.py`.

cdef unsigned char TICK = _plan.TICK[0]


cdef struct Quoting:
    Py_ssize_t fence
    Py_ssize_t span
    Py_ssize_t run
    bint string
    bint line
    bint margin
    bint active  # anything of this but a fence may be open


cdef inline bint is_quoted(Quoting *quoting) noexcept nogil:
    return quoting.fence or quoting.span


cdef void end_line(Quoting *quoting) noexcept nogil:
    end_run(quoting, c"\n")
    quoting.span = 0
    quoting.string = quoting.line = quoting.active = False


cdef inline Py_ssize_t next_mark(Bytes p, Py_ssize_t at, Py_ssize_t end, bint ends) noexcept nogil:
    """The next tick or quotation mark before `end`, or line end if it `ends` something; `end` if there is none."""
    cdef Py_ssize_t near = min(end, at + BRIEF)
    while at < near:
        if CLASS[p[at]] & MARK or (ends and p[at] == c"\n"):
            return at
        at += 1
    return far_mark(p, at, end, ends) if at < end else end


cdef Py_ssize_t far_mark(Bytes p, Py_ssize_t at, Py_ssize_t end, bint ends) noexcept nogil:
    cdef Py_ssize_t size = BRIEF  # of what is searched, growing: no search goes much further than what it finds
    cdef Py_ssize_t stop, found_at
    cdef Bytes found
    while at < end:
        size *= 2
        stop = found_at = min(end, at + size)
        found = <Bytes>memchr(p + at, TICK, found_at - at)
        found_at = found_at if found == NULL else found - p
        found = <Bytes>memchr(p + at, c'"', found_at - at)
        found_at = found_at if found == NULL else found - p
        found = <Bytes>memchr(p + at, c"\n", found_at - at) if ends else NULL
        found_at = found_at if found == NULL else found - p
        if found_at < stop:
            return found_at
        at = stop
    return end


cdef inline void read_quoting(Quoting *quoting, Bytes p, Py_ssize_t pos, Py_ssize_t end, bint margin) noexcept nogil:
    cdef Py_ssize_t at = pos if quoting.active else next_mark(p, pos, end, False)
    if at < end:
        read_marks(quoting, p, pos, at, end, margin)
        quoting.active = (quoting.run | quoting.span | quoting.line | quoting.string) != 0


cdef void read_marks(
    Quoting *quoting, Bytes p, Py_ssize_t pos, Py_ssize_t at, Py_ssize_t end, bint margin
) noexcept nogil:
    while at < end:
        if not quoting.run:
            at = next_mark(p, at, end, quoting.span or quoting.line or quoting.string)
            if at == end:
                return
            if p[at] == c"\n":
                quoting.span = 0
                quoting.string = quoting.line = False
                at += 1
                continue
            if p[at] != TICK:
                quoting.string = not (quoting.string or quoting.fence or quoting.span)
                at += 1
                continue
            quoting.margin = is_margin(p, pos, at, margin)
        while at < end and p[at] == TICK:
            quoting.run += 1
            at += 1
        if at < end:
            end_run(quoting, p[at])


cdef inline bint is_word(unsigned char byte) noexcept nogil:
    return CLASS[byte] & LETTER or c"0" <= byte <= c"9"


cdef void end_run(Quoting *quoting, unsigned char behind) noexcept nogil:
    cdef Py_ssize_t run = quoting.run
    if not run:
        return
    quoting.run = 0
    if quoting.line:  # no fence after all, since another tick stands in its line
        quoting.span = quoting.fence
        quoting.fence = 0
        quoting.line = False
    if quoting.fence:
        if quoting.margin and run >= quoting.fence and not is_word(behind):
            quoting.fence = 0
    elif quoting.margin and run >= 3:
        quoting.fence = run
        quoting.line = behind != c"\n"
        quoting.string = False
    elif quoting.span == run:
        quoting.span = 0
    elif not quoting.span:
        quoting.span = run


cdef inline bint is_margin(Bytes p, Py_ssize_t pos, Py_ssize_t at, bint margin) noexcept nogil:
    """Whether nothing but blanks stands in the line before `at`; what stands before `pos` says `margin`."""
    while at > pos and (p[at - 1] == c" " or p[at - 1] == c"\t"):
        at -= 1
    return margin if at == pos else p[at - 1] == c"\n"
