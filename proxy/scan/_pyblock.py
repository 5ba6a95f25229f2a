"""Reads a block: its fields and its end. Part of the Python twin, see `_pyparse.py`; `_fastblock.pxi` is the same with
C types.

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

from ._grammar import (
    BODY,
    BROKEN,
    END,
    FENCE,
    HELD,
    KEY,
    LEAD,
    SPACE,
    TAIL,
    WORD_BYTES,
    BlockPolicy,
    BlockSyntax,
    Framing,
    Why,
)
from ._plan import (
    CODE,
    JSON,
    LIKELY,
    LOOSE,
    NOTHING,
    PROSE,
    SURE,
    UNLIKELY,
    GrammarPlan,
    Opener,
    PlanBranch,
    PlanNode,
)
from ._pybuffer import Buffer
from ._pyfields import AT_BRANCH, BY_ITSELF, GOES_ON, NO_FIELD, NO_KEY, FieldReader
from ._pyoutput import Output
from .blocks import TO_CLOSER, Piece
from .closers import CLOSER, OPENER, CloserSearch
from .live import LiveCalls
from .surroundings import ALONE

_SPACE: Final = SPACE.encode()
_FENCE: Final = FENCE.encode()
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NEWLINE: Final = ord("\n")
_IN_TAG: Final = bytes(byte for byte in range(256) if byte not in b"<" + _SPACE)
_CONTENT: Final = ("value", "arguments", "call", "calls")
_NO_NODE: Final = PlanNode((), None, ends=True, free=False, final=False, more=False)

OPEN: Final = 0
WHOLE: Final = 1
FRAMING: Final = 2
UNFINISHED: Final = 3
NONE: Final = 4
"""The outcome of a block: `OPEN`, not finished; `WHOLE`, finished; `FRAMING`, finished without fields; `UNFINISHED`,
without an end; `NONE`, not a block."""


class BlockReader:
    """Reads one block after another.

    `state` is one of `LEAD` to `HELD`. `outcome` is set when the block ends at the returned position; then all of it is
    in the buffer. For a `WHOLE` block the body ends at offset `body_end`, `closed` and `broken` are those of `Block`,
    `pieces` are its fields with their offsets, and `head` is the offset after its opener. `why` explains an
    `UNFINISHED` block.
    """

    def __init__(
        self, buffer: Buffer, output: Output, policy: BlockPolicy, plan: GrammarPlan, live: LiveCalls | None
    ) -> None:
        self._buffer = buffer
        self._policy = policy
        self._plan = plan
        self._fields = FieldReader(buffer, output, policy, plan, live)
        self._closers = CloserSearch()
        self._beyond: int | None = None
        self._limit = 0
        self.state = LEAD
        self.opener = b""
        self.closer = b""
        self.syntax: BlockSyntax | None = None
        self.untaught = False
        self.loose = False
        self.inner = False
        self.head = 0
        self.pieces: list[Piece] = []
        self.outcome = OPEN
        self.body_end = 0
        self.closed = False
        self.broken = False
        self.why: Why = "end"

        # `_node`: the current node. `_gap`: offset where it begins. `_word`: the beginning of a literal in it, at
        # offset `_word_at`. `_then`: the node after the last field. `_mark`: offset where the block may end, if
        # `_may_end`. `_doubt`: how certain the end of the value before the node is; `_proving`: the branch whose tag
        # must be complete to confirm it. `_around`: what may quote the block. `_fence`: a fence is allowed; `_fenced`:
        # it was read. `_beyond`: offset from which another opener ends a broken block.
        self._node = _NO_NODE
        self._gap = 0
        self._word = b""
        self._word_at = 0
        self._then = END
        self._mark = 0
        self._may_end = False
        self._doubt = SURE
        self._proving: PlanBranch | None = None
        self._around = 0
        self._fence = False
        self._fenced = False

    def read_as(self, plan: GrammarPlan, limit: int) -> None:
        """Sets the plan and size limit of the next blocks."""
        self._plan = self._fields.plan = plan
        self._limit = limit

    def open(self, opener: Opener, at: int, around: int = 0) -> int:
        """Starts a block whose opener ends at `at`. The buffer's start is where the block begins, or the text that may
        quote it; `around` says what may quote it (see `surroundings`). Returns the position to continue at."""
        self.state = LEAD
        self.outcome = OPEN
        self.opener = opener.literal
        self.syntax = opener.syntaxes[0]
        self.closer = self.syntax.closer.encode()
        self.untaught = opener.untaught
        self.loose = opener.loose
        self.inner = opener.inner
        self.head = self._buffer.offset(at)
        self._around = around
        self.pieces.clear()
        self._fence = any(syntax.fence for syntax in opener.syntaxes)
        self._fenced = False
        self._may_end = False
        self._doubt = SURE
        self._proving = None
        self._fields.begin_block(opener, self.pieces, bool(around))
        return self._go_to(opener.first, at)

    def read(self, pos: int) -> int:
        """Reads the block from `pos` to the end of a field, a literal or the delta, and returns the position to
        continue at. Stops before the first character that would make the block too large."""
        buf = self._buffer.data
        end = min(len(buf), max(pos, self._buffer.position(self._limit)))  # an opener counts as a whole
        if end < len(buf):
            while buf[end] & 0xC0 == 0x80:
                end -= 1
            if pos >= end:
                return self._oversize(end)
        state = self.state
        if state in (BODY, KEY):
            return self._read_field(pos, end)
        if state in (LEAD, TAIL):
            return self._read_node(pos, end) if self._proving is None else self._read_tag(pos, end)
        return self._search(pos, end)

    def end(self, truncated: bool) -> int:
        """Ends the answer inside the block, which is now the whole buffer. Returns the position to continue at."""
        end = len(self._buffer.data)
        fields = self._fields
        assert self.syntax is not None
        node = self._node
        named = self.state == BODY and fields.named and not self.pieces  # no more than an opener
        if self.state in (HELD, KEY) or ((self.state == LEAD or named) and (self.syntax.first_keys or not truncated)):
            return self._none(end)
        resting = self.state == TAIL and self._proving is None
        if resting and not (truncated and self._doubt):
            if (node.ends and not self._word) or (node.free and self._doubt == UNLIKELY):
                return self._closed(end, end)
            if self._may_end and not (truncated and node.more):
                return self._otherwise(end)
        if truncated:
            return self._unfinished(end, "truncated")
        if resting and (node.final or (self._has_content() and any(c.startswith(self._word) for c in node.closers))):
            return self._whole(end, self._word_at if self._word else end, closed=False)
        if self.untaught and not self.opener and self.state == BODY and fields.kind in (JSON, CODE, LOOSE):
            self._keep(TO_CLOSER)  # perhaps no more than a bracket is missing
            return self._whole(end, end, broken=True)
        if self.state == BODY and fields.in_string and self.closer:
            at = self._buffer.data.find(self.closer, self.head)
            if at >= 0:
                self._keep(TO_CLOSER)
                return self._given_up(at + len(self.closer))
        return self._unfinished(end, "end")

    def frames(self, upto: int) -> Framing | None:
        """Returns the kind of framing (`BlockSyntax.framing`) of the block that ended at `upto`, or None if the block
        has other content. A section that contains only text is a `mark`."""
        assert self.syntax is not None
        if self.outcome == FRAMING:
            kind = self.syntax.framing
            return kind if kind == "head" or self._buffer.offset(upto) == self.head else None
        said = self.outcome == WHOLE and bool(self.pieces) and all(piece[0] == "said" for piece in self.pieces)
        return "mark" if said else None

    # --- nodes: between fields ----------------------------------------------------------------------------------------

    def _go_to(self, node: PlanNode, pos: int) -> int:
        """Moves to a node. A block that cannot continue ends at once."""
        self._node = node
        self._word = b""
        self._gap = self._buffer.offset(pos)
        if node.free and self._doubt != UNLIKELY:
            self._be_sure()
            self._may_end = True
            self._mark = self._gap
            if not node.branches:
                return self._closed(pos, self._mark)
        return pos

    def _read_node(self, pos: int, end: int) -> int:
        """Reads whitespace, perhaps a fence, then one of the node's literals."""
        buf = self._buffer.data
        for at in range(pos, end):
            byte = buf[at]
            if not self._word:
                if byte in _SPACE or (self._fenced and self.state == LEAD and byte in _LETTERS):
                    continue
                self._word_at = self._buffer.offset(at)
            self._word += buf[at : at + 1]
            fits = False
            for branch in self._node.branches:
                if branch.literal == self._word:
                    self._buffer.steps += at + 1 - pos
                    return self._take(branch, at + 1)
                fits = fits or branch.literal.startswith(self._word)
            if not (fits or self._may_end) and self._has_content():
                if self._word in self._node.next:
                    self._buffer.steps += at + 1 - pos
                    return self._next_begins()
                fits = any(opener.startswith(self._word) for opener in self._node.next)
            may_fence = self._fence and not self._fenced if self.state == LEAD else self._fenced
            if may_fence and _FENCE.startswith(self._word):
                fits = True
                if self._word == _FENCE:
                    self._fenced = not self._fenced
                    self._word = b""
            if not fits:
                self._buffer.steps += at - pos
                return self._otherwise(at)
        self._buffer.steps += end - pos
        return end

    def _otherwise(self, at: int) -> int:
        """Continues if no literal begins with `_word`, whose last byte is at `at`."""
        node = self._node
        branch = node.otherwise
        if self._may_end:
            return self._ends_at_mark()
        if branch is not None and not (node.free and self._doubt == UNLIKELY):
            if branch.read == PROSE:
                return self._text_begins(branch, at)
            return self._take(branch, self._buffer.back_to(self._word_at))
        if self._doubt:
            return self._read_on(at)
        at = self._buffer.position(self._word_at)
        return self._break(at) if self.pieces else self._mention(at)

    def _text_begins(self, branch: PlanBranch, at: int) -> int:
        """Starts a text without a literal before it; it includes the whitespace since the beginning of the node."""
        start = self._gap
        at = self._take(branch, at)
        self._fields.reach_back(start, self._buffer.span(start, self._fields.start))
        return at

    def _has_content(self) -> bool:
        """Returns True if the last field has content, so that the call may be complete."""
        return bool(self.pieces) and self.pieces[-1][0] in _CONTENT

    def _next_begins(self) -> int:
        """Another block begins where only closers are missing: handled like the end of the answer."""
        upto = self._buffer.back_to(self._word_at)
        if self._node.ends or self._node.free:
            return self._closed(upto, self._word_at)
        return self._whole(upto + self._buffer.gather(), self._word_at, closed=False)

    def _take(self, branch: PlanBranch, pos: int) -> int:
        """Continues with `branch`, whose literal ends at `pos`."""
        if self._doubt and (branch.read != NOTHING or branch.then == END):
            if self._doubt == UNLIKELY:
                return self._doubt_more(branch, pos)
            self._be_sure()
        self.syntax = branch.syntax
        self.closer = branch.syntax.closer.encode()
        pos += branch.taken - len(branch.literal)
        if branch.read == NOTHING:
            if branch.then == END:
                return self._closed(pos, self._buffer.offset(pos) - branch.taken)
            self.state = TAIL if self.pieces else LEAD
            return self._go_to(self._nodes()[branch.then], pos)
        self._may_end = False
        self._then = branch.then
        self._fields.begin(branch, self._nodes()[branch.then], self._buffer.offset(pos), not self.pieces)
        self.state = KEY if self._fields.in_key else BODY
        return pos

    def _nodes(self) -> tuple[PlanNode, ...]:
        assert self.syntax is not None
        return self._plan.nodes[self.syntax]

    # --- values in tags: whether one has ended ------------------------------------------------------------------------

    def _doubt_of(self, branch: PlanBranch, at: int) -> int:
        """Returns how certain it is that a value ends at offset `at`, before `branch`. If a value begins with a line
        end, the template writes one before the closer too (`framed`); where the closer is omitted, the end of the call
        is enough."""
        assert self.syntax is not None
        start = self._fields.start
        if not self.syntax.framed or self._buffer.span(start, start + 1) != b"\n":
            return LIKELY
        own = branch.read == NOTHING if branch.literal[0] == _NEWLINE else self._buffer.span(at - 1, at) == b"\n"
        return LIKELY if own else UNLIKELY

    def _doubt_more(self, branch: PlanBranch, pos: int) -> int:
        """Requires that the text after `branch` (whose literal ends at `pos`) is also as the template writes it: a tag,
        or the end."""
        self.state = TAIL
        if branch.read == NOTHING:
            return self._go_to(self._nodes()[-1], pos)
        self._proving = branch
        self._word = b""
        return pos

    def _read_tag(self, pos: int, end: int) -> int:
        """Reads the rest of the tag that `_proving` begins: a word, `>` and a line end."""
        branch = self._proving
        assert branch is not None
        for at in range(pos, end):
            byte = self._buffer.data[at]
            inside = self._word[-1:] != b">"
            if inside and byte in _IN_TAG and len(self._word) < WORD_BYTES:
                self._word += self._buffer.data[at : at + 1]
                continue
            self._buffer.steps += at - pos
            self._proving = None
            if inside or byte != _NEWLINE:
                self._gap = self._word_at = self._buffer.offset(at)
                return self._read_on(at)
            self._be_sure()
            self._take(branch, at)
            self._fields.reach_back(self._fields.start - len(self._word), self._word)
            return at
        self._buffer.steps += end - pos
        return end

    def _be_sure(self) -> None:
        """Confirms the end of a value: the text after it may follow a value."""
        if self._doubt:
            self._doubt = SURE
            if self._fields.followed:
                self._fields.pass_value(b"", True)

    def _read_on(self, at: int) -> int:
        """The assumed end of a value belongs to the value. The search continues where the unexpected text began,
        including one whitespace character before it."""
        self._doubt = SURE
        self.state = BODY
        again = max(self._gap, self._word_at - 1)
        ended = self.pieces.pop()[2] if self._fields.field else again
        self._fields.go_on(self._buffer.span(ended, again), self._buffer.span(again, self._buffer.offset(at)))
        return at

    # --- fields -------------------------------------------------------------------------------------------------------

    def _read_field(self, pos: int, end: int) -> int:
        fields = self._fields
        at = fields.read(pos, end)
        if fields.found == GOES_ON:
            self.state = KEY if fields.in_key else BODY
            return at
        if fields.found == BY_ITSELF:
            ended = self._buffer.offset(at)
            self._keep(ended)
            if self._then == END:
                return self._closed(at, ended)
            self.state = TAIL
            return self._go_to(self._nodes()[self._then], at)
        if fields.found == AT_BRANCH:
            return self._field_ended(at)
        if fields.found == NO_KEY:
            return self._mention(at)
        fits_not = self.pieces or (fields.found == NO_FIELD and not fields.named)
        return self._break(at) if fits_not else self._mention(at)

    def _field_ended(self, at: int) -> int:
        """Ends the field at the literal of a branch at `at`."""
        fields = self._fields
        branch = fields.branch
        assert branch is not None
        ended = self._buffer.offset(at)
        if fields.kind == PROSE:
            self._doubt = self._doubt_of(branch, ended)
        self._keep(ended)
        if fields.followed:
            fields.pass_value(fields.text, not self._doubt)
        return self._take(branch, self._buffer.back_to(ended + len(branch.literal)))

    def _keep(self, upto: int) -> None:
        """Stores the current field, which ends at offset `upto`."""
        if self._fields.field:
            self.pieces.append((self._fields.field, self._fields.start, upto))

    # --- broken blocks ------------------------------------------------------------------------------------------------

    def _mention(self, at: int) -> int:
        """Handles an opener without a body, detected at `at`."""
        assert self.syntax is not None
        if self.untaught or self._around or not self._policy.strict or self.syntax.first_keys or not self.closer:
            return self._none(at)
        return self._look_again(HELD, 0)

    def _break(self, at: int) -> int:
        """Handles a body that does not follow the syntax, detected at `at`. Without a closer it is not a block; neither
        is an untaught block of which only the name is known."""
        in_field = self.state == BODY
        named = self._fields.named if in_field else not self._has_content()
        if not self.closer or (self.untaught and named) or self._around not in (0, ALONE):
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
            return self._unfinished(upto - len(self.opener) + self._buffer.gather(), "end")
        return upto

    def _oversize(self, end: int) -> int:
        if self._may_end:
            return self._ends_at_mark()
        end += self._buffer.gather()
        if self.closer and not self._policy.strict:
            at = self._buffer.data.find(self.closer, self._buffer.start + self.head, end)
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
            return self._whole(upto, body_end)
        self.outcome = FRAMING
        return upto

    def _given_up(self, upto: int) -> int:
        """Ends a broken block with the closer at `upto`."""
        upto += self._buffer.gather()
        return self._whole(upto, upto - self._buffer.start - len(self.closer), broken=True)

    def _whole(self, upto: int, body_end: int, closed: bool = True, broken: bool = False) -> int:
        self.outcome = WHOLE
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
        self.outcome = NONE
        return at + self._buffer.gather()
