"""Reading a block, in Python: where its fields are and where it ends.

Part of the Python twin, see `_pyparse.py`, whose `CallScanner` is this and gives out calls. `_fastblock.pxi` is the same with C
types.

How a block ends (R6.4): its body is followed character by character, through the places and fields of its shape. The closer
counts only where the shape expects it, so that inside a string it is data. So it is inside a value in tags, if what follows it is
none of what may follow: then the value goes on, from there, and nothing is read twice. Once the body cannot be what the shape
says, the *first* literal closer after the opener ends the block, also one already passed; what follows it is read again as text.
The same holds if the answer ends inside a JSON string. Where only closers are missing the opener of another block is as good as
the end of the answer (R6.8). Raw control characters in strings, trailing commas and any run of letters
and digits as a scalar are let through: whether the body parses in the end, and whether it can be repaired, is the judge's
business.

An opener is only a mention (R6.2) if no body follows: then it is text at once, and reading goes on right behind it. With
a strict tool on offer such a thing might be a broken call, so it is held up to the closer (then it is the judge's) or
up to the next opener or the end of the answer (then it is text).
"""

from __future__ import annotations

from typing import Final

from ._grammar import (
    AS_TEXT,
    BODY,
    BROKEN,
    DROPPED,
    END,
    FENCE,
    HELD,
    KEY,
    LEAD,
    LITERAL_BYTES,
    SPACE,
    TAIL,
    WORD_BYTES,
    Block,
    Field,
    Grammar,
    Judge,
    Shape,
    Verdict,
    Why,
)
from ._plan import (
    BRACES,
    CODE,
    JSON,
    LIKELY,
    NAME,
    NAMED,
    NOTHING,
    PRINTED,
    PROSE,
    SURE,
    TICK,
    UNLIKELY,
    WORD,
    Opener,
    Step,
    Stop,
    printed_heads,
)
from ._pycode import BracesReader, CodeReader
from ._pyjson import STRING, WHOLE, WRONG, ObjectReader
from ._pyprose import ANSWER, LITERAL, NONE, ProseScanner
from .live import LiveCalls

_SPACE: Final = SPACE.encode()
_FENCE: Final = FENCE.encode()
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NEWLINE: Final = ord("\n")
_BRACKET: Final = ord("[")
_BRACE: Final = ord("{")
_TO_CLOSER: Final = -1
_ANYWHERE: Final = -(1 << 62)
_IN_TAG: Final = bytes(byte for byte in range(256) if byte not in b"<" + _SPACE)
_CONTENT: Final = ("value", "arguments", "call", "calls")
_NO_STOP: Final = Stop((), None, ends=True, free=False, final=False, more=False)


class BlockScanner(ProseScanner):
    """Reads blocks, and the text around them. For the parameters see `CallScanner`."""

    def __init__(
        self,
        grammar: Grammar,
        judge: Judge,
        block_bytes: int,
        trim_edges: bool,
        reasoning: tuple[tuple[str, str], ...],
        preopened: bool,
        scan_calls: bool,
        choice: int,
        first_block: int,
    ) -> None:
        super().__init__(grammar, block_bytes, trim_edges, reasoning, preopened, scan_calls, choice, first_block)
        self._judge = judge

        # The block. `_pieces`: fields that are whole, with their offsets. `_kind`, `_field`, `_then`: the field that is being
        # read since `_from`, and the place behind it. `_stop`: the place that is read, or ends that field. `_mark`: where the
        # block may end, if `_may_end`. `_gap`: where the place begins. `_word`: the beginning of a literal, at `_word_at`.
        # `_doubt`: whether the value before the place has ended; `_proving`: it has if this step's tag is as it should be.
        # `_beyond`: from where another opener ends a broken block.
        # `_fence` may come, `_fenced` has come. `_overlap`: the end of what was searched, as far as it may begin a literal.
        self._opener = b""
        self._closer = b""
        self._shape: Shape | None = None
        self._stop = _NO_STOP
        self._pieces: list[tuple[Field, int, int]] = []
        self._kind = NOTHING
        self._field: Field = ""
        self._then = END
        self._from = 0
        self._mark = 0
        self._may_end = False
        self._doubt = SURE
        self._proving: Step | None = None
        self._beyond = END
        self._gap = 0
        self._word = b""
        self._word_at = 0
        self._fence = False
        self._fenced = False
        self._key = b""
        self._worded = False
        self._ended = False
        self._json = ObjectReader()
        self._code = CodeReader()
        self._braces = BracesReader()
        self._overlap = b""

        # `_untaught`: what is read is none of the taught forms. `_inner`: it stands in a section, or ends one.
        self._untaught = False
        self._inner = False

        # `_live` gives out calls while they come, if that is wanted. `_followed`: it wants the field that is read.
        self._live: LiveCalls | None = None
        self._followed = False

    def _open_block(self, opener: Opener, at: int) -> int:
        self._state = LEAD
        self._start = at
        self._opener = opener.literal
        self._shape = opener.shapes[0]
        self._closer = self._shape.closer.encode()
        self._fence = any(shape.fence for shape in opener.shapes)
        self._fenced = False
        self._pieces.clear()
        self._may_end = False
        self._doubt = SURE
        self._proving = None
        self._refused = NONE
        self._untaught = opener.untaught
        self._inner = opener.inner
        self._followed = False
        if not self._untaught:
            self._fresh = self._fresh and self._plan.quotes
            if opener.inner:
                self._right = ""
            if self._live is not None:
                self._live.begin_block(self._pieces)
        return self._go_to(opener.first, at + len(self._opener))

    def _read_block(self, pos: int) -> int:
        """One stretch of the block. Stops in front of the first character that would make it too large."""
        buf = self._buf
        end = min(len(buf), self._start + self._limit - len(self._raw))
        if end < len(buf):
            while buf[end] & 0xC0 == 0x80:
                end -= 1
            if pos >= end:
                return self._oversize(end)
        state = self._state
        if state in (LEAD, TAIL):
            return self._read_place(pos, end) if self._proving is None else self._read_tag(pos, end)
        if state == KEY:
            return self._read_key(pos, end)
        if state == BODY:
            return self._read_field(pos, end)
        return self._read_broken(pos, end) if state == BROKEN else self._read_held(pos, end)

    def _go_to(self, stop: Stop, pos: int) -> int:
        """To a place. A block that nothing can continue ends at once."""
        self._stop = stop
        self._word = b""
        self._gap = self._offset(pos)
        if stop.free and self._doubt != UNLIKELY:
            self._be_sure()
            self._may_end = True
            self._mark = self._gap
            if not stop.steps:
                return self._closed(pos, self._mark)
        return pos

    def _read_place(self, pos: int, end: int) -> int:
        """Between fields: whitespace, perhaps a fence, then one of the literals that may come."""
        buf = self._buf
        for at in range(pos, end):
            byte = buf[at]
            if not self._word:
                if byte in _SPACE or (self._fenced and self._state == LEAD and byte in _LETTERS):
                    continue
                self._word_at = self._offset(at)
            self._word += buf[at : at + 1]
            fits = False
            for step in self._stop.steps:
                if step.literal == self._word:
                    self._steps += at + 1 - pos
                    return self._take(step, at + 1)
                fits = fits or step.literal.startswith(self._word)
            if not (fits or self._may_end) and self._has_content():
                if self._word in self._stop.next:
                    self._steps += at + 1 - pos
                    return self._next_begins()
                fits = any(opener.startswith(self._word) for opener in self._stop.next)
            may_fence = self._fence and not self._fenced if self._state == LEAD else self._fenced
            if may_fence and _FENCE.startswith(self._word):
                fits = True
                if self._word == _FENCE:
                    self._fenced = not self._fenced
                    self._word = b""
            if not fits:
                self._steps += at - pos
                return self._otherwise(at)
        self._steps += end - pos
        return end

    def _otherwise(self, at: int) -> int:
        """No literal begins like `_word`, whose last byte stands at `at`."""
        stop = self._stop
        step = stop.otherwise
        if self._may_end:
            return self._closed(self._back_to(self._mark), self._mark)
        if step is not None and not (stop.free and self._doubt == UNLIKELY):
            if step.read == PROSE:
                return self._text_begins(step, at)
            return self._take(step, self._back_to(self._word_at))
        if self._doubt:
            return self._read_on(at)
        at = self._start + self._word_at - len(self._raw)
        return self._break(at) if self._pieces else self._mention(at)

    def _text_begins(self, step: Step, at: int) -> int:
        """A text without a literal before it: it began with the place, whitespace included."""
        start = self._gap
        at = self._take(step, at)
        self._overlap = self.span(start, self._from)
        self._from = start
        return at

    def _has_content(self) -> bool:
        """Whether a field with content was the last one, so that the call may be whole."""
        return bool(self._pieces) and self._pieces[-1][0] in _CONTENT

    def _next_begins(self) -> int:
        """Another block begins where only closers are missing: as if the answer ended there."""
        upto = self._back_to(self._word_at)
        if self._stop.ends or self._stop.free:
            return self._closed(upto, self._word_at)
        upto += self._gather()
        return self._judged(upto, self._word_at, False)

    def _be_sure(self) -> None:
        """What may follow a value follows: it has ended."""
        if self._doubt:
            self._doubt = SURE
            if self._followed:
                self._pass_value("", True)

    def _read_on(self, at: int) -> int:
        """What was taken for the end of a value is part of it. The search goes on where something else followed than what may
        follow, one character of whitespace before it included."""
        self._doubt = SURE
        self._state = BODY
        again = max(self._gap, self._word_at - 1)
        if self._field:
            _, _, ended = self._pieces.pop()
            if self._followed:
                self._pass_value(self.span(ended, again).decode(), False)
        self._overlap = self.span(again, self._offset(at))
        self._stop = self._places()[self._then]
        return at

    def _read_tag(self, pos: int, end: int) -> int:
        """The rest of the tag that `_proving` begins: a word, `>` and a line end."""
        step = self._proving
        assert step is not None
        for at in range(pos, end):
            byte = self._buf[at]
            inside = self._word[-1:] != b">"
            if inside and byte in _IN_TAG and len(self._word) < WORD_BYTES:
                self._word += self._buf[at : at + 1]
                continue
            self._steps += at - pos
            self._proving = None
            if inside or byte != _NEWLINE:
                self._gap = self._word_at = self._offset(at)
                return self._read_on(at)
            self._be_sure()
            self._take(step, at)
            self._from -= len(self._word)
            self._overlap = self._word
            return at
        self._steps += end - pos
        return end

    def _back_to(self, offset: int) -> int:
        """The position of an offset that may lie in an earlier delta, of which the rest is then read again."""
        if offset < len(self._raw):
            again = bytes(self._raw[offset:]) + self._buf
            del self._raw[offset:]
            self._begin(again)
        return self._start + offset - len(self._raw)

    def _take(self, step: Step, pos: int) -> int:
        """Go on with `step`, whose literal ends at `pos`."""
        if self._doubt and (step.read != NOTHING or step.then == END):
            if self._doubt == UNLIKELY:
                return self._doubt_more(step, pos)
            self._be_sure()
        self._shape = step.shape
        self._closer = step.shape.closer.encode()
        pos += step.taken - len(step.literal)
        if step.read == NOTHING:
            if step.then == END:
                return self._closed(pos, self._offset(pos) - step.taken)
            self._state = TAIL if self._pieces else LEAD
            return self._go_to(self._places()[step.then], pos)
        self._state = BODY
        self._may_end = False
        self._kind = step.read
        self._field = step.field
        self._then = step.then
        self._from = self._offset(pos)
        if step.read == JSON:
            self._json.begin()
            if step.shape.first_keys and not self._pieces:
                self._state = KEY
                self._key = b""
        elif step.read == PRINTED:
            self._state = KEY
            self._key = b""
        elif step.read == CODE:
            self._code.begin(bool(step.literal))
        elif step.read == BRACES:
            self._braces.begin(step.shape.quote.encode())
        else:
            self._stop = self._places()[step.then]
            self._overlap = b""
            self._worded = self._ended = False
        if self._live is not None and not self._untaught:
            self._followed = self._live.begin_field(step.shape, step.field, step.read, self._from)
        return pos

    def _doubt_more(self, step: Step, pos: int) -> int:
        """Also what follows `step`, whose literal ends at `pos`, has to be as the template writes it: a tag, or nothing more."""
        self._state = TAIL
        if step.read == NOTHING:
            return self._go_to(self._places()[-1], pos)
        self._proving = step
        self._word = b""
        return pos

    def _places(self) -> tuple[Stop, ...]:
        assert self._shape is not None
        return self._plan.stops[self._shape]

    def _read_key(self, pos: int, end: int) -> int:
        """The first key of an object, or of the first object of an array, decides whether this is a block at all."""
        buf = self._buf
        assert self._shape is not None
        for at in range(pos, end):
            if buf[at] in _SPACE and self._key in (b"[", b"{", b"[{"):
                continue
            self._key += buf[at : at + 1]
            if self._untaught:
                begun = self._begins_printed()
                if begun is None:
                    continue
                self._steps += at + 1 - pos
                if not begun:
                    return self._mention(at)
                self._state = BODY
                return at + 1
            fits = self._key == b"["
            for key in self._shape.first_keys:
                head = f'{{"{key}"'.encode()
                if self._key in (head, b"[" + head):
                    self._steps += at + 1 - pos
                    self._json.begin_after_first_key(self._key[0] == _BRACKET)
                    self._state = BODY
                    if self._followed:
                        self._pass_field(self.span(self._from, self._offset(at + 1)))
                    return at + 1
                fits = fits or head.startswith(self._key) or (b"[" + head).startswith(self._key)
            if not fits:
                self._steps += at + 1 - pos
                return self._mention(at)
        self._steps += end - pos
        return end

    def _begins_printed(self) -> bool | None:
        """Whether an untaught call begins with `_key`; None as long as it may. Then the machine that reads on is chosen."""
        assert self._shape is not None
        listed = self._key.startswith(b"[")
        key = self._key[listed:]
        heads = printed_heads(self._shape, self._judge.callable_names if self._kind == PRINTED else ())
        if key not in heads:
            return None if any(head.startswith(key) for head in heads) else False
        if key[:2] == b'{"' and not listed:
            self._kind = JSON
            self._json.begin_after_first_key()
        else:
            self._kind = CODE
            begun = self._key.removeprefix(b"await ")
            if begun[0] == _BRACE:
                self._code.begin_object()
            else:
                self._code.begin(listed)
            self._code.read(begun, int(begun[0] == _BRACE), len(begun))
        return True

    def _read_field(self, pos: int, end: int) -> int:
        if self._kind == PROSE:
            return self._read_text(pos, end)
        if self._kind in (NAME, WORD):
            return self._read_word(pos, end)
        reader = self._json if self._kind == JSON else self._code if self._kind == CODE else self._braces
        after = reader.read(self._buf, pos, end)
        self._steps += after - pos
        if self._followed:
            self._pass_field(self._buf[pos:after])
        # A fence that ends inside an object: perhaps no more than a bracket is missing.
        halved = reader.mode == WRONG and self._kind == JSON and self._printing and self._buf[after] == TICK[0]
        if reader.mode == WHOLE or halved:
            ended = self._offset(after)
            self._keep(ended)
            if self._then == END:
                return self._closed(after, ended)
            self._state = TAIL
            return self._go_to(self._places()[self._then], after)
        if reader.mode == WRONG:
            early = self._kind == CODE and not (self._pieces or self._code.inside)
            return self._mention(after) if early else self._break(after)
        return after

    @property
    def _printing(self) -> bool:
        """What is read was not taught and has no markers."""
        return self._untaught and not self._opener

    def _keep(self, upto: int) -> None:
        """The field that was read ends at offset `upto`."""
        if self._field:
            self._pieces.append((self._field, self._from, upto))

    def span(self, start: int, stop: int) -> bytes:
        """What stands at these offsets of the block."""
        size = len(self._raw)
        if stop <= size:
            return bytes(self._raw[start:stop])
        return bytes(self._raw[start:]) + self._buf[self._start + max(0, start - size) : self._start + stop - size]

    def _read_text(self, pos: int, end: int) -> int:
        """A field that ends at a literal, which may have begun in an earlier delta."""
        if self._overlap:
            seam = self._overlap + self._buf[pos : min(end, pos + LITERAL_BYTES)]
            before = pos - len(self._overlap)
            for at in range(len(self._overlap)):
                step, cut = self._literal_at(seam, at, len(seam))
                if step is not None or cut:
                    return self._text_ended(step, seam[:at], before + at, end, seam[at:])
            self._text_ended(None, self._overlap, pos, end, b"")
        at = pos
        while (at := self._next_literal(at)) < end:
            step, cut = self._literal_at(self._buf, at, end)
            if step is not None or cut:
                break
            at += 1
        else:
            at, step = end, None
        return self._text_ended(step, self._buf[pos:at], at, end, self._buf[at:end])

    def _next_literal(self, pos: int) -> int:
        """Where a literal may begin that ends the field. Each first byte remembers from where it was looked for in this buffer,
        and where it was found; a broken block may lead back before that."""
        size = len(self._buf)
        nearest = size
        for step in self._stop.steps:
            first = step.literal[0]
            since, found = self._seen.get(first, (size, size))
            if pos < since or found < pos:
                again = self._buf.find(first, pos, since if pos < since else size)
                found = again if again >= 0 else found if pos < since else size
                self._seen[first] = (pos, found)
            nearest = min(nearest, found)
        return nearest

    def _literal_at(self, text: bytes, at: int, end: int) -> tuple[Step | None, bool]:
        """The step whose literal stands there, and whether one may, as far as the text goes."""
        for step in self._stop.steps:
            if text.startswith(step.literal, at, end):
                return step, False
            if end - at < len(step.literal) and step.literal.startswith(text[at:end]):
                return None, True
        return None, False

    def _text_ended(self, step: Step | None, text: bytes, at: int, end: int, rest: bytes) -> int:
        """The field goes on with `text` up to `at`. There it ends with `step`, or `rest` may begin a literal."""
        self._steps += len(text) + (0 if step is None else len(step.literal))
        if step is None:
            if self._followed:
                self._pass_value(text.decode(), False)
            self._overlap = rest
            return end
        if self._kind == PROSE:
            self._doubt = self._doubt_of(step, self._offset(at))
        self._keep(self._offset(at))
        if self._followed:
            self._pass_value(text.decode(), not self._doubt)
        return self._take(step, self._back_to(self._offset(at) + len(step.literal)))

    def _doubt_of(self, step: Step, at: int) -> int:
        """Whether a value ends at offset `at`, before `step`. If it begins with a line end, the template writes one before the
        closer too (`framed`); where the closer is left out, what ends the call is enough."""
        assert self._shape is not None
        if not self._shape.framed or self.span(self._from, self._from + 1) != b"\n":
            return LIKELY
        own = step.read == NOTHING if step.literal[0] == _NEWLINE else self.span(at - 1, at) == b"\n"
        return LIKELY if own else UNLIKELY

    def _pass_field(self, more: bytes) -> None:
        assert self._live is not None
        self._followed = self._live.pass_field(more)

    def _pass_value(self, more: str, whole: bool) -> None:
        assert self._live is not None
        self._live.pass_value(more, whole)

    def _read_word(self, pos: int, end: int) -> int:
        """A short field that ends at a literal. What cannot be part of it, the block's own opener for one (if it is untaught, anyone's),
        makes the block none."""
        window = self._overlap + self._buf[pos : min(end, pos + WORD_BYTES + LITERAL_BYTES)]
        shift = pos - len(self._overlap)
        for at, byte in enumerate(window):
            step, cut = self._literal_at(window, at, len(window))
            if step is not None or cut:
                return self._text_ended(step, window[:at], shift + at, end, window[at:])
            again, cut = self._opener_at(window, at)
            if cut:
                return self._text_ended(None, window[:at], shift + at, end, window[at:])
            if again or not self._is_word(byte) or self._offset(shift + at) - self._from >= WORD_BYTES:
                self._steps += at
                return self._break(shift + at) if self._pieces else self._mention(shift + at)
        return self._text_ended(None, window, end, end, b"")

    def _opener_at(self, window: bytes, at: int) -> tuple[bool, bool]:
        """Whether an opener stands there that no short field holds, and whether one may, as far as the window goes."""
        cut = False
        for opener in self._plan.begun if self._untaught else (self._opener,):
            if opener and window.startswith(opener, at):
                return True, False
            cut = cut or (len(window) - at < len(opener) and opener.startswith(window[at:]))
        return False, cut

    def _is_word(self, byte: int) -> bool:
        """Whether the next byte of a short field may be part of it."""
        if byte not in _SPACE:
            if self._ended or (self._kind == NAME and byte not in NAMED):
                return False
            self._worded = True
        elif byte == _NEWLINE or self._kind == NAME:
            self._ended = self._worded
        return True

    def _read_broken(self, pos: int, end: int) -> int:
        opener_end = -1
        if self._beyond != END:
            opener_end = self._find(self._opener, pos, end, self._start + self._beyond - len(self._raw))
        upto = self._find(self._closer, pos, end if opener_end < 0 else opener_end)
        if upto >= 0:
            self._steps += upto - pos
            return self._given_up(upto)
        if opener_end >= 0:
            self._steps += opener_end - pos
            return self._unfinished(opener_end - len(self._opener) + self._gather(), "end")
        return self._pass(pos, end, max(len(self._opener), len(self._closer)))

    def _read_held(self, pos: int, end: int) -> int:
        opener_end = self._find(self._opener, pos, end)
        upto = self._find(self._closer, pos, end if opener_end < 0 else opener_end)
        if upto >= 0:
            self._steps += upto - pos
            return self._given_up(upto)
        if opener_end >= 0:
            self._steps += opener_end - pos
            return self._release(opener_end)
        return self._pass(pos, end, max(len(self._opener), len(self._closer)))

    def _find(self, literal: bytes, pos: int, end: int, since: int = _ANYWHERE) -> int:
        """The end of the first `literal` that ends behind `pos` and does not begin before `since`, or -1. It may begin in an
        earlier delta."""
        if self._overlap:
            seam = self._overlap + self._buf[pos : min(end, pos + len(literal) - 1)]
            before = pos - len(self._overlap)
            at = seam.find(literal, max(0, since - before))
            if at >= 0:
                return before + at + len(literal)
        at = self._buf.find(literal, max(pos, since), end)
        return at + len(literal) if at >= 0 else -1

    def _pass(self, pos: int, end: int, longest: int) -> int:
        """Nothing found: remember as much of the end as may be the beginning of a literal."""
        self._steps += end - pos
        seam = self._overlap + self._buf[max(pos, end - longest + 1) : end]
        self._overlap = seam[len(seam) - min(len(seam), longest - 1) :]
        return end

    def _mention(self, at: int) -> int:
        """No body follows the opener, as shows at `at`."""
        assert self._shape is not None
        if self._untaught or not self._judge.strict or self._shape.first_keys or not self._closer:
            return self._release(at)
        return self._look_again(HELD)

    def _break(self, at: int) -> int:
        """The body is not what the shape says, as shows at `at`. Without a closer to come it is no block at all; nor is one that
        was not taught, of which no more than the name is known."""
        named = self._kind in (NAME, WORD) if self._state == BODY else not self._has_content()
        if not self._closer or (self._untaught and named):
            return self._release(at)
        whole = self._state == TAIL and bool(self._opener and self._stop.next) and self._has_content()
        self._beyond = self._word_at if whole else END
        if self._state == BODY:
            self._keep(_TO_CLOSER)
        elif self._pieces:  # what was taken for the end of its last field was none
            field, start, _ = self._pieces.pop()
            self._pieces.append((field, start, _TO_CLOSER))
        return self._look_again(BROKEN)

    def _look_again(self, state: int) -> int:
        self._gather()
        self._state = state
        self._overlap = b""
        return self._start + len(self._opener)

    def _release(self, at: int) -> int:
        """The opener was none, as was seen at `at`: it is text, and what follows it is read as text."""
        at += self._gather()
        if self._live is not None and self._live.opened is not None:
            self._settle(AS_TEXT, b"")
            return len(self._buf)
        if self._plan.quotes:
            return self._read_again(at)
        self._state = self._prose
        self._fresh = False
        self._line_start = self._margin = self._opener.endswith(b"\n")
        self._say(self._opener.decode())
        return self._start + len(self._opener)

    def _read_again(self, at: int) -> int:
        """What was taken for a block up to `at` is none of this kind: it is read again, as something else."""
        self._state = self._prose
        if self._untaught:
            self._quiet = max(self._quiet, at, self._start + 1)
        else:
            self._refused = LITERAL if self._opener else ANSWER
        return self._start

    def _closed(self, upto: int, body_end: int) -> int:
        """The block is whole: it ends at `upto`, its body at offset `body_end`."""
        upto += self._gather()
        if self._pieces:
            return self._judged(upto, body_end, True)
        return self._settled(DROPPED, upto)  # framing

    def _given_up(self, upto: int) -> int:
        """A block that is not what its shape says ends with the closer at `upto`."""
        upto += self._gather()
        return self._judged(upto, upto - self._start - len(self._closer), True, broken=True)

    def _judged(self, upto: int, body_end: int, closed: bool, broken: bool = False) -> int:
        """Have the block judged, which is the buffer from `_start` to `upto`. Gives the position from where to go on."""
        raw = self._buf[self._start : upto]
        assert self._shape is not None
        if self._live is not None and self._live.opened is not None:
            start = len(self._opener)
            return self._settled(self._live.judged(self._shape, raw, start, body_end, closed, broken), upto)
        body = raw[len(self._opener) : body_end].decode()
        pieces = tuple(
            (field, raw[start : body_end if end == _TO_CLOSER else end].decode())
            for field, start, end in self._pieces
            if start <= body_end and end <= body_end
        )
        whole = self._shape.whole
        if whole and len(pieces) < 2:
            pieces = ((whole, body),)
        return self._settled(self._judge.block(Block(self._shape, body, pieces, closed, broken)), upto)

    def _settled(self, verdict: Verdict, upto: int) -> int:
        """Do what the judge says of the block that ends at `upto`. Gives the position from where to go on."""
        if self._untaught:
            if not (verdict.calls or verdict.drop):
                return self._read_again(upto)
            if self._inner:
                self._right = ""
        self._fresh = False
        self._settle(verdict, self._buf[self._start : upto])
        return upto

    def _oversize(self, end: int) -> int:
        if self._may_end:
            return self._closed(self._back_to(self._mark), self._mark)
        end += self._gather()
        if self._closer and not self._judge.strict:
            at = self._buf.find(self._closer, self._start + len(self._opener), end)
            if at >= 0:
                return self._given_up(at + len(self._closer))
        return self._unfinished(end, "oversize")

    def _unfinished(self, end: int, why: Why) -> int:
        body = self._buf[self._start + len(self._opener) : end].decode()
        assert self._shape is not None
        return self._settled(self._judge.unfinished(self._shape, body, why), end)

    def _end(self, truncated: bool) -> int:
        end = len(self._buf)
        assert self._shape is not None
        stop = self._stop
        named = self._state == BODY and self._kind in (NAME, WORD) and not self._pieces  # no more than an opener
        if self._state in (HELD, KEY) or ((self._state == LEAD or named) and (self._shape.first_keys or not truncated)):
            return self._release(end)
        resting = self._state == TAIL and self._proving is None
        if resting and not (truncated and self._doubt):
            if (stop.ends and not self._word) or (stop.free and self._doubt == UNLIKELY):
                return self._closed(end, end)
            if self._may_end and not (truncated and stop.more):
                return self._otherwise(end)
        if truncated:
            return self._unfinished(end, "truncated")
        if resting and stop.final:
            return self._judged(end, self._word_at if self._word else end, False)
        if self._printing and self._state == BODY and self._kind in (JSON, CODE):
            self._keep(_TO_CLOSER)  # perhaps no more than a bracket is missing
            return self._judged(end, end, True, broken=True)
        if self._state == BODY and self._kind == JSON and self._json.mode == STRING and self._closer:
            at = self._buf.find(self._closer, len(self._opener))
            if at >= 0:
                self._keep(_TO_CLOSER)
                return self._given_up(at + len(self._closer))
        return self._unfinished(end, "end")

    # --- what becomes of it: see `CallScanner` ----------------------------------------------------------------------

    def _settle(self, verdict: Verdict, raw: bytes) -> None:
        """Do what the judge says of the block, whose text is `raw`."""
        raise NotImplementedError  # abstract: `CallScanner` says it
