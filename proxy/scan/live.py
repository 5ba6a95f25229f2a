"""Argument streaming: sends calls to the client while their block is still coming (R6.13).

Rules of this module:

1. The output is the beginning of what the call policy will make of the whole block. Followers (`follow_*.py`) output
   the certain parts; tagged values are output as soon as their kind is certain. At the end the call policy judges the
   whole block, and its result is compared with what was sent; if it differs, the answer fails.
2. A call is opened when the policy has accepted its name and its arguments are long. Shorter calls wait for the end of
   the block, or for the next long call.
3. In a block with several calls, each is judged when the next one is opened.
4. Of the certain parts, those are sent that the policy releases (`EarlyCall`): at the end it may still convert values.
   Calls of custom tools get the text in the JSON.
5. Both scanners use this module. They report fields and their content, by offsets in the block. For more text of a
   string they do not call it: `string` tells its kind, and they send the text themselves and append it to `sent`
   (`_pystring.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..errors import GatewayError
from ..repair.literals import json_string
from ._grammar import SPACE, Block, BlockPolicy, BlockSyntax, CallSink, Decision, EarlyCall, Field, FoundCall, ValueKind
from ._plan import BRACES, CODE, JSON, NAME, PROSE, WORD
from ._pystring import JSON_STRING, LINES, NO_STRING, PLAIN_TEXT, UNSAID
from .blocks import TO_CLOSER, Piece
from .follow_braces import BracesFollower
from .follow_code import PythonFollower
from .follow_json import CallFollower
from .json_text import ENDED, FAILED, JsonText

_UNSURE: Final = 256
"""If the kind of a value is not certain after this many characters, it is decided at the value's end."""
FOLLOWED: Final = ("value", "arguments", "call", "calls")
"""The fields that contain arguments, which are read for early streaming."""


LateField = tuple[int, tuple[BlockSyntax, Field, int, int] | None, str | bytes | None, int]
"""A step in reading a block that is still short, recorded in case it becomes long: the number of finished fields before
it; the arguments of a call of `begin_field`, or None; else the content for `pass_value` (a `str`) or `pass_field`
(`bytes`); and the offset of its end, -1 for a `str` that ends its field."""


class LiveCalls:
    """The streamed calls of one block after another. Calls with `long` bytes of arguments are streamed. Until a block
    is that long, the scanner only records its fields and hands them to `begin_long` later, because most blocks stay
    short.

    `opened` is the open call, `block` its block number, `sent` its arguments sent so far. `string` is the kind of the
    string whose further text the scanner may send by itself, `stops` the bytes that end such text: see
    `_pystring.certain`.
    """

    def __init__(self, policy: BlockPolicy, host: CallSink, long: int) -> None:
        self._policy = policy
        self._host = host
        self.long = long
        self.opened: FoundCall | None = None
        self.block = 0
        self.sent = bytearray()
        self.string = NO_STRING
        self.stops = b""

        # The current field: its kind, and its offset `_from`. `_pieces` are the fields before it. `_follower` reads it;
        # `_waiting` are earlier calls that are not open. `_fields` are the kinds of fields of the current call ("" for
        # arguments), and `_begins` the offset of its first field. `_refused`: nothing more of this block is streamed.
        self._syntax: BlockSyntax | None = None
        self._pieces: Sequence[Piece] = ()
        self._field: Field = ""
        self._from = 0
        self._follower: CallFollower | PythonFollower | BracesFollower | None = None
        self._waiting: list[tuple[str | None, int]] = []
        self._refused = False
        self._fields: set[Field] = set()
        self._begins = 0

        # The current call. While it is not open: its name and offset in `_pending`, and in `_ready` the arguments
        # that can be sent. `_some`: a tagged value of it was read.
        self._call: EarlyCall | None = None
        self._pending: tuple[str | None, int] | None = None
        self._ready = bytearray()
        self._some = False

        # The call that is open begins at `_where`; `_stuck`: no more of its arguments goes out. `given` were before
        # it, which are judged already, the first one of those in one field with it at `_head`.
        self._stuck = False
        self._where = 0
        self.given = 0
        self._head = -1

        # The current tagged value: its kind, its beginning while the kind is unsure, and the index of its key.
        # `_at_start`: before its first character. `_line_end`: a newline that may not belong to it. `_ending`: it has
        # ended unless elements follow. `_text` reads it if it is JSON.
        self._kind_of_value: ValueKind = "unsure"
        self._value = ""
        self._key_at = 0
        self._at_start = False
        self._line_end = ""
        self._ending = False
        self._text: JsonText | None = None

    def begin_block(self, pieces: Sequence[Piece]) -> None:
        """Starts a block. The caller adds its finished fields to `pieces`."""
        self._pieces = pieces
        self._refused = self._ending = False
        self.string = NO_STRING
        self._call = self._pending = None
        self._follower = None
        self._fields.clear()
        self._waiting.clear()
        self.given = self._where = 0
        self._head = -1

    def begin_long(self, pieces: Sequence[Piece], fields: Sequence[LateField]) -> bool:
        """Starts a block that is long now, with its fields so far. Returns True if more of the last field is needed."""
        self.begin_block(pieces)
        needed = False
        for finished, begun, content, stop in fields:
            self._pieces = pieces[:finished]
            if begun is not None:
                needed = self.begin_field(*begun)
            elif needed and isinstance(content, str):
                self.pass_value(content, stop < 0)
            elif needed and isinstance(content, bytes):
                needed = self.pass_field(content, stop - len(content))
        self._pieces = pieces
        return needed

    def begin_field(self, syntax: BlockSyntax, field: Field, read: int, at: int) -> bool:
        """Starts a field at offset `at`. Returns True if its content is needed, because it may belong to a call that is
        streamed."""
        if self._ending:
            self._end_value(field)
        self.string = NO_STRING
        self._syntax = syntax
        self._field = field
        self._from = at
        if field in ("name", "id"):
            self._begin_fields(field)
        if self._refused or field not in FOLLOWED:
            return False
        self._fields.add("")
        if field == "value" and read in (NAME, WORD, PROSE):
            self._begin_value()
            return True
        self._pass_over()
        if read == JSON and field == "arguments":
            self._follower = CallFollower()
            self._follower.begin_arguments()
        elif read == JSON and field != "value":
            self._follow_calls()
        elif read == CODE and field != "value":
            self._follower = PythonFollower()
        elif read == BRACES and field == "arguments":
            self._follower = BracesFollower(syntax.quote)
        else:
            self._refused = True  # there is no follower for this field
        return not self._refused

    def _begin_fields(self, field: Field) -> None:
        """Starts a name or id. It belongs to the next call if this call already has one, or has arguments. Calls
        that are not open wait for the next one that is opened."""
        if field in self._fields or "" in self._fields:
            if self.opened is None or self._where != self._begins:
                self._waiting.append((None, self._begins))
            self._call = self._pending = None
            self._fields.clear()
        if not self._fields:
            self._begins = self._from
        self._fields.add(field)

    def _follow_calls(self) -> None:
        """Reads the field as JSON from its first byte."""
        assert self._syntax is not None
        names = tuple(name.encode() for name in self._syntax.names)
        parameters = tuple(name.encode() for name in self._syntax.parameters)
        compact = self._syntax.arguments == "string"
        objects = self._policy.unwrap or not compact
        self._follower = CallFollower()
        self._follower.begin(names, parameters, objects, compact, self._field == "calls", self._from)

    def _pass_over(self) -> None:
        """Another field with a call begins. If the previous field's call was not opened, it waits for the next one."""
        before = self._follower
        if before is not None and self._pieces and self._pieces[-1][0] == "call":
            if not before.begun or self._pending is not None:
                self._waiting.append((before.name or "", self._pieces[-1][1]))
            self._pending = None

    def pass_field(self, more: bytes, at: int) -> bool:
        """Reads more of a field with its own end, from offset `at`, and sends the certain part of its arguments once
        the call is open. Returns False if no more of the field is needed."""
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
                if self._pending is not None:
                    self._waiting.append(self._pending)
                    self._pending = None
            elif follower.begun and not begun and not self._begin_calls(follower):
                return False
        follower = self._follower
        assert follower is not None
        if follower.begun:
            self._send(follower.take())
        kind, self.stops = follower.string
        self.string = kind if kind == UNSAID or self._sends_text else NO_STRING
        return not self._refused

    @property
    def _sends_text(self) -> bool:
        """True if more text of the current string can be sent at once."""
        return self._pending is None and self._call is not None and self._call.sends_text

    def _begin_calls(self, follower: CallFollower | PythonFollower | BracesFollower) -> bool:
        """Starts the call whose arguments begin. Returns False if it may not be streamed."""
        if self._field == "arguments":
            return self._begin_tagged()
        self._waiting += follower.passed
        follower.passed.clear()
        return self._begin_call(follower.name or "", follower.start)

    def _begin_tagged(self) -> bool:
        """Starts a call with name and arguments in separate fields, at its first arguments. Returns False if it may not
        be streamed."""
        return self._call is not None or self._begin_call(None, self._begins)

    def _begin_call(self, name: str | None, where: int) -> bool:
        self._call = self._opening(name, where, self._from)
        self._pending = (name, where)
        self._ready.clear()
        self._some = self._stuck = False
        self._refused = self._call is None
        return not self._refused

    def _opening(self, name: str | None, where: int, to: int) -> EarlyCall | None:
        """Returns the call at offset `where` if it may be streamed. Without `name`, the name is in the fields up to
        offset `to`; if there are none it has no name, not even an empty one."""
        assert self._syntax is not None
        pieces: tuple[tuple[Field, str], ...] = (("name", name or ""),)
        if name is None:
            pieces = self._between(where, to)
        return self._policy.opening(self._syntax, pieces) if pieces else None

    def _open_all(self) -> None:
        """Opens the current call, after the earlier ones that were not opened. None of this block is streamed any more
        if one may not be."""
        assert self._pending is not None
        assert self._call is not None
        calls, self._waiting = self._waiting, []
        begins = [*(begin for _, begin in calls), self._pending[1]]
        early = [self._opening(name, begin, end) for (name, begin), end in zip(calls, begins[1:], strict=True)]
        self._refused = not all(map(self._open_call, [*early, self._call], begins))
        if not self._refused:
            self._pending = None
            self._say(bytes(self._ready))

    def _open_call(self, call: EarlyCall | None, where: int) -> bool:
        """Opens the call at offset `where`, after the previous one was judged and ended. Returns False if that is not
        possible."""
        opened = None if call is None else call.open()
        if opened is None or not self._end_call(where):
            return False
        self.opened = opened
        self.block = self._host.live_open(opened)
        self._where = where
        if self._head < self._from <= where:
            self._head = where
        self.sent.clear()
        return True

    def _end_call(self, to: int) -> bool:
        """Ends the previous call, since another one begins at offset `to`. Returns False if its final form differs from
        what was sent."""
        if self.opened is None:
            return True
        assert self._syntax is not None
        pieces = self._between(self._where, to)
        decision = self._policy.block(Block(self._syntax, "", pieces, opened=self._sent_call(self.opened)))
        if len(decision.calls) != 1 or not self._give_rest(self.opened, decision.calls[0]):
            return False
        self.given += 1
        return True

    def _sent_call(self, opened: FoundCall) -> FoundCall:
        """Returns the open call with the arguments that were sent."""
        return replace(opened, arguments=self.sent.decode())

    def _between(self, start: int, to: int) -> tuple[tuple[Field, str], ...]:
        """Returns the fields between two offsets; of a list, the items."""
        found: list[tuple[Field, str]] = []
        for field, begin, end in (*self._pieces, (self._field, self._from, to + 1)):
            if begin < to and (begin >= start or end > start):
                text = self._host.span(max(begin, start), min(end, to)).decode()
                found.append((field, text if end <= to else text.rstrip(SPACE + ",")))
        return tuple(found)

    # --- values in tags -----------------------------------------------------------------------------------------------

    def _begin_value(self) -> None:
        """Starts the value of an argument."""
        self._kind_of_value = "unsure"
        self._key_at = len(self._pieces) - 1
        self._value = ""
        self._at_start = True
        self._line_end = ""

    def pass_value(self, more: str, whole: bool) -> None:
        """Reads more of an argument's value; `whole`: it ends here."""
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
        """Returns the kind of the value's further text."""
        assert self._syntax is not None
        if self._refused or self._stuck or (self._kind_of_value == "unsure" and len(self._value) == _UNSURE):
            return UNSAID
        if self._kind_of_value == "unsure" or self._line_end or not self._sends_text:
            return NO_STRING
        if self._kind_of_value == "text":
            return LINES if self._syntax.framed else PLAIN_TEXT
        return JSON_STRING if self._text is not None and self._text.in_string else NO_STRING

    def _end_value(self, next: Field) -> None:
        """The text of an element has ended. If `arguments` follow, it contains elements and is not text; its value is
        then decided at the end of the block."""
        if next == "arguments":
            self._refused = True
        else:
            self.pass_value("", True)
        self._ending = False

    def _begin_member(self, whole: bool) -> bool:
        """Sends the key and the beginning of a value once its kind is certain. Returns False if nothing more of the
        value can be sent now."""
        assert self._syntax is not None
        assert self._call is not None
        _, start, stop = self._pieces[self._key_at]
        key = self._host.span(start, stop).decode()
        head, self._kind_of_value = self._call.value_kind(self._syntax, key, self._value)
        comma = "," if self._some else "{"
        if whole and self._kind_of_value != "text":
            _, start, stop = self._pieces[self._key_at + 1]
            value = self._host.span(start, stop).decode()
            self._send((comma + self._call.argument(self._syntax, key, value)).encode())
            self._some = True
            return False
        if self._kind_of_value == "json":
            self._text = JsonText()
            self._text.begin(True, b"{[")
        if self._kind_of_value != "unsure":
            self._send((comma + head + ('"' if self._kind_of_value == "text" else "")).encode())
            self._some = True
        return self._kind_of_value != "unsure"

    def _pass_json(self, more: bytes, whole: bool) -> None:
        """Sends more of a JSON value. Invalid JSON is detected when the block is judged."""
        text = self._text
        assert text is not None
        used = text.read(more, 0, len(more))
        self._send(text.take())
        if text.mode == FAILED or more[used:].strip(SPACE.encode()) or (whole and text.mode != ENDED):
            self._stuck = True
        elif whole:
            self._send(text.rest())

    def _send(self, more: bytes) -> None:
        """Takes more certain arguments of the current call, and sends what the policy releases once they are long."""
        if not more or self._refused:
            return
        assert self._call is not None
        released = self._call.release(more)
        if self._pending is None:
            self._say(released)
            return
        self._ready += released
        if self._ready and len(self._ready) >= self.long:
            self._open_all()

    def _say(self, more: bytes) -> None:
        if more:
            self.sent += more
            self._host.live_say(self.block, more.decode())

    # --- the end ------------------------------------------------------------------------------------------------------

    def decide_rest(
        self, syntax: BlockSyntax, raw: bytes, body_start: int, body_end: int, closed: bool, broken: bool, more: bool
    ) -> Decision:
        """Returns the decision about the rest of the block `raw`, after the streamed calls that are decided already.
        The block's body is between these offsets."""
        pieces = tuple(
            (field, self._undecided(raw, start, body_end if end == TO_CLOSER else end))
            for field, start, end in self._pieces
            if start <= body_end and end <= body_end and (start >= self._where or not 0 <= end <= self._where)
        )
        body = raw[body_start:body_end].decode()
        if syntax.whole and len(pieces) < 2 and not self.given:
            pieces = ((syntax.whole, body),)
        assert self.opened is not None
        return self._policy.block(Block(syntax, body, pieces, closed, broken, self._sent_call(self.opened), more))

    def _undecided(self, raw: bytes, start: int, end: int) -> str:
        """Returns the content of a field without the calls that are decided already."""
        if start >= self._where:
            return raw[start:end].decode()
        return (raw[start : self._head] + raw[self._where : end]).decode()

    def settle(self, decision: Decision) -> tuple[GatewayError | None, tuple[FoundCall, ...]]:
        """Ends a block with streamed calls. Returns the error that ends the answer (or None), and the calls that are
        still to be sent."""
        opened = self.opened
        assert opened is not None
        self.opened = None
        self._refused = True
        if decision.calls and self._give_rest(opened, decision.calls[0]):
            return None, decision.calls[1:]
        self._host.live_close(self.block, "truncated")
        if decision.drop and opened.kind != "custom":
            return None, ()  # no client can run it: its arguments are no JSON. Half a text could be run.
        return decision.error or self._policy.withdrawn(opened, cut=decision.drop), ()

    def _give_rest(self, opened: FoundCall, call: FoundCall) -> bool:
        """Finishes a call whose arguments were streamed early: sends the remaining characters if the final arguments
        begin with what was sent. Returns False otherwise."""
        arguments = call.arguments.encode()
        if (call.name, call.namespace) != (opened.name, opened.namespace) or not arguments.startswith(self.sent):
            return False
        if len(arguments) > len(self.sent):
            self._host.live_say(self.block, arguments[len(self.sent) :].decode())
        self._host.live_close(self.block, "complete")
        return True
