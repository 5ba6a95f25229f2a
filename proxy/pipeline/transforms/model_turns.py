"""Merges several model answers of one request into one: selects the events that the client gets of each, and the calls
that the gateway runs. Pure functions of events.

Rules:

1. One `Start`, one `Finish`; blocks are numbered once; texts of different rounds are separated by an empty line.
2. Text, reasoning and visible calls of the gateway are sent as they come, and so are calls of the client whose
   arguments are streamed (R6.13). From the first other call of the client on, an answer is held until its end, because
   server-side calls run first (R15.9).
   A call that the client gets together with its result (`Shown`) keeps its position among the held events.
3. A call that was cut off is neither run nor sent to the model again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start, is_live
from ...folding import Folding
from ...model import Part, Refusal, Text, ToolUse, Usage
from ...upstream.servers.usage import add_usage
from ..exchange.tool_memory import marked_id

BREAK = "\n\n"


class LoopState:
    """State shared by all rounds (answers of the model) that make up one answer to the client."""

    def __init__(self) -> None:
        self.started = False
        self.has_text = False
        """True if an earlier round had visible text, which an empty line separates from the next one."""
        self.usage: Usage | None = None
        self._blocks = 0

    def new_block(self) -> int:
        """Returns the number for a new block."""
        self._blocks += 1
        return self._blocks - 1

    def count(self, usage: Usage | None) -> None:
        """Adds the token counts of a round."""
        self.usage = add_usage(self.usage, usage)


class Shown:
    """The position of a call that the client gets together with its result, as one item."""


class ModelTurn:
    """One answer of the model. `is_ours` tells which calls the gateway runs. `exposes`: the client gets these calls.
    `shows` selects the calls that the client gets together with their results. `marks`: a call of the client whose
    arguments are streamed gets an id under which results can be stored."""

    def __init__(
        self,
        state: LoopState,
        is_ours: Callable[[Open], bool],
        *,
        exposes: bool = False,
        shows: Callable[[Open], bool] = lambda _: False,
        marks: bool = False,
    ) -> None:
        self.calls: list[ToolUse] = []
        """The complete calls that the gateway runs."""
        self.held: list[Event | Shown] = []
        """Events to send after the calls were run."""
        self.finish: Finish | None = None
        self.over = False
        self._state = state
        self._is_ours = is_ours
        self._exposes = exposes
        self._shows = shows
        self._places: dict[int, Shown] = {}
        self._marks = marks
        self._folding = Folding()
        self._numbers: dict[int, int] = {}
        self._ours: dict[int, Open] = {}
        self._texts: set[int] = set()
        self._clients: list[Open] = []
        self._marked: str | None = None
        self._holds = False
        self._has_text = False

    @property
    def asks_client(self) -> bool:
        """True if the answer has a call that only the client can run."""
        return bool(self._clients)

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """Processes events of the answer and returns those that the client gets now."""
        out: list[Event] = []
        for event in events:
            if self.over:
                break
            self._folding.feed(event)
            if isinstance(event, Finish):
                self.finish, self.over = event, True
                self._state.count(event.usage)
                self._state.has_text = self._state.has_text or self._has_text
                self._read_calls()
            elif isinstance(event, Fault):
                self.over = True
                out += [held for held in self.held if not isinstance(held, Shown)]
                out.append(event)
            elif (shown := self._shown(event)) is not None:
                (self.held if self._holds else out).append(shown)
        return out

    @property
    def shown_calls(self) -> list[ToolUse]:
        """The calls in `calls` that the client gets together with their results, in the order of their positions."""
        placed = {(self._ours[block].call_id, self._ours[block].name) for block in self._places}
        return [use for use in self.calls if (use.call_id, use.name) in placed]

    def is_clients(self, event: Event) -> bool:
        """Returns True if a returned event begins a call that only the client can run."""
        return any(event is opened for opened in self._clients)

    def mark(self) -> str:
        """Gives the client's first call an id under which results can be stored, if it has none yet. Returns the id."""
        if self._marked is None:
            self._marked = self._clients[0].call_id = marked_id()
        return self._marked

    def parts(self) -> tuple[Part, ...]:
        """Returns the text, the refusals and the gateway's calls of this answer, for the model's next round."""
        parts = self._folding.reply().choices[0].parts
        return tuple(part for part in parts if isinstance(part, Text | Refusal) or part in self.calls)

    def _shown(self, event: Event) -> Event | None:
        match event:
            case Start():
                first, self._state.started = not self._state.started, True
                return event if first else None
            case Open():
                return self._opened(event)
            case Delta():
                number = self._numbers.get(event.block)
                if number is None:
                    return None
                text = event.text
                if event.block in self._texts and not self._has_text and text.strip():
                    self._has_text = True
                    text = BREAK + text if self._state.has_text and not self._exposes else text
                return Delta(number, text, event.extra)
            case Close():
                opened = self._ours.get(event.block)
                if opened is not None and event.status == "truncated":
                    del self._ours[event.block]
                    if (place := self._places.pop(event.block, None)) is not None:
                        self.held.remove(place)
                number = self._numbers.get(event.block)
                return None if number is None else Close(number, event.status, event.extra)
            case _:
                return event

    def _opened(self, event: Open) -> Open | None:
        if event.kind is BlockKind.TOOL_CALL and self._is_ours(event):
            self._ours[event.block] = event
            if self._shows(event):
                self._places[event.block] = place = Shown()
                self.held.append(place)
                self._holds = True
                return None
            if not self._exposes:
                return None
        number = self._numbers[event.block] = self._state.new_block()
        shown = replace(event, block=number)
        if event.kind is BlockKind.TEXT:
            self._texts.add(event.block)
        elif event.kind is BlockKind.TOOL_CALL and event.block not in self._ours:
            self._clients.append(shown)
            if not is_live(event):
                self._holds = True
            elif self._marks and not self._holds and self._marked is None:
                self._marked = shown.call_id = marked_id()
        return shown

    def _read_calls(self) -> None:
        own = {(opened.call_id, opened.name) for opened in self._ours.values()}
        parts = self._folding.reply().choices[0].parts
        self.calls = [part for part in parts if isinstance(part, ToolUse) and (part.call_id, part.name) in own]
