"""Reads one field of a block, to its end or to the byte that cannot belong to it. `json.py` follows JSON, `code.py`
other syntax.

Raw control characters in strings, trailing commas and any run of letters and digits as a scalar are accepted: the call
policy decides whether a field can be parsed or repaired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .. import octets
from .._grammar import LITERAL_BYTES, WORD_BYTES, BlockPolicy, Field
from .._plan import BRACES, CODE, JSON, LOOSE, NAME, NAMED, NOTHING, PRINTED, PROSE, WORD
from ..blocks import Piece
from ..first_key import FirstKey
from ..live import FOLLOWED, LateField, LiveCalls
from ..loose_head import LooseHead
from ..modes import AT_BRANCH, BY_ITSELF, GOES_ON, NO_CALL, NO_FIELD, NO_KEY, STRING, WHOLE, WRONG
from .buffer import Buffer
from .code import BracesReader, CodeReader
from .forms import FormBranch, FormNode, FormOpener, Forms
from .json import ObjectReader
from .sending import StringSender

_AROUND_KEY: Final = b" \t\r\n\"'"
_KEY_BYTES: Final = 128
"""The maximum length of a key whose own closing tag ends its value."""
_LESS: Final = ord("<")


class FieldReader:
    """Reads one field after another.

    `kind` is how the field is read, `field` its meaning, `start` its offset. `in_key`: its first key is not known yet.
    `found` is the result; the position returned by `read` is then the end, or the beginning of `branch`, and `text` is
    the text just before it. `followed`: `live`, which streams calls early, needs the field's content.
    """

    __slots__ = (
        *("_braces", "_buffer", "_code", "_cut", "_ended", "_followable", "_json", "_key", "_key_closer", "_key_tag"),
        *("_keyed", "_late", "_node"),
        *("_opener", "_overlap", "_pieces", "_policy", "_sender", "_short", "_untaught", "_worded"),
        *("branch", "field", "followed", "forms", "found", "in_key", "kind", "live", "start", "text"),
    )

    def __init__(
        self, buffer: Buffer, policy: BlockPolicy, live: LiveCalls | None, sender: StringSender | None
    ) -> None:
        self.forms: Forms | None = None
        self.live = live
        self.followed = False
        self.kind = NOTHING
        self.field: Field = ""
        self.start = 0
        self.in_key = False
        self.found = GOES_ON
        self.branch: FormBranch | None = None
        self.text = b""
        self._buffer = buffer
        self._policy = policy
        self._sender = sender

        # The block: its opener. `_untaught`: its form was not taught. `_followable`: its fields may be `followed`.
        self._opener = b""
        self._followable = False
        self._untaught = False

        # The field. `_node` is the node after it, whose literals end it if it is text. `_key` reads its beginning up to
        # the first key. `_overlap`: the last bytes, which may begin a literal. `_worded`: a short field is not empty;
        # `_ended`: only whitespace may follow in it. `_cut`: the end of the text cuts off what was looked for last.
        # `_keyed`: a closing tag with the name of the value's key (`_key_closer`) may end it, until an opening one
        # (which begins with `_key_tag`) is read. Both are empty until a tag is read.
        self._node: FormNode | None = None
        self._key: FirstKey | LooseHead | None = None
        self._overlap = b""
        self._keyed = False
        self._key_tag = b""
        self._key_closer = b""
        self._worded = False
        self._ended = False
        self._cut = False
        self._json = ObjectReader()
        self._code = CodeReader()
        self._braces = BracesReader()

        # `_late`: the fields of a short block that is `_followable`; None for a block that `live` reads. `_short`: the
        # number of bytes it lacks to be long. `_pieces`: the block's finished fields.
        self._late: list[LateField] | None = None
        self._short = 0
        self._pieces: Sequence[Piece] = ()

    def begin_block(self, opener: FormOpener, pieces: Sequence[Piece], quoted: bool) -> None:
        """Starts a block, whose finished fields the caller adds to `pieces`. `quoted`: the block may turn out to be
        text in any case."""
        self.kind = NOTHING
        self.followed = False
        self.in_key = False
        self._opener = opener.literal
        self._untaught = opener.untaught
        self._followable = self.live is not None and not (self._untaught or quoted)
        self._late = None
        self._pieces = pieces
        if self.live is not None and self._followable:
            self._short = self.live.long
            if self._short:
                self._late = []
            else:
                self.live.begin_block(pieces)

    def begin(self, branch: FormBranch, node: FormNode | None, at: int, first: bool) -> None:
        """Starts the field of `branch` at offset `at`. `node` is the node after it. `first`: it is the block's first
        field."""
        self.kind = branch.read
        self.field = branch.field
        self.start = at
        self.in_key = False
        if branch.read == JSON:
            self._json.begin()
            if first and branch.form.keyed:
                self._begin_key(branch)
        elif branch.read in (PRINTED, LOOSE):
            self._begin_key(branch)
        elif branch.read == CODE:
            self._code.begin(branch.size > 0)
        elif branch.read == BRACES:
            self._braces.begin(branch.form.quote)
        else:
            self._node = node
            self._overlap = b""
            self._worded = self._ended = False
            self._keyed = node is not None and node.keyed
            if self._keyed:
                self._key_tag = b""
        if self._sender is not None:
            self._sender.begin()
        if self._late is not None:
            self._late.append((len(self._pieces), (branch.form.syntax, branch.field, branch.read, at), None, 0))
            self.followed = branch.field in FOLLOWED
        elif self.live is not None and self._followable:
            self.followed = self.live.begin_field(branch.form.syntax, branch.field, branch.read, at)

    def _begin_key(self, branch: FormBranch) -> None:
        self.in_key = True
        policy = self._policy
        if branch.read == LOOSE:
            self._key = LooseHead(policy.callable_names)
        else:
            names = policy.callable_names if branch.read == PRINTED else ()
            syntax = branch.form.syntax
            any_name = policy.strict and not syntax.untaught
            self._key = FirstKey(syntax, branch.read, names, None if any_name else policy.may_call)

    def reach_back(self, start: int, overlap: bytes) -> None:
        """Moves the start of the field back to offset `start`, before the literal that preceded it; `overlap` is the
        text between."""
        self.start = start
        self._overlap = overlap

    def go_on(self, more: bytes, overlap: bytes) -> None:
        """Continues the field after a false end: `more` belongs to it, and `overlap` may begin a literal."""
        if self.field and self.followed:
            self.pass_value(more, 0, len(more), False)
        self._overlap = overlap

    def pass_value(self, buf: bytes, pos: int, end: int, whole: bool) -> None:
        """Passes more of a `followed` value to `live`; `whole`: it ends here."""
        if self._late is not None:
            self._note(self._buffer.text(buf, pos, end), -1 if whole else 0)
        elif self.live is not None and self._sender is not None:
            more = self._sender.send(buf, pos, end)
            if whole:
                more = self._sender.rest() + more
            if whole or more:
                self.live.pass_value(more.decode(), whole)
                self._sender.read_string(self.live)

    def _pass_field(self, buf: bytes, pos: int, end: int, upto: int) -> None:
        """Passes more of another `followed` field to `live`, up to offset `upto`."""
        if self._late is not None:
            self._note(buf[pos:end], upto)
        elif self.live is not None and self._sender is not None:
            more = self._sender.send(buf, pos, end)
            if more:
                self.followed = self.live.pass_field(more, upto - len(more))
                self._sender.read_string(self.live)

    def _note(self, content: str | bytes, stop: int) -> None:
        """Notes content of a short block (see `LateField`); gives the block to `live` if it is long now."""
        late = self._late
        assert self.live is not None
        assert late is not None
        assert self._sender is not None
        late.append((len(self._pieces), None, content, stop))
        self._short -= len(content)
        if self._short <= 0:
            self._late = None
            self.followed = self.live.begin_long(self._pieces, late)
            self._sender.read_string(self.live)

    def is_named(self) -> bool:
        """Returns True if the field is read as a short one (`name` or `word`)."""
        return self.kind in (NAME, WORD)

    def is_in_string(self) -> bool:
        """Returns True if the field is JSON and reading stopped inside a string."""
        return self.kind == JSON and self._json.mode == STRING

    def read(self, pos: int, end: int) -> int:
        """Reads from `pos` to `end`, or until something is `found`; returns the position."""
        self.found = GOES_ON
        if self.in_key:
            return self._read_key(pos, end)
        if self.kind == JSON:
            after = self._json.read(self._buffer.data, pos, end)
            mode = self._json.mode
        elif self.kind == CODE:
            after = self._code.read(self._buffer.data, pos, end)
            mode = self._code.mode
        elif self.kind == BRACES:
            after = self._braces.read(self._buffer.data, pos, end)
            mode = self._braces.mode
        elif self.kind == PROSE:
            return self._read_text(pos, end)
        elif self.kind == LOOSE:
            self._buffer.steps += end - pos
            return end
        else:
            return self._read_word(pos, end)
        self._buffer.steps += after - pos
        if self.followed:
            self._pass_field(self._buffer.data, pos, after, self._buffer.offset(after))
        if mode == WHOLE:
            self.found = BY_ITSELF
        elif mode == WRONG:
            self.found = self._what_is_wrong(self._buffer.data, after)
        return after

    def _what_is_wrong(self, buf: bytes, at: int) -> int:
        if self.kind == CODE and not self._code.inside:
            return NO_CALL
        # A fence that ends inside an object: perhaps only a bracket is missing.
        halved = self.kind == JSON and self._untaught and not self._opener and buf[at] == ord("`")
        return BY_ITSELF if halved else NO_FIELD

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
            self.in_key = False
            if isinstance(key, FirstKey):
                self._go_on_behind(key)
            after = at if key.again else at + 1
            if self.followed:
                upto = self._buffer.offset(after)
                begun = self._buffer.span(self.start, upto)
                self._pass_field(begun, 0, len(begun), upto)
            return after
        self._buffer.steps += end - pos
        return end

    def _go_on_behind(self, key: FirstKey) -> None:
        """Gives the beginning to the reader for its kind, which reads the rest."""
        begun = key.begun
        self.kind = key.kind
        if self.kind == JSON:
            self._json.begin()
            self._json.read(begun, 0, len(begun))
        elif begun[0] == ord("{"):
            self._code.begin_object()
            self._code.read(begun, 1, len(begun))
        else:
            self._code.begin(key.listed)
            self._code.read(begun, 0, len(begun))

    # --- text, up to a literal ----------------------------------------------------------------------------------------

    def _read_text(self, pos: int, end: int) -> int:
        """Reads a field that ends at a literal, which may have begun in an earlier delta."""
        node = self._node
        assert node is not None
        buf = self._buffer.data
        before = len(self._overlap)
        branch = None
        if before > 0:
            seam = self._overlap + buf[pos : min(end, pos + LITERAL_BYTES)]
            size = len(seam)
            for at in range(before):
                if node.firsts[seam[at]]:
                    branch = self._literal_at(seam, at, size)
                    if branch is not None or self._cut:
                        return self._text_ended(branch, seam, 0, at, size, pos - before + at, end)
            self._text_ended(None, seam, 0, before, before, pos, end)
        at = octets.find_one_of(buf, node.firsts, pos, end)
        while at < end:
            branch = self._literal_at(buf, at, end)
            if branch is not None or self._cut:
                break
            at = octets.find_one_of(buf, node.firsts, at + 1, end)
        return self._text_ended(branch, buf, pos, at, end, at, end)

    def _literal_at(self, buf: bytes, at: int, end: int) -> FormBranch | None:
        """Returns the branch whose literal is at `at`. `_cut`: one may begin there, cut off by the end of the text."""
        assert self._node is not None
        self._cut = False
        for branch in self._node.branches:
            fits = octets.fits(buf, branch.literal, at, end)
            if fits:
                self._cut = fits == octets.CUT
                return None if self._cut else branch
        return self._own_at(buf, at, end) if self._keyed and buf[at] == _LESS else None

    def _own_at(self, buf: bytes, at: int, end: int) -> FormBranch | None:
        """Returns the branch at a closing tag with the name of the value's key, if that is at `at`. There is none
        behind an opening tag of that name."""
        if not self._key_tag:
            _, start, stop = self._pieces[len(self._pieces) - 1]
            key = self._buffer.span(start, stop).strip(_AROUND_KEY)
            self._key_tag = b"<" + key
            self._key_closer = b"</" + key + b">"
            self._keyed = 0 < len(key) <= _KEY_BYTES
        fits = octets.fits(buf, self._key_closer, at, end) if self._keyed else 0
        if fits == octets.WHOLE:
            assert self._node is not None
            return self._node.closing(self._key_closer)
        if self._keyed:
            begun = octets.fits(buf, self._key_tag, at, end)
            self._keyed = begun != octets.WHOLE
            self._cut = fits == octets.CUT or begun == octets.CUT
        return None

    def _text_ended(
        self, branch: FormBranch | None, buf: bytes, pos: int, at: int, stop: int, where: int, end: int
    ) -> int:
        """Extends the field by the text of `buf` up to `at`, which is position `where`. There it ends with `branch`, or
        (if None) the rest of `buf` up to `stop` may begin a literal."""
        self._buffer.steps += at - pos
        if branch is None:
            if self.followed:
                self.pass_value(buf, pos, at, False)
            self._overlap = buf[at:stop] if at < stop else b""
            return end
        self._buffer.steps += branch.size
        self.branch = branch
        if self.followed:
            self.text = buf[pos:at]
        return self._find(AT_BRANCH, where)

    def _read_word(self, pos: int, end: int) -> int:
        """Reads a short field that ends at a literal. A byte that cannot belong to it, or the block's own opener (any
        opener if the block is untaught), means that this is not a block."""
        assert self._node is not None
        window = self._overlap + self._buffer.data[pos : min(end, pos + WORD_BYTES + LITERAL_BYTES)]
        size = len(window)
        shift = pos - len(self._overlap)
        for at in range(size):
            byte = window[at]
            if self._node.firsts[byte]:
                branch = self._literal_at(window, at, size)
                if branch is not None or self._cut:
                    return self._text_ended(branch, window, 0, at, size, shift + at, end)
            again = self._opener_at(window, at, size)
            if self._cut:
                return self._text_ended(None, window, 0, at, size, shift + at, end)
            if again or not self._is_word(byte) or self._buffer.offset(shift + at) - self.start >= WORD_BYTES:
                self._buffer.steps += at
                return self._find(NO_FIELD, shift + at)
        return self._text_ended(None, window, 0, size, size, end, end)

    def _opener_at(self, buf: bytes, at: int, end: int) -> bool:
        """Returns True if an opener that no short field contains is at `at`. `_cut`: one may be cut off there."""
        self._cut = False
        if not self._untaught:
            fits = octets.fits(buf, self._opener, at, end) if self._opener else 0
            self._cut = fits == octets.CUT
            return fits == octets.WHOLE
        forms = self.forms
        assert forms is not None
        if not forms.begins[buf[at]]:
            return False
        for opener in forms.begun:
            fits = octets.fits(buf, opener, at, end)
            if fits == octets.WHOLE:
                self._cut = False
                return True
            if fits:
                self._cut = True
        return False

    def _is_word(self, byte: int) -> bool:
        """Returns True if the next byte may belong to the short field."""
        if byte not in b" \t\r\n":
            if self._ended or (self.kind == NAME and byte not in NAMED):
                return False
            self._worded = True
        elif byte == ord("\n") or self.kind == NAME:
            self._ended = self._worded
        return True
