"""The older text protocol (`/completions`), spoken towards backends that know no roles.

It serves no clients: what they ask for at `/v1/completions` passes as it is (`toolwire.protocols.shared.passed`).
Towards a backend a conversation becomes one text, by a template (`toolwire.protocols.completions.chat_templates`); by
default

    System: You are helpful.

    User: Hello

    Assistant:

One paragraph a message, `Role: text`, in order, and an open `Assistant:` at the end; the next `User:` stops the model
(`own_stops`), unless the client's own sequences leave no room for it.
If the last message is the assistant's, it is left open and the model goes on with it. Calls and results that were not
already written as text by the route's format take the form of `prompt.flatten: bracket`, so none is lost. Reasoning of
earlier turns is left out. What a message says cannot begin or end a turn: markers in it are escaped, by the injection,
which knows what to undo in the answer, else here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolwire.config import BackendConfig
from toolwire.errors import ClientFault
from toolwire.model import Image, Message, ModelReply, ModelRequest, Opaque, Refusal, Text, ToolResult, ToolUse, Usage
from toolwire.protocols.base import ServerSide, StreamReader, StreamWriter, WriteOptions
from toolwire.protocols.chat.protocol import DONE, is_done, missing_end, says_nothing
from toolwire.protocols.chat.reader import ChatReader
from toolwire.protocols.chat.reply import read_reply, read_usage, write_reply
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.completions.chat_templates import PLAIN, ChatTemplate, Guard, Said, template_for
from toolwire.protocols.shared import openai
from toolwire.protocols.shared.noise import Note, in_chat, of_frame, unnoted
from toolwire.protocols.shared.numbers import MAX_CHOICES
from toolwire.protocols.shared.wire import dump

_ROLES: Final[Mapping[str, str]] = {"developer": "system", "tool": "user"}
"""As templates know them."""
_STOPS: Final = 4
"""The protocol takes at most four stop texts."""


class CompletionsProtocol(ServerSide):
    """The text wire form. Its answers are read as those of chat are, whose frames differ only in holding a delta in
    place of `text`: so what it has to write itself it writes as chat."""

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
        """With the template that the configuration names, and as many stop texts as it says."""
        template = template_for(config.template, config.options)
        return CompletionsProtocol(template, _STOPS if config.stop_sequences is None else config.stop_sequences)

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """The key as bearer token."""
        return openai.headers(api_key)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """The JSON object with the conversation as `prompt`. Raises `ClientFault` `unsupported_content` for images.
        What is not modelled is left out, or in results JSON (R8.2, R4.2). Tools are not
        written: in prompt mode they stand in the text already."""
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

    def read_reply(self, body: bytes, *, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
        """A whole answer. Raises `BackendFault`, or the error that the body holds."""
        return read_reply(body, choices, note)

    def reader(self, *, frame_bytes: int, choices: int = MAX_CHOICES, note: Note = unnoted) -> StreamReader:
        """A reader for one streamed answer; the frames are those of chat but for `text` in place of a delta."""
        return ChatReader(frame_bytes, choices, note)

    def writer(self, options: WriteOptions) -> StreamWriter:
        """Writes a stream that `reader` reads."""
        return ChatWriter(options)

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        """A body that `read_reply` reads."""
        return write_reply(reply, options)

    def says_nothing(self, name: str | None, data: bytes) -> bool:
        """Empty text."""
        return self.left_out(name, data) is not None or says_nothing(name, data)

    def left_out(self, name: str | None, data: bytes) -> str | None:
        """See `ServerSide.left_out`."""
        return of_frame(in_chat, name, data)

    def is_end(self, name: str | None, data: bytes) -> bool:
        """`[DONE]`."""
        return is_done(data)

    def missing_end(self, tail: bytes) -> bytes | None:
        """Some servers leave out `[DONE]`: a finish reason says as much."""
        return missing_end(tail)

    def read_usage(self, usage: Any) -> Usage | None:
        """Counts in this protocol's words."""
        return read_usage(usage)

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        """OpenAI's error envelope, and what servers write in its place."""
        return openai.read_refusal(body)


def _with_number(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Here `logprobs` is how many alternatives are wanted for each token."""
    wanted = extra.get("logprobs")
    if not isinstance(wanted, bool):
        return extra
    others = {name: value for name, value in extra.items() if name not in ("logprobs", "top_logprobs")}
    return {**others, "logprobs": extra.get("top_logprobs") or 1} if wanted else others


def render_transcript(
    messages: Iterable[Message], template: ChatTemplate = PLAIN, *, guard: Guard | None = None, guarded: bool = False
) -> str:
    """The conversation as one text. `guarded`: see `ModelRequest`. Raises `ClientFault` `unsupported_content` for
    images, and `invalid_message_order` for a conversation that the template refuses."""
    guard = guard or Guard(template.markers)
    turns = [
        Said(_ROLES.get(message.role, message.role), guard.text(_pieces(message), guarded=guarded))
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
    """The lines of a message."""
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
            case Opaque() if message.role == "tool":
                pieces.append(dump(part.payload).decode())
            case _:
                pass
    return pieces
