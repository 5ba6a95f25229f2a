"""Calls that are given out while their block comes (R6.13).

Rules of this module:

1. What goes out is the beginning of what the call policy will make of the whole: followers (`follow_*.py`) give out
   what is certain, values in tags are given out as soon as it is certain what kind of value they are. In the end the
   call policy sees the whole, and what it makes of it is compared with what went out; if it is something else, the
   answer fails.
2. A call is opened when its name is known and let through, and its arguments begin; not before, for it might be none.
   So calls without arguments wait for the end of the block, or for the next call that has some.
3. Where a block holds several calls, one is judged alone as soon as the arguments of the next one begin.
4. Both scanners use this as it is. They say what fields are read and what came of them, by offsets in the block.
   Where that is more of a string they do not ask: `string` says of which kind, they send it, and put it to what was
   `sent` (`_pystring.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from toolwire.errors import GatewayError
from toolwire.repair.literals import json_string
from toolwire.scan._grammar import SPACE, Block, BlockSyntax, CallPolicy, Decision, Field, Found, ValueKind
from toolwire.scan._plan import BRACES, CODE, JSON, NAME, PROSE, WORD
from toolwire.scan._pystring import JSON_STRING, LINES, NO_STRING, PLAIN_TEXT, UNSAID
from toolwire.scan.blocks import TO_CLOSER, Piece
from toolwire.scan.follow_braces import BracesFollower
from toolwire.scan.follow_code import PythonFollower
from toolwire.scan.follow_json import CallFollower
from toolwire.scan.json_text import ENDED, FAILED, JsonText

_UNSURE: Final = 256
"""Characters of a value after which its kind is certain, or seen at its end."""


class Host(Protocol):
    """Where calls are given out."""

    def span(self, start: int, stop: int) -> bytes:
        """The bytes at these offsets of the block."""

    def live_open(self, call: Found) -> int:
        """Open a call. Gives its block's number."""

    def live_say(self, block: int, text: str) -> None:
        """More of the arguments of an open call."""

    def live_close(self, block: int, status: Literal["complete", "truncated"]) -> None:
        """End an open call."""


class LiveCalls:
    """The calls of one block after another.

    `opened` is the call that is open, `block` its block, `sent` what was given out of its arguments. `string` is the
    kind of string of which more may go out without asking, `stops` what does not: see `_pystring.certain`.
    """

    def __init__(self, policy: CallPolicy, host: Host) -> None:
        self._policy = policy
        self._host = host
        self.opened: Found | None = None
        self.block = 0
        self.sent = bytearray()
        self.string = NO_STRING
        self.stops = b""

        # The field that is read: its kind, and where it begins. `_pieces` are those before it. `_follower` reads it;
        # `_waiting` are calls before it without arguments. `_fields` are the kinds of fields of the call that is read,
        # "" for arguments, if it has them, and `_begins` where the first one is. `_refused`: of this block nothing
        # more.
        self._syntax: BlockSyntax | None = None
        self._pieces: Sequence[Piece] = ()
        self._field: Field = ""
        self._from = 0
        self._calls = CallFollower()
        self._follower: CallFollower | PythonFollower | BracesFollower | None = None
        self._waiting: list[tuple[str | None, int]] = []
        self._refused = False
        self._fields: set[Field] = set()
        self._begins = 0

        # The call that is open begins at `_where`; `_stuck`: no more of its arguments goes out. `given` were before
        # it, which are judged already, the first one of those in one field with it at `_head`.
        self._stuck = False
        self._where = 0
        self.given = 0
        self._head = -1

        # The value in tags that is read: what it is, its beginning as long as that is not sure, and its key's place.
        # `_at_start` before its first character, `_line_end` that may be no part of it, `_ending` whether it has ended
        # if no elements follow. `_text` reads it if it is JSON.
        self._kind_of_value: ValueKind = "unsure"
        self._value = ""
        self._key_at = 0
        self._at_start = False
        self._line_end = ""
        self._ending = False
        self._text = JsonText()

    def begin_block(self, pieces: Sequence[Piece]) -> None:
        """A block begins. `pieces` will hold its fields as they end."""
        self._pieces = pieces
        self._refused = self._ending = False
        self._follower = None
        self._fields.clear()
        self._waiting.clear()
        self.given = self._where = 0
        self._head = -1

    def begin_field(self, syntax: BlockSyntax, field: Field, read: int, at: int) -> bool:
        """A field begins at offset `at`. True if what comes of it is wanted: it may be part of a call that is given
        out."""
        if self._ending:
            self._end_value(field)
        self.string = NO_STRING
        self._syntax = syntax
        self._field = field
        self._from = at
        if field in ("name", "id"):
            self._begin_fields(field)
        if self._refused or field not in ("value", "arguments", "call", "calls"):
            return False
        self._fields.add("")
        if field == "value" and read in (NAME, WORD, PROSE):
            self._begin_value()
            return True
        self._pass_over()
        if read == JSON and field == "arguments":
            self._calls.begin_arguments()
            self._follower = self._calls
        elif read == JSON and field != "value":
            self._follow_calls()
        elif read == CODE and field != "value":
            self._follower = PythonFollower()
        elif read == BRACES and field == "arguments":
            self._follower = BracesFollower(syntax.quote)
        else:
            self._refused = True  # nobody follows that
        return not self._refused

    def _begin_fields(self, field: Field) -> None:
        """A name or an id comes. It belongs to the next call if this one has got one, or arguments. Calls without
        arguments that were not given out wait for the next one's turn."""
        if field in self._fields or "" in self._fields:
            if self.opened is None or self._where != self._begins:
                self._waiting.append((None, self._begins))
            self._fields.clear()
        if not self._fields:
            self._begins = self._from
        self._fields.add(field)

    def _follow_calls(self) -> None:
        """From its first byte on the field is read as JSON."""
        assert self._syntax is not None
        names = tuple(name.encode() for name in self._syntax.names)
        parameters = tuple(name.encode() for name in self._syntax.parameters)
        compact = self._syntax.arguments == "string"
        objects = self._policy.unwrap or not compact
        self._calls.begin(names, parameters, objects, compact, self._field == "calls", self._from)
        self._follower = self._calls

    def _pass_over(self) -> None:
        """Another field with a call begins. If nothing was given out of the one before, that waits for the next one's
        turn."""
        before = self._follower
        if before is not None and not before.begun and self._pieces and self._pieces[-1][0] == "call":
            self._waiting.append((before.name or "", self._pieces[-1][1]))

    def pass_field(self, more: bytes, at: int) -> bool:
        """More of a field came that ends by itself, from offset `at` on: give out what is certain of its arguments,
        once the call policy has let the call through. False if no more of the field is wanted."""
        self.string = NO_STRING
        pos = 0
        while pos < len(more):
            follower = self._follower
            assert follower is not None
            begun = follower.begun
            pos = follower.read(more, pos, at)
            if follower.is_json:
                self._follow_calls()
                more = self._host.span(self._from, at + len(more))
                at = self._from
                pos = 0
            elif begun and not follower.begun:  # its call has ended
                self._send(follower.take())
            elif follower.begun and not begun and not self._begin_calls(follower):
                return False
        follower = self._follower
        assert follower is not None
        if follower.begun:
            self._send(follower.take())
        self.string, self.stops = follower.string
        return True

    def _begin_calls(self, follower: CallFollower | PythonFollower | BracesFollower) -> bool:
        """Arguments begin: open their call, and before it those that had none to give out. False if one may not be
        given out."""
        if self._field == "arguments":
            return self._begin_tagged()
        calls = [*follower.passed, (follower.name or "", follower.start)]
        follower.passed.clear()
        return self._begin_all(calls)

    def _begin_tagged(self) -> bool:
        """The same for a call with name and arguments in fields of their own, unless it was opened before."""
        return (self.opened is not None and self._where == self._begins) or self._begin_all([(None, self._begins)])

    def _begin_all(self, calls: Sequence[tuple[str | None, int]]) -> bool:
        calls = [*self._waiting, *calls]
        self._waiting.clear()
        ends = [*(where for _, where in calls[1:]), self._from]
        return all(self._begin_call(name, where, to) for (name, where), to in zip(calls, ends, strict=True))

    def _begin_call(self, name: str | None, where: int, to: int) -> bool:
        """Open a call that begins at offset `where`, if the call policy lets it through; the one before it is judged
        and ended then. Without a name it is in the fields up to offset `to`."""
        assert self._syntax is not None
        pieces: tuple[tuple[Field, str], ...] = (("name", name or ""),)
        if name is None:
            pieces = self._between(where, to)
        opened = self._policy.opening(self._syntax, pieces) if pieces else None  # none: not even an empty name
        if opened is None or not self._end_call(where):
            self._refused = True
            return False
        self.opened = opened
        self.block = self._host.live_open(opened)
        self._where = where
        if self._head < self._from <= where:
            self._head = where
        self.sent.clear()
        self._stuck = False
        return True

    def _end_call(self, to: int) -> bool:
        """Another call begins at offset `to`. False if the one before it is not what was given out of it."""
        if self.opened is None:
            return True
        assert self._syntax is not None
        pieces = self._between(self._where, to)
        decision = self._policy.block(Block(self._syntax, "", pieces, opened=self.opened))
        if len(decision.calls) != 1 or not self._give_rest(self.opened, decision.calls[0]):
            return False
        self.given += 1
        return True

    def _between(self, start: int, to: int) -> tuple[tuple[Field, str], ...]:
        """The fields between two offsets; of a list its items."""
        found: list[tuple[Field, str]] = []
        for field, begin, end in (*self._pieces, (self._field, self._from, to + 1)):
            if begin < to and (begin >= start or end > start):
                text = self._host.span(max(begin, start), min(end, to)).decode()
                found.append((field, text if end <= to else text.rstrip(SPACE + ",")))
        return tuple(found)

    # --- values in tags -----------------------------------------------------------------------------------------------

    def _begin_value(self) -> None:
        """The value of an argument comes."""
        self._kind_of_value = "unsure"
        self._key_at = len(self._pieces) - 1
        self._value = ""
        self._at_start = True
        self._line_end = ""

    def pass_value(self, more: str, whole: bool) -> None:
        """More of an argument's value came; `whole`: it ends here, and is the last piece."""
        self._pass_value(more, whole)
        self.string, self.stops = self._kind_of_string(), b""

    def _pass_value(self, more: str, whole: bool) -> None:
        if self._refused or self._stuck or not (more or whole):
            return
        if not self._begin_tagged():
            return
        assert self._syntax is not None
        if whole and self._syntax.prefix and not self._ending:
            self._ending = True
            whole = False
        if self._syntax.framed and more:
            if self._at_start:
                more = more.removeprefix("\n")
            self._at_start = False
            more = self._line_end + more
            self._line_end = "\n" if more.endswith("\n") else ""
            more = more.removesuffix("\n")
        if self._kind_of_value == "unsure":
            more, begun = self._value + more, len(self._value)
            if begun < _UNSURE or whole:
                self._value = more[:_UNSURE]
                if not self._begin_member(whole):
                    return
            else:
                return
        if self._kind_of_value == "text":
            self._send((json_string(more)[1:-1] + ('"' if whole else "")).encode())
        else:
            self._pass_json(more.encode(), whole)

    def _kind_of_string(self) -> int:
        """What more of the value is. After its end nobody asks."""
        assert self._syntax is not None
        if self._refused or self._stuck or (self._kind_of_value == "unsure" and len(self._value) == _UNSURE):
            return UNSAID
        if self._kind_of_value == "unsure" or self._line_end:
            return NO_STRING
        if self._kind_of_value == "text":
            return LINES if self._syntax.framed else PLAIN_TEXT
        return JSON_STRING if self._text.in_string else NO_STRING

    def _end_value(self, next: Field) -> None:
        """The text of an element has ended. If its arguments go on, so do elements in it: then it is no text, and what
        it is shows at the end of the block."""
        if next == "arguments":
            self._refused = True
        else:
            self.pass_value("", True)
        self._ending = False

    def _begin_member(self, whole: bool) -> bool:
        """What an argument begins with, as soon as it is certain what kind of value it has. False if there is no more
        to say."""
        assert self._syntax is not None
        assert self.opened is not None
        _, start, stop = self._pieces[self._key_at]
        key = self._host.span(start, stop).decode()
        head, self._kind_of_value = self._policy.value_kind(self._syntax, self.opened, key, self._value)
        comma = "," if self.sent else "{"
        if whole and self._kind_of_value != "text":
            _, start, stop = self._pieces[self._key_at + 1]
            value = self._host.span(start, stop).decode()
            self._send((comma + self._policy.argument(self._syntax, self.opened, key, value)).encode())
            return False
        if self._kind_of_value == "json":
            self._text.begin(True, b"{[")
        if self._kind_of_value != "unsure":
            self._send((comma + head + ('"' if self._kind_of_value == "text" else "")).encode())
        return self._kind_of_value != "unsure"

    def _pass_json(self, more: bytes, whole: bool) -> None:
        """More of a value that is JSON. What is none is seen when the block is judged."""
        text = self._text
        used = text.read(more, 0, len(more))
        self._send(text.take())
        if text.mode == FAILED or more[used:].strip(SPACE.encode()) or (whole and text.mode != ENDED):
            self._stuck = True
        elif whole:
            self._send(text.rest())

    def _send(self, more: bytes) -> None:
        if more:
            self.sent += more
            self._host.live_say(self.block, more.decode())

    # --- the end ------------------------------------------------------------------------------------------------------

    def judged(
        self, syntax: BlockSyntax, raw: bytes, body_start: int, body_end: int, closed: bool, broken: bool
    ) -> Decision:
        """What becomes of the block `raw`, whose body stands between these offsets, as far as it is not judged
        already."""
        pieces = tuple(
            (field, self._unjudged(raw, start, body_end if end == TO_CLOSER else end))
            for field, start, end in self._pieces
            if start <= body_end and end <= body_end and (start >= self._where or not 0 <= end <= self._where)
        )
        body = raw[body_start:body_end].decode()
        if syntax.whole and len(pieces) < 2 and not self.given:
            pieces = ((syntax.whole, body),)
        return self._policy.block(Block(syntax, body, pieces, closed, broken, self.opened))

    def _unjudged(self, raw: bytes, start: int, end: int) -> str:
        """What a field holds, without the calls that are judged already."""
        if start >= self._where:
            return raw[start:end].decode()
        return (raw[start : self._head] + raw[self._where : end]).decode()

    def settle(self, decision: Decision) -> tuple[GatewayError | None, tuple[Found, ...]]:
        """The end of a block of which calls were given out while it came. What was sent is never withdrawn. Gives the
        error with which the answer ends, and the calls that are still to be given out."""
        opened = self.opened
        assert opened is not None
        self.opened = None
        self._refused = True
        if decision.calls and self._give_rest(opened, decision.calls[0]):
            return None, decision.calls[1:]
        self._host.live_close(self.block, "truncated")
        if decision.drop:
            return None, ()
        return decision.error or self._policy.withdrawn(opened), ()

    def _give_rest(self, opened: Found, call: Found) -> bool:
        """End a call that was given out while it came with what is still missing, if it is what was given out."""
        arguments = call.arguments.encode()
        if (call.name, call.namespace) != (opened.name, opened.namespace) or not arguments.startswith(self.sent):
            return False
        if len(arguments) > len(self.sent):
            self._host.live_say(self.block, arguments[len(self.sent) :].decode())
        self._host.live_close(self.block, "complete")
        return True
