cimport cython

from .. cimport octets
from .buffer cimport Buffer
from .code cimport BracesReader, CodeReader
from .forms cimport Form, FormBranch, FormNode, FormOpener, Forms
from .json cimport ObjectReader
from .sending cimport StringSender

cdef int BRACES, CODE, JSON, LOOSE, NAME, NOTHING, PRINTED, PROSE, WORD
cdef int STRING, WHOLE, WRONG
cdef int GOES_ON, BY_ITSELF, AT_BRANCH, NO_KEY, NO_FIELD, NO_CALL
cdef Py_ssize_t LITERAL_BYTES, WORD_BYTES
cdef bytes NAMED, _AROUND_KEY
cdef Py_ssize_t _KEY_BYTES
cdef unsigned char _LESS


@cython.final
cdef class FieldReader:
    cdef Buffer _buffer
    cdef object _policy, live
    cdef StringSender _sender
    cdef Forms forms
    cdef int kind, found
    cdef str field
    cdef Py_ssize_t start
    cdef bint in_key, followed
    cdef FormBranch branch
    cdef bytes text
    cdef bytes _opener, _overlap
    cdef bint _untaught, _followable, _worded, _ended, _cut
    cdef FormNode _node
    cdef bint _keyed
    cdef bytes _key_tag, _key_closer
    cdef object _key
    cdef ObjectReader _json
    cdef CodeReader _code
    cdef BracesReader _braces
    cdef list _late
    cdef object _pieces
    cdef Py_ssize_t _short

    cdef int begin_block(self, FormOpener opener, list pieces, bint quoted) except -1
    cdef int begin(self, FormBranch branch, FormNode node, Py_ssize_t at, bint first) except -1
    cdef int _begin_key(self, FormBranch branch) except -1
    cdef int reach_back(self, Py_ssize_t start, bytes overlap) except -1
    cdef int go_on(self, bytes more, bytes overlap) except -1
    @cython.locals(more=bytes)
    cdef int pass_value(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end, bint whole) except -1
    @cython.locals(more=bytes)
    cdef int _pass_field(self, const unsigned char *buf, Py_ssize_t pos, Py_ssize_t end, Py_ssize_t upto) except -1
    @cython.locals(late=list)
    cdef int _note(self, object content, Py_ssize_t stop) except -1
    cdef bint is_named(self) noexcept
    cdef bint is_in_string(self) noexcept
    @cython.locals(after=Py_ssize_t, mode=cython.int)
    cdef Py_ssize_t read(self, Py_ssize_t pos, Py_ssize_t end) except? -1
    cdef int _what_is_wrong(self, const unsigned char *buf, Py_ssize_t at) noexcept
    cdef Py_ssize_t _find(self, int what, Py_ssize_t at) noexcept
    @cython.locals(at=Py_ssize_t, after=Py_ssize_t, upto=Py_ssize_t, begun=bytes)
    cdef Py_ssize_t _read_key(self, Py_ssize_t pos, Py_ssize_t end) except? -1
    @cython.locals(begun=bytes)
    cdef int _go_on_behind(self, object key) except -1
    @cython.locals(node=FormNode, branch=FormBranch, seam=bytes, before=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t)
    cdef Py_ssize_t _read_text(self, Py_ssize_t pos, Py_ssize_t end) except? -1
    @cython.locals(branch=FormBranch, fits=cython.int)
    cdef FormBranch _literal_at(self, const unsigned char *buf, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(key=bytes, fits=cython.int, begun=cython.int, start=Py_ssize_t, stop=Py_ssize_t)
    cdef FormBranch _own_at(self, const unsigned char *buf, Py_ssize_t at, Py_ssize_t end)
    cdef Py_ssize_t _text_ended(
        self,
        FormBranch branch,
        const unsigned char *buf,
        Py_ssize_t pos,
        Py_ssize_t at,
        Py_ssize_t stop,
        Py_ssize_t where,
        Py_ssize_t end,
    ) except? -1
    @cython.locals(
        branch=FormBranch, window=bytes, size=Py_ssize_t, shift=Py_ssize_t, at=Py_ssize_t, byte=cython.uchar, again=bint
    )
    cdef Py_ssize_t _read_word(self, Py_ssize_t pos, Py_ssize_t end) except? -1
    @cython.locals(fits=cython.int, opener=bytes)
    cdef bint _opener_at(self, const unsigned char *buf, Py_ssize_t at, Py_ssize_t end) except -1
    cdef bint _is_word(self, unsigned char byte) noexcept
