cimport cython


@cython.final
cdef class Form:
    cdef object syntax
    cdef bytes closer, quote
    cdef tuple nodes
    cdef bint keyed, framed


@cython.final
cdef class FormBranch:
    cdef bytes literal
    cdef Py_ssize_t size, taken
    cdef int read, then
    cdef str field
    cdef Form form


@cython.final
cdef class FormNode:
    cdef tuple branches
    cdef FormBranch otherwise
    cdef bint ends, free, final, more
    cdef tuple closers, next
    cdef bytes _firsts
    cdef const unsigned char *firsts
    cdef bint keyed
    cdef object _keyed
    cdef dict _forms

    cdef FormBranch closing(self, bytes closer)


@cython.final
cdef class FormOpener:
    cdef bytes literal
    cdef Form form
    cdef FormNode first
    cdef bint fence, frames, inner, untaught, loose, at_lines


@cython.final
cdef class Forms:
    cdef tuple begun
    cdef object quoted
    cdef bytes _begins
    cdef const unsigned char *begins
    cdef dict _forms, _openers
    cdef tuple taught
    cdef FormOpener loose
    cdef bint untaught

    @cython.locals(made=FormOpener)
    cdef FormOpener opener(self, object opener)


cdef int _fill(Form form, object nodes, dict forms) except -1
cdef bytes first_bytes(object literals)
