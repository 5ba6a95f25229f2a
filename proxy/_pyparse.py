"""The scanner in Python: this file is the specification. `_fastparse.pyx` is the same machine with C types.

Rules of this module:

1. Bytes of UTF-8 inside, events out. No socket, no clock, no policy: what a block *is* decides the `Judge`.
2. Splitting the input differently never changes the events after `normalise`. Whatever is decided depends on characters
   and on the end of the answer, never on the end of a delta.
3. Every byte is looked at once. Where something was taken for a block and turned out to be none, or broken, it is at most
   three times: followed as a body, searched for a closer, read as text; with a strict tool on offer four, since a mention is
   held. The beginning of a literal that was none is looked at once more. (That cannot repeat: a closer that was passed over stood in what looked like a string. If a block that begins behind
   it looks into the same bytes, its strings are where the first block's were not, and there a closer would have been a
   syntax error.)
4. Outside blocks only the longest suffix that may still become a marker is kept back, and whitespace that may touch a
   block (R6.6). A block is kept back up to `block_bytes`.

Here calls are given out: whole, once the judge has seen their block, or while they come (R6.13). Text outside blocks is read in
`_pyprose.py`, blocks in `_pyblock.py`, JSON followed in `_pyjson.py`, other syntax in `_pycode.py`; framing is in `_pysse.py`.
"""

from __future__ import annotations

from ._grammar import BLOCK_BYTES, DONE, ENDING, Field, Found, Grammar, Judge, Verdict, only, valid_text
from ._plan import JSON, Opener, Step
from ._pyblock import BlockScanner
from ._pyfollow import ArgumentFollower
from ._pysse import SseFramer
from .errors import GatewayError
from .events import BlockKind, Close, Delta, Fault, Open
from .judging.literals import json_string

__all__ = ["CallScanner", "SseFramer"]

_ENDING = ENDING.encode()


class CallScanner(BlockScanner):
    """Finds call blocks and reasoning in the text of one answer, fed in pieces of any size.

    `grammar` says what blocks look like, `judge` what becomes of them. `block_bytes` bounds one block, tags included, and
    a run of pending whitespace; beyond it the block is the judge's (`oversize`) and the run is text. `trim_edges`: drop
    whitespace that touches a recognised block or a reasoning tag on the visible side, but for a line end or else a blank with
    which the later of two texts begins; otherwise it is kept, but text that is nothing else goes with the next text (R6.6). `reasoning`: pairs of opening and closing tags; the text between
    them becomes REASONING blocks, unchanged, and is left out if it is only whitespace. `preopened`: the answer begins
    inside the first pair. `scan_calls`: blocks inside reasoning count. `choice` is put into every `Open`; blocks are numbered from
    `first_block`. `incremental`: where a block holds one call, its arguments are given out as they come, if the judge lets
    its name through (R6.13).

    Raises `ValueError` if the markers contradict each other.
    """

    def __init__(
        self,
        grammar: Grammar,
        judge: Judge,
        *,
        block_bytes: int = BLOCK_BYTES,
        trim_edges: bool = True,
        reasoning: tuple[tuple[str, str], ...] = (),
        preopened: bool = False,
        scan_calls: bool = False,
        choice: int = 0,
        first_block: int = 0,
        incremental: bool = False,
    ) -> None:
        super().__init__(
            grammar,
            judge,
            block_bytes,
            trim_edges,
            reasoning,
            preopened,
            scan_calls,
            choice,
            first_block,
            incremental,
        )

        # A call that is given out while it comes: `_refused` if the judge does not want it, else block `_call`; `_sent` of its
        # arguments, `_tail` what waits of them. `_is_prose`: the value that is read goes out as a string, `_at_start` before
        # its first character, `_line_end` that may be no part of it.
        self._follower = ArgumentFollower()
        self._refused = False
        self._call = 0
        self._sent = bytearray()
        self._tail = bytearray()
        self._is_prose = False
        self._at_start = False
        self._line_end = ""

    def _settle(self, verdict: Verdict, raw: bytes) -> None:
        """Do what the judge says."""
        self._state = self._prose
        if self._opened is not None:
            self._settle_opened(self._opened, verdict)
        elif verdict.error is not None:
            self._stop_with(verdict.error)
        elif verdict.calls or verdict.drop:
            self._edge()
            self._after = True
            self._give_calls(verdict.calls, raw.decode())
            if verdict.calls and self._grammar.exclusive:
                self._choose()
        else:
            self._line_start = raw.endswith(b"\n")
            self._say(raw.decode() if verdict.replacement is None else valid_text(verdict.replacement))

    def _give_calls(self, calls: tuple[Found, ...], source: str) -> None:
        for call in calls:
            block = self._open_call(call, source if call.source is None else call.source)
            if call.arguments:
                self._out.append(Delta(block, call.arguments))
            self._out.append(Close(block))

    def _open_call(self, call: Found, source: str | None) -> int:
        block = self._number()
        self._out.append(
            Open(
                block,
                BlockKind.TOOL_CALL,
                name=call.name,
                call_id=call.call_id,
                choice=self._choice,
                call_kind=call.kind,
                namespace=call.namespace,
                extra={"live": True} if source is None else {"source": source},
            )
        )
        return block

    def _stop_with(self, error: GatewayError) -> None:
        self._pending.clear()
        self._close()
        self._out.append(Fault(error))
        self._state = DONE

    def _choose(self) -> None:
        """The model has shown which format it writes: the others are text from here on."""
        assert self._shape is not None
        self._grammar = only(self._grammar, self._shape.family)
        self._read_as(self._grammar)
        self._enter(self._prose)

    # --- while it comes ---------------------------------------------------------------------------------------------

    def _open_block(self, opener: Opener, at: int) -> int:
        self._refused = False
        return super()._open_block(opener, at)

    def _follows(self, step: Step) -> bool:
        """The field that begins is wanted if it may be part of a call that is given out. The key of a value that is text goes
        out here."""
        if step.read == JSON:
            if not step.last or step.field not in ("call", "arguments"):
                return False
            if step.field == "call":
                names = tuple(name.encode() for name in step.shape.names)
                parameters = tuple(name.encode() for name in step.shape.parameters)
                self._follower.begin(names, parameters, step.shape.arguments == "object")
            return True
        if step.field != "value" or not self._is_open():
            return False
        self._begin_value()
        return True

    def _pass_json(self, more: bytes) -> None:
        """Give out what came of arguments in JSON, once the judge has let the call through."""
        if self._field == "call":
            self._follower.read(more)
            if self._follower.name is not None and self._is_open():
                self._send_json(self._follower.take())
        elif self._is_open():
            self._send_json(more)
        self._followed = not self._refused

    def _is_open(self) -> bool:
        """Whether the call is given out while it comes, now that its name is known."""
        if self._opened is None and not self._refused:
            assert self._shape is not None
            pieces: tuple[tuple[Field, str], ...]
            if self._field == "call":
                pieces = (("name", self._follower.name or ""),)
            else:
                pieces = tuple((field, self._span(start, stop).decode()) for field, start, stop in self._pieces)
            self._opened = self._judge.opening(self._shape, pieces)
            if self._opened is not None:
                self._edge()
                self._call = self._open_call(self._opened, None)
                self._sent.clear()
                self._tail.clear()
        self._refused = self._opened is None
        return not self._refused

    def _begin_value(self) -> None:
        """The value of an argument comes: if it is text, its key goes out."""
        head = self._argument(None)
        self._is_prose = head is not None
        self._at_start = True
        self._line_end = ""
        if head is not None:
            self._send(("," if self._sent else "{") + head + '"')

    def _argument(self, value: str | None) -> str | None:
        assert self._shape is not None
        _, start, stop = self._pieces[-1 if value is None else -2]
        key = self._span(start, stop).decode()
        return self._judge.argument(self._shape, self._opened, key, value) if self._opened else None

    def _pass_value(self, more: str, whole: bool) -> None:
        """Give out more of an argument's value."""
        assert self._shape is not None
        if not self._is_prose:
            if whole:
                _, start, stop = self._pieces[-1]
                self._send(("," if self._sent else "{") + (self._argument(self._span(start, stop).decode()) or ""))
            return
        if self._shape.framed and more:
            if self._at_start:
                more = more.removeprefix("\n")
            self._at_start = False
            more = self._line_end + more
            self._line_end = "\n" if more.endswith("\n") else ""
            more = more.removesuffix("\n")
        self._send(json_string(more)[1:-1] + ('"' if whole else ""))

    def _send_json(self, more: bytes) -> None:
        """More of arguments in JSON, but for what may be their end."""
        said = more.rstrip(_ENDING)
        if said:
            self._send((self._tail + said).decode())
            self._tail.clear()
        self._tail += more[len(said) :]

    def _send(self, text: str) -> None:
        if text:
            self._sent += text.encode()
            self._out.append(Delta(self._call, text))

    def _settle_opened(self, opened: Found, verdict: Verdict) -> None:
        """A call that was given out while it came: what is still missing, and its end. What was sent is never withdrawn."""
        self._opened = None
        self._refused = True
        arguments = verdict.calls[0].arguments.encode() if verdict.calls else b""
        if verdict.calls and arguments.startswith(self._sent):
            if len(arguments) > len(self._sent):
                self._out.append(Delta(self._call, arguments[len(self._sent) :].decode()))
            self._out.append(Close(self._call))
            self._give_calls(verdict.calls[1:], "")
        else:
            self._out.append(Close(self._call, "truncated"))
            if not verdict.drop:
                self._stop_with(verdict.error or self._judge.withdrawn(opened))
                return
        self._edge()
        self._after = True
        if self._grammar.exclusive:
            self._choose()
