"""Passed-through requests: paths of which the gateway reads only the model's name and whether a stream is requested
(R24.3).

A passed path is both halves of a protocol, so its requests use keys, limits, routes, servers, retries and errors like
all others. It has no messages, and of an answer only token counts, and the text of a stream in the form of
`/completions`, are read. Requests and answers are never written: the bytes are passed through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from ...model import ModelReply, ModelRequest, Origin, ReplyChoice, Sampling
from ..base import ClientSide, ServerSide
from ..chat.protocol import DONE, is_end, is_silent, missing_end
from ..chat.reader import ChatReader
from ..chat.reply import read_error, read_usage
from ..chat.writer import ChatWriter
from ..shared import openai
from ..shared.noise import Note, ignore_note
from ..shared.numbers import MAX_CHOICES
from ..shared.wire import read_body
from ..streams import WriteOptions

VERSION: Final = "/v1"


class ProxiedProtocol(ClientSide, ServerSide):
    """The protocol of one path that the configuration names: `/v1/embeddings` is below the base URL of a server's API,
    `/tokenize` beside it."""

    content_type = "text/event-stream"
    end_marks = (DONE,)
    usual = b'"text":'
    any_frames = True
    time_header = openai.TIME_HEADER

    def __init__(self, path: str) -> None:
        self.versioned = path.startswith(VERSION + "/")
        self.path = path.removeprefix(VERSION) if self.versioned else path
        self.name = self.path.lstrip("/")
        self.example = {}

    # --- towards clients --------------------------------------------------------------------------------------------

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        """Returns the model and the fields that limits need; the rest stays in `raw`."""
        most, several = body.get("max_tokens"), body.get("n")
        return ModelRequest(
            body["model"],
            (),
            sampling=Sampling(
                max_tokens=most if type(most) is int and most >= 0 else None,
                n=several if type(several) is int and several > 0 else 1,
            ),
            stream=body.get("stream") is True,
            origin=Origin(self.name, raw),
        )

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Returns no headers; those of the server's own protocol are sent."""
        return {}

    def write_request(self, request: ModelRequest) -> NoReturn:
        """Never called: the bytes are passed through."""
        raise NotImplementedError

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        """Returns a reply with only the token counts. Raises `BackendFault`, or the error that the body holds."""
        answer = read_body(body)
        error = read_error(answer) if isinstance(answer, dict) else None
        if error is not None:
            raise error
        usage = read_usage(answer.get("usage")) if isinstance(answer, dict) else None
        return ModelReply("", "", 0, (ReplyChoice(()),), usage)

    reader = staticmethod(ChatReader)
    writer = staticmethod(ChatWriter)
    is_silent = staticmethod(is_silent)
    is_end = staticmethod(is_end)
    missing_end = staticmethod(missing_end)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> NoReturn:
        """Never called: the bytes are passed through."""
        raise NotImplementedError
