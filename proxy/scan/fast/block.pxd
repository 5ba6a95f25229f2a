cimport cython

from .. cimport octets
from .buffer cimport Buffer
from .fields cimport FieldReader
from .forms cimport Form, FormBranch, FormNode, FormOpener, Forms
from .sending cimport StringSender

cdef int BODY, BROKEN, END, HELD, KEY, LEAD, TAIL
cdef int CODE, JSON, LIKELY, LOOSE, NESTED, NOTHING, PROSE, SURE, UNLIKELY
cdef int ALONE, CLOSER, OPENER
cdef int AT_BRANCH, BY_ITSELF, GOES_ON, NO_FIELD, NO_KEY
cdef int OPEN, WHOLE_BLOCK, FRAMING, UNFINISHED, NO_BLOCK
cdef Py_ssize_t TO_CLOSER, WORD_BYTES, _NO_CALL, _NO_QUOTE
cdef bytes _FENCE


@cython.final
cdef class BlockReader:
    cdef Buffer _buffer
    cdef object _policy
    cdef FieldReader _fields
    cdef object _closers, _beyond
    cdef Py_ssize_t _limit
    cdef int state, outcome
    cdef bytes opener, closer
    cdef Form form
    cdef bint untaught, loose, inner, closed, broken, more
    cdef list pieces
    cdef Py_ssize_t body_end, head
    cdef int _around
    cdef str why
    cdef FormNode _node
    cdef Py_ssize_t _gap, _word_at, _mark
    cdef bytearray _word
    cdef int _then, _doubt
    cdef bint _may_end, _fence, _fenced
    cdef Py_ssize_t _quotes, _quoted
    cdef FormBranch _proving

    cdef int read_as(self, Forms forms, Py_ssize_t limit) except -1
    cdef Py_ssize_t open(self, FormOpener opener, Py_ssize_t at, int around) except -1
    @cython.locals(end=Py_ssize_t, state=cython.int)
    cdef Py_ssize_t read(self, Py_ssize_t pos) except -1
    @cython.locals(
        end=Py_ssize_t, at=Py_ssize_t, fields=FieldReader, node=FormNode, form=Form, named=bint, resting=bint
    )
    cdef Py_ssize_t end(self, bint truncated) except -1
    cdef object frames(self, Py_ssize_t upto)
    @cython.locals(named=bint)
    cdef bint is_only_a_name(self) except -1

    cdef Py_ssize_t _go_to(self, FormNode node, Py_ssize_t pos) except -1
    @cython.locals(
        node=FormNode,
        word=bytearray,
        at=Py_ssize_t,
        byte=cython.uchar,
        fits=bint,
        may_fence=bint,
        branch=FormBranch,
        opener=bytes,
    )
    cdef Py_ssize_t _read_node(self, Py_ssize_t pos, Py_ssize_t end) except -1
    @cython.locals(node=FormNode, branch=FormBranch)
    cdef Py_ssize_t _otherwise(self, Py_ssize_t at) except -1
    @cython.locals(start=Py_ssize_t)
    cdef Py_ssize_t _text_begins(self, FormBranch branch, Py_ssize_t at) except -1
    cdef bint _has_content(self) except -1
    @cython.locals(closer=bytes)
    cdef bint _closes(self) except -1
    @cython.locals(upto=Py_ssize_t)
    cdef Py_ssize_t _next_begins(self) except -1
    @cython.locals(form=Form, node=FormNode)
    cdef Py_ssize_t _take(self, FormBranch branch, Py_ssize_t pos) except -1

    @cython.locals(start=Py_ssize_t)
    cdef int _doubt_of(self, FormBranch branch, Py_ssize_t at) except -1
    @cython.locals(start=Py_ssize_t, text=bytes, forms=Forms)
    cdef bint _is_quoted(self, Py_ssize_t at, Py_ssize_t size) except -1
    cdef Py_ssize_t _doubt_more(self, FormBranch branch, Py_ssize_t pos) except -1
    @cython.locals(branch=FormBranch, word=bytearray, at=Py_ssize_t, byte=cython.uchar, inside=bint, tag=bytes)
    cdef Py_ssize_t _read_tag(self, Py_ssize_t pos, Py_ssize_t end) except -1
    cdef int _be_sure(self) except -1
    @cython.locals(again=Py_ssize_t, ended=Py_ssize_t)
    cdef Py_ssize_t _read_on(self, Py_ssize_t at) except -1

    @cython.locals(fields=FieldReader, at=Py_ssize_t, fits_not=bint)
    cdef Py_ssize_t _read_field(self, Py_ssize_t pos, Py_ssize_t end) except -1
    @cython.locals(ended=Py_ssize_t)
    cdef Py_ssize_t _field_ended_itself(self, Py_ssize_t at) except -1
    @cython.locals(fields=FieldReader, branch=FormBranch, text=bytes, ended=Py_ssize_t)
    cdef Py_ssize_t _field_ended(self, Py_ssize_t at) except -1
    cdef int _keep(self, Py_ssize_t upto) except -1

    cdef Py_ssize_t _mention(self, Py_ssize_t at) except -1
    @cython.locals(in_field=bint, named=bint, whole=bint)
    cdef Py_ssize_t _break(self, Py_ssize_t at) except -1
    cdef Py_ssize_t _look_again(self, int state, object beyond) except -1
    @cython.locals(upto=Py_ssize_t, found=cython.int)
    cdef Py_ssize_t _search(self, Py_ssize_t pos, Py_ssize_t end) except -1
    @cython.locals(at=Py_ssize_t)
    cdef Py_ssize_t _oversize(self, Py_ssize_t end) except -1

    cdef Py_ssize_t _ends_at_mark(self) except -1
    cdef Py_ssize_t _closed(self, Py_ssize_t upto, Py_ssize_t body_end) except -1
    cdef Py_ssize_t _given_up(self, Py_ssize_t upto) except -1
    cdef Py_ssize_t _whole(self, Py_ssize_t upto, Py_ssize_t body_end, bint closed, bint broken) except -1
    cdef Py_ssize_t _unfinished(self, Py_ssize_t end, str why) except -1
    cdef Py_ssize_t _none(self, Py_ssize_t at) except -1


cdef bint _is_letter(unsigned char byte) noexcept
