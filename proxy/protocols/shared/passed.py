"""What passes as it is: requests at paths of which the gateway knows no more than which model they are for, and whether
a stream is asked for (R24.3).

Both halves of a protocol for each path, so that a request goes the way of any other: keys, limits, routes, servers,
retries, errors. There are no messages in it and nothing is made of an answer but counts of tokens, and the text of a
stream in the form of `/completions`. So neither is ever written: bytes pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from toolwire.errors import GatewayError
from toolwire.model import ModelReply, ModelRequest, Origin, ReplyChoice, Sampling
from toolwire.protocols.base import ClientSide, ListedModel, ServerSide, StreamReader, StreamWriter, WriteOptions
from toolwire.protocols.chat.protocol import DONE, is_done, missing_end, says_nothing
from toolwire.protocols.chat.reader import ChatReader
from toolwire.protocols.chat.reply import read_error, read_usage
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.shared import openai
from toolwire.protocols.shared.noise import Note, in_any, of_frame, unnoted
from toolwire.protocols.shared.numbers import MAX_CHOICES
from toolwire.protocols.shared.wire import read_body

VERSION: Final = "/v1"


class PassedProtocol(ClientSide, ServerSide):
    """That of one path, as the configuration names it: `/v1/embeddings` is below the base URL of a server's API,
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
        """The model and what limits need to know; the rest stays in `raw`."""
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
        """OpenAI's envelope."""
        return openai.write_error(error)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        """OpenAI's list."""
        return openai.write_models(models, for_codex=for_codex)

    def write_model(self, model: ListedModel) -> bytes:
        """OpenAI's model."""
        return openai.write_model(model)

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Those of the server's own protocol are sent."""
        return {}

    def write_request(self, request: ModelRequest) -> NoReturn:
        """It passes as it is."""
        raise NotImplementedError

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
        """The tokens that it has counted. Raises `BackendFault`, or the error that the body holds."""
        answer = read_body(body)
        error = read_error(answer) if isinstance(answer, dict) else None
        if error is not None:
            raise error
        usage = read_usage(answer.get("usage")) if isinstance(answer, dict) else None
        return ModelReply("", "", 0, (ReplyChoice(()),), usage)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = unnoted) -> StreamReader:
        """Reads a stream in the form of `/completions`."""
        return ChatReader(frame_bytes, choices, note)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Writes the error with which a stream ends."""
        return ChatWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> NoReturn:
        """It passes as it is."""
        raise NotImplementedError

    def says_nothing(self, name: str | None, data: bytes) -> bool:
        """Empty text."""
        return self.left_out(name, data) is not None or says_nothing(name, data)

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """See `ServerSide.left_out`."""
        return of_frame(in_any, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """`[DONE]`."""
        return is_done(data)

    def missing_end(self, tail: bytes) -> bytes | None:
        """Some servers leave out `[DONE]`."""
        return missing_end(tail)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """OpenAI's error envelope, and what servers write in its place."""
        return openai.read_refusal(body)
