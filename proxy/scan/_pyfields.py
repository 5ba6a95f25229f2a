"""Reads one field of a block, to its end or to the byte that cannot belong to it. Part of the Python twin, see
`_pyparse.py`; `parts/json.py` follows JSON, `parts/code.py` other syntax. `_fastfields.pxi` is the same with C types.

Raw control characters in strings, trailing commas and any run of letters and digits as a scalar are accepted: the call
policy decides whether a field can be parsed or repaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ._grammar import LITERAL_BYTES, SPACE, WORD_BYTES, BlockPolicy, Field
from ._plan import (
    BRACES,
    CODE,
    JSON,
    LOOSE,
    NAME,
    NAMED,
    NOTHING,
    PRINTED,
    PROSE,
    TICK,
    WORD,
    GrammarPlan,
    Opener,
    PlanBranch,
    PlanNode,
)
from ._pybuffer import Buffer
from ._pyoutput import Output
from ._pystring import NO_STRING, certain
from .blocks import Piece
from .first_key import FirstKey
from .live import FOLLOWED, LateField, LiveCalls
from .loose_head import LooseHead
from .modes import STRING, WHOLE, WRONG
from .parts.code import BracesReader, CodeReader
from .parts.json import ObjectReader

_SPACE: Final = SPACE.encode()
_NEWLINE: Final = ord("\n")
_BRACE: Final = ord("{")

GOES_ON: Final = 0
BY_ITSELF: Final = 1
AT_BRANCH: Final = 2
NO_KEY: Final = 3
NO_FIELD: Final = 4
NO_CALL: Final = 5
"""The result of reading a field: `GOES_ON`, not finished; `BY_ITSELF`, ended by its own syntax; `AT_BRANCH`, ended
before the literal of a branch. `NO_KEY`, `NO_FIELD`, `NO_CALL`: the text is not such a field, because of its first key,
a byte in it, or the first callee's name."""


class FieldReader:
    """Reads one field after another.

    `kind` is how the field is read, `field` its meaning, `start` its offset. `in_key`: its first key is not known yet.
    `found` is the result; the position returned by `read` is then the end, or the beginning of `branch`, and `text` is
    the text just before it. `followed`: `live`, which streams calls early, needs the field's content.
    """

    def __init__(
        self, buffer: Buffer, output: Output, policy: BlockPolicy, plan: GrammarPlan, live: LiveCalls | None
    ) -> None:
        self.plan = plan
        self.live = live
        self.followed = False
        self.kind = NOTHING
        self.field: Field = ""
        self.start = 0
        self.in_key = False
        self.found = GOES_ON
        self.branch: PlanBranch | None = None
        self.text = b""
        self._buffer = buffer
        self._output = output
        self._policy = policy

        # The block: its opener. `_untaught`: its form was not taught. `_followable`: its fields may be `followed`.
        # `_ways`: openers that its short fields cannot contain.
        self._opener = b""
        self._followable = False
        self._untaught = False
        self._ways: tuple[bytes, ...] = ()

        # The field. `_node` is the node after it, whose literals end it if it is text; `_firsts` are their first bytes.
        # `_key` reads its beginning up to the first key. `_overlap`: the last bytes, which may begin a literal.
        # `_worded`: a short field is not empty; `_ended`: only whitespace may follow in it.
        self._node: PlanNode | None = None
        self._firsts = b""
        self._key: FirstKey | LooseHead | None = None
        self._overlap = b""
        self._worded = False
        self._ended = False
        self._json = ObjectReader()
        self._code = CodeReader()
        self._braces = BracesReader()

        # The fields of a short block that is `_followable`, and the number of bytes it lacks to be long; None for a
        # block that `live` reads.
        self._late: list[LateField] | None = None
        self._short = 0
        self._pieces: Sequence[Piece] = ()

        # `_string`: kind of the string whose text is sent without asking `live`. `_waiting`: the last bytes, which only
        # the next delta can decide.
        self._string = NO_STRING
        self._waiting = b""

    def begin_block(self, opener: Opener, pieces: Sequence[Piece], quoted: bool) -> None:
        """Starts a block, whose finished fields the caller adds to `pieces`. `quoted`: the block may turn out to be
        text in any case."""
        self.kind = NOTHING
        self.followed = False
        self.in_key = False
        self._opener = opener.literal
        self._untaught = opener.untaught
        self._ways = self.plan.begun if self._untaught else (self._opener,) if self._opener else ()
        self._followable = self.live is not None and not (self._untaught or quoted)
        self._late = None
        if self.live is not None and self._followable:
            self._short = self.live.long
            self._pieces = pieces
            if self._short:
                self._late = []
            else:
                self.live.begin_block(pieces)

    def begin(self, branch: PlanBranch, node: PlanNode, at: int, first: bool) -> None:
        """Starts the field of `branch` at offset `at`. `node` is the node after it. `first`: it is the block's first
        field."""
        self.kind = branch.read
        self.field = branch.field
        self.start = at
        self.in_key = False
        if branch.read == JSON:
            self._json.begin()
            if first and branch.syntax.first_keys:
                self._begin_key(branch)
        elif branch.read in (PRINTED, LOOSE):
            self._begin_key(branch)
        elif branch.read == CODE:
            self._code.begin(bool(branch.literal))
        elif branch.read == BRACES:
            self._braces.begin(branch.syntax.quote.encode())
        else:
            self._node = node
            self._firsts = bytes({found.literal[0] for found in node.branches})
            self._overlap = b""
            self._worded = self._ended = False
        self._string = NO_STRING
        self._waiting = b""
        if self._late is not None:
            self._late.append((len(self._pieces), (branch.syntax, branch.field, branch.read, at), None, 0))
            self.followed = branch.field in FOLLOWED
        elif self.live is not None and self._followable:
            self.followed = self.live.begin_field(branch.syntax, branch.field, branch.read, at)

    def _begin_key(self, branch: PlanBranch) -> None:
        self.in_key = True
        policy = self._policy
        if branch.read == LOOSE:
            self._key = LooseHead(policy.callable_names)
            return
        names = policy.callable_names if branch.read == PRINTED else ()
        any_name = policy.strict and not branch.syntax.untaught
        self._key = FirstKey(branch.syntax, branch.read, names, None if any_name else policy.may_call)

    def reach_back(self, start: int, overlap: bytes) -> None:
        """Moves the start of the field back to offset `start`, before the literal that preceded it; `overlap` is the
        text between."""
        self.start = start
        self._overlap = overlap

    def go_on(self, more: bytes, overlap: bytes) -> None:
        """Continues the field after a false end: `more` belongs to it, and `overlap` may begin a literal."""
        if self.field and self.followed:
            self.pass_value(more, False)
        self._overlap = overlap

    def pass_value(self, more: bytes, whole: bool) -> None:
        """Passes more of a `followed` value to `live`; `whole`: it ends here."""
        assert self.live is not None
        if self._late is not None:
            self._note(more.decode(), -1 if whole else 0)
            return
        more = self._pass_string(more)
        if whole:
            more = self._waiting + more
            self._waiting = b""
        if more or whole:
            self.live.pass_value(more.decode(), whole)
            self._string = self.live.string

    def _pass_field(self, more: bytes, upto: int) -> None:
        """Passes more of another `followed` field to `live`, up to this offset."""
        assert self.live is not None
        if self._late is not None:
            self._note(more, upto)
            return
        more = self._pass_string(more)
        if more:
            self.followed = self.live.pass_field(more, upto - len(more))
            self._string = self.live.string

    def _note(self, content: str | bytes, stop: int) -> None:
        """Notes content of a short block (see `LateField`); gives the block to `live` if it is long now."""
        assert self.live is not None
        assert self._late is not None
        self._late.append((len(self._pieces), None, content, stop))
        self._short -= len(content)
        if self._short <= 0:
            late, self._late = self._late, None
            self.followed = self.live.begin_long(self._pieces, late)
            self._string = self.live.string

    def _pass_string(self, more: bytes) -> bytes:
        """Sends the part of `more` that is certainly text of the current string. Returns the rest, which `live` must
        read."""
        live = self.live
        assert live is not None
        if self._string == NO_STRING:
            return more
        more = self._waiting + more
        used, said, waits = certain(self._string, live.stops, more)
        if said:
            live.sent += said
            self._output.say_argument(live.block, said.decode())
        self._waiting = more[used:] if waits else b""
        return b"" if waits else more[used:]

    @property
    def named(self) -> bool:
        """True if the field is read as a short one (`name` or `word`)."""
        return self.kind in (NAME, WORD)

    @property
    def in_string(self) -> bool:
        """True if the field is JSON and reading stopped inside a string."""
        return self.kind == JSON and self._json.mode == STRING

    def read(self, pos: int, end: int) -> int:
        """Reads from `pos` to `end`, or until something is `found`; returns the position."""
        self.found = GOES_ON
        if self.in_key:
            return self._read_key(pos, end)
        if self.kind == PROSE:
            return self._read_text(pos, end)
        if self.kind in (NAME, WORD):
            return self._read_word(pos, end)
        if self.kind == LOOSE:
            self._buffer.steps += end - pos
            return end
        buf = self._buffer.data
        reader = self._json if self.kind == JSON else self._code if self.kind == CODE else self._braces
        after = reader.read(buf, pos, end)
        self._buffer.steps += after - pos
        if self.followed:
            self._pass_field(buf[pos:after], self._buffer.offset(after))
        if reader.mode == WHOLE:
            self.found = BY_ITSELF
        elif reader.mode == WRONG:
            # A fence that ends inside an object: perhaps only a bracket is missing.
            halved = self.kind == JSON and self._untaught and not self._opener and buf[after] == TICK[0]
            callee = self.kind == CODE and not self._code.inside
            self.found = BY_ITSELF if halved else NO_CALL if callee else NO_FIELD
        return after

    def _find(self, what: int, at: int) -> int:
        self.found = what
        return at

    def _read_key(self, pos: int, end: int) -> int:
        """Reads the first key of an object, or of the first object of an array; it decides whether this is a block."""
        key = self._key
        assert key is not None
        for at in range(pos, end):
            fits = key.take(self._buffer.data[at])
            if fits is None:
                continue
            self._buffer.steps += at + 1 - pos
            if not fits:
                return self._find(NO_KEY, at)
            self._go_on_behind(key)
            after = at + (not key.again)
            if self.followed:
                upto = self._buffer.offset(after)
                self._pass_field(self._buffer.span(self.start, upto), upto)
            return after
        self._buffer.steps += end - pos
        return end

    def _go_on_behind(self, key: FirstKey | LooseHead) -> None:
        """Gives the beginning to the reader for its kind, which reads the rest."""
        self.in_key = False
        if isinstance(key, LooseHead):
            return
        self.kind = key.kind
        if key.kind == JSON:
            self._json.begin()
            self._json.read(key.begun, 0, len(key.begun))
        elif key.begun[0] == _BRACE:
            self._code.begin_object()
            self._code.read(key.begun, 1, len(key.begun))
        else:
            self._code.begin(key.listed)
            self._code.read(key.begun, 0, len(key.begun))

    # --- text, up to a literal ----------------------------------------------------------------------------------------

    def _read_text(self, pos: int, end: int) -> int:
        """Reads a field that ends at a literal, which may have begun in an earlier delta."""
        buf = self._buffer.data
        if self._overlap:
            seam = self._overlap + buf[pos : min(end, pos + LITERAL_BYTES)]
            before = pos - len(self._overlap)
            for at in range(len(self._overlap)):
                branch, cut = self._literal_at(seam, at, len(seam))
                if branch is not None or cut:
                    return self._text_ended(branch, seam[:at], before + at, end, seam[at:])
            self._text_ended(None, self._overlap, pos, end, b"")
        at = pos
        while (at := self._buffer.next_of(self._firsts, at)) < end:
            branch, cut = self._literal_at(buf, at, end)
            if branch is not None or cut:
                break
            at += 1
        else:
            at, branch = end, None
        return self._text_ended(branch, buf[pos:at], at, end, buf[at:end])

    def _literal_at(self, text: bytes, at: int, end: int) -> tuple[PlanBranch | None, bool]:
        """Returns the branch whose literal is at `at`, and whether one may begin there but is cut off by the end of the
        text."""
        assert self._node is not None
        for branch in self._node.branches:
            if text.startswith(branch.literal, at, end):
                return branch, False
            if end - at < len(branch.literal) and branch.literal.startswith(text[at:end]):
                return None, True
        return None, False

    def _text_ended(self, branch: PlanBranch | None, text: bytes, at: int, end: int, rest: bytes) -> int:
        """Extends the field by `text` up to `at`. There it ends with `branch`, or (if None) `rest` may begin a
        literal."""
        self._buffer.steps += len(text) + (0 if branch is None else len(branch.literal))
        if branch is None:
            if self.followed:
                self.pass_value(text, False)
            self._overlap = rest
            return end
        self.branch = branch
        self.text = text
        return self._find(AT_BRANCH, at)

    def _read_word(self, pos: int, end: int) -> int:
        """Reads a short field that ends at a literal. A byte that cannot belong to it, or the block's own opener (any
        opener if the block is untaught), means that this is not a block."""
        window = self._overlap + self._buffer.data[pos : min(end, pos + WORD_BYTES + LITERAL_BYTES)]
        shift = pos - len(self._overlap)
        for at, byte in enumerate(window):
            branch, cut = self._literal_at(window, at, len(window))
            if branch is not None or cut:
                return self._text_ended(branch, window[:at], shift + at, end, window[at:])
            again, cut = self._opener_at(window, at)
            if cut:
                return self._text_ended(None, window[:at], shift + at, end, window[at:])
            if again or not self._is_word(byte) or self._buffer.offset(shift + at) - self.start >= WORD_BYTES:
                self._buffer.steps += at
                return self._find(NO_FIELD, shift + at)
        return self._text_ended(None, window, end, end, b"")

    def _opener_at(self, window: bytes, at: int) -> tuple[bool, bool]:
        """Returns whether an opener that no short field contains is at `at`, and whether one may be cut off there."""
        cut = False
        for opener in self._ways:
            if window.startswith(opener, at):
                return True, False
            cut = cut or (len(window) - at < len(opener) and opener.startswith(window[at:]))
        return False, cut

    def _is_word(self, byte: int) -> bool:
        """Returns True if the next byte may belong to the short field."""
        if byte not in _SPACE:
            if self._ended or (self.kind == NAME and byte not in NAMED):
                return False
            self._worded = True
        elif byte == _NEWLINE or self.kind == NAME:
            self._ended = self._worded
        return True
