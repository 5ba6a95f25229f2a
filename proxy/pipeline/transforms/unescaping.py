"""Removal of the prompt's escapes from the answer (R5.6a).

Rules:

1. Law: data that a model copies from its prompt into text, reasoning or strings of arguments comes out as it was before
   it was escaped, whole and streamed at any split.
2. Text that looks like an escape stays unchanged, unless this prompt has the same escape, with as many backslashes. It
   cannot be distinguished from a copy then.
3. The stage follows the scanner and precedes all other stages. The model's own bytes decide what is a call.
"""

from __future__ import annotations

from ...events import BlockKind, Close, Delta, Event, Fault, Finish, Open
from ...formats.engine.restoring import Restorer
from ...formats.engine.results import Escapes
from ...model import ModelReply, Reasoning, Refusal, Text, ToolUse
from ..answers.stages import Stage


class UnescapeStage(Stage):
    """Unescapes each block of an answer with a `Restorer`, which may hold back text."""

    def __init__(self, escapes: Escapes) -> None:
        self._escapes = escapes
        self._restorers: dict[int, Restorer] = {}

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `toolwire.pipeline.answers.stages.Stage`. A text without a backslash has no escape."""
        for choice in reply.choices:
            for part in choice.parts:
                match part:
                    case Text(text=text) | Reasoning(text=text) | Refusal(text=text) | ToolUse(arguments=text):
                        if "\\" in text:
                            return None
        return reply

    def feed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            match event:
                case Delta() if event.block in self._restorers:
                    text = self._restorers[event.block].feed(event.text)
                    if text == event.text:
                        out.append(event)
                    elif text or event.extra:
                        out.append(Delta(event.block, text, event.extra))
                    continue
                case Open():
                    json = event.kind is BlockKind.TOOL_CALL and event.call_kind != "custom"
                    self._restorers[event.block] = self._escapes.restorer(json=json)
                case Close():
                    self._end(event.block, out)
                case Finish() | Fault():
                    for block in [*self._restorers]:
                        self._end(block, out)
            out.append(event)
        return out

    def _end(self, block: int, out: list[Event]) -> None:
        restorer = self._restorers.pop(block, None)
        if restorer is not None and (text := restorer.finish()):
            out.append(Delta(block, text))
