"""Passed-through requests: paths of which the gateway reads only the model's name and whether a stream is requested
(R24.3).

A passed path is both halves of a protocol, so its requests use keys, limits, routes, servers, retries and errors like
all others. It has no messages, and of an answer only token counts, and the text of a stream in the form of
`/completions`, are read. Requests and answers are never written: the bytes are passed through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from ...errors import GatewayError
from ...model import ModelReply, ModelRequest, Origin, ReplyChoice, Sampling
from ..base import ClientSide, ListedModel, ServerSide
from ..chat.protocol import DONE, is_done, is_empty_frame, missing_end
from ..chat.reader import ChatReader
from ..chat.reply import read_error, read_usage
from ..chat.writer import ChatWriter
from ..streams import StreamReader, StreamWriter, WriteOptions
from . import openai
from .noise import Note, ignore_note, in_any, of_frame
from .numbers import MAX_CHOICES
from .wire import read_body

VERSION: Final = "/v1"


class PassedProtocol(ClientSide, ServerSide):
    """The protocol of one path that the configuration names: `/v1/embeddings` is below the base URL of a server's API,
    `/tokenize` beside it."""

    content_type = "text/event-stream"
    end_marks = (DONE,)
    usual = b'"text":'
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

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        """Returns OpenAI's error object."""
        return openai.write_error(error)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """Returns OpenAI's list of models."""
        return openai.write_models(models, for_codex=for_codex)

    def write_model(self, model: ListedModel) -> bytes:
        """Returns OpenAI's object of a model."""
        return openai.write_model(model)

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

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = ignore_note) -> StreamReader:
        """Returns a reader of streams in the form of `/completions`."""
        return ChatReader(frame_bytes, choices, note)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Returns a writer for the error at the end of a stream."""
        return ChatWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> NoReturn:
        """Never called: the bytes are passed through."""
        raise NotImplementedError

    def is_empty_frame(self, name: str | None, data: bytes) -> bool:
        """True for noise and frames with empty text."""
        return self.left_out(name, data) is not None or is_empty_frame(name, data)

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """Returns the kind of noise of a frame, or None; see `ServerSide.left_out`."""
        return of_frame(in_any, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """True for `[DONE]`."""
        return is_done(data)

    def missing_end(self, tail: bytes) -> bytes | None:
        """Returns the missing `[DONE]` of a complete stream, which some servers leave out."""
        return missing_end(tail)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """Returns message and code of OpenAI's error object, or of the forms that other servers use."""
        return openai.read_refusal(body)
