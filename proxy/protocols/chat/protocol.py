"""The protocol OpenAI Chat Completions, between clients and the gateway and between the gateway and model servers.

`ChatProtocol` is both halves (`base.ClientSide`, `base.ServerSide`). Each method is a pure function or a small state
machine from a module beside this one, usable without the server (R4.6):

    chat = ChatProtocol()
    request = chat.read_request(body, raw)      # ModelRequest; ClientFault if the form is wrong
    body = chat.write_request(request)          # JSON object for a chat backend
    reply = chat.read_reply(answer)             # ModelReply; BackendFault if it is invalid
    events = chat.reader(frame_bytes=1 << 20).feed(data)

`request.py` reads requests, `request_writer.py` writes them; `reply.py` reads and writes whole answers and holds what
whole and streamed answers share; `reader.py` reads streams, `writer.py` writes them. The docstrings of the last four
list what the protocol cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ...fastparse import SseFramer
from ..base import ClientSide, ServerSide
from ..shared import openai
from ..shared.noise import in_chat, with_deltas
from ..shared.sse_reader import is_done
from ..shared.wire import dump, load
from .extra_fields import OPAQUE, REASONING
from .reader import ChatReader
from .reply import read_reply, read_usage, write_reply
from .request import mended, read_request
from .request_writer import write_request
from .writer import ChatWriter

DONE: Final = b"[DONE]"
_FINISHED: Final = re.compile(rb'"finish_reason": ?"')


def is_end(name: str | None, data: bytes) -> bool:
    """True for `[DONE]`."""
    return is_done(data)


def missing_end(tail: bytes) -> bytes | None:
    """Returns `[DONE]` for a stream whose last bytes have a finish reason; otherwise None."""
    return b"data: [DONE]\n\n" if _FINISHED.search(tail) is not None else None


def missing_finish(tail: bytes, ends: bytes) -> bytes:
    """Returns a chunk with a finish reason for each choice in `tail` that has none in `ends`. It has the head of the
    choice's last chunk."""
    ended = {choice.get("index", 0) for _, choice in _choices_in(ends) if choice.get("finish_reason")}
    out: dict[Any, bytes] = {}
    for chunk, choice in reversed(_choices_in(tail)):
        index = choice.get("index", 0)
        if index not in ended and index not in out:
            said = choice.get("delta")
            reason = "tool_calls" if isinstance(said, dict) and said.get("tool_calls") else "stop"
            end = {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}
            head = {key: value for key, value in chunk.items() if key != "usage"}  # those counts were sent
            out[index] = b"data: %b\n\n" % dump({**head, "choices": [end]})
    return b"".join(reversed(out.values()))


def _choices_in(frames: bytes) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Returns the choices in whole frames, each with its chunk. Other data is left out."""
    found = []
    for _, data in SseFramer(len(frames)).feed(frames):
        try:
            chunk = load(data)
        except ValueError:
            continue
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and isinstance(choice.get("index", 0), int):
                found.append((chunk, choice))
    return found


def is_silent(name: str | None, value: Mapping[str, Any]) -> bool:
    """True if a frame is a chunk without text, calls, error and finish reason."""
    if name is not None or value.get("error") or value.get("object") == "error":
        return False
    choices = value.get("choices")
    return isinstance(choices, list) and all(map(_is_silent, choices))


def _is_silent(choice: Any) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("text"):
        return False
    delta = choice.get("delta") or {}
    return isinstance(delta, dict) and not any(value for key, value in delta.items() if key != "role")


class ChatProtocol(ClientSide, ServerSide):
    """The client side and server side of Chat Completions."""

    name = "chat"
    path = "/chat/completions"
    items_field = "messages"
    content_type = "text/event-stream; charset=utf-8"
    api = "toolwire.protocols:schemas/chat_api.json"
    example: Mapping[str, Any] = {
        "messages": [{"role": "user", "content": "Look."}],
        "tools": [openai.TOOL],
        "stream": True,
    }
    inline_thinking = True
    no_storage_message = (
        "This gateway does not store chat completions, so they cannot be listed, read, changed or deleted."
    )
    counts_on_demand = True
    opaque_on_calls = True
    opaque_fields = frozenset(OPAQUE)
    reasoning_names = REASONING
    end_marks = (DONE,)
    usual = b'"delta":{'
    stops = 4
    results_are_text = True
    shows_refusals = False
    time_header = openai.TIME_HEADER
    limit_fields = ("max_tokens", "max_completion_tokens")

    noise_of = staticmethod(in_chat)

    # --- towards clients --------------------------------------------------------------------------------------------

    read_request = staticmethod(read_request)
    mended = staticmethod(mended)
    writer = staticmethod(ChatWriter)
    write_reply = staticmethod(write_reply)

    def carried(self, sealed: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"reasoning_details": [{"type": "reasoning.encrypted", "data": sealed, "format": "unknown"}]}

    def carried_call(self, sealed: str) -> Mapping[str, Any]:
        """Returns the field of Gemini's signature with the sealed text."""
        return {"extra_content": {"google": {"thought_signature": sealed}}}

    # --- towards servers --------------------------------------------------------------------------------------------

    write_request = staticmethod(write_request)
    read_reply = staticmethod(read_reply)
    reader = staticmethod(ChatReader)
    shown = staticmethod(with_deltas)
    is_silent = staticmethod(is_silent)
    is_end = staticmethod(is_end)
    missing_end = staticmethod(missing_end)
    missing_finish = staticmethod(missing_finish)
    read_usage = staticmethod(read_usage)

    def known_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns Gemini's signature of a call and `reasoning_details`, which servers require back."""
        return {key: value for key, value in fields.items() if key in OPAQUE}
