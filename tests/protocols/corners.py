"""The vocabulary of the corner tables: small blocks with marked extras, and what a stream of events says.

Rules:

1. Every table is a full product of few words: block x neighbour (x third) x way of coming x end. Nothing is drawn, so a
   table gives the same verdict on every machine.
2. All texts and fields of a block hold its place in the answer (`t0`, `m1-cited`), so that a neighbour's text or field
   is never taken for its own.
3. A field worth keeping has a mark as its value, and `marks` finds the marks in any value. A law compares the marks
   that went in with those that came out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolwire.events import BlockKind, Close, Delta, Event, Finish, Open, Start
from toolwire.folding import Folding
from toolwire.model import EMPTY, Extra, FinishReason, ModelReply, Reasoning, Refusal, ReplyChoice, Text, ToolUse, Usage
from toolwire.protocols.streams import StreamReader

_MARK = re.compile(r"m\d+-[a-z]+")


def mark(place: int, word: str) -> str:
    """The value of a field of the block at `place`."""
    return f"m{place}-{word}"


def marks(value: Any) -> list[str]:
    """All marks in a value, sorted. A mark that stands twice is twice in it."""
    return sorted(_MARK.findall(value if isinstance(value, str) else repr(value)))


# --- bytes ----------------------------------------------------------------------------------------------------------


def sse(*frames: Any) -> bytes:
    """Frames as bytes. One that has a `type` has its name before it."""
    out = []
    for value in frames:
        name = f"event: {value['type']}\n" if isinstance(value, dict) and "type" in value else ""
        out.append(f"{name}data: {value if isinstance(value, str) else json.dumps(value)}\n\n")
    return "".join(out).encode()


def read_by(reader: StreamReader, data: bytes, size: int = 0) -> list[Event]:
    """The events of a whole stream that arrives `size` bytes at a time; 0: all at once."""
    size = size or max(1, len(data))
    events = [event for at in range(0, len(data), size) for event in reader.feed(data[at : at + size])]
    return [*events, *reader.finish()]


def read_by_frames(reader: StreamReader, data: bytes) -> list[Event]:
    """The events of a whole stream that arrives cut at every end of a frame."""
    events = [event for frame in data.split(b"\n\n")[:-1] for event in reader.feed(frame + b"\n\n")]
    return [*events, *reader.finish()]


def folded(events: Iterable[Event]) -> ModelReply:
    """The reply so far of a stream that may not be whole."""
    folding = Folding()
    for event in events:
        folding.feed(event)
    return folding.reply()


# --- what events say ------------------------------------------------------------------------------------------------

Said = tuple[str, str, Any]
"""The kind of a delta, its text, and what stands beside it."""


def said(events: Iterable[Event]) -> list[Said]:
    """The deltas that say something, in order; of a call with its name and id before them."""
    out: list[Said] = []
    kinds: dict[int, str] = {}
    for event in events:
        if isinstance(event, Open):
            kinds[event.block] = event.kind.value
            if event.kind is BlockKind.TOOL_CALL:
                out.append(("call", f"{event.name} {event.call_id} {event.call_kind}", dict(event.extra) or None))
        elif isinstance(event, Delta) and event.text:
            out.append((kinds[event.block], event.text, event.extra))
    return out


def by_kind(choice: ReplyChoice) -> dict[str, Any]:
    """An answer in a protocol that has one place for each kind of prose: the texts of a kind joined, and the calls."""
    joined = {
        kind.__name__: "".join(part.text for part in choice.parts if isinstance(part, kind))
        for kind in (Text, Reasoning, Refusal)
    }
    return {**joined, "calls": [part for part in choice.parts if isinstance(part, ToolUse)], "reason": choice.reason}


# --- blocks of events -----------------------------------------------------------------------------------------------

END_TIME: Extra = {"completed_at": 7}
"""Else an answer is complete when it is written."""
Block = Callable[[int], list[Event]]
"""A whole block by its place, which is also its number."""


def prose(kind: BlockKind, *pieces: str, opened: str = "", late: str = "", protocol: str = "") -> Block:
    """A block of prose. `opened` and `late` are fields with marks that `protocol` says of it at its ends."""

    def at(place: int) -> list[Event]:
        first, last = extra(protocol, opened, place), extra(protocol, late, place)
        texts = [Delta(place, piece.replace("#", str(place))) for piece in pieces]
        return [Open(place, kind, extra=first), *texts, Close(place, extra=last)]

    return at


def call(
    *pieces: str, kind: Any = "function", opened: str = "", late: str = "", protocol: str = "", cut: bool = False
) -> Block:
    """A call whose arguments come in these pieces; `cut`: a limit of length cut it off."""

    def at(place: int) -> list[Event]:
        first, last = extra(protocol, opened, place), extra(protocol, late, place)
        begins = Open(
            place, BlockKind.TOOL_CALL, name=f"f{place}", call_id=f"call_{place}", call_kind=kind, extra=first
        )
        ends = Close(place, "truncated" if cut else "complete", last)
        return [begins, *(Delta(place, piece) for piece in pieces), ends]

    return at


def extra(protocol: str, field: str, place: int) -> Extra:
    """What `protocol` says of the block at `place`: fields with marks, those of lists as lists."""
    if not field:
        return EMPTY
    value: Any = mark(place, "late" if field.startswith("x_late") else field.replace("_", ""))
    if field == "citations":
        value = [{"type": "char_location", "cited_text": value}]
    elif field == "annotations":
        value = [{"type": "url_citation", "url": value}]
    elif field == "item":
        value = {"phase": value}
    return {protocol: {field: value}}


def stream(blocks: Sequence[list[Event]], reason: str = FinishReason.STOP, ident: str = "id") -> list[Event]:
    """A whole stream of these blocks, one after the other."""
    body = [event for block in blocks for event in block]
    return [Start(ident, "m", 1, END_TIME), *body, Finish(reason, Usage(3, 4))]


def overlapping(blocks: Sequence[list[Event]], reason: str = FinishReason.STOP, ident: str = "id") -> list[Event]:
    """The same blocks, opened in order, with deltas in turn, and closed from the last to the first."""
    opens = [block[0] for block in blocks]
    middles = [block[1:-1] for block in blocks]
    turns = [middle[n] for n in range(max(map(len, middles), default=0)) for middle in middles if n < len(middle)]
    closes = [block[-1] for block in reversed(blocks)]
    return [Start(ident, "m", 1, END_TIME), *opens, *turns, *closes, Finish(reason, Usage(3, 4))]


def by_characters(events: Iterable[Event]) -> list[Event]:
    """The same stream with a delta for each character and an empty one behind it."""
    out: list[Event] = []
    for event in events:
        if isinstance(event, Delta) and event.extra is None:
            out += [Delta(event.block, piece) for letter in event.text for piece in (letter, "")]
        else:
            out.append(event)
    return out
