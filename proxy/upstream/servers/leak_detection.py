"""Searches one answer for secrets of the gateway: as events, as raw frames, or as a whole.

Rules:

1. The search covers the text that a client would assemble: the text of each block, or of each text field of the frames.
   All other parts are searched as they are.
2. Everything before the secret is sent, wherever the stream was cut; nothing after it is.
3. For servers without secrets there is no detector, so the search costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from ...fastparse import SecretGuard, SseFramer
from ...folding import unfold
from ...model import ModelReply
from ...protocols.shared.sse_reader import FRAME_END
from ...protocols.shared.wire import dump, load
from .private_data import PrivateData, secret_fault

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
"""Keys of frames whose values are pieces of text."""
_REASONING: Final = frozenset({"reasoning", "reasoning_content", "reasoning_text"})
_PLACES: Final = ("index", "output_index", "content_index", "summary_index", "item_id")
"""Keys that identify the text which a piece belongs to."""
MOST_FIELDS: Final = 256
"""Maximum number of texts that are tracked at once; beyond it the oldest is forgotten."""

Place = tuple[Any, ...]


class LeakDetector:
    """Searches one streamed answer for the secrets of `private`, which must have at least one. `prose` searches the
    text and the reasoning of the first choice; the fast path uses it too."""

    def __init__(self, private: PrivateData) -> None:
        self.prose = SecretGuard(private.parts)
        self._private = private
        self._blocks: dict[int, tuple[SecretGuard, bool]] = {}
        self._fields: dict[Place, SecretGuard] = {}

    def events(self, events: list[Event]) -> list[Event]:
        """Returns the events before a secret, followed by the `Fault` that ends the answer; all events if there is no
        secret."""
        for number, event in enumerate(events):
            if self._contains_secret(event):
                return [*events[:number], Fault(secret_fault())]
        return events

    def frames(self, data: bytes) -> bytes:
        """Returns the whole frames of `data` before the one that contains or completes a secret."""
        pos = self.prose.frames(data, 0)
        while pos < len(data):
            end = _frame_end(data, pos)
            # One frame at a time, because the guard searches for a frame's end up to the end of its input.
            frame = data[pos:end]
            if self.prose.frames(frame, 0) < len(frame) and (self.prose.found or self._in_frame(frame)):
                return data[:pos]
            pos = end
        return data

    def _contains_secret(self, event: Event) -> bool:
        match event:
            case Delta():
                guard, reasoning = self._blocks[event.block]
                found = guard.text(event.text.encode("utf-8", "surrogatepass"), reasoning)
                return found or (event.extra is not None and self._value_has_secret(event.extra))
            case Open():
                prose = event.choice == 0 and event.kind in (BlockKind.TEXT, BlockKind.REASONING)
                guard = self.prose if prose else SecretGuard(self._private.parts)
                self._blocks[event.block] = guard, prose and event.kind is BlockKind.REASONING
                return self._value_has_secret([event.name, event.call_id, dict(event.extra)])
            case Start():
                usage = event.usage.extra if event.usage else None
                return self._value_has_secret([event.response_id, event.model, dict(event.extra), usage])
            case Close():
                del self._blocks[event.block]
                return bool(event.extra) and self._value_has_secret(event.extra)
            case Finish():
                parts = [part for part in (event.extra, *event.choices, event.usage and event.usage.extra) if part]
                return bool(parts) and self._value_has_secret(parts)
            case Opaque():
                return self._value_has_secret(event.payload)
            case _:
                return False

    def _value_has_secret(self, value: Any) -> bool:
        return self._private.occurs_in(dump(dict(value) if isinstance(value, Mapping) else value))

    def _in_frame(self, frame: bytes) -> bool:
        """True if a frame contains a secret or completes one."""
        if self._private.occurs_in(frame):
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


def leak_detector(private: PrivateData) -> LeakDetector | None:
    """Returns a detector for answers of a server with this private data; None if it has no secrets."""
    return LeakDetector(private) if private.secrets else None


def check_whole(private: PrivateData, body: bytes) -> None:
    """Raises `BackendFault` if the body of a whole answer contains a secret."""
    if private.secrets and private.occurs_in(body):
        raise secret_fault()


def check_reply(private: PrivateData, reply: ModelReply) -> ModelReply:
    """Returns `reply`. Raises `BackendFault` if it contains a secret."""
    detector = leak_detector(private)
    if detector is not None:
        last = detector.events(unfold(reply))[-1]
        if isinstance(last, Fault):
            raise last.error
    return reply


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yields the pieces of text in a frame, each with the keys that identify its text."""
    if isinstance(value, dict):
        place += tuple(
            word for key in _PLACES if isinstance(index := value.get(key), int | str) for word in (key, index)
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
    """Returns the end of the frame at `pos`, for any kind of line end."""
    match = FRAME_END.search(data, pos)
    return len(data) if match is None else match.end()
