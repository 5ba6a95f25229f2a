"""Reads a block: its fields and its end.

The end of a block (R6.4): the body is followed character by character through the nodes and fields of its syntax. The
closer counts only where the syntax expects it, so inside a string it is data. Inside a tagged value it is data too, if
the text after it may not follow a value; then the value continues from there, and nothing is read twice. If the body
does not follow the syntax, the *first* literal closer after the opener ends the block, even one that was passed
already, and the text after it is read again. The same holds if the answer ends inside a JSON string. If only closers
are missing, the opener of another block has the same effect as the end of the answer (R6.8).

An opener without a body is only a mention (R6.2): it is text at once, and reading continues directly after it. With a
strict tool on offer it might be a broken call, so it is held back up to the closer (then the call policy decides), or
up to the next opener or the end of the answer (then it is text).
"""

from __future__ import annotations

from typing import Final

from .. import octets
from .._grammar import (
    BODY,
    BROKEN,
    END,
    HELD,
    KEY,
    LEAD,
    TAIL,
    WORD_BYTES,
    BlockPolicy,
    Framing,
    Why,
)
from .._grammar import FENCE as _FENCE_TEXT
from .._plan import CODE, JSON, LIKELY, LOOSE, NESTED, NOTHING, PROSE, SURE, UNLIKELY
from ..blocks import TO_CLOSER, Piece
from ..closers import CLOSER, OPENER, CloserSearch
from ..live import LiveCalls
from ..modes import (
    AT_BRANCH,
    BY_ITSELF,
    FRAMING,
    GOES_ON,
    NO_BLOCK,
    NO_FIELD,
    NO_KEY,
    OPEN,
    UNFINISHED,
    WHOLE_BLOCK,
)
from ..surroundings import ALONE
from .buffer import Buffer
from .fields import FieldReader
from .forms import Form, FormBranch, FormNode, FormOpener, Forms
from .sending import StringSender

_FENCE: Final = _FENCE_TEXT.encode()
_CONTENT: Final = ("value", "arguments", "call", "calls")
_NO_CALL: Final = -1
_NO_QUOTE: Final = -2


class BlockReader:
    """Reads one block after another.

    `state` is one of `LEAD` to `HELD`. `outcome` is set when the block ends at the returned position; then all of it is
    in the buffer. The body of a `WHOLE_BLOCK` ends at offset `body_end`, `closed`, `broken` and `more` are those of
    `Block`, `pieces` are its fields with their offsets, and `head` is the offset after its opener. `why` explains an
    `UNFINISHED` block.
    """

    __slots__ = (
        *("_around", "_beyond", "_buffer", "_closers", "_doubt", "_fence", "_fenced", "_fields", "_gap", "_limit"),
        *("_mark", "_may_end", "_node", "_policy", "_proving", "_quoted", "_quotes", "_then", "_word", "_word_at"),
        *("body_end", "broken"),
        *("closed", "closer", "form", "head", "inner", "loose", "more", "opener", "outcome", "pieces", "state"),
        *("untaught", "why"),
    )

    def __init__(
        self, buffer: Buffer, policy: BlockPolicy, live: LiveCalls | None, sender: StringSender | None
    ) -> None:
        self._buffer = buffer
        self._policy = policy
        self._fields = FieldReader(buffer, policy, live, sender)
        self._closers = CloserSearch()
        self._beyond: int | None = None
        self._limit = 0
        self.state = LEAD
        self.opener = b""
        self.closer = b""
        self.form: Form | None = None
        self.untaught = False
        self.loose = False
        self.inner = False
        self.head = 0
        self.pieces: list[Piece] = []
        self.outcome = OPEN
        self.body_end = 0
        self.closed = False
        self.broken = False
        self.more = False
        self.why: Why = "end"

        # `_node`: the current node. `_gap`: offset where it begins. `_word`: the beginning of a literal in it, at
        # offset `_word_at`. `_then`: the node after the last field. `_mark`: offset where the block may end, if
        # `_may_end`. `_doubt`: how certain the end of the value before the node is; `_proving`: the branch whose tag
        # must be complete to confirm it. `_quotes`: the number of calls that the value quotes and that have not ended
        # at offset `_quoted`; `_NO_CALL`: none has begun; `_NO_QUOTE`: none is quoted, because a closer came before the
        # first. `_around`: what may quote the block. `_fence`: a fence is allowed; `_fenced`: it was read.
        # `_beyond`: offset from which another opener ends a broken block.
        self._node: FormNode | None = None
        self._gap = 0
        self._word = bytearray()
        self._word_at = 0
        self._then = END
        self._mark = 0
        self._may_end = False
        self._doubt = SURE
        self._proving: FormBranch | None = None
        self._quotes = _NO_CALL
        self._quoted = 0
        self._around = 0
        self._fence = False
        self._fenced = False

    def read_as(self, forms: Forms, limit: int) -> None:
        """Sets the plan and size limit of the next blocks."""
        self._fields.forms = forms
        self._limit = limit

    def open(self, opener: FormOpener, at: int, around: int) -> int:
        """Starts a block whose opener ends at `at`. The buffer's start is where the block begins, or the text that may
        quote it; `around` says what may quote it (see `surroundings`). Returns the position to continue at."""
        self.state = LEAD
        self.outcome = OPEN
        self.opener = opener.literal
        self.form = opener.form
        self.closer = opener.form.closer
        self.untaught = opener.untaught
        self.loose = opener.loose
        self.inner = opener.inner
        self.head = self._buffer.offset(at)
        self._around = around
        self.pieces.clear()
        self._fence = opener.fence
        self._fenced = False
        self._may_end = False
        self.more = False
        self._doubt = SURE
        self._proving = None
        self._quoted = 0
        self._fields.begin_block(opener, self.pieces, around != 0)
        return self._go_to(opener.first, at)

    def read(self, pos: int) -> int:
        """Reads the block from `pos` to the end of a field, a literal or the delta, and returns the position to
        continue at. Stops before the first character that would make the block too large."""
        end = max(pos, self._buffer.position(self._limit))  # an opener counts as a whole
        if end < self._buffer.size:
            while self._buffer.data[end] & 0xC0 == 0x80:
                end -= 1
            if pos >= end:
                return self._oversize(end)
        else:
            end = self._buffer.size
        state = self.state
        if state in (BODY, KEY):
            return self._read_field(pos, end)
        if state in (LEAD, TAIL):
            return self._read_node(pos, end) if self._proving is None else self._read_tag(pos, end)
        return self._search(pos, end)

    def end(self, truncated: bool) -> int:
        """Ends the answer inside the block, which is now the whole buffer. Returns the position to continue at."""
        end = self._buffer.size
        fields, node, form = self._fields, self._node, self.form
        assert form is not None
        assert node is not None
        named = self.state == BODY and fields.is_named() and not self.pieces  # no more than an opener
        if self.state in (HELD, KEY) or ((self.state == LEAD or named) and (form.keyed or not truncated)):
            return self._none(end)
        resting = self.state == TAIL and self._proving is None
        if resting and not (truncated and self._doubt):
            if (node.ends and not self._word) or (node.free and self._doubt >= UNLIKELY):
                return self._closed(end, end)
            if self._may_end and not (truncated and node.more):
                return self._otherwise(end)
        if truncated:
            return self._unfinished(end, "truncated")
        if resting and (node.final or (self._has_content() and self._closes())):
            self.more = not node.final
            return self._whole(end, self._word_at if self._word else end, False, False)
        if self.untaught and not self.opener and self.state == BODY and fields.kind in (JSON, CODE, LOOSE):
            self._keep(TO_CLOSER)  # perhaps no more than a bracket is missing
            return self._whole(end, end, True, True)
        if self.state == BODY and fields.is_in_string() and self.closer:
            at = octets.find_literal(self._buffer.data, self.closer, self.head, end)
            if at >= 0:
                self._keep(TO_CLOSER)
                return self._given_up(at + len(self.closer))
        return self._unfinished(end, "end")

    def frames(self, upto: int) -> Framing | None:
        """Returns the kind of framing (`BlockSyntax.framing`) of the block that ended at `upto`, or None if the block
        has other content. A section that contains only text is a `mark`."""
        assert self.form is not None
        if self.outcome == FRAMING:
            kind = self.form.syntax.framing
            weighed = kind == "head" or self.form.syntax.ends_section or self._buffer.offset(upto) == self.head
            return kind if weighed else None
        if self.outcome != WHOLE_BLOCK or not self.pieces:
            return None
        for field, _, _ in self.pieces:
            if field != "said":
                return None
        return "mark"

    def is_only_a_name(self) -> bool:
        """Returns True if the block that ended is a call without arguments."""
        named = len(self.pieces) == 1 and self.pieces[0][0] == "name"
        return named and self.outcome == WHOLE_BLOCK and not self.broken

    # --- nodes: between fields ----------------------------------------------------------------------------------------

    def _go_to(self, node: FormNode, pos: int) -> int:
        """Moves to a node. A block that cannot continue ends at once."""
        self._node = node
        if self._word:
            self._word.clear()
        self._gap = self._buffer.offset(pos)
        if node.free and self._doubt < UNLIKELY:
            self._be_sure()
            self._may_end = True
            self._mark = self._gap
            if not node.branches:
                return self._closed(pos, self._mark)
        return pos

    def _read_node(self, pos: int, end: int) -> int:
        """Reads whitespace, perhaps a fence, then one of the node's literals."""
        node, word = self._node, self._word
        assert node is not None
        for at in range(pos, end):
            byte = self._buffer.data[at]
            if not word:
                if byte in b" \t\r\n" or (self._fenced and self.state == LEAD and _is_letter(byte)):
                    continue
                self._word_at = self._buffer.offset(at)
            word.append(byte)
            fits = False
            for branch in node.branches:
                if octets.begins(branch.literal, word):
                    if branch.size == len(word):
                        self._buffer.steps += at + 1 - pos
                        return self._take(branch, at + 1)
                    fits = True
            if not (fits or self._may_end or self._doubt == NESTED) and self._has_content():
                for opener in node.next:
                    if octets.begins(opener, word):
                        if len(opener) == len(word):
                            self._buffer.steps += at + 1 - pos
                            return self._next_begins()
                        fits = True
            may_fence = self._fence and not self._fenced if self.state == LEAD else self._fenced
            if may_fence and octets.begins(_FENCE, word):
                fits = True
                if len(word) == len(_FENCE):
                    self._fenced = not self._fenced
                    word.clear()
            if not fits:
                self._buffer.steps += at - pos
                return self._otherwise(at)
        self._buffer.steps += end - pos
        return end

    def _otherwise(self, at: int) -> int:
        """Continues if no literal begins with `_word`, whose last byte is at `at`."""
        node = self._node
        assert node is not None
        branch = node.otherwise
        if self._may_end:
            return self._ends_at_mark()
        if branch is not None and self._doubt < (UNLIKELY if node.free else NESTED):
            if branch.read == PROSE:
                return self._text_begins(branch, at)
            return self._take(branch, self._buffer.back_to(self._word_at))
        if self._doubt:
            return self._read_on(at)
        at = self._buffer.position(self._word_at)
        return self._break(at) if self.pieces else self._mention(at)

    def _text_begins(self, branch: FormBranch, at: int) -> int:
        """Starts a text without a literal before it; it includes the whitespace since the beginning of the node."""
        start = self._gap
        at = self._take(branch, at)
        self._fields.reach_back(start, self._buffer.span(start, self._fields.start))
        return at

    def _has_content(self) -> bool:
        """Returns True if the last field has content, so that the call may be complete."""
        return bool(self.pieces) and self.pieces[len(self.pieces) - 1][0] in _CONTENT

    def _closes(self) -> bool:
        """Returns True if a closer begins with `_word`."""
        assert self._node is not None
        closes = False
        for closer in self._node.closers:
            closes = closes or octets.begins(closer, self._word)
        return closes

    def _next_begins(self) -> int:
        """Another block begins where only closers are missing: handled like the end of the answer."""
        assert self._node is not None
        upto = self._buffer.back_to(self._word_at)
        if self._node.ends or self._node.free:
            return self._closed(upto, self._word_at)
        upto += self._buffer.gather()
        return self._whole(upto, self._word_at, False, False)

    def _take(self, branch: FormBranch, pos: int) -> int:
        """Continues with `branch`, whose literal ends at `pos`."""
        if self._doubt and (branch.read != NOTHING or branch.then == END):
            if self._doubt >= UNLIKELY:
                return self._doubt_more(branch, pos)
            self._be_sure()
        form = branch.form
        self.form = form
        self.closer = form.closer
        pos += branch.taken - branch.size
        if branch.read == NOTHING:
            if branch.then == END:
                return self._closed(pos, self._buffer.offset(pos) - branch.taken)
            self.state = TAIL if self.pieces else LEAD
            return self._go_to(form.nodes[branch.then], pos)
        self._may_end = False
        self._then = branch.then
        node = None if branch.then == END else form.nodes[branch.then]
        self._fields.begin(branch, node, self._buffer.offset(pos), not self.pieces)
        self.state = KEY if self._fields.in_key else BODY
        return pos

    # --- values in tags: whether one has ended ------------------------------------------------------------------------

    def _doubt_of(self, branch: FormBranch, at: int) -> int:
        """Returns how certain it is that a value ends at offset `at`, before `branch`. If a value begins with a line
        end, the template writes one before the closer too (`framed`); where the closer is omitted, the end of the call
        is enough."""
        assert self.form is not None
        if self._is_quoted(at, branch.size):
            return NESTED
        start = self._fields.start
        if not self.form.framed or self._buffer.span(start, start + 1) != b"\n":
            return LIKELY
        if branch.literal[0] == ord("\n"):
            return LIKELY if branch.read == NOTHING else UNLIKELY
        return LIKELY if self._buffer.span(at - 1, at) == b"\n" else UNLIKELY

    def _is_quoted(self, at: int, size: int) -> bool:
        """Returns True if the literal of this size at offset `at` belongs to a call that the value quotes."""
        start = self._fields.start
        if self._quoted < start:
            self._quoted = start
            self._quotes = _NO_CALL
        start = self._quoted
        text = self._buffer.span(start, at + size)
        forms = self._fields.forms
        assert forms is not None
        for found in forms.quoted.finditer(text):
            if start + found.start() >= at:
                break
            self._quoted = start + found.end()
            if not found.lastindex:
                self._quotes = max(0, self._quotes - 1) if self._quotes >= 0 else _NO_QUOTE
            elif self._quotes != _NO_QUOTE:
                self._quotes = max(0, self._quotes) + 1
        self._quoted = max(self._quoted, at)
        return self._quotes > 0

    def _doubt_more(self, branch: FormBranch, pos: int) -> int:
        """Requires that the text after `branch` (whose literal ends at `pos`) is also as the template writes it: a tag,
        or the end. Only the end if the branch may belong to a quoted call."""
        self.state = TAIL
        if branch.read == NOTHING:
            assert self.form is not None
            return self._go_to(self.form.nodes[len(self.form.nodes) - 1], pos)
        if self._doubt == NESTED:
            self._gap = self._word_at = self._buffer.offset(pos)
            return self._read_on(pos)
        self._proving = branch
        self._word.clear()
        return pos

    def _read_tag(self, pos: int, end: int) -> int:
        """Reads the rest of the tag that `_proving` begins: a word, `>` and a line end."""
        branch, word = self._proving, self._word
        assert branch is not None
        for at in range(pos, end):
            byte = self._buffer.data[at]
            inside = not word or word[len(word) - 1] != ord(">")
            if inside and byte not in b"< \t\r\n" and len(word) < WORD_BYTES:
                word.append(byte)
                continue
            self._buffer.steps += at - pos
            self._proving = None
            if inside or byte != ord("\n"):
                self._gap = self._word_at = self._buffer.offset(at)
                return self._read_on(at)
            self._be_sure()
            tag = bytes(word)
            self._take(branch, at)
            self._fields.reach_back(self._fields.start - len(tag), tag)
            return at
        self._buffer.steps += end - pos
        return end

    def _be_sure(self) -> None:
        """Confirms the end of a value: the text after it may follow a value."""
        if self._doubt:
            self._doubt = SURE
            if self._fields.followed:
                self._fields.pass_value(b"", 0, 0, True)

    def _read_on(self, at: int) -> int:
        """The assumed end of a value belongs to the value. The search continues where the unexpected text began,
        including one whitespace character before it."""
        if self._doubt == LIKELY and self._quotes == _NO_CALL:
            self._quotes = _NO_QUOTE
        self._doubt = SURE
        self.state = BODY
        again = max(self._gap, self._word_at - 1)
        ended = again
        if self._fields.field:
            _, _, ended = self.pieces.pop()
        self._fields.go_on(self._buffer.span(ended, again), self._buffer.span(again, self._buffer.offset(at)))
        return at

    # --- fields -------------------------------------------------------------------------------------------------------

    def _read_field(self, pos: int, end: int) -> int:
        fields = self._fields
        at = fields.read(pos, end)
        if fields.found == GOES_ON:
            self.state = KEY if fields.in_key else BODY
            return at
        if fields.found == AT_BRANCH:
            return self._field_ended(at)
        if fields.found == BY_ITSELF:
            return self._field_ended_itself(at)
        if fields.found == NO_KEY:
            return self._mention(at)
        fits_not = bool(self.pieces) or (fields.found == NO_FIELD and not fields.is_named())
        return self._break(at) if fits_not else self._mention(at)

    def _field_ended_itself(self, at: int) -> int:
        ended = self._buffer.offset(at)
        self._keep(ended)
        if self._then == END:
            return self._closed(at, ended)
        self.state = TAIL
        assert self.form is not None
        return self._go_to(self.form.nodes[self._then], at)

    def _field_ended(self, at: int) -> int:
        """Ends the field at the literal of a branch at `at`."""
        fields = self._fields
        branch, text = fields.branch, fields.text
        assert branch is not None
        ended = self._buffer.offset(at)
        if fields.kind == PROSE:
            self._doubt = self._doubt_of(branch, ended)
        self._keep(ended)
        if fields.followed:
            fields.pass_value(text, 0, len(text), not self._doubt)
        return self._take(branch, self._buffer.back_to(ended + branch.size))

    def _keep(self, upto: int) -> None:
        """Stores the current field, which ends at offset `upto`."""
        if self._fields.field:
            self.pieces.append((self._fields.field, self._fields.start, upto))

    # --- broken blocks ------------------------------------------------------------------------------------------------

    def _mention(self, at: int) -> int:
        """Handles an opener without a body, detected at `at`."""
        assert self.form is not None
        if self.untaught or self._around or not self._policy.strict or self.form.keyed or not self.closer:
            return self._none(at)
        return self._look_again(HELD, 0)

    def _break(self, at: int) -> int:
        """Handles a body that does not follow the syntax, detected at `at`. Without a closer it is not a block; neither
        is an untaught block of which only the name is known."""
        assert self._node is not None
        in_field = self.state == BODY
        named = self._fields.is_named() if in_field else not self._has_content()
        if not self.closer or (self.untaught and named) or (self._around and self._around != ALONE):
            return self._none(at)
        whole = self.state == TAIL and bool(self.opener and self._node.next) and self._has_content()
        if in_field:
            self._keep(TO_CLOSER)
        elif self.pieces:  # the assumed end of its last field was not its end
            field, start, _ = self.pieces.pop()
            self.pieces.append((field, start, TO_CLOSER))
        return self._look_again(BROKEN, self._word_at if whole else None)

    def _look_again(self, state: int, beyond: int | None) -> int:
        """Searches the block for its closer. The opener of another block, from offset `beyond` on, ends it too."""
        self._buffer.gather()
        self.state = state
        self._beyond = beyond
        self._closers.begin(self.opener, self.closer)
        return self._buffer.start + self.head

    def _search(self, pos: int, end: int) -> int:
        closers = self._closers
        since = None if self._beyond is None else self._buffer.position(self._beyond) - pos
        upto = pos + closers.read(self._buffer.data[pos:end], since)
        self._buffer.steps += upto - pos
        if closers.found == CLOSER:
            return self._given_up(upto)
        if closers.found == OPENER:
            if self.state == HELD:
                return self._none(upto)
            upto -= len(self.opener)
            return self._unfinished(upto + self._buffer.gather(), "end")
        return upto

    def _oversize(self, end: int) -> int:
        if self._may_end:
            return self._ends_at_mark()
        end += self._buffer.gather()
        if self.closer and not self._policy.strict:
            at = octets.find_literal(self._buffer.data, self.closer, self._buffer.start + self.head, end)
            if at >= 0:
                return self._given_up(at + len(self.closer))
        return self._unfinished(end, "oversize")

    # --- the end of the block -----------------------------------------------------------------------------------------

    def _ends_at_mark(self) -> int:
        return self._closed(self._buffer.back_to(self._mark), self._mark)

    def _closed(self, upto: int, body_end: int) -> int:
        """Ends a complete block at `upto`; its body ends at offset `body_end`."""
        upto += self._buffer.gather()
        if self.pieces:
            return self._whole(upto, body_end, True, False)
        self.outcome = FRAMING
        return upto

    def _given_up(self, upto: int) -> int:
        """Ends a broken block with the closer at `upto`."""
        upto += self._buffer.gather()
        return self._whole(upto, upto - self._buffer.start - len(self.closer), True, True)

    def _whole(self, upto: int, body_end: int, closed: bool, broken: bool) -> int:
        self.outcome = WHOLE_BLOCK
        self.body_end = body_end
        self.closed = closed
        self.broken = broken
        return upto

    def _unfinished(self, end: int, why: Why) -> int:
        self.outcome = UNFINISHED
        self.why = why
        return end

    def _none(self, at: int) -> int:
        """The text is not a block, as was detected at `at`."""
        self.outcome = NO_BLOCK
        return at + self._buffer.gather()


def _is_letter(byte: int) -> bool:
    return byte in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
