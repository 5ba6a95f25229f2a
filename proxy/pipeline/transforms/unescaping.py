"""Removal of the prompt's escapes from the answer (R5.6a).

Rules:

1. Law: data that a model copies from its prompt into text, reasoning or strings of arguments comes out as it was before
   it was escaped, whole and streamed at any split.
2. Text that looks like an escape stays unchanged, unless this prompt has the same escape, with as many backslashes. It
   cannot be distinguished from a copy then.
3. The stage follows the scanner and precedes all other stages. The model's own bytes decide what is a call.
"""

from __future__ import annotations

from ...events import BlockKind, Open
from ...formats.engine.restoring import Restorer
from ...formats.engine.results import Escapes
from ...model import ModelReply, Reasoning, Refusal, Text, ToolUse
from .block_texts import RewritingStage


class UnescapeStage(RewritingStage):
    """Unescapes each block of an answer with a `Restorer`, which may hold back text."""

    def __init__(self, escapes: Escapes) -> None:
        super().__init__()
        self._escapes = escapes

    def whole(self, reply: ModelReply) -> ModelReply | None:
        """See `toolwire.pipeline.answers.stages.Stage`. A text without a backslash has no escape."""
        for choice in reply.choices:
            for part in choice.parts:
                match part:
                    case Text(text=text) | Reasoning(text=text) | Refusal(text=text) | ToolUse(arguments=text):
                        if "\\" in text:
                            return None
        return reply

    def rewriter(self, opened: Open) -> Restorer:
        return self._escapes.restorer(json=opened.kind is BlockKind.TOOL_CALL and opened.call_kind != "custom")
