"""Escapes of the prompt, undone in the answer (R5.6a).

Rules of this module:

1. Law: whatever a model copies of data that it was shown, into text, thoughts or the strings of a call's arguments,
   comes out as it was before it was escaped; streamed at any split, and whole.
2. What looks like an escape comes out as the model wrote it unless one that looks exactly so, with as many backslashes,
   was made in this very prompt. Then it cannot be told from a copy.
3. It works on what the scanner has found, before anybody else sees it: what a call is, was decided by the model's own
   bytes.
"""

from __future__ import annotations

from ..events import BlockKind, Close, Delta, Event, Fault, Finish, Open
from ..formats.restoring import Escapes, Restorer
from ..model import ModelReply, Reasoning, Refusal, Text, ToolUse
from .stages import Stage


class UnescapeStage(Stage):
    """Gives every block of an answer a `Restorer` of its own. Held is what `Restorer` holds."""

    def __init__(self, escapes: Escapes) -> None:
        self._escapes = escapes
        self._restorers: dict[int, Restorer] = {}

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `proxy.pipeline.stages.Stage`: without a backslash there is no escape."""
        for choice in reply.choices:
            for part in choice.parts:
                match part:
                    case Text(text=text) | Reasoning(text=text) | Refusal(text=text) | ToolUse(arguments=text):
                        if "\\" in text:
                            return None
        return reply

    def feed(self, events: list[Event]) -> list[Event]:
        """See `proxy.pipeline.stages.Stage`."""
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
