"""The scanner in Python: this file is the specification. `_fastparse.pyx` is the same machine with C types.

Rules of this module:

1. Bytes of UTF-8 inside, events out. No socket, no clock, no policy: what a block *is* decides the `Judge`.
2. Splitting the input differently never changes the events after `normalise`. Whatever is decided depends on characters
   and on the end of the answer, never on the end of a delta.
3. Every byte is looked at once. Where something was taken for a block and turned out to be none, or broken, it is at most
   three times: followed as a body, searched for a closer, read as text; with a strict tool on offer four, since a mention is
   held. What nobody taught is read after that, so it may be as often again, but in no place twice: behind an untaught block that was none
   no other one begins before the place where that was seen. The beginning of a literal that was none is looked at once more. (That cannot repeat: a closer that was passed over stood in what looked like a string. If a block that begins behind
   it looks into the same bytes, its strings are where the first block's were not, and there a closer would have been a
   syntax error.)
4. Outside blocks only the longest suffix that may still become a marker is kept back, and whitespace that may touch a
   block (R6.6). A block is kept back up to `block_bytes`.

Here calls are given out: whole, once the judge has seen their block, or while they come (R6.13). Text outside blocks is read in
`_pyprose.py` (what is quoted in `_pyquoting.py`), blocks in `_pyblock.py`, JSON followed in `_pyjson.py`, other syntax in `_pycode.py`; framing is in `_pysse.py`.
"""

from __future__ import annotations

from typing import Literal

from ..errors import GatewayError
from ..events import BlockKind, Close, Delta, Fault, Open
from ._grammar import BLOCK_BYTES, DONE, Found, Grammar, Judge, Verdict, only, valid_text
from ._pyblock import BlockScanner
from ._pysse import SseFramer
from .live import LiveCalls

__all__ = ["CallScanner", "SseFramer"]


class CallScanner(BlockScanner):
    """Finds call blocks and reasoning in the text of one answer, fed in pieces of any size.

    `grammar` says what blocks look like, `judge` what becomes of them. `block_bytes` bounds one block, tags included, and
    a run of pending whitespace; beyond it the block is the judge's (`oversize`) and the run is text. `trim_edges`: drop
    whitespace that touches a recognised block or a reasoning tag on the visible side, but for a line end or else a blank with
    which the later of two texts begins; otherwise it is kept, but text that is nothing else goes with the next text (R6.6). `reasoning`: pairs of opening and closing tags; the text between
    them becomes REASONING blocks, unchanged, and is left out if it is only whitespace. `preopened`: the answer begins
    inside the first pair. `scan_calls`: blocks inside reasoning count. `choice` is put into every `Open`; blocks are numbered from
    `first_block`. `incremental`: arguments are given out as they come, where the judge
    lets their call through (R6.13).

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
        )
        if incremental:
            self._live = LiveCalls(judge, self)

    def _settle(self, verdict: Verdict, raw: bytes) -> None:
        """Do what the judge says."""
        self._state = self._prose
        if self._live is not None and self._live.opened is not None:
            self._settle_live(self._live, verdict)
        elif verdict.error is not None:
            self._stop_with(verdict.error)
        elif verdict.calls or verdict.drop:
            self._edge()
            self._after = True
            self._give_calls(verdict.calls, raw.decode())
            if verdict.calls:
                self._choose()
        else:
            self._pass_text(raw)
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
        """The model has shown which format it writes, which may say what counts from here on."""
        assert self._shape is not None
        chosen = only(self._grammar, self._shape.family)
        if chosen is not self._grammar:
            self._grammar = chosen
            self._read_as(chosen)
            self._enter(self._prose)

    # --- while it comes: see `LiveCalls` ----------------------------------------------------------------------------

    def live_open(self, call: Found) -> int:
        """See `proxy.scan.live.Host`."""
        self._edge()
        return self._open_call(call, None)

    def live_say(self, block: int, text: str) -> None:
        """See `proxy.scan.live.Host`."""
        self._out.append(Delta(block, text))

    def live_close(self, block: int, status: Literal["complete", "truncated"]) -> None:
        """See `proxy.scan.live.Host`."""
        self._out.append(Close(block, status))

    def _settle_live(self, live: LiveCalls, verdict: Verdict) -> None:
        error, more = live.settle(verdict)
        if error is not None:
            self._stop_with(error)
            return
        self._give_calls(more, "")
        self._edge()
        self._after = True
        self._choose()
