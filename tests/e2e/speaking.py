"""Model servers whose answers are written by the server side of their protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from toolwire.folding import unfold
from toolwire.model import ModelReply, ModelRequest
from toolwire.protocols.streams import WriteOptions
from toolwire.testing import Answer, Asked

SSE: Final = {"Content-Type": "text/event-stream"}
JSON: Final = {"Content-Type": "application/json"}
OPTIONS: Final = WriteOptions(request=ModelRequest("m", (), stream=True, include_usage=True), created=1)


def in_pieces(text: str, size: int) -> list[str]:
    """The text in deltas of so many characters."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def speaking(
    wire: Any, reply: ModelReply, *, options: WriteOptions = OPTIONS, contrary: bool = False
) -> Callable[[Asked], Answer]:
    """A server that gives this answer; a contrary one streams what is not to be, and the other way round."""

    def answer(asked: Asked) -> Answer:
        if asked.json.get("stream", False) is not contrary:
            return Answer([wire.writer(options).feed(unfold(reply))], headers=SSE)
        return Answer([wire.write_reply(reply, options)], headers=JSON, framing="length")

    return answer
