"""One answer, looked through for secrets of the gateway as it goes by: as events, as frames that pass unread, or as a
whole.

Rules:

1. What is looked through is what a client would put together: the text of each block, or of each field of frames that
   carries text. Everything else is looked through as it stands.
2. What comes before the place where a secret is found goes out, wherever the stream was cut; nothing does from there
   on.
3. An answer of servers without secrets costs nothing: there is no `Leaks` then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from toolwire.fastparse import SecretGuard, SseFramer
from toolwire.folding import unfold
from toolwire.model import ModelReply
from toolwire.protocols.shared.wire import dump, load
from toolwire.upstream.servers.private import Private, withheld

_TEXTS: Final = frozenset(
    [
        "content",
        "text",
        "delta",
        "refusal",
        "arguments",
        "input",
        "reasoning",
        "reasoning_content",
        "reasoning_text",
        "thinking",
        "partial_json",
    ]
)
"""Keys of frames under which text comes in pieces."""
_REASONING: Final = frozenset({"reasoning", "reasoning_content", "reasoning_text"})
_PLACES: Final = ("index", "output_index", "content_index", "summary_index", "item_id")
"""Keys that say which text it is a piece of."""
_FRAME_END: Final = re.compile(rb"\n\n|\n\r\n|\r\r")
MOST_FIELDS: Final = 256
"""So many texts may come side by side in frames; the oldest are forgotten."""

Place = tuple[Any, ...]


class Leaks:
    """Looks for the secrets of `private`, of which there is at least one, in one streamed answer. `prose` does so in
    the text and the reasoning of the first choice."""

    def __init__(self, private: Private) -> None:
        self.prose = SecretGuard(private.parts)
        self._private = private
        self._blocks: dict[int, tuple[SecretGuard, bool]] = {}
        self._fields: dict[Place, SecretGuard] = {}

    def events(self, events: list[Event]) -> list[Event]:
        """The events up to where a secret is found, and the `Fault` that ends the answer there."""
        for number, event in enumerate(events):
            if self._holds(event):
                return [*events[:number], Fault(withheld())]
        return events

    def frames(self, data: bytes) -> bytes:
        """The whole frames of `data` up to the one in which a secret is found."""
        pos = self.prose.frames(data, 0)
        while pos < len(data):
            end = _frame_end(data, pos)
            # One at a time: the guard may look for the end of a frame up to the end of what it is given.
            frame = data[pos:end]
            if self.prose.frames(frame, 0) < len(frame) and (self.prose.found or self._in_frame(frame)):
                return data[:pos]
            pos = end
        return data

    def _holds(self, event: Event) -> bool:
        match event:
            case Delta():
                guard, reasoning = self._blocks[event.block]
                found = guard.text(event.text.encode("utf-8", "surrogatepass"), reasoning)
                return found or (event.extra is not None and self._stands_in(event.extra))
            case Open():
                prose = event.choice == 0 and event.kind in (BlockKind.TEXT, BlockKind.REASONING)
                guard = self.prose if prose else SecretGuard(self._private.parts)
                self._blocks[event.block] = guard, prose and event.kind is BlockKind.REASONING
                return self._stands_in([event.name, event.call_id, dict(event.extra)])
            case Start():
                usage = event.usage.extra if event.usage else None
                return self._stands_in([event.response_id, event.model, dict(event.extra), usage])
            case Close():
                del self._blocks[event.block]
                return bool(event.extra) and self._stands_in(event.extra)
            case Finish():
                said = [part for part in (event.extra, *event.choices, event.usage and event.usage.extra) if part]
                return bool(said) and self._stands_in(said)
            case Opaque():
                return self._stands_in(event.payload)
            case _:
                return False

    def _stands_in(self, value: Any) -> bool:
        return self._private.stands_in(dump(dict(value) if isinstance(value, Mapping) else value))

    def _in_frame(self, frame: bytes) -> bool:
        """Whether a frame holds a secret, or completes one."""
        if self._private.stands_in(frame):
            return True
        framer = SseFramer(len(frame))
        for _, payload in (*framer.feed(frame), *framer.finish()):
            try:
                value = load(payload)
            except ValueError:
                continue
            for place, text in _texts(value, ()):
                if self._in_field(place, text):
                    return True
        return False

    def _in_field(self, place: Place, text: str) -> bool:
        guard, reasoning = self._fields.get(place), False
        if place[:2] == ("index", 0) and len(place) == 3 and (place[-1] == "content" or place[-1] in _REASONING):
            guard, reasoning = self.prose, place[-1] != "content"
        elif guard is None:
            if len(self._fields) >= MOST_FIELDS:
                del self._fields[next(iter(self._fields))]
            guard = self._fields[place] = SecretGuard(self._private.parts)
        return guard.text(text.encode("utf-8", "surrogatepass"), reasoning)


def leaks_of(private: Private) -> Leaks | None:
    """Whoever looks through an answer of a server with these; None if there is nothing to look for."""
    return Leaks(private) if private.secrets else None


def check_whole(private: Private, body: bytes) -> None:
    """Raise `BackendFault` if the body of a whole answer holds a secret."""
    if private.secrets and private.stands_in(body):
        raise withheld()


def check_reply(private: Private, reply: ModelReply) -> ModelReply:
    """A whole answer. Raises `BackendFault` if it holds a secret."""
    leaks = leaks_of(private)
    if leaks is not None:
        last = leaks.events(unfold(reply))[-1]
        if isinstance(last, Fault):
            raise last.error
    return reply


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """The pieces of text in a frame, each with what says where it belongs."""
    if isinstance(value, dict):
        place += tuple(
            word for key in _PLACES if isinstance(given := value.get(key), int | str) for word in (key, given)
        )
        if isinstance(kind := value.get("type"), str) and kind.startswith("response."):
            place += (kind,)
        for key, item in value.items():
            if isinstance(item, str):
                if key in _TEXTS:
                    yield (*place, key), item
            elif isinstance(item, dict | list):
                yield from _texts(item, place)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, place)


def _frame_end(data: bytes, pos: int) -> int:
    """The place behind the frame at `pos`, whatever its lines end with."""
    found = _FRAME_END.search(data, pos)
    return len(data) if found is None else found.end()
