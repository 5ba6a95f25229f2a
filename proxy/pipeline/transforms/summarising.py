"""Answers that are a summary of the conversation (R28.1): all text of the answer becomes one part of the client's
protocol."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import GatewayError
from ...events import BlockKind, Delta, Event, Fault, Finish, Open, Start
from ...events import Opaque as OpaqueEvent
from ...model import OpaquePart
from ..answers.stages import Stage


class Summarising(Stage):
    """Replaces the content of an answer by one part, which `make` builds from all its text. `make` raises
    `GatewayError` if the text is no summary."""

    def __init__(self, make: Callable[[str], OpaquePart]) -> None:
        self._make = make
        self._blocks: set[int] = set()
        self._text: list[str] = []

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            match event:
                case Start() | Fault():
                    out.append(event)
                case Open(kind=BlockKind.TEXT):
                    self._blocks.add(event.block)
                case Delta() if event.block in self._blocks:
                    self._text.append(event.text)
                case Finish():
                    out += self._end(event)
        return out

    def _end(self, last: Finish) -> list[Event]:
        try:
            part = self._make("".join(self._text))
        except GatewayError as error:
            return [Fault(error)]
        return [OpaqueEvent(part.protocol, part.payload), last]
