"""The legacy text protocol (`/completions`), for backends that know no roles.

It has no client side: requests to `/v1/completions` are passed through (`toolwire.protocols.shared.passed`). For a
backend, a conversation becomes one text, by a chat template (`toolwire.protocols.completions.chat_templates`); by
default

    System: You are helpful.

    User: Hello

    Assistant:

Each message is one paragraph, `Role: text`, in order, with an open `Assistant:` at the end. The next `User:` stops the
model (`own_stops`), unless the client's stop sequences leave no room for it. If the last message is the assistant's, it
stays open and the model continues it. Calls and results that the route's format has not yet written as text take the
form of `prompt.flatten: bracket`. Reasoning of earlier turns is dropped. Text in a message cannot begin or end a turn:
its markers are escaped, by the injection middleware, which can undo it in the answer, or else here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...config import BackendConfig
from ...errors import ClientFault
from ...model import (
    Image,
    Message,
    ModelReply,
    ModelRequest,
    OpaquePart,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
    Usage,
)
from ..base import ServerSide
from ..chat.protocol import DONE, is_done, is_empty_frame, missing_end
from ..chat.reader import ChatReader
from ..chat.reply import read_reply, read_usage, write_reply
from ..chat.writer import ChatWriter
from ..shared import openai
from ..shared.noise import Note, ignore_note, in_chat, of_frame
from ..shared.numbers import MAX_CHOICES
from ..shared.wire import dump
from ..streams import StreamReader, StreamWriter, WriteOptions
from .chat_templates import PLAIN, ChatTemplate, Guard, TemplateTurn, template_for

_ROLES: Final[Mapping[str, str]] = {"developer": "system", "tool": "user"}
"""Role of a message in templates."""
_STOPS: Final = 4
"""The protocol allows at most four stop sequences."""


class CompletionsProtocol(ServerSide):
    """The server side of the text protocol. Its answers differ from those of chat only in `text` in place of a delta,
    so the chat reader reads them, and what it has to write itself is written as chat."""

    name = "completions"
    path = "/completions"
    end_marks = (DONE,)
    usual = b'"text":'
    images = False
    limit_fields = ("max_tokens",)
    takes_tools = False
    takes_template = True

    def __init__(self, template: ChatTemplate = PLAIN, stops: int = _STOPS) -> None:
        self.stops: int = stops
        self.own_stops = template.stops
        self.turn_markers = template.markers
        self._template = template
        self._guard = Guard(template.markers)

    def configured(self, config: BackendConfig) -> CompletionsProtocol:
        """Returns the protocol with the backend's chat template and number of stop sequences. Raises `ValueError` for
        an unusable template."""
        template = template_for(config.template, config.options)
        return CompletionsProtocol(template, _STOPS if config.stop_sequences is None else config.stop_sequences)

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """Returns the key as a bearer token."""
        return openai.headers(api_key)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """Returns the JSON object with the conversation as `prompt`. Parts that are not modelled are dropped, or
        written as JSON in results (R8.2, R4.2). Tools are not written: in prompt mode they are in the text already.
        Raises `ClientFault` `unsupported_content` for images."""
        sampling = request.sampling
        stop = list(sampling.stop)
        stop += self.own_stops if len(stop) + len(self.own_stops) <= self.stops else ()
        fields = {
            "model": request.model,
            "prompt": render_transcript(request.messages, self._template, guard=self._guard, guarded=request.guarded),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "stop": stop or None,
            "seed": sampling.seed,
            "top_k": sampling.top_k,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "n": sampling.n if sampling.n != 1 else None,
            "stream": True if request.stream else None,
            "stream_options": {"include_usage": True} if request.stream and request.include_usage else None,
        }
        body = {key: value for key, value in fields.items() if value is not None}
        return {**body, **_with_number(request.extra)}

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
        """Returns the reply in the body of a whole answer. Raises `BackendFault`, or the error that the body holds."""
        return read_reply(body, choices, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = ignore_note) -> StreamReader:
        """Returns a reader for one streamed answer."""
        return ChatReader(frame_bytes, choices, note)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Returns a writer of streams that `reader` can read."""
        return ChatWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """Returns a body that `read_reply` can read."""
        return write_reply(reply, options)

    def is_empty_frame(self, name: str | None, data: bytes) -> bool:
        """True for a frame with empty text."""
        return self.left_out(name, data) is not None or is_empty_frame(name, data)

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """Returns the kind of noise of a frame, or None; see `ServerSide.left_out`."""
        return of_frame(in_chat, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """True for `[DONE]`."""
        return is_done(data)

    def missing_end(self, tail: bytes) -> bytes | None:
        """Returns `[DONE]` for a stream that ended after a finish reason, as some servers' do; otherwise None."""
        return missing_end(tail)

    def read_usage(self, usage: Any) -> Usage | None:
        """Returns the token counts in this protocol's object; None if it holds none."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """Returns message and code of OpenAI's error object, or of the forms that other servers use."""
        return openai.read_refusal(body)


def _with_number(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the parameters with `logprobs` as a number: here it is the number of alternatives for each token."""
    wanted = extra.get("logprobs")
    if not isinstance(wanted, bool):
        return extra
    others = {name: value for name, value in extra.items() if name not in ("logprobs", "top_logprobs")}
    return {**others, "logprobs": extra.get("top_logprobs") or 1} if wanted else others


def render_transcript(
    messages: Iterable[Message], template: ChatTemplate = PLAIN, *, guard: Guard | None = None, guarded: bool = False
) -> str:
    """Returns the conversation as one text. `guarded`: see `ModelRequest`. Raises `ClientFault`: `unsupported_content`
    for images, `invalid_message_order` for a conversation that the template refuses."""
    guard = guard or Guard(template.markers)
    turns = [
        TemplateTurn(_ROLES.get(message.role, message.role), guard.text(_pieces(message), guarded=guarded))
        for message in messages
    ]
    try:
        return template.render(turns)
    except ValueError as error:
        raise ClientFault(
            f"The model's chat template cannot write this conversation: {error}",
            code="invalid_message_order",
            param="messages",
        ) from error


def _pieces(message: Message) -> list[str]:
    """Returns the lines of a message."""
    pieces = []
    for part in message.parts:
        match part:
            case Text() | Refusal():
                pieces.append(part.text)
            case ToolUse():
                pieces.append(f"[function_call call_id={part.call_id} name={part.name} arguments={part.arguments}]")
            case ToolResult():
                output = "\n".join(_pieces(Message("tool", part.parts)))
                pieces.append(f"[function_call_output call_id={part.call_id} output={output}]")
            case Image():
                raise ClientFault(
                    "This model takes text only.",
                    code="unsupported_content",
                    param="messages",
                    hint="Leave out images.",
                )
            case OpaquePart() if message.role == "tool":
                pieces.append(dump(part.payload).decode())
            case _:
                pass
    return pieces
